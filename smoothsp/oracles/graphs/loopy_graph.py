"""Pairwise models on graphs of small treewidth, with exact inference."""

import functools

import numpy as np
import torch
from torch import Tensor

from smoothsp.oracles._circuits import Circuit, CircuitStructure, topology
from smoothsp.oracles._circuits.circuit import Items
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.tracing import is_compiling

# Maximum number of products of a circuit: building needs 40 bytes for each.
_MAX_PRODUCTS = 4_000_000
# (sorted nodes, items with one axis of states for each of them)
Factor = tuple[tuple[int, ...], Items]


class LoopyGraph(CircuitStructure):
    r"""A batch of pairwise models on a graph, which may have cycles.

    .. math:: s(y) = \sum_v \mathrm{nodes}[v, y_v]
        + \sum_{e = (i, j)} \mathrm{edges}[e, y_i, y_j]

    Edges may be attractive or repulsive, and every result is exact. The cost is
    exponential in the treewidth w of the graph: ``S^(w + 1)`` products for each node.
    Trees have w = 1, cycles and ladders w = 2, and grids the length of their shorter
    side.

    Parameters
    ----------
    nodes
        ``(batch, V, S)``, float32 or float64; bfloat16 and float16 are computed in
        float32. A part with score ``-inf`` is forbidden.
    edges
        ``(batch, E, S, S)``: state of the first, then of the second node.
    index
        ``(E, 2)`` integers from 0 to V - 1: the nodes of each edge, for all rows.
        Several edges may join the same nodes, but no edge joins a node with itself.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, NaN or +inf, a row whose outputs are all forbidden, or a
        graph that needs more than 4,000,000 products.

    Notes
    -----
    An output is ``(batch, V)``: the state of each node. Nodes are eliminated in
    min-fill order, which is cached for each graph.

    For large graphs with cycles and two states, use ``BinaryGraph`` if edges are
    submodular. Otherwise try ``approximate_by_dual_decomposition``, which also returns
    whether its labelling is certified to be the best.

    Source: Koller and Friedman, "Probabilistic Graphical Models" (2009), sections 9.3
    and 9.4.3.2 (elimination, and its order by min-fill).

    Examples
    --------
    A ring of three nodes with repulsive edges and two states:

    >>> import torch
    >>> from smoothsp.oracles import LoopyGraph
    >>> ring = torch.tensor([[0, 1], [1, 2], [2, 0]])
    >>> graph = LoopyGraph(torch.zeros(1, 3, 2), -torch.eye(2).expand(1, 3, 2, 2), ring)
    >>> graph.decode()[0], round(graph.log_count().exp().item())
    (tensor([-1.]), 8)
    """

    nodes: Tensor
    edges: Tensor
    output_description = "a state of each node"

    def __init__(self, nodes: Tensor, edges: Tensor, index: Tensor) -> None:
        nodes = checks.as_potentials("nodes", nodes)
        if nodes.dim() != 3 or not nodes.shape[2]:
            raise ValueError(
                "nodes: expected (batch, V, S) with at least one state, got "
                f"{tuple(nodes.shape)}"
            )
        B, V, S = nodes.shape
        index = checks.as_int64("index", index, nodes.device)
        if index.dim() != 2 or index.shape[1] != 2:
            raise ValueError(f"index: expected (E, 2), got {tuple(index.shape)}")
        edges = checks.as_potentials("edges", edges)
        checks.require_same_dtype("edges", edges, "nodes", nodes)
        form = "(batch, E, S, S)"
        checks.require_shape("edges", edges, (B, len(index), S, S), form)
        listed = [] if is_compiling() else checks.to_list(index)
        pairs = tuple((int(i), int(j)) for i, j in listed)
        for e, (i, j) in enumerate(pairs):
            if not (0 <= i < V and 0 <= j < V and i != j):
                raise ValueError(
                    f"index: expected two nodes from 0 to {V - 1}, got {i} and {j} at "
                    f"edge {e}"
                )
        self._index = index.clone()
        built = topology(_build_elimination, V, S, pairs)
        potentials = {"nodes": nodes, "edges": edges}
        super().__init__(built, potentials, roots=built.root(), lengths=V, shape=(V,))

    def leaves_used(self, labels: Tensor) -> Tensor:
        """Leaves of the nodes and edges, -1 for invalid states."""
        V, S = self.nodes.shape[1:]
        is_state = (labels >= 0) & (labels < S)
        node = torch.arange(V, device=labels.device)
        parts = torch.where(is_state, node * S + labels, -1)
        first, second = (labels[:, :, self._index[:, i]] for i in range(2))
        has_states = (
            is_state[:, :, self._index[:, 0]] & is_state[:, :, self._index[:, 1]]
        )
        edge = torch.arange(len(self._index), device=labels.device)
        edges = V * S + (edge * S + first) * S + second
        return torch.cat([parts, torch.where(has_states, edges, -1)], 2)


def _build_elimination(
    V: int, S: int, pairs: tuple[tuple[int, int], ...]
) -> tuple[Circuit, Items]:
    """Eliminate the nodes in min-fill order; the root is the product of components.

    Eliminating v multiplies all factors that contain v and sums over its states, which
    gives a factor over the neighbours of v.
    """
    order = _min_fill_order(V, S, pairs)
    c = Circuit()
    node, edge = c.leaves(V, S), c.leaves(len(pairs), S, S)
    c.label(node, np.arange(V)[:, None], np.arange(S))
    factors: list[Factor] = [((v,), node[v]) for v in range(V)]
    for e, (i, j) in enumerate(pairs):
        factors.append(((i, j), edge[e]) if i < j else ((j, i), edge[e].T))
    component_sums = []
    for v in order:
        node_factors = sorted(
            (f for f in factors if v in f[0]), key=lambda f: len(f[0])
        )
        factors = [f for f in factors if v not in f[0]]
        # only the smaller factors are multiplied out; the largest enters the sum itself
        *smaller, largest = node_factors
        product_of_smaller = (
            functools.reduce(functools.partial(_factor_product, c), smaller)
            if smaller
            else None
        )
        scope = {*largest[0], *(product_of_smaller[0] if product_of_smaller else ())}
        neighbours = tuple(sorted(scope - {v}))
        # the eliminated axis is last, where the circuit sums
        message = c.chart(*[S] * len(neighbours))
        terms = [
            _align_axes(f, (*neighbours, v))
            for f in (product_of_smaller, largest)
            if f is not None
        ]
        c.define(message, terms)
        if neighbours:
            factors.append((neighbours, message))
        else:
            component_sums.append(message)
    root = np.full((), c.ONE, np.int32)
    # components of the graph are independent: their sums multiply
    for item in component_sums:
        product = c.chart()
        c.multiply(product, root, item)
        root = product
    return c, root


def _factor_product(c: Circuit, first: Factor, second: Factor) -> Factor:
    """Product of two factors, over the union of their nodes."""
    scope = tuple(sorted({*first[0], *second[0]}))
    left, right = np.broadcast_arrays(
        _align_axes(first, scope), _align_axes(second, scope)
    )
    product = c.chart(*left.shape)
    c.multiply(product, left, right)
    return scope, product


def _align_axes(factor: Factor, scope: tuple[int, ...]) -> Items:
    """Items with one axis per node of ``scope``, of length 1 for nodes not in it."""
    nodes, items = factor
    axes = sorted(range(len(nodes)), key=lambda i: scope.index(nodes[i]))
    size = dict(zip(nodes, items.shape, strict=True))
    return items.transpose(axes).reshape([size.get(v, 1) for v in scope])


def _min_fill_order(V: int, S: int, pairs: tuple[tuple[int, int], ...]) -> list[int]:
    """Greedy elimination order: next the node that adds the fewest fill-in edges.

    Ties go to the node with fewer neighbours, then to the lower number.
    """
    neighbours: dict[int, set[int]] = {v: set() for v in range(V)}
    for i, j in pairs:
        neighbours[i].add(j)
        neighbours[j].add(i)
    order, total = [], 0
    # the graph changes by fill-in, so counts are recomputed for each elimination
    while neighbours:
        v = min(
            neighbours,
            key=lambda v: (_num_fill_in_edges(neighbours, v), len(neighbours[v]), v),
        )
        clique = neighbours.pop(v)
        # products over the states of v and its neighbours
        total += S ** (len(clique) + 1)
        if total > _MAX_PRODUCTS:
            raise ValueError(
                f"index: expected a graph of at most {_MAX_PRODUCTS:,} products, got "
                f"one that joins {len(clique)} neighbours of {S} states each; use "
                "BinaryGraph or approximate_by_dual_decomposition"
            )
        for u in clique:
            neighbours[u] |= clique - {u}
            neighbours[u].discard(v)
        order.append(v)
    return order


def _num_fill_in_edges(neighbours: dict[int, set[int]], v: int) -> int:
    """Twice the number of pairs of neighbours of v without an edge."""
    adjacent = neighbours[v]
    return sum(len(adjacent) - 1 - len(neighbours[u] & adjacent) for u in adjacent)
