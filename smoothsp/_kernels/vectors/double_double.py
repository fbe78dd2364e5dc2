"""Double-double arithmetic: a value is ``hi + lo``, two float64 numbers.

``lo`` is the accumulated rounding error of ``hi``, so differences of large sums keep
the digits of their terms. If hi is infinite, lo is 0.

Source: Dekker, "A Floating-Point Technique for Extending the Available Precision"
(1971); Knuth, "The Art of Computer Programming", volume 2, section 4.2.2.
"""

import math

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine

# ln 2 = LN2 + LN2_ERROR. Veltkamp's splitting gives LN2 = LN2_HIGH + LN2_LOW, halves of
# at most 26 bits, whose products with 26-bit numbers are exact.
LN2 = math.log(2.0)
LN2_ERROR = 2.3190468138462996e-17
SPLITTER = 2.0**27 + 1
LN2_HIGH = SPLITTER * LN2 - (SPLITTER * LN2 - LN2)
LN2_LOW = LN2 - LN2_HIGH


@subroutine(optimise=False)
def add(hi, lo, x):
    """Return ``hi + lo + x`` as a double-double (Knuth's TwoSum; lo accumulates)."""
    new_hi = hi + x
    x_rounded = new_hi - hi
    return new_hi, lo + ((hi - (new_hi - x_rounded)) + (x - x_rounded))


@subroutine(optimise=False)
def normalise(hi, lo):
    """Return ``hi + lo`` with hi rounded to nearest; lo is 0 if hi is not finite."""
    # Dekker's Fast2Sum: exact, as |hi| >= |lo|
    rounded = hi + lo
    if not math.isfinite(rounded):
        return hi, 0.0
    return rounded, lo - (rounded - hi)


@subroutine(optimise=False)
def log_scaled(m, e):
    """Return ``log(m 2^e) = log m + e ln 2`` as a double-double; -inf for m = 0."""
    if not m > 0:
        return -math.inf, 0.0
    # Dekker's product: the rounding error of e LN2 from the products of the halves
    e_hi = SPLITTER * e - (SPLITTER * e - e)
    e_lo = e - e_hi
    product = e * LN2
    error = (
        (e_hi * LN2_HIGH - product) + e_hi * LN2_LOW + e_lo * LN2_HIGH
    ) + e_lo * LN2_LOW
    return add(product, error + e * LN2_ERROR, math.log(m))


@kernel
def sum_rows(values, sums):
    """Fill sums[R, 2] with the sums of values[R, N], as double-doubles."""
    for r in range(len(values)):
        hi = lo = 0.0
        for i in range(values.shape[1]):
            hi, lo = add(hi, lo, values[r, i])
        sums[r, 0], sums[r, 1] = normalise(hi, lo)
