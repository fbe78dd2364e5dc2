"""Coordinate descent for the elastic net.

    min 1/n |y - X w|^2 + l1 |w|_1 + l2/2 |w|^2

One coordinate after the other is minimised exactly. With q_j = 2/n |x_j|^2,

    w_j <- S(g_j + q_j w_j, l1_j) / (q_j + l2),    S(x, a) = sign(x) max(|x| - a, 0)

The correlation ``g_j = 2/n <x_j, y - X w>`` comes either from the residual, in O(nnz of
x_j), or from the Gram matrix ``2/n X'X``; then all g are updated when a weight changes.

A pass is a sweep over all features, followed by at most ``max_sweeps`` sweeps over
features of nonzero weight, until one makes a hundredth of the first sweep's progress.

Source: Friedman, Hastie and Tibshirani, "Regularization Paths for Generalized Linear
Models via Coordinate Descent" (2010), sections 2.1 to 2.4.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.svm import csr_rows
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import get_number, put_number, span

# Changes of a weight below this fraction of it are due to rounding.
MIN_RELATIVE_CHANGE = 4 * 2.0**-52


@kernel
def coordinate_descent(
    gram, indptr, indices, data, squares, scale, l1, l2, max_sweeps, zeros, weights,
    residual, sweeps,
):  # fmt: skip
    """Make a pass; ``sweeps[0]`` is its number of sweeps, 0 if no weight changed.

    ``squares`` are ``2/n |x_j|^2``, ``scale`` is 2/n, and l1 has an entry per weight.
    ``residual`` is g if there is a Gram matrix, otherwise ``y - X w``; X is then in
    CSC.
    """
    d, has_gram = len(weights), len(gram) > 0
    columns, values, residual_span = span(indices), span(data), span(residual)
    order = arrays.empty(d, np.int64)
    for j in range(d):
        order[j] = j
    count, first, zero = d, 0.0, zeros[0]
    sweeps[0] = 0
    for sweep in range(1 + max_sweeps):
        progress = 0.0
        for k in range(count):
            j = order[k]
            old, curvature = weights[j], squares[j] + l2
            low, high = indptr[j], indptr[j + 1]
            if has_gram:
                g = residual[j]
            else:
                g = scale * csr_rows.dot(
                    low, high, columns, values, residual_span, zero
                )
            new = 0.0
            # a feature that is 0 throughout keeps weight 0
            if curvature > 0:
                new = _soft_threshold(g + squares[j] * old, l1[j]) / curvature
            change = new - old
            if abs(change) <= MIN_RELATIVE_CHANGE * abs(old):
                continue
            weights[j] = new
            # a lower bound of twice the decrease of the objective
            progress += curvature * change * change
            if has_gram:
                for i in range(d):
                    # row j of the symmetric matrix, which is contiguous
                    residual[i] -= change * gram[j, i]
            else:
                csr_rows.add_row(low, high, -change, columns, values, residual_span)
        if sweep == 0:
            first, count = progress, 0
            for j in range(d):
                # features of weight 0 seldom enter between full sweeps
                if weights[j] != 0:
                    order[count] = j
                    count += 1
        if progress == 0:
            return
        sweeps[0] += 1
        if sweep > 0 and progress <= 0.01 * first:
            return


@subroutine(optimise=False)
def _soft_threshold(x, l1):
    """``S(x, l1)``: x, moved towards 0 by l1."""
    if x > l1:
        return x - l1
    return x + l1 if x < -l1 else 0.0


@kernel
def add_gram(first, last, d, scale, indptr, indices, data, out):
    """Add the upper triangle of ``scale X'X`` for CSR rows ``first`` to ``last``."""
    columns, values, sums = span(indices), span(data), span(out)
    for i in range(first, last):
        high = indptr[i + 1]
        for e in range(indptr[i], high):
            # columns ascend: pairs f >= e are the upper triangle
            x, o = scale * get_number(values, e), get_number(columns, e) * d
            for f in range(e, high):
                position = o + get_number(columns, f)
                put_number(
                    sums,
                    position,
                    get_number(sums, position) + x * get_number(values, f),
                )
