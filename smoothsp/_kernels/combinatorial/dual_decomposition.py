"""Upper bounds of pairwise models, lowered forest by forest, and labellings from them.

A graph of E edges is covered by F forests. Of an edge e the scores are written as those
of the edge and of its two nodes, ``m[e, 0]`` and ``m[e, 1]``; any m gives the bound

    sum_v max_s (nodes[v, s] + sum_e m[e, v, s])
        + sum_e max_st (edges[e, s, t] - m[e, 0, s] - m[e, 1, t])

To collect a forest's scores at its roots makes its part of the bound the maximum over
this forest, the least that it can be; then they are shared out again, which leaves it.

Source: Sontag and Jaakkola, "Tree Block Coordinate Descent for MAP in Graphical Models"
(2009), section 3.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy

# A gap of at most this share of the sum of all sizes is rounding.
_ROUNDINGS = 64 * 2.0**-52


@kernel
def forest_cover(index, V, order, ups, count):
    """Cover the edges ``index[E, 2]`` of V nodes by forests, count[0] of them.

    Of forest f ``order[f]`` are the nodes, each after its parent, and ``ups[f]`` the
    edge of each node to its parent, -1 of roots. There is room for ``len(order)``.
    """
    E = len(index)
    starts = arrays.zeros(V + 1, np.int64)
    for e in range(E):
        starts[index[e, 0] + 1] += 1
        starts[index[e, 1] + 1] += 1
    for v in range(V):
        starts[v + 1] += starts[v]
    near, at = arrays.empty(2 * E, np.int64), starts[:V].copy()
    for e in range(E):
        for side in range(2):
            v = index[e, side]
            near[at[v]] = e
            at[v] += 1
    free, seen = np.ones(E, np.bool_), arrays.empty(V, np.bool_)
    left, f = E, 0
    while f == 0 or left > 0:
        seen[:] = False
        size = 0
        for root in range(V):
            if seen[root]:
                continue
            seen[root] = True
            order[f, size], ups[f, root] = root, -1
            done, size = size, size + 1
            while done < size:
                v = order[f, done]
                done += 1
                for place in range(starts[v], starts[v + 1]):
                    e = near[place]
                    u = index[e, 0] + index[e, 1] - v
                    if free[e] and not seen[u]:
                        free[e], seen[u] = False, True
                        left -= 1
                        order[f, size], ups[f, u] = u, e
                        size += 1
        f += 1
    count[0] = f


@kernel
def block_coordinate_descent(
    first, last, nodes, edges, forests, most, labels, bound, exact
):
    """Fill labels[B, V], bound[B], and exact[B]: whether the labelling attains it.

    ``nodes`` are ``[B, V, S]``, -inf where a label is forbidden, ``edges``
    ``[B, E, S, S]``, finite. At most ``most`` times all ``forests``: pairs of nodes,
    and for each forest its order of nodes and the edge above each.
    """
    index, order, ups = forests
    _, V, S = nodes.shape
    E, F = len(index), len(order)
    m, belief = arrays.empty((E, 2, S)), arrays.empty((V, S))
    weight, rest = arrays.empty((F, V)), arrays.empty(V)
    y = arrays.empty(V, np.int64)
    for f in range(F):
        _weigh(index, order[f], ups[f], weight[f])
    for b in range(first, last):
        m[:] = 0.0
        copy(nodes[b].ravel(), belief.ravel())
        slack = _ROUNDINGS * _size(nodes[b], edges[b])
        best, bound[b], exact[b] = -np.inf, np.inf, False
        for _ in range(most):
            before = bound[b]
            for f in range(F):
                forest = index, order[f], ups[f]
                _collect(nodes[b], edges[b], *forest, m, belief)
                copy(weight[f], rest)
                _share_out(nodes[b], edges[b], *forest, rest, m, belief, y)
                value = _score(nodes[b], edges[b], index, y)
                if value > best:
                    best = value
                    copy(y, labels[b])
            bound[b] = min(bound[b], _bound(nodes[b], edges[b], index, m, belief))
            exact[b] = bound[b] - best <= slack
            if exact[b] or before - bound[b] <= slack:
                break


@subroutine
def _weigh(index, order, ups, weight):
    """Of each node and those below it, how many edges are of other forests."""
    weight[:] = 0.0
    for e in range(len(index)):
        weight[index[e, 0]] += 1
        weight[index[e, 1]] += 1
    for i in range(len(order) - 1, -1, -1):
        v = order[i]
        e = ups[v]
        if e >= 0:
            p = index[e, 0] + index[e, 1] - v
            weight[v] -= 1
            weight[p] += weight[v] - 1


@subroutine
def _size(nodes, edges):
    """The sum of the largest numbers of each part."""
    total = 1.0
    for v in range(nodes.shape[0]):
        most = 0.0
        for s in range(nodes.shape[1]):
            if nodes[v, s] > -np.inf:
                most = max(most, abs(nodes[v, s]))
        total += most
    for e in range(edges.shape[0]):
        total += np.abs(edges[e]).max()
    return total


@subroutine
def _collect(nodes, edges, index, order, ups, m, belief):
    """Move all scores of a forest to its roots."""
    S = belief.shape[1]
    for i in range(len(order) - 1, -1, -1):
        v = order[i]
        e = ups[v]
        if e < 0:
            continue
        low = 0 if index[e, 0] == v else 1
        p = index[e, 1 - low]
        for s in range(S):
            if nodes[v, s] > -np.inf:
                m[e, low, s] -= belief[v, s]
                belief[v, s] = 0.0
        _extract(edges[e], 1 - low, p, nodes[v], m[e], belief)


@subroutine
def _extract(scores, side, p, others, m, belief):
    """Move to node p, at one side of an edge, the best score for each of its labels.

    ``m[side, t]`` becomes ``max over s of score(s, t) - m[1 - side, s]``, over labels s
    that the other node may have. The belief in t changes by as much.
    """
    S = len(others)
    for t in range(S):
        if belief[p, t] == -np.inf:
            continue
        most = -np.inf
        for s in range(S):
            if others[s] > -np.inf:
                score = scores[s, t] if side == 1 else scores[t, s]
                most = max(most, score - m[1 - side, s])
        belief[p, t] += most - m[side, t]
        m[side, t] = most


@subroutine
def _share_out(nodes, edges, index, order, ups, weight, m, belief, y):
    """Move scores from the roots back, by weight; y is the best of the forest.

    The weight of a node becomes that of its own part.
    """
    S = belief.shape[1]
    for v in order:
        e = ups[v]
        if e < 0:
            y[v] = belief[v].argmax()
            continue
        low = 0 if index[e, 0] == v else 1
        p = index[e, 1 - low]
        t, most = y[p], -np.inf
        for s in range(S):
            if nodes[v, s] > -np.inf:
                score = edges[e, s, t] if low == 0 else edges[e, t, s]
                if score - m[e, low, s] > most:
                    y[v], most = s, score - m[e, low, s]
        # p still has what its own part and those of its other children weigh
        part = weight[v] / weight[p] if weight[p] > 0 else 0.0
        weight[p] -= weight[v]
        for t in range(S):
            if nodes[p, t] > -np.inf:
                m[e, 1 - low, t] -= part * belief[p, t]
                belief[p, t] -= part * belief[p, t]
        _extract(edges[e], low, v, nodes[p], m[e], belief)


@subroutine
def _score(nodes, edges, index, y):
    """The score of a labelling."""
    total = 0.0
    for v in range(len(y)):
        total += nodes[v, y[v]]
    for e in range(len(index)):
        total += edges[e, y[index[e, 0]], y[index[e, 1]]]
    return total


@subroutine
def _bound(nodes, edges, index, m, belief):
    """What no labelling exceeds, by the scores moved: m anew to all nodes."""
    V, S = nodes.shape
    copy(nodes.ravel(), belief.ravel())
    for e in range(len(index)):
        for side in range(2):
            v = index[e, side]
            for s in range(S):
                belief[v, s] += m[e, side, s]
    total = 0.0
    for v in range(V):
        total += belief[v].max()
    for e in range(len(index)):
        i, j = index[e, 0], index[e, 1]
        most = -np.inf
        for s in range(S):
            for t in range(S):
                if nodes[i, s] > -np.inf and nodes[j, t] > -np.inf:
                    most = max(most, edges[e, s, t] - m[e, 0, s] - m[e, 1, t])
        total += most
    return total
