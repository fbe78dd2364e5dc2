"""Dual block coordinate descent for the Weston-Watkins SVM with a kernel.

As ``weston_watkins``, with scores kept in place of weights, ``z_i = sum_s G(i, s) a_s``
for the Gram matrix G. Block after block,

    step = new a_i - a_i from z_i,    z_s += G(i, s) step for all samples s

A block that does not move costs P numbers, since its scores are there. A move
costs n rows, so only the vectors of classes that changed are added. G is symmetric: row
i is read, which is contiguous. Scores are flat, ``[n, P]``.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.svm.shrinking import note_move
from smoothsp._kernels.svm.weston_watkins_blocks import solve_block
from smoothsp._kernels.svm.weston_watkins_gaps import sample_gap
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy
from smoothsp._kernels.vectors.class_rows import own_class
from smoothsp._kernels.vectors.simd import fma, get, load, span, splat_at, store


@kernel
def coordinate_descent(
    first,
    last,
    order,
    gram,
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
    kept,
    coefficients,
    waits,
    calm,
    met,
):
    """Solve the blocks ``order[first:last]``; ``kept`` are the scores, ``[n, P]``."""
    V = len(zeros)
    n = len(labels)
    scores, a, cost = span(kept), span(coefficients), span(costs)
    shared = len(costs) == P
    z, v = arrays.empty(P, zeros.dtype), arrays.empty(P, zeros.dtype)
    step, cap = arrays.empty(P, zeros.dtype), arrays.empty(P, zeros.dtype)
    mark, room = own_class(P, zeros), arrays.zeros(P, zeros.dtype)
    room[:K] = 1
    places = arrays.empty(P // V, np.int64)
    for k in range(first, last):
        i = order[k]
        if waits[i] > 0:
            waits[i] -= 1
            continue
        y = labels[i]
        copy(kept[i * P : (i + 1) * P], z)
        count, gap = solve_block(
            y, squares[i], z, cost, 0 if shared else y * P, bounds[i], cap, K, P, still,
            greed, zeros, mark, room, v, step, places, a, i * P,
        )  # fmt: skip
        note_move(i, count == 0, patience, waits, calm)
        met[0] += gap
        met[1] += count > 0
        met[2] += 1
        if count == 0:
            continue
        row = span(gram[i])
        for s in range(n):
            x = splat_at(row, s)
            for t in range(count):
                j = get(places, t)
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
    kept,
    coefficients,
    loss,
    linear,
    gap,
):
    """Fill loss, linear part of the dual and duality gap of each sample."""
    a, cost = span(coefficients), span(costs)
    shared = len(costs) == P
    cap = arrays.zeros(P, zeros.dtype)
    for i in range(first, last):
        z = kept[i * P : (i + 1) * P]
        y = labels[i]
        r = 0 if shared else y * P
        loss[i], linear[i], gap[i] = sample_gap(
            y, z, cost, r, bounds[i], cap, K, P, zeros, a, i * P
        )
