"""Viterbi algorithm for few states, with one sequence per lane of a vector.

For shared transitions. The sums are those of ``chain.cpu.viterbi``, in float64 and in
time order, with w the emissions plus their cost:

    alpha_0(j) = start(j) + w_0(j)
    alpha_n(j) = max_i (alpha_{n-1}(i) + s(i, j)) + w_n(j)
    back_n(j)  = the lowest i that attains the maximum
    y_{N-1}    = argmax_j alpha_{N-1}(j) + end(j),   y_{n-1} = back_n(y_n)

A vector over few states would be partly empty; L rows fill a vector for every S. Only
two steps of alpha are stored. ``w_n`` is read once, so back_n replaces it, as floats in
the lanes. Rows of a group are sorted, longest first: the rows with a position n are the
first lanes.
"""

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.lane_rows import gather_lanes
from smoothsp._kernels.vectors.simd import (
    aligned_span,
    get_number,
    load,
    maximum,
    put_number,
    select_lt,
    splat,
    splat_at,
    store,
)

# Rows of a group: lanes of a vector of float64.
L = 8


@subroutine
def viterbi_in_lanes(first, last, chain, order, gold, cost, labels, value):
    """Fill labels[B, T] with a maximiser, and value[B] with its score.

    ``cost`` is added to every emission but those of the labels gold[B, T].
    """
    emissions, transitions, _, _, steps, lengths, _ = chain
    T, S = emissions.shape[1], emissions.shape[2]
    flat_transitions = arrays.empty(S * S, np.float64)
    for i in range(S):
        for j in range(S):
            flat_transitions[i * S + j] = transitions[0, 0, i, j]
    # prefix scores of two steps; emissions, overwritten by the states before
    prefixes = arrays.empty((2 * S + 1) * L, np.float64)
    block = arrays.empty(T * S * L + L * L + L, np.float64)
    row_scratch, zeros = arrays.empty(T * S, emissions.dtype), arrays.zeros(L)
    for group in range(first, last, L):
        rows = order[group : min(group + L, last)]
        gather_lanes(
            emissions, steps, lengths, rows, lengths[rows[0]], row_scratch, zeros, block
        )
        if cost != 0:
            _add_costs(emissions, steps, lengths, rows, gold, cost, block)
        _decode_group(chain, rows, flat_transitions, prefixes, block, labels, value)


@subroutine
def _decode_group(chain, rows, transitions, prefixes, block, labels, value):
    """Fill labels and value of the rows: forward over all steps, then back.

    The last state of a row is chosen as soon as the forward pass reaches its end, while
    its alpha is still stored.
    """
    _, _, start, end, steps, lengths, _ = chain
    T, S = steps.shape[1], len(start)
    N = lengths[rows[0]]
    alpha, weights = aligned_span(prefixes), aligned_span(block)
    state = arrays.empty(L, np.int64)
    for b in rows:
        if lengths[b] < T:
            labels[b] = -1
        value[b] = 0
    num_active = len(rows)
    while num_active > 0 and lengths[rows[num_active - 1]] == 0:
        num_active -= 1
    for n in range(N):
        o = n % 2 * S * L
        if n == 0:
            for s in range(S):
                start_score = splat(np.float64(start[s]))
                store(alpha, s * L, start_score + load(weights, s * L))
        else:
            _max_product_step(alpha, S * L - o, o, transitions, S, weights, n * S * L)
        while num_active > 0 and lengths[rows[num_active - 1]] == n + 1:
            num_active -= 1
            j = 0
            best = -np.inf
            for s in range(S):
                score = get_number(alpha, o + s * L + num_active) + end[s]
                if score > best:
                    best = score
                    j = s
            state[num_active] = j
            value[rows[num_active]] = best
    for n in range(N - 1, -1, -1):
        while num_active < len(rows) and lengths[rows[num_active]] > n:
            num_active += 1
        for lane in range(num_active):
            b = rows[lane]
            j = state[lane]
            labels[b, steps[b, n]] = j
            if n > 0:
                state[lane] = int(get_number(weights, (n * S + j) * L + lane))


@subroutine(forceinline=True)
def _add_costs(emissions, steps, lengths, rows, gold, cost, block):
    """Add the cost to all of w, then write the emissions of gold again, unrounded."""
    S, N = emissions.shape[2], lengths[rows[0]]
    weights = aligned_span(block)
    cost_vector = splat(cost)
    for p in range(0, N * S * L, L):
        store(weights, p, load(weights, p) + cost_vector)
    for n in range(N):
        for x in range(len(rows)):
            b = rows[x]
            if n < lengths[b]:
                t = steps[b, n]
                y = gold[b, t]
                put_number(weights, (n * S + y) * L + x, float(emissions[b, t, y]))


@subroutine(forceinline=True)
def _max_product_step(
    alpha, source_offset, target_offset, transitions, S, weights, weights_offset
):
    """Fill ``alpha(j) = max_i alpha'(i) + s(i, j) + w(j)``; w becomes the lowest i.

    alpha' is at ``source_offset``, alpha at ``target_offset``, w at ``weights_offset``.
    Tiles of three columns: they share each alpha'(i) that is loaded, and their
    comparisons are independent.
    """
    zero = splat(0.0)
    j = 0
    while j + 3 <= S:
        v = load(alpha, source_offset)
        y0 = v + splat_at(transitions, j)
        y1 = v + splat_at(transitions, j + 1)
        y2 = v + splat_at(transitions, j + 2)
        k0 = k1 = k2 = zero
        for i in range(1, S):
            v = load(alpha, source_offset + i * L)
            state = splat(float(i))
            m = i * S + j
            w = v + splat_at(transitions, m)
            k0, y0 = select_lt(y0, w, state, k0), maximum(w, y0)
            w = v + splat_at(transitions, m + 1)
            k1, y1 = select_lt(y1, w, state, k1), maximum(w, y1)
            w = v + splat_at(transitions, m + 2)
            k2, y2 = select_lt(y2, w, state, k2), maximum(w, y2)
        _store_cell(
            alpha, target_offset + j * L, y0, weights, weights_offset + j * L, k0
        )
        _store_cell(
            alpha,
            target_offset + (j + 1) * L,
            y1,
            weights,
            weights_offset + (j + 1) * L,
            k1,
        )
        _store_cell(
            alpha,
            target_offset + (j + 2) * L,
            y2,
            weights,
            weights_offset + (j + 2) * L,
            k2,
        )
        j += 3
    while j < S:
        y0 = load(alpha, source_offset) + splat_at(transitions, j)
        k0 = zero
        for i in range(1, S):
            w = load(alpha, source_offset + i * L) + splat_at(transitions, i * S + j)
            k0 = select_lt(y0, w, splat(float(i)), k0)
            y0 = maximum(w, y0)
        _store_cell(
            alpha, target_offset + j * L, y0, weights, weights_offset + j * L, k0
        )
        j += 1


@subroutine(forceinline=True)
def _store_cell(alpha, alpha_offset, maxima, weights, weights_offset, backpointers):
    """Add w to a maximum; k, the state before, takes the place of w."""
    store(alpha, alpha_offset, maxima + load(weights, weights_offset))
    store(weights, weights_offset, backpointers)
