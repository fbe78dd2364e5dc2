"""Kernels of a small copy of the package, loaded and compiled in fresh processes.

Each step forks a child that imports the copy as it then stands, so numba is imported
once. A test reads what the steps print: their name, the values found, and how often a
kernel was compiled and loaded.
"""

import hashlib
import os
import pickle
import shutil
import sys
import traceback
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numba
import numpy as np
from numba import njit
from numba.core import caching, config

ROOT = Path(__file__).parents[1]
PROBE = """
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.deep.er.imported import term

@kernel
def probe(x, out):
    out[0] = x[0] + term()

@kernel
def other(x, out):
    out[0] = x[0] - term()
"""
IMPORTED = """
from smoothsp._kernels.compilation.subroutine import subroutine

@subroutine
def term():
    return {}
"""


def step(
    name: str, package: Path, checked: bool = False, *dtypes: str, other: bool = False
) -> None:
    """Print what the probe finds in a child.

    ``other``: what the other kernel finds, and the counts of what both call.
    """

    def call() -> list[float]:
        config.BOUNDSCHECK = int(checked)
        from smoothsp._kernels import probe_cpu

        probe = probe_cpu.other if other else probe_cpu.probe
        found = []
        for dtype in dtypes or ("float64",):
            out = np.zeros(1, dtype)
            probe(np.full(1, 0.5, dtype), out)
            found.append(float(out[0]))
        stats = (probe_cpu.term.dispatcher if other else probe).stats
        counts = sum(stats.cache_misses.values()), sum(stats.cache_hits.values())
        return [*found, *counts]

    print_from_child(name, package, call)


def print_from_child(
    name: str, package: Path, call: Callable[[], Iterable[object]]
) -> None:
    """Print a name and what a function finds in a child that imports a package."""
    sys.stdout.flush()
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0, name
        return
    status = 1
    try:
        # files change within a second, which bytecode would not notice
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(package.parent))
        sys.stdout.write("\t".join(map(str, (name, *call()))) + "\n")
        sys.stdout.flush()
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)


def main(folder: Path) -> None:
    njit(lambda x, out: None)(*np.zeros((2, 1)))  # the compiler, awake in each child
    package = folder / "smoothsp"
    imported = package / "_kernels/deep/er/imported.py"
    imported.parent.mkdir(parents=True)
    for part in (imported.parent, *imported.parents[1:4]):
        (part / "__init__.py").touch()
    compilation = "smoothsp/_kernels/compilation"
    shutil.copytree(ROOT / compilation, package / "_kernels/compilation")
    (package / "_kernels/probe_cpu.py").write_text(PROBE)
    imported.write_text(IMPORTED.format(1))
    step("first", package)
    step("again", package)
    step("another kernel", package, other=True)
    (package / "_kernels/deep/unrelated.py").write_text("ONE = 1\n")
    step("another file", package)
    imported.write_text(IMPORTED.format(2))
    step("changed", package)
    step("checked", package, True)
    step("unchecked", package)
    step("checked again", package, True)

    # The two types below exchange what they hold.
    step("both", package, False, "float64", "float32")
    one, two = sorted(folder.rglob("probe_cpu.probe*.nbc"))[::2]
    content = one.read_bytes(), two.read_bytes()
    two.write_bytes(content[0]), one.write_bytes(content[1])
    step("exchanged", package, False, "float64", "float32")
    step("healed", package, False, "float64", "float32")

    # Indices that name what is no more.
    for index in folder.rglob("probe_cpu.probe*.nbi"):
        lost = pickle.dumps(numba.__version__) + b"csmoothsp.no_more\nRenamed\n."
        index.write_bytes(hashlib.sha256(lost).digest() + lost)
    step("renamed", package)
    step("renamed again", package)

    if not hasattr(caching, "ZipCacheLocator"):
        return  # this numba compiles no file of an archive
    archive = folder / "archive.zip"
    for number in 3, 4:
        imported.write_text(IMPORTED.format(number))
        with zipfile.ZipFile(archive, "w") as file:
            for path in sorted(package.rglob("*.py")):
                file.write(path, path.relative_to(folder))
        for name in "zipped", "zipped again":
            step(f"{name} {number}", archive / "smoothsp")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
