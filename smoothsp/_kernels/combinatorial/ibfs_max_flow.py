"""Maximum flows by two search trees: minimum cuts of binary pairwise energies.

A graph has V nodes and two arcs, there and back, for each edge: of node v those from
``starts[v]`` to ``starts[v + 1]``, ``heads`` where they lead, ``back`` the other one of
the pair, ``room`` what still fits through them. ``ends[v]`` is what still fits from the
source to v, or, negative, from v to the sink. To move such an amount along an arc is
no loss: it may come back.

Source: Goldberg, Hed, Kaplan, Tarjan and Werneck, "Maximum Flows by Incremental
Breadth-First Search" (2011). The order of the passes before it is that of Kolmogorov,
"Convergent Tree-Reweighted Message Passing for Energy Minimization" (2006), section
5.1.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import get, put, span

# in place of an arc to a parent
NO_PARENT, TERMINAL, ORPHAN = -1, -2, -3
FAR = 2**30
# How often a node may rise while orphans of one path are adopted.
RISES = 2
# of each tree, in turn: where its queue begins, how many wait, and levels that grew
FIRST, COUNT, GROWN = 0, 2, 4
# how many times orphans were adopted
TIMES = 6


@kernel
def build_adjacency(given, index, starts, heads, back, places, found):
    """Fill the graphs of edges ``given[L, E, 2]``, which ``index`` is a copy of.

    places[L, E] are the arcs there. Those of a node to later nodes stand last: a pass
    reads them from one end, up to the first of the other kind. Fills found[0]:
    whether all edges have two nodes; if not, nothing else means anything.
    """
    V = starts.shape[1] - 1
    found[0] = True
    before, after = arrays.empty(V + 1, np.int32), arrays.empty(V + 1, np.int32)
    for own in range(len(given)):
        before[:] = 0
        after[:] = 0
        for e in range(given.shape[1]):
            i, j = given[own, e, 0], given[own, e, 1]
            if i == j or not 0 <= i < V or not 0 <= j < V:
                found[0] = False
                return
            index[own, e, 0], index[own, e, 1] = i, j
            before[max(i, j)] += 1
            after[min(i, j)] += 1
        at = 0
        for v in range(V):
            starts[own, v] = at
            at += before[v]
            # both ways from where earlier nodes meet later ones
            before[v], middle = at, at
            at += after[v]
            after[v] = middle
        starts[own, V] = at
        for e in range(given.shape[1]):
            i, j = index[own, e, 0], index[own, e, 1]
            low, high = min(i, j), max(i, j)
            before[high] -= 1
            a, b = after[low], before[high]
            after[low] += 1
            heads[own, a], heads[own, b] = high, low
            back[own, a], back[own, b] = b, a
            places[own, e] = a if i < j else b


@subroutine
def scratch(V, E):
    """Parents, levels and two queues of V nodes; orphans, arcs, who waits, fronts."""
    return (
        arrays.empty((4, V), np.int32),
        # each rise, or the end of it, makes an orphan of each child
        arrays.empty(V + 2 * (RISES + 2) * E, np.int32),
        arrays.empty(2 * E, np.int32),
        arrays.empty(2 * V, np.int8),
        arrays.empty(TIMES + 1 + V, np.int64),
    )


@subroutine
def maximise(starts, heads, back, room, ends, memory):
    """Push as much as fits. The amount; in ``memory[0][1]`` the levels at the end.

    Nodes of levels above 0 are on the side of the source of a minimum cut. Infinite
    amounts are allowed; if one fits from end to end, it is returned at once.
    """
    V = len(ends)
    graph = span(starts), span(heads), span(back), span(room), span(ends)
    integers, orphans, arcs, waits, fronts = memory
    trees = span(integers[0]), span(integers[1]), span(orphans), span(arcs)
    waiting = span(integers[2]), span(integers[3]), span(waits), span(fronts)
    flow = 0.0
    if _are_many(V, ends):
        flow = _pass_on(0, V, 1, graph) + _pass_on(V - 1, -1, -1, graph)
    return flow + _grow_trees(V, graph, trees, waiting)


@subroutine
def _are_many(V, ends):
    """Whether passes pay: where more than half of the nodes have room to an end."""
    count = 0
    for v in range(V):
        count += ends[v] != 0
    return 2 * count > V


@subroutine
def _pass_on(first, last, step, graph):
    """Move, node by node, what fits from an end on to later neighbours; the flow.

    The last of them are offered all of it, so that it gathers at few nodes. Where
    amounts from both ends meet they cancel, which takes most of the flow at the price
    of a look at each arc.
    """
    starts, heads, back, room, ends = graph
    flow = 0.0
    for v in range(first, last, step):
        left = get(ends, v)
        if left == 0 or np.isinf(left):
            continue
        sign, rest = (1.0, left) if left > 0 else (-1.0, -left)
        begin, end = get(starts, v), get(starts, v + 1)
        a = end - 1 if step > 0 else begin
        while begin <= a < end:
            u = get(heads, a)
            if (u > v) != (step > 0):
                break
            there, here = (a, get(back, a)) if left > 0 else (get(back, a), a)
            a -= step
            amount = min(rest, get(room, there))
            put(room, there, get(room, there) - amount)
            put(room, here, get(room, here) + amount)
            met = get(ends, u)
            flow += max(min(amount, -sign * met), 0.0)
            put(ends, u, met + sign * amount)
            rest -= amount
        put(ends, v, sign * rest)
    return flow


@subroutine
def _grow_trees(V, graph, trees, waiting):
    """Push what fits along shortest paths between trees that grow from the two ends.

    Levels are distances from an end, negative in the tree of the sink, 0 in none. A
    tree grows by one level at a time, from the nodes that wait in its queue.
    """
    ends = graph[4]
    parent, level, _, _ = trees
    waits, fronts = waiting[2], waiting[3]
    for side in range(2):
        put(fronts, side + FIRST, 0)
        put(fronts, side + COUNT, 0)
        put(fronts, side + GROWN, 0)
    put(fronts, TIMES, 0)
    for v in range(V):
        held = get(ends, v)
        put(waits, v, 0)
        put(waits, V + v, 0)
        put(fronts, TIMES + 1 + v, 0)
        put(parent, v, TERMINAL if held != 0 else NO_PARENT)
        put(level, v, 1 if held > 0 else (-1 if held < 0 else 0))
        if held != 0:
            _wait(v, V, 0 if held > 0 else 1, waiting)
    flow = 0.0
    while get(fronts, COUNT) > 0:
        behind = get(fronts, 1 + GROWN) < get(fronts, GROWN)
        side = 1 if behind and get(fronts, 1 + COUNT) > 0 else 0
        queue = waiting[1] if side else waiting[0]
        sign = -1 if side else 1
        grown = get(fronts, side + GROWN) + 1
        put(fronts, side + GROWN, grown)
        for _ in range(get(fronts, side + COUNT)):
            first = get(fronts, side + FIRST)
            v = get(queue, first)
            put(fronts, side + FIRST, first + 1 if first + 1 < V else 0)
            put(fronts, side + COUNT, get(fronts, side + COUNT) - 1)
            put(waits, side * V + v, 0)
            own = sign * get(level, v)
            if own == grown + 1:
                _wait(v, V, side, waiting)
            elif own > 0:
                flow += _grow(v, V, side, graph, trees, waiting)
                if flow == np.inf:
                    return flow
    return flow


@subroutine(forceinline=True)
def _wait(v, V, side, waiting):
    one, other, waits, fronts = waiting
    if get(waits, side * V + v):
        return
    at = get(fronts, side + FIRST) + get(fronts, side + COUNT)
    at = at if at < V else at - V
    if side:
        put(other, at, v)
    else:
        put(one, at, v)
    put(fronts, side + COUNT, get(fronts, side + COUNT) + 1)
    put(waits, side * V + v, 1)


@subroutine(forceinline=True)
def _grow(v, V, side, graph, trees, waiting):
    """Take the neighbours of v into its tree; the flow over arcs to the other tree."""
    starts, heads, back, room, _ = graph
    parent, level, _, arcs = trees
    sign = -1 if side else 1
    mine = get(level, v)
    flow, count = 0.0, 0
    # what is found here and now is told apart later: few branches are guessed wrong
    for a in range(get(starts, v), get(starts, v + 1)):
        fits = get(room, get(back, a) if side else a) > 0
        put(arcs, count, a)
        count += fits & (sign * get(level, get(heads, a)) <= 0)
    for i in range(count):
        a = get(arcs, i)
        u, other = get(heads, a), get(back, a)
        used = other if side else a
        while (get(room, used) > 0) & (sign * get(level, u) <= 0):
            if get(level, u) == 0:
                put(level, u, mine + sign)
                put(parent, u, other)
                _wait(u, V, side, waiting)
                break
            flow += _augment(used, V, graph, trees, waiting)
            if flow == np.inf:
                return flow
            if get(level, v) != mine:
                if sign * get(level, v) > 0:
                    _wait(v, V, side, waiting)
                return flow
    return flow


@subroutine(forceinline=True)
def _augment(bridge, V, graph, trees, waiting):
    """Push what fits through the path over an arc; return it.

    The amount is the least of ``room`` along the path and of what is left at its two
    ends. A node becomes an orphan where the arc that joins it to its parent is then
    full, or its end has nothing left. Each tree adopts its orphans at once.
    """
    _, heads, back, room, ends = graph
    parent, _, orphans, _ = trees
    below, above = get(heads, get(back, bridge)), get(heads, bridge)
    amount = get(room, bridge)
    v = below
    while get(parent, v) != TERMINAL:
        amount = min(amount, get(room, get(back, get(parent, v))))
        v = get(heads, get(parent, v))
    amount = min(amount, get(ends, v))
    v = above
    while get(parent, v) != TERMINAL:
        amount = min(amount, get(room, get(parent, v)))
        v = get(heads, get(parent, v))
    amount = min(amount, -get(ends, v))
    if amount == np.inf:
        return amount
    put(room, bridge, get(room, bridge) - amount)
    put(room, get(back, bridge), get(room, get(back, bridge)) + amount)
    for side in range(2):
        lost = 0
        v = above if side else below
        while get(parent, v) != TERMINAL:
            a = get(parent, v)
            u = get(heads, a)
            down = a if side else get(back, a)
            up = get(back, a) if side else a
            put(room, up, get(room, up) + amount)
            left = get(room, down) - amount
            put(room, down, left)
            if not left > 0:
                put(parent, v, ORPHAN)
                put(orphans, lost, v)
                lost += 1
            v = u
        left = abs(get(ends, v)) - amount
        put(ends, v, -left if side else left)
        if not left > 0:
            put(parent, v, ORPHAN)
            put(orphans, lost, v)
            lost += 1
        if lost > 0:
            _adopt(lost, V, side, graph, trees, waiting)
    return amount


@subroutine(forceinline=True)
def _adopt(lost, V, side, graph, trees, waiting):
    """Find orphans new parents, as near to the end as they can be.

    Those whose level rises leave their children as orphans; those that would be farther
    than the tree has grown leave it. So do those that rise again and again, as parts of
    a tree would that were cut off: their neighbours wait to take them again.
    """
    starts, heads, back, room, _ = graph
    parent, level, orphans, _ = trees
    sign = -1 if side else 1
    fronts = waiting[3]
    farthest = get(fronts, side + GROWN) + 1
    times = get(fronts, TIMES) + RISES + 1
    put(fronts, TIMES, times)
    # the nearest first
    for i in range(lost // 2):
        v = get(orphans, i)
        put(orphans, i, get(orphans, lost - 1 - i))
        put(orphans, lost - 1 - i, v)
    at = 0
    while at < lost:
        v = get(orphans, at)
        begin, end = get(starts, v), get(starts, v + 1)
        nearest, chosen, more = FAR, -1, lost
        for a in range(begin, end):
            u, other = get(heads, a), get(back, a)
            far = sign * get(level, u)
            fits = get(room, a if side else other) > 0
            nearer = (far > 0) & (far < nearest) & fits
            nearest = far if nearer else nearest
            chosen = a if nearer else chosen
            # in case that it is a child
            put(orphans, more, u)
            more += get(parent, u) == other
        at += 1
        if nearest + 1 == sign * get(level, v):
            put(parent, v, chosen)
            continue
        for i in range(lost, more):
            put(parent, get(orphans, i), ORPHAN)
        lost = more
        rises = max(get(fronts, TIMES + 1 + v), times) + 1
        put(fronts, TIMES + 1 + v, rises)
        if nearest < farthest and rises <= times + RISES:
            put(parent, v, chosen)
            put(level, v, sign * (nearest + 1))
            if nearest + 1 == farthest:
                _wait(v, V, side, waiting)
            continue
        put(parent, v, NO_PARENT)
        put(level, v, 0)
        if nearest < farthest:
            for a in range(begin, end):
                u = get(heads, a)
                fits = get(room, a if side else get(back, a)) > 0
                if fits & (sign * get(level, u) > 0):
                    _wait(u, V, side, waiting)
