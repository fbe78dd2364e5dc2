"""Best spanning trees of undirected graphs, edge by edge."""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays


@kernel
def best_spanning_tree(first, last, edges, index, order, nodes, trees, feasible):
    """Fill trees[B, E] with 1 for the edges of a best tree, 0 for others.

    edges[B, E] are scores, index[1 or B, E, 2] their nodes, below nodes[B]; those of -1
    are none, and get -1. order[B, E] are edges, the best first. found[b] says whether
    there is any tree. Kruskal's algorithm: the best edge that closes no cycle.
    """
    E = edges.shape[1]
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
    """Fill answer[B, K]: whether y[B, K, E] are 1 at a spanning tree, and 0 elsewhere.

    Arguments as of ``best``; what y is at edges of -1 is not read.
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
    """The node that stands for all that are joined with v; paths are halved."""
    while root[v] != v:
        root[v] = root[root[v]]
        v = root[v]
    return v
