"""Best spanning trees of heads, by contracting cycles.

``tables`` are ``[B, n, n + 1]`` of float64: of each word, from 0, the scores of its
heads; head 0 is the root, head i is word i - 1. Only words and heads up to the length
of the row are read.
"""

import numpy as np
from numba import njit

from smoothsp._kernels.compilation.kernel import kernel


@kernel
def best(first, last, tables, lengths, single, heads, found):
    """Fill heads[B, n] of a best tree, -1 past the length, and found[B]: is there one.

    With ``single`` exactly one word has the root for its head. O(n^2) a row: a path is
    grown backwards from a word, along best arcs, until it meets a finished word or the
    root; a cycle that it closes becomes one node.
    """
    n = tables.shape[1]
    value = np.empty((2 * n + 1, n + 1))
    enters = np.empty((2 * n + 1, n + 1), np.int64)
    marks = np.empty((6, 2 * n + 1), np.int64)
    for b in range(first, last):
        m = lengths[b]
        for v in range(1, m + 1):
            for u in range(m + 1):
                value[v, u] = tables[b, v - 1, u]
                enters[v, u] = v
            value[v, v] = -np.inf
        found[b] = _grow(value, enters, marks, m, single)
        for v in range(n):
            heads[b, v] = marks[1, v + 1] if found[b] and v < m else -1


@njit(error_model="numpy", no_cpython_wrapper=True)
def _grow(value, enters, marks, n, single):
    """Heads of words 1 to n in ``marks[1]``; False where there is no tree.

    Row v of ``value`` are scores of arcs into node v, ``enters`` the words that they
    end at; nodes above n are contracted cycles.
    """
    inside, head, word, parent, state, path = marks
    for u in range(n + 1):
        inside[u] = u
    parent[: 2 * n + 1] = 0
    state[: 2 * n + 1] = 0
    nodes, roots = n, 0
    for begin in range(1, n + 1):
        c = inside[begin]
        if state[c] == 2:
            continue
        path[0], size = c, 1
        state[c] = 1
        while True:
            u = _best_head(value[c], n, single)
            if value[c, u] == -np.inf:
                return False
            head[c], word[c] = u, enters[c, u]
            d = inside[u]
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
            nodes += 1
            size = _contract(value, enters, marks, n, size, d, nodes)
            c = nodes
    if single and n > 0 and roots != 1:
        return False
    # the arc into a cycle takes the place of the one that it had at that word
    for c in range(nodes, n, -1):
        x = word[c]
        while parent[x] != c:
            x = parent[x]
        head[x], word[x] = head[c], word[c]
    return True


@njit(error_model="numpy", no_cpython_wrapper=True)
def _best_head(row, n, single):
    """The head of highest score; the root only where it must be, with ``single``."""
    best = 1 if n > 0 else 0
    for u in range(2, n + 1):
        if row[u] > row[best]:
            best = u
    if row[best] == -np.inf or (not single and row[0] >= row[best]):
        return 0
    return best


@njit(error_model="numpy", no_cpython_wrapper=True)
def _contract(value, enters, marks, n, size, until, new):
    """Make one node of the end of the path, from ``until`` on; its new size."""
    inside, head, _, parent, state, path = marks
    for u in range(n + 1):
        value[new, u] = -np.inf
    while True:
        size -= 1
        x = path[size]
        parent[x] = new
        lost = value[x, head[x]]
        for u in range(n + 1):
            gain = value[x, u] - lost
            if gain > value[new, u]:
                value[new, u] = gain
                enters[new, u] = enters[x, u]
        if x == until:
            break
    for u in range(1, n + 1):
        if parent[inside[u]] == new:
            inside[u] = new
            value[new, u] = -np.inf
    state[new] = 1
    path[size] = new
    return size + 1
