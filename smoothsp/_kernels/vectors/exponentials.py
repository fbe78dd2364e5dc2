"""Exponentials of scores minus their maximum, and transposes."""

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.simd import get_number, maximum, put_number, splat, store
from smoothsp._kernels.vectors.simd_exp import exp
from smoothsp._kernels.vectors.simd_masked import load_masked, reduce_max


@subroutine
def fill_exp_minus_max(scores, offset, count, S, zeros, P, out):
    """Fill ``out(i, j) = exp(score(i, j) - max_score)``, ``[count / S, P]``.

    Reads the ``count`` scores from ``offset`` on. One pass finds the maximum, another
    fills the rows, so no exponential exceeds 1. Columns past S are 0; if all scores are
    -inf, all entries are 0. May write one vector past the end of ``out``. Returns the
    maximum in float64.
    """
    V = len(zeros)
    neg_inf = splat(zeros.dtype.type(-np.inf))
    maxima = neg_inf
    for e in range(0, count, V):
        maxima = maximum(load_masked(scores, offset + e, count - e, neg_inf), maxima)
    max_score = reduce_max(maxima)
    # a row that is no whole number of vectors writes into the next row, filled later
    for i in range(count // S):
        for j in range(0, P, V):
            x = splat(zeros[0])
            # -inf - (-inf) would be NaN
            if max_score > -np.inf:
                x = load_masked(scores, offset + i * S + j, S - j, neg_inf)
                x = exp(x - splat(max_score))
            store(out, i * P + j, x)
    return np.float64(max_score)


@subroutine
def fill_transposed(matrix, S, P, out):
    """Fill the first S columns of out[S, P] with the transpose of matrix[S, P]."""
    # blocks of 16 rows, whose cache lines stay in the first level
    for first_row in range(0, S, 16):
        for j in range(S):
            for i in range(first_row, min(first_row + 16, S)):
                put_number(out, j * P + i, get_number(matrix, i * P + j))
