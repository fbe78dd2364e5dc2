"""Graph cuts: best labellings of binary pairwise models, as minimum cuts.

The energies ``-score`` of an edge are split into energies of its two nodes and a cost
of disagreement, divided equally between both directions. This cost is a capacity, not
negative if ``score(0, 0) + score(1, 1) >= score(0, 1) + score(1, 0)``.

``nodes`` are scores ``[B, V, 2]``. ``edges`` are ``[B, E, 4]``, scores of the labels
00, 01, 10 and 11, or ``[B, E, 1]``, the score of agreement. A graph is a tuple of
``index`` [L, E, 2] and the arrays that ``ibfs_max_flow.build_adjacency`` fills:
starts, heads, reverse_arc and arc_of_edge. L is 1 if all rows share the graph, else B.

Source: Kolmogorov and Zabih, "What Energy Functions Can Be Minimized via Graph Cuts?"
(2004), theorem 4.1; max-marginals from one flow: Kohli and Torr, "Measuring Uncertainty
in Graph Cut Solutions" (2008), section 3.
"""

import numpy as np

from smoothsp._kernels.combinatorial.ibfs_max_flow import make_scratch, max_flow
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import get_number, put_number, span


@kernel
def any_not_submodular(edges):
    """Whether an edge violates submodularity, be it only by rounding."""
    for b in range(len(edges)):
        num_violations = 0
        for e in range(edges.shape[1]):
            a, p, q, d = _edge_scores(edges, b, e)
            # `not >=` instead of `<`: inf - inf is NaN, and counts as a violation
            num_violations += not a + d - p - q >= 0
        # once a row: the inner loop without a branch is vectorised
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
    """Fill labels[B, V] of a best labelling, values[B], bound[B] and feasible[B].

    ``values`` are recomputed from the labels; ``bound``, minus the energy of the cut,
    is an upper bound on all scores.
    """
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
            # nodes of positive level are on the source side, which is label 1
            labels[b, v] = 1 if scratch[0][1, v] > 0 else 0
        pairs = graph[0][b if len(graph[0]) > 1 else 0]
        values[b] = _score_labelling(nodes[b], edges[b], pairs, labels[b])


@kernel
def max_marginal_gaps(
    first, last, nodes, edges, graph, only_smallest, labels, gap, feasible
):
    """Fill labels[B, V], feasible[B] and gap[B, V]: the score lost by the other label.

    With ``only_smallest`` the smallest gap of a row is exact; larger ones may be inf.

    One maximum flow is enough. To force a node to the other side costs the additional
    flow that fits between the node and the opposite terminal. This flow stays at the
    node as terminal capacity. It changes no cut, and it is available for later nodes.
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
            _fill_gaps(arcs, scratch[0], only_smallest, labels[b], gap[b])


@subroutine
def _score_labelling(nodes, edges, pairs, labels):
    """Return the score of one labelling, ``labels[V]``."""
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
    """Return the scores of labels 00, 01, 10 and 11, in float64."""
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
    """Return the smallest energy of a row, inf if all labellings are forbidden.

    The maximum flow's residual capacities remain in ``residual`` and
    ``terminal_residual``.
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
    """Fill the capacities of arcs and terminals; return the energy's constant part.

    The score of an edge (i, j) with labels y and z is

        s00 + y (s10 - s00 + half) + z (s11 - s10 - half) - half [y != z]
        half = (s00 + s11 - s01 - s10) / 2

    The first term is constant. The terms of y and z are terminal capacities of i and j.
    The last one is the capacity of both arcs. If s01 or s10 is -inf, the arc that the
    forbidden labels would cut has infinite capacity instead.
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
        # In this loop terminal_residual holds minus the scores of label 1; the loop
        # below turns it into the cost of label 0 less that of label 1.
        if s01 > -np.inf and s10 > -np.inf:
            # rounding may leave a negative capacity
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
        # the smaller energy is paid in either case; only the difference is a capacity
        base += min(energy_0, energy_1)
        terminal_residual[v] = (
            energy_0 - energy_1 if energy_0 < np.inf or energy_1 < np.inf else 0.0
        )
    return base


@subroutine
def _fill_gaps(arcs, scratch, only_smallest, labels, gap):
    """Fill gap[V]: the flow that fits between each node and its own side's terminal."""
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
        # a gap above the smallest is of no use with only_smallest: stop pushing
        while abs(terminal_residual[v]) < smallest_gap:
            u = _find_augmenting_path(v, sign, graph, search, stamp)
            stamp += 1
            if u < 0:
                gap[v] = abs(terminal_residual[v])
                if only_smallest:
                    smallest_gap = gap[v]
                break
            if not _augment_path(v, u, sign, graph, search):
                break


@subroutine(forceinline=True)
def _find_augmenting_path(v, sign, graph, search, stamp):
    """Return the nearest node of v's side with terminal capacity, -1 if there is none.

    Breadth-first search; ``stamp`` marks visited nodes, so that nothing is cleared.
    """
    starts, heads, reverse_arc, residual, terminal_residual = graph
    parent, marks, queue, labels = search
    put_number(queue, 0, v)
    put_number(marks, v, stamp)
    next_index, count = 0, 1
    while next_index < count:
        u = get_number(queue, next_index)
        next_index += 1
        for a in range(get_number(starts, u), get_number(starts, u + 1)):
            w = get_number(heads, a)
            # no path passes through the other side
            if get_number(marks, w) == stamp or get_number(labels, w) != get_number(
                labels, v
            ):
                continue
            if get_number(residual, get_number(reverse_arc, a) if sign > 0 else a) > 0:
                put_number(marks, w, stamp)
                put_number(parent, w, a)
                if sign * get_number(terminal_residual, w) > 0:
                    return w
                put_number(queue, count, w)
                count += 1
    return -1


@subroutine(forceinline=True)
def _augment_path(v, u, sign, graph, search):
    """Push to v the flow that fits from u; return whether it is finite."""
    _, heads, reverse_arc, residual, terminal_residual = graph
    parent = search[0]
    amount, w = sign * get_number(terminal_residual, u), u
    while w != v:
        a = get_number(parent, w)
        amount = min(
            amount, get_number(residual, get_number(reverse_arc, a) if sign > 0 else a)
        )
        w = get_number(heads, get_number(reverse_arc, a))
    if amount == np.inf:
        return False
    put_number(terminal_residual, u, get_number(terminal_residual, u) - sign * amount)
    put_number(terminal_residual, v, get_number(terminal_residual, v) + sign * amount)
    w = u
    while w != v:
        a = get_number(parent, w)
        b = get_number(reverse_arc, a)
        forward_arc, backward_arc = (b, a) if sign > 0 else (a, b)
        put_number(residual, forward_arc, get_number(residual, forward_arc) - amount)
        put_number(residual, backward_arc, get_number(residual, backward_arc) + amount)
        w = get_number(heads, b)
    return True
