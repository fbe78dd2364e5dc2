"""Scaled floats ``m 2^e`` in Triton: a mantissa m from 1 to 2, or 0, and an int32 e.

As ``circuits.cpu.scaled_floats``, but with integer exponents, exact up to
``MAX_EXPONENT`` for both dtypes.
"""

import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

# The largest absolute exponent of an output for which all results are exact.
MAX_EXPONENT = tl.constexpr(2**28)
# Exponents are clipped here; that of zero is the lowest.
EXPONENT_LIMIT = tl.constexpr(2**29)
# Exponent of an empty sum, as low as that of a product of two zeros.
EMPTY_SUM_EXPONENT = tl.constexpr(-(2**30))
# ln 2 in two parts: the first times an integer below the limit is exact in float64.
LN2 = tl.constexpr(0.6931471805599453)
LN2_HIGH = tl.constexpr(0.693145751953125)
LN2_LOW = tl.constexpr(1.4286068203094172e-06)


@triton.jit
def pow2(k, dtype: tl.constexpr):
    """``2^k`` for integers k up to the largest exponent; 0 where it is not normal."""
    if dtype == tl.float32:
        bits = (tl.maximum(k, -127) + 127) << 23
        return bits.to(tl.float32, bitcast=True)
    else:
        bits = (tl.maximum(k, -1023) + 1023).to(tl.int64) << 52
        return bits.to(tl.float64, bitcast=True)


@triton.jit
def normalise(total, top):
    """``total 2^top`` as a scaled float; ``total`` is a normal number, or 0."""
    if total.dtype == tl.float32:
        bits = total.to(tl.int32, bitcast=True)
        exponent = (bits >> 23) - 127
        # replace the exponent field by that of 1
        bits = (bits & 0x7FFFFF) | 0x3F800000
    else:
        bits = total.to(tl.int64, bitcast=True)
        exponent = ((bits >> 52) - 1023).to(tl.int32)
        bits = (bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000
    is_positive = total > 0
    exponent = tl.minimum(tl.maximum(top + exponent, -EXPONENT_LIMIT), EXPONENT_LIMIT)
    mantissa = bits.to(total.dtype, bitcast=True)
    return tl.where(is_positive, mantissa, 0.0), tl.where(
        is_positive, exponent, -EXPONENT_LIMIT
    )


@triton.jit
def exp_to_scaled(score):
    """``exp(score)`` as a scaled float. -inf gives zero, and so does NaN in padding."""
    w = score.to(tl.float64)
    is_positive = w > float("-inf")
    # score = k ln 2 + r, with k whole and |r| at most half of ln 2
    x = tl.minimum(
        tl.maximum(tl.where(is_positive, w, 0.0), -EXPONENT_LIMIT * LN2),
        EXPONENT_LIMIT * LN2,
    )
    k = tl.floor(x / LN2 + 0.5)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    total = tl.where(is_positive, tl.exp(r.to(score.dtype)), 0.0)
    return normalise(total, k.to(tl.int32))
