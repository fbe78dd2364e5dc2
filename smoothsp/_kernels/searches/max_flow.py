"""Maximum flows by two search trees: minimum cuts of binary pairwise energies.

A graph has V nodes and two arcs, there and back, for each edge: of node v those from
``starts[v]`` to ``starts[v + 1]``, ``heads`` where they lead, ``back`` the other one of
the pair, ``room`` what still fits through them. ``ends[v]`` is what still fits from the
source to v, or, negative, from v to the sink.

Source: Boykov and Kolmogorov, "An Experimental Comparison of Min-Cut/Max-Flow
Algorithms for Energy Minimization in Vision" (2004), section 3.
"""

import numpy as np
from numba import njit

from smoothsp._kernels.compilation.kernel import kernel

FREE, SOURCE, SINK = 0, 1, 2
# in place of an arc to a parent
NO_PARENT, TERMINAL, ORPHAN = -1, -2, -3


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


@njit(error_model="numpy", no_cpython_wrapper=True)
def scratch(V):
    """Parents, stamps, distances, two queues, trees and marks of V nodes."""
    return np.empty((6, V + 1), np.int32), np.empty((2, V), np.int8)


@njit(error_model="numpy", no_cpython_wrapper=True)
def maximise(starts, heads, back, room, ends, memory):
    """Push as much as fits. The amount; in ``memory[1][0]`` the trees at the end.

    Nodes of the tree of the source are on its side of a minimum cut. Infinite amounts
    are allowed; if one fits from end to end, it is returned at once.
    """
    V = len(ends)
    parent, stamp, depth, queue, orphans, _ = memory[0]
    tree, waits = memory[1]
    flow, clock = 0.0, 0
    first = count = 0
    for v in range(V):
        stamp[v] = depth[v] = 0
        waits[v] = 0
        if ends[v] != 0:
            tree[v] = SOURCE if ends[v] > 0 else SINK
            parent[v] = TERMINAL
            depth[v] = 1
            queue[count] = v
            count += 1
            waits[v] = 1
        else:
            tree[v], parent[v] = FREE, NO_PARENT
    # a node that is in work stays first in the queue
    while count > 0:
        v = queue[first]
        bridge = -1
        if parent[v] != NO_PARENT:
            bridge, count = _grow(
                v, starts, heads, back, room, memory, first, count, stamp, depth
            )
        if bridge < 0:
            waits[v] = 0
            first = first + 1 if first + 1 < V else 0
            count -= 1
            continue
        clock += 1
        amount, lost = _augment(bridge, heads, back, room, ends, memory)
        flow += amount
        if flow == np.inf:
            return flow
        at = 0
        while at < lost:
            v = orphans[at]
            at += 1
            # those that become orphans go to the end; each waits once at a time
            lost, count, at = _adopt(
                v, starts, heads, back, room, memory, first, count, clock, at, lost
            )
    return flow


@njit(error_model="numpy", no_cpython_wrapper=True)
def _wait(v, queue, waits, first, count, V):
    if waits[v]:
        return count
    at = first + count
    queue[at if at < V else at - V] = v
    waits[v] = 1
    return count + 1


@njit(error_model="numpy", no_cpython_wrapper=True)
def _grow(v, starts, heads, back, room, memory, first, count, stamp, depth):
    """Grow a tree from v, until an arc from the source's to the sink's is found."""
    V = len(starts) - 1
    parent, queue = memory[0][0], memory[0][3]
    tree, waits = memory[1]
    mine = tree[v]
    for a in range(starts[v], starts[v + 1]):
        other = back[a]
        if not (room[a] if mine == SOURCE else room[other]) > 0:
            continue
        u = heads[a]
        if tree[u] == FREE:
            tree[u], parent[u] = mine, other
            stamp[u], depth[u] = stamp[v], depth[v] + 1
            count = _wait(u, queue, waits, first, count, V)
        elif tree[u] != mine:
            return (a if mine == SOURCE else other), count
        elif stamp[u] <= stamp[v] and depth[u] > depth[v]:
            # a shorter way to the end
            parent[u] = other
            stamp[u], depth[u] = stamp[v], depth[v] + 1
    return -1, count


@njit(error_model="numpy", no_cpython_wrapper=True)
def _augment(bridge, heads, back, room, ends, memory):
    """Push what fits through the path over an arc; how much, and how many orphans."""
    parent, orphans = memory[0][0], memory[0][4]
    amount = room[bridge]
    v = heads[back[bridge]]
    while parent[v] != TERMINAL:
        amount = min(amount, room[back[parent[v]]])
        v = heads[parent[v]]
    amount = min(amount, ends[v])
    v = heads[bridge]
    while parent[v] != TERMINAL:
        amount = min(amount, room[parent[v]])
        v = heads[parent[v]]
    amount = min(amount, -ends[v])
    if amount == np.inf:
        return amount, 0
    lost = 0
    room[bridge] -= amount
    room[back[bridge]] += amount
    v = heads[back[bridge]]
    while parent[v] != TERMINAL:
        a = parent[v]
        room[a] += amount
        room[back[a]] -= amount
        if not room[back[a]] > 0:
            parent[v] = ORPHAN
            orphans[lost] = v
            lost += 1
        v = heads[a]
    ends[v] -= amount
    if not ends[v] > 0:
        parent[v] = ORPHAN
        orphans[lost] = v
        lost += 1
    v = heads[bridge]
    while parent[v] != TERMINAL:
        a = parent[v]
        room[back[a]] += amount
        room[a] -= amount
        if not room[a] > 0:
            parent[v] = ORPHAN
            orphans[lost] = v
            lost += 1
        v = heads[a]
    ends[v] += amount
    if not ends[v] < 0:
        parent[v] = ORPHAN
        orphans[lost] = v
        lost += 1
    return amount, lost


@njit(error_model="numpy", no_cpython_wrapper=True)
def _adopt(v, starts, heads, back, room, memory, first, count, clock, at, lost):
    """Find v a parent in its tree, the nearest to the end, or let it go."""
    V = len(starts) - 1
    parent, stamp, depth, queue, orphans, _ = memory[0]
    tree, waits = memory[1]
    mine = tree[v]
    nearest, chosen = np.int32(2**30), -1
    for a in range(starts[v], starts[v + 1]):
        u = heads[a]
        if tree[u] != mine or parent[u] == NO_PARENT:
            continue
        if not (room[back[a]] if mine == SOURCE else room[a]) > 0:
            continue
        # does its way end at a terminal?
        steps, w = 0, u
        while True:
            if stamp[w] == clock:
                steps += depth[w]
                break
            p = parent[w]
            steps += 1
            if p == TERMINAL:
                stamp[w], depth[w] = clock, 1
                break
            if p in (ORPHAN, NO_PARENT):
                steps = -1
                break
            w = heads[p]
        if steps < 0:
            continue
        if steps < nearest:
            nearest, chosen = steps, a
        w = u
        while stamp[w] != clock:
            stamp[w], depth[w] = clock, steps
            steps -= 1
            w = heads[parent[w]]
    if chosen >= 0:
        parent[v] = chosen
        stamp[v], depth[v] = clock, nearest + 1
        return lost, count, at
    tree[v], parent[v] = FREE, NO_PARENT
    for a in range(starts[v], starts[v + 1]):
        u = heads[a]
        if tree[u] != mine or parent[u] == NO_PARENT:
            continue
        if (room[back[a]] if mine == SOURCE else room[a]) > 0:
            count = _wait(u, queue, waits, first, count, V)
        p = parent[u]
        if p >= 0 and heads[p] == v:
            parent[u] = ORPHAN
            if lost == len(orphans):
                # the front has been dealt with
                for i in range(at, lost):
                    orphans[i - at] = orphans[i]
                lost -= at
                at = 0
            orphans[lost] = u
            lost += 1
    return lost, count, at
