"""Dual block coordinate descent for the Weston-Watkins SVM, and its duality gap.

    min 1/2 |w|^2 + sum_i c_i sum_{j != y} max(0, m_i(j))

with the margin violations ``m_i(j) = cost(y, j) - (w_y - w_j)'x_i``. The weights are
``w = sum_i x_i a_i'``; the row ``a_i`` of coefficients is that of
``weston_watkins_blocks``. X is in CSR format. Weights ``[d, P]`` and coefficients
``[n, P]`` are flat, P the number K of classes rounded up to whole vectors. Costs are
``[P]`` or ``[K, P]``, 0 at y and past K.

Source: Wang and Scott, "An Exact Solver for the Weston-Watkins SVM Subproblem",
algorithm 1 and section 5.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.svm.shrinking import update_skips
from smoothsp._kernels.svm.weston_watkins_blocks import solve_block
from smoothsp._kernels.svm.weston_watkins_gaps import sample_gap
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.class_rows import (
    add_outer_product,
    fill_class_scores,
    make_one_hot,
)
from smoothsp._kernels.vectors.prefetching import prefetch, prefetch_row
from smoothsp._kernels.vectors.simd import span, splat


@kernel
def coordinate_descent(
    first,
    last,
    order,
    indptr,
    indices,
    data,
    squared_norms,
    labels,
    bounds,
    costs,
    K,
    P,
    move_tolerance,
    greedy_tolerance,
    max_skip_level,
    zeros,
    weights,
    coefficients,
    skips_left,
    skip_level,
    totals,
):
    """Solve the blocks ``order[first:last]`` in sequence.

    For each block ``z = W'x_i``, then the step of a_i from z, then ``W += x_i step'``,
    before the next block reads W. ``skips_left`` and ``skip_level`` as in
    ``shrinking``; ``move_tolerance`` and ``greedy_tolerance`` as in ``solve_block``.
    ``totals[3]`` accumulates the gaps before the updates, the number of changed blocks
    and the number of blocks that were not skipped.
    """
    V = len(zeros)
    zero = splat(zeros[0])
    w, a = span(weights), span(coefficients)
    columns, values, cost = span(indices), span(data), span(costs)
    has_shared_costs = len(costs) == P
    z, v = arrays.empty(P, zeros.dtype), arrays.empty(P, zeros.dtype)
    step, cap = arrays.empty(P, zeros.dtype), arrays.empty(P, zeros.dtype)
    one_hot, class_mask = make_one_hot(P, zeros), arrays.zeros(P, zeros.dtype)
    class_mask[:K] = 1
    vector_offsets = arrays.empty(P // V, np.int64)
    for k in range(first, last):
        j = prefetch_row(k, last, order, skips_left, indptr, columns, values)
        # the coefficients of that block too, a cache line for each vector
        if j >= 0:
            for e in range(0, P, V):
                prefetch(a, j * P + e)
        i = order[k]
        if skips_left[i] > 0:
            skips_left[i] -= 1
            continue
        y = labels[i]
        low, high = indptr[i], indptr[i + 1]
        fill_class_scores(low, high, columns, values, w, P, V, zero, span(z))
        count, gap = solve_block(
            y, squared_norms[i], z, cost, 0 if has_shared_costs else y * P, bounds[i],
            cap, K, P, move_tolerance, greedy_tolerance, zeros, one_hot, class_mask,
            v, step, vector_offsets, a, i * P,
        )  # fmt: skip
        add_outer_product(low, high, columns, values, step, vector_offsets, count, P, w)
        update_skips(i, count == 0, max_skip_level, skips_left, skip_level)
        totals[0] += gap
        totals[1] += count > 0
        totals[2] += 1


@kernel
def compute_gaps(
    first,
    last,
    indptr,
    indices,
    data,
    labels,
    bounds,
    costs,
    K,
    P,
    zeros,
    weights,
    coefficients,
    loss,
    linear,
    gap,
):
    """Fill loss, linear part of the dual and duality gap of each sample."""
    zero = splat(zeros[0])
    w, a = span(weights), span(coefficients)
    columns, values, cost = span(indices), span(data), span(costs)
    has_shared_costs = len(costs) == P
    z, cap = arrays.empty(P, zeros.dtype), arrays.zeros(P, zeros.dtype)
    for i in range(first, last):
        low, high = indptr[i], indptr[i + 1]
        fill_class_scores(low, high, columns, values, w, P, len(zeros), zero, span(z))
        y = labels[i]
        cost_offset = 0 if has_shared_costs else y * P
        loss[i], linear[i], gap[i] = sample_gap(
            y, z, cost, cost_offset, bounds[i], cap, K, P, zeros, a, i * P
        )
