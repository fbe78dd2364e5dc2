"""Best labellings of binary pairwise models, as minimum cuts.

Of each edge the energies ``-score`` are written as energies of its two nodes and of
disagreement, in equal parts for each way round: capacities that are not negative if
``score(0, 0) + score(1, 1) >= score(0, 1) + score(1, 0)``.

``nodes`` are ``[B, V, 2]`` and ``edges`` ``[B, E, 2, 2]`` of float64 scores. A graph is
a tuple of index ``[L, E, 2]`` and of what ``max_flow.lay_out`` fills, starts, heads,
back and places; L is 1 if all rows share it, else B.

Source: Kolmogorov and Zabih, "What Energy Functions Can Be Minimized via Graph Cuts?"
(2004), theorem 4.1.
"""

import numpy as np
from numba import njit

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.searches.max_flow import SOURCE, maximise, scratch


@kernel
def cut(first, last, nodes, edges, graph, labels, bound, found):
    """Fill labels[B, V], found[B], and bound[B]: no labelling scores more."""
    V, E = nodes.shape[1], edges.shape[1]
    index, starts, heads, back, places = graph
    room, ends, memory = np.empty(2 * E), np.empty(V), scratch(V)
    for b in range(first, last):
        own = b if len(index) > 1 else 0
        base = _capacities(
            nodes[b], edges[b], index[own], places[own], back[own], room, ends
        )
        flow = np.inf
        if base < np.inf:
            flow = maximise(starts[own], heads[own], back[own], room, ends, memory)
        bound[b] = -(base + flow)
        found[b] = base + flow < np.inf
        for v in range(V):
            labels[b, v] = 1 if memory[1][0, v] == SOURCE else 0


@kernel
def detours(first, last, nodes, edges, graph, labels, lost, found):
    """Fill labels[B, V], found[B], and lost[B, V]: what the other label costs.

    From the flow of the one cut: to hold a node on the other side, as much more flows
    as still fits between it and the other end. Then that is taken back.
    """
    V, E = nodes.shape[1], edges.shape[1]
    index, starts, heads, back, places = graph
    room, ends, memory = np.empty(2 * E), np.empty(V), scratch(V)
    marks = np.empty(V, np.int64)
    log, amounts = np.empty(64, np.int64), np.empty((64, 2))
    for b in range(first, last):
        own = b if len(index) > 1 else 0
        base = _capacities(
            nodes[b], edges[b], index[own], places[own], back[own], room, ends
        )
        flow = np.inf
        if base < np.inf:
            flow = maximise(starts[own], heads[own], back[own], room, ends, memory)
        found[b] = base + flow < np.inf
        marks[:] = -1
        clock = 0
        for v in range(V):
            labels[b, v] = 1 if memory[1][0, v] == SOURCE else 0
            lost[b, v] = np.inf
            if not found[b]:
                continue
            total, size = 0.0, 0
            while True:
                u = _reach(
                    v,
                    labels[b, v] == 0,
                    starts[own],
                    heads[own],
                    back[own],
                    room,
                    ends,
                    memory,
                    marks,
                    clock,
                )
                clock += 1
                if u < 0:
                    break
                if size + V + 1 > len(log):
                    more = 2 * (size + V + 1)
                    old_log, old_amounts = log, amounts
                    log, amounts = np.empty(more, np.int64), np.empty((more, 2))
                    log[:size], amounts[:size] = old_log[:size], old_amounts[:size]
                amount, size = _push(
                    v,
                    u,
                    labels[b, v] == 0,
                    heads[own],
                    back[own],
                    room,
                    ends,
                    memory,
                    log,
                    amounts,
                    size,
                )
                total += amount
                if amount == np.inf:
                    break
            for i in range(size - 1, -1, -1):
                if log[i] < 0:
                    ends[-1 - log[i]] = amounts[i, 0]
                else:
                    room[log[i]] = amounts[i, 0]
                    room[back[own, log[i]]] = amounts[i, 1]
            lost[b, v] = total


@njit(error_model="numpy", no_cpython_wrapper=True)
def _capacities(nodes, edges, index, places, back, room, ends):
    """Fill what fits through arcs and to the ends; the energy that is always there."""
    base = 0.0
    V = len(ends)
    for v in range(V):
        ends[v] = 0.0
    for e in range(len(index)):
        i, j = index[e, 0], index[e, 1]
        a, b = -edges[e, 0, 0], -edges[e, 0, 1]
        c, d = -edges[e, 1, 0], -edges[e, 1, 1]
        there, here = places[e], back[places[e]]
        base += a
        # energy of label 1 of either; ends are what label 0 costs less that of label 1
        if b < np.inf and c < np.inf:
            half = max((b + c - a - d) / 2, 0.0)
            room[there] = room[here] = half
            ends[i] -= c - a - half
            ends[j] -= d - c + half
        elif c < np.inf:
            room[there], room[here] = 0.0, np.inf
            ends[i] -= c - a
            ends[j] -= d - c
        elif b < np.inf:
            room[there], room[here] = np.inf, 0.0
            ends[j] -= b - a
            ends[i] -= d - b
        else:
            room[there] = room[here] = np.inf
            ends[i] -= d - a
    for v in range(V):
        # energies of labels 0 and 1
        zero, one = -nodes[v, 0], -nodes[v, 1] - ends[v]
        base += min(zero, one)
        ends[v] = zero - one if zero < np.inf or one < np.inf else 0.0
    return base


@njit(error_model="numpy", no_cpython_wrapper=True)
def _reach(v, up, starts, heads, back, room, ends, memory, marks, clock):
    """The nearest node with room to the other end, -1 if none; parents on the way."""
    parent, queue = memory[0][0], memory[0][3]
    queue[0] = v
    marks[v], parent[v] = clock, -1
    at, count = 0, 1
    while at < count:
        u = queue[at]
        at += 1
        if (ends[u] < 0) if up else (ends[u] > 0):
            return u
        for a in range(starts[u], starts[u + 1]):
            w = heads[a]
            if marks[w] != clock and (room[a] if up else room[back[a]]) > 0:
                marks[w], parent[w] = clock, a
                queue[count] = w
                count += 1
    return -1


@njit(error_model="numpy", no_cpython_wrapper=True)
def _push(v, u, up, heads, back, room, ends, memory, log, amounts, size):
    """Push what fits between two nodes, and note what was there before."""
    parent = memory[0][0]
    amount, w = abs(ends[u]), u
    while w != v:
        a = parent[w] if up else back[parent[w]]
        amount = min(amount, room[a])
        w = heads[back[parent[w]]]
    if amount == np.inf:
        return amount, size
    log[size], amounts[size, 0] = -1 - u, ends[u]
    size += 1
    ends[u] += amount if up else -amount
    w = u
    while w != v:
        a = parent[w] if up else back[parent[w]]
        log[size], amounts[size, 0], amounts[size, 1] = a, room[a], room[back[a]]
        size += 1
        room[a] -= amount
        room[back[a]] += amount
        w = heads[back[parent[w]]]
    return amount, size
