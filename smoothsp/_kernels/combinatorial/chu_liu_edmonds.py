"""Chu-Liu-Edmonds algorithm: best dependency trees, by contracting cycles.

Each node takes its best arc. A cycle C of such arcs becomes a node, with arcs

    value(C, u) = max over x in C of value(x, u) - value(x, head of x in C)

for u outside of C. At the end the nodes are expanded, last contracted first: the arc
into a contracted node replaces the arc of the node that it enters. Scores are stored by
node, then head: the search for a best arc and the maximum above read along rows.

``arcs`` are scores ``[B, n + 1, n + 1]``, head and modifier; head 0 is the root. The
diagonal, column 0 and entries beyond the row's length are not read.

Source: Chu and Liu (1965); Edmonds (1967); the order in which paths grow is that of
Gabow, Galil, Spencer and Tarjan (1986).
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
    """Fill heads[B, n] of a best tree, -1 past the length, values[B] and feasible[B].

    Arcs, of the dtype of ``values``, are at ``address``; lengths are at another
    address, 0 if all rows have n words. Heads are -1 throughout where no tree exists.
    With ``single_root`` exactly one word has the root as its head. O(n^2) for a row: a
    path grows backwards from a word, along best arcs, until it meets a finished word or
    the root. Where it closes a cycle, the cycle becomes one node.
    """
    # addresses instead of arrays: views of arrays cost microseconds at each call
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
    """Fill used[B, K, n] with the flat indices of arcs of heads[B, K, n], -1 for none.

    ``sizes`` are (B, K, n). ``pointers`` are the addresses of heads, of used and of
    lengths, 0 if all rows have n words. Return ``b K + k`` of the first heads that are
    no tree, -1 if all are trees.
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
                # heads out of range are clipped: invalid rows are reported, but never
                # index outside
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
    """Fill feasible[B]: whether a tree with finite arcs exists.

    It does if all words can be reached from the root, or, with ``single_root``, from
    one of the root's children. Arcs, of the dtype of ``like``, and lengths are at
    addresses, as for ``best_tree``.
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
    """Whether breadth-first search from ``start`` reaches all words.

    ``stamp`` is written to ``reached`` at visited words, so that searches from several
    roots need no clearing.
    """
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
    """Fill values[B, K] with the scores of heads[B, K, n], where -1 is padding."""
    for b in range(len(heads)):
        for k in range(heads.shape[1]):
            # Summed from the arcs: the search's values are differences and have lost
            # digits.
            total = 0.0
            for v in range(heads.shape[2]):
                if heads[b, k, v] >= 0:
                    total += arcs[b, heads[b, k, v], v + 1]
            values[b, k] = total


@subroutine
def make_scratch(n):
    """Scores, entered words and marks, for n words and at most n contracted cycles."""
    return (
        arrays.empty((2 * n + 1, n + 1)),
        arrays.empty((2 * n + 1, n + 1), np.int64),
        arrays.empty((6, 2 * n + 1), np.int64),
    )


@subroutine
def fill_arc_scores(scores, n, value, entry_word):
    """Fill the scores of arcs into words, transposed; -inf from a word to itself."""
    for u in range(n + 1):
        for v in range(1, n + 1):
            value[v, u] = scores[u, v] if u != v else -np.inf
            entry_word[v, u] = v


@subroutine
def contract_cycles(value, entry_word, marks, n, single_root):
    """Contract cycles of best arcs; return the number of nodes, -1 if no tree exists.

    ``value[v, u]`` is the score of the arc from u into node v, ``entry_word[v, u]`` the
    word at which it ends. Nodes above n are contracted cycles. ``marks[1]`` and
    ``marks[2]`` receive head and word of each node's best arc.
    """
    # state: 0 unvisited, 1 on the path, 2 finished
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
                # the path ends at the root or at a finished node: no cycle can go
                # through it
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
    # the root was taken only where no other arc was left, so that more are no tree
    return -1 if single_root and n > 0 and roots != 1 else num_nodes


@subroutine
def expand_cycles(marks, n, num_nodes):
    """Replace the best arc of each node by its arc in the tree, where they differ."""
    _, head, word, parent, _, _ = marks
    # from the last contracted cycle to the first: outer cycles decide for inner ones
    for c in range(num_nodes, n, -1):
        x = word[c]
        while parent[x] != c:
            x = parent[x]
        head[x], word[x] = head[c], word[c]


@subroutine
def _best_head(row, n, single_root):
    """Head of highest score, the lowest of equal ones.

    With ``single_root`` the root is returned only if all other heads are forbidden.
    """
    best_head = 1 if n > 0 else 0
    for u in range(2, n + 1):
        if row[u] > row[best_head]:
            best_head = u
    if row[best_head] == -np.inf or (not single_root and row[0] >= row[best_head]):
        return 0
    return best_head


@subroutine
def _contract_cycle(value, entry_word, marks, n, size, cycle_start, new_node):
    """Merge the path from ``cycle_start`` to its end into ``new_node``.

    Return the new number of nodes on the path.
    """
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
        # arcs from inside the cycle are no arcs into it
        # arcs from inside the cycle are no arcs into it
        if parent[component[u]] == new_node:
            component[u] = new_node
            value[new_node, u] = -np.inf
    state[new_node] = 1
    path[size] = new_node
    return size + 1
