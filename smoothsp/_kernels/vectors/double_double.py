"""Sums as two float64 numbers, whose sum has twice the digits of one.

The second is what rounding took from the first: so differences of large sums keep the
digits of their parts. No sum is left of an infinity: the second number is 0 there.

Source: Dekker, "A Floating-Point Technique for Extending the Available Precision"
(1971); Knuth, "The Art of Computer Programming", volume 2, section 4.2.2.
"""

import math

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine

# ln 2 is LN2 + LN2_REST, and LN2 is the sum of two numbers of at most 26 bits.
LN2 = math.log(2.0)
LN2_ERROR = 2.3190468138462996e-17
SPLITTER = 2.0**27 + 1
LN2_HIGH = SPLITTER * LN2 - (SPLITTER * LN2 - LN2)
LN2_LOW = LN2 - LN2_HIGH


@subroutine(optimise=False)
def add(total, rest, x):
    """``total + rest + x``, again as two numbers."""
    found = total + x
    part = found - total
    return found, rest + ((total - (found - part)) + (x - part))


@subroutine(optimise=False)
def normalise(total, rest):
    """The two numbers with the first as near to their sum as a number can be."""
    found = total + rest
    if not math.isfinite(found):
        return total, 0.0
    return found, rest - (found - total)


@subroutine(optimise=False)
def log_scaled(m, e):
    """``log(m 2^e)`` of a whole e, as two numbers; -inf of m = 0."""
    if not m > 0:
        return -math.inf, 0.0
    # e LN2 by the products of halves
    high = SPLITTER * e - (SPLITTER * e - e)
    low = e - high
    product = e * LN2
    lost = (
        (high * LN2_HIGH - product) + high * LN2_LOW + low * LN2_HIGH
    ) + low * LN2_LOW
    return add(product, lost + e * LN2_ERROR, math.log(m))


@kernel
def sum_rows(values, exact):
    """Fill exact[R, 2] with the sums of values[R, N]."""
    for r in range(len(values)):
        total = rest = 0.0
        for i in range(values.shape[1]):
            total, rest = add(total, rest, values[r, i])
        exact[r, 0], exact[r, 1] = normalise(total, rest)
