"""The k best outputs of one chain, by lazy enumeration.

A cell (n, j) lists the best prefixes of n + 1 labels that end in state j, best first;
cell N lists whole outputs, as if a last step N followed. An entry of a list extends an
entry of a cell one step earlier. A Viterbi pass gives the best of every cell. The
next one of a cell is computed only where the next output may use it: each state before
has one candidate, that of the state used last is replaced by its successor, and the
best candidate is appended. So an output costs one pass along the output before it. With
v(i) the best score in cell (n - 1, i) that (n, j) has not used,

    offer(i) = v(i) + s(i, j)                 at step N: v(i) + end(i)
    value    = max_i offer(i) + e_n(j)        the lowest i that attains it

The pass goes back from step N until a cell is reached whose successor is known, then
forward again, appending one entry to each cell.

Lists are linked through ``links``, as their lengths are not known in advance. A cell
with more than one entry has a table in ``candidates``: P scores, then the P entries
that they extend, so that the maximum runs over vectors of states.

The method is known as recursive enumeration of the k shortest paths.
"""

from typing import Any, NamedTuple

import numpy as np

from smoothsp._kernels.chain.cpu.viterbi_over_states import (
    V,
    argmax_sum,
    make_negated_lane_indices,
)
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import load, maximum, select_lt, splat, store
from smoothsp._kernels.vectors.simd_masked import reduce_max

# Columns of ``links``: previous state, previous entry (-1: the best there, not created
# yet), next entry of the list, index of the cell's candidate table.
STATE, BEFORE, NEXT, CANDIDATES = range(4)
# Values of NEXT: not computed yet, end of the list.
NOT_COMPUTED, END = -1, -2
# Rows of ``path``, the last output step by step: entries, their states, best states
# other than these.
ENTRY, LABEL, SECOND_STATE = range(3)


class Prefixes(NamedTuple):
    """Viterbi prefix scores, and the potentials that extend them."""

    emissions: Any  # [B, T, S]
    transitions: Any  # [B, T - 1, S, S], unless shared
    steps: Any  # [B, T]
    shared: Any
    columns: Any  # [S + 1, P], shared transitions and ``end``; or one column, and end
    alpha: Any  # of a row [T, P], of the best prefix that ends in a state
    P: Any  # S up to whole vectors, with -inf in padding


class Lists(NamedTuple):
    """Scratch: cells, their entries, and the path of the last output."""

    first_entries: Any  # [T, S], the first entry of a cell, or -1
    listed_cells: Any  # [cells], the cells that have entries
    value: Any  # [entries], scores
    links: Any  # [entries, 4]
    candidates: Any  # [candidate tables, 2, P]
    path: Any  # [3, T + 1]
    second_scores: Any  # [T + 1], scores of second candidates


@subroutine(forceinline=True)
def candidates_size(T, S, P, K):
    """Return the size of the candidate tables for chains of up to T steps."""
    return (min(T * S, K * T) + 1) * 2 * P


@subroutine
def make_scratch(T, S, K, candidates):
    """Scratch of ``k_best`` for chains of up to T steps.

    ``candidates``: aligned array of at least ``candidates_size`` numbers.
    """
    cells = min(T * S, K * T)
    entries = cells + K * (T + 1)
    first = np.full(T * S, -1, np.int32)
    listed_cells = arrays.empty(cells, np.int64)
    value = arrays.empty(entries, np.float64)
    links = arrays.empty((entries, 4), np.int32)
    path = arrays.empty((3, T + 1), np.int64)
    second_scores = arrays.empty(T + 1, np.float64)
    return Lists(first, listed_cells, value, links, candidates, path, second_scores)


@subroutine
def k_best(b, N, o, prefixes, lists, out):
    """Fill labels[b, 1:, T], valid[b, 1:] and scores[b, 1:] with outputs 2 to K.

    ``out`` are these three arrays; scores are -inf where there is no such output.

    labels[b, 0] holds the best, which exists. Prefixes of row b begin at o. Sums run in
    time order. Ties go to the lower state, so the K best are a prefix of the K + 1
    best. Outputs that score -inf are not listed. Time O(K N S).
    """
    emissions, _, steps, _, columns, alpha, P = prefixes
    first_entries, listed_cells, value, links, _, path, _ = lists
    labels, valid, scores = out
    T, S = emissions.shape[1], emissions.shape[2]
    K = labels.shape[1]
    valid[b, 1:] = False
    scores[b, 1:] = -np.inf
    if N < T:
        labels[b, 1:] = -1
    if N == 0 or K == 1:
        return
    numbers = make_negated_lane_indices()
    countdown_vector = load(numbers, 0)
    previous = -1
    for n in range(N + 1):
        # the best output, one entry a step
        j = S
        if n < N:
            j = labels[b, 0, steps[b, n]]
            value[n] = alpha[o + n * P + j]
            first_entries[n * S + j] = n
            listed_cells[n] = n * S + j
        links[n, STATE] = previous
        links[n, BEFORE] = n - 1
        links[n, NEXT] = NOT_COMPUTED if n > 0 else END
        links[n, CANDIDATES] = -1
        path[ENTRY, n] = n
        path[LABEL, n] = previous = j
    num_entries = N + 1
    num_cells = N
    num_tables = 0
    for k in range(1, K):
        num_entries, num_tables = _extend_path(
            b, N, o, prefixes, lists, num_entries, num_tables, countdown_vector
        )
        entry = links[path[ENTRY, N], NEXT]
        if entry == END:
            labels[b, k:] = -1
            break
        valid[b, k] = True
        scores[b, k] = value[entry]
        path[ENTRY, N] = entry
        for n in range(N - 1, -1, -1):
            j = links[entry, STATE]
            labels[b, k, steps[b, n]] = j
            previous = links[entry, BEFORE]
            if previous < 0:
                previous = first_entries[n * S + j]
                if previous < 0:
                    # the list of this cell begins, with its best prefix
                    previous = num_entries
                    num_entries += 1
                    first_entries[n * S + j] = previous
                    listed_cells[num_cells] = n * S + j
                    num_cells += 1
                    value[previous] = alpha[o + n * P + j]
                    links[previous, BEFORE] = -1
                    links[previous, NEXT] = END
                    links[previous, CANDIDATES] = -1
                    if n > 0:
                        column_offset = _column_offset(b, n, j, prefixes)
                        alpha_offset = o + (n - 1) * P
                        i = argmax_sum(
                            alpha,
                            alpha_offset,
                            columns,
                            column_offset,
                            S,
                            P,
                            countdown_vector,
                        )
                        links[previous, STATE] = i
                        links[previous, NEXT] = NOT_COMPUTED
                links[entry, BEFORE] = previous
            path[ENTRY, n] = previous
            path[LABEL, n] = j
            entry = previous
    for c in range(num_cells):
        first_entries[listed_cells[c]] = -1


@subroutine(forceinline=True)
def _column_offset(b, n, j, prefixes):
    """Return the offset in columns of the scores into state j at step n, end at N.

    Copies the column first unless transitions are shared.
    """
    _, transitions, steps, shared, columns, _, P = prefixes
    if shared:
        return j * P
    S = transitions.shape[2]
    if j == S:
        return P
    for i in range(S):
        columns[i] = transitions[b, steps[b, n] - 1, i, j]
    return 0


@subroutine(forceinline=True)
def _extend_path(b, N, o, prefixes, lists, num_entries, num_tables, countdown_vector):
    """Append the next entry to each cell of the path whose successor is not computed.

    Returns the numbers of entries and tables in use.
    """
    emissions, transitions, steps, shared, columns, alpha, P = prefixes
    _, _, value, links, candidates, path, second_scores = lists
    # back to the first cell after one whose successor is known, or that has none
    first_step = N
    while links[path[ENTRY, first_step - 1], NEXT] == NOT_COMPUTED:
        first_step -= 1
    # the best of all other states does not depend on successors: steps overlap
    for n in range(first_step, N + 1):
        entry = path[ENTRY, n]
        table = links[entry, CANDIDATES]
        if table < 0:
            table = num_tables
            num_tables += 1
            links[entry, CANDIDATES] = table
            j = path[LABEL, n]
            column_offset = _column_offset(b, n, j, prefixes)
            alpha_offset = o + (n - 1) * P
            # of each state the score of its candidate, then the entry
            no_entry = splat(-1.0)
            for s in range(0, P, V):
                table_offset = table * 2 * P + s
                store(
                    candidates,
                    table_offset,
                    load(alpha, alpha_offset + s) + load(columns, column_offset + s),
                )
                store(candidates, table_offset + P, no_entry)
        second_score, second_state = _max_and_argmax_except(
            path[LABEL, n - 1], candidates, table * 2 * P, P, countdown_vector
        )
        second_scores[n] = second_score
        path[SECOND_STATE, n] = second_state
    # and forward again, appending one entry to each
    previous = links[path[ENTRY, first_step - 1], NEXT]
    score = value[previous] if previous >= 0 else -np.inf
    for n in range(first_step, N + 1):
        entry = path[ENTRY, n]
        i, j = path[LABEL, n - 1], path[LABEL, n]
        if shared:
            score += columns[j * P + i]
        elif n == N:
            score += columns[P + i]
        else:
            score += transitions[b, steps[b, n] - 1, i, j]
        table = links[entry, CANDIDATES]
        table_offset = table * 2 * P
        candidates[table_offset + i] = score
        candidates[table_offset + P + i] = previous
        best_state = path[SECOND_STATE, n]
        if score > second_scores[n] or (score == second_scores[n] and i < best_state):
            best_state = i
        else:
            score = second_scores[n]
            previous = int(candidates[table_offset + P + best_state])
        if n < N:
            score += emissions[b, steps[b, n], j]
        if score > -np.inf:
            value[num_entries] = score
            links[num_entries, STATE] = best_state
            links[num_entries, BEFORE] = previous
            links[num_entries, NEXT] = NOT_COMPUTED
            links[num_entries, CANDIDATES] = table
            previous = num_entries
            num_entries += 1
        else:
            previous = END
        links[entry, NEXT] = previous
    return num_entries, num_tables


@subroutine(forceinline=True)
def _max_and_argmax_except(excluded_state, x, o, P, countdown_vector):
    """Return maximum and argmax of x, one state excluded; ties to the lower state."""
    neg_inf = splat(-np.inf)
    width = splat(float(V))
    excluded = splat(-float(excluded_state))
    best = neg_inf
    index = max_index = countdown_vector
    for s in range(0, P, V):
        v = load(x, o + s)
        v = select_lt(index, excluded, v, select_lt(excluded, index, v, neg_inf))
        max_index = select_lt(best, v, index, max_index)
        best = maximum(v, best)
        index = index - width
    max_value = reduce_max(best)
    after_last = splat(np.float64(-P))
    return max_value, int(
        -reduce_max(select_lt(best, splat(max_value), after_last, max_index))
    )
