"""The best labels of a group of up to eight rows, vectors over states.

Prefix scores are float64 and flat: ``alpha[q R + n P + s]``, ``R = T P``, is the score
of the best prefix of n + 1 labels of the group's row q that ends in state s. P is S up
to whole vectors, with -inf in between. Before a step, its emissions stand there. Sums
run in time order:

    alpha_0(j) = start(j) + e_0(j)
    alpha_n(j) = max_i (alpha_{n-1}(i) + moves(i, j)) + e_n(j)
    y_{N-1}    = argmax_j alpha_{N-1}(j) + end(j)
    y_{n-1}    = argmax_i alpha_{n-1}(i) + moves(i, y_n)

Shared transitions are kept twice. The maxima read them by rows, several j in a vector;
the argmax over i reads them by columns. So no state before is stored: one argmax per
label costs less than the places of S maxima per step. Transitions of one step only are
read once, and the states before are stored.

With many states, those that cannot attain a maximum are left out. The best state of
each lane gives lower bounds y(j) of ``max_i alpha(i) + moves(i, j)``. A state i may be
left out if ``alpha(i) + max_i' moves(i', j) <= y(j)`` for all j, and if ``alpha(i) +
max_j' moves(i, j') <= y(j)`` for all j: rounding is monotone, so the maxima keep their
last bit. How many states stay depends on how far their scores lie apart.
"""

from typing import Any, NamedTuple

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import (
    load,
    maximum,
    minimum,
    select_lt,
    splat,
    splat_at,
    store,
)
from smoothsp._kernels.vectors.simd_masked import load_masked, reduce_max

# Lanes of a vector of float64.
V = 8
# With fewer states the search costs what it saves.
STATES_TO_PRUNE = 128
# Rows of a group: they are traced back together, so that their loads overlap.
ROWS_PER_PASS = 8
# Rows that share a pass over the transitions.
BLOCK = 4
# Steps until pruning is tried again after it left out too few states.
PATIENCE = 8


@subroutine
def padded_states(S):
    """S up to whole vectors."""
    return (S + V - 1) // V * V


class Tables(NamedTuple):
    """Scores that rows share, padded to P with -inf."""

    head: Any  # [P], start
    moves: Any  # [S, P], shared transitions by rows
    columns: Any  # [S + 1, P], the same by columns, then end


class Pruning(NamedTuple):
    """What tells the states to leave out, and scratch of BLOCK rows."""

    moves: Any  # [S, P]
    into: Any  # [P], the largest move into each state
    out: Any  # [P], the largest out of it
    bounds: Any  # [BLOCK, P], y
    chosen: Any  # [BLOCK, S + V], the states that stay
    counts: Any  # [BLOCK], how many
    S: Any
    P: Any
    down: Any  # a vector, as ``place_of_max`` takes it


@subroutine
def tables(chain):
    """The tables of a batch.

    Transitions that are not shared leave no rows, and room for one column.
    """
    _, transitions, start, end, _, _, shared = chain
    S = len(start)
    P = padded_states(S)
    head = aligned_empty(P)
    moves = aligned_empty(S * P if shared else 0)
    columns = aligned_empty((S + 1) * P if shared else 2 * P)
    head[:] = -np.inf
    moves[:] = -np.inf
    columns[:] = -np.inf
    last = len(columns) - P
    for i in range(S):
        head[i] = start[i]
        columns[last + i] = end[i]
        if shared:
            for j in range(S):
                moves[i * P + j] = transitions[0, 0, i, j]
                columns[j * P + i] = transitions[0, 0, i, j]
    return Tables(head, moves, columns)


@subroutine
def load_rows(chain, rows, gold, cost, head, alpha):
    """Fill alpha with emissions, and what comes before the first of each row.

    ``cost`` is added to each, but for the labels gold[B, T].
    """
    emissions, steps, lengths = chain.emissions, chain.steps, chain.lengths
    T, S = emissions.shape[1], emissions.shape[2]
    P = padded_states(S)
    flat = emissions.reshape(-1)
    low = splat(np.float64(-np.inf))
    for q in range(len(rows)):
        b = rows[q]
        o = q * T * P
        for n in range(lengths[b]):
            e = (b * T + steps[b, n]) * S
            for s in range(0, P, V):
                v = load_masked(flat, e + s, S - s, low)
                store(alpha, o + n * P + s, v)
        if cost != 0:
            _add_cost(emissions, steps, b, lengths[b], gold, cost, alpha, o, P)
        if lengths[b] > 0:
            for s in range(0, P, V):
                store(alpha, o + s, load(head, s) + load(alpha, o + s))


@subroutine
def _add_cost(emissions, steps, b, N, gold, cost, alpha, o, P):
    added = splat(cost)
    for p in range(o, o + N * P, V):
        store(alpha, p, load(alpha, p) + added)
    for n in range(N):
        t = steps[b, n]
        alpha[o + n * P + gold[b, t]] = emissions[b, t, gold[b, t]]


@subroutine
def score_prefixes(chain, rows, scores, alpha):
    """Turn emissions into prefix scores, for shared transitions.

    Time is the outer loop: rows of a group read the same moves, from the cache.
    """
    lengths, moves = chain.lengths, scores.moves
    T, S = chain.emissions.shape[1], chain.emissions.shape[2]
    P = padded_states(S)
    R = T * P
    N = lengths[rows[0]]
    prune = S >= STATES_TO_PRUNE
    # nothing of it is used where nothing is pruned
    few = S if prune else 0
    numbers = countdown()
    pruning = Pruning(
        moves,
        largest(moves, few, P),
        largest(scores.columns, few, P),
        aligned_empty(BLOCK * P),
        arrays.empty(BLOCK * (S + V), np.int64),
        arrays.empty(BLOCK, np.int64),
        S,
        P,
        load(numbers, 0),
    )
    wait = 0
    for n in range(N - 1):
        wait -= 1
        q = 0
        while q < len(rows) and n + 1 < lengths[rows[q]]:
            o = q * R + n * P
            together = BLOCK if q + BLOCK <= len(rows) else 1
            done = False
            if prune and wait < 1:
                done = step_pruned(alpha, o, R, together, pruning)
                wait = 0 if done else PATIENCE
            if not done:
                if together == BLOCK:
                    step_four(alpha, o, R, moves, S, P)
                else:
                    step_one(alpha, o, moves, S, P)
            q += together


@subroutine
def score_prefixes_of_edges(chain, rows, alpha, back):
    """The same for transitions of each step; fills back[n, s], laid out as alpha.

    The state before the last of the best prefix, as a number.
    """
    _, transitions, _, _, steps, lengths, _ = chain
    T, S = transitions.shape[1] + 1, transitions.shape[2]
    P = padded_states(S)
    edges = transitions.reshape(-1)
    for q in range(len(rows)):
        b = rows[q]
        for n in range(lengths[b] - 1):
            o = (q * T + n) * P
            e = (b * (T - 1) + steps[b, n + 1] - 1) * S * S
            step_edges(alpha, o, edges, e, S, P, back, o + P)


@subroutine
def best_labels(chain, rows, columns, alpha, back, labels, value):
    """Fill labels[B, 0, T] of the rows with the best, -1 where masked, and value[B].

    Ties go to the lower state, from the end backwards.
    """
    _, _, start, _, steps, lengths, shared = chain
    T, S = steps.shape[1], len(start)
    P = padded_states(S)
    R = T * P
    end = len(columns) - P
    state = arrays.empty(ROWS_PER_PASS, np.int64)
    numbers = countdown()
    down = load(numbers, 0)
    for b in rows:
        value[b] = 0
        if lengths[b] < T:
            labels[b, 0] = -1
    live = 0
    for n in range(lengths[rows[0]] - 1, -1, -1):
        while live < len(rows) and lengths[rows[live]] > n:
            o = live * R + n * P
            j = place_of_max(alpha, o, columns, end, S, P, down)
            state[live] = j
            value[rows[live]] = alpha[o + j] + columns[end + j]
            live += 1
        for q in range(live):
            b = rows[q]
            j = state[q]
            labels[b, 0, steps[b, n]] = j
            if n > 0:
                o = q * R + n * P
                if shared:
                    i = place_of_max(alpha, o - P, columns, j * P, S, P, down)
                    state[q] = i
                else:
                    state[q] = int(back[o + j])


@subroutine
def aligned_empty(size):
    """Room for numbers from the start of a cache line on: no vector lies in two."""
    room = arrays.empty(size + 7, np.float64)
    skip = -(room.ctypes.data // 8) % 8
    return room[skip : skip + size]


@subroutine
def countdown():
    """The numbers 0, -1, ..., -7, of which ``place_of_max`` makes a vector."""
    numbers = arrays.empty(V, np.float64)
    for lane in range(V):
        numbers[lane] = -lane
    return numbers


@subroutine(forceinline=True)
def add(alpha, p, y):
    """Add a vector to the one at p."""
    store(alpha, p, y + load(alpha, p))


@subroutine(forceinline=True, machine_code=True)
def step_four(alpha, o, R, moves, S, P):
    """``alpha'(j) = max_i alpha(i) + moves(i, j) + e(j)`` for four rows.

    alpha is at o, and R further for each next row. Tiles of two vectors a row: their
    eight comparisons are independent, and overlap.
    """
    o1, o2, o3 = o + R, o + 2 * R, o + 3 * R
    j = 0
    while j + 2 * V <= P:
        m, t = load(moves, j), load(moves, j + V)
        v = splat_at(alpha, o)
        y0, z0 = v + m, v + t
        v = splat_at(alpha, o1)
        y1, z1 = v + m, v + t
        v = splat_at(alpha, o2)
        y2, z2 = v + m, v + t
        v = splat_at(alpha, o3)
        y3, z3 = v + m, v + t
        for i in range(1, S):
            m, t = load(moves, i * P + j), load(moves, i * P + j + V)
            v = splat_at(alpha, o + i)
            y0, z0 = maximum(v + m, y0), maximum(v + t, z0)
            v = splat_at(alpha, o1 + i)
            y1, z1 = maximum(v + m, y1), maximum(v + t, z1)
            v = splat_at(alpha, o2 + i)
            y2, z2 = maximum(v + m, y2), maximum(v + t, z2)
            v = splat_at(alpha, o3 + i)
            y3, z3 = maximum(v + m, y3), maximum(v + t, z3)
        p = P + j
        add(alpha, o + p, y0)
        add(alpha, o1 + p, y1)
        add(alpha, o2 + p, y2)
        add(alpha, o3 + p, y3)
        p += V
        add(alpha, o + p, z0)
        add(alpha, o1 + p, z1)
        add(alpha, o2 + p, z2)
        add(alpha, o3 + p, z3)
        j += 2 * V
    if j < P:
        m = load(moves, j)
        y0 = splat_at(alpha, o) + m
        y1 = splat_at(alpha, o1) + m
        y2 = splat_at(alpha, o2) + m
        y3 = splat_at(alpha, o3) + m
        for i in range(1, S):
            m = load(moves, i * P + j)
            y0 = maximum(splat_at(alpha, o + i) + m, y0)
            y1 = maximum(splat_at(alpha, o1 + i) + m, y1)
            y2 = maximum(splat_at(alpha, o2 + i) + m, y2)
            y3 = maximum(splat_at(alpha, o3 + i) + m, y3)
        p = P + j
        add(alpha, o + p, y0)
        add(alpha, o1 + p, y1)
        add(alpha, o2 + p, y2)
        add(alpha, o3 + p, y3)


@subroutine(forceinline=True, machine_code=True)
def step_one(alpha, o, moves, S, P):
    """As ``step_four``, for one row."""
    j = 0
    while j + 4 * V <= P:
        v = splat_at(alpha, o)
        y0, y1 = v + load(moves, j), v + load(moves, j + V)
        y2, y3 = v + load(moves, j + 2 * V), v + load(moves, j + 3 * V)
        for i in range(1, S):
            v = splat_at(alpha, o + i)
            e = i * P + j
            y0 = maximum(v + load(moves, e), y0)
            y1 = maximum(v + load(moves, e + V), y1)
            y2 = maximum(v + load(moves, e + 2 * V), y2)
            y3 = maximum(v + load(moves, e + 3 * V), y3)
        p = o + P + j
        add(alpha, p, y0)
        add(alpha, p + V, y1)
        add(alpha, p + 2 * V, y2)
        add(alpha, p + 3 * V, y3)
        j += 4 * V
    while j < P:
        # four independent chains of comparisons: one alone runs in sequence
        y0 = splat_at(alpha, o) + load(moves, j)
        y1 = y2 = y3 = y0
        i = 1
        while i + 4 <= S:
            e = i * P + j
            y0 = maximum(splat_at(alpha, o + i) + load(moves, e), y0)
            y1 = maximum(splat_at(alpha, o + i + 1) + load(moves, e + P), y1)
            y2 = maximum(splat_at(alpha, o + i + 2) + load(moves, e + 2 * P), y2)
            y3 = maximum(splat_at(alpha, o + i + 3) + load(moves, e + 3 * P), y3)
            i += 4
        while i < S:
            y0 = maximum(splat_at(alpha, o + i) + load(moves, i * P + j), y0)
            i += 1
        add(alpha, o + P + j, maximum(maximum(y0, y1), maximum(y2, y3)))
        j += V


@subroutine(forceinline=True, machine_code=True)
def step_edges(alpha, o, edges, e, S, P, back, p):
    """As ``step_one``, for the transitions ``edges[e:]``, S by S, of one step only.

    Fills back(j) at p with the lowest i that attains the maximum: the transitions are
    not read again.
    """
    low, zero = splat(np.float64(-np.inf)), splat(0.0)
    for j in range(0, P, V):
        y = splat_at(alpha, o) + load_masked(edges, e + j, S - j, low)
        k = zero
        for i in range(1, S):
            v = splat_at(alpha, o + i) + load_masked(edges, e + i * S + j, S - j, low)
            k = select_lt(y, v, splat(float(i)), k)
            y = maximum(v, y)
        add(alpha, o + P + j, y)
        store(back, p + j, k)


@subroutine(forceinline=True, machine_code=True)
def place_of_max(x, o, y, p, S, P, down):
    """The lowest i with the largest ``x(i) + y(i)``; ``down`` is 0, -1, -2, ...

    Places are kept as negative numbers: the largest of them is the lowest state.
    """
    best = load(x, o) + load(y, p)
    here = place = down
    whole = splat(float(V))
    for s in range(V, P, V):
        here = here - whole
        v = load(x, o + s) + load(y, p + s)
        place = select_lt(best, v, here, place)
        best = maximum(v, best)
    last = splat(-float(P))
    place = select_lt(best, splat(reduce_max(best)), last, place)
    # a valid state even where scores are NaN
    return min(int(-reduce_max(place)), S - 1)


@subroutine
def largest(moves, S, P):
    """Of each column, the largest number."""
    found = arrays.empty(P, np.float64)
    for j in range(0, P, V):
        y = load(moves, j)
        for i in range(1, S):
            y = maximum(load(moves, i * P + j), y)
        store(found, j, y)
    return found


@subroutine
def step_pruned(alpha, o, R, rows, pruning):
    """As ``step_one``, for ``rows`` rows, if it leaves out half the states.

    First bounds y from the best state of each lane, then the states that may exceed
    them, then the maxima over those. Returns whether it did.
    """
    counts, bounds, P = pruning.counts, pruning.bounds, pruning.P
    for q in range(rows):
        _lead(alpha, o + q * R, q, pruning)
        counts[q] = V
    _raise(alpha, o, R, rows, pruning)
    total = 0
    for q in range(rows):
        counts[q] = _list(alpha, o + q * R, q, pruning)
        total += counts[q]
    if 2 * total > rows * pruning.S:
        return False
    _raise(alpha, o, R, rows, pruning)
    for q in range(rows):
        for j in range(0, P, V):
            add(alpha, o + q * R + P + j, load(bounds, q * P + j))
    return True


@subroutine
def _lead(alpha, o, q, pruning):
    """Choose the best state of each lane for row q, and put -inf into its bounds."""
    _, _, _, bounds, chosen, _, S, P, down = pruning
    p, c = q * P, q * (S + V)
    best = load(alpha, o)
    here = place = down
    whole = splat(float(V))
    for s in range(V, P, V):
        here = here - whole
        v = load(alpha, o + s)
        place = select_lt(best, v, here, place)
        best = maximum(v, best)
    store(bounds, p, place)
    for lane in range(V):
        chosen[c + lane] = min(int(-bounds[p + lane]), S - 1)
    for j in range(0, P, V):
        store(bounds, p + j, splat(-np.inf))


@subroutine
def _list(alpha, o, q, pruning):
    """Choose the states of row q that may attain a maximum; returns how many.

    They have ``alpha(i) > min_j (y(j) - into(j))`` and ``alpha(i) + out(i) > min_j
    y(j)``, the minima over the j that some state moves into.
    """
    _, into, out, bounds, chosen, _, S, P, _ = pruning
    p, c = q * P, q * (S + V)
    low, high = splat(-np.inf), splat(np.inf)
    gap = lowest = high
    for j in range(0, P, V):
        y, m = load(bounds, p + j), load(into, j)
        # padding, and a state that nothing moves into, bound nothing
        y = select_lt(low, m, y, high)
        gap = minimum(y - m, gap)
        lowest = minimum(y, lowest)
    least = -reduce_max(splat(0.0) - gap)
    # the differences are rounded: a little lower, to be safe
    least -= abs(least) * 2.0**-50
    floor = -reduce_max(splat(0.0) - lowest)
    count = np.uint64(0)
    # no branch: the state after one that is left out overwrites it
    for i in range(S):
        chosen[np.uint64(c) + count] = i
        a = alpha[np.uint64(o + i)]
        count += np.uint64((a > least) & (a + out[np.uint64(i)] > floor))
    return np.int64(count)


@subroutine
def _raise(alpha, o, R, rows, pruning):
    """``y(j) = max(y(j), alpha(i) + moves(i, j))`` over the states chosen of each row.

    The inner loop is over rows: moves that one row read are in the cache for the next.
    """
    moves, _, _, bounds, chosen, counts, S, P, _ = pruning
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
                y0 = maximum(v + load(moves, e), y0)
                y1 = maximum(v + load(moves, e + V), y1)
                y2 = maximum(v + load(moves, e + 2 * V), y2)
                y3 = maximum(v + load(moves, e + 3 * V), y3)
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
                y = maximum(v + load(moves, i * P + j), y)
            store(bounds, q * P + j, y)
        j += V
