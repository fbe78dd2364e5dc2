"""Range codes of scores: a bit mask of infinite, invalid and large numbers."""

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

# NEG_INF_OR_LOW: -inf or a finite number <= -LIMIT; LOW: such a finite number; INVALID:
# NaN, +inf or a number >= LIMIT; COARSE: a score of magnitude above MAX_FINE.
NEG_INF_OR_LOW, LOW, INVALID, COARSE = 1, 2, 4, 8
# Exact in every float type.
LIMIT = 2.0**40
# A cost added to a larger float32 score would lose digits that matter in losses.
MAX_FINE = 64.0


@kernel
def range_codes(address, size, like):
    """Return the bit mask of range codes of ``size`` numbers of the dtype of ``like``.

    One pass computes minimum and maximum, and whether all are below ``LIMIT``. A second
    pass distinguishes -inf from finite numbers, only if the minimum is <= -LIMIT.
    """
    L = 64 // like.itemsize
    values = span(carray(address, (size,), like))
    zero, one = splat(like.dtype.type(0)), splat(like.dtype.type(1))
    limit, neg_inf = splat(like.dtype.type(LIMIT)), splat(like.dtype.type(-np.inf))
    fine_limit = splat(like.dtype.type(MAX_FINE))
    invalid, min_value, max_value = zero, zero, zero
    for i in range(0, size, L):
        # only the last load is masked: processors do not prefetch for masked loads
        v = load(values, i) if i + L <= size else load_masked(values, i, size - i, zero)
        invalid = select_lt(v, limit, invalid, one)  # comparisons with NaN are false
        min_value = minimum(v, min_value)
        # invalid numbers count as 0, so that they do not make scores coarse
        max_value = maximum(select_lt(v, limit, v, zero), max_value)
    codes = INVALID if any_not_equal(invalid, zero) else 0
    if not any_not_equal(select_lt(zero - limit, min_value, zero, one), zero):
        size = maximum(max_value, zero - min_value)
        return codes + (
            COARSE if any_not_equal(select_lt(fine_limit, size, one, zero), zero) else 0
        )
    low, coarse = zero, select_lt(fine_limit, max_value, one, zero)
    for i in range(0, size, L):
        v = load(values, i) if i + L <= size else load_masked(values, i, size - i, zero)
        finite = select_lt(neg_inf, v, one, zero)
        low = select_lt(zero - limit, v, low, maximum(finite, low))
        scored = select_lt(zero - limit, v, one, zero)
        coarse = select_lt(v, zero - fine_limit, maximum(scored, coarse), coarse)
    codes += LOW if any_not_equal(low, zero) else 0
    return codes + NEG_INF_OR_LOW + (COARSE if any_not_equal(coarse, zero) else 0)


@kernel
def copy_with_low_as_neg_inf(source_address, size, like, target_address):
    """Copy ``size`` numbers, replacing those <= -LIMIT by -inf.

    Both addresses may be the same.
    """
    source, target = (
        carray(source_address, (size,), like),
        carray(target_address, (size,), like),
    )
    low_limit, neg_inf = like.dtype.type(-LIMIT), like.dtype.type(-np.inf)
    for i in range(size):
        target[i] = neg_inf if source[i] <= low_limit else source[i]


@kernel
def first_neg_inf_row(address, num_rows, size, like):
    """Return the first row of ``size`` numbers that are all -inf (or NaN), or -1."""
    values = carray(address, (num_rows, size), like)
    for row in range(num_rows):
        i = 0
        while i < size and not values[row, i] > -np.inf:
            i += 1
        if i == size:
            return row
    return -1
