"""Numbers ``m 2^e``: a mantissa m in [1, 2] and a whole e, in two vectors of floats.

Sums and products of them neither overflow nor underflow, and cost no exponential and no
logarithm. Zero is m = 0 with an e so low that it counts for nothing.
"""

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import config
from numba.extending import intrinsic, register_jitable

from smoothsp._kernels.vectors.simd import (
    call,
    fma,
    larger,
    load,
    smaller,
    span,
    store,
    where_below,
)
from smoothsp._kernels.vectors.simd_exp import CONSTANTS, exp, exponent, mantissa

LN2 = math.log(2)


@intrinsic
def constant(typing, like, value):
    """A float64 number in every lane of a vector like another."""

    def code(context, builder, signature, args):
        kind, x = args[0].type, args[1]
        if isinstance(kind.element, ir.FloatType):
            x = builder.fptrunc(x, kind.element)
        i32 = ir.IntType(32)
        nothing = ir.Constant(kind, ir.Undefined)
        first = builder.insert_element(nothing, x, i32(0))
        zeros = ir.Constant(ir.VectorType(i32, kind.count), [0] * kind.count)
        return builder.shuffle_vector(first, nothing, zeros)

    return like(like, types.float64), code


@intrinsic
def round_up(typing, x):
    """The least whole number that is not below x."""

    def code(context, builder, signature, args):
        return call(builder, "ceil", *args)

    return x(x), code


@intrinsic
def power2(typing, k):
    """``2^k`` for whole k from half the least exponent to 1; 0 below.

    So what is multiplied by it, if no smaller, stays a normal number: denormal ones
    take a hundred cycles.
    """
    size, bias, *_ = CONSTANTS[k.dtype]

    def code(context, builder, signature, args):
        kind = args[0].type
        ints = ir.VectorType(ir.IntType(k.dtype.bitwidth), kind.count)

        def every(value, kind=kind):
            return ir.Constant(kind, [value] * kind.count)

        least = every(float(-bias // 2))
        above = builder.fcmp_ordered(">", args[0], least)
        x = builder.select(above, args[0], least)
        # in so large a number the last bits of the mantissa count ones
        x = builder.fadd(x, every(1.5 * 2**size + bias))
        bits = builder.shl(builder.bitcast(x, ints), every(size, ints))
        return builder.select(above, builder.bitcast(bits, kind), every(0.0))

    return k(k), code


@register_jitable
def lowest(L):
    """The exponent of zero; sums of two are exact and larger ones count."""
    return -(2.0**22) if L == 16 else -(2.0**51)


@register_jitable
def furthest(L):
    """How far from 0 the score of an output may be, in nats, for exponents to hold."""
    return 2.0**20 if L == 16 else 2.0**48


@register_jitable
def faintest(L):
    """Marginals below are 0: their products might be denormal."""
    return 2.0**-60 if L == 16 else 2.0**-500


@njit(error_model="numpy", no_cpython_wrapper=True)
def enter(m, e, count, one, L):
    """Scores in the first items of m become numbers; the largest size of one, a lane.

    -inf is zero, and so are NaN and +inf: they stand where nothing is read.
    """
    m, e = span(m), span(e)
    zero = one - one
    most = constant(one, furthest(L))
    least = zero - most
    low = constant(one, lowest(L))
    rate = constant(one, 1 / LN2)
    infinite = constant(one, np.inf)
    below = zero - infinite
    reach = zero
    for i in range(0, count * L, L):
        w = load(m, i)
        w = where_below(w, infinite, w, below)  # NaN compares with nothing
        size = larger(w, zero - w)
        reach = larger(where_below(below, w, size, zero), reach)
        x = smaller(larger(w, least), most)
        # x = (k + 1) ln 2 + r with r in [-ln 2, 0]: twice exp(r) is in [1, 2]
        k = round_up(x * rate)
        r = fma(k, constant(one, -0.693145751953125), x)
        r = fma(k, constant(one, -1.4286068203094172e-6), r)
        v = exp(smaller(r, zero))
        store(m, i, where_below(below, w, v + v, zero))
        store(e, i, where_below(below, w, k - one, low))
    return reach


@njit(error_model="numpy", forceinline=True, no_cpython_wrapper=True)
def put_number(m, e, at, total, top, low):
    """Store ``total 2^top``: a normal number of at least 1, or 0."""
    zero = total - total
    store(m, at, where_below(zero, total, mantissa(total), zero))
    store(e, at, where_below(zero, total, top + exponent(total), low))


if config.DISABLE_JIT:
    # Without the compiler a vector is a numpy array.

    def constant(like, value):
        """A number in every lane."""
        return np.full_like(like, value)

    def round_up(x):
        """The least whole number that is not below x."""
        return np.ceil(x)

    def power2(k):
        """``2^k``, 0 where k is very low."""
        least = -64 if k.dtype == np.float32 else -512
        return np.where(k > least, np.exp2(np.maximum(k, least)), 0).astype(k.dtype)
