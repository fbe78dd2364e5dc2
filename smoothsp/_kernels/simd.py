"""Short vectors of floats as values that compiled loops can hold in registers.

A vector has 16 lanes of float32 or 8 of float64, 512 bits; on narrower machines the
compiler splits it. ``load`` and ``store`` take a one-dimensional contiguous array and
the offset of the first lane, and check bounds when numba does. The operators + - * /
work lane by lane. ``exp`` is defined for arguments of at most 0.
"""

import math
import operator

import numpy as np
from llvmlite import ir
from numba import literal_unroll, types
from numba.core import cgutils, config
from numba.extending import intrinsic, models, overload, register_model


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


def _address(context, builder, array_type, array, offset, lanes):
    struct = context.make_array(array_type)(context, builder, array)
    if config.BOUNDSCHECK:
        end = builder.add(offset, offset.type(lanes))
        low = builder.icmp_signed("<", offset, offset.type(0))
        high = builder.icmp_signed(">", end, struct.nitems)
        with builder.if_then(builder.or_(low, high), likely=False):
            message = "vector is out of bounds of its array"
            context.call_conv.return_user_exc(builder, IndexError, (message,))
    return builder.gep(struct.data, [offset])


@intrinsic
def load(typing, array, offset):
    """The lanes at ``offset`` and after."""
    vector = Vector(array.dtype)

    def code(context, builder, signature, args):
        kind = context.get_value_type(vector)
        at = _address(context, builder, signature.args[0], *args, vector.lanes)
        value = builder.load(builder.bitcast(at, kind.as_pointer()))
        value.align = array.dtype.bitwidth // 8
        return value

    return vector(array, types.intp), code


@intrinsic
def store(typing, array, offset, vector):
    """Write the lanes at ``offset`` and after."""

    def code(context, builder, signature, args):
        at = _address(context, builder, signature.args[0], *args[:2], vector.lanes)
        at = builder.bitcast(at, args[2].type.as_pointer())
        builder.store(args[2], at).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), code


@intrinsic
def splat(typing, x):
    """The scalar x in every lane."""
    vector = Vector(x)

    def code(context, builder, signature, args):
        kind = context.get_value_type(vector)
        i32 = ir.IntType(32)
        nothing = ir.Constant(kind, ir.Undefined)
        first = builder.insert_element(nothing, args[0], i32(0))
        zeros = ir.Constant(ir.VectorType(i32, kind.count), [0] * kind.count)
        return builder.shuffle_vector(first, nothing, zeros)

    return vector(x), code


def _llvm(builder, name, *args):
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
        return _llvm(builder, "fma", *args)

    return a(a, a, a), code


@intrinsic
def _nearest(typing, a):
    def code(context, builder, signature, args):
        return _llvm(builder, "rint", *args)

    return a(a), code


def _binary(instruction):
    @intrinsic
    def operation(typing, a, b):
        def code(context, builder, signature, args):
            return getattr(builder, instruction)(*args)

        return a(a, a), code

    return operation


def _overload(symbol, operation):
    def choose(a, b):
        if isinstance(a, Vector) and a == b:
            return lambda a, b: operation(a, b)
        return None

    overload(symbol, inline="always")(choose)


_overload(operator.add, _binary("fadd"))
_overload(operator.sub, _binary("fsub"))
_overload(operator.mul, _binary("fmul"))
_overload(operator.truediv, _binary("fdiv"))


def _pick(comparison):
    @intrinsic
    def operation(typing, a, b):
        def code(context, builder, signature, args):
            chosen = builder.fcmp_ordered(comparison, *args)
            return builder.select(chosen, *args)

        return a(a, a), code

    return operation


# a where it is strictly larger (smaller), else b: a NaN in a loses, in b it wins
larger, smaller = _pick(">"), _pick("<")


@intrinsic
def where_below(typing, a, b, c, d):
    """``c`` where ``a < b``, else ``d``."""

    def code(context, builder, signature, args):
        below = builder.fcmp_ordered("<", args[0], args[1])
        return builder.select(below, args[2], args[3])

    return a(a, a, a, a), code


@intrinsic
def _power_of_two(typing, k):
    """``2^k`` for whole k in the range of normal numbers: k put into the exponent."""
    mantissa, bias = (23, 127) if k.dtype == types.float32 else (52, 1023)

    def code(context, builder, signature, args):
        kind = args[0].type
        ints = ir.VectorType(ir.IntType(k.dtype.bitwidth), kind.count)
        bits = builder.fptosi(args[0], ints)
        bits = builder.add(bits, ir.Constant(ints, [bias] * kind.count))
        bits = builder.shl(bits, ir.Constant(ints, [mantissa] * kind.count))
        return builder.bitcast(bits, kind)

    return k(k), code


def exp(x):
    """``exp(x)`` for x of at most 0, 0 below the smallest normal number; NaN stays.

    ``2^k exp(r)`` with k whole and ``|r| <= ln(2) / 2``: ln 2 in two parts, of which k
    times the first is exact, and the Taylor polynomial of exp(r). Relative error below
    1e-7 in float32 and 3e-16 in float64.
    """
    raise TypeError("exp is for compiled code")


def _exp(lowest, log2_e, ln2_high, ln2_low, coefficients):
    highest, lower = coefficients[0], coefficients[1:]

    def exp_(x):
        # NaN must reach r but not k, of which the bits are taken
        k = _nearest(larger(x, splat(lowest)) * splat(log2_e))
        r = fma(k, splat(-ln2_high), larger(splat(lowest), x))
        r = fma(k, splat(-ln2_low), r)
        p = splat(highest)
        for c in literal_unroll(lower):
            p = fma(p, r, splat(c))
        return where_below(x, splat(lowest), splat(zero), p * _power_of_two(k))

    zero = type(lowest)(0)
    return exp_


def _taylor(dtype, degree):
    return tuple(dtype(1 / math.factorial(n)) for n in range(degree, -1, -1))


_EXP = {
    types.float32: _exp(
        np.float32(-87.0),
        np.float32(1 / math.log(2)),
        np.float32(0.693359375),
        np.float32(-2.1219444005469058e-4),
        _taylor(np.float32, 7),
    ),
    types.float64: _exp(
        np.float64(-708.0),
        np.float64(1 / math.log(2)),
        np.float64(0.693145751953125),
        np.float64(1.4286068203094172e-6),
        _taylor(np.float64, 13),
    ),
}


@overload(exp)
def _choose_exp(x):
    return _EXP[x.dtype] if isinstance(x, Vector) else None


if config.DISABLE_JIT:
    # Without the compiler a vector is a numpy array: slow, and good for a debugger.

    def load(array, offset):
        """The lanes at ``offset`` and after."""
        return array[offset : offset + 64 // array.itemsize].copy()

    def store(array, offset, vector):
        """Write the lanes at ``offset`` and after."""
        array[offset : offset + 64 // array.itemsize] = vector

    def splat(x):
        """The scalar x in every lane."""
        return x

    def fma(a, b, c):
        """``a * b + c``."""
        return a * b + c

    def larger(a, b):
        """``a`` where it is strictly larger, else ``b``."""
        return np.where(a > b, a, b)

    def smaller(a, b):
        """``a`` where it is strictly smaller, else ``b``."""
        return np.where(a < b, a, b)

    def where_below(a, b, c, d):
        """``c`` where ``a < b``, else ``d``."""
        return np.where(a < b, c, d)

    exp = np.exp
