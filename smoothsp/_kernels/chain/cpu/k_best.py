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

Lists are linked through ``links``: how long that of a cell gets is not known before. A
cell with more than its best entry has a room in ``offers``, P scores and then the P
entries that they extend, so that vectors over states find the maximum.

The method is known as recursive enumeration of the k shortest paths.
"""

from typing import Any, NamedTuple

import numpy as np

from smoothsp._kernels.chain.cpu.viterbi_over_states import (
    V,
    countdown,
    place_of_max,
)
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import load, maximum, select_lt, splat, store
from smoothsp._kernels.vectors.simd_masked import reduce_max

# An entry: the state before, the entry before (-1: the best there, not looked up yet),
# the next of its list, and where its cell keeps the candidates of states.
STATE, BEFORE, NEXT, ROOM = range(4)
# Values of NEXT: not computed yet, and the end of the list.
UNKNOWN, NONE = -1, -2
# The last output, step by step: entries, their states, and those of second candidates.
ENTRY, LABEL, OTHER = range(3)


class Prefixes(NamedTuple):
    """Scores of prefixes, and the potentials by which they are extended."""

    emissions: Any  # [B, T, S]
    transitions: Any  # [B, T - 1, S, S], unless shared
    steps: Any  # [B, T]
    shared: Any
    columns: Any  # [S + 1, P], shared transitions and ``end``; or room for one, and end
    alpha: Any  # of a row [T, P], of the best prefix that ends in a state
    P: Any  # S up to whole vectors, with -inf in padding


class Lists(NamedTuple):
    """Scratch: cells, their entries, and the path of the last output."""

    first: Any  # [T, S], the first entry of a cell, or -1
    opened: Any  # [cells], those that have one
    value: Any  # [entries], scores
    links: Any  # [entries, 4]
    offers: Any  # [rooms, 2, P]
    path: Any  # [3, T + 1]
    others: Any  # [T + 1], scores of second candidates


@subroutine(forceinline=True)
def candidates_size(T, S, P, K):
    """Numbers that ``k_best`` keeps of candidates, for chains of up to T steps."""
    return (min(T * S, K * T) + 1) * 2 * P


@subroutine
def make_scratch(T, S, K, offers):
    """Scratch of ``k_best`` for chains of up to T steps.

    ``offers``: cache lines with room for ``size_of_offers`` numbers.
    """
    cells = min(T * S, K * T)
    entries = cells + K * (T + 1)
    first = np.full(T * S, -1, np.int32)
    opened = arrays.empty(cells, np.int64)
    value = arrays.empty(entries, np.float64)
    links = arrays.empty((entries, 4), np.int32)
    path = arrays.empty((3, T + 1), np.int64)
    others = arrays.empty(T + 1, np.float64)
    return Lists(first, opened, value, links, offers, path, others)


@subroutine
def k_best(b, N, o, prefixes, lists, out):
    """Fill labels[b, 1:, T] with the best outputs of row b but one, and valid[b, 1:].

    And scores[b, 1:], -inf where there is no such output. ``out`` are all three.

    labels[b, 0] holds the best, which exists. Prefixes of row b begin at o. Sums run in
    time order. Ties go to the lower state, so the K best are a prefix of the K + 1
    best. Outputs that score -inf are not listed. Time O(K N S).
    """
    emissions, _, steps, _, columns, alpha, P = prefixes
    first, opened, value, links, _, path, _ = lists
    labels, valid, scores = out
    T, S = emissions.shape[1], emissions.shape[2]
    K = labels.shape[1]
    valid[b, 1:] = False
    scores[b, 1:] = -np.inf
    if N < T:
        labels[b, 1:] = -1
    if N == 0 or K == 1:
        return
    numbers = countdown()
    down = load(numbers, 0)
    before = -1
    for n in range(N + 1):
        # the best output, one entry a step
        j = S
        if n < N:
            j = labels[b, 0, steps[b, n]]
            value[n] = alpha[o + n * P + j]
            first[n * S + j] = n
            opened[n] = n * S + j
        links[n, STATE] = before
        links[n, BEFORE] = n - 1
        links[n, NEXT] = UNKNOWN if n > 0 else NONE
        links[n, ROOM] = -1
        path[ENTRY, n] = n
        path[LABEL, n] = before = j
    used = N + 1
    cells = N
    rooms = 0
    for k in range(1, K):
        used, rooms = _advance(b, N, o, prefixes, lists, used, rooms, down)
        entry = links[path[ENTRY, N], NEXT]
        if entry == NONE:
            labels[b, k:] = -1
            break
        valid[b, k] = True
        scores[b, k] = value[entry]
        path[ENTRY, N] = entry
        for n in range(N - 1, -1, -1):
            j = links[entry, STATE]
            labels[b, k, steps[b, n]] = j
            before = links[entry, BEFORE]
            if before < 0:
                before = first[n * S + j]
                if before < 0:
                    # the list of this cell begins, with its best prefix
                    before = used
                    used += 1
                    first[n * S + j] = before
                    opened[cells] = n * S + j
                    cells += 1
                    value[before] = alpha[o + n * P + j]
                    links[before, BEFORE] = -1
                    links[before, NEXT] = NONE
                    links[before, ROOM] = -1
                    if n > 0:
                        p = _column(b, n, j, prefixes)
                        q = o + (n - 1) * P
                        i = place_of_max(alpha, q, columns, p, S, P, down)
                        links[before, STATE] = i
                        links[before, NEXT] = UNKNOWN
                links[entry, BEFORE] = before
            path[ENTRY, n] = before
            path[LABEL, n] = j
            entry = before
    for c in range(cells):
        first[opened[c]] = -1


@subroutine(forceinline=True)
def _column(b, n, j, prefixes):
    """Offset of the transitions into state j at step n, or of ``end`` at step N."""
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
def _advance(b, N, o, prefixes, lists, used, rooms, down):
    """Add the entries of the next output, if any, to those of the path.

    Returns how many entries and rooms are used.
    """
    emissions, transitions, steps, shared, columns, alpha, P = prefixes
    _, _, value, links, offers, path, others = lists
    # back to the first cell after one whose successor is known, or that has none
    depth = N
    while links[path[ENTRY, depth - 1], NEXT] == UNKNOWN:
        depth -= 1
    # candidates of other states do not depend on the successors: steps overlap
    for n in range(depth, N + 1):
        entry = path[ENTRY, n]
        room = links[entry, ROOM]
        if room < 0:
            room = rooms
            rooms += 1
            links[entry, ROOM] = room
            j = path[LABEL, n]
            p = _column(b, n, j, prefixes)
            q = o + (n - 1) * P
            # of each state the score of its candidate, then the entry
            unknown = splat(-1.0)
            for s in range(0, P, V):
                r = room * 2 * P + s
                store(offers, r, load(alpha, q + s) + load(columns, p + s))
                store(offers, r + P, unknown)
        top, place = _best_but(path[LABEL, n - 1], offers, room * 2 * P, P, down)
        others[n] = top
        path[OTHER, n] = place
    # and forward again, appending one entry to each
    before = links[path[ENTRY, depth - 1], NEXT]
    reach = value[before] if before >= 0 else -np.inf
    for n in range(depth, N + 1):
        entry = path[ENTRY, n]
        i, j = path[LABEL, n - 1], path[LABEL, n]
        if shared:
            reach += columns[j * P + i]
        elif n == N:
            reach += columns[P + i]
        else:
            reach += transitions[b, steps[b, n] - 1, i, j]
        room = links[entry, ROOM]
        r = room * 2 * P
        offers[r + i] = reach
        offers[r + P + i] = before
        state = path[OTHER, n]
        if reach > others[n] or (reach == others[n] and i < state):
            state = i
        else:
            reach = others[n]
            before = int(offers[r + P + state])
        if n < N:
            reach += emissions[b, steps[b, n], j]
        if reach > -np.inf:
            value[used] = reach
            links[used, STATE] = state
            links[used, BEFORE] = before
            links[used, NEXT] = UNKNOWN
            links[used, ROOM] = room
            before = used
            used += 1
        else:
            before = NONE
        links[entry, NEXT] = before
    return used, rooms


@subroutine(forceinline=True)
def _best_but(i, x, o, P, down):
    """The largest x and its lowest place, but for place i."""
    low = splat(-np.inf)
    whole = splat(float(V))
    skipped = splat(-float(i))
    best = low
    here = place = down
    for s in range(0, P, V):
        v = load(x, o + s)
        v = select_lt(here, skipped, v, select_lt(skipped, here, v, low))
        place = select_lt(best, v, here, place)
        best = maximum(v, best)
        here = here - whole
    top = reduce_max(best)
    none = splat(np.float64(-P))
    return top, int(-reduce_max(select_lt(best, splat(top), none, place)))
