"""IBFS: maximum flows by incremental breadth-first search, for minimum cuts.

A graph has V nodes and, for each edge, an arc and its reverse. The arcs of node v are
``starts[v]`` to ``starts[v + 1]``; ``heads`` are their end nodes, ``reverse_arc`` the
opposite arcs, and ``residual`` the residual capacities. ``terminal_residual[v]`` is the
residual capacity from the source to v or, if negative, from v to the sink. Pushing this
amount along an arc before the search changes no cut: the reverse arc may return it.

Source: Goldberg, Hed, Kaplan, Tarjan and Werneck, "Maximum Flows by Incremental
Breadth-First Search" (2011). The order of the sweeps that precede it is that of
Kolmogorov, "Convergent Tree-Reweighted Message Passing for Energy Minimization" (2006),
section 5.1.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import get_number, put_number, span

# values of ``parent`` that are no arcs
NO_PARENT, TERMINAL, ORPHAN = -1, -2, -3
INFINITE_LEVEL = 2**30
# Rises of one node in one adoption before it leaves the tree; bounds the orphan list.
MAX_RISES = 2
# Offsets into ``counters``, for the source's and the sink's tree in turn: beginning
# of the queue, its length, and the depth to which the tree has grown.
FIRST, COUNT, TREE_DEPTH = 0, 2, 4
# position of the number of adoptions so far, before the rises of each node
ADOPTION_ROUND = 6


@kernel
def build_adjacency(edges, index, starts, heads, reverse_arc, arc_of_edge, is_valid):
    """Fill the arcs of the graphs ``edges[L, E, 2]``, and their copy ``index``.

    arc_of_edge[L, E] are the arcs from lower to higher nodes. A node's arcs to lower
    nodes precede its arcs to higher ones: a sweep reads one kind from one end, up to
    the first arc of the other kind. Fill is_valid[0]: whether each edge joins two
    different nodes in range; if not, the other arrays are undefined.
    """
    V = starts.shape[1] - 1
    is_valid[0] = True
    before, after = arrays.empty(V + 1, np.int32), arrays.empty(V + 1, np.int32)
    for graph_index in range(len(edges)):
        before[:] = 0
        after[:] = 0
        for e in range(edges.shape[1]):
            i, j = edges[graph_index, e, 0], edges[graph_index, e, 1]
            if i == j or not 0 <= i < V or not 0 <= j < V:
                is_valid[0] = False
                return
            index[graph_index, e, 0], index[graph_index, e, 1] = i, j
            before[max(i, j)] += 1
            after[min(i, j)] += 1
        offset = 0
        for v in range(V):
            starts[graph_index, v] = offset
            offset += before[v]
            # both are filled outwards from the boundary between lower and higher
            # neighbours
            before[v], middle = offset, offset
            offset += after[v]
            after[v] = middle
        starts[graph_index, V] = offset
        for e in range(edges.shape[1]):
            i, j = index[graph_index, e, 0], index[graph_index, e, 1]
            low, high = min(i, j), max(i, j)
            before[high] -= 1
            a, b = after[low], before[high]
            after[low] += 1
            heads[graph_index, a], heads[graph_index, b] = high, low
            reverse_arc[graph_index, a], reverse_arc[graph_index, b] = b, a
            arc_of_edge[graph_index, e] = a if i < j else b


@subroutine
def make_scratch(V, E):
    """Scratch of V nodes and E edges.

    Parents, levels and two queues ``[4, V]``; orphans; candidate arcs; flags of queued
    nodes; counters.
    """
    return (
        arrays.empty((4, V), np.int32),
        # each rise of a node, or its removal, makes an orphan of each child
        arrays.empty(V + 2 * (MAX_RISES + 2) * E, np.int32),
        arrays.empty(2 * E, np.int32),
        arrays.empty(2 * V, np.int8),
        arrays.empty(ADOPTION_ROUND + 1 + V, np.int64),
    )


@subroutine
def max_flow(starts, heads, reverse_arc, residual, terminal_residual, scratch):
    """Push a maximum flow and return its value; levels remain in ``scratch[0][1]``.

    Nodes of positive level are the source side of a minimum cut. Capacities may be
    infinite; if an infinite path from source to sink exists, inf is returned at once.
    """
    V = len(terminal_residual)
    graph = (
        span(starts),
        span(heads),
        span(reverse_arc),
        span(residual),
        span(terminal_residual),
    )
    integers, orphans, arcs, queued, counters = scratch
    trees = span(integers[0]), span(integers[1]), span(orphans), span(arcs)
    queues = span(integers[2]), span(integers[3]), span(queued), span(counters)
    flow = 0.0
    if _has_dense_terminals(V, terminal_residual):
        flow = _push_sweep(0, V, 1, graph) + _push_sweep(V - 1, -1, -1, graph)
    return flow + _augment_all_paths(V, graph, trees, queues)


@subroutine
def _has_dense_terminals(V, terminal_residual):
    """Whether more than half of the nodes have terminal capacity.

    Sweeps save time only then.
    """
    count = 0
    for v in range(V):
        count += terminal_residual[v] != 0
    return 2 * count > V


@subroutine
def _push_sweep(first, last, step, graph):
    """Push terminal capacities on to later neighbours, node by node; return the flow.

    The last neighbour is offered the whole excess first, so that it gathers at few
    nodes. Amounts of opposite sign cancel there, which is most of the flow, for one
    read of each arc.
    """
    starts, heads, reverse_arc, residual, terminal_residual = graph
    flow = 0.0
    for v in range(first, last, step):
        excess = get_number(terminal_residual, v)
        # an infinite excess would leave inf - inf
        if excess == 0 or np.isinf(excess):
            continue
        sign, remaining = (1.0, excess) if excess > 0 else (-1.0, -excess)
        begin, end = get_number(starts, v), get_number(starts, v + 1)
        a = end - 1 if step > 0 else begin
        while begin <= a < end:
            u = get_number(heads, a)
            if (u > v) != (step > 0):
                break
            forward_arc, backward_arc = (
                (a, get_number(reverse_arc, a))
                if excess > 0
                else (get_number(reverse_arc, a), a)
            )
            a -= step
            amount = min(remaining, get_number(residual, forward_arc))
            put_number(
                residual, forward_arc, get_number(residual, forward_arc) - amount
            )
            put_number(
                residual, backward_arc, get_number(residual, backward_arc) + amount
            )
            residual_u = get_number(terminal_residual, u)
            flow += max(min(amount, -sign * residual_u), 0.0)
            put_number(terminal_residual, u, residual_u + sign * amount)
            remaining -= amount
        put_number(terminal_residual, v, sign * remaining)
    return flow


@subroutine
def _augment_all_paths(V, graph, trees, queues):
    """Push along shortest paths between trees that grow from source and sink.

    Levels are distances from the terminal, negative in the sink's tree, 0 in none. A
    tree grows by one level at a time, from the nodes in its queue.
    """
    terminal_residual = graph[4]
    parent, level, _, _ = trees
    queued, counters = queues[2], queues[3]
    for side in range(2):
        put_number(counters, side + FIRST, 0)
        put_number(counters, side + COUNT, 0)
        put_number(counters, side + TREE_DEPTH, 0)
    put_number(counters, ADOPTION_ROUND, 0)
    for v in range(V):
        terminal = get_number(terminal_residual, v)
        put_number(queued, v, 0)
        put_number(queued, V + v, 0)
        put_number(counters, ADOPTION_ROUND + 1 + v, 0)
        put_number(parent, v, TERMINAL if terminal != 0 else NO_PARENT)
        put_number(level, v, 1 if terminal > 0 else (-1 if terminal < 0 else 0))
        if terminal != 0:
            _enqueue(v, V, 0 if terminal > 0 else 1, queues)
    flow = 0.0
    while get_number(counters, COUNT) > 0:
        # the shallower tree grows, as long as it has nodes to grow from
        sink_is_shallower = get_number(counters, 1 + TREE_DEPTH) < get_number(
            counters, TREE_DEPTH
        )
        side = 1 if sink_is_shallower and get_number(counters, 1 + COUNT) > 0 else 0
        queue = queues[1] if side else queues[0]
        sign = -1 if side else 1
        max_depth = get_number(counters, side + TREE_DEPTH) + 1
        put_number(counters, side + TREE_DEPTH, max_depth)
        for _ in range(get_number(counters, side + COUNT)):
            first = get_number(counters, side + FIRST)
            v = get_number(queue, first)
            put_number(counters, side + FIRST, first + 1 if first + 1 < V else 0)
            put_number(counters, side + COUNT, get_number(counters, side + COUNT) - 1)
            put_number(queued, side * V + v, 0)
            depth = sign * get_number(level, v)
            # a node that rose meanwhile belongs to the next level
            if depth == max_depth + 1:
                _enqueue(v, V, side, queues)
            elif depth > 0:
                flow += _grow_from_node(v, V, side, graph, trees, queues)
                if flow == np.inf:
                    return flow
    return flow


@subroutine(forceinline=True)
def _enqueue(v, V, side, queues):
    """Append v to the circular queue of one tree, unless it is in it."""
    source_queue, sink_queue, queued, counters = queues
    if get_number(queued, side * V + v):
        return
    position = get_number(counters, side + FIRST) + get_number(counters, side + COUNT)
    position = position if position < V else position - V
    if side:
        put_number(sink_queue, position, v)
    else:
        put_number(source_queue, position, v)
    put_number(counters, side + COUNT, get_number(counters, side + COUNT) + 1)
    put_number(queued, side * V + v, 1)


@subroutine(forceinline=True)
def _grow_from_node(v, V, side, graph, trees, queues):
    """Add v's neighbours to its tree; return the flow over arcs to the other tree."""
    starts, heads, reverse_arc, residual, _ = graph
    parent, level, _, arcs = trees
    sign = -1 if side else 1
    level_of_v = get_number(level, v)
    flow, num_candidates = 0.0, 0
    # candidates are listed without branches first: mispredictions cost more than writes
    for a in range(get_number(starts, v), get_number(starts, v + 1)):
        has_residual = (
            get_number(residual, get_number(reverse_arc, a) if side else a) > 0
        )
        put_number(arcs, num_candidates, a)
        num_candidates += has_residual & (
            sign * get_number(level, get_number(heads, a)) <= 0
        )
    for i in range(num_candidates):
        a = get_number(arcs, i)
        u, reverse = get_number(heads, a), get_number(reverse_arc, a)
        forward_arc = reverse if side else a
        while (get_number(residual, forward_arc) > 0) & (
            sign * get_number(level, u) <= 0
        ):
            if get_number(level, u) == 0:
                put_number(level, u, level_of_v + sign)
                put_number(parent, u, reverse)
                _enqueue(u, V, side, queues)
                break
            flow += _augment_path(forward_arc, V, graph, trees, queues)
            if flow == np.inf:
                return flow
            # an augmentation has moved v, and the candidates are no longer of its level
            if get_number(level, v) != level_of_v:
                if sign * get_number(level, v) > 0:
                    _enqueue(v, V, side, queues)
                return flow
    return flow


@subroutine(forceinline=True)
def _augment_path(bridge, V, graph, trees, queues):
    """Push the flow that fits through the path over the arc ``bridge``; return it.

    It is the minimum of ``residual`` along the path and of ``terminal_residual`` at its
    two ends. A node becomes an orphan if the arc to its parent is saturated, or if its
    terminal capacity is used up. Each tree adopts its orphans at once.
    """
    _, heads, reverse_arc, residual, terminal_residual = graph
    parent, _, orphans, _ = trees
    source_end, sink_end = (
        get_number(heads, get_number(reverse_arc, bridge)),
        get_number(heads, bridge),
    )
    amount = get_number(residual, bridge)
    v = source_end
    while get_number(parent, v) != TERMINAL:
        amount = min(
            amount, get_number(residual, get_number(reverse_arc, get_number(parent, v)))
        )
        v = get_number(heads, get_number(parent, v))
    amount = min(amount, get_number(terminal_residual, v))
    v = sink_end
    while get_number(parent, v) != TERMINAL:
        amount = min(amount, get_number(residual, get_number(parent, v)))
        v = get_number(heads, get_number(parent, v))
    amount = min(amount, -get_number(terminal_residual, v))
    if amount == np.inf:
        return amount
    put_number(residual, bridge, get_number(residual, bridge) - amount)
    put_number(
        residual,
        get_number(reverse_arc, bridge),
        get_number(residual, get_number(reverse_arc, bridge)) + amount,
    )
    for side in range(2):
        num_orphans = 0
        v = sink_end if side else source_end
        while get_number(parent, v) != TERMINAL:
            a = get_number(parent, v)
            u = get_number(heads, a)
            forward_arc = a if side else get_number(reverse_arc, a)
            backward_arc = get_number(reverse_arc, a) if side else a
            put_number(
                residual, backward_arc, get_number(residual, backward_arc) + amount
            )
            remaining = get_number(residual, forward_arc) - amount
            put_number(residual, forward_arc, remaining)
            if not remaining > 0:
                put_number(parent, v, ORPHAN)
                put_number(orphans, num_orphans, v)
                num_orphans += 1
            v = u
        remaining = abs(get_number(terminal_residual, v)) - amount
        put_number(terminal_residual, v, -remaining if side else remaining)
        if not remaining > 0:
            put_number(parent, v, ORPHAN)
            put_number(orphans, num_orphans, v)
            num_orphans += 1
        if num_orphans > 0:
            _adopt_orphans(num_orphans, V, side, graph, trees, queues)
    return amount


@subroutine(forceinline=True)
def _adopt_orphans(num_orphans, V, side, graph, trees, queues):
    """Find new parents for orphans, as near to the terminal as possible.

    If the level of an orphan rises, its children become orphans. Orphans that would be
    deeper than the tree leave it. Orphans that rise more than ``MAX_RISES`` times leave
    it, too, since they are likely to be cut off; their neighbours are queued to add
    them again.
    """
    starts, heads, reverse_arc, residual, _ = graph
    parent, level, orphans, _ = trees
    sign = -1 if side else 1
    counters = queues[3]
    max_depth = get_number(counters, side + TREE_DEPTH) + 1
    round_index = get_number(counters, ADOPTION_ROUND) + MAX_RISES + 1
    put_number(counters, ADOPTION_ROUND, round_index)
    # reversed: nearest to the terminal first
    for i in range(num_orphans // 2):
        v = get_number(orphans, i)
        put_number(orphans, i, get_number(orphans, num_orphans - 1 - i))
        put_number(orphans, num_orphans - 1 - i, v)
    next_index = 0
    while next_index < num_orphans:
        v = get_number(orphans, next_index)
        begin, end = get_number(starts, v), get_number(starts, v + 1)
        min_depth, chosen, num_listed = INFINITE_LEVEL, -1, num_orphans
        for a in range(begin, end):
            u, reverse = get_number(heads, a), get_number(reverse_arc, a)
            depth = sign * get_number(level, u)
            has_residual = get_number(residual, a if side else reverse) > 0
            is_nearer = (depth > 0) & (depth < min_depth) & has_residual
            min_depth = depth if is_nearer else min_depth
            chosen = a if is_nearer else chosen
            # written in any case; counted only if u is a child of v
            put_number(orphans, num_listed, u)
            num_listed += get_number(parent, u) == reverse
        next_index += 1
        # a parent at the old depth: no level changes, and the children keep v
        if min_depth + 1 == sign * get_number(level, v):
            put_number(parent, v, chosen)
            continue
        for i in range(num_orphans, num_listed):
            put_number(parent, get_number(orphans, i), ORPHAN)
        num_orphans = num_listed
        num_rises = max(get_number(counters, ADOPTION_ROUND + 1 + v), round_index) + 1
        put_number(counters, ADOPTION_ROUND + 1 + v, num_rises)
        if min_depth < max_depth and num_rises <= round_index + MAX_RISES:
            put_number(parent, v, chosen)
            put_number(level, v, sign * (min_depth + 1))
            if min_depth + 1 == max_depth:
                _enqueue(v, V, side, queues)
            continue
        put_number(parent, v, NO_PARENT)
        put_number(level, v, 0)
        if min_depth < max_depth:
            for a in range(begin, end):
                u = get_number(heads, a)
                has_residual = (
                    get_number(residual, a if side else get_number(reverse_arc, a)) > 0
                )
                if has_residual & (sign * get_number(level, u) > 0):
                    _enqueue(u, V, side, queues)
