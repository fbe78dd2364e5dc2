"""One line of the package broken at a time: do its laws notice?

A program calls ``report``, a test reads what it reports by ``verdicts``. Meant to run
without numba's compiler, which would take longer than the small problems of laws do.
All is imported once; each fault is tried in a child, whose functions get the code of
the broken file.
"""

import gc
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType

import torch
from torch.testing import assert_close

from tests.programs import ROOT, run

# Checks, each named after the files that it looks at, with blanks between.
Laws = Mapping[str, Callable[[], None]]
# A file of the package without its ending, a line that occurs in it at least once, and
# what stands there instead.
Fault = tuple[str, str, str]


def report(faults: Mapping[str, Fault], laws: Laws, arguments: list[str]) -> None:
    """Print a line a fault, its name and "green" or "red".

    A fault is red at the first law that fails; those named after its file come first.

    The argument is a folder for broken files.
    """
    folder = Path(arguments[0])
    check_lines(faults)
    for file, _, _ in faults.values():
        importlib.import_module(f"smoothsp.{file.replace('/', '.')}")
    # what its first call imports, half a second's worth, need not be imported by each
    assert_close(torch.ones(()), torch.ones(()))
    for number, (name, fault) in enumerate(faults.items()):
        green = _green(fault, folder / f"{number}.py", laws)
        sys.stdout.write(f"{name}\t{'green' if green else 'red'}\n")
        sys.stdout.flush()


def check_lines(faults: Mapping[str, Fault]) -> None:
    for file, line, _ in faults.values():
        if line not in _source(file).read_text():
            raise RuntimeError(f"{file} has no line {line!r} any more: choose another")


def _source(file: str) -> Path:
    return ROOT / "smoothsp" / f"{file}.py"


def _green(fault: Fault, broken: Path, laws: Laws) -> bool:
    """Check the laws in a child, whose package has a fault: that of a file written."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            _break(fault, broken)
            status = 1
            for law in _nearest_first(laws, fault[0]):
                law()
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, waited = os.waitpid(child, 0)
    status = os.waitstatus_to_exitcode(waited)
    if status not in (0, 1):
        raise RuntimeError(f"{fault} could not be put in place")
    return status == 0


def _nearest_first(laws: Laws, file: str) -> list[Callable[[], None]]:
    stem = Path(file).name
    far = {n: not any(x.startswith(stem) for x in n.split()) for n in laws}
    return [laws[name] for name in sorted(laws, key=far.__getitem__)]


def _break(fault: Fault, broken: Path) -> None:
    """Give functions of the package the code that they would have with the fault."""
    file, line, instead = fault
    if not line:
        return
    source = _source(file)
    text = source.read_text()
    # Triton reads a function's source where its code says that it is
    broken.write_text(text.replace(line, instead))
    pairs = zip(
        _functions(compile(text, source, "exec")),
        _functions(compile(broken.read_text(), broken, "exec")),
        strict=True,
    )
    changed = {one: other for one, other in pairs if one != other}
    functions = [x for x in gc.get_objects() if isinstance(x, FunctionType)]
    ours = [f for f in functions if f.__code__.co_filename == str(source)]
    touched = [f for f in ours if f.__code__ in changed]
    if not touched:
        raise RuntimeError(f"{file}: expected {line!r} in a function")
    for function in touched:
        function.__code__ = changed[function.__code__]


def _functions(code: CodeType) -> Iterator[CodeType]:
    """Code of the functions and classes in a module, in the order of their lines."""
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _functions(one)


def verdicts(program: str, folder: Path) -> tuple[dict[str, str], str]:
    """What the module ``program`` reports, and the end of its errors."""
    env = {"NUMBA_DISABLE_JIT": "1", "OMP_NUM_THREADS": "1"}
    done = run(sys.executable, "-m", program, folder, env=env)
    verdicts = dict(line.split("\t") for line in done.stdout.splitlines())
    return verdicts, done.stderr[-3000:]
