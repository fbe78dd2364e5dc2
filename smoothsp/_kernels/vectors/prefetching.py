"""Software prefetching of cache lines."""

from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.simd import Span


@intrinsic
def prefetch(typing, array, offset):
    """Prefetch the cache line of the number at ``offset`` of a span.

    An offset out of bounds has no effect: prefetches do not fault.
    """
    if not isinstance(array, Span):
        return None

    def codegen(context, builder, signature, args):
        span = cgutils.create_struct_proxy(signature.args[0])
        memory = span(context, builder, value=args[0])
        i32, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        pointer = builder.bitcast(builder.gep(memory.data, [args[1]]), byte)
        function_type = ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
        function = cgutils.get_or_insert_function(
            builder.module, function_type, "llvm.prefetch.p0"
        )
        # to read, into every level of the cache, data
        builder.call(function, [pointer, i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


if config.DISABLE_JIT:

    def prefetch(array, offset):
        """Do nothing in interpreted code."""


# Distance of a prefetched block from the current one, in blocks.
PREFETCH_DISTANCE = 3


@subroutine(forceinline=True)
def prefetch_row(k, last, order, skips_left, indptr, columns, values):
    """Prefetch the sparse row of a later block; return its index, -1 if none.

    Skipped blocks (``skips_left > 0``) are not read, so they are not prefetched.
    """
    if k + PREFETCH_DISTANCE >= last:
        return -1
    i = order[k + PREFETCH_DISTANCE]
    if skips_left[i] > 0:
        return -1
    # a cache line holds 8 numbers of 64 bits
    for e in range(indptr[i], indptr[i + 1], 8):
        prefetch(columns, e)
        prefetch(values, e)
    return i


@subroutine(forceinline=True)
def prefetch_dense_row(k, last, order, skips_left, width, V, values):
    """Prefetch the dense row, ``width`` numbers, of a later block."""
    if k + PREFETCH_DISTANCE >= last:
        return
    i = order[k + PREFETCH_DISTANCE]
    if skips_left[i] == 0:
        for e in range(i * width, (i + 1) * width, V):
            prefetch(values, e)
