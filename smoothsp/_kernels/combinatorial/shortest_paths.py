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
def shortest_path(
    first, last, scores, graphs, graph_of_row, endpoints, outputs, values, status
):
    """Fill outputs[B, E] with 1 for the arcs of a best path, -1 for arcs that lack.

    Others have 0. values[B]: scores; found[B]: NO_PATH, PATH or CYCLE.
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
        values[b] = 0.0
        for e in range(E):
            if outputs[b, e] == 1:
                values[b] += scores[b, e]


@kernel
def k_shortest_paths(
    first, last, scores, graphs, graph_of_row, endpoints, outputs, status
):
    """Fill outputs[B, k, E] as ``best``, best first, and found[B, k].

    Each new path leaves a listed one at one node, by another arc than those that listed
    paths with the same beginning take: a best path in what is left of the graph.
    """
    V, E, k = graphs[0].shape[1] - 1, scores.shape[1], outputs.shape[1]
    length, h, scratch = arrays.empty(E), arrays.empty(V), _make_scratch(V)
    is_free, is_banned = arrays.empty(V, np.bool_), arrays.empty(E, np.bool_)
    # paths as their arcs in order: those that are listed, then candidates, of which
    # never more are kept than are still to be listed
    listed, sizes = arrays.empty((k, V), np.int64), arrays.empty(k, np.int64)
    candidates, candidate_sizes = (
        arrays.empty((k, V), np.int64),
        arrays.empty(k, np.int64),
    )
    # at which node a candidate leaves a listed path, and its score
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
                    # where the path that it left has had its turn
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
    """Fill found[B, K]: whether outputs[B, K, E] are paths without a cycle.

    Entries of arcs that a graph lacks may be anything.
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
                # a node that is met again has lost its arc
                is_valid = e >= 0
                if is_valid:
                    outgoing_arc[v] = -1
                    v = head[e]
                    count -= 1
            is_path[b, k] = is_valid and count == 0


@subroutine
def _make_scratch(V):
    """Distances, last arcs, heap and places in it, of V nodes."""
    return (
        arrays.empty(V),
        arrays.empty(V, np.int64),
        arrays.empty(V, np.int64),
        arrays.empty(V, np.int64),
    )


@subroutine
def _graph_of_row(graphs, g):
    begin, order, tail, head = graphs
    return begin[g], order[g], tail[g], head[g]


@subroutine
def _fill_reduced_lengths(scores, graph, source, target, h, length):
    """Fill length[E] with lengths of at least 0 that order paths as scores do.

    Returns CYCLE if a path may meet a cycle of positive score, else PATH.
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
    # cycles of score 0 are none of positive score, whatever their sum is rounded to
    slack = 4 * _ROUNDING * size
    # arcs that no path has do no harm: none enters the source or leaves the target,
    # and from each the target can be reached
    for v in range(V):
        h[v] = np.inf
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
            # what rounding leaves below 0 is 0
            length[e] = max(length[e] + h[tail[e]] - h[head[e]], 0.0)
    return PATH


@subroutine
def _dijkstra(length, graph, source, target, is_free, is_banned, scratch):
    """Fill via[V], the last arc of a shortest path to each node, until the target.

    Only by free nodes and arcs that are not banned. Returns whether there is a path.
    ``place`` says where in the heap a node is, so that a shorter distance moves it up
    and each node is there once.
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
    while position > 0:
        parent = (position - 1) // 2
        if distance[heap[parent]] <= distance[heap[position]]:
            break
        heap[parent], heap[position] = heap[position], heap[parent]
        heap_index[heap[parent]], heap_index[heap[position]] = parent, position
        position = parent


@subroutine
def _sift_down(heap, heap_index, distance, size):
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
    """Fill path[V] with the arcs to the target, in order; returns their number."""
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
    total = 0.0
    for i in range(num_arcs):
        total += scores[path[i]]
    return total


@subroutine
def _have_same_prefix(path, other_path, count):
    is_same = True
    for i in range(count):
        is_same &= path[i] == other_path[i]
    return is_same
