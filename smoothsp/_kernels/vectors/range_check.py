"""The smallest and the largest of many numbers, as codes of what they mean."""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors.arrays import at
from smoothsp._kernels.vectors.simd import (
    larger,
    load,
    smaller,
    span,
    splat,
    where_below,
)
from smoothsp._kernels.vectors.simd_compare import differ
from smoothsp._kernels.vectors.simd_masked import load_some

# -inf, or a finite number at or below -LIMIT; such a finite number; NaN, +inf, or a
# finite number at or above LIMIT; a score of magnitude above MOST_FINE.
FORBIDDEN, LOW, WRONG, COARSE = 1, 2, 4, 8
# Exact in every float type.
LIMIT = 2.0**40
# Costs added to larger scores of float32 would lose digits that losses show.
MOST_FINE = 64.0


@kernel
def extremes(address, size, like):
    """What ``size`` numbers of the float type of ``like`` hold: a sum of codes.

    One pass keeps the smallest and the largest number, and whether all are below
    ``LIMIT``. Only where something is forbidden does a second one tell finite numbers
    from -inf.
    """
    L = 64 // like.itemsize
    values = span(at(address, (size,), like))
    zero, one = splat(like.dtype.type(0)), splat(like.dtype.type(1))
    limit, nothing = splat(like.dtype.type(LIMIT)), splat(like.dtype.type(-np.inf))
    fine = splat(like.dtype.type(MOST_FINE))
    wrong, least, most = zero, zero, zero
    for i in range(0, size, L):
        # only the last load is masked: processors do not prefetch for masked loads
        v = load(values, i) if i + L <= size else load_some(values, i, size - i, zero)
        wrong = where_below(v, limit, wrong, one)  # comparisons with NaN are false
        least = smaller(v, least)
        most = larger(where_below(v, limit, v, zero), most)
    found = WRONG if differ(wrong, zero) else 0
    if not differ(where_below(zero - limit, least, zero, one), zero):
        size = larger(most, zero - least)
        return found + (
            COARSE if differ(where_below(fine, size, one, zero), zero) else 0
        )
    low, coarse = zero, where_below(fine, most, one, zero)
    for i in range(0, size, L):
        v = load(values, i) if i + L <= size else load_some(values, i, size - i, zero)
        finite = where_below(nothing, v, one, zero)
        low = where_below(zero - limit, v, low, larger(finite, low))
        scored = where_below(zero - limit, v, one, zero)
        coarse = where_below(v, zero - fine, larger(scored, coarse), coarse)
    found += LOW if differ(low, zero) else 0
    return found + FORBIDDEN + (COARSE if differ(coarse, zero) else 0)


@kernel
def forbid(given, size, like, out):
    """Copy ``size`` numbers, -inf for what is at or below -LIMIT.

    ``given`` and ``out`` are addresses, and may be the same.
    """
    values, found = at(given, (size,), like), at(out, (size,), like)
    least, nothing = like.dtype.type(-LIMIT), like.dtype.type(-np.inf)
    for i in range(size):
        found[i] = nothing if values[i] <= least else values[i]


@kernel
def forbidden_row(address, rows, size, like):
    """The first row of ``size`` numbers of which none is above -inf; -1 if none is."""
    values = at(address, (rows, size), like)
    for row in range(rows):
        i = 0
        while i < size and not values[row, i] > -np.inf:
            i += 1
        if i == size:
            return row
    return -1
