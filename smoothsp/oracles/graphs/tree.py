"""Rooted trees and forests of variables, one for the batch or one per row."""

import functools
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from smoothsp.oracles._circuits import Circuit, CircuitStructure, Items, topology
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.tracing import is_compiling


class Tree(CircuitStructure):
    """A batch of trees whose nodes have states, with a score for each edge.

    The score of states y sums ``nodes[v, y_v]`` over all nodes v, and ``edges[v, y_p,
    y_v]`` over all nodes v with a parent p. A part with score ``-inf`` is forbidden;
    use this for nodes with fewer states than others. Every result is exact, and
    differentiable in every potential.

    Parameters
    ----------
    nodes
        ``(batch, node, state)``, float32 or float64; bfloat16 and float16 are computed
        in float32.
    edges
        ``(node, state, state)``, or ``(batch, node, state, state)``: ``[v, i, j]``
        scores state i of the parent of v with state j of v. Entries of roots are never
        read.
    parents
        ``(node,)`` integers, one tree for all rows, or ``(batch, node)``: the parent of
        each node, -1 at roots. Any number of roots; nodes may stand in any order.
    lengths
        ``(batch,)`` integers from 0 to node: the number of real nodes of each row, the
        first ones. Entries beyond are never read; their gradient is exactly zero. A row
        without a node has one output, the empty one, with score 0.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, a parent that is not a node of its row, or a cycle. Also for
        NaN or +inf in an entry that is read, or a row whose outputs are all forbidden.
        Values are not checked while ``torch.compile`` traces.

    Notes
    -----
    An output is ``(batch, node)``: the state of each node, -1 beyond the row. O(batch
    node state^2). Rows with equal trees are computed together, so a batch of many
    different trees is slower. The grouping of a batch is cached; a new set of trees
    costs some milliseconds once.

    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models"
    (2018), appendix on inference in trees; Pearl, "Reverend Bayes on Inference Engines"
    (1982).

    Examples
    --------
    A root with two children; the edge to the second one is repulsive:

    >>> import torch
    >>> from smoothsp.oracles import Tree
    >>> nodes = torch.tensor([[[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]])
    >>> edges = torch.zeros(3, 2, 2)
    >>> edges[1] = 2 * torch.eye(2)
    >>> edges[2] = -torch.eye(2)
    >>> value, y = Tree(nodes, edges, torch.tensor([-1, 0, 0])).decode()
    >>> value.tolist(), y.tolist()
    ([3.0], [[1, 1, 0]])
    """

    nodes: Tensor
    edges: Tensor
    parents: Tensor
    row_attributes: ClassVar[tuple[str, ...]] = ("parents",)
    output_description = "a state of each node"

    def __init__(
        self,
        nodes: Tensor,
        edges: Tensor,
        parents: Tensor,
        *,
        lengths: Tensor | None = None,
    ) -> None:
        nodes = checks.as_potentials("nodes", nodes)
        if nodes.dim() != 3 or not nodes.shape[2]:
            raise ValueError(
                "nodes: expected (batch, node, state) with at least one state, got "
                f"{tuple(nodes.shape)}"
            )
        B, V, S = nodes.shape
        edges = checks.as_potentials("edges", edges)
        checks.require_same_dtype("edges", edges, "nodes", nodes)
        is_shared = edges.dim() == 3
        if is_shared:
            checks.require_shape("edges", edges, (V, S, S), "(node, state, state)")
        else:
            form = "(batch, node, state, state)"
            checks.require_shape("edges", edges, (B, V, S, S), form)
        parents = checks.as_int64("parents", parents, nodes.device)
        is_single_tree = parents.dim() == 1
        if is_single_tree:
            checks.require_shape("parents", parents, (V,), "(node,)")
        else:
            checks.require_shape("parents", parents, (B, V), "(batch, node)")
        if lengths is not None:
            lengths = checks.as_lengths(lengths, B, V, nodes.device)
        trees: tuple[tuple[int, ...], ...]
        tree_of_row: Tensor | int
        if is_compiling():
            trees, tree_of_row = (), 0
        elif lengths is None and is_single_tree:
            trees, tree_of_row = (tuple(checks.to_list(parents)),), 0
            _require_tree(trees[0], 0)
        else:
            # the tree of a row is cut to its length before trees are compared
            if lengths is None:
                lengths = torch.full((B,), V, device=nodes.device)
            trees, tree_of_row = _unique_trees_and_row_index(
                parents.expand(B, V), lengths
            )
        # a copy: later changes of the argument must not reach the structure
        self.parents = parents.clone().expand(B, V)
        built = topology(_build_tree, V, S, is_shared, trees)
        row_potentials, shared = {"nodes": nodes}, {"edges": edges}
        super().__init__(
            built,
            row_potentials if is_shared else row_potentials | shared,
            shared if is_shared else {},
            roots=built.root(tree_of_row),
            lengths=V if lengths is None else lengths,
            shape=(V,),
        )

    def leaves_used(self, labels: Tensor) -> Tensor:
        """Leaves of each node and of the edge to its parent, -1 for none."""
        B, K, V = labels.shape
        S = self.nodes.shape[2]
        is_state = (labels >= 0) & (labels < S)
        node = torch.arange(V, device=labels.device)
        parts = torch.where(is_state, node * S + labels, -1)
        parent = self.parents[:, None].expand(B, K, V)
        has_parent = is_state & (parent >= 0)
        parent_state = labels.gather(2, parent.clamp(0, max(V - 1, 0)))
        has_parent = has_parent & (parent_state >= 0) & (parent_state < S)
        edges = V * S + (node * S + parent_state) * S + labels
        return torch.cat([parts, torch.where(has_parent, edges, -1)], 2)


def _unique_trees_and_row_index(
    parents: Tensor, lengths: Tensor
) -> tuple[tuple[tuple[int, ...], ...], Tensor]:
    """Validate the trees; return the distinct ones, and the index of each row's."""
    index_of_tree: dict[tuple[int, ...], int] = {}
    tree_of_row = []
    for b, (row, n) in enumerate(
        zip(checks.to_list(parents), checks.to_list(lengths), strict=True)
    ):
        tree = tuple(row[:n])
        if tree not in index_of_tree:
            _require_tree(tree, b)
            index_of_tree[tree] = len(index_of_tree)
        tree_of_row.append(index_of_tree[tree])
    return tuple(index_of_tree), torch.tensor(
        tree_of_row, dtype=torch.int64, device="cpu"
    )


@lru_cache(maxsize=256)
def _require_tree(tree: tuple[int, ...], row: int) -> None:
    """Raise ValueError if a parent is out of range or parents form a cycle."""
    done = [False] * len(tree)
    for node, parent in enumerate(tree):
        if not -1 <= parent < len(tree):
            raise ValueError(
                f"parents: expected -1 or a node of the row, below {len(tree)}, got "
                f"{parent} at row {row}, node {node}"
            )
    for node in range(len(tree)):
        # climb to the root or to a node checked before: linear time in all
        path = []
        while node >= 0 and not done[node]:
            if node in path:
                raise ValueError(
                    f"parents: expected a tree, got a cycle through node {node} at row "
                    f"{row}"
                )
            path.append(node)
            node = tree[node]
        for visited in path:
            done[visited] = True


def _build_tree(
    V: int, S: int, is_shared: bool, trees: tuple[tuple[int, ...], ...]
) -> tuple[Circuit, Items]:
    """Build the upward pass of belief propagation of each tree, and its roots.

    ``subtree[s]`` of node v is its score in state s times the messages of its children,
    and ``message[v, i] = sum_s edge[v, i, s] subtree[s]`` for state i of the parent.
    The items of a tree are consecutive, so rows with this tree compute no other items.
    """
    c = Circuit()
    node = c.leaves(V, S)
    edge = c.shared(V, S, S) if is_shared else c.leaves(V, S, S)
    c.label(node, np.arange(V)[:, None], np.arange(S))
    tree_roots = np.full(len(trees), c.ONE, np.int32)
    for tree_index, tree in enumerate(trees):
        children: list[list[int]] = [[] for _ in tree]
        for v, parent in enumerate(tree):
            if parent >= 0:
                children[parent].append(v)
        message = c.chart(len(tree), S)
        roots = []
        for v in _postorder(tree, children):
            subtree = node[v]
            for child in children[v]:
                subtree = _multiply_items(c, subtree, message[child])
            # a root is summed over its states; other nodes send a message upwards
            if tree[v] >= 0:
                c.define(message[v], (edge[v], subtree[None]))
            else:
                roots.append(c.chart())
                c.define(roots[-1], (subtree,))
        # a forest: the sums of its trees multiply; the empty tree keeps ONE
        if roots:
            tree_roots[tree_index] = functools.reduce(
                functools.partial(_multiply_items, c), roots
            )
    return c, tree_roots


def _multiply_items(c: Circuit, left: Items, right: Items) -> Items:
    """New items, the elementwise products."""
    product = c.chart(*left.shape)
    c.multiply(product, left, right)
    return product


def _postorder(tree: tuple[int, ...], children: list[list[int]]) -> list[int]:
    """Nodes in an order with children before parents."""
    # breadth-first from the roots while the list grows, then reversed
    order = [v for v, parent in enumerate(tree) if parent < 0]
    for v in order:
        order += children[v]
    return order[::-1]
