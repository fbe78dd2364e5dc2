"""Dual coordinate descent for the binary SVM, and its duality gap.

    min 1/2 |w|^2 + sum_i c_i max(0, 1 - s_i w'x_i),    s_i = 1 or -1

with ``w = sum_i s_i a_i x_i`` and ``0 <= a_i <= c_i``. Sample after sample, with q_i
the squared norm of x_i and m_i = 1 - s_i w'x_i,

    a_i <- clip(a_i + m_i / q_i, 0, c_i),    w += s_i (change of a_i) x_i
    gap_i = (c_i - a_i) max(0, m_i) + a_i max(0, -m_i)

A gap is a sum of nonnegative terms, so nothing cancels in it. X is in CSR format, and
``width`` is 0; or it is dense, in ``data`` alone, with rows of ``width`` numbers.
Weights are padded with zeros to whole vectors.

Source: Hsieh et al., "A Dual Coordinate Descent Method for Large-scale Linear SVM",
algorithm 1.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.svm import csr_rows
from smoothsp._kernels.svm.shrinking import update_skips
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.kahan import add_compensated
from smoothsp._kernels.vectors.prefetching import prefetch_dense_row, prefetch_row
from smoothsp._kernels.vectors.simd import fma, load, span, splat, store
from smoothsp._kernels.vectors.simd_masked import load_masked, reduce_sum


@subroutine(forceinline=True)
def _dot_dense(row, width, V, values, w, zero_vector):
    """Return ``w'x`` of the dense row at offset ``row``, by two independent sums."""
    p = q = zero_vector
    e = 0
    while e + 2 * V <= width:
        p = fma(load(w, e), load(values, row + e), p)
        q = fma(load(w, e + V), load(values, row + e + V), q)
        e += 2 * V
    while e < width:
        p = fma(load(w, e), load_masked(values, row + e, width - e, zero_vector), p)
        e += V
    return reduce_sum(p + q)


@subroutine(forceinline=True)
def _add_dense_row(row, width, V, change, values, zero_vector, w):
    """Add ``change``, a vector of equal lanes, times the dense row x to w."""
    for e in range(0, width, V):
        x = load_masked(values, row + e, width - e, zero_vector)
        store(w, e, fma(change, x, load(w, e)))


@kernel
def coordinate_descent(
    first,
    last,
    order,
    width,
    indptr,
    indices,
    data,
    squared_norms,
    signs,
    bounds,
    move_tolerance,
    max_skip_level,
    zeros,
    weights,
    coefficients,
    skips_left,
    skip_level,
    skip_until,
    totals,
):
    """Solve for the coefficients ``order[first:last]`` in sequence.

    A variable is left unchanged if it would move by at most ``move_tolerance min(bound,
    1 / q)``; ``skips_left`` and ``skip_level`` as in ``shrinking``. ``skip_until`` of
    changed variables becomes -1. ``totals[3]`` accumulates the gaps before the updates,
    the number of changes and the number of variables that were not skipped.
    """
    w, columns, values = span(weights), span(indices), span(data)
    zero, zero_vector, V = zeros[0], load(zeros, 0), len(zeros)
    for k in range(first, last):
        if width:
            prefetch_dense_row(k, last, order, skips_left, width, V, values)
        else:
            prefetch_row(k, last, order, skips_left, indptr, columns, values)
        i = order[k]
        if skips_left[i] > 0:
            skips_left[i] -= 1
            continue
        s = signs[i]
        inverse = 1 / squared_norms[i]
        if width:
            product = _dot_dense(i * width, width, V, values, w, zero_vector)
        else:
            low, high = indptr[i], indptr[i + 1]
            product = csr_rows.dot_short(low, high, columns, values, w, zero)
        violation = 1 - s * product
        old = coefficients[i]
        new = min(max(old + violation * inverse, zero), bounds[i])
        change = new - old
        is_unmoved = abs(change) <= move_tolerance * min(bounds[i], inverse)
        if not is_unmoved:
            coefficients[i] = new
            skip_until[i] = -1
            change *= s
            if width:
                step = splat(zeros.dtype.type(change))
                _add_dense_row(i * width, width, V, step, values, zero_vector, w)
            else:
                csr_rows.add_row(indptr[i], indptr[i + 1], change, columns, values, w)
        update_skips(i, is_unmoved, max_skip_level, skips_left, skip_level)
        # the gap at the old coefficient, as w'x of the new one is not computed
        above, below = max(violation, zero), max(-violation, zero)
        totals[0] += (bounds[i] - old) * above + old * below
        totals[1] += not is_unmoved
        totals[2] += 1


@kernel
def compute_gaps(
    first,
    last,
    rows,
    width,
    indptr,
    indices,
    data,
    squared_norms,
    signs,
    bounds,
    path_length,
    rounding,
    weights_norm,
    zeros,
    weights,
    coefficients,
    loss,
    active_loss_bound,
    gap,
    skip_until,
):
    """Fill active_loss_bound, gap and skip_until of ``rows[first:last]``.

    Fills ``loss`` too, unless it is empty. By Cauchy-Schwarz the margin changes by at
    most ``|x|`` times the change of the weights. So the gap of an unchanged sample
    stays 0 until ``path_length``, the length of the path of w, exceeds ``skip_until``.
    A computed margin has an error of at most ``rounding |w| |x|`` for each feature.
    """
    w, columns, values = span(weights), span(indices), span(data)
    zero, zero_vector, V = zeros[0], load(zeros, 0), len(zeros)
    num_entries, with_loss = width, len(loss) > 0
    for k in range(first, last):
        i = rows[k]
        if width:
            product = _dot_dense(i * width, width, V, values, w, zero_vector)
        else:
            low, high = indptr[i], indptr[i + 1]
            num_entries = high - low
            product = csr_rows.dot_short(low, high, columns, values, w, zero)
        m = 1 - signs[i] * product
        a, c = coefficients[i], bounds[i]
        above = m if m > 0 else zero
        if with_loss:
            loss[i] = c * above
        active_loss_bound[i] = c if (a > 0) | (above > 0) else zero
        gap[i] = (c - a) * above + a * (above - m)
        # selects instead of branches, which would be mispredicted
        relative_error = rounding * num_entries
        distance = np.float64(abs(m)) / np.sqrt(squared_norms[i])
        next_update = (
            path_length
            + distance * (1 - relative_error)
            - weights_norm * relative_error
        )
        skip_until[i] = -1.0 if (gap[i] > 0) | (m == 0) else next_update


@kernel
def weights_from_dual(
    first, last, width, indptr, indices, data, signs, zeros, coefficients, weights
):
    """Fill the weights with the sum of ``s_i a_i x_i`` over rows first to last."""
    weights[:] = 0
    w, columns, values = span(weights), span(indices), span(data)
    zero_vector, V = load(zeros, 0), len(zeros)
    for i in range(first, last):
        a = signs[i] * coefficients[i]
        if a == 0:
            continue
        if width:
            _add_dense_row(i * width, width, V, splat(a), values, zero_vector, w)
        else:
            csr_rows.add_row(indptr[i], indptr[i + 1], a, columns, values, w)


# Samples of a block: all its products are computed before gradients are added.
BLOCK = 256


@kernel
def empirical_risk(
    first, last, indptr, indices, data, signs, bounds, zeros, weights, gradient, value
):
    """Fill value[0] and the gradient of ``sum_i c_i max(0, 1 - s_i w'x_i)``.

    Sums CSR rows first to last; each row is read once for value and gradient. The
    subgradient of a row without loss is 0. A loss that is not finite makes the value
    NaN.
    """
    w, columns, values, out = span(weights), span(indices), span(data), span(gradient)
    zero = zeros[0]
    gradient[:] = 0
    total = compensation = zero
    violations = arrays.empty(BLOCK, np.float64)
    for block_start in range(first, last, BLOCK):
        block_size = min(BLOCK, last - block_start)
        for k in range(block_size):
            i = block_start + k
            low, high = indptr[i], indptr[i + 1]
            product = csr_rows.dot(low, high, columns, values, w, zero)
            violations[k] = 1 - signs[i] * product
        # the branch does not depend on a product just computed: cheap if mispredicted
        for k in range(block_size):
            i, violation = block_start + k, violations[k]
            # negated, so that NaN reaches the value
            if not violation <= 0:
                low, high = indptr[i], indptr[i + 1]
                total, compensation = add_compensated(
                    total, compensation, bounds[i] * violation
                )
                csr_rows.add_row(low, high, -signs[i] * bounds[i], columns, values, out)
    value[0] = total - compensation
