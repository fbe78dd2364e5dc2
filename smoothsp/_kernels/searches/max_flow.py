"""Maximum flows by two search trees: minimum cuts of binary pairwise energies.

A graph has V nodes and two arcs, there and back, for each edge: of node v those from
``starts[v]`` to ``starts[v + 1]``, ``heads`` where they lead, ``back`` the other one of
the pair, ``room`` what still fits through them. ``ends[v]`` is what still fits from the
source to v, or, negative, from v to the sink. To move such an amount along an arc is
no loss: it may come back.

Source: Boykov and Kolmogorov, "An Experimental Comparison of Min-Cut/Max-Flow
Algorithms for Energy Minimization in Vision" (2004), section 3; the passes before it
are those of Kolmogorov, "Convergent Tree-Reweighted Message Passing for Energy
Minimization" (2006), section 5.1, for two labels.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import get, put, span

FREE, SOURCE, SINK = 0, 1, 2
# in place of an arc to a parent
NO_PARENT, TERMINAL, ORPHAN = -1, -2, -3
FAR = 2**30


@kernel
def lay_out(index, starts, heads, back, places):
    """Fill the graph of edges ``index[E, 2]``; places[e] is the arc there."""
    E, V = len(index), len(starts) - 1
    starts[:] = 0
    for e in range(E):
        starts[index[e, 0] + 1] += 1
        starts[index[e, 1] + 1] += 1
    for v in range(V):
        starts[v + 1] += starts[v]
    at = starts[:V].copy()
    for e in range(E):
        i, j = index[e, 0], index[e, 1]
        a, b = at[i], at[j]
        if i == j:
            b += 1
        at[i] += 1
        at[j] += 1
        heads[a], heads[b] = j, i
        back[a], back[b] = b, a
        places[e] = a


@subroutine
def scratch(V):
    """Parents, stamps, distances, a queue and orphans, trees and marks of V nodes."""
    return arrays.empty((5, V + 1), np.int32), arrays.empty((2, V), np.int8)


@subroutine
def maximise(starts, heads, back, room, ends, memory):
    """Push as much as fits. The amount; in ``memory[1][0]`` the trees at the end.

    Nodes of the tree of the source are on its side of a minimum cut. Infinite amounts
    are allowed; if one fits from end to end, it is returned at once.
    """
    V = len(ends)
    graph = span(starts), span(heads), span(back), span(room), span(ends)
    parent, stamp, depth, queue, orphans = memory[0]
    nodes = span(parent), span(stamp), span(depth), span(memory[1][0])
    waiting = span(queue), span(memory[1][1])
    flow = 0.0
    if _are_many(V, ends):
        flow = _pass_on(0, V, 1, graph) + _pass_on(V - 1, -1, -1, graph)
    return flow + _grow_trees(V, graph, nodes, waiting, span(orphans))


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

    Each of them is offered the same part. Where amounts from both ends meet they
    cancel, which takes most of the flow at the price of two looks at each arc.
    """
    starts, heads, back, room, ends = graph
    flow = 0.0
    for v in range(first, last, step):
        left = get(ends, v)
        if left == 0 or np.isinf(left):
            continue
        begin, end = get(starts, v), get(starts, v + 1)
        later = 0
        for a in range(begin, end):
            later += (get(heads, a) > v) == (step > 0)
        sign, rest = (1.0, left) if left > 0 else (-1.0, -left)
        part = rest / max(later, end - begin - later, 1)
        for a in range(begin, end):
            u = get(heads, a)
            if (u > v) != (step > 0):
                continue
            there, here = (a, get(back, a)) if left > 0 else (get(back, a), a)
            amount = min(part, rest, get(room, there))
            put(room, there, get(room, there) - amount)
            put(room, here, get(room, here) + amount)
            met = get(ends, u)
            flow += max(min(amount, -sign * met), 0.0)
            put(ends, u, met + sign * amount)
            rest -= amount
        put(ends, v, sign * rest)
    return flow


@subroutine
def _grow_trees(V, graph, nodes, waiting, orphans):
    """Push what fits along paths between trees that grow from the two ends."""
    ends = graph[4]
    parent, stamp, depth, tree = nodes
    queue, waits = waiting
    flow, clock = 0.0, 0
    first = count = 0
    for v in range(V):
        put(stamp, v, 0)
        put(depth, v, 1)
        held = get(ends, v)
        put(waits, v, held != 0)
        put(parent, v, TERMINAL if held != 0 else NO_PARENT)
        put(tree, v, SOURCE if held > 0 else (SINK if held < 0 else FREE))
        if held != 0:
            put(queue, count, v)
            count += 1
    # the node that is being grown stays first in the queue
    while count > 0:
        v = get(queue, first)
        bridge = -1
        if get(parent, v) != NO_PARENT:
            bridge, count = _grow(v, V, graph, nodes, waiting, first, count)
        if bridge < 0:
            put(waits, v, 0)
            first = first + 1 if first + 1 < V else 0
            count -= 1
            continue
        clock += 1
        amount, lost = _augment(bridge, graph, parent, orphans)
        flow += amount
        if flow == np.inf:
            return flow
        at = 0
        while at < lost:
            v = get(orphans, at)
            at += 1
            if _adopt(v, graph, nodes, clock):
                continue
            if lost + get(graph[0], v + 1) - get(graph[0], v) > V + 1:
                # its front part has been processed
                for i in range(at, lost):
                    put(orphans, i - at, get(orphans, i))
                lost -= at
                at = 0
            lost, count = _let_go(
                v, V, graph, nodes, waiting, first, count, orphans, lost
            )
    return flow


@subroutine(forceinline=True)
def _wait(v, V, waiting, first, count):
    queue, waits = waiting
    if get(waits, v):
        return count
    at = first + count
    put(queue, at if at < V else at - V, v)
    put(waits, v, 1)
    return count + 1


@subroutine(forceinline=True)
def _grow(v, V, graph, nodes, waiting, first, count):
    """Grow a tree from v until an arc joins the source's tree to the sink's."""
    starts, heads, back, room, _ = graph
    parent, stamp, depth, tree = nodes
    mine = get(tree, v)
    for a in range(get(starts, v), get(starts, v + 1)):
        other = get(back, a)
        if not get(room, a if mine == SOURCE else other) > 0:
            continue
        u = get(heads, a)
        if get(tree, u) == FREE:
            put(tree, u, mine)
            count = _wait(u, V, waiting, first, count)
        elif get(tree, u) != mine:
            return (a if mine == SOURCE else other), count
        elif get(stamp, u) > get(stamp, v) or get(depth, u) <= get(depth, v):
            continue
        # free until now, or this path to the end is shorter
        put(parent, u, other)
        put(stamp, u, get(stamp, v))
        put(depth, u, get(depth, v) + 1)
    return -1, count


@subroutine(forceinline=True)
def _augment(bridge, graph, parent, orphans):
    """Push what fits through the path over an arc; return it, and how many orphans."""
    _, heads, back, room, ends = graph
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
        return amount, 0
    lost = 0
    put(room, bridge, get(room, bridge) - amount)
    put(room, get(back, bridge), get(room, get(back, bridge)) + amount)
    for side in range(2):
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
    return amount, lost


@subroutine(forceinline=True)
def _adopt(v, graph, nodes, clock):
    """Find v a parent in its tree, the nearest to the end; whether there is one."""
    starts, heads, back, room, _ = graph
    parent, stamp, depth, tree = nodes
    mine = get(tree, v)
    nearest, chosen = FAR, -1
    for a in range(get(starts, v), get(starts, v + 1)):
        u = get(heads, a)
        if get(tree, u) != mine:
            continue
        if not get(room, get(back, a) if mine == SOURCE else a) > 0:
            continue
        # whether its path ends at the source or the sink
        steps, w = 0, u
        while True:
            if get(stamp, w) == clock:
                steps += get(depth, w)
                break
            up = get(parent, w)
            steps += 1
            if up == TERMINAL:
                put(stamp, w, clock)
                put(depth, w, 1)
                break
            if up < 0:
                steps = -1
                break
            w = get(heads, up)
        if steps < 0:
            continue
        if steps < nearest:
            nearest, chosen = steps, a
        w = u
        while get(stamp, w) != clock:
            put(stamp, w, clock)
            put(depth, w, steps)
            steps -= 1
            w = get(heads, get(parent, w))
    if chosen < 0:
        return False
    put(parent, v, chosen)
    put(stamp, v, clock)
    put(depth, v, nearest + 1)
    return True


@subroutine(forceinline=True)
def _let_go(v, V, graph, nodes, waiting, first, count, orphans, lost):
    """Take v out of its tree, its children being orphans; those and who waits."""
    starts, heads, back, room, _ = graph
    parent, _, _, tree = nodes
    mine = get(tree, v)
    put(tree, v, FREE)
    put(parent, v, NO_PARENT)
    for a in range(get(starts, v), get(starts, v + 1)):
        u = get(heads, a)
        if get(tree, u) != mine:
            continue
        if get(room, get(back, a) if mine == SOURCE else a) > 0:
            count = _wait(u, V, waiting, first, count)
        up = get(parent, u)
        if up >= 0 and get(heads, up) == v:
            put(parent, u, ORPHAN)
            put(orphans, lost, u)
            lost += 1
    return lost, count
