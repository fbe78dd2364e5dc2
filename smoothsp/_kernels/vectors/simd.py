"""SIMD vectors: a numba type for 512 bits of floats, held in registers.

A vector has 16 lanes of float32 or 8 of float64, 512 bits; on narrower machines the
compiler splits it. ``load`` and ``store`` take a one-dimensional contiguous array, or a
``span`` of one, and the offset of the first lane, and check bounds when numba does. The
operators + - * / work lane by lane.
"""

import operator

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import (
    intrinsic,
    lower_builtin,
    models,
    register_model,
    type_callable,
)


class Vector(types.Type):
    """A numba type: lanes of one float type."""

    def __init__(self, dtype):
        self.dtype = dtype
        self.lanes = 512 // dtype.bitwidth
        super().__init__(name=f"Vector({dtype})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, vector):
        element = ir.FloatType() if vector.dtype == types.float32 else ir.DoubleType()
        super().__init__(manager, vector, ir.VectorType(element, vector.lanes))


class Span(types.Type):
    """A numba type: pointer to the items of an array, and their number."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(name=f"Span({dtype})")


@register_model(Span)
class _SpanModel(models.StructModel):
    def __init__(self, manager, span):
        members = [("data", types.CPointer(span.dtype)), ("nitems", types.intp)]
        super().__init__(manager, span, members)


def _array_struct(context, builder, array_type, array):
    if isinstance(array_type, Span):
        return cgutils.create_struct_proxy(array_type)(context, builder, value=array)
    return context.make_array(array_type)(context, builder, array)


def _make_span_intrinsic(alignment):
    """Return the intrinsic ``span`` that skips items up to an alignment in bytes."""

    @intrinsic
    def operation(typing, array):
        span_type = Span(array.dtype)

        def codegen(context, builder, signature, args):
            array_struct = _array_struct(context, builder, signature.args[0], args[0])
            span_struct = cgutils.create_struct_proxy(span_type)(context, builder)
            # bytes to the next multiple of a power of two: -start mod alignment
            start = builder.ptrtoint(array_struct.data, array_struct.nitems.type)
            num_skipped = builder.and_(builder.neg(start), start.type(alignment - 1))
            num_skipped = builder.udiv(
                num_skipped, start.type(array.dtype.bitwidth // 8)
            )
            span_struct.data = builder.gep(array_struct.data, [num_skipped])
            span_struct.nitems = builder.sub(array_struct.nitems, num_skipped)
            return span_struct._getvalue()

        return span_type(array), codegen

    return operation


# Pointer and size without numba's reference count, which costs time in hot loops. A
# span does not own the memory. ``aligned_span`` begins at the next 64-byte boundary.
span, aligned_span = _make_span_intrinsic(1), _make_span_intrinsic(64)


@intrinsic
def subspan(typing, array, first, count):
    """Return the span of ``count`` numbers of an array or a span, from ``first`` on."""
    span_type = Span(array.dtype)

    def codegen(context, builder, signature, args):
        span_struct = cgutils.create_struct_proxy(span_type)(context, builder)
        span_struct.data = element_pointer(context, builder, signature.args[0], *args)
        span_struct.nitems = args[2]
        return span_struct._getvalue()

    return span_type(array, types.intp, types.intp), codegen


def element_pointer(context, builder, array_type, array, offset, num_lanes):
    """Return the LLVM pointer to item ``offset``; check bounds for ``num_lanes``."""
    array_struct = _array_struct(context, builder, array_type, array)
    if config.BOUNDSCHECK:
        end = builder.add(offset, num_lanes)
        low = builder.icmp_signed("<", offset, offset.type(0))
        high = builder.icmp_signed(">", end, array_struct.nitems)
        with builder.if_then(builder.or_(low, high), likely=False):
            message = "vector is out of bounds of its array"
            context.call_conv.return_user_exc(builder, IndexError, (message,))
    return builder.gep(array_struct.data, [offset])


@intrinsic
def load(typing, array, offset):
    """Return the vector of the numbers from ``offset`` on."""
    vector = Vector(array.dtype)

    def codegen(context, builder, signature, args):
        vector_type = context.get_value_type(vector)
        num_lanes = args[1].type(vector.lanes)
        pointer = element_pointer(context, builder, signature.args[0], *args, num_lanes)
        # alignment of a number, not of a vector: LLVM would assume 64 bytes and fault
        value = builder.load(builder.bitcast(pointer, vector_type.as_pointer()))
        value.align = array.dtype.bitwidth // 8
        return value

    return vector(array, types.intp), codegen


@intrinsic
def store(typing, array, offset, vector):
    """Write the lanes of ``vector`` from ``offset`` on."""

    def codegen(context, builder, signature, args):
        num_lanes = args[1].type(args[2].type.count)
        pointer = element_pointer(
            context, builder, signature.args[0], *args[:2], num_lanes
        )
        pointer = builder.bitcast(pointer, args[2].type.as_pointer())
        builder.store(args[2], pointer).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), codegen


@intrinsic
def get_number(typing, array, offset):
    """Return the number at ``offset``; negative offsets do not wrap around."""

    def codegen(context, builder, signature, args):
        num_lanes = args[1].type(1)
        return builder.load(
            element_pointer(context, builder, signature.args[0], *args, num_lanes)
        )

    return array.dtype(array, types.intp), codegen


@intrinsic
def put_number(typing, array, offset, x):
    """Write the number x at ``offset``."""

    def codegen(context, builder, signature, args):
        num_lanes = args[1].type(1)
        pointer = element_pointer(
            context, builder, signature.args[0], *args[:2], num_lanes
        )
        builder.store(args[2], pointer)
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), codegen


def _broadcast(builder, x, vector_type):
    i32 = ir.IntType(32)
    undefined = ir.Constant(vector_type, ir.Undefined)
    first = builder.insert_element(undefined, x, i32(0))
    zeros = ir.Constant(ir.VectorType(i32, vector_type.count), [0] * vector_type.count)
    return builder.shuffle_vector(first, undefined, zeros)


@intrinsic
def splat(typing, x):
    """Return the vector with x in every lane."""
    vector = Vector(x)

    def codegen(context, builder, signature, args):
        return _broadcast(builder, args[0], context.get_value_type(vector))

    return vector(x), codegen


@intrinsic
def splat_at(typing, array, offset):
    """Return the vector with the number at ``offset`` in every lane.

    Negative offsets do not wrap around.
    """
    vector = Vector(array.dtype)

    def codegen(context, builder, signature, args):
        one = args[1].type(1)
        at = element_pointer(context, builder, signature.args[0], *args, one)
        return _broadcast(builder, builder.load(at), context.get_value_type(vector))

    return vector(array, types.intp), codegen


def call_intrinsic(builder, name, *args):
    """Emit a call of an LLVM intrinsic whose arguments and result have one type."""
    kind = args[0].type
    bits = 32 if isinstance(kind.element, ir.FloatType) else 64
    signature = ir.FunctionType(kind, [kind] * len(args))
    function = cgutils.get_or_insert_function(
        builder.module, signature, f"llvm.{name}.v{kind.count}f{bits}"
    )
    return builder.call(function, args)


@intrinsic
def fma(typing, a, b, c):
    """Return ``a * b + c``, rounded once."""

    def codegen(context, builder, signature, args):
        return call_intrinsic(builder, "fma", *args)

    return a(a, a, a), codegen


def _register_operator(symbol, instruction):
    @type_callable(symbol)
    def kind(context):
        return lambda a, b: a if isinstance(a, Vector) and a == b else None

    @lower_builtin(symbol, Vector, Vector)
    def codegen(context, builder, signature, args):
        return getattr(builder, instruction)(*args)


_register_operator(operator.add, "fadd")
_register_operator(operator.sub, "fsub")
_register_operator(operator.mul, "fmul")
_register_operator(operator.truediv, "fdiv")


def _make_select_intrinsic(comparison):
    @intrinsic
    def operation(typing, a, b):
        def codegen(context, builder, signature, args):
            is_selected = builder.fcmp_ordered(comparison, *args)
            return builder.select(is_selected, *args)

        return a(a, a), codegen

    return operation


# a where it is strictly larger (smaller), else b: one instruction on x86. A NaN in a is
# dropped, a NaN in b is returned.
maximum, minimum = _make_select_intrinsic(">"), _make_select_intrinsic("<")


@intrinsic
def select_lt(typing, a, b, c, d):
    """Return ``c`` where ``a < b``, else ``d``; comparisons with NaN are false."""

    def codegen(context, builder, signature, args):
        mask = builder.fcmp_ordered("<", args[0], args[1])
        return builder.select(mask, args[2], args[3])

    return a(a, a, a, a), codegen


if config.DISABLE_JIT:
    # Without the compiler a vector is a numpy array: slow, but a debugger can step in.

    def span(array):
        """Return the flat array."""
        return array.reshape(-1)

    aligned_span = span

    def subspan(array, first, count):
        """Return ``count`` numbers of an array, from ``first`` on."""
        return array[first : first + count]

    def load(array, offset):
        """Return the vector of the numbers from ``offset`` on."""
        return array[offset : offset + 64 // array.itemsize].copy()

    def store(array, offset, vector):
        """Write the lanes of ``vector`` from ``offset`` on."""
        array[offset : offset + 64 // array.itemsize] = vector

    def splat(x):
        """Return x, the value of every lane."""
        return x

    def splat_at(array, offset):
        """Return the number at ``offset``, the value of every lane."""
        return array[offset]

    get_number = splat_at

    def put_number(array, offset, x):
        """Write the number x at ``offset``."""
        array[offset] = x

    def fma(a, b, c):
        """Return ``a * b + c``."""
        return a * b + c

    def maximum(a, b):
        """Return ``a`` where it is strictly larger, else ``b``."""
        return np.where(a > b, a, b)

    def minimum(a, b):
        """Return ``a`` where it is strictly smaller, else ``b``."""
        return np.where(a < b, a, b)

    def select_lt(a, b, c, d):
        """Return ``c`` where ``a < b``, else ``d``."""
        return np.where(a < b, c, d)
