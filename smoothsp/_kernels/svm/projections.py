"""Projections of rows onto a simplex and onto the Weston-Watkins feasible set.

Rows of v are ``[B, m]``; each is copied to scratch of whole vectors.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.svm import box_sum_root, simplex_threshold
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy


@kernel
def project_simplex(first, last, v, total, zeros, out):
    """Fill the point nearest to v of ``b >= 0, sum(b) = total``, for each row.

    ``b = max(v - t, 0)``, with the threshold t of ``simplex_threshold``.
    """
    m = v.shape[1]
    P = -(-m // len(zeros)) * len(zeros)
    row = arrays.empty(P, zeros.dtype)
    row[m:] = -np.inf
    for i in range(first, last):
        copy(v[i], row[:m])
        top = row[0]
        for j in range(1, m):
            top = max(top, row[j])
        # b and t of v - max v are equal up to the shift, and a small total is not
        # rounded away against large entries
        row -= top
        # max v is in the support, so t >= -total: Newton's method starts below the root
        mass = float(total[i])
        t = simplex_threshold.simplex_threshold(
            row, np.inf, mass, -mass, simplex_threshold.MAX_NEWTON_STEPS, P, zeros
        )
        for j in range(m):
            out[i, j] = max(row[j] - zeros.dtype.type(t), zeros[0])


@kernel
def project_weston_watkins(first, last, v, upper, zeros, out):
    """Fill the minimiser of ``1/2 b'(I + 11')b - v'b`` over ``0 <= b <= upper``.

    ``b = clip(v - g, 0, upper)``, with the root ``g = sum(b)`` of ``box_sum_root``.
    """
    m = v.shape[1]
    P = -(-m // len(zeros)) * len(zeros)
    row, cap = arrays.zeros(P, zeros.dtype), arrays.zeros(P, zeros.dtype)
    for i in range(first, last):
        copy(v[i], row[:m])
        copy(upper[i], cap[:m])
        top, limit = -np.inf, 0.0
        for j in range(m):
            limit += cap[j]
            if cap[j] > 0:
                top = max(top, float(row[j]))
        # g = sum(b) is at most the sum of bounds, and b > 0 requires g < max v
        top = min(top, limit)
        g = box_sum_root.box_sum_root(
            row, cap, 0.0, 0.0, top, box_sum_root.MAX_NEWTON_STEPS, P, zeros
        )
        for j in range(m):
            out[i, j] = min(max(row[j] - zeros.dtype.type(g), zeros[0]), cap[j])
