"""Arrays of whole vectors, their checksums, and the memory that they take."""

import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Bytes of a vector, and of a line of the cache.
_VECTOR = 64
# The share of the memory that is kept free for everything that is not counted.
_SPARE = 0.05


def num_simd_lanes(dtype: Any) -> int:
    """Numbers of a vector."""
    return _VECTOR // int(np.dtype(dtype).itemsize)


def round_up_to_lanes(count: int, dtype: Any) -> int:
    """``count``, up to whole vectors."""
    return -(-count // num_simd_lanes(dtype)) * num_simd_lanes(dtype)


def aligned_zeros(size: int, dtype: Any) -> NDArray[Any]:
    """Zeros that begin where a line of the cache does."""
    extra = num_simd_lanes(dtype)
    memory = np.zeros(size + extra, dtype=dtype)
    past = -memory.ctypes.data % _VECTOR // memory.itemsize
    return memory[past : past + size]


def checksum(*arrays: NDArray[Any]) -> int:
    """CRC-32 of the bytes, one array after the other."""
    total = 0
    for array in arrays:
        total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return total


def available_bytes() -> int | None:
    """Memory that a new allocation may take, or None where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def require_memory(needed: dict[str, int], remedy: str) -> None:
    """Raise MemoryError when the machine has not the bytes that are ``needed``.

    Parameters
    ----------
    needed
        What for, in words, and how many bytes.
    remedy
        What the user can do.
    """
    total, free = sum(needed.values()), available_bytes()
    if free is None or total <= (1 - _SPARE) * free:
        return
    parts = ", ".join(
        f"{size / 1e9:.3g} GB for {what}" for what, size in needed.items()
    )
    raise MemoryError(
        f"the fit needs {parts}; this machine has {free / 1e9:.3g} GB left. {remedy}"
    )
