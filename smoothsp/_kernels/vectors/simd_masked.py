"""Masked loads and stores, reductions over lanes, transposes of L x L blocks.

Masks serve rows whose length is not a multiple of the number of lanes. The float type
in memory may differ from that of the vector.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from smoothsp._kernels.vectors.simd import Vector, element_pointer


def _lane_mask(builder, count, vector_type):
    """Return the mask of the first ``count`` lanes."""
    i32 = ir.IntType(32)
    int_type = ir.VectorType(i32, vector_type.count)
    undefined = ir.Constant(int_type, ir.Undefined)
    count = builder.insert_element(undefined, builder.trunc(count, i32), i32(0))
    zeros = ir.Constant(int_type, [0] * vector_type.count)
    count = builder.shuffle_vector(count, undefined, zeros)
    return builder.icmp_signed(
        "<", ir.Constant(int_type, list(range(vector_type.count))), count
    )


def _masked_pointer(context, builder, array_type, array, offset, count, num_lanes):
    """Return pointer, vector type in memory, mask and alignment of a masked access."""
    stored = ir.VectorType(context.get_value_type(array_type.dtype), num_lanes)
    # bounds are checked for the lanes in the mask only
    full_count = count.type(num_lanes)
    clipped_count = builder.select(
        builder.icmp_signed("<", count, full_count), count, full_count
    )
    pointer = element_pointer(
        context, builder, array_type, array, offset, clipped_count
    )
    pointer = builder.bitcast(pointer, stored.as_pointer())
    alignment = ir.IntType(32)(array_type.dtype.bitwidth // 8)
    return pointer, stored, _lane_mask(builder, clipped_count, stored), alignment


def _call_masked(builder, name, return_type, stored, args):
    bits = 32 if isinstance(stored.element, ir.FloatType) else 64
    signature = ir.FunctionType(return_type, [x.type for x in args])
    function = cgutils.get_or_insert_function(
        builder.module, signature, f"llvm.masked.{name}.v{stored.count}f{bits}.p0"
    )
    return builder.call(function, args)


def _convert_lanes(builder, vector, vector_type):
    """Convert the lanes to another float type."""
    if vector.type == vector_type:
        return vector
    is_float32 = isinstance(vector_type.element, ir.FloatType)
    return (builder.fptrunc if is_float32 else builder.fpext)(vector, vector_type)


@intrinsic
def load_masked(typing, array, offset, count, fill):
    """Return the first ``count`` numbers from ``offset`` on; other lanes from fill."""

    def codegen(context, builder, signature, args):
        array_type = signature.args[0]
        pointer, stored, mask, alignment = _masked_pointer(
            context, builder, array_type, *args[:3], fill.lanes
        )
        arguments = (pointer, alignment, mask, ir.Constant(stored, ir.Undefined))
        value = _call_masked(builder, "load", stored, stored, arguments)
        return builder.select(
            mask, _convert_lanes(builder, value, args[3].type), args[3]
        )

    return fill(array, types.intp, types.intp, fill), codegen


@intrinsic
def store_masked(typing, array, offset, count, vector):
    """Write the first ``count`` lanes of ``vector`` from ``offset`` on."""

    def codegen(context, builder, signature, args):
        array_type = signature.args[0]
        pointer, stored, mask, alignment = _masked_pointer(
            context, builder, array_type, *args[:3], vector.lanes
        )
        arguments = (_convert_lanes(builder, args[3], stored), pointer, alignment, mask)
        _call_masked(builder, "store", ir.VoidType(), stored, arguments)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, vector), codegen


@intrinsic
def transpose_block(typing, array, offset):
    """Transpose the L x L block at ``offset``, in log2(L) rounds of shuffles."""
    vector = Vector(array.dtype)
    L = vector.lanes

    def codegen(context, builder, signature, args):
        vector_type = context.get_value_type(vector)
        int_type = ir.VectorType(ir.IntType(32), L)
        size = args[1].type(L * L)
        block_pointer = element_pointer(
            context, builder, signature.args[0], *args, size
        )
        block_pointer = builder.bitcast(block_pointer, vector_type.as_pointer())
        pointers = [builder.gep(block_pointer, [args[1].type(x)]) for x in range(L)]
        rows = [builder.load(pointer) for pointer in pointers]
        for row in rows:
            row.align = array.dtype.bitwidth // 8
        step = 1
        while step < L:
            # in each square of size 2 step, swap upper right and lower left quarter
            upper = [c if c & step == 0 else L + c - step for c in range(L)]
            lower = [c + step if c & step == 0 else L + c for c in range(L)]
            for x in range(L):
                if x & step == 0:
                    pair = rows[x], rows[x + step]
                    rows[x] = builder.shuffle_vector(
                        *pair, ir.Constant(int_type, upper)
                    )
                    rows[x + step] = builder.shuffle_vector(
                        *pair, ir.Constant(int_type, lower)
                    )
            step *= 2
        for row, pointer in zip(rows, pointers, strict=True):
            builder.store(row, pointer).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


def _make_reduction(combine):
    """Return an intrinsic that reduces the lanes pairwise: upper half with lower."""

    @intrinsic
    def operation(typing, a):
        def codegen(context, builder, signature, args):
            value = args[0]
            i32 = ir.IntType(32)
            while value.type.count > 1:
                half = value.type.count // 2
                undefined = ir.Constant(value.type, ir.Undefined)
                half_type = ir.VectorType(i32, half)
                low = ir.Constant(half_type, list(range(half)))
                high = ir.Constant(half_type, list(range(half, 2 * half)))
                value = combine(
                    builder,
                    builder.shuffle_vector(value, undefined, low),
                    builder.shuffle_vector(value, undefined, high),
                )
            return builder.extract_element(value, i32(0))

        return a.dtype(a), codegen

    return operation


def _select_maximum(builder, a, b):
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


# pairs are added in a fixed order, so results are reproducible to the bit
reduce_sum = _make_reduction(lambda builder, a, b: builder.fadd(a, b))
reduce_max = _make_reduction(_select_maximum)


if config.DISABLE_JIT:
    # Without the compiler a vector is a numpy array, or a number for all lanes.

    def load_masked(array, offset, count, fill):
        """Return ``count`` numbers from ``offset`` on, then lanes of ``fill``."""
        lanes = np.full(64 // fill.dtype.itemsize, fill)
        count = max(0, min(count, len(lanes)))
        lanes[:count] = array[offset : offset + count]
        return lanes

    def store_masked(array, offset, count, vector):
        """Write the first ``count`` lanes from ``offset`` on."""
        count = max(0, min(count, len(vector)))
        array[offset : offset + count] = vector[:count]

    def transpose_block(array, offset):
        """Transpose the L x L block at ``offset``."""
        lanes = 64 // array.itemsize
        square = array[offset : offset + lanes * lanes].reshape(lanes, lanes)
        square[:] = square.T.copy()

    reduce_sum, reduce_max = np.sum, np.max
