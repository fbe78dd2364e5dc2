"""Best spanning trees of heads, by contracting cycles (Chu-Liu-Edmonds).

Each node takes its best arc. A cycle C of such arcs becomes a node, with arcs

    value(C, u) = max over x in C of value(x, u) - value(x, head of x in C)

for u outside of C. In the end, last contracted first, the arc into a contracted node
replaces the arc of the node in it that it enters. Scores are stored by node, then head:
the search for a best arc, and the maximum above, go along rows.

``arcs`` are ``[B, n + 1, n + 1]`` of scores, head and modifier; head 0 is the root.
Only words and heads up to the length of the row are read, and of the root and of a word
itself no heads.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import carray


@kernel
def best_tree(
    first, last, address, shape, lengths, single_root, heads, values, feasible
):
    """Fill heads[B, n] of a best tree, -1 past the length, its score, and found[B].

    Arcs, of the type of values[B], and lengths are at addresses; at 0 there are none,
    and rows are whole. -1 throughout where no tree is found. With ``single`` exactly
    one word has the root for its head. O(n^2) a row: a path is grown backwards from a
    word, along best arcs, until it meets a finished word or the root; where it closes a
    cycle, the cycle becomes one node.
    """
    arcs = carray(address, shape, values)
    sizes = carray(lengths, (shape[0],), np.int64)
    n = shape[1] - 1
    value, entry_word, marks = make_scratch(n)
    for b in range(first, last):
        m = sizes[b] if lengths else n
        fill_arc_scores(arcs[b], m, value, entry_word)
        nodes = contract_cycles(value, entry_word, marks, m, single_root)
        feasible[b] = nodes >= 0
        expand_cycles(marks, m, nodes)
        total = 0.0
        for v in range(n):
            is_valid = feasible[b] and v < m
            heads[b, v] = marks[1, v + 1] if is_valid else -1
            if is_valid:
                total += arcs[b, marks[1, v + 1], v + 1]
        values[b] = total


@kernel
def indices_of_arcs(sizes, pointers, single_root):
    """Fill used[B, K, n] with the entries of arcs that heads[B, K, n] use, -1 for none.

    ``sizes`` are B, K and n, ``places`` the addresses of heads, of used and of lengths,
    0 if rows are whole. Returns ``b K + k`` of the first heads that are no tree, -1 if
    all are.
    """
    B, K, n = sizes
    heads, used = (
        carray(pointers[0], (B, K, n), np.int64),
        carray(pointers[1], (B, K, n), np.int64),
    )
    lengths = carray(pointers[2], (B,), np.int64)
    visited, first_invalid = arrays.empty(n + 1, np.int64), -1
    for b in range(B):
        m = lengths[b] if pointers[2] != 0 else n
        for k in range(K):
            roots, is_tree = 0, True
            for v in range(n):
                head = heads[b, k, v]
                used[b, k, v] = min(max(head, 0), n) * (n + 1) + v + 1 if v < m else -1
                if v < m:
                    is_tree &= 0 <= head <= m
                    roots += head == 0
            if single_root:
                is_tree &= roots == min(m, 1)
            # a walk up from each word, which ends at the root or at an earlier walk
            visited[:] = 0
            v = 1
            while is_tree and v <= m:
                u = v
                while u != 0 and visited[u] == 0:
                    visited[u] = v
                    u = heads[b, k, u - 1]
                is_tree = u == 0 or visited[u] < v
                v += 1
            if first_invalid < 0 and not is_tree:
                first_invalid = b * K + k
    return first_invalid


@kernel
def is_feasible(address, shape, like, lengths, single_root, feasible):
    """Fill found[B]: whether there is a tree of arcs above -inf.

    From the root, or with ``single`` from one of its words, all words are reached.
    Arcs, of the type of ``like``, and lengths are at addresses, as of ``best``.
    """
    arcs = carray(address, shape, like)
    sizes = carray(lengths, (shape[0],), np.int64)
    n = shape[1] - 1
    reached, queue = arrays.empty(n + 1, np.int64), arrays.empty(n + 1, np.int64)
    for b in range(len(arcs)):
        m = sizes[b] if lengths else n
        reached[:] = -1
        feasible[b] = m == 0
        if not single_root:
            feasible[b] = _reaches_all(arcs[b], m, 0, 0, reached, queue)
            continue
        for root in range(1, m + 1):
            if arcs[b, 0, root] > -np.inf:
                reached[0] = root
                if _reaches_all(arcs[b], m, root, root, reached, queue):
                    feasible[b] = True
                    break


@subroutine
def _reaches_all(scores, n, start, stamp, reached, queue):
    """Whether all words are reached from one; ``mark`` is written where one is."""
    queue[0] = start
    reached[start] = stamp
    next_index, count, num_unreached = 0, 1, n if start == 0 else n - 1
    while next_index < count and num_unreached > 0:
        u = queue[next_index]
        next_index += 1
        for v in range(1, n + 1):
            if reached[v] != stamp and scores[u, v] > -np.inf:
                reached[v] = stamp
                queue[count] = v
                count += 1
                num_unreached -= 1
    return num_unreached == 0


@kernel
def score_trees(arcs, heads, values):
    """Fill values[B, K] with the scores of heads[B, K, n], -1 for none."""
    for b in range(len(heads)):
        for k in range(heads.shape[1]):
            total = 0.0
            for v in range(heads.shape[2]):
                if heads[b, k, v] >= 0:
                    total += arcs[b, heads[b, k, v], v + 1]
            values[b, k] = total


@subroutine
def make_scratch(n):
    """Values, words that arcs end at, and marks, for n words and at most n cycles."""
    return (
        arrays.empty((2 * n + 1, n + 1)),
        arrays.empty((2 * n + 1, n + 1), np.int64),
        arrays.empty((6, 2 * n + 1), np.int64),
    )


@subroutine
def fill_arc_scores(scores, n, value, entry_word):
    """Fill the scores of arcs into words; -inf from a word to itself."""
    for u in range(n + 1):
        for v in range(1, n + 1):
            value[v, u] = scores[u, v] if u != v else -np.inf
            entry_word[v, u] = v


@subroutine
def contract_cycles(value, entry_word, marks, n, single_root):
    """Contract cycles of best arcs. Returns the number of nodes, -1 without a tree.

    Row v of ``value`` are scores of arcs into node v, ``enters`` the words that they
    end at; nodes above n are contracted cycles. ``marks[1]`` and ``marks[2]`` are head
    and word of each node's best arc.
    """
    component, head, word, parent, state, path = marks
    for u in range(n + 1):
        component[u] = u
    parent[: 2 * n + 1] = 0
    state[: 2 * n + 1] = 0
    num_nodes, roots = n, 0
    for begin in range(1, n + 1):
        c = component[begin]
        if state[c] == 2:
            continue
        path[0], size = c, 1
        state[c] = 1
        while True:
            u = _best_head(value[c], n, single_root)
            if value[c, u] == -np.inf:
                return -1
            head[c], word[c] = u, entry_word[c, u]
            d = component[u]
            if u == 0 or state[d] == 2:
                roots += u == 0
                for i in range(size):
                    state[path[i]] = 2
                break
            if state[d] == 0:
                state[d] = 1
                path[size] = c = d
                size += 1
                continue
            num_nodes += 1
            size = _contract_cycle(value, entry_word, marks, n, size, d, num_nodes)
            c = num_nodes
    return -1 if single_root and n > 0 and roots != 1 else num_nodes


@subroutine
def expand_cycles(marks, n, num_nodes):
    """Replace the best arc of each node by its arc of the tree, where that differs."""
    _, head, word, parent, _, _ = marks
    # the arc into a cycle replaces the arc of the cycle into that word
    for c in range(num_nodes, n, -1):
        x = word[c]
        while parent[x] != c:
            x = parent[x]
        head[x], word[x] = head[c], word[c]


@subroutine
def _best_head(row, n, single_root):
    """The head of highest score. With ``single`` the root only as the last resort."""
    best_head = 1 if n > 0 else 0
    for u in range(2, n + 1):
        if row[u] > row[best_head]:
            best_head = u
    if row[best_head] == -np.inf or (not single_root and row[0] >= row[best_head]):
        return 0
    return best_head


@subroutine
def _contract_cycle(value, entry_word, marks, n, size, cycle_start, new_node):
    """Merge the nodes of the path from ``until`` on; return the path's new size."""
    component, head, _, parent, state, path = marks
    for u in range(n + 1):
        value[new_node, u] = -np.inf
    while True:
        size -= 1
        x = path[size]
        parent[x] = new_node
        removed_score = value[x, head[x]]
        for u in range(n + 1):
            gain = value[x, u] - removed_score
            if gain > value[new_node, u]:
                value[new_node, u] = gain
                entry_word[new_node, u] = entry_word[x, u]
        if x == cycle_start:
            break
    for u in range(1, n + 1):
        if parent[component[u]] == new_node:
            component[u] = new_node
            value[new_node, u] = -np.inf
    state[new_node] = 1
    path[size] = new_node
    return size + 1
