"""Vectors with only some lanes in memory, sums over lanes, squares transposed.

For rows that are no whole number of vectors long. The float type in memory may be
another than the vector's.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from smoothsp._kernels.vectors.simd import Vector, address


def _before(builder, count, kind):
    """Which lanes of ``kind`` come before ``count``."""
    i32 = ir.IntType(32)
    ints = ir.VectorType(i32, kind.count)
    nothing = ir.Constant(ints, ir.Undefined)
    count = builder.insert_element(nothing, builder.trunc(count, i32), i32(0))
    zeros = ir.Constant(ints, [0] * kind.count)
    count = builder.shuffle_vector(count, nothing, zeros)
    return builder.icmp_signed("<", ir.Constant(ints, list(range(kind.count))), count)


def _place(context, builder, array_type, array, offset, count, lanes):
    """Address, type in memory, wanted lanes and alignment of a part of a vector."""
    stored = ir.VectorType(context.get_value_type(array_type.dtype), lanes)
    whole = count.type(lanes)
    inside = builder.select(builder.icmp_signed("<", count, whole), count, whole)
    at = address(context, builder, array_type, array, offset, inside)
    at = builder.bitcast(at, stored.as_pointer())
    align = ir.IntType(32)(array_type.dtype.bitwidth // 8)
    return at, stored, _before(builder, inside, stored), align


def _masked(builder, name, result, stored, args):
    bits = 32 if isinstance(stored.element, ir.FloatType) else 64
    signature = ir.FunctionType(result, [x.type for x in args])
    function = cgutils.get_or_insert_function(
        builder.module, signature, f"llvm.masked.{name}.v{stored.count}f{bits}.p0"
    )
    return builder.call(function, args)


def _as(builder, value, kind):
    """The lanes as another float type."""
    if value.type == kind:
        return value
    narrow = isinstance(kind.element, ir.FloatType)
    return (builder.fptrunc if narrow else builder.fpext)(value, kind)


@intrinsic
def load_masked(typing, array, offset, count, fill):
    """The numbers at ``offset`` in lanes before ``count``, lanes of ``fill`` after."""

    def code(context, builder, signature, args):
        array_type = signature.args[0]
        at, stored, lanes, align = _place(
            context, builder, array_type, *args[:3], fill.lanes
        )
        given = (at, align, lanes, ir.Constant(stored, ir.Undefined))
        value = _masked(builder, "load", stored, stored, given)
        return builder.select(lanes, _as(builder, value, args[3].type), args[3])

    return fill(array, types.intp, types.intp, fill), code


@intrinsic
def store_masked(typing, array, offset, count, vector):
    """Write the lanes before ``count``."""

    def code(context, builder, signature, args):
        array_type = signature.args[0]
        at, stored, lanes, align = _place(
            context, builder, array_type, *args[:3], vector.lanes
        )
        given = (_as(builder, args[3], stored), at, align, lanes)
        _masked(builder, "store", ir.VoidType(), stored, given)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, vector), code


@intrinsic
def transpose_block(typing, array, offset):
    """Swap rows and columns of the square of as many vectors as there are lanes."""
    vector = Vector(array.dtype)
    L = vector.lanes

    def code(context, builder, signature, args):
        kind = context.get_value_type(vector)
        ints = ir.VectorType(ir.IntType(32), L)
        size = args[1].type(L * L)
        at = address(context, builder, signature.args[0], *args, size)
        at = builder.bitcast(at, kind.as_pointer())
        places = [builder.gep(at, [args[1].type(x)]) for x in range(L)]
        rows = [builder.load(place) for place in places]
        for row in rows:
            row.align = array.dtype.bitwidth // 8
        step = 1
        while step < L:
            # squares of 2 step: the upper right and the lower left change places
            upper = [c if c & step == 0 else L + c - step for c in range(L)]
            lower = [c + step if c & step == 0 else L + c for c in range(L)]
            for x in range(L):
                if x & step == 0:
                    pair = rows[x], rows[x + step]
                    rows[x] = builder.shuffle_vector(*pair, ir.Constant(ints, upper))
                    rows[x + step] = builder.shuffle_vector(
                        *pair, ir.Constant(ints, lower)
                    )
            step *= 2
        for row, place in zip(rows, places, strict=True):
            builder.store(row, place).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp), code


def _across(join):
    """All lanes joined into one number: half with half, until one is left."""

    @intrinsic
    def operation(typing, a):
        def code(context, builder, signature, args):
            value = args[0]
            i32 = ir.IntType(32)
            while value.type.count > 1:
                half = value.type.count // 2
                nothing = ir.Constant(value.type, ir.Undefined)
                kind = ir.VectorType(i32, half)
                low = ir.Constant(kind, list(range(half)))
                high = ir.Constant(kind, list(range(half, 2 * half)))
                value = join(
                    builder,
                    builder.shuffle_vector(value, nothing, low),
                    builder.shuffle_vector(value, nothing, high),
                )
            return builder.extract_element(value, i32(0))

        return a.dtype(a), code

    return operation


def _larger(builder, a, b):
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


# the sum, always in the same order, and the largest of the lanes
reduce_sum = _across(lambda builder, a, b: builder.fadd(a, b))
reduce_max = _across(_larger)


if config.DISABLE_JIT:
    # Without the compiler a vector is a numpy array, or a number for all lanes.

    def load_masked(array, offset, count, fill):
        """The numbers at ``offset`` in lanes before ``count``, ``fill`` after."""
        lanes = np.full(64 // fill.dtype.itemsize, fill)
        count = max(0, min(count, len(lanes)))
        lanes[:count] = array[offset : offset + count]
        return lanes

    def store_masked(array, offset, count, vector):
        """Write the lanes before ``count``."""
        count = max(0, min(count, len(vector)))
        array[offset : offset + count] = vector[:count]

    def transpose_block(array, offset):
        """Swap rows and columns of a square."""
        lanes = 64 // array.itemsize
        square = array[offset : offset + lanes * lanes].reshape(lanes, lanes)
        square[:] = square.T.copy()

    reduce_sum, reduce_max = np.sum, np.max
