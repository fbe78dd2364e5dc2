"""One line of a copy of the package broken at a time: do its laws notice?

A program calls ``report``, a test reads what it reports by ``verdicts``. Meant to run
without numba's compiler, which would take longer than the small problems of laws do.
"""

import os
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.programs import ROOT, run

# A file of the package without its ending, a line that occurs in it at least once, and
# what stands there instead.
Fault = tuple[str, str, str]


def report(
    faults: Mapping[str, Fault], check_laws: Callable[[], None], arguments: list[str]
) -> None:
    """Print a line a fault, its name and "green" or "red".

    The arguments are a folder for the copies, and n: only one fault in n is tried.
    """
    folder, step = Path(arguments[0]), int(arguments[1])
    check_lines(faults)
    for number, (name, (file, line, instead)) in enumerate(faults.items()):
        if number % step:
            continue
        package = folder / str(number) / "smoothsp"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "smoothsp", package, ignore=ignored)
        source = package / f"{file}.py"
        text = source.read_text()
        source.write_text(text.replace(line, instead) if line else text)
        colour = "green" if _green(package, check_laws) else "red"
        sys.stdout.write(f"{name}\t{colour}\n")
        sys.stdout.flush()


def check_lines(faults: Mapping[str, Fault]) -> None:
    for file, line, _ in faults.values():
        if line not in (ROOT / "smoothsp" / f"{file}.py").read_text():
            raise RuntimeError(f"{file} has no line {line!r} any more: choose another")


def _green(package: Path, check_laws: Callable[[], None]) -> bool:
    """Check the laws on one copy, in a child that imports that copy first."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            sys.path.insert(0, str(package.parent))
            import smoothsp

            if Path(smoothsp.__file__).parent == package:
                status = 1
                check_laws()
                status = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, waited = os.waitpid(child, 0)
    status = os.waitstatus_to_exitcode(waited)
    if status not in (0, 1):
        raise RuntimeError(f"{package} could not be imported")
    return status == 0


def verdicts(program: str, folder: Path, step: int) -> tuple[dict[str, str], str]:
    """What the module ``program`` reports, and the end of its errors."""
    env = {"NUMBA_DISABLE_JIT": "1", "OMP_NUM_THREADS": "1"}
    done = run(sys.executable, "-m", program, folder, step, env=env)
    verdicts = dict(line.split("\t") for line in done.stdout.splitlines())
    return verdicts, done.stderr[-3000:]
