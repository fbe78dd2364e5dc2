"""Dual block coordinate descent for the Weston-Watkins SVM, and its duality gap.

    min 1/2 |w|^2 + sum_i c_i sum_{j != y} max(0, m_i(j))

with the margin violations ``m_i(j) = cost(y, j) - (w_y - w_j)'x_i``. The weights are
``w = sum_i x_i a_i'``; the row ``a_i`` of coefficients is that of
``weston_watkins_blocks``. X is in CSR, weights and coefficients are flat, ``[d, P]``
and ``[n, P]``, P the number K of classes up to whole vectors, costs ``[P]`` or
``[K, P]`` with 0 at y and past K.

Source: Wang and Scott, "An Exact Solver for the Weston-Watkins SVM Subproblem",
algorithm 1 and section 5.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.svm.shrinking import note_move
from smoothsp._kernels.svm.weston_watkins_blocks import solve_block
from smoothsp._kernels.svm.weston_watkins_gaps import sample_gap
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.class_rows import (
    add_multiples,
    own_class,
    scores,
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
    squares,
    labels,
    bounds,
    costs,
    K,
    P,
    still,
    greed,
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
    next block needs it. Blocks of which ``waits`` is above 0 are skipped, see
    ``shrinking``; ``still`` and ``greed`` as in ``solve_block``. The gaps that the
    blocks had are added to ``met[0]``, to ``met[1]`` how many moved, and to ``met[2]``
    how many were not skipped.
    """
    V = len(zeros)
    zero = splat(zeros[0])
    w, a = span(weights), span(coefficients)
    columns, values, cost = span(indices), span(data), span(costs)
    shared = len(costs) == P
    z, v = arrays.empty(P, zeros.dtype), arrays.empty(P, zeros.dtype)
    step, cap = arrays.empty(P, zeros.dtype), arrays.empty(P, zeros.dtype)
    mark, room = own_class(P, zeros), arrays.zeros(P, zeros.dtype)
    room[:K] = 1
    places = arrays.empty(P // V, np.int64)
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
        count, gap = solve_block(
            y, squares[i], z, cost, 0 if shared else y * P, bounds[i], cap, K, P, still,
            greed, zeros, mark, room, v, step, places, a, i * P,
        )  # fmt: skip
        add_multiples(low, high, columns, values, step, places, count, P, w)
        note_move(i, count == 0, patience, waits, calm)
        met[0] += gap
        met[1] += count > 0
        met[2] += 1


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
    shared = len(costs) == P
    z, cap = arrays.empty(P, zeros.dtype), arrays.zeros(P, zeros.dtype)
    for i in range(first, last):
        low, high = indptr[i], indptr[i + 1]
        scores(low, high, columns, values, w, P, len(zeros), zero, span(z))
        y = labels[i]
        r = 0 if shared else y * P
        loss[i], linear[i], gap[i] = sample_gap(
            y, z, cost, r, bounds[i], cap, K, P, zeros, a, i * P
        )
