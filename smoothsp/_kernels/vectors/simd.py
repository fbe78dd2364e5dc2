"""Short vectors of floats as values that compiled loops can hold in registers.

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
    """A numba type: where the numbers of an array are, and how many."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(name=f"Span({dtype})")


@register_model(Span)
class _SpanModel(models.StructModel):
    def __init__(self, manager, span):
        members = [("data", types.CPointer(span.dtype)), ("nitems", types.intp)]
        super().__init__(manager, span, members)


def _memory(context, builder, kind, value):
    if isinstance(kind, Span):
        return cgutils.create_struct_proxy(kind)(context, builder, value=value)
    return context.make_array(kind)(context, builder, value)


def _span(align):
    @intrinsic
    def operation(typing, array):
        kind = Span(array.dtype)

        def code(context, builder, signature, args):
            memory = _memory(context, builder, signature.args[0], args[0])
            found = cgutils.create_struct_proxy(kind)(context, builder)
            start = builder.ptrtoint(memory.data, memory.nitems.type)
            past = builder.and_(builder.neg(start), start.type(align - 1))
            past = builder.udiv(past, start.type(array.dtype.bitwidth // 8))
            found.data = builder.gep(memory.data, [past])
            found.nitems = builder.sub(memory.nitems, past)
            return found._getvalue()

        return kind(array), code

    return operation


# A contiguous array without the count of its users, which costs time in hot loops; it
# does not keep the array alive: for arrays that a function is given. The second starts
# where a whole vector of the cache does, less than one vector later.
span, aligned_span = _span(1), _span(64)


@intrinsic
def part(typing, array, first, count):
    """A span of ``count`` numbers of an array or a span, from ``first`` on."""
    kind = Span(array.dtype)

    def code(context, builder, signature, args):
        found = cgutils.create_struct_proxy(kind)(context, builder)
        found.data = address(context, builder, signature.args[0], *args)
        found.nitems = args[2]
        return found._getvalue()

    return kind(array, types.intp, types.intp), code


def address(context, builder, kind, value, offset, lanes):
    """LLVM code for the place of ``lanes`` numbers from ``offset`` on."""
    memory = _memory(context, builder, kind, value)
    if config.BOUNDSCHECK:
        end = builder.add(offset, lanes)
        low = builder.icmp_signed("<", offset, offset.type(0))
        high = builder.icmp_signed(">", end, memory.nitems)
        with builder.if_then(builder.or_(low, high), likely=False):
            message = "vector is out of bounds of its array"
            context.call_conv.return_user_exc(builder, IndexError, (message,))
    return builder.gep(memory.data, [offset])


@intrinsic
def load(typing, array, offset):
    """The lanes at ``offset`` and after."""
    vector = Vector(array.dtype)

    def code(context, builder, signature, args):
        kind = context.get_value_type(vector)
        lanes = args[1].type(vector.lanes)
        at = address(context, builder, signature.args[0], *args, lanes)
        value = builder.load(builder.bitcast(at, kind.as_pointer()))
        value.align = array.dtype.bitwidth // 8
        return value

    return vector(array, types.intp), code


@intrinsic
def store(typing, array, offset, vector):
    """Write the lanes at ``offset`` and after."""

    def code(context, builder, signature, args):
        lanes = args[1].type(args[2].type.count)
        at = address(context, builder, signature.args[0], *args[:2], lanes)
        at = builder.bitcast(at, args[2].type.as_pointer())
        builder.store(args[2], at).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), code


@intrinsic
def get(typing, array, offset):
    """The number at ``offset``; no index counts from the end."""

    def code(context, builder, signature, args):
        one = args[1].type(1)
        return builder.load(address(context, builder, signature.args[0], *args, one))

    return array.dtype(array, types.intp), code


@intrinsic
def put(typing, array, offset, x):
    """Write the number x at ``offset``."""

    def code(context, builder, signature, args):
        one = args[1].type(1)
        at = address(context, builder, signature.args[0], *args[:2], one)
        builder.store(args[2], at)
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), code


def _spread(builder, x, kind):
    i32 = ir.IntType(32)
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, x, i32(0))
    zeros = ir.Constant(ir.VectorType(i32, kind.count), [0] * kind.count)
    return builder.shuffle_vector(first, nothing, zeros)


@intrinsic
def splat(typing, x):
    """The scalar x in every lane."""
    vector = Vector(x)

    def code(context, builder, signature, args):
        return _spread(builder, args[0], context.get_value_type(vector))

    return vector(x), code


@intrinsic
def splat_at(typing, array, offset):
    """The number at ``offset`` in every lane; no index counts from the end."""
    vector = Vector(array.dtype)

    def code(context, builder, signature, args):
        one = args[1].type(1)
        at = address(context, builder, signature.args[0], *args, one)
        return _spread(builder, builder.load(at), context.get_value_type(vector))

    return vector(array, types.intp), code


def call_intrinsic(builder, name, *args):
    """LLVM code for an instruction that takes and gives vectors of one type."""
    kind = args[0].type
    bits = 32 if isinstance(kind.element, ir.FloatType) else 64
    signature = ir.FunctionType(kind, [kind] * len(args))
    function = cgutils.get_or_insert_function(
        builder.module, signature, f"llvm.{name}.v{kind.count}f{bits}"
    )
    return builder.call(function, args)


@intrinsic
def fma(typing, a, b, c):
    """``a * b + c``, rounded once."""

    def code(context, builder, signature, args):
        return call_intrinsic(builder, "fma", *args)

    return a(a, a, a), code


def _operator(symbol, instruction):
    @type_callable(symbol)
    def kind(context):
        return lambda a, b: a if isinstance(a, Vector) and a == b else None

    @lower_builtin(symbol, Vector, Vector)
    def code(context, builder, signature, args):
        return getattr(builder, instruction)(*args)


_operator(operator.add, "fadd")
_operator(operator.sub, "fsub")
_operator(operator.mul, "fmul")
_operator(operator.truediv, "fdiv")


def _pick(comparison):
    @intrinsic
    def operation(typing, a, b):
        def code(context, builder, signature, args):
            chosen = builder.fcmp_ordered(comparison, *args)
            return builder.select(chosen, *args)

        return a(a, a), code

    return operation


# a where it is strictly larger (smaller), else b: a NaN in a is dropped, in b kept
maximum, minimum = _pick(">"), _pick("<")


@intrinsic
def select_lt(typing, a, b, c, d):
    """``c`` where ``a < b``, else ``d``."""

    def code(context, builder, signature, args):
        below = builder.fcmp_ordered("<", args[0], args[1])
        return builder.select(below, args[2], args[3])

    return a(a, a, a, a), code


if config.DISABLE_JIT:
    # Without the compiler a vector is a numpy array: slow, and good for a debugger.

    def span(array):
        """The array, flat."""
        return array.reshape(-1)

    aligned_span = span

    def part(array, first, count):
        """``count`` numbers of an array, from ``first`` on."""
        return array[first : first + count]

    def load(array, offset):
        """The lanes at ``offset`` and after."""
        return array[offset : offset + 64 // array.itemsize].copy()

    def store(array, offset, vector):
        """Write the lanes at ``offset`` and after."""
        array[offset : offset + 64 // array.itemsize] = vector

    def splat(x):
        """The scalar x in every lane."""
        return x

    def splat_at(array, offset):
        """The number at ``offset`` in every lane."""
        return array[offset]

    get = splat_at

    def put(array, offset, x):
        """Write the number x at ``offset``."""
        array[offset] = x

    def fma(a, b, c):
        """``a * b + c``."""
        return a * b + c

    def maximum(a, b):
        """``a`` where it is strictly larger, else ``b``."""
        return np.where(a > b, a, b)

    def minimum(a, b):
        """``a`` where it is strictly smaller, else ``b``."""
        return np.where(a < b, a, b)

    def select_lt(a, b, c, d):
        """``c`` where ``a < b``, else ``d``."""
        return np.where(a < b, c, d)
