"""Scratch memory that each thread keeps: fresh memory costs more than the work."""

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.circuits.layout.edges import Edges

# What is larger is given back after the call.
MOST_BYTES = 2**28
_kept = threading.local()


def room(edges: Edges, arrays: int, dtype: Any) -> NDArray[Any]:
    """``[arrays, size]``, aligned to 64 bytes: a vector an item, and some more."""
    dtype = np.dtype(dtype)
    lanes = 64 // dtype.itemsize
    # rows come and go in squares of vectors
    size = (edges.items + lanes) * lanes
    needed = arrays * size * dtype.itemsize + 64
    raw = getattr(_kept, "raw", None)
    if raw is None or raw.nbytes < needed:
        raw = np.zeros(needed, np.uint8)
        _kept.raw = raw if needed <= MOST_BYTES else None
    skip = -raw.ctypes.data % 64
    found: NDArray[Any] = raw[skip : skip + needed - 64].view(dtype)
    return found.reshape(arrays, size)
