"""Viterbi algorithm on groups of up to eight rows, with vectors over states.

Prefix scores are float64 and flat: ``alpha[q R + n P + s]``, ``R = T P``, is the score
of the best prefix of n + 1 labels of the group's row q that ends in state s. P is S
rounded up to whole vectors, and the padding is -inf. Before step n, alpha holds its
emissions. Sums run in time order:

    alpha_0(j) = start(j) + e_0(j)
    alpha_n(j) = max_i (alpha_{n-1}(i) + s(i, j)) + e_n(j)
    y_{N-1}    = argmax_j alpha_{N-1}(j) + end(j)
    y_{n-1}    = argmax_i alpha_{n-1}(i) + s(i, y_n)

Shared transitions are stored twice. The maxima read them by rows, several j in a
vector; the argmax over i reads them by columns. So no backpointers are stored: one
argmax per label costs less than S argmaxes per step. Transitions of a single step are
read once, so their backpointers are stored.

With many states, states that cannot attain a maximum are pruned. The best state of
each lane gives lower bounds y(j) of ``max_i alpha(i) + s(i, j)``. A state i is pruned
if ``alpha(i) + max_i' s(i', j) <= y(j)`` for all j, or if ``alpha(i) + max_j' s(i, j')
<= y(j)`` for all j. Rounding is monotone, so the maxima are equal to the last bit.
The wider the range of the scores, the more states are pruned.
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
# With fewer states pruning costs as much as it saves.
STATES_TO_PRUNE = 128
# Rows of a group: they are traced back together, so that their loads overlap.
ROWS_PER_PASS = 8
# Rows that share a pass over the transitions.
TILE_ROWS = 4
# Steps until pruning is tried again after it pruned too few states.
RETRY_STEPS = 8


@subroutine
def padded_states(S):
    """Return S rounded up to whole vectors."""
    return (S + V - 1) // V * V


class Tables(NamedTuple):
    """Scores shared by all rows, padded to P with -inf."""

    start: Any  # [P]
    transitions: Any  # [S, P], shared transitions by rows
    columns: Any  # [S + 1, P], shared transitions by columns, then end


class Pruning(NamedTuple):
    """Bounds for pruning of states, and scratch of TILE_ROWS rows."""

    transitions: Any  # [S, P]
    max_in: Any  # [P], the largest transition into each state
    max_out: Any  # [P], the largest transition out of each state
    bounds: Any  # [TILE_ROWS, P], y
    candidates: Any  # [TILE_ROWS, S + V], the states that are not pruned
    num_candidates: Any  # [TILE_ROWS], number of candidates of each row
    S: Any
    P: Any
    countdown_vector: Any  # 0, -1, ..., -7: the lanes of ``argmax_sum``


@subroutine
def make_tables(chain):
    """Return the ``Tables`` of a batch.

    Without shared transitions ``transitions`` is empty, and ``columns`` is [2, P].
    """
    _, transitions, start, end, _, _, shared = chain
    S = len(start)
    P = padded_states(S)
    padded_start = aligned_empty(P)
    padded_transitions = aligned_empty(S * P if shared else 0)
    columns = aligned_empty((S + 1) * P if shared else 2 * P)
    padded_start[:] = -np.inf
    padded_transitions[:] = -np.inf
    columns[:] = -np.inf
    last = len(columns) - P
    for i in range(S):
        padded_start[i] = start[i]
        columns[last + i] = end[i]
        if shared:
            for j in range(S):
                padded_transitions[i * P + j] = transitions[0, 0, i, j]
                columns[j * P + i] = transitions[0, 0, i, j]
    return Tables(padded_start, padded_transitions, columns)


@subroutine
def load_emissions(chain, rows, gold, cost, start, alpha):
    """Fill alpha with emissions, plus start at the first position of each row.

    ``cost`` is added to each emission except those of the labels gold[B, T].
    """
    emissions, steps, lengths = chain.emissions, chain.steps, chain.lengths
    T, S = emissions.shape[1], emissions.shape[2]
    P = padded_states(S)
    flat = emissions.reshape(-1)
    neg_inf = splat(np.float64(-np.inf))
    for q in range(len(rows)):
        b = rows[q]
        o = q * T * P
        for n in range(lengths[b]):
            e = (b * T + steps[b, n]) * S
            for s in range(0, P, V):
                v = load_masked(flat, e + s, S - s, neg_inf)
                store(alpha, o + n * P + s, v)
        if cost != 0:
            _add_costs(emissions, steps, b, lengths[b], gold, cost, alpha, o, P)
        if lengths[b] > 0:
            for s in range(0, P, V):
                store(alpha, o + s, load(start, s) + load(alpha, o + s))


@subroutine
def _add_costs(emissions, steps, b, N, gold, cost, alpha, o, P):
    cost_vector = splat(cost)
    # gold scores are read again: subtracting the cost would leave a rounding error
    for p in range(o, o + N * P, V):
        store(alpha, p, load(alpha, p) + cost_vector)
    for n in range(N):
        t = steps[b, n]
        alpha[o + n * P + gold[b, t]] = emissions[b, t, gold[b, t]]


@subroutine
def viterbi_forward_shared(chain, rows, scores, alpha):
    """Replace emissions by prefix scores, for shared transitions.

    Time is the outer loop: all rows of a group then read the transitions from cache.
    """
    lengths, transitions = chain.lengths, scores.transitions
    T, S = chain.emissions.shape[1], chain.emissions.shape[2]
    P = padded_states(S)
    R = T * P
    N = lengths[rows[0]]
    can_prune = S >= STATES_TO_PRUNE
    # nothing of it is used where nothing is pruned
    num_pruned_states = S if can_prune else 0
    numbers = make_negated_lane_indices()
    pruning = Pruning(
        transitions,
        column_maxima(transitions, num_pruned_states, P),
        column_maxima(scores.columns, num_pruned_states, P),
        aligned_empty(TILE_ROWS * P),
        arrays.empty(TILE_ROWS * (S + V), np.int64),
        arrays.empty(TILE_ROWS, np.int64),
        S,
        P,
        load(numbers, 0),
    )
    steps_to_retry = 0
    for n in range(N - 1):
        steps_to_retry -= 1
        q = 0
        while q < len(rows) and n + 1 < lengths[rows[q]]:
            o = q * R + n * P
            num_rows = TILE_ROWS if q + TILE_ROWS <= len(rows) else 1
            is_done = False
            if can_prune and steps_to_retry < 1:
                is_done = try_pruned_step(alpha, o, R, num_rows, pruning)
                steps_to_retry = 0 if is_done else RETRY_STEPS
            if not is_done:
                if num_rows == TILE_ROWS:
                    step_four_rows(alpha, o, R, transitions, S, P)
                else:
                    step_one_row(alpha, o, transitions, S, P)
            q += num_rows


@subroutine
def viterbi_forward_per_step(chain, rows, alpha, backpointers):
    """Replace emissions by prefix scores, for transitions of each step.

    Fills backpointers, laid out as alpha, with the previous state of the best prefix.
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
            step_one_row_with_backpointers(
                alpha, o, edges, e, S, P, backpointers, o + P
            )


@subroutine
def backtrace(chain, rows, columns, alpha, backpointers, labels, value):
    """Fill labels[B, 0, T] of the rows with a maximiser, -1 if masked, and value[B].

    Ties go to the lower state, from the end backwards.
    """
    _, _, start, _, steps, lengths, shared = chain
    T, S = steps.shape[1], len(start)
    P = padded_states(S)
    R = T * P
    end = len(columns) - P
    state = arrays.empty(ROWS_PER_PASS, np.int64)
    numbers = make_negated_lane_indices()
    countdown_vector = load(numbers, 0)
    for b in rows:
        value[b] = 0
        if lengths[b] < T:
            labels[b, 0] = -1
    num_active = 0
    for n in range(lengths[rows[0]] - 1, -1, -1):
        while num_active < len(rows) and lengths[rows[num_active]] > n:
            o = num_active * R + n * P
            j = argmax_sum(alpha, o, columns, end, S, P, countdown_vector)
            state[num_active] = j
            value[rows[num_active]] = alpha[o + j] + columns[end + j]
            num_active += 1
        for q in range(num_active):
            b = rows[q]
            j = state[q]
            labels[b, 0, steps[b, n]] = j
            if n > 0:
                o = q * R + n * P
                if shared:
                    i = argmax_sum(alpha, o - P, columns, j * P, S, P, countdown_vector)
                    state[q] = i
                else:
                    state[q] = int(backpointers[o + j])


@subroutine
def aligned_empty(size):
    """Return a float64 array aligned to 64 bytes: no vector crosses a cache line."""
    array = arrays.empty(size + 7, np.float64)
    num_skipped = -(array.ctypes.data // 8) % 8
    return array[num_skipped : num_skipped + size]


@subroutine
def make_negated_lane_indices():
    """Return the numbers 0, -1, ..., -7: the negated indices of the first lanes."""
    numbers = arrays.empty(V, np.float64)
    for lane in range(V):
        numbers[lane] = -lane
    return numbers


@subroutine(forceinline=True)
def add_vector(alpha, offset, vector):
    """Add ``vector`` to alpha at ``offset``, in place."""
    store(alpha, offset, vector + load(alpha, offset))


@subroutine(forceinline=True, machine_code=True)
def step_four_rows(alpha, o, R, transitions, S, P):
    """Fill the next ``alpha'(j) = max_i alpha(i) + s(i, j) + e(j)`` of four rows.

    alpha of the four rows is at o, o + R, o + 2 R and o + 3 R; alpha' is P further.
    Tiles have two vectors of each row: their eight comparisons are independent, so
    they overlap.
    """
    o1, o2, o3 = o + R, o + 2 * R, o + 3 * R
    j = 0
    while j + 2 * V <= P:
        m, t = load(transitions, j), load(transitions, j + V)
        v = splat_at(alpha, o)
        y0, z0 = v + m, v + t
        v = splat_at(alpha, o1)
        y1, z1 = v + m, v + t
        v = splat_at(alpha, o2)
        y2, z2 = v + m, v + t
        v = splat_at(alpha, o3)
        y3, z3 = v + m, v + t
        for i in range(1, S):
            m, t = load(transitions, i * P + j), load(transitions, i * P + j + V)
            v = splat_at(alpha, o + i)
            y0, z0 = maximum(v + m, y0), maximum(v + t, z0)
            v = splat_at(alpha, o1 + i)
            y1, z1 = maximum(v + m, y1), maximum(v + t, z1)
            v = splat_at(alpha, o2 + i)
            y2, z2 = maximum(v + m, y2), maximum(v + t, z2)
            v = splat_at(alpha, o3 + i)
            y3, z3 = maximum(v + m, y3), maximum(v + t, z3)
        p = P + j
        add_vector(alpha, o + p, y0)
        add_vector(alpha, o1 + p, y1)
        add_vector(alpha, o2 + p, y2)
        add_vector(alpha, o3 + p, y3)
        p += V
        add_vector(alpha, o + p, z0)
        add_vector(alpha, o1 + p, z1)
        add_vector(alpha, o2 + p, z2)
        add_vector(alpha, o3 + p, z3)
        j += 2 * V
    if j < P:
        m = load(transitions, j)
        y0 = splat_at(alpha, o) + m
        y1 = splat_at(alpha, o1) + m
        y2 = splat_at(alpha, o2) + m
        y3 = splat_at(alpha, o3) + m
        for i in range(1, S):
            m = load(transitions, i * P + j)
            y0 = maximum(splat_at(alpha, o + i) + m, y0)
            y1 = maximum(splat_at(alpha, o1 + i) + m, y1)
            y2 = maximum(splat_at(alpha, o2 + i) + m, y2)
            y3 = maximum(splat_at(alpha, o3 + i) + m, y3)
        p = P + j
        add_vector(alpha, o + p, y0)
        add_vector(alpha, o1 + p, y1)
        add_vector(alpha, o2 + p, y2)
        add_vector(alpha, o3 + p, y3)


@subroutine(forceinline=True, machine_code=True)
def step_one_row(alpha, o, transitions, S, P):
    """Fill the next ``alpha'(j) = max_i alpha(i) + s(i, j) + e(j)`` of one row."""
    j = 0
    while j + 4 * V <= P:
        v = splat_at(alpha, o)
        y0, y1 = v + load(transitions, j), v + load(transitions, j + V)
        y2, y3 = v + load(transitions, j + 2 * V), v + load(transitions, j + 3 * V)
        for i in range(1, S):
            v = splat_at(alpha, o + i)
            e = i * P + j
            y0 = maximum(v + load(transitions, e), y0)
            y1 = maximum(v + load(transitions, e + V), y1)
            y2 = maximum(v + load(transitions, e + 2 * V), y2)
            y3 = maximum(v + load(transitions, e + 3 * V), y3)
        p = o + P + j
        add_vector(alpha, p, y0)
        add_vector(alpha, p + V, y1)
        add_vector(alpha, p + 2 * V, y2)
        add_vector(alpha, p + 3 * V, y3)
        j += 4 * V
    while j < P:
        # four independent chains of comparisons: one alone runs in sequence
        y0 = splat_at(alpha, o) + load(transitions, j)
        y1 = y2 = y3 = y0
        i = 1
        while i + 4 <= S:
            e = i * P + j
            y0 = maximum(splat_at(alpha, o + i) + load(transitions, e), y0)
            y1 = maximum(splat_at(alpha, o + i + 1) + load(transitions, e + P), y1)
            y2 = maximum(splat_at(alpha, o + i + 2) + load(transitions, e + 2 * P), y2)
            y3 = maximum(splat_at(alpha, o + i + 3) + load(transitions, e + 3 * P), y3)
            i += 4
        while i < S:
            y0 = maximum(splat_at(alpha, o + i) + load(transitions, i * P + j), y0)
            i += 1
        add_vector(alpha, o + P + j, maximum(maximum(y0, y1), maximum(y2, y3)))
        j += V


@subroutine(forceinline=True, machine_code=True)
def step_one_row_with_backpointers(
    alpha, alpha_offset, edges, edges_offset, S, P, backpointers, backpointers_offset
):
    """Fill the next alpha' and backpointers of a row, for transitions of this step.

    The transitions, [S, S], begin at ``edges_offset``. ``backpointers`` gets, at
    ``backpointers_offset + j``, the lowest i that attains the maximum of alpha'(j).
    """
    neg_inf, zero = splat(np.float64(-np.inf)), splat(0.0)
    for j in range(0, P, V):
        y = splat_at(alpha, alpha_offset) + load_masked(
            edges, edges_offset + j, S - j, neg_inf
        )
        k = zero
        for i in range(1, S):
            v = splat_at(alpha, alpha_offset + i) + load_masked(
                edges, edges_offset + i * S + j, S - j, neg_inf
            )
            k = select_lt(y, v, splat(float(i)), k)
            y = maximum(v, y)
        add_vector(alpha, alpha_offset + P + j, y)
        store(backpointers, backpointers_offset + j, k)


@subroutine(forceinline=True, machine_code=True)
def argmax_sum(x, x_offset, y, y_offset, S, P, countdown_vector):
    """Return the lowest i with the largest ``x(i) + y(i)``.

    Indices are negated, beginning with ``countdown_vector``: the largest negated index
    of the lanes that attain the maximum is the lowest state.
    """
    best = load(x, x_offset) + load(y, y_offset)
    index = max_index = countdown_vector
    width = splat(float(V))
    for s in range(V, P, V):
        index = index - width
        v = load(x, x_offset + s) + load(y, y_offset + s)
        max_index = select_lt(best, v, index, max_index)
        best = maximum(v, best)
    after_last = splat(-float(P))
    max_index = select_lt(best, splat(reduce_max(best)), after_last, max_index)
    # a valid state even where scores are NaN
    return min(int(-reduce_max(max_index)), S - 1)


@subroutine
def column_maxima(transitions, S, P):
    """Return the maximum of each column, ``[P]``."""
    maxima = arrays.empty(P, np.float64)
    for j in range(0, P, V):
        y = load(transitions, j)
        for i in range(1, S):
            y = maximum(load(transitions, i * P + j), y)
        store(maxima, j, y)
    return maxima


@subroutine
def try_pruned_step(alpha, o, R, num_rows, pruning):
    """Fill the next alpha' of ``num_rows`` rows if at least half the states are pruned.

    The best state of each lane gives bounds y; states that may exceed them become
    candidates, and the maxima run over candidates only. Returns whether alpha' is
    filled.
    """
    num_candidates, bounds, P = pruning.num_candidates, pruning.bounds, pruning.P
    for q in range(num_rows):
        _choose_best_of_each_lane(alpha, o + q * R, q, pruning)
        num_candidates[q] = V
    _raise_bounds(alpha, o, R, num_rows, pruning)
    num_total = 0
    for q in range(num_rows):
        num_candidates[q] = _choose_candidates(alpha, o + q * R, q, pruning)
        num_total += num_candidates[q]
    if 2 * num_total > num_rows * pruning.S:
        return False
    _raise_bounds(alpha, o, R, num_rows, pruning)
    for q in range(num_rows):
        for j in range(0, P, V):
            add_vector(alpha, o + q * R + P + j, load(bounds, q * P + j))
    return True


@subroutine
def _choose_best_of_each_lane(alpha, o, q, pruning):
    """Make the best state of each lane a candidate of row q; fill its bounds with -inf.

    Any V states give valid lower bounds, and these are found without a sort.
    """
    _, _, _, bounds, candidates, _, S, P, countdown_vector = pruning
    bounds_offset, candidates_offset = q * P, q * (S + V)
    best = load(alpha, o)
    index = max_index = countdown_vector
    width = splat(float(V))
    for s in range(V, P, V):
        index = index - width
        v = load(alpha, o + s)
        max_index = select_lt(best, v, index, max_index)
        best = maximum(v, best)
    store(bounds, bounds_offset, max_index)
    for lane in range(V):
        candidates[candidates_offset + lane] = min(
            int(-bounds[bounds_offset + lane]), S - 1
        )
    for j in range(0, P, V):
        store(bounds, bounds_offset + j, splat(-np.inf))


@subroutine
def _choose_candidates(alpha, o, q, pruning):
    """Fill the candidates of row q: states that may attain a maximum; return the count.

    They have ``alpha(i) > min_j (y(j) - max_in(j))`` and ``alpha(i) + max_out(i) >
    min_j y(j)``, the minima over the j with a finite transition into them.
    """
    _, max_in, max_out, bounds, candidates, _, S, P, _ = pruning
    p, c = q * P, q * (S + V)
    neg_inf, pos_inf = splat(-np.inf), splat(np.inf)
    min_gaps = min_bounds = pos_inf
    for j in range(0, P, V):
        y, m = load(bounds, p + j), load(max_in, j)
        # padding, and a state without transitions into it, give no bound
        y = select_lt(neg_inf, m, y, pos_inf)
        min_gaps = minimum(y - m, min_gaps)
        min_bounds = minimum(y, min_bounds)
    alpha_floor = -reduce_max(splat(0.0) - min_gaps)
    # the differences are rounded, so the bound is lowered by more than their error
    alpha_floor -= abs(alpha_floor) * 2.0**-50
    bound_floor = -reduce_max(splat(0.0) - min_bounds)
    num_chosen = np.uint64(0)
    # no branch: the next state overwrites a pruned one
    for i in range(S):
        candidates[np.uint64(c) + num_chosen] = i
        a = alpha[np.uint64(o + i)]
        num_chosen += np.uint64(
            (a > alpha_floor) & (a + max_out[np.uint64(i)] > bound_floor)
        )
    return np.int64(num_chosen)


@subroutine
def _raise_bounds(alpha, o, R, num_rows, pruning):
    """Raise the bounds, ``y(j) = max(y(j), alpha(i) + s(i, j))``, over candidates i.

    The loop over rows is inside that over j: the next row reads the same columns of
    the transitions from cache.
    """
    transitions, _, _, bounds, candidates, num_candidates, S, P, _ = pruning
    j = 0
    while j + 4 * V <= P:
        for q in range(num_rows):
            p = q * P + j
            c = q * (S + V)
            x = o + q * R
            y0, y1 = load(bounds, p), load(bounds, p + V)
            y2, y3 = load(bounds, p + 2 * V), load(bounds, p + 3 * V)
            for k in range(c, c + num_candidates[q]):
                i = candidates[k]
                v = splat_at(alpha, x + i)
                e = i * P + j
                y0 = maximum(v + load(transitions, e), y0)
                y1 = maximum(v + load(transitions, e + V), y1)
                y2 = maximum(v + load(transitions, e + 2 * V), y2)
                y3 = maximum(v + load(transitions, e + 3 * V), y3)
            store(bounds, p, y0)
            store(bounds, p + V, y1)
            store(bounds, p + 2 * V, y2)
            store(bounds, p + 3 * V, y3)
        j += 4 * V
    while j < P:
        for q in range(num_rows):
            c = q * (S + V)
            y = load(bounds, q * P + j)
            for k in range(c, c + num_candidates[q]):
                i = candidates[k]
                v = splat_at(alpha, o + q * R + i)
                y = maximum(v + load(transitions, i * P + j), y)
            store(bounds, q * P + j, y)
        j += V
