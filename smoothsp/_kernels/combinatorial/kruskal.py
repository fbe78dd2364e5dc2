"""Kruskal's algorithm: best spanning trees of undirected graphs."""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays


@kernel
def best_spanning_tree(first, last, edges, index, order, nodes, trees, feasible):
    """Fill trees[B, E], 1 at the edges of a best tree and 0 elsewhere, and feasible[B].

    edges[B, E] are scores, index[1 or B, E, 2] their end nodes, below nodes[B]. Edges
    of node -1 are padding, and their trees entry is -1. order[B, E] lists the edges,
    best first. The next best edge that closes no cycle is added until the tree spans.
    """
    E = edges.shape[1]
    # union-find; a spanning tree of more than E + 1 nodes cannot exist
    root = arrays.empty(E + 1, np.int64)
    for b in range(first, last):
        edge_nodes = index[b if len(index) > 1 else 0]
        for v in range(nodes[b]):
            root[v] = v
        num_missing = nodes[b] - 1
        for e in range(E):
            trees[b, e] = 0 if edge_nodes[e, 0] >= 0 else -1
        for i in range(E):
            e = order[b, i]
            if num_missing == 0 or edge_nodes[e, 0] < 0 or not edges[b, e] > -np.inf:
                continue
            u, v = (
                _find_root(root, edge_nodes[e, 0]),
                _find_root(root, edge_nodes[e, 1]),
            )
            if u != v:
                root[u] = v
                trees[b, e] = 1
                num_missing -= 1
        feasible[b] = num_missing == 0


@kernel
def are_spanning_trees(index, nodes, y, is_tree):
    """Fill is_tree[B, K]: whether y[B, K, E] is 1 on a spanning tree and 0 elsewhere.

    Arguments as of ``best_spanning_tree``; y is not read at padding.
    """
    B, K, E = y.shape
    root = arrays.empty(E + 1, np.int64)
    for b in range(B):
        edge_nodes = index[b if len(index) > 1 else 0]
        for k in range(K):
            for v in range(nodes[b]):
                root[v] = v
            num_missing, is_valid = nodes[b] - 1, True
            for e in range(E):
                if edge_nodes[e, 0] < 0 or y[b, k, e] == 0:
                    continue
                u, v = (
                    _find_root(root, edge_nodes[e, 0]),
                    _find_root(root, edge_nodes[e, 1]),
                )
                is_valid = is_valid and y[b, k, e] == 1 and u != v
                root[u] = v
                num_missing -= 1
            is_tree[b, k] = is_valid and num_missing == 0


@subroutine
def _find_root(root, v):
    """Return the representative of v's component, halving the path to it."""
    while root[v] != v:
        root[v] = root[root[v]]
        v = root[v]
    return v
