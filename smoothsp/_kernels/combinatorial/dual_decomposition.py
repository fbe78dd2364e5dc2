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
_RELATIVE_SLACK = 64 * 2.0**-52


@kernel
def forest_cover(index, V, order, parent_edge, count):
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
    incident_edges, next_offset = arrays.empty(2 * E, np.int64), starts[:V].copy()
    for e in range(E):
        for side in range(2):
            v = index[e, side]
            incident_edges[next_offset[v]] = e
            next_offset[v] += 1
    is_uncovered, in_forest = np.ones(E, np.bool_), arrays.empty(V, np.bool_)
    num_uncovered, f = E, 0
    while f == 0 or num_uncovered > 0:
        in_forest[:] = False
        size = 0
        for root in range(V):
            if in_forest[root]:
                continue
            in_forest[root] = True
            order[f, size], parent_edge[f, root] = root, -1
            num_expanded, size = size, size + 1
            while num_expanded < size:
                v = order[f, num_expanded]
                num_expanded += 1
                for position in range(starts[v], starts[v + 1]):
                    e = incident_edges[position]
                    u = index[e, 0] + index[e, 1] - v
                    if is_uncovered[e] and not in_forest[u]:
                        is_uncovered[e], in_forest[u] = False, True
                        num_uncovered -= 1
                        order[f, size], parent_edge[f, u] = u, e
                        size += 1
        f += 1
    count[0] = f


@kernel
def block_coordinate_descent(
    first, last, nodes, edges, forests, max_rounds, labels, bound, is_exact
):
    """Fill labels[B, V], bound[B], and exact[B]: whether the labelling attains it.

    ``nodes`` are ``[B, V, S]``, -inf where a label is forbidden, ``edges``
    ``[B, E, S, S]``, finite. At most ``most`` times all ``forests``: pairs of nodes,
    and for each forest its order of nodes and the edge above each.
    """
    index, order, parent_edge = forests
    _, V, S = nodes.shape
    E, F = len(index), len(order)
    messages, belief = arrays.empty((E, 2, S)), arrays.empty((V, S))
    weight, remaining_weight = arrays.empty((F, V)), arrays.empty(V)
    y = arrays.empty(V, np.int64)
    for f in range(F):
        _fill_subtree_weights(index, order[f], parent_edge[f], weight[f])
    for b in range(first, last):
        messages[:] = 0.0
        copy(nodes[b].ravel(), belief.ravel())
        slack = _RELATIVE_SLACK * _score_scale(nodes[b], edges[b])
        best, bound[b], is_exact[b] = -np.inf, np.inf, False
        for _ in range(max_rounds):
            previous_bound = bound[b]
            for f in range(F):
                forest = index, order[f], parent_edge[f]
                _upward_pass(nodes[b], edges[b], *forest, messages, belief)
                copy(weight[f], remaining_weight)
                _downward_pass(
                    nodes[b], edges[b], *forest, remaining_weight, messages, belief, y
                )
                value = _score_labelling(nodes[b], edges[b], index, y)
                if value > best:
                    best = value
                    copy(y, labels[b])
            bound[b] = min(
                bound[b], _dual_bound(nodes[b], edges[b], index, messages, belief)
            )
            is_exact[b] = bound[b] - best <= slack
            if is_exact[b] or previous_bound - bound[b] <= slack:
                break


@subroutine
def _fill_subtree_weights(index, order, parent_edge, weight):
    """Of each node and those below it, how many edges are of other forests."""
    weight[:] = 0.0
    for e in range(len(index)):
        weight[index[e, 0]] += 1
        weight[index[e, 1]] += 1
    for i in range(len(order) - 1, -1, -1):
        v = order[i]
        e = parent_edge[v]
        if e >= 0:
            p = index[e, 0] + index[e, 1] - v
            weight[v] -= 1
            weight[p] += weight[v] - 1


@subroutine
def _score_scale(nodes, edges):
    """The sum of the largest numbers of each part."""
    total = 1.0
    for v in range(nodes.shape[0]):
        max_abs = 0.0
        for s in range(nodes.shape[1]):
            if nodes[v, s] > -np.inf:
                max_abs = max(max_abs, abs(nodes[v, s]))
        total += max_abs
    for e in range(edges.shape[0]):
        total += np.abs(edges[e]).max()
    return total


@subroutine
def _upward_pass(nodes, edges, index, order, parent_edge, messages, belief):
    """Move all scores of a forest to its roots."""
    S = belief.shape[1]
    for i in range(len(order) - 1, -1, -1):
        v = order[i]
        e = parent_edge[v]
        if e < 0:
            continue
        child_side = 0 if index[e, 0] == v else 1
        parent = index[e, 1 - child_side]
        for s in range(S):
            if nodes[v, s] > -np.inf:
                messages[e, child_side, s] -= belief[v, s]
                belief[v, s] = 0.0
        _update_message(edges[e], 1 - child_side, parent, nodes[v], messages[e], belief)


@subroutine
def _update_message(scores, side, target, other_node_scores, edge_messages, belief):
    """Move to node p, at one side of an edge, the best score for each of its labels.

    ``m[side, t]`` becomes ``max over s of score(s, t) - m[1 - side, s]``, over labels s
    that the other node may have. The belief in t changes by as much.
    """
    S = len(other_node_scores)
    for t in range(S):
        if belief[target, t] == -np.inf:
            continue
        max_score = -np.inf
        for s in range(S):
            if other_node_scores[s] > -np.inf:
                score = scores[s, t] if side == 1 else scores[t, s]
                max_score = max(max_score, score - edge_messages[1 - side, s])
        belief[target, t] += max_score - edge_messages[side, t]
        edge_messages[side, t] = max_score


@subroutine
def _downward_pass(
    nodes, edges, index, order, parent_edge, weight, messages, belief, y
):
    """Move scores from the roots back, by weight; y is the best of the forest.

    The weight of a node becomes that of its own part.
    """
    S = belief.shape[1]
    for v in order:
        e = parent_edge[v]
        if e < 0:
            y[v] = belief[v].argmax()
            continue
        child_side = 0 if index[e, 0] == v else 1
        parent = index[e, 1 - child_side]
        t, max_score = y[parent], -np.inf
        for s in range(S):
            if nodes[v, s] > -np.inf:
                score = edges[e, s, t] if child_side == 0 else edges[e, t, s]
                if score - messages[e, child_side, s] > max_score:
                    y[v], max_score = s, score - messages[e, child_side, s]
        # p still has what its own part and those of its other children weigh
        fraction = weight[v] / weight[parent] if weight[parent] > 0 else 0.0
        weight[parent] -= weight[v]
        for t in range(S):
            if nodes[parent, t] > -np.inf:
                messages[e, 1 - child_side, t] -= fraction * belief[parent, t]
                belief[parent, t] -= fraction * belief[parent, t]
        _update_message(edges[e], child_side, v, nodes[parent], messages[e], belief)


@subroutine
def _score_labelling(nodes, edges, index, y):
    """The score of a labelling."""
    total = 0.0
    for v in range(len(y)):
        total += nodes[v, y[v]]
    for e in range(len(index)):
        total += edges[e, y[index[e, 0]], y[index[e, 1]]]
    return total


@subroutine
def _dual_bound(nodes, edges, index, messages, belief):
    """What no labelling exceeds, by the scores moved: m anew to all nodes."""
    V, S = nodes.shape
    copy(nodes.ravel(), belief.ravel())
    for e in range(len(index)):
        for side in range(2):
            v = index[e, side]
            for s in range(S):
                belief[v, s] += messages[e, side, s]
    total = 0.0
    for v in range(V):
        total += belief[v].max()
    for e in range(len(index)):
        i, j = index[e, 0], index[e, 1]
        max_score = -np.inf
        for s in range(S):
            for t in range(S):
                if nodes[i, s] > -np.inf and nodes[j, t] > -np.inf:
                    max_score = max(
                        max_score,
                        edges[e, s, t] - messages[e, 0, s] - messages[e, 1, t],
                    )
        total += max_score
    return total
