"""Exponentials of scores, the largest of which is taken out."""

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.simd import get, maximum, put, splat, store
from smoothsp._kernels.vectors.simd_exp import exp
from smoothsp._kernels.vectors.simd_masked import load_masked, reduce_max


@subroutine
def exp_minus_max(scores, offset, count, S, zeros, P, out):
    """Fill ``out(i, j) = exp(score(i, j) - top)``, ``[count / S, P]``.

    Of the ``count`` scores that begin at ``at``. One pass finds top, the largest of
    them, and another fills the rows, so that no exponential exceeds 1. Columns past S
    get 0; if all scores are -inf, every entry does. May write one vector past the end
    of ``out``: leave room. Returns the largest score, in float64.
    """
    V = len(zeros)
    neg_inf = splat(zeros.dtype.type(-np.inf))
    maxima = neg_inf
    for e in range(0, count, V):
        maxima = maximum(load_masked(scores, offset + e, count - e, neg_inf), maxima)
    max_score = reduce_max(maxima)
    # a row of less than whole vectors writes past its end: the next row overwrites that
    for i in range(count // S):
        for j in range(0, P, V):
            x = splat(zeros[0])
            if max_score > -np.inf:
                x = load_masked(scores, offset + i * S + j, S - j, neg_inf)
                x = exp(x - splat(max_score))
            store(out, i * P + j, x)
    return np.float64(max_score)


@subroutine
def fill_transposed(matrix, S, P, out):
    """Fill ``out[S, P]`` with the transpose of ``matrix[S, P]``, not past S."""
    # few rows at a time, which stay in the cache
    for first_row in range(0, S, 16):
        for j in range(S):
            for i in range(first_row, min(first_row + 16, S)):
                put(out, j * P + i, get(matrix, i * P + j))
