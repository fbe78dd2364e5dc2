"""Scaled floats ``m 2^e``: a mantissa m from 0.7 to 2 and an integer e, two vectors.

Sums and products neither overflow nor underflow, and need no exponential or logarithm.
Zero is m = 0 with an e so low that its products are 0.
"""

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import config
from numba.extending import intrinsic, register_jitable

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.double_double import LN2, LN2_ERROR
from smoothsp._kernels.vectors.simd import (
    call_intrinsic,
    fma,
    load,
    maximum,
    minimum,
    select_lt,
    store,
)
from smoothsp._kernels.vectors.simd_exp import CONSTANTS, exponent, mantissa


@intrinsic
def splat_like(typing, like, value):
    """A float64 number in every lane of a vector of the type of ``like``."""

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
def small_exp(typing, r):
    """``exp(r)`` for ``|r| <= ln(2) / 2``, by its Taylor polynomial."""
    degree = CONSTANTS[r.dtype][-1]

    def code(context, builder, signature, args):
        kind = args[0].type
        terms = [1 / math.factorial(n) for n in range(degree, -1, -1)]
        coefficients = [ir.Constant(kind, [term] * kind.count) for term in terms]
        # Horner's rule, from the highest degree
        p = coefficients[0]
        for coefficient in coefficients[1:]:
            p = call_intrinsic(builder, "fma", p, args[0], coefficient)
        return p

    return r(r), code


@intrinsic
def pow2(typing, x):
    """``2^k`` of ``x = k + pow2_bias(L)``, k an integer; 0 below half the least k.

    Products of the result with larger numbers are then normal: denormal ones cost a
    hundred cycles. The last bits of so large an x count ones.
    """
    size, bias, *_ = CONSTANTS[x.dtype]

    def code(context, builder, signature, args):
        kind = args[0].type
        ints = ir.VectorType(ir.IntType(x.dtype.bitwidth), kind.count)

        def splat_constant(value, kind=kind):
            return ir.Constant(kind, [value] * kind.count)

        min_argument = splat_constant(1.5 * 2**size + bias - bias // 2)
        is_normal = builder.fcmp_ordered(">", args[0], min_argument)
        # the integer in the last bits moves into the exponent field
        bits = builder.shl(builder.bitcast(args[0], ints), splat_constant(size, ints))
        return builder.select(
            is_normal, builder.bitcast(bits, kind), splat_constant(0.0)
        )

    return x(x), code


@register_jitable
def pow2_bias(L):
    """Return the argument of ``pow2`` for exponent 0: a large number plus the bias."""
    return 1.5 * 2.0**23 + 127 if L == 16 else 1.5 * 2.0**52 + 1023


@register_jitable
def max_sum_exponent(L):
    """Return the largest exponent that a partial sum may have."""
    return 100.0 if L == 16 else 900.0


@register_jitable
def zero_exponent(L):
    """Return the exponent of zero: added to any other, it is below all numbers'."""
    return -4e6 if L == 16 else -(2.0**56)


@register_jitable
def exponent_limit(L):
    """Return the largest absolute exponent of an output with exact results.

    float64 has room for thousands of the largest scores.
    """
    return 2.0**20 if L == 16 else 2.0**50


@register_jitable
def ln2_high(L):
    """Return the float nearest to ln 2."""
    return 0.693147182464599609375 if L == 16 else LN2


@register_jitable
def min_marginal(L):
    """Marginals below this are set to 0: their products might be denormal."""
    return 2.0**-60 if L == 16 else 2.0**-500


@register_jitable
def integer_rounding_constant(L):
    """Return a float so large that the last bits of its mantissa count ones.

    Adding and subtracting it rounds to an integer.
    """
    return 1.5 * 2.0**23 if L == 16 else 1.5 * 2.0**52


@subroutine(forceinline=True)
def exp_to_scaled(m, e, first, last, running_max_exponent, ones, L):
    """Replace the scores in items ``first`` to ``last`` of m by exp(score) in m and e.

    Return the largest absolute exponent of each lane, at least
    ``running_max_exponent``.
    -inf becomes zero, and so does NaN, which only padding holds.
    """
    zero = ones - ones
    max_exponents = splat_like(ones, exponent_limit(L))
    min_exponents = zero - max_exponents
    zero_exponents, neg_inf = (
        splat_like(ones, zero_exponent(L)),
        splat_like(ones, -np.inf),
    )
    rounding_constant, rate = (
        splat_like(ones, integer_rounding_constant(L)),
        splat_like(ones, 1 / LN2),
    )
    # ln 2 in two parts: the first times k is exact within a fused product and sum
    high_part = splat_like(ones, -ln2_high(L))
    low_part = splat_like(ones, ln2_high(L) - LN2 - (0.0 if L == 16 else LN2_ERROR))
    for i in range(first * L, last * L, L):
        w = load(m, i)
        x = minimum(
            maximum(w, min_exponents), max_exponents
        )  # comparisons with NaN are false
        # x = k ln 2 + r, with k whole and |r| at most half of ln 2
        k = fma(x, rate, rounding_constant) - rounding_constant
        r = fma(k, low_part, fma(k, high_part, x))
        finite_k = select_lt(neg_inf, w, k, zero)
        running_max_exponent = maximum(
            maximum(finite_k, zero - finite_k), running_max_exponent
        )
        store(m, i, select_lt(neg_inf, w, small_exp(r), zero))
        store(e, i, select_lt(neg_inf, w, k, zero_exponents))
    return running_max_exponent


@subroutine(forceinline=True)
def store_scaled(m, e, offset, total, top, zero_exponents):
    """Store ``total 2^top`` as a scaled float; ``total`` is a normal number, or 0."""
    zero = total - total
    store(m, offset, select_lt(zero, total, mantissa(total), zero))
    store(e, offset, select_lt(zero, total, top + exponent(total), zero_exponents))


if config.DISABLE_JIT:
    # Without the compiler a vector is a numpy array.

    def splat_like(like, value):
        """A number in every lane."""
        return np.full_like(like, value)

    small_exp = np.exp

    def pow2(x):
        """``2^k``, 0 where k is very low."""
        L = 64 // x.itemsize
        min_exponent = -63 if L == 16 else -511
        k = x - x.dtype.type(pow2_bias(L))
        return np.where(
            k > min_exponent, np.exp2(np.maximum(k, min_exponent)), 0
        ).astype(x.dtype)
