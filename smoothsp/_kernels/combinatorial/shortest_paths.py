"""Best paths of directed graphs, and the k best without a cycle.

A graph is ``begin[V + 1]``, ``order[E]``, ``tail[E]`` and ``head[E]``: the arcs that
leave node v are ``order[begin[v]:begin[v + 1]]``, arc e goes from ``tail[e]`` to
``head[e]``, -1 for none. ``graphs`` has a first axis more, and row b has the graph
``which[b]``. ``scores[B, E]`` are minus lengths, -inf to forbid; ``ends[B, 2]`` are
source and target. Where scores are positive, length ``l_e`` becomes
``l_e + h(tail) - h(head) >= 0``, h the distances from the source, which adds the same
to all paths (Johnson, 1977). Both searches apply

    distance(head) = min over arcs e into it of distance(tail) + l_e

Bellman in rounds over all arcs, where some length is negative, and Dijkstra by nodes in
the order of their distance, until the target.

Source: Dijkstra (1959), with a binary heap; Bellman (1958) for h; Yen, "Finding the K
Shortest Loopless Paths in a Network" (1971), in Lawler's form (1972).
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy

# What ``found`` says of a row.
NO_PATH, PATH, CYCLE = 0, 1, 2
_ROUNDING = 2.0**-52


@kernel
def shortest_path(first, last, scores, graphs, which, ends, outputs, values, found):
    """Fill outputs[B, E] with 1 for the arcs of a best path, -1 for arcs that lack.

    Others have 0. values[B]: scores; found[B]: NO_PATH, PATH or CYCLE.
    """
    V, E = graphs[0].shape[1] - 1, scores.shape[1]
    length, h, work = arrays.empty(E), arrays.empty(V), _workspace(V)
    free, banned = arrays.empty(V, np.bool_), arrays.empty(E, np.bool_)
    for v in range(V):
        free[v] = True
    for e in range(E):
        banned[e] = False
    for b in range(first, last):
        graph, source, target = _of_row(graphs, which[b]), ends[b, 0], ends[b, 1]
        via, tail = work[1], graph[2]
        for e in range(E):
            outputs[b, e] = 0 if tail[e] >= 0 else -1
        values[b] = -np.inf
        found[b] = _measure(scores[b], graph, source, target, h, length)
        if found[b] == CYCLE:
            continue
        if not _dijkstra(length, graph, source, target, free, banned, work):
            found[b] = NO_PATH
            continue
        v = target
        while v != source:
            outputs[b, via[v]] = 1
            v = tail[via[v]]
        values[b] = 0.0
        for e in range(E):
            if outputs[b, e] == 1:
                values[b] += scores[b, e]


@kernel
def k_shortest_paths(first, last, scores, graphs, which, ends, outputs, found):
    """Fill outputs[B, k, E] as ``best``, best first, and found[B, k].

    Each new path leaves a listed one at one node, by another arc than those that listed
    paths with the same beginning take: a best path in what is left of the graph.
    """
    V, E, k = graphs[0].shape[1] - 1, scores.shape[1], outputs.shape[1]
    length, h, work = arrays.empty(E), arrays.empty(V), _workspace(V)
    free, banned = arrays.empty(V, np.bool_), arrays.empty(E, np.bool_)
    # paths as their arcs in order: those that are listed, then candidates, of which
    # never more are kept than are still to be listed
    listed, sizes = arrays.empty((k, V), np.int64), arrays.empty(k, np.int64)
    waiting, waits = arrays.empty((k, V), np.int64), arrays.empty(k, np.int64)
    # at which node a candidate leaves a listed path, and its score
    leaves, total = arrays.empty(k, np.int64), arrays.empty(k)
    path = arrays.empty(V, np.int64)
    for e in range(E):
        banned[e] = False
    for b in range(first, last):
        graph, source, target = _of_row(graphs, which[b]), ends[b, 0], ends[b, 1]
        via, tail, head = work[1], graph[2], graph[3]
        for t in range(k):
            found[b, t] = NO_PATH
            for e in range(E):
                outputs[b, t, e] = 0 if tail[e] >= 0 else -1
        for v in range(V):
            free[v] = True
        if _measure(scores[b], graph, source, target, h, length) == CYCLE:
            found[b, 0] = CYCLE
            continue
        if not _dijkstra(length, graph, source, target, free, banned, work):
            continue
        count = 1
        waits[0] = _trace(via, tail, source, target, waiting[0])
        leaves[0], total[0] = 0, 0.0
        for t in range(k):
            if count == 0:
                break
            c = 0
            for i in range(1, count):
                if total[i] > total[c]:
                    c = i
            size, since = waits[c], leaves[c]
            sizes[t] = size
            for i in range(size):
                listed[t, i] = waiting[c, i]
                outputs[b, t, waiting[c, i]] = 1
            found[b, t] = PATH
            count -= 1
            copy(waiting[count], waiting[c])
            waits[c], leaves[c], total[c] = waits[count], leaves[count], total[count]
            if t == k - 1:
                break
            # nodes of the common beginning may not be met again
            for v in range(V):
                free[v] = True
            for i in range(size):
                v = source if i == 0 else head[listed[t, i - 1]]
                if i < since:
                    # where the path that it left has had its turn
                    free[v] = False
                    continue
                for other in range(t + 1):
                    if sizes[other] > i and _same(listed[other], listed[t], i):
                        banned[listed[other, i]] = True
                if _dijkstra(length, graph, v, target, free, banned, work):
                    rest = _trace(via, tail, v, target, path)
                    value = _sum(scores[b], listed[t], i)
                    value += _sum(scores[b], path, rest)
                    at = count
                    if count == k - t - 1:
                        at = 0
                        for j in range(1, count):
                            if total[j] < total[at]:
                                at = j
                        if total[at] >= value:
                            at = -1
                    if at >= 0:
                        count = max(count, at + 1)
                        for j in range(i):
                            waiting[at, j] = listed[t, j]
                        for j in range(rest):
                            waiting[at, i + j] = path[j]
                        waits[at], leaves[at], total[at] = i + rest, i, value
                for other in range(t + 1):
                    if sizes[other] > i:
                        banned[listed[other, i]] = False
                free[v] = False


@kernel
def are_paths(outputs, graphs, which, ends, found):
    """Fill found[B, K]: whether outputs[B, K, E] are paths without a cycle.

    Entries of arcs that a graph lacks may be anything.
    """
    B, K, E = outputs.shape
    V = graphs[0].shape[1] - 1
    leaving = arrays.empty(V, np.int64)
    for b in range(B):
        _, _, tail, head = _of_row(graphs, which[b])
        for k in range(K):
            for v in range(V):
                leaving[v] = -1
            fine, count = True, 0
            for e in range(E):
                y = outputs[b, k, e]
                if tail[e] < 0 or y == 0:
                    continue
                fine &= y == 1 and leaving[tail[e]] < 0
                leaving[tail[e]] = e
                count += 1
            v = ends[b, 0]
            while fine and v != ends[b, 1]:
                e = leaving[v]
                # a node that is met again has lost its arc
                fine = e >= 0
                if fine:
                    leaving[v] = -1
                    v = head[e]
                    count -= 1
            found[b, k] = fine and count == 0


@subroutine
def _workspace(V):
    """Distances, last arcs, heap and places in it, of V nodes."""
    return (
        arrays.empty(V),
        arrays.empty(V, np.int64),
        arrays.empty(V, np.int64),
        arrays.empty(V, np.int64),
    )


@subroutine
def _of_row(graphs, g):
    begin, order, tail, head = graphs
    return begin[g], order[g], tail[g], head[g]


@subroutine
def _measure(scores, graph, source, target, h, length):
    """Fill length[E] with lengths of at least 0 that order paths as scores do.

    Returns CYCLE if a path may meet a cycle of positive score, else PATH.
    """
    begin, order, tail, head = graph
    V, real = len(h), begin[len(h)]
    highest, size = 0.0, 0.0
    for i in range(real):
        e = order[i]
        length[e] = -scores[e]
        highest = max(highest, scores[e])
        if scores[e] > -np.inf:
            size = max(size, abs(scores[e]))
    if highest == 0:
        return PATH
    # cycles of score 0 are none of positive score, whatever their sum is rounded to
    slack = 4 * _ROUNDING * size
    # arcs that no path has do no harm: none enters the source or leaves the target,
    # and from each the target can be reached
    for v in range(V):
        h[v] = np.inf
    h[target] = 0.0
    moved = True
    while moved:
        moved = False
        for i in range(real - 1, -1, -1):
            e = order[i]
            if head[e] == source or tail[e] == target:
                length[e] = np.inf
            elif length[e] < np.inf and h[head[e]] == 0 and h[tail[e]] != 0:
                h[tail[e]] = 0.0
                moved = True
    for i in range(real):
        if h[head[order[i]]] != 0:
            length[order[i]] = np.inf
    for v in range(V):
        h[v] = np.inf
    h[source] = 0.0
    moved, turn = True, 0
    while moved:
        if turn == V:
            return CYCLE
        moved = False
        for i in range(real):
            e = order[i]
            if h[tail[e]] + length[e] < h[head[e]] - slack:
                h[head[e]] = h[tail[e]] + length[e]
                moved = True
        turn += 1
    for i in range(real):
        e = order[i]
        if h[tail[e]] < np.inf and length[e] < np.inf:
            # what rounding leaves below 0 is 0
            length[e] = max(length[e] + h[tail[e]] - h[head[e]], 0.0)
    return PATH


@subroutine
def _dijkstra(length, graph, source, target, free, banned, work):
    """Fill via[V], the last arc of a shortest path to each node, until the target.

    Only by free nodes and arcs that are not banned. Returns whether there is a path.
    ``place`` says where in the heap a node is, so that a shorter distance moves it up
    and each node is there once.
    """
    begin, order, _, head = graph
    distance, via, heap, place = work
    for v in range(len(distance)):
        distance[v] = np.inf
        place[v] = -1
    distance[source] = 0.0
    heap[0], place[source] = source, 0
    size = 1
    while size > 0:
        v = heap[0]
        if v == target:
            return True
        size -= 1
        place[v] = -1
        if size > 0:
            heap[0] = heap[size]
            place[heap[0]] = 0
            _sink(heap, place, distance, size)
        for i in range(begin[v], begin[v + 1]):
            e = order[i]
            w = head[e]
            reach = distance[v] + length[e]
            if free[w] and not banned[e] and reach < distance[w]:
                if place[w] < 0:
                    heap[size], place[w] = w, size
                    size += 1
                distance[w], via[w] = reach, e
                _rise(heap, place, distance, place[w])
    return False


@subroutine
def _rise(heap, place, distance, at):
    while at > 0:
        above = (at - 1) // 2
        if distance[heap[above]] <= distance[heap[at]]:
            break
        heap[above], heap[at] = heap[at], heap[above]
        place[heap[above]], place[heap[at]] = above, at
        at = above


@subroutine
def _sink(heap, place, distance, size):
    at = 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and distance[heap[below + 1]] < distance[heap[below]]:
            below += 1
        if distance[heap[at]] <= distance[heap[below]]:
            break
        heap[below], heap[at] = heap[at], heap[below]
        place[heap[below]], place[heap[at]] = below, at
        at = below


@subroutine
def _trace(via, tail, source, target, path):
    """Fill path[V] with the arcs to the target, in order; returns their number."""
    count, v = 0, target
    while v != source:
        v = tail[via[v]]
        count += 1
    v = target
    for i in range(count - 1, -1, -1):
        path[i] = via[v]
        v = tail[via[v]]
    return count


@subroutine
def _sum(scores, path, count):
    total = 0.0
    for i in range(count):
        total += scores[path[i]]
    return total


@subroutine
def _same(one, other, count):
    same = True
    for i in range(count):
        same &= one[i] == other[i]
    return same
