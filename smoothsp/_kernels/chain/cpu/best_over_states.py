"""The best labels of a group of up to eight rows, vectors over states.

Prefix scores as in ``max_states``: those of the group's row q are at ``alpha[q R:]``,
``R = T P``. Sums run in time order.
"""

import numpy as np

from smoothsp._kernels.chain.cpu.best_pruned import (
    STATES_TO_PRUNE,
    largest,
    step_pruned,
)
from smoothsp._kernels.chain.cpu.best_steps import (
    V,
    cache_lines,
    countdown,
    place_of_max,
    step_edges,
    step_four,
    step_one,
)
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import load, splat, store
from smoothsp._kernels.vectors.simd_parts import load_some

# Rows of a group: they are traced back together, so that their loads overlap.
ROWS = 8
# Rows that share a pass over the transitions.
BLOCK = 4
# Steps until pruning is tried again after it left out too few states.
PATIENCE = 8


@subroutine
def padded_states(S):
    """S up to whole vectors."""
    return (S + V - 1) // V * V


@subroutine
def tables(transitions, start, end, shared):
    """``start``, and shared transitions by rows and by columns, all padded.

    After the columns comes ``end``, as if it were one more. Transitions that are not
    shared leave no rows, and room for one column.
    """
    S = len(start)
    P = padded_states(S)
    head = cache_lines(P)
    moves = cache_lines(S * P if shared else 0)
    columns = cache_lines((S + 1) * P if shared else 2 * P)
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
    return head, moves, columns


@subroutine
def load_rows(emissions, steps, lengths, rows, gold, cost, head, alpha):
    """Fill alpha with emissions, and what comes before the first of each row.

    ``cost`` is added to each, but for the labels gold[B, T].
    """
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
                v = load_some(flat, e + s, S - s, low)
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
def score_prefixes(lengths, rows, moves, columns, T, S, alpha):
    """Turn emissions into prefix scores, for shared transitions."""
    P = padded_states(S)
    R = T * P
    N = lengths[rows[0]]
    prune = S >= STATES_TO_PRUNE
    # nothing of it is used where nothing is pruned
    few = S if prune else 0
    into, out = largest(moves, few, P), largest(columns, few, P)
    bounds = cache_lines(BLOCK * P)
    chosen = arrays.empty(BLOCK * (S + V), np.int64)
    counts = arrays.empty(BLOCK, np.int64)
    numbers = countdown()
    down = load(numbers, 0)
    wait = 0
    for n in range(N - 1):
        wait -= 1
        q = 0
        while q < len(rows) and n + 1 < lengths[rows[q]]:
            o = q * R + n * P
            together = BLOCK if q + BLOCK <= len(rows) else 1
            done = False
            if prune and wait < 1:
                done = step_pruned(
                    alpha, o, R, together, moves, into, out, S, P, bounds, chosen,
                    counts, down,
                )  # fmt: skip
                wait = 0 if done else PATIENCE
            if not done:
                if together == BLOCK:
                    step_four(alpha, o, R, moves, S, P)
                else:
                    step_one(alpha, o, moves, S, P)
            q += together


@subroutine
def score_prefixes_of_edges(transitions, steps, lengths, rows, alpha, back):
    """The same for transitions of each step; fills back[n, s], laid out as alpha.

    The state before the last of the best prefix, as a number.
    """
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
def best_labels(S, steps, lengths, rows, shared, alpha, columns, back, labels, value):
    """Fill labels[B, 0, T] of the rows with the best, -1 where masked, and value[B].

    Ties go to the lower state, from the end backwards.
    """
    T = steps.shape[1]
    P = padded_states(S)
    R = T * P
    end = len(columns) - P
    state = arrays.empty(ROWS, np.int64)
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
