"""The smallest and the largest of many numbers, as codes of what they mean."""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors.arrays import carray
from smoothsp._kernels.vectors.simd import (
    load,
    maximum,
    minimum,
    select_lt,
    span,
    splat,
)
from smoothsp._kernels.vectors.simd_compare import any_not_equal
from smoothsp._kernels.vectors.simd_masked import load_masked

# -inf, or a finite number at or below -LIMIT; such a finite number; NaN, +inf, or a
# finite number at or above LIMIT; a score of magnitude above MOST_FINE.
NEG_INF_OR_LOW, LOW, INVALID, COARSE = 1, 2, 4, 8
# Exact in every float type.
LIMIT = 2.0**40
# Costs added to larger scores of float32 would lose digits that losses show.
MAX_FINE = 64.0


@kernel
def range_codes(address, size, like):
    """What ``size`` numbers of the float type of ``like`` hold: a sum of codes.

    One pass keeps the smallest and the largest number, and whether all are below
    ``LIMIT``. Only where something is forbidden does a second one tell finite numbers
    from -inf.
    """
    L = 64 // like.itemsize
    values = span(carray(address, (size,), like))
    zero, one = splat(like.dtype.type(0)), splat(like.dtype.type(1))
    limit, nothing = splat(like.dtype.type(LIMIT)), splat(like.dtype.type(-np.inf))
    fine = splat(like.dtype.type(MAX_FINE))
    wrong, least, most = zero, zero, zero
    for i in range(0, size, L):
        # only the last load is masked: processors do not prefetch for masked loads
        v = load(values, i) if i + L <= size else load_masked(values, i, size - i, zero)
        wrong = select_lt(v, limit, wrong, one)  # comparisons with NaN are false
        least = minimum(v, least)
        most = maximum(select_lt(v, limit, v, zero), most)
    found = INVALID if any_not_equal(wrong, zero) else 0
    if not any_not_equal(select_lt(zero - limit, least, zero, one), zero):
        size = maximum(most, zero - least)
        return found + (
            COARSE if any_not_equal(select_lt(fine, size, one, zero), zero) else 0
        )
    low, coarse = zero, select_lt(fine, most, one, zero)
    for i in range(0, size, L):
        v = load(values, i) if i + L <= size else load_masked(values, i, size - i, zero)
        finite = select_lt(nothing, v, one, zero)
        low = select_lt(zero - limit, v, low, maximum(finite, low))
        scored = select_lt(zero - limit, v, one, zero)
        coarse = select_lt(v, zero - fine, maximum(scored, coarse), coarse)
    found += LOW if any_not_equal(low, zero) else 0
    return found + NEG_INF_OR_LOW + (COARSE if any_not_equal(coarse, zero) else 0)


@kernel
def low_to_neg_inf(given, size, like, out):
    """Copy ``size`` numbers, -inf for what is at or below -LIMIT.

    ``given`` and ``out`` are addresses, and may be the same.
    """
    values, found = carray(given, (size,), like), carray(out, (size,), like)
    least, nothing = like.dtype.type(-LIMIT), like.dtype.type(-np.inf)
    for i in range(size):
        found[i] = nothing if values[i] <= least else values[i]


@kernel
def find_neg_inf_row(address, rows, size, like):
    """The first row of ``size`` numbers of which none is above -inf; -1 if none is."""
    values = carray(address, (rows, size), like)
    for row in range(rows):
        i = 0
        while i < size and not values[row, i] > -np.inf:
            i += 1
        if i == size:
            return row
    return -1
