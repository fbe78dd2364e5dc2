"""Dual block coordinate descent for the Weston-Watkins SVM with a kernel.

As ``weston_watkins``, with stored scores in place of weights, ``z_i = sum_s G(i, s)
a_s`` for the Gram matrix G. Block after block,

    step = new a_i - a_i from z_i,    z_s += G(i, s) step for all samples s

A block that does not change takes O(P), since its scores are stored. A change updates
the scores of all n samples, so only the vectors of changed classes are added. G is
symmetric, so its contiguous row i is read instead of column i. Scores are flat, ``[n,
P]``.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.svm.shrinking import update_skips
from smoothsp._kernels.svm.weston_watkins_blocks import solve_block
from smoothsp._kernels.svm.weston_watkins_gaps import sample_gap
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy
from smoothsp._kernels.vectors.class_rows import make_one_hot
from smoothsp._kernels.vectors.simd import fma, get_number, load, span, splat_at, store


@kernel
def coordinate_descent(
    first,
    last,
    order,
    gram,
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
    sample_scores,
    coefficients,
    skips_left,
    skip_level,
    totals,
):
    """Solve the blocks ``order[first:last]``; update sample_scores, ``[n, P]``."""
    V = len(zeros)
    n = len(labels)
    scores, a, cost = span(sample_scores), span(coefficients), span(costs)
    has_shared_costs = len(costs) == P
    z, v = arrays.empty(P, zeros.dtype), arrays.empty(P, zeros.dtype)
    step, cap = arrays.empty(P, zeros.dtype), arrays.empty(P, zeros.dtype)
    one_hot, class_mask = make_one_hot(P, zeros), arrays.zeros(P, zeros.dtype)
    class_mask[:K] = 1
    vector_offsets = arrays.empty(P // V, np.int64)
    for k in range(first, last):
        i = order[k]
        if skips_left[i] > 0:
            skips_left[i] -= 1
            continue
        y = labels[i]
        copy(sample_scores[i * P : (i + 1) * P], z)
        count, gap = solve_block(
            y, squared_norms[i], z, cost, 0 if has_shared_costs else y * P, bounds[i],
            cap, K, P, move_tolerance, greedy_tolerance, zeros, one_hot, class_mask,
            v, step, vector_offsets, a, i * P,
        )  # fmt: skip
        update_skips(i, count == 0, max_skip_level, skips_left, skip_level)
        totals[0] += gap
        totals[1] += count > 0
        totals[2] += 1
        if count == 0:
            continue
        row = span(gram[i])
        for s in range(n):
            x = splat_at(row, s)
            for t in range(count):
                j = get_number(vector_offsets, t)
                u = fma(x, load(step, j), load(scores, s * P + j))
                store(scores, s * P + j, u)


@kernel
def compute_gaps(
    first,
    last,
    labels,
    bounds,
    costs,
    K,
    P,
    zeros,
    sample_scores,
    coefficients,
    loss,
    linear,
    gap,
):
    """Fill loss, linear part of the dual and duality gap of each sample."""
    a, cost = span(coefficients), span(costs)
    has_shared_costs = len(costs) == P
    cap = arrays.zeros(P, zeros.dtype)
    for i in range(first, last):
        z = sample_scores[i * P : (i + 1) * P]
        y = labels[i]
        cost_offset = 0 if has_shared_costs else y * P
        loss[i], linear[i], gap[i] = sample_gap(
            y, z, cost, cost_offset, bounds[i], cap, K, P, zeros, a, i * P
        )
