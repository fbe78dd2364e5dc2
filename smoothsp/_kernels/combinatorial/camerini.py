"""Camerini, Fratta and Maffioli's k best dependency trees.

The set of all trees is split into subsets, each with its best tree. After the best tree
of a subset, one arc of that tree is chosen. The trees that exclude the arc form a new
subset, and the trees that require it remain. The chosen arc has the smallest loss when
it is excluded. The loss follows from the contracted cycles of the search: with (h, w)
the best arc into node c, over nodes whose arc is in the tree, it is

    min over c of (value(c, h) - max over u of value(c, u))

where u is neither h nor a descendant of w. Arcs from h to other words of c count, too.
The constraints of a subset are a linked list, so that a split adds two records.

Source: Camerini, Fratta and Maffioli, "The K Best Spanning Arborescences of a Network"
(1980), section 3. With a single root, arcs from the root have infinite cost; this is an
extension of ours.
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
    """Fill heads[B, k, n], best first, -1 where fewer trees exist, and valid[B, k].

    ``arcs`` are ``[B, n + 1, n + 1]``, head and modifier; ``lengths[B]`` are numbers of
    words. With ``single_root`` exactly one word has the root as its head.
    """
    n, k = arcs.shape[1] - 1, heads.shape[1]
    tree_scratch, chosen = make_scratch(n), arrays.empty((2, 2 * n + 1), np.int64)
    tree, order = arrays.empty(n + 1, np.int64), arrays.empty((4, n + 1), np.int64)
    shift = arrays.empty(n + 1)
    # Of each listed tree: its score, the score of the second best tree of its subset,
    # the word whose arc that tree lacks, and the last constraint of the subset.
    score, next_score = arrays.empty((2, k))
    excluded_word, last_constraint = arrays.empty((2, k), np.int64)
    # constraints: word, head, kind, index of the previous one
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
            # the t-th best tree is the second best of the subset of tree s
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
                # tree s stays in the subset that requires the arc; the new tree's
                # excludes it
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
            loss, excluded_word[t] = _second_best_loss_and_word(
                arcs[b], m, single_root, scratch, nodes, tree
            )
            next_score[t] = score[t] - loss
            if t > 0:
                # search again with the arc required: the contracted cycles give the
                # next loss
                subset = constraints, last_constraint[s]
                # the search again, now with the arc taken: its cycles give the next one
                nodes = _best_tree_of_subset(
                    arcs[b], m, single_root, subset, scratch, tree
                )
                for v in range(m):
                    tree[v + 1] = heads[b, s, v]
                loss, new_word = _second_best_loss_and_word(
                    arcs[b], m, single_root, scratch, nodes, tree
                )
                excluded_word[s], next_score[s] = new_word, score[s] - loss


@subroutine
def _tree_score(scores, n, tree):
    """Return the sum of the arcs of tree[1:n + 1], the head of each word."""
    total = 0.0
    for v in range(1, n + 1):
        total += scores[tree[v], v]
    return total


@subroutine
def _best_tree_of_subset(scores, n, single_root, subset, scratch, tree):
    """Fill the heads of a subset's best tree; return the number of nodes, -1 if none.

    ``subset`` is the array of constraints and the index of the subset's last one.
    ``chosen`` keeps the best arcs before ``expand_cycles`` overwrites them.
    """
    (value, entry_word, marks), chosen, _, _, _ = scratch
    constraints, constraint = subset
    fill_arc_scores(scores, n, value, entry_word)
    while constraint >= 0:
        v, head, kind, constraint = constraints[constraint]
        if kind == EXCLUDED:
            value[v, head] = -np.inf
            continue
        # an arc is required by forbidding all other arcs into its word
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
def _second_best_loss_and_word(scores, n, single_root, scratch, nodes, tree):
    """Score lost by the second best tree of a subset, and a word whose arc it lacks.

    Call it after ``_best_tree_of_subset``; ``tree`` is the best tree. If the search
    returned another tree of the same score, that tree is the second best.
    """
    (value, _, marks), chosen, _, order, shift = scratch
    for v in range(1, n + 1):
        if tree[v] != marks[1, v]:
            loss = _tree_score(scores, n, tree) - _tree_score(scores, n, marks[1])
            return max(loss, 0.0), v
    _, head, word, parent, _, _ = marks
    begin, end, contracted = order[0], order[1], order[2]
    # u is a descendant of w if its preorder number is in w's interval
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
                # other arcs from h into the cycle, shifted to the scores of node c
                if contracted[v] == c and v != w:
                    replacement = max(replacement, value[v, h] - shift[v])
        if max(value[c, h] - replacement, 0.0) < min_loss:
            min_loss, argmin_word = max(value[c, h] - replacement, 0.0), w
    return min_loss, argmin_word


@subroutine
def _fill_preorder(tree, n, order):
    """Fill begin and end of each word's subtree in a preorder of the tree.

    The subtree of w is ``begin[w] <= begin[v] < end[w]``. No recursion: trees may be
    deep.
    """
    begin, end, child, sibling = order
    for v in range(n + 1):
        child[v] = sibling[v] = -1
    for v in range(n, 0, -1):
        # linked lists of children, prepended from the last word, hence in ascending
        # order
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
