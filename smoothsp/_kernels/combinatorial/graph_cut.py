"""Best labellings of binary pairwise models, as minimum cuts.

Of each edge the energies ``-score`` are written as energies of its two nodes and of
disagreement, in equal parts for each way round: capacities that are not negative if
``score(0, 0) + score(1, 1) >= score(0, 1) + score(1, 0)``.

``nodes`` are ``[B, V, 2]`` of scores, ``edges`` ``[B, E, 4]`` of those of labels 00,
01, 10 and 11, or ``[B, E, 1]`` of what it scores to agree. A graph is a tuple of index
``[L, E, 2]`` and the arrays that ``ibfs_max_flow.lay_out`` fills: starts, heads, back
and places. L is 1 if all rows share it, else B.

Source: Kolmogorov and Zabih, "What Energy Functions Can Be Minimized via Graph Cuts?"
(2004), theorem 4.1; max-marginals from one flow: Kohli and Torr, "Measuring Uncertainty
in Graph Cut Solutions" (2008), section 3.
"""

import numpy as np

from smoothsp._kernels.combinatorial.ibfs_max_flow import maximise, scratch
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import get, put, span


@kernel
def first_not_submodular(edges):
    """Whether an edge is not submodular, or seems not to be for rounding."""
    for b in range(len(edges)):
        wrong = 0
        for e in range(edges.shape[1]):
            a, p, q, d = _scores(edges, b, e)
            # of what forbids, too
            wrong += not a + d - p - q >= 0
        if wrong:
            return True
    return False


@kernel
def score_labellings(nodes, edges, index, labels, values):
    """Fill values[B, K] with the scores of labels[B, K, V]."""
    for b in range(len(labels)):
        pairs = index[b if len(index) > 1 else 0]
        for k in range(labels.shape[1]):
            values[b, k] = _score(nodes[b], edges[b], pairs, labels[b, k])


@kernel
def min_cut(first, last, nodes, edges, graph, labels, values, bound, found):
    """Fill labels[B, V], their scores, found[B], and bound[B]: none scores more."""
    V, E = nodes.shape[1], edges.shape[1]
    room, ends, memory = arrays.empty(2 * E), arrays.empty(V), scratch(V, E)
    for b in range(first, last):
        least = _minimise(b, nodes, edges, graph, room, ends, memory)
        bound[b] = -least
        found[b] = least < np.inf
        for v in range(V):
            labels[b, v] = 1 if memory[0][1, v] > 0 else 0
        pairs = graph[0][b if len(graph[0]) > 1 else 0]
        values[b] = _score(nodes[b], edges[b], pairs, labels[b])


@kernel
def max_marginal_gaps(first, last, nodes, edges, graph, nearest, labels, lost, found):
    """Fill labels[B, V], found[B], and lost[B, V]: what the other label costs.

    With ``nearest`` only the least of a row is sure to be there; others may be inf.

    From the flow of the one cut: to hold a node on the other side, as much more flows
    as still fits between it and the other end. It is left at that node, which changes
    no cut, and is on the way for its neighbours.
    """
    V, E = nodes.shape[1], edges.shape[1]
    room, ends, memory = arrays.empty(2 * E), arrays.empty(V), scratch(V, E)
    for b in range(first, last):
        own = b if len(graph[0]) > 1 else 0
        least = _minimise(b, nodes, edges, graph, room, ends, memory)
        found[b] = least < np.inf
        for v in range(V):
            labels[b, v] = 1 if memory[0][1, v] > 0 else 0
            lost[b, v] = np.inf
        if found[b]:
            _, starts, heads, back, _ = graph
            arcs = starts[own], heads[own], back[own], room, ends
            _gather_all(arcs, memory[0], nearest, labels[b], lost[b])


@subroutine
def _score(nodes, edges, pairs, labels):
    total = 0.0
    for v in range(len(nodes)):
        total += nodes[v, labels[v]]
    for e in range(len(edges)):
        y, z = labels[pairs[e, 0]], labels[pairs[e, 1]]
        if edges.shape[1] == 4:
            total += edges[e, 2 * y + z]
        elif y == z:
            total += edges[e, 0]
    return total


@subroutine(forceinline=True)
def _scores(edges, b, e):
    """The scores of labels 00, 01, 10 and 11."""
    if edges.shape[2] == 1:
        agree = np.float64(edges[b, e, 0])
        return agree, 0.0, 0.0, agree
    return (
        np.float64(edges[b, e, 0]),
        np.float64(edges[b, e, 1]),
        np.float64(edges[b, e, 2]),
        np.float64(edges[b, e, 3]),
    )


@subroutine
def _minimise(b, nodes, edges, graph, room, ends, memory):
    """Return the least energy of a row, inf if there is none.

    The flow is left in room and ends.
    """
    index, starts, heads, back, places = graph
    own = b if len(index) > 1 else 0
    base = _capacities(b, nodes, edges, index[own], places[own], back[own], room, ends)
    if base == np.inf:
        memory[0][1] = 0
        return base
    return base + maximise(starts[own], heads[own], back[own], room, ends, memory)


@subroutine
def _capacities(b, nodes, edges, index, places, back, room, ends):
    """Fill the capacities of arcs and ends; return the constant part of the energy.

    The score of an edge (i, j) with labels y and z is

        s00 + y (s10 - s00 + half) + z (s11 - s10 - half) - half [y != z]
        half = (s00 + s11 - s01 - s10) / 2

    The first term is constant, and those of y and z go to the ends of i and j. The last
    is the capacity both ways. Where s01 or s10 is -inf, one is infinite instead.
    """
    base = 0.0
    V = len(ends)
    for v in range(V):
        ends[v] = 0.0
    for e in range(len(index)):
        i, j = index[e, 0], index[e, 1]
        s00, s01, s10, s11 = _scores(edges, b, e)
        there, here = places[e], back[places[e]]
        base -= s00
        # first, ends are scores of label 1; below, the cost of label 0 less that of 1
        if s01 > -np.inf and s10 > -np.inf:
            half = max((s00 + s11 - s01 - s10) / 2, 0.0)
            room[there] = room[here] = half
            ends[i] -= s00 - s10 - half
            ends[j] -= s10 - s11 + half
        elif s10 > -np.inf:
            room[there], room[here] = 0.0, np.inf
            ends[i] -= s00 - s10
            ends[j] -= s10 - s11
        elif s01 > -np.inf:
            room[there], room[here] = np.inf, 0.0
            ends[j] -= s00 - s01
            ends[i] -= s01 - s11
        else:
            room[there] = room[here] = np.inf
            ends[i] -= s00 - s11
    for v in range(V):
        # energies of labels 0 and 1
        zero = -np.float64(nodes[b, v, 0])
        one = -np.float64(nodes[b, v, 1]) - ends[v]
        base += min(zero, one)
        ends[v] = zero - one if zero < np.inf or one < np.inf else 0.0
    return base


@subroutine
def _gather_all(arcs, integers, nearest, labels, lost):
    """Fill lost[V]: what fits from the end of a node's own side to it."""
    least = np.inf
    starts, heads, back, room, ends = arcs
    graph = span(starts), span(heads), span(back), span(room), span(ends)
    parent, marks, queue, _ = integers
    search = span(parent), span(marks), span(queue), span(labels)
    marks[:] = -1
    clock = 0
    for v in range(len(labels)):
        # flow from the source runs towards v, flow to the sink away from it
        sign = 1.0 if labels[v] == 1 else -1.0
        while abs(ends[v]) < least:
            u = _reach(v, sign, graph, search, clock)
            clock += 1
            if u < 0:
                lost[v] = abs(ends[v])
                if nearest:
                    least = lost[v]
                break
            if not _fetch(v, u, sign, graph, search):
                break


@subroutine(forceinline=True)
def _reach(v, sign, graph, search, clock):
    """The nearest other node of its side with room to an end, -1 if there is none."""
    starts, heads, back, room, ends = graph
    parent, marks, queue, labels = search
    put(queue, 0, v)
    put(marks, v, clock)
    at, count = 0, 1
    while at < count:
        u = get(queue, at)
        at += 1
        for a in range(get(starts, u), get(starts, u + 1)):
            w = get(heads, a)
            # no path passes through the other side
            if get(marks, w) == clock or get(labels, w) != get(labels, v):
                continue
            if get(room, get(back, a) if sign > 0 else a) > 0:
                put(marks, w, clock)
                put(parent, w, a)
                if sign * get(ends, w) > 0:
                    return w
                put(queue, count, w)
                count += 1
    return -1


@subroutine(forceinline=True)
def _fetch(v, u, sign, graph, search):
    """Push to v what fits from u; return whether that is finite."""
    _, heads, back, room, ends = graph
    parent = search[0]
    amount, w = sign * get(ends, u), u
    while w != v:
        a = get(parent, w)
        amount = min(amount, get(room, get(back, a) if sign > 0 else a))
        w = get(heads, get(back, a))
    if amount == np.inf:
        return False
    put(ends, u, get(ends, u) - sign * amount)
    put(ends, v, get(ends, v) + sign * amount)
    w = u
    while w != v:
        a = get(parent, w)
        b = get(back, a)
        used, other = (b, a) if sign > 0 else (a, b)
        put(room, used, get(room, used) - amount)
        put(room, other, get(room, other) + amount)
        w = get(heads, b)
    return True
