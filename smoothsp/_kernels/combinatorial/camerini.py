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

from smoothsp._kernels.combinatorial.chu_liu_edmonds import expand, fill, grow, scratch
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays

TAKEN, BARRED = 1, 0


@kernel
def k_best_trees(first, last, arcs, lengths, single, heads, exist):
    """Fill heads[B, k, n], best first, -1 where there are none, and exist[B, k]."""
    n, k = arcs.shape[1] - 1, heads.shape[1]
    room, chosen = scratch(n), arrays.empty((2, 2 * n + 1), np.int64)
    tree, order = arrays.empty(n + 1, np.int64), arrays.empty((4, n + 1), np.int64)
    shift = arrays.empty(n + 1)
    # of each tree of the list: its score, that of the next in its part, and the word
    # whose arc is in the way; the last of the part's conditions
    score, runner_up = arrays.empty((2, k))
    split, ends = arrays.empty((2, k), np.int64)
    # conditions: word, head, kind, the one before
    conditions = arrays.empty((2 * k + 1, 4), np.int64)
    memory = room, chosen, tree, order, shift
    for b in range(first, last):
        m = lengths[b]
        for t in range(k):
            exist[b, t] = False
            for v in range(n):
                heads[b, t, v] = -1
        count = 0
        for t in range(k):
            # the next tree is the second of the part of tree s
            s = 0
            for other in range(1, t):
                if runner_up[other] > runner_up[s]:
                    s = other
            if t > 0 and runner_up[s] == -np.inf:
                break
            ends[t] = -1
            if t > 0:
                word = split[s]
                before, head = ends[s], heads[b, s, word - 1]
                for kind in (BARRED, TAKEN):
                    conditions[count, 0], conditions[count, 1] = word, head
                    conditions[count, 2], conditions[count, 3] = kind, before
                    ends[t if kind == BARRED else s] = count
                    count += 1
            part = conditions, ends[t]
            nodes = _best(arcs[b], m, single, part, memory, tree)
            if nodes < 0:
                break
            exist[b, t] = True
            for v in range(m):
                heads[b, t, v] = tree[v + 1]
            if t == k - 1:
                break
            score[t] = _total(arcs[b], m, tree)
            lost, split[t] = _next(arcs[b], m, single, memory, nodes, tree)
            runner_up[t] = score[t] - lost
            if t > 0:
                part = conditions, ends[s]
                # the search again, now with the arc taken: its cycles give the next one
                nodes = _best(arcs[b], m, single, part, memory, tree)
                for v in range(m):
                    tree[v + 1] = heads[b, s, v]
                lost, at = _next(arcs[b], m, single, memory, nodes, tree)
                split[s], runner_up[s] = at, score[s] - lost


@subroutine
def _total(scores, n, tree):
    total = 0.0
    for v in range(1, n + 1):
        total += scores[tree[v], v]
    return total


@subroutine
def _best(scores, n, single, part, memory, tree):
    """Fill the heads of the best tree of a part; how many nodes, -1 if it has none."""
    (value, enters, marks), chosen, _, _, _ = memory
    conditions, at = part
    fill(scores, n, value, enters)
    while at >= 0:
        v, head, kind, at = conditions[at]
        if kind == BARRED:
            value[v, head] = -np.inf
            continue
        for u in range(n + 1):
            if u != head:
                value[v, u] = -np.inf
    nodes = grow(value, enters, marks, n, single)
    for c in range(1, nodes + 1):
        chosen[0, c], chosen[1, c] = marks[1, c], marks[2, c]
    expand(marks, n, nodes)
    for v in range(1, n + 1):
        tree[v] = marks[1, v]
    return nodes


@subroutine
def _next(scores, n, single, memory, nodes, tree):
    """What the second best tree of a part loses, and the word of an arc it lacks.

    After ``_best``; ``tree`` is the best. If the search found another tree, which ties
    with it, that one is the second.
    """
    (value, _, marks), chosen, _, order, shift = memory
    for v in range(1, n + 1):
        if tree[v] != marks[1, v]:
            lost = _total(scores, n, tree) - _total(scores, n, marks[1])
            return max(lost, 0.0), v
    _, head, word, parent, _, _ = marks
    begin, end, at = order[0], order[1], order[2]
    _number(tree, n, order)
    least, where = np.inf, 0
    for v in range(n + 1):
        at[v], shift[v] = v, 0.0
    for c in range(1, nodes + 1):
        h, w = chosen[0, c], chosen[1, c]
        if c > n:
            for v in range(1, n + 1):
                if parent[at[v]] == c:
                    shift[v] += value[at[v], chosen[0, at[v]]]
                    at[v] = c
        if head[c] != h or word[c] != w:
            continue
        other = -np.inf
        for u in range(1 if single and h != 0 else 0, n + 1):
            below = begin[w] <= begin[u] < end[w]
            if u != h and not below:
                other = max(other, value[c, u])
        if c > n:
            # from the same head to other words
            for v in range(1, n + 1):
                if at[v] == c and v != w:
                    other = max(other, value[v, h] - shift[v])
        if max(value[c, h] - other, 0.0) < least:
            least, where = max(value[c, h] - other, 0.0), w
    return least, where


@subroutine
def _number(tree, n, order):
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
