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

from smoothsp._kernels.combinatorial.ibfs_max_flow import make_scratch, max_flow
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import get, put, span


@kernel
def any_not_submodular(edges):
    """Whether an edge is not submodular, or seems not to be for rounding."""
    for b in range(len(edges)):
        num_violations = 0
        for e in range(edges.shape[1]):
            a, p, q, d = _edge_scores(edges, b, e)
            # of what forbids, too
            num_violations += not a + d - p - q >= 0
        if num_violations:
            return True
    return False


@kernel
def score_labellings(nodes, edges, index, labels, values):
    """Fill values[B, K] with the scores of labels[B, K, V]."""
    for b in range(len(labels)):
        pairs = index[b if len(index) > 1 else 0]
        for k in range(labels.shape[1]):
            values[b, k] = _score_labelling(nodes[b], edges[b], pairs, labels[b, k])


@kernel
def min_cut(first, last, nodes, edges, graph, labels, values, bound, feasible):
    """Fill labels[B, V], their scores, found[B], and bound[B]: none scores more."""
    V, E = nodes.shape[1], edges.shape[1]
    residual, terminal_residual, scratch = (
        arrays.empty(2 * E),
        arrays.empty(V),
        make_scratch(V, E),
    )
    for b in range(first, last):
        min_energy = _min_energy(
            b, nodes, edges, graph, residual, terminal_residual, scratch
        )
        bound[b] = -min_energy
        feasible[b] = min_energy < np.inf
        for v in range(V):
            labels[b, v] = 1 if scratch[0][1, v] > 0 else 0
        pairs = graph[0][b if len(graph[0]) > 1 else 0]
        values[b] = _score_labelling(nodes[b], edges[b], pairs, labels[b])


@kernel
def max_marginal_gaps(first, last, nodes, edges, graph, nearest, labels, gap, feasible):
    """Fill labels[B, V], found[B], and lost[B, V]: what the other label costs.

    With ``nearest`` only the least of a row is sure to be there; others may be inf.

    From the flow of the one cut: to hold a node on the other side, as much more flows
    as still fits between it and the other end. It is left at that node, which changes
    no cut, and is on the way for its neighbours.
    """
    V, E = nodes.shape[1], edges.shape[1]
    residual, terminal_residual, scratch = (
        arrays.empty(2 * E),
        arrays.empty(V),
        make_scratch(V, E),
    )
    for b in range(first, last):
        graph_index = b if len(graph[0]) > 1 else 0
        min_energy = _min_energy(
            b, nodes, edges, graph, residual, terminal_residual, scratch
        )
        feasible[b] = min_energy < np.inf
        for v in range(V):
            labels[b, v] = 1 if scratch[0][1, v] > 0 else 0
            gap[b, v] = np.inf
        if feasible[b]:
            _, starts, heads, reverse_arc, _ = graph
            arcs = (
                starts[graph_index],
                heads[graph_index],
                reverse_arc[graph_index],
                residual,
                terminal_residual,
            )
            _fill_gaps(arcs, scratch[0], nearest, labels[b], gap[b])


@subroutine
def _score_labelling(nodes, edges, pairs, labels):
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
def _edge_scores(edges, b, e):
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
def _min_energy(b, nodes, edges, graph, residual, terminal_residual, scratch):
    """Return the least energy of a row, inf if there is none.

    The flow is left in room and ends.
    """
    index, starts, heads, reverse_arc, arc_of_edge = graph
    graph_index = b if len(index) > 1 else 0
    base = _fill_capacities(
        b,
        nodes,
        edges,
        index[graph_index],
        arc_of_edge[graph_index],
        reverse_arc[graph_index],
        residual,
        terminal_residual,
    )
    if base == np.inf:
        scratch[0][1] = 0
        return base
    return base + max_flow(
        starts[graph_index],
        heads[graph_index],
        reverse_arc[graph_index],
        residual,
        terminal_residual,
        scratch,
    )


@subroutine
def _fill_capacities(
    b, nodes, edges, index, arc_of_edge, reverse_arc, residual, terminal_residual
):
    """Fill the capacities of arcs and ends; return the constant part of the energy.

    The score of an edge (i, j) with labels y and z is

        s00 + y (s10 - s00 + half) + z (s11 - s10 - half) - half [y != z]
        half = (s00 + s11 - s01 - s10) / 2

    The first term is constant, and those of y and z go to the ends of i and j. The last
    is the capacity both ways. Where s01 or s10 is -inf, one is infinite instead.
    """
    base = 0.0
    V = len(terminal_residual)
    for v in range(V):
        terminal_residual[v] = 0.0
    for e in range(len(index)):
        i, j = index[e, 0], index[e, 1]
        s00, s01, s10, s11 = _edge_scores(edges, b, e)
        forward_arc, backward_arc = arc_of_edge[e], reverse_arc[arc_of_edge[e]]
        base -= s00
        # first, ends are scores of label 1; below, the cost of label 0 less that of 1
        if s01 > -np.inf and s10 > -np.inf:
            disagreement = max((s00 + s11 - s01 - s10) / 2, 0.0)
            residual[forward_arc] = residual[backward_arc] = disagreement
            terminal_residual[i] -= s00 - s10 - disagreement
            terminal_residual[j] -= s10 - s11 + disagreement
        elif s10 > -np.inf:
            residual[forward_arc], residual[backward_arc] = 0.0, np.inf
            terminal_residual[i] -= s00 - s10
            terminal_residual[j] -= s10 - s11
        elif s01 > -np.inf:
            residual[forward_arc], residual[backward_arc] = np.inf, 0.0
            terminal_residual[j] -= s00 - s01
            terminal_residual[i] -= s01 - s11
        else:
            residual[forward_arc] = residual[backward_arc] = np.inf
            terminal_residual[i] -= s00 - s11
    for v in range(V):
        # energies of labels 0 and 1
        energy_0 = -np.float64(nodes[b, v, 0])
        energy_1 = -np.float64(nodes[b, v, 1]) - terminal_residual[v]
        base += min(energy_0, energy_1)
        terminal_residual[v] = (
            energy_0 - energy_1 if energy_0 < np.inf or energy_1 < np.inf else 0.0
        )
    return base


@subroutine
def _fill_gaps(arcs, scratch, only_smallest, labels, gap):
    """Fill lost[V]: what fits from the end of a node's own side to it."""
    smallest_gap = np.inf
    starts, heads, reverse_arc, residual, terminal_residual = arcs
    graph = (
        span(starts),
        span(heads),
        span(reverse_arc),
        span(residual),
        span(terminal_residual),
    )
    parent, marks, queue, _ = scratch
    search = span(parent), span(marks), span(queue), span(labels)
    marks[:] = -1
    stamp = 0
    for v in range(len(labels)):
        # flow from the source runs towards v, flow to the sink away from it
        sign = 1.0 if labels[v] == 1 else -1.0
        while abs(terminal_residual[v]) < smallest_gap:
            u = _find_augmenting_path(v, sign, graph, search, stamp)
            stamp += 1
            if u < 0:
                gap[v] = abs(terminal_residual[v])
                if only_smallest:
                    smallest_gap = gap[v]
                break
            if not _push_flow(v, u, sign, graph, search):
                break


@subroutine(forceinline=True)
def _find_augmenting_path(v, sign, graph, search, stamp):
    """The nearest other node of its side with room to an end, -1 if there is none."""
    starts, heads, reverse_arc, residual, terminal_residual = graph
    parent, marks, queue, labels = search
    put(queue, 0, v)
    put(marks, v, stamp)
    next_index, count = 0, 1
    while next_index < count:
        u = get(queue, next_index)
        next_index += 1
        for a in range(get(starts, u), get(starts, u + 1)):
            w = get(heads, a)
            # no path passes through the other side
            if get(marks, w) == stamp or get(labels, w) != get(labels, v):
                continue
            if get(residual, get(reverse_arc, a) if sign > 0 else a) > 0:
                put(marks, w, stamp)
                put(parent, w, a)
                if sign * get(terminal_residual, w) > 0:
                    return w
                put(queue, count, w)
                count += 1
    return -1


@subroutine(forceinline=True)
def _push_flow(v, u, sign, graph, search):
    """Push to v what fits from u; return whether that is finite."""
    _, heads, reverse_arc, residual, terminal_residual = graph
    parent = search[0]
    amount, w = sign * get(terminal_residual, u), u
    while w != v:
        a = get(parent, w)
        amount = min(amount, get(residual, get(reverse_arc, a) if sign > 0 else a))
        w = get(heads, get(reverse_arc, a))
    if amount == np.inf:
        return False
    put(terminal_residual, u, get(terminal_residual, u) - sign * amount)
    put(terminal_residual, v, get(terminal_residual, v) + sign * amount)
    w = u
    while w != v:
        a = get(parent, w)
        b = get(reverse_arc, a)
        forward_arc, backward_arc = (b, a) if sign > 0 else (a, b)
        put(residual, forward_arc, get(residual, forward_arc) - amount)
        put(residual, backward_arc, get(residual, backward_arc) + amount)
        w = get(heads, b)
    return True
