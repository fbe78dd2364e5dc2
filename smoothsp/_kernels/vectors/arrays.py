"""Arrays in compiled code: views of memory at an address, and new arrays.

Converting a tensor to a numpy array takes most of a microsecond, passing its address a
twentieth of that. The caller ensures that the memory is alive and contiguous, and has
the given dtype and size. New arrays behave as numpy's; numba's constructors are
avoided, as numba compiles one for each number of axes and each dtype.
"""

import ctypes

import numpy as np
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from smoothsp._kernels.compilation.subroutine import subroutine


def _array_type(shape, dtype):
    """Return numba's type of a C-contiguous array; dtype None means float64."""
    axes = len(shape) if isinstance(shape, types.BaseTuple) else 1
    if dtype is None:
        number = types.float64
    elif isinstance(dtype, types.NumberClass):
        number = dtype.instance_type
    else:
        number = dtype.dtype
    return types.Array(number, axes, "C")


def _unpack_shape(context, builder, shape_type, shape):
    """Return the axes of a shape, an integer or a tuple, as LLVM values."""
    if isinstance(shape_type, types.BaseTuple):
        shape = cgutils.unpack_tuple(builder, shape)
    else:
        shape_type, shape = [shape_type], [shape]
    pairs = zip(shape_type, shape, strict=True)
    return [
        context.cast(builder, size, size_type, types.intp) for size_type, size in pairs
    ]


@intrinsic
def carray(typing, address, shape, dtype):
    """Return a C-contiguous array over the memory at ``address``.

    ``dtype`` is a number type, or an array whose dtype is taken.
    """
    array_type = _array_type(shape, dtype)

    def codegen(context, builder, signature, args):
        element_type = context.get_data_type(array_type.dtype)
        itemsize = context.get_abi_sizeof(element_type)
        sizes = _unpack_shape(context, builder, signature.args[1], args[1])
        # row-major: the last axis has stride itemsize
        strides = [cgutils.intp_t(itemsize)]
        for size in reversed(sizes[1:]):
            strides.insert(0, builder.mul(strides[0], size))
        # imported here: the module takes long to import, and cached kernels skip it
        from numba.np.arrayobj import make_array, populate_array

        array = make_array(array_type)(context, builder)
        data = builder.inttoptr(args[0], element_type.as_pointer())
        # without meminfo: the array does not own its memory
        populate_array(array, data, sizes, strides, itemsize, None)
        return array._getvalue()

    return array_type(types.intp, shape, dtype), codegen


def _new_array_codegen(shape, dtype, is_zeroed):
    """Return signature and code generator of ``empty`` or ``zeros``."""
    array_type = _array_type(shape, dtype)

    def codegen(context, builder, signature, args):
        sizes = _unpack_shape(context, builder, signature.args[0], args[0])
        from numba.np.arrayobj import _empty_nd_impl

        array = _empty_nd_impl(context, builder, array_type, sizes)
        if is_zeroed:
            size = builder.mul(array.itemsize, array.nitems)
            cgutils.memset(builder, array.data, size, 0)
        return array._getvalue()

    return array_type(shape, types.Omitted(None) if dtype is None else dtype), codegen


@intrinsic
def empty(typing, shape, dtype=None):
    """Return a new array with undefined entries, as ``numpy.empty``."""
    return _new_array_codegen(shape, dtype, is_zeroed=False)


@intrinsic
def zeros(typing, shape, dtype=None):
    """Return a new array of zeros, as ``numpy.zeros``."""
    return _new_array_codegen(shape, dtype, is_zeroed=True)


@subroutine
def copy(values, out):
    """Copy ``values`` to ``out``, entry by entry.

    ``out[:] = values`` would also compile numba's check of the shapes.
    """
    for e in range(len(out)):
        out[e] = values[e]


if config.DISABLE_JIT:
    empty, zeros = np.empty, np.zeros

    def carray(address, shape, dtype):
        """Return a C-contiguous array over the memory at ``address``."""
        dtype = np.dtype(dtype.dtype if isinstance(dtype, np.ndarray) else dtype)
        size = int(np.prod(shape)) * dtype.itemsize
        raw = (ctypes.c_char * size).from_address(int(address)) if size else b""
        return np.frombuffer(raw, dtype).reshape(shape)
