"""Kernels that come compiled with the package, for levels of processors.

A wheel holds the kernels of the usual calls for x86-64-v3 and x86-64-v4, which a
processor may run if it has all their features, whoever made it:

    smoothsp/_kernels/prebuilt/<version of numba>-<level>/
        chain.cpu.fused.name.py312.nbi
        chain.cpu.fused.name.py312.1.nbc

The files are those of the cache, with the same hash of sources and the same key, but
for name and features of the processor: these are the level's. So other sources, another
Python, numba or operating system, and bounds checks find nothing here.
"""

import functools
import os
import sys
from typing import Any

import numba

from smoothsp._kernels.compilation.checksummed_files import ChecksummedFiles
from smoothsp._kernels.compilation.sources import PACKAGE, digest

FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "prebuilt")
_V3 = "avx avx2 bmi bmi2 cx16 f16c fma lzcnt movbe popcnt sahf sse4.2 ssse3 xsave"
_V4 = f"{_V3} avx512bw avx512cd avx512dq avx512f avx512vl"
# The features that a level needs, the richest first.
LEVELS = {
    level: {f"+{feature}" for feature in features.split()}
    for level, features in (("x86-64-v4", _V4), ("x86-64-v3", _V3))
}
# Whether they are looked for: not where code for exactly this processor is wanted.
enabled = True


def load(function: Any, key: tuple[Any, ...]) -> Any:
    """Code of a function that this processor can run, or None."""
    signature, (triple, _, features), *rest = key
    for level in supported_levels(features) if enabled else ():
        found = _files(function, level).load((signature, (triple, level, ""), *rest))
        if found is not None:
            return found
    return None


def save(function: Any, key: tuple[Any, ...], code: Any) -> None:
    """Write code that was compiled for one of the levels."""
    _, level, _ = key[1]
    files = _files(function, level)
    os.makedirs(files._cache_path, exist_ok=True)
    files.save(key, code)


@functools.cache
def supported_levels(features: str) -> list[str]:
    """Levels of which a processor has all features."""
    present = set(features.split(","))
    return [level for level, needed in LEVELS.items() if needed <= present]


def _files(function: Any, level: str) -> ChecksummedFiles:
    folder = os.path.join(FOLDER, f"{numba.__version__}-{level}")
    module = function.__module__.removeprefix(f"{PACKAGE}.")
    python = f"py{sys.version_info.major}{sys.version_info.minor}{sys.abiflags}"
    name = f"{module}.{function.__qualname__}.{python}"
    return ChecksummedFiles(folder, name, digest(function.__module__))
