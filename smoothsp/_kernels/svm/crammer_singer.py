"""Dual block coordinate descent for the Crammer-Singer SVM, and its duality gap.

    min 1/2 |w|^2 + sum_i c_i max_j m_i(j)

with the margin violations ``m_i(j) = cost(y, j) - (w_y - w_j)'x_i``, 0 at y. The
weights are ``w = sum_i x_i a_i'`` with ``a_i = c_i e_y - b_i``, and a block is a
projection: b_i is the point of ``b >= 0, sum(b) = c_i`` nearest to ``b_i + m_i / q``, q
the squared norm of the sample. What is kept is a_i, never ``b_i(y) = c_i - a_i(y)``.
Arrays as in ``weston_watkins``; costs are very negative past K.

Source: Crammer and Singer, "On the Algorithmic Implementation of Multiclass
Kernel-based Vector Machines", sections 3 and 6.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.svm.shrinking import note_move
from smoothsp._kernels.svm.simplex_threshold import MAX_NEWTON_STEPS, simplex_threshold
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.class_rows import (
    add_multiples,
    own_class,
    put_own,
    scores,
)
from smoothsp._kernels.vectors.prefetching import prefetch, prefetch_row
from smoothsp._kernels.vectors.simd import (
    fma,
    get,
    load,
    maximum,
    minimum,
    put,
    select_lt,
    span,
    splat,
    store,
)
from smoothsp._kernels.vectors.simd_compare import any_not_equal
from smoothsp._kernels.vectors.simd_masked import reduce_max, reduce_sum

# A total below this share of the entries is distributed apart from their size.
FEW = 0.125


@kernel
def coordinate_descent(
    first,
    last,
    order,
    indptr,
    indices,
    data,
    squares,
    labels,
    bounds,
    costs,
    K,
    P,
    still,
    patience,
    zeros,
    weights,
    coefficients,
    waits,
    calm,
    met,
):
    """Solve the blocks ``order[first:last]``, one after the other.

    ``z = W'x_i``, then the step of a_i from z, then ``W += x_i step'`` at once, as the
    next block needs it. A block in which every class that has weight attains the
    largest violation, up to ``still``, is left alone; ``waits`` and ``calm`` as in
    ``shrinking``. The gaps that the blocks had are added to ``met[0]``, to
    ``met[1]`` how many moved, and to ``met[2]`` how many were not skipped.
    """
    V = len(zeros)
    zero = splat(zeros[0])
    w, a = span(weights), span(coefficients)
    columns, values, cost = span(indices), span(data), span(costs)
    shared = len(costs) == P
    z, v, step = (
        arrays.empty(P, zeros.dtype),
        arrays.empty(P, zeros.dtype),
        arrays.empty(P, zeros.dtype),
    )
    places = arrays.empty(P // V, np.int64)
    mark = own_class(P, zeros)
    for k in range(first, last):
        j = prefetch_row(k, last, order, waits, indptr, columns, values)
        if j >= 0:
            for e in range(0, P, V):
                prefetch(a, j * P + e)
        i = order[k]
        if waits[i] > 0:
            waits[i] -= 1
            continue
        y = labels[i]
        low, high = indptr[i], indptr[i + 1]
        scores(low, high, columns, values, w, P, V, zero, span(z))
        count, gap = _solve_block(
            y, squares[i], z, cost, shared, bounds[i], P, still, zeros, mark, v, step,
            places, a, i * P,
        )  # fmt: skip
        add_multiples(low, high, columns, values, step, places, count, P, w)
        note_move(i, count == 0, patience, waits, calm)
        met[0] += gap
        met[1] += count > 0
        met[2] += 1


@subroutine
def _solve_block(
    y, square, z, cost, shared, limit, P, still, zeros, mark, v, step, places, a, o
):
    """Replace the row of ``a`` at o; in how many vectors, and what its gap was.

    With b = -a for the classes other than y, in two passes around a root:

        m = cost + z - z_y,    v = b + m / q,    gap = c max(0, m) - b m
        t, the threshold of ``simplex_threshold``
        b = max(v - t, 0),     a_y = sum of b, or c where class y gets no weight

    The first pass also finds whether b is optimal, and a guess of t.
    """
    V = len(zeros)
    number = zeros.dtype.type
    zero, one = splat(zeros[0]), splat(number(1))
    infinite = splat(number(np.inf))
    inverse = splat(number(1) / square)
    shift = splat(z[y])
    # class y, whose violation is 0, apart from the others
    own = get(a, o + y)
    r = 0 if shared else y * P
    most, least = zero - infinite, infinite
    inside = count = product = zero
    for j in range(0, P, V):
        is_own = load(mark, P - y + j)
        m = load(cost, r + j) + (load(z, j) - shift)
        m = select_lt(zero, is_own, zero - infinite, m)
        # minus b
        old = select_lt(zero, is_own, zero, load(a, o + j))
        product = product + select_lt(old, zero, old * m, zero)
        most = maximum(m, most)
        least = minimum(select_lt(old, zero, m, infinite), least)
        u = fma(m, inverse, zero - old)
        store(v, j, u)
        inside = inside + select_lt(old, zero, u, zero)
        count = count + select_lt(old, zero, one, zero)
    slack = own < limit
    highest, lowest = max(reduce_max(most), zeros[0]), -reduce_max(zero - least)
    gap = limit * highest + reduce_sum(product)
    if highest - (min(lowest, zeros[0]) if slack else lowest) <= still:
        return 0, gap
    # the line of what has weight now lies below: its root is no guess too high
    base, total = float(own), float(limit)
    guess = float(reduce_sum(inside)) - (base if slack else total)
    guess /= float(reduce_sum(count)) + (1 if slack else 0)
    top = reduce_max(most) / square
    if total < FEW * top:
        # so few that b = v - t would be lost in the digits of v
        base, guess = base + _shift(v, P, zeros), -total
    t = simplex_threshold(v, base, total, guess, MAX_NEWTON_STEPS, P, zeros)
    at = splat(number(t))
    size = 0
    taken = zero
    for j in range(0, P, V):
        old = select_lt(zero, load(mark, P - y + j), zero, load(a, o + j))
        new = maximum(load(v, j) - at, zero)
        taken = taken + new
        new = zero - new
        store(a, o + j, new)
        store(step, j, new - old)
        if any_not_equal(new, old) or j <= y < j + V:
            places[size] = j
            size += 1
    new = min(reduce_sum(taken), limit) if base + t < total else limit
    put(a, o + y, new)
    put_own(step, y, new - own, mark, P, zeros)
    return size, gap


@subroutine
def _shift(v, P, zeros):
    """Move v so that its largest entry is 0; what that was."""
    V = len(zeros)
    most = load(v, 0)
    for j in range(V, P, V):
        most = maximum(load(v, j), most)
    top = reduce_max(most)
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
    shared = len(costs) == P
    z = arrays.empty(P, zeros.dtype)
    for i in range(first, last):
        low, high = indptr[i], indptr[i + 1]
        scores(low, high, columns, values, w, P, V, zero, span(z))
        y, o = labels[i], i * P
        r = 0 if shared else y * P
        shift = splat(z[y])
        most = lowest
        for j in range(0, P, V):
            m = load(cost, r + j) + (load(z, j) - shift)
            store(z, j, m)
            if j <= y < j + V:
                z[y] = 0
                m = load(z, j)
            most = maximum(m, most)
        top = reduce_max(most)
        # class y apart: it has what the others leave of c
        own = bounds[i] - get(a, o + y)
        z[y] = top
        highest = splat(top)
        duty = excess = zero
        for j in range(0, P, V):
            b = zero - load(a, o + j)
            duty = duty + b * load(cost, r + j)
            excess = excess + b * (highest - load(z, j))
        loss[i], gap[i] = bounds[i] * top, reduce_sum(excess) + own * top
        linear[i] = reduce_sum(duty) + get(a, o + y) * get(cost, r + y)
