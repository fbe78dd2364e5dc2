"""Pairwise models on graphs of small treewidth, with exact inference."""

import functools

import numpy as np
import torch
from torch import Tensor

from smoothsp.oracles._circuits import Circuit, CircuitStructure, topology
from smoothsp.oracles._circuits.circuit import Items
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.tracing import is_compiling

# Products that a circuit may have: 40 bytes each while it is built.
_MOST = 4_000_000
# Axes of states, sorted, and the items of each combination of them.
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
    A ring of three nodes that would all rather differ, with two states:

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
        words = "(batch, E, S, S)"
        checks.require_shape("edges", edges, (B, len(index), S, S), words)
        listed = [] if is_compiling() else checks.to_list(index)
        pairs = tuple((int(i), int(j)) for i, j in listed)
        for e, (i, j) in enumerate(pairs):
            if not (0 <= i < V and 0 <= j < V and i != j):
                raise ValueError(
                    f"index: expected two nodes from 0 to {V - 1}, got {i} and {j} at "
                    f"edge {e}"
                )
        self._index = index.clone()
        built = topology(_eliminated, V, S, pairs)
        own = {"nodes": nodes, "edges": edges}
        super().__init__(built, own, roots=built.root(), lengths=V, shape=(V,))

    def leaves_used(self, labels: Tensor) -> Tensor:
        """The leaf of each node, and of each edge."""
        V, S = self.nodes.shape[1:]
        known = (labels >= 0) & (labels < S)
        node = torch.arange(V, device=labels.device)
        parts = torch.where(known, node * S + labels, -1)
        first, second = (labels[:, :, self._index[:, i]] for i in range(2))
        both = known[:, :, self._index[:, 0]] & known[:, :, self._index[:, 1]]
        edge = torch.arange(len(self._index), device=labels.device)
        moves = V * S + (edge * S + first) * S + second
        return torch.cat([parts, torch.where(both, moves, -1)], 2)


def _eliminated(
    V: int, S: int, pairs: tuple[tuple[int, int], ...]
) -> tuple[Circuit, Items]:
    """All states of all nodes, summed out one after the other."""
    order = _order(V, S, pairs)
    c = Circuit()
    node, edge = c.leaves(V, S), c.leaves(len(pairs), S, S)
    c.label(node, np.arange(V)[:, None], np.arange(S))
    factors: list[Factor] = [((v,), node[v]) for v in range(V)]
    for e, (i, j) in enumerate(pairs):
        factors.append(((i, j), edge[e]) if i < j else ((j, i), edge[e].T))
    whole = []
    for v in order:
        touched = sorted((f for f in factors if v in f[0]), key=lambda f: len(f[0]))
        factors = [f for f in factors if v not in f[0]]
        *some, last = touched
        left = functools.reduce(functools.partial(_joined, c), some) if some else None
        scope = {*last[0], *(left[0] if left else ())}
        rest = tuple(sorted(scope - {v}))
        message = c.chart(*[S] * len(rest))
        terms = [_spread(f, (*rest, v)) for f in (left, last) if f is not None]
        c.define(message, terms)
        if rest:
            factors.append((rest, message))
        else:
            whole.append(message)
    answer = np.full((), c.ONE, np.int32)
    for item in whole:
        product = c.chart()
        c.multiply(product, answer, item)
        answer = product
    return c, answer


def _joined(c: Circuit, one: Factor, two: Factor) -> Factor:
    """Products of two factors, for all states of the nodes of either."""
    scope = tuple(sorted({*one[0], *two[0]}))
    left, right = np.broadcast_arrays(_spread(one, scope), _spread(two, scope))
    found = c.chart(*left.shape)
    c.multiply(found, left, right)
    return scope, found


def _spread(factor: Factor, scope: tuple[int, ...]) -> Items:
    """Items with an axis for each node of ``scope``, of length 1 where it has none."""
    own, items = factor
    at = sorted(range(len(own)), key=lambda i: scope.index(own[i]))
    size = dict(zip(own, items.shape, strict=True))
    return items.transpose(at).reshape([size.get(v, 1) for v in scope])


def _order(V: int, S: int, pairs: tuple[tuple[int, int], ...]) -> list[int]:
    """Nodes, next the one whose neighbours lack the fewest edges between them."""
    near: dict[int, set[int]] = {v: set() for v in range(V)}
    for i, j in pairs:
        near[i].add(j)
        near[j].add(i)
    order, total = [], 0
    while near:
        v = min(near, key=lambda v: (_missing(near, v), len(near[v]), v))
        around = near.pop(v)
        total += S ** (len(around) + 1)
        if total > _MOST:
            raise ValueError(
                f"index: expected a graph of at most {_MOST:,} products, got one that "
                f"joins {len(around)} neighbours of {S} states each; use BinaryGraph "
                "or approximate_by_dual_decomposition"
            )
        for u in around:
            near[u] |= around - {u}
            near[u].discard(v)
        order.append(v)
    return order


def _missing(near: dict[int, set[int]], v: int) -> int:
    around = near[v]
    return sum(len(around) - 1 - len(near[u] & around) for u in around)
