"""Arrays of compiled code: over the memory of tensors, by address, and new ones.

A view of a tensor as a numpy array costs most of a microsecond, an address a twentieth.
The caller keeps the memory alive, contiguous, of the dtype and of the size it says.
New arrays are as numpy's. For those, numba would compile a function of its own for each
number of axes and each dtype: which took 16 % of a first loss.
"""

import ctypes

import numpy as np
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from smoothsp._kernels.compilation.subroutine import subroutine


def _kind(shape, dtype):
    """Contiguous arrays of a number type, or of that of ``dtype``; None: float64."""
    axes = len(shape) if isinstance(shape, types.BaseTuple) else 1
    if dtype is None:
        number = types.float64
    elif isinstance(dtype, types.NumberClass):
        number = dtype.instance_type
    else:
        number = dtype.dtype
    return types.Array(number, axes, "C")


def _sizes(context, builder, kind, shape):
    if isinstance(kind, types.BaseTuple):
        shape = cgutils.unpack_tuple(builder, shape)
    else:
        kind, shape = [kind], [shape]
    pairs = zip(kind, shape, strict=True)
    return [context.cast(builder, size, one, types.intp) for one, size in pairs]


@intrinsic
def carray(typing, address, shape, dtype):
    """A contiguous array over the memory at ``address``.

    ``dtype`` is a number type, or an array of it.
    """
    kind = _kind(shape, dtype)

    def code(context, builder, signature, args):
        number = context.get_data_type(kind.dtype)
        item = context.get_abi_sizeof(number)
        sizes = _sizes(context, builder, signature.args[1], args[1])
        strides = [cgutils.intp_t(item)]
        for size in reversed(sizes[1:]):
            strides.insert(0, builder.mul(strides[0], size))
        from numba.np.arrayobj import make_array, populate_array

        found = make_array(kind)(context, builder)
        data = builder.inttoptr(args[0], number.as_pointer())
        populate_array(found, data, sizes, strides, item, None)
        return found._getvalue()

    return kind(types.intp, shape, dtype), code


def _new(shape, dtype, clear):
    """Signature and code of a new array."""
    kind = _kind(shape, dtype)

    def code(context, builder, signature, args):
        sizes = _sizes(context, builder, signature.args[0], args[0])
        from numba.np.arrayobj import _empty_nd_impl

        found = _empty_nd_impl(context, builder, kind, sizes)
        if clear:
            size = builder.mul(found.itemsize, found.nitems)
            cgutils.memset(builder, found.data, size, 0)
        return found._getvalue()

    return kind(shape, types.Omitted(None) if dtype is None else dtype), code


@intrinsic
def empty(typing, shape, dtype=None):
    """As numpy's."""
    return _new(shape, dtype, clear=False)


@intrinsic
def zeros(typing, shape, dtype=None):
    """As numpy's."""
    return _new(shape, dtype, clear=True)


@subroutine
def copy(values, out):
    """Copy entry by entry: numba's ``out[:] = values`` also compiles its message."""
    for e in range(len(out)):
        out[e] = values[e]


if config.DISABLE_JIT:
    empty, zeros = np.empty, np.zeros

    def carray(address, shape, dtype):
        """A contiguous array over the memory at ``address``."""
        dtype = np.dtype(dtype.dtype if isinstance(dtype, np.ndarray) else dtype)
        size = int(np.prod(shape)) * dtype.itemsize
        raw = (ctypes.c_char * size).from_address(int(address)) if size else b""
        return np.frombuffer(raw, dtype).reshape(shape)
