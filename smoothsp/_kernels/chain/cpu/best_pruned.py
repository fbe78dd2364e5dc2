"""Max-product with many states: leave out those that cannot attain a maximum.

The best state of each lane gives lower bounds y(j) of ``max_i alpha(i) + moves(i, j)``.
A state i may be left out if ``alpha(i) + max_i' moves(i', j) <= y(j)`` for all j, and
if ``alpha(i) + max_j' moves(i, j') <= y(j)`` for all j: rounding is monotone, so the
maxima keep their last bit. How many states stay depends on how far their scores lie
apart.
"""

import numpy as np

from smoothsp._kernels.chain.cpu.best_steps import V, add
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import (
    larger,
    load,
    smaller,
    splat,
    splat_at,
    store,
    where_below,
)
from smoothsp._kernels.vectors.simd_parts import max_of

# With fewer states the search costs what it saves.
STATES_TO_PRUNE = 128


@subroutine
def largest(moves, S, P):
    """Of each column, the largest number."""
    found = arrays.empty(P, np.float64)
    for j in range(0, P, V):
        y = load(moves, j)
        for i in range(1, S):
            y = larger(load(moves, i * P + j), y)
        store(found, j, y)
    return found


@subroutine
def step_pruned(
    alpha, o, R, rows, moves, into, out, S, P, bounds, chosen, counts, down
):  # fmt: skip
    """As ``max_states.step_one``, for ``rows`` rows, if it leaves out half the states.

    Returns whether it did. ``into`` and ``out`` are the largest moves into and out of
    each state; ``bounds`` are ``[rows, P]``, ``chosen`` ``[rows, S + V]``, ``counts``
    ``[rows]``: scratch.
    """
    for q in range(rows):
        c = q * (S + V)
        _lead(alpha, o + q * R, S, P, bounds, q * P, chosen, c, down)
        counts[q] = V
    _raise(bounds, alpha, o, R, rows, moves, S, P, chosen, counts)
    total = 0
    for q in range(rows):
        c = q * (S + V)
        counts[q] = _list(alpha, o + q * R, into, out, S, P, bounds, q * P, chosen, c)
        total += counts[q]
    if 2 * total > rows * S:
        return False
    _raise(bounds, alpha, o, R, rows, moves, S, P, chosen, counts)
    for q in range(rows):
        for j in range(0, P, V):
            add(alpha, o + q * R + P + j, load(bounds, q * P + j))
    return True


@subroutine
def _lead(alpha, o, S, P, bounds, p, chosen, c, down):
    """Put the best state of each lane at c in ``chosen``, and -inf into bounds."""
    best = load(alpha, o)
    here = place = down
    whole = splat(float(V))
    for s in range(V, P, V):
        here = here - whole
        v = load(alpha, o + s)
        place = where_below(best, v, here, place)
        best = larger(v, best)
    store(bounds, p, place)
    for lane in range(V):
        chosen[c + lane] = min(int(-bounds[p + lane]), S - 1)
    for j in range(0, P, V):
        store(bounds, p + j, splat(-np.inf))


@subroutine
def _list(alpha, o, into, out, S, P, bounds, p, chosen, c):
    """Put states that may attain a maximum at c in ``chosen``; returns how many."""
    low, high = splat(-np.inf), splat(np.inf)
    gap = lowest = high
    for j in range(0, P, V):
        y, m = load(bounds, p + j), load(into, j)
        # padding, and a state that nothing moves into, bound nothing
        y = where_below(low, m, y, high)
        gap = smaller(y - m, gap)
        lowest = smaller(y, lowest)
    least = -max_of(splat(0.0) - gap)
    # the differences are rounded: a little lower, to be safe
    least -= abs(least) * 2.0**-50
    floor = -max_of(splat(0.0) - lowest)
    count = np.uint64(0)
    for i in range(S):
        chosen[np.uint64(c) + count] = i
        a = alpha[np.uint64(o + i)]
        count += np.uint64((a > least) & (a + out[np.uint64(i)] > floor))
    return np.int64(count)


@subroutine
def _raise(bounds, alpha, o, R, rows, moves, S, P, chosen, counts):
    """``y(j) = max(y(j), alpha(i) + moves(i, j))`` over the states chosen of each row.

    The inner loop is over rows: moves that one row read are in the cache for the next.
    """
    j = 0
    while j + 4 * V <= P:
        for q in range(rows):
            p = q * P + j
            c = q * (S + V)
            x = o + q * R
            y0, y1 = load(bounds, p), load(bounds, p + V)
            y2, y3 = load(bounds, p + 2 * V), load(bounds, p + 3 * V)
            for k in range(c, c + counts[q]):
                i = chosen[k]
                v = splat_at(alpha, x + i)
                e = i * P + j
                y0 = larger(v + load(moves, e), y0)
                y1 = larger(v + load(moves, e + V), y1)
                y2 = larger(v + load(moves, e + 2 * V), y2)
                y3 = larger(v + load(moves, e + 3 * V), y3)
            store(bounds, p, y0)
            store(bounds, p + V, y1)
            store(bounds, p + 2 * V, y2)
            store(bounds, p + 3 * V, y3)
        j += 4 * V
    while j < P:
        for q in range(rows):
            c = q * (S + V)
            y = load(bounds, q * P + j)
            for k in range(c, c + counts[q]):
                i = chosen[k]
                v = splat_at(alpha, o + q * R + i)
                y = larger(v + load(moves, i * P + j), y)
            store(bounds, q * P + j, y)
        j += V
