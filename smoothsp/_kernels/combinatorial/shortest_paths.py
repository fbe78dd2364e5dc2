"""Shortest paths of directed graphs (Dijkstra, Bellman-Ford); k loopless ones (Yen).

A graph is ``begin[V + 1]``, ``order[E]``, ``tail[E]`` and ``head[E]``: the arcs that
leave node v are ``order[begin[v]:begin[v + 1]]``, arc e goes from ``tail[e]`` to
``head[e]``, -1 for padding. ``graphs`` are such arrays with a leading axis, and row b
has the graph ``graph_of_row[b]``. ``scores[B, E]`` are minus lengths, -inf to forbid;
``endpoints[B, 2]`` are source and target. If scores are positive, the length ``l_e``
becomes ``l_e + h(tail) - h(head) >= 0``, with h the distances from the source. This
adds the same constant to all paths (Johnson, 1977). Both searches apply

    distance(head) = min over arcs e into it of distance(tail) + l_e

Bellman-Ford in rounds over all arcs, where lengths are negative; Dijkstra node by node,
in the order of their distances, until the target.

Source: Dijkstra (1959), with a binary heap; Bellman (1958) for h; Yen, "Finding the K
Shortest Loopless Paths in a Network" (1971), in Lawler's form (1972).
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy

# values of ``status``: no path, a path, a cycle of positive score
NO_PATH, PATH, CYCLE = 0, 1, 2
_ROUNDING = 2.0**-52


@kernel
def shortest_path(
    first, last, scores, graphs, graph_of_row, endpoints, outputs, values, status
):
    """Fill outputs[B, E]: 1 at the arcs of a best path, 0 elsewhere, -1 at padding.

    values[B] are scores; status[B] is NO_PATH, PATH or CYCLE.
    """
    V, E = graphs[0].shape[1] - 1, scores.shape[1]
    length, h, scratch = arrays.empty(E), arrays.empty(V), _make_scratch(V)
    is_free, is_banned = arrays.empty(V, np.bool_), arrays.empty(E, np.bool_)
    for v in range(V):
        is_free[v] = True
    for e in range(E):
        is_banned[e] = False
    for b in range(first, last):
        graph, source, target = (
            _graph_of_row(graphs, graph_of_row[b]),
            endpoints[b, 0],
            endpoints[b, 1],
        )
        last_arc, tail = scratch[1], graph[2]
        for e in range(E):
            outputs[b, e] = 0 if tail[e] >= 0 else -1
        values[b] = -np.inf
        status[b] = _fill_reduced_lengths(scores[b], graph, source, target, h, length)
        if status[b] == CYCLE:
            continue
        if not _dijkstra(length, graph, source, target, is_free, is_banned, scratch):
            status[b] = NO_PATH
            continue
        v = target
        while v != source:
            outputs[b, last_arc[v]] = 1
            v = tail[last_arc[v]]
        # summed from the scores, since reduced lengths have lost digits
        values[b] = 0.0
        for e in range(E):
            if outputs[b, e] == 1:
                values[b] += scores[b, e]


@kernel
def k_shortest_paths(
    first, last, scores, graphs, graph_of_row, endpoints, outputs, status
):
    """Fill outputs[B, k, E] as ``shortest_path``, best first, and status[B, k].

    Yen's algorithm: a new path deviates from a listed path at a spur node, by an arc
    other than those of listed paths with the same prefix. It is a shortest path in the
    rest of the graph.
    """
    V, E, k = graphs[0].shape[1] - 1, scores.shape[1], outputs.shape[1]
    length, h, scratch = arrays.empty(E), arrays.empty(V), _make_scratch(V)
    is_free, is_banned = arrays.empty(V, np.bool_), arrays.empty(E, np.bool_)
    # Listed paths, then candidates, as arcs in order. Never more candidates are stored
    # than paths remain to be listed.
    listed, sizes = arrays.empty((k, V), np.int64), arrays.empty(k, np.int64)
    candidates, candidate_sizes = (
        arrays.empty((k, V), np.int64),
        arrays.empty(k, np.int64),
    )
    # position at which a candidate leaves a listed path, and its score
    spur_index, total = arrays.empty(k, np.int64), arrays.empty(k)
    path = arrays.empty(V, np.int64)
    for e in range(E):
        is_banned[e] = False
    for b in range(first, last):
        graph, source, target = (
            _graph_of_row(graphs, graph_of_row[b]),
            endpoints[b, 0],
            endpoints[b, 1],
        )
        last_arc, tail, head = scratch[1], graph[2], graph[3]
        for t in range(k):
            status[b, t] = NO_PATH
            for e in range(E):
                outputs[b, t, e] = 0 if tail[e] >= 0 else -1
        for v in range(V):
            is_free[v] = True
        if _fill_reduced_lengths(scores[b], graph, source, target, h, length) == CYCLE:
            status[b, 0] = CYCLE
            continue
        if not _dijkstra(length, graph, source, target, is_free, is_banned, scratch):
            continue
        count = 1
        candidate_sizes[0] = _fill_path_arcs(
            last_arc, tail, source, target, candidates[0]
        )
        spur_index[0], total[0] = 0, 0.0
        for t in range(k):
            if count == 0:
                break
            c = 0
            for i in range(1, count):
                if total[i] > total[c]:
                    c = i
            size, spur_start = candidate_sizes[c], spur_index[c]
            sizes[t] = size
            for i in range(size):
                listed[t, i] = candidates[c, i]
                outputs[b, t, candidates[c, i]] = 1
            status[b, t] = PATH
            count -= 1
            copy(candidates[count], candidates[c])
            candidate_sizes[c], spur_index[c], total[c] = (
                candidate_sizes[count],
                spur_index[count],
                total[count],
            )
            if t == k - 1:
                break
            # nodes of the common beginning may not be met again
            for v in range(V):
                is_free[v] = True
            for i in range(size):
                v = source if i == 0 else head[listed[t, i - 1]]
                if i < spur_start:
                    # Lawler: earlier deviations were candidates of the path that this
                    # one left.
                    is_free[v] = False
                    continue
                for earlier in range(t + 1):
                    if sizes[earlier] > i and _have_same_prefix(
                        listed[earlier], listed[t], i
                    ):
                        is_banned[listed[earlier, i]] = True
                if _dijkstra(length, graph, v, target, is_free, is_banned, scratch):
                    spur_size = _fill_path_arcs(last_arc, tail, v, target, path)
                    value = _path_score(scores[b], listed[t], i)
                    value += _path_score(scores[b], path, spur_size)
                    slot = count
                    if count == k - t - 1:
                        slot = 0
                        for j in range(1, count):
                            if total[j] < total[slot]:
                                slot = j
                        if total[slot] >= value:
                            slot = -1
                    if slot >= 0:
                        count = max(count, slot + 1)
                        for j in range(i):
                            candidates[slot, j] = listed[t, j]
                        for j in range(spur_size):
                            candidates[slot, i + j] = path[j]
                        candidate_sizes[slot], spur_index[slot], total[slot] = (
                            i + spur_size,
                            i,
                            value,
                        )
                for earlier in range(t + 1):
                    if sizes[earlier] > i:
                        is_banned[listed[earlier, i]] = False
                is_free[v] = False


@kernel
def are_paths(outputs, graphs, graph_of_row, endpoints, is_path):
    """Fill is_path[B, K]: whether outputs[B, K, E] are loopless paths.

    Entries at padding are not read.
    """
    B, K, E = outputs.shape
    V = graphs[0].shape[1] - 1
    outgoing_arc = arrays.empty(V, np.int64)
    for b in range(B):
        _, _, tail, head = _graph_of_row(graphs, graph_of_row[b])
        for k in range(K):
            for v in range(V):
                outgoing_arc[v] = -1
            is_valid, count = True, 0
            for e in range(E):
                y = outputs[b, k, e]
                if tail[e] < 0 or y == 0:
                    continue
                is_valid &= y == 1 and outgoing_arc[tail[e]] < 0
                outgoing_arc[tail[e]] = e
                count += 1
            v = endpoints[b, 0]
            while is_valid and v != endpoints[b, 1]:
                e = outgoing_arc[v]
                # an arc is removed when it is followed, so that a cycle ends the walk
                is_valid = e >= 0
                if is_valid:
                    outgoing_arc[v] = -1
                    v = head[e]
                    count -= 1
            is_path[b, k] = is_valid and count == 0


@subroutine
def _make_scratch(V):
    """Distances, last arcs, heap, and positions in the heap, of V nodes."""
    return (
        arrays.empty(V),
        arrays.empty(V, np.int64),
        arrays.empty(V, np.int64),
        arrays.empty(V, np.int64),
    )


@subroutine
def _graph_of_row(graphs, g):
    """Return the arrays of graph g."""
    begin, order, tail, head = graphs
    return begin[g], order[g], tail[g], head[g]


@subroutine
def _fill_reduced_lengths(scores, graph, source, target, h, length):
    """Fill length[E] with lengths of at least 0 that order paths as the scores do.

    Return CYCLE if a path may meet a cycle of positive score, otherwise PATH.
    """
    begin, order, tail, head = graph
    V, num_arcs = len(h), begin[len(h)]
    max_score, size = 0.0, 0.0
    for i in range(num_arcs):
        e = order[i]
        length[e] = -scores[e]
        max_score = max(max_score, scores[e])
        if scores[e] > -np.inf:
            size = max(size, abs(scores[e]))
    if max_score == 0:
        return PATH
    # a cycle of score 0 may have a positive sum by rounding
    slack = 4 * _ROUNDING * size
    for v in range(V):
        h[v] = np.inf
    # Arcs that no path uses are removed, since cycles of such arcs do no harm: arcs
    # into the source, out of the target, and from nodes that cannot reach the target.
    h[target] = 0.0
    changed = True
    while changed:
        changed = False
        for i in range(num_arcs - 1, -1, -1):
            e = order[i]
            if head[e] == source or tail[e] == target:
                length[e] = np.inf
            elif length[e] < np.inf and h[head[e]] == 0 and h[tail[e]] != 0:
                h[tail[e]] = 0.0
                changed = True
    for i in range(num_arcs):
        if h[head[order[i]]] != 0:
            length[order[i]] = np.inf
    for v in range(V):
        h[v] = np.inf
    h[source] = 0.0
    changed, num_rounds = True, 0
    while changed:
        # without a negative cycle, V - 1 rounds reach all distances
        if num_rounds == V:
            return CYCLE
        changed = False
        for i in range(num_arcs):
            e = order[i]
            if h[tail[e]] + length[e] < h[head[e]] - slack:
                h[head[e]] = h[tail[e]] + length[e]
                changed = True
        num_rounds += 1
    for i in range(num_arcs):
        e = order[i]
        if h[tail[e]] < np.inf and length[e] < np.inf:
            # negative only by rounding; Dijkstra needs at least 0
            length[e] = max(length[e] + h[tail[e]] - h[head[e]], 0.0)
    return PATH


@subroutine
def _dijkstra(length, graph, source, target, is_free, is_banned, scratch):
    """Fill last_arc[V], the last arc of a shortest path to each node, until the target.

    Only free nodes and arcs that are not banned are used. Return whether a path exists.
    ``heap_index`` is a node's position in the heap, so that a shorter distance moves it
    up and each node is in the heap once.
    """
    begin, order, _, head = graph
    distance, last_arc, heap, heap_index = scratch
    for v in range(len(distance)):
        distance[v] = np.inf
        heap_index[v] = -1
    distance[source] = 0.0
    heap[0], heap_index[source] = source, 0
    size = 1
    while size > 0:
        v = heap[0]
        if v == target:
            return True
        size -= 1
        heap_index[v] = -1
        if size > 0:
            heap[0] = heap[size]
            heap_index[heap[0]] = 0
            _sift_down(heap, heap_index, distance, size)
        for i in range(begin[v], begin[v + 1]):
            e = order[i]
            w = head[e]
            new_distance = distance[v] + length[e]
            if is_free[w] and not is_banned[e] and new_distance < distance[w]:
                if heap_index[w] < 0:
                    heap[size], heap_index[w] = w, size
                    size += 1
                distance[w], last_arc[w] = new_distance, e
                _sift_up(heap, heap_index, distance, heap_index[w])
    return False


@subroutine
def _sift_up(heap, heap_index, distance, position):
    """Move a heap entry up to its place; of equal distances the earlier entry stays."""
    while position > 0:
        parent = (position - 1) // 2
        if distance[heap[parent]] <= distance[heap[position]]:
            break
        heap[parent], heap[position] = heap[position], heap[parent]
        heap_index[heap[parent]], heap_index[heap[position]] = parent, position
        position = parent


@subroutine
def _sift_down(heap, heap_index, distance, size):
    """Move the heap's first entry down to its place."""
    position = 0
    while 2 * position + 1 < size:
        child = 2 * position + 1
        if child + 1 < size and distance[heap[child + 1]] < distance[heap[child]]:
            child += 1
        if distance[heap[position]] <= distance[heap[child]]:
            break
        heap[child], heap[position] = heap[position], heap[child]
        heap_index[heap[child]], heap_index[heap[position]] = child, position
        position = child


@subroutine
def _fill_path_arcs(last_arc, tail, source, target, path):
    """Fill path with the arcs from source to target, in order; return their number."""
    count, v = 0, target
    while v != source:
        v = tail[last_arc[v]]
        count += 1
    v = target
    for i in range(count - 1, -1, -1):
        path[i] = last_arc[v]
        v = tail[last_arc[v]]
    return count


@subroutine
def _path_score(scores, path, num_arcs):
    """Return the sum of the scores of a path's first ``num_arcs`` arcs."""
    total = 0.0
    for i in range(num_arcs):
        total += scores[path[i]]
    return total


@subroutine
def _have_same_prefix(path, other_path, count):
    """Whether two paths share their first ``count`` arcs."""
    is_same = True
    for i in range(count):
        is_same &= path[i] == other_path[i]
    return is_same
