"""Dual block coordinate descent for the Crammer-Singer SVM, and its duality gap.

    min 1/2 |w|^2 + sum_i c_i max_j m_i(j)

with the margin violations ``m_i(j) = cost(y, j) - (w_y - w_j)'x_i``, 0 at y. The
weights are ``w = sum_i x_i a_i'`` with ``a_i = c_i e_y - b_i``. A block is solved by a
projection: b_i is the point of ``b >= 0, sum(b) = c_i`` nearest to ``b_i + m_i / q``, q
the squared norm of the sample. a_i is stored, as ``b_i(y) = c_i - a_i(y)`` would lose
the digits of a small a_i(y). Arrays as in ``weston_watkins``; costs are very negative
past K.

Source: Crammer and Singer, "On the Algorithmic Implementation of Multiclass
Kernel-based Vector Machines", sections 3 and 6.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.svm.shrinking import update_skips
from smoothsp._kernels.svm.simplex_threshold import MAX_NEWTON_STEPS, simplex_threshold
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.class_rows import (
    add_outer_product,
    fill_class_scores,
    make_one_hot,
    set_class_entry,
)
from smoothsp._kernels.vectors.prefetching import prefetch, prefetch_row
from smoothsp._kernels.vectors.simd import (
    fma,
    get_number,
    load,
    maximum,
    minimum,
    put_number,
    select_lt,
    span,
    splat,
    store,
)
from smoothsp._kernels.vectors.simd_compare import any_not_equal
from smoothsp._kernels.vectors.simd_masked import reduce_max, reduce_sum

# If total / max v is smaller than this, v is shifted to have the maximum 0.
SMALL_TOTAL = 0.125


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
    before the next block reads W. A block is left unchanged if each class with ``b(j) >
    0`` attains the largest violation up to ``move_tolerance``; ``skips_left`` and
    ``skip_level`` as in ``shrinking``. ``totals[3]`` accumulates the gaps before the
    updates, the number of changed blocks and the number of blocks that were not
    skipped.
    """
    V = len(zeros)
    zero = splat(zeros[0])
    w, a = span(weights), span(coefficients)
    columns, values, cost = span(indices), span(data), span(costs)
    has_shared_costs = len(costs) == P
    z, v, step = (
        arrays.empty(P, zeros.dtype),
        arrays.empty(P, zeros.dtype),
        arrays.empty(P, zeros.dtype),
    )
    vector_offsets = arrays.empty(P // V, np.int64)
    one_hot = make_one_hot(P, zeros)
    for k in range(first, last):
        j = prefetch_row(k, last, order, skips_left, indptr, columns, values)
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
        count, gap = _solve_block(
            y, squared_norms[i], z, cost, has_shared_costs, bounds[i], P,
            move_tolerance, zeros, one_hot, v, step, vector_offsets, a, i * P,
        )  # fmt: skip
        add_outer_product(low, high, columns, values, step, vector_offsets, count, P, w)
        update_skips(i, count == 0, max_skip_level, skips_left, skip_level)
        totals[0] += gap
        totals[1] += count > 0
        totals[2] += 1


@subroutine
def _solve_block(
    y,
    squared_norm,
    z,
    cost,
    has_shared_costs,
    limit,
    P,
    move_tolerance,
    zeros,
    one_hot,
    v,
    step,
    vector_offsets,
    a,
    row_offset,
):
    """Solve the block at ``row_offset`` of a; return its changed vectors and its gap.

    With b = -a for the classes other than y, in two passes around a root:

        m = cost + z - z_y,    v = b + m / q,    gap = c max(0, m) - b m
        t, the threshold of ``simplex_threshold``
        b = max(v - t, 0),     a_y = sum of b, or c where b(y) = 0

    The first pass also computes whether b is optimal, and a first guess of t. The
    change is written to ``step``, the offsets of its nonzero vectors to
    ``vector_offsets``.
    """
    V = len(zeros)
    number = zeros.dtype.type
    zero, ones = splat(zeros[0]), splat(number(1))
    infinite = splat(number(np.inf))
    inverse = splat(number(1) / squared_norm)
    score_of_y = splat(z[y])
    # class y is excluded from the vectors: its violation is 0, its coefficient a_y
    a_y = get_number(a, row_offset + y)
    cost_offset = 0 if has_shared_costs else y * P
    max_m, min_m = zero - infinite, infinite
    inside = count = product = zero
    for j in range(0, P, V):
        is_class_y = load(one_hot, P - y + j)
        m = load(cost, cost_offset + j) + (load(z, j) - score_of_y)
        m = select_lt(zero, is_class_y, zero - infinite, m)
        # old = -b
        old = select_lt(zero, is_class_y, zero, load(a, row_offset + j))
        product = product + select_lt(old, zero, old * m, zero)
        max_m = maximum(m, max_m)
        min_m = minimum(select_lt(old, zero, m, infinite), min_m)
        u = fma(m, inverse, zero - old)
        store(v, j, u)
        inside = inside + select_lt(old, zero, u, zero)
        count = count + select_lt(old, zero, ones, zero)
    slack = a_y < limit
    max_violation, min_violation = (
        max(reduce_max(max_m), zeros[0]),
        -reduce_max(zero - min_m),
    )
    gap = limit * max_violation + reduce_sum(product)
    if (
        max_violation - (min(min_violation, zeros[0]) if slack else min_violation)
        <= move_tolerance
    ):
        return 0, gap
    # the sum over the support of b alone is a lower bound of the convex function, so
    # its root is not above t, as Newton's method requires
    base, total = float(a_y), float(limit)
    guess = float(reduce_sum(inside)) - (base if slack else total)
    guess /= float(reduce_sum(count)) + (1 if slack else 0)
    top = reduce_max(max_m) / squared_norm
    if total < SMALL_TOTAL * top:
        # b = v - t would lose its digits: subtract the maximum of v first
        base, guess = base + _subtract_and_return_max(v, P, zeros), -total
    t = simplex_threshold(v, base, total, guess, MAX_NEWTON_STEPS, P, zeros)
    t_vector = splat(number(t))
    size = 0
    sum_b = zero
    for j in range(0, P, V):
        old = select_lt(zero, load(one_hot, P - y + j), zero, load(a, row_offset + j))
        new = maximum(load(v, j) - t_vector, zero)
        sum_b = sum_b + new
        new = zero - new
        store(a, row_offset + j, new)
        store(step, j, new - old)
        if any_not_equal(new, old) or j <= y < j + V:
            vector_offsets[size] = j
            size += 1
    new = min(reduce_sum(sum_b), limit) if base + t < total else limit
    put_number(a, row_offset + y, new)
    set_class_entry(step, y, new - a_y, one_hot, P, zeros)
    return size, gap


@subroutine
def _subtract_and_return_max(v, P, zeros):
    """Subtract the maximum of v from its entries; return the maximum."""
    V = len(zeros)
    max_v = load(v, 0)
    for j in range(V, P, V):
        max_v = maximum(load(v, j), max_v)
    top = reduce_max(max_v)
    for j in range(0, P, V):
        store(v, j, load(v, j) - splat(top))
    return top


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
    """Fill loss, linear part of the dual and duality gap of each sample.

    The loss is ``c max_j m(j)``, the linear part ``sum_{j != y} b(j) cost(y, j)``. The
    gap ``c max_j m(j) - b m`` is summed as ``sum_j b(j) (max m - m(j))``, in which
    nothing cancels.
    """
    V = len(zeros)
    zero, lowest = splat(zeros[0]), splat(zeros.dtype.type(-np.inf))
    w, a = span(weights), span(coefficients)
    columns, values, cost = span(indices), span(data), span(costs)
    has_shared_costs = len(costs) == P
    z = arrays.empty(P, zeros.dtype)
    for i in range(first, last):
        low, high = indptr[i], indptr[i + 1]
        fill_class_scores(low, high, columns, values, w, P, V, zero, span(z))
        y, row_offset = labels[i], i * P
        cost_offset = 0 if has_shared_costs else y * P
        score_of_y = splat(z[y])
        max_m = lowest
        for j in range(0, P, V):
            m = load(cost, cost_offset + j) + (load(z, j) - score_of_y)
            store(z, j, m)
            if j <= y < j + V:
                z[y] = 0
                m = load(z, j)
            max_m = maximum(m, max_m)
        top = reduce_max(max_m)
        # class y has violation 0 and b(y) = c - a(y); with z(y) = top it adds 0 below
        a_y = bounds[i] - get_number(a, row_offset + y)
        z[y] = top
        highest = splat(top)
        linear_terms = excess = zero
        for j in range(0, P, V):
            b = zero - load(a, row_offset + j)
            linear_terms = linear_terms + b * load(cost, cost_offset + j)
            excess = excess + b * (highest - load(z, j))
        loss[i], gap[i] = bounds[i] * top, reduce_sum(excess) + a_y * top
        linear[i] = reduce_sum(linear_terms) + get_number(
            a, row_offset + y
        ) * get_number(cost, cost_offset + y)
