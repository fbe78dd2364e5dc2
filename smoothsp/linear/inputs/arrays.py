"""SIMD-aligned arrays, checksums of arrays, and a check of available memory."""

import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Bytes of an AVX-512 register and of a cache line: kernels load aligned vectors.
_ALIGNMENT_BYTES = 64
# Fraction of memory left free: estimates count large arrays only.
_RESERVED_FRACTION = 0.05


def num_simd_lanes(dtype: Any) -> int:
    """Number of values of ``dtype`` in a SIMD register."""
    return _ALIGNMENT_BYTES // int(np.dtype(dtype).itemsize)


def round_up_to_lanes(count: int, dtype: Any) -> int:
    """Round ``count`` up to a multiple of ``num_simd_lanes(dtype)``."""
    return -(-count // num_simd_lanes(dtype)) * num_simd_lanes(dtype)


def aligned_zeros(size: int, dtype: Any) -> NDArray[Any]:
    """Return ``(size,)`` zeros whose first byte is aligned to a cache line."""
    extra = num_simd_lanes(dtype)
    # numpy aligns to 16 bytes only: allocate one register more and skip the offset
    memory = np.zeros(size + extra, dtype=dtype)
    offset = -memory.ctypes.data % _ALIGNMENT_BYTES // memory.itemsize
    return memory[offset : offset + size]


def checksum(*arrays: NDArray[Any]) -> int:
    """CRC-32 of the bytes of the arrays in C order, concatenated."""
    total = 0
    for array in arrays:
        total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return total


def available_bytes() -> int | None:
    """Return the bytes of memory that are available, or None if unknown."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    # macOS and BSD have no /proc: use the physical memory, an upper bound
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def require_memory(required_bytes: dict[str, int], hint: str) -> None:
    """Raise MemoryError if ``required_bytes`` exceed the available memory.

    Parameters
    ----------
    required_bytes
        Dict from the purpose of an allocation, as text, to its bytes.
    hint
        End of the message: how to reduce memory.
    """
    num_bytes, num_available = sum(required_bytes.values()), available_bytes()
    if num_available is None or num_bytes <= (1 - _RESERVED_FRACTION) * num_available:
        return
    amounts = ", ".join(
        f"{size / 1e9:.3g} GB for {purpose}" for purpose, size in required_bytes.items()
    )
    raise MemoryError(
        f"the fit needs {amounts}; this machine has {num_available / 1e9:.3g} GB"
        f" left. {hint}"
    )
