"""Coordinate descent for least squares with absolute values and squares of weights.

    min 1/n |y - X w|^2 + l1 |w|_1 + l2/2 |w|^2

A coordinate is solved for exactly, one after the other: with q_j = 2/n |x_j|^2,

    w_j <- S(g_j + q_j w_j, l1_j) / (q_j + l2),    S(x, a) = sign(x) max(|x| - a, 0)

Needed is ``g_j = 2/n <x_j, y - X w>``: either from what is left of y, in O(entries of
x_j), or from products ``2/n X'X`` of all features, which are added to all g whenever a
weight moves.

A pass is a sweep over all features, then sweeps over those whose weight is not 0 until
one gets a tenth as far as the first did, ``most`` at most.

Source: Friedman, Hastie and Tibshirani, "Regularization Paths for Generalized Linear
Models via Coordinate Descent", sections 2.1 to 2.4.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.svm import csr_rows
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import get, put, span

# Of a weight: moves as small as that are rounding.
MIN_RELATIVE_CHANGE = 4 * 2.0**-52


@kernel
def coordinate_descent(
    gram, indptr, indices, data, squares, scale, l1, l2, max_sweeps, zeros, weights,
    residual, sweeps,
):  # fmt: skip
    """Make a pass; ``sweeps[0]`` is how many sweeps it took, 0 if nothing moved.

    ``squares`` are ``2/n |x_j|^2``, ``scale`` is 2/n, and l1 has a number for each
    weight. ``rest`` is all g if there are products, else ``y - X w``; X is then in CSC.
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
            if curvature > 0:
                new = _soft_threshold(g + squares[j] * old, l1[j]) / curvature
            change = new - old
            if abs(change) <= MIN_RELATIVE_CHANGE * abs(old):
                continue
            weights[j] = new
            progress += curvature * change * change
            if has_gram:
                for i in range(d):
                    residual[i] -= change * gram[j, i]
            else:
                csr_rows.add_row(low, high, -change, columns, values, residual_span)
        if sweep == 0:
            first, count = progress, 0
            for j in range(d):
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
    """The number x, brought nearer to 0 by l1."""
    if x > l1:
        return x - l1
    return x + l1 if x < -l1 else 0.0


@kernel
def add_gram(first, last, d, scale, indptr, indices, data, out):
    """Add ``scale`` times ``x x'`` for CSR rows first to last: the upper triangle."""
    columns, values, sums = span(indices), span(data), span(out)
    for i in range(first, last):
        high = indptr[i + 1]
        for e in range(indptr[i], high):
            x, o = scale * get(values, e), get(columns, e) * d
            for f in range(e, high):
                position = o + get(columns, f)
                put(sums, position, get(sums, position) + x * get(values, f))
