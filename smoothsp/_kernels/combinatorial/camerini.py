"""The k best spanning trees of heads, each from one arc that another may not take.

The trees that are left of a part of all trees, after its best, are those without some
arc of it, and those with it. Which arc costs least to do without, and how much, follows
from the cycles that were contracted to find the best: at each node, from the best arc
into it that does not come from below. That part is split at this arc. With (h, w) the
best arc into node c, as far as the tree has it, the least loss is

    min over c of (value(c, h) - max over u of value(c, u))

where u is neither h nor below w. Arcs from h to other words in c count, too. Parts are
chains of conditions, each linked to the one before, so that a split adds two records.

Source: Camerini, Fratta and Maffioli, "The K Best Spanning Arborescences of a Network"
(1980), section 3; that arcs from the root count as infinitely dear, where exactly one
word may have it for its head, is ours.
"""

import numpy as np

from smoothsp._kernels.combinatorial.chu_liu_edmonds import (
    contract_cycles,
    expand_cycles,
    fill_arc_scores,
    make_scratch,
)
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays

REQUIRED, EXCLUDED = 1, 0


@kernel
def k_best_trees(first, last, arcs, lengths, single_root, heads, valid):
    """Fill heads[B, k, n], best first, -1 where there are none, and exist[B, k]."""
    n, k = arcs.shape[1] - 1, heads.shape[1]
    tree_scratch, chosen = make_scratch(n), arrays.empty((2, 2 * n + 1), np.int64)
    tree, order = arrays.empty(n + 1, np.int64), arrays.empty((4, n + 1), np.int64)
    shift = arrays.empty(n + 1)
    # of each tree of the list: its score, that of the next in its part, and the word
    # whose arc is in the way; the last of the part's conditions
    score, next_score = arrays.empty((2, k))
    excluded_word, last_constraint = arrays.empty((2, k), np.int64)
    # conditions: word, head, kind, the one before
    constraints = arrays.empty((2 * k + 1, 4), np.int64)
    scratch = tree_scratch, chosen, tree, order, shift
    for b in range(first, last):
        m = lengths[b]
        for t in range(k):
            valid[b, t] = False
            for v in range(n):
                heads[b, t, v] = -1
        count = 0
        for t in range(k):
            # the next tree is the second of the part of tree s
            s = 0
            for earlier in range(1, t):
                if next_score[earlier] > next_score[s]:
                    s = earlier
            if t > 0 and next_score[s] == -np.inf:
                break
            last_constraint[t] = -1
            if t > 0:
                word = excluded_word[s]
                previous, head = last_constraint[s], heads[b, s, word - 1]
                for kind in (EXCLUDED, REQUIRED):
                    constraints[count, 0], constraints[count, 1] = word, head
                    constraints[count, 2], constraints[count, 3] = kind, previous
                    last_constraint[t if kind == EXCLUDED else s] = count
                    count += 1
            subset = constraints, last_constraint[t]
            nodes = _best_tree_of_subset(arcs[b], m, single_root, subset, scratch, tree)
            if nodes < 0:
                break
            valid[b, t] = True
            for v in range(m):
                heads[b, t, v] = tree[v + 1]
            if t == k - 1:
                break
            score[t] = _tree_score(arcs[b], m, tree)
            loss, excluded_word[t] = _second_best_loss(
                arcs[b], m, single_root, scratch, nodes, tree
            )
            next_score[t] = score[t] - loss
            if t > 0:
                subset = constraints, last_constraint[s]
                # the search again, now with the arc taken: its cycles give the next one
                nodes = _best_tree_of_subset(
                    arcs[b], m, single_root, subset, scratch, tree
                )
                for v in range(m):
                    tree[v + 1] = heads[b, s, v]
                loss, new_word = _second_best_loss(
                    arcs[b], m, single_root, scratch, nodes, tree
                )
                excluded_word[s], next_score[s] = new_word, score[s] - loss


@subroutine
def _tree_score(scores, n, tree):
    total = 0.0
    for v in range(1, n + 1):
        total += scores[tree[v], v]
    return total


@subroutine
def _best_tree_of_subset(scores, n, single_root, subset, scratch, tree):
    """Fill the heads of the best tree of a part; how many nodes, -1 if it has none."""
    (value, entry_word, marks), chosen, _, _, _ = scratch
    constraints, constraint = subset
    fill_arc_scores(scores, n, value, entry_word)
    while constraint >= 0:
        v, head, kind, constraint = constraints[constraint]
        if kind == EXCLUDED:
            value[v, head] = -np.inf
            continue
        for u in range(n + 1):
            if u != head:
                value[v, u] = -np.inf
    nodes = contract_cycles(value, entry_word, marks, n, single_root)
    for c in range(1, nodes + 1):
        chosen[0, c], chosen[1, c] = marks[1, c], marks[2, c]
    expand_cycles(marks, n, nodes)
    for v in range(1, n + 1):
        tree[v] = marks[1, v]
    return nodes


@subroutine
def _second_best_loss(scores, n, single_root, scratch, nodes, tree):
    """What the second best tree of a part loses, and the word of an arc it lacks.

    After ``_best``; ``tree`` is the best. If the search found another tree, which ties
    with it, that one is the second.
    """
    (value, _, marks), chosen, _, order, shift = scratch
    for v in range(1, n + 1):
        if tree[v] != marks[1, v]:
            loss = _tree_score(scores, n, tree) - _tree_score(scores, n, marks[1])
            return max(loss, 0.0), v
    _, head, word, parent, _, _ = marks
    begin, end, contracted = order[0], order[1], order[2]
    _fill_preorder(tree, n, order)
    min_loss, argmin_word = np.inf, 0
    for v in range(n + 1):
        contracted[v], shift[v] = v, 0.0
    for c in range(1, nodes + 1):
        h, w = chosen[0, c], chosen[1, c]
        if c > n:
            for v in range(1, n + 1):
                if parent[contracted[v]] == c:
                    shift[v] += value[contracted[v], chosen[0, contracted[v]]]
                    contracted[v] = c
        if head[c] != h or word[c] != w:
            continue
        replacement = -np.inf
        for u in range(1 if single_root and h != 0 else 0, n + 1):
            is_below = begin[w] <= begin[u] < end[w]
            if u != h and not is_below:
                replacement = max(replacement, value[c, u])
        if c > n:
            # from the same head to other words
            for v in range(1, n + 1):
                if contracted[v] == c and v != w:
                    replacement = max(replacement, value[v, h] - shift[v])
        if max(value[c, h] - replacement, 0.0) < min_loss:
            min_loss, argmin_word = max(value[c, h] - replacement, 0.0), w
    return min_loss, argmin_word


@subroutine
def _fill_preorder(tree, n, order):
    """Fill where words begin and end in an order that has each before those below."""
    begin, end, child, sibling = order
    for v in range(n + 1):
        child[v] = sibling[v] = -1
    for v in range(n, 0, -1):
        sibling[v], child[tree[v]] = child[tree[v]], v
    v, count = 0, 0
    begin[0] = 0
    while v >= 0:
        if child[v] >= 0:
            v = child[v]
            count += 1
            begin[v] = count
            continue
        end[v] = count + 1
        while v > 0 and sibling[v] < 0:
            v = tree[v]
            end[v] = count + 1
        if v <= 0:
            break
        v = sibling[v]
        count += 1
        begin[v] = count
