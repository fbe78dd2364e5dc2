"""Exponential, logarithm, exponent and mantissa of vectors, lane by lane."""

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import config
from numba.extending import intrinsic

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.simd import call_intrinsic, fma, select_lt, splat

# For each dtype: bits of the mantissa, bias of the exponent, smallest argument of exp
# with a normal result, ln 2 in two parts (Cody and Waite), degree of the polynomial.
CONSTANTS = {
    types.float32: (23, 127, -87.0, 0.693359375, -2.1219444005469058e-4, 7),
    types.float64: (52, 1023, -708.0, 0.693145751953125, 1.4286068203094172e-6, 13),
}


@intrinsic
def exp(typing, x):
    """Return ``exp(x)`` for x <= 0; subnormal results become 0, NaN propagates.

    ``exp(x) = 2^k exp(r)``, k an integer and ``|r| <= ln(2) / 2``. Range reduction
    with ln 2 in two parts, k times the first being exact; then the Taylor polynomial of
    exp(r). Relative error below 1e-7 in float32 and 3e-16 in float64.
    """
    mantissa_bits, bias, min_argument, ln2_hi, ln2_lo, degree = CONSTANTS[x.dtype]

    def codegen(context, builder, signature, args):
        vector_type = args[0].type
        int_type = ir.VectorType(ir.IntType(x.dtype.bitwidth), vector_type.count)

        def constant(value, vector_type=vector_type):
            return ir.Constant(vector_type, [value] * vector_type.count)

        is_below = builder.fcmp_ordered("<", args[0], constant(min_argument))
        is_above = builder.fcmp_ordered(">", args[0], constant(min_argument))
        # NaN propagates through r; k gets a number, as its bits become the exponent
        k = builder.select(is_above, args[0], constant(min_argument))
        # 1.5 2^size has a unit in the last place of 1: adding it rounds to an integer,
        # whose bits are then the lowest of the mantissa
        large = constant(1.5 * 2**mantissa_bits)
        shifted = call_intrinsic(builder, "fma", k, constant(1 / math.log(2)), large)
        k = builder.fsub(shifted, large)
        r = builder.select(is_below, constant(min_argument), args[0])
        r = call_intrinsic(builder, "fma", k, constant(-ln2_hi), r)
        r = call_intrinsic(builder, "fma", k, constant(-ln2_lo), r)
        # Horner's rule for sum_n r^n / n!
        p = constant(1 / math.factorial(degree))
        for n in range(degree - 1, -1, -1):
            p = call_intrinsic(builder, "fma", p, r, constant(1 / math.factorial(n)))
        # 2^k: the integer k, in the low bits of shifted, moves to the exponent field
        bits = builder.bitcast(shifted, int_type)
        bits = builder.shl(bits, constant(mantissa_bits, int_type))
        bits = builder.add(bits, constant(bias << mantissa_bits, int_type))
        p = builder.fmul(p, builder.bitcast(bits, vector_type))
        return builder.select(is_below, constant(0.0), p)

    return x(x), codegen


def _bitcast_to_int(builder, x, vector_type):
    int_type = ir.VectorType(ir.IntType(vector_type.dtype.bitwidth), vector_type.lanes)
    return builder.bitcast(x, int_type)


@intrinsic
def exponent(typing, x):
    """Return the integer k of ``x = m 2^k``, m in [1, 2); x normal and positive."""
    mantissa_bits, bias, *_ = CONSTANTS[x.dtype]

    def codegen(context, builder, signature, args):
        bits = _bitcast_to_int(builder, args[0], x)
        k = builder.lshr(bits, ir.Constant(bits.type, [mantissa_bits] * x.lanes))
        k = builder.sub(k, ir.Constant(bits.type, [bias] * x.lanes))
        return builder.sitofp(k, args[0].type)

    return x(x), codegen


@intrinsic
def mantissa(typing, x):
    """Return the m in [1, 2) of ``x = m 2^k``, k an integer; x normal and positive."""
    mantissa_bits, bias, *_ = CONSTANTS[x.dtype]

    def codegen(context, builder, signature, args):
        bits = _bitcast_to_int(builder, args[0], x)
        mantissa_mask = ir.Constant(bits.type, [(1 << mantissa_bits) - 1] * x.lanes)
        exponent_of_one = ir.Constant(bits.type, [bias << mantissa_bits] * x.lanes)
        bits = builder.or_(builder.and_(bits, mantissa_mask), exponent_of_one)
        return builder.bitcast(bits, args[0].type)

    return x(x), codegen


if config.DISABLE_JIT:
    exp = np.exp

    def exponent(x):
        """Return the integer k of ``x = m 2^k``, m in [1, 2)."""
        return (np.frexp(x)[1] - 1).astype(x.dtype)

    def mantissa(x):
        """Return the m in [1, 2) of ``x = m 2^k``."""
        return 2 * np.frexp(x)[0]


@subroutine(forceinline=True)
def log(x):
    """Return ``log(x)`` in float64, for x normal and positive.

    ``log(x) = k ln 2 + 2 artanh(s)`` with ``x = m 2^k``, m in [1 / sqrt 2, sqrt 2) and
    ``s = (m - 1) / (m + 1)``; artanh by its Taylor polynomial. Error below 3 ulp.
    """
    ones, halves = splat(1.0), splat(0.5)
    m, k = mantissa(x), exponent(x)
    sqrt_2 = splat(math.sqrt(2.0))
    k = select_lt(m, sqrt_2, k, k + ones)
    # m near 1, so that s is small and log(1) is exact
    m = select_lt(m, sqrt_2, m, m * halves)
    s = (m - ones) / (m + ones)
    square = s * s
    p = splat(1 / 21)
    for n in range(19, 0, -2):
        p = fma(p, square, splat(1 / n))
    return fma(k, splat(math.log(2.0)), (s + s) * p)
