"""Kernels compiled in advance for x86-64 levels and shipped in the wheel.

A wheel holds the kernels of the usual calls for x86-64-v3 and x86-64-v4. Any processor
with all features of a level can run them:

    smoothsp/_kernels/prebuilt/<version of numba>-<level>/
        chain.cpu.fused.name.py312.nbi
        chain.cpu.fused.name.py312.1.nbc

File format, hash of sources and key are those of the cache, except that name and
features of the processor are the level's. With other sources, another Python, numba or
operating system, or with bounds checks, no file matches.
"""

import functools
import os
import sys
from typing import Any

import numba

from smoothsp._kernels.compilation.checksummed_files import ChecksummedFiles
from smoothsp._kernels.compilation.sources import PACKAGE, source_digest

FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "prebuilt")
_V3 = "avx avx2 bmi bmi2 cx16 f16c fma lzcnt movbe popcnt sahf sse4.2 ssse3 xsave"
_V4 = f"{_V3} avx512bw avx512cd avx512dq avx512f avx512vl"
# Features that a level requires, the highest level first.
LEVELS = {
    level: {f"+{feature}" for feature in features.split()}
    for level, features in (("x86-64-v4", _V4), ("x86-64-v3", _V3))
}
# Set to False to compile for exactly this processor.
enabled = True


def load(function: Any, key: tuple[Any, ...]) -> Any:
    """Return prebuilt code of a function for the highest supported level, or None."""
    signature, (triple, _, features), *other_parts = key
    for level in supported_levels(features) if enabled else ():
        code = _cache_files(function, level).load(
            (signature, (triple, level, ""), *other_parts)
        )
        if code is not None:
            return code
    return None


def save(function: Any, key: tuple[Any, ...], code: Any) -> None:
    """Write code compiled for the level in ``key``."""
    _, level, _ = key[1]
    files = _cache_files(function, level)
    os.makedirs(files._cache_path, exist_ok=True)
    files.save(key, code)


@functools.cache
def supported_levels(features: str) -> list[str]:
    """Return the levels whose features are all in the comma-separated ``features``."""
    present = set(features.split(","))
    return [level for level, needed in LEVELS.items() if needed <= present]


def _cache_files(function: Any, level: str) -> ChecksummedFiles:
    folder = os.path.join(FOLDER, f"{numba.__version__}-{level}")
    module = function.__module__.removeprefix(f"{PACKAGE}.")
    python = f"py{sys.version_info.major}{sys.version_info.minor}{sys.abiflags}"
    name = f"{module}.{function.__qualname__}.{python}"
    return ChecksummedFiles(folder, name, source_digest(function.__module__))
