"""Memory of tensors as arrays of compiled code, by address.

A view of a tensor as a numpy array costs most of a microsecond, an address a twentieth.
The caller keeps the memory alive, contiguous, of the dtype and of the size it says.
"""

import ctypes

import numpy as np
from numba import carray, types
from numba.core import config
from numba.extending import intrinsic

from smoothsp._kernels.compilation.subroutine import subroutine


@intrinsic
def _pointer(typing, address, dtype):
    """The address as a pointer; ``dtype`` is a number type, or an array of it."""
    number = isinstance(dtype, types.NumberClass)
    kind = types.CPointer(dtype.instance_type if number else dtype.dtype)

    def code(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(kind))

    return kind(types.intp, dtype), code


@subroutine(inline="always")
def at(address, shape, dtype):
    """A contiguous array over the memory at ``address``."""
    return carray(_pointer(address, dtype), shape)


@subroutine
def copy(values, out):
    """Copy entry by entry: numba's ``out[:] = values`` also compiles its message."""
    for e in range(len(out)):
        out[e] = values[e]


@subroutine
def zeros(count):
    """As numpy's, in float64, and compiled in a third of the time."""
    found = np.empty(count)
    for e in range(count):
        found[e] = 0
    return found


if config.DISABLE_JIT:

    def at(address, shape, dtype):
        """A contiguous array over the memory at ``address``."""
        dtype = np.dtype(dtype.dtype if isinstance(dtype, np.ndarray) else dtype)
        size = int(np.prod(shape)) * dtype.itemsize
        raw = (ctypes.c_char * size).from_address(int(address)) if size else b""
        return np.frombuffer(raw, dtype).reshape(shape)
