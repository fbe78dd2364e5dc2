"""Arrays of whole vectors, and what tells arrays from others."""

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Bytes of a vector, and of a line of the cache.
_VECTOR = 64


def lanes(dtype: Any) -> int:
    """Numbers of a vector."""
    return _VECTOR // int(np.dtype(dtype).itemsize)


def padded(count: int, dtype: Any) -> int:
    """``count``, up to whole vectors."""
    return -(-count // lanes(dtype)) * lanes(dtype)


def zeros(size: int, dtype: Any) -> NDArray[Any]:
    """Zeros that begin where a line of the cache does."""
    extra = lanes(dtype)
    memory = np.zeros(size + extra, dtype=dtype)
    past = -memory.ctypes.data % _VECTOR // memory.itemsize
    return memory[past : past + size]


def checksum(*arrays: NDArray[Any]) -> int:
    """CRC-32 of the bytes, one array after the other."""
    total = 0
    for array in arrays:
        total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return total
