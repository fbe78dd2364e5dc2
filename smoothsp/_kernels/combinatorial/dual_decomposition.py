"""Tree block coordinate descent: dual bounds of pairwise models, and labellings.

A graph of E edges is covered by F forests. The dual variables ``m[e, 0]`` and
``m[e, 1]`` move scores from edge e to its two nodes. Each m gives the upper bound

    sum_v max_s (nodes[v, s] + sum_e m[e, v, s])
        + sum_e max_st (edges[e, s, t] - m[e, 0, s] - m[e, 1, t])

An upward pass collects the scores of a forest at its roots. The forest's part of the
bound is then its exact maximum, the smallest value possible for this block. The
downward pass redistributes the scores and leaves the bound unchanged.

Source: Sontag and Jaakkola, "Tree Block Coordinate Descent for MAP in Graphical Models"
(2009), section 3.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy

# Gaps below this fraction of the sum of the parts' magnitudes are due to rounding.
_RELATIVE_SLACK = 64 * 2.0**-52


@kernel
def fill_forest_cover(index, V, order, parent_edge, count):
    """Cover the edges ``index[E, 2]`` of V nodes by forests; count[0] is their number.

    ``order[f]`` lists the nodes of forest f, each after its parent; ``parent_edge[f]``
    has the edge of each node to its parent, -1 at roots. At most ``len(order)`` forests
    fit.
    """
    E = len(index)
    # incident edges of each node in compressed rows
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
    # each forest is a breadth-first search over edges that no forest covers yet
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
        # each forest covers an edge of each remaining component, so the loop ends
        f += 1
    count[0] = f


@kernel
def block_coordinate_descent(
    first, last, nodes, edges, forests, max_rounds, labels, bound, is_exact
):
    """Fill labels[B, V], bound[B] and is_exact[B].

    A labelling is exact if it attains the bound, up to rounding. ``nodes`` are ``[B, V,
    S]``, -inf where a label is forbidden; ``edges`` are ``[B, E, S, S]``, finite.
    ``forests`` are (index, order, parent_edge) of ``fill_forest_cover``. A round visits
    all forests; at most ``max_rounds`` rounds.
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
        # relative to all parts, since the bound is a sum over them
        slack = _RELATIVE_SLACK * _sum_of_max_abs_scores(nodes[b], edges[b])
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
            # no progress in a round: coordinate descent has reached a fixed point
            if is_exact[b] or previous_bound - bound[b] <= slack:
                break


@subroutine
def _fill_subtree_weights(index, order, parent_edge, weight):
    """Fill weight[V]: numbers of edges of other forests in the subtree of each node."""
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
            # the edge to v is in this forest, and was counted at both its ends
            weight[p] += weight[v] - 1


@subroutine
def _sum_of_max_abs_scores(nodes, edges):
    """Return 1 plus the sum over nodes and edges of their largest absolute score."""
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
    """Move all scores of a forest to its roots, children before parents."""
    S = belief.shape[1]
    # the reverse of the order: each node has collected its children's scores
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
    """Fill the message of an edge to the node at one of its sides.

    ``m[side, t]`` becomes ``max over s of score(s, t) - m[1 - side, s]``, over labels s
    that are allowed at the other node. The belief in t changes by the same amount.
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
    """Redistribute scores from the roots, by weight; y becomes the forest's maximiser.

    Each child receives the fraction of its parent's belief that its subtree has of the
    parent's remaining weight.
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
        # weight[parent] still includes the children that follow: fractions of the
        # remainder
        fraction = weight[v] / weight[parent] if weight[parent] > 0 else 0.0
        weight[parent] -= weight[v]
        for t in range(S):
            if nodes[parent, t] > -np.inf:
                messages[e, 1 - child_side, t] -= fraction * belief[parent, t]
                belief[parent, t] -= fraction * belief[parent, t]
        _update_message(edges[e], child_side, v, nodes[parent], messages[e], belief)


@subroutine
def _score_labelling(nodes, edges, index, y):
    """Return the score of the labelling y[V]."""
    total = 0.0
    for v in range(len(y)):
        total += nodes[v, y[v]]
    for e in range(len(index)):
        total += edges[e, y[index[e, 0]], y[index[e, 1]]]
    return total


@subroutine
def _dual_bound(nodes, edges, index, messages, belief):
    """Return the dual bound; beliefs are recomputed from the messages.

    In-place updates of ``belief`` accumulate rounding, which would make the bound
    invalid.
    """
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
