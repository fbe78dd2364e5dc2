"""Spanning trees of undirected graphs."""

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.searches import kruskal
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._questions import checks
from smoothsp.oracles._questions.arrays import array
from smoothsp.oracles._questions.divergences import Divergences
from smoothsp.oracles._questions.rounding import at_most_zero
from smoothsp.oracles._searches.structure import SearchStructure
from smoothsp.oracles.labelled_spanning_tree import LabelledSpanningTree


class UndirectedSpanningTree(SearchStructure, Divergences):
    r"""A batch of undirected graphs, whose outputs are the spanning trees.

    .. math:: s(y) = \sum_e y_e \, \mathrm{edges}[e], \quad
        y \in \{0, 1\}^E \text{ the edges of a spanning tree}

    A score of ``-inf`` forbids an edge. Everything is exact, and differentiable in the
    edges.

    Parameters
    ----------
    edges
        ``(batch, E)``: of each edge that is in the tree; float32 or float64; bfloat16
        and float16 are computed in float32.
    index
        ``(E, 2)`` integers: the nodes that each edge joins, from 0 to the highest
        number that occurs; one graph for all rows. Several edges may join the same
        nodes; none joins a node with itself. Or ``(batch, E, 2)``, a graph for each
        row, with -1 for edges that it lacks: those are never read, and get exactly zero
        gradient. A row without edges has one node and one output, the empty tree, with
        score 0.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, an edge that joins a node with itself, NaN or +inf where it
        is read, or a row without a spanning tree that is allowed.

    Notes
    -----
    An output is ``(batch, E)``: 1 for the edges of the tree, 0 for others, -1 for those
    that the row lacks. The Hamming cost counts the edges of the tree that y has not.
    ``decode`` is O(E log E) a row; sums are O(V^3), those of trees whose arcs lead away
    from node 0 (the matrix-tree theorem without its subtractions, as
    ``SpanningTree`` has it). They are taken in float64, on the CPU.

    Source: Kruskal, "On the Shortest Spanning Subtree of a Graph and the Traveling
    Salesman Problem" (1956), construction A; sums: Tutte, "The Dissection of
    Equilateral Triangles into Equilateral Triangles" (1948), theorem 3.6 (each
    undirected tree is one rooted tree of each root).

    Examples
    --------
    A triangle, and a node that hangs from it by two edges:

    >>> import torch
    >>> from smoothsp.oracles import UndirectedSpanningTree
    >>> index = torch.tensor([[0, 1], [1, 2], [2, 0], [2, 3], [3, 2]])
    >>> edges = torch.tensor([[3.0, 1.0, 2.0, 0.0, 1.0]])
    >>> trees = UndirectedSpanningTree(edges, index)
    >>> value, y = trees.decode()
    >>> value.tolist(), y.tolist(), round(trees.log_count().exp().item())
    ([6.0], [[1, 0, 1, 0, 1]], 6)
    """

    edges: Tensor
    index: Tensor
    _by_row = ("index", "_nodes", "_rank")
    _output_words = "0 or 1 for each edge, 1 for those of one spanning tree"

    def __init__(self, edges: Tensor, index: Tensor) -> None:
        edges = checks.potentials("edges", edges)
        if edges.dim() != 2:
            raise ValueError(f"edges: expected (batch, E), got {tuple(edges.shape)}")
        B, E = edges.shape
        index = checks.integers("index", index, edges.device)
        if tuple(index.shape) not in ((E, 2), (B, E, 2)):
            raise ValueError(
                f"index: expected (E, 2) = ({E}, 2) or (batch, E, 2) = ({B}, {E}, 2), "
                f"got {tuple(index.shape)}"
            )
        # of constants, also where a transform is under way
        with torch._C._DisableFuncTorch():
            given: NDArray[np.int64] = array(index.cpu())
        given = given[None] if given.ndim == 2 else given
        _check_index(given)
        rank, most = _ranks(given)
        self._many = most
        self._rank = torch.from_numpy(rank).to(edges.device).expand(B, E)
        nodes = 1 + given.max((1, 2), initial=0)
        self._nodes = torch.from_numpy(nodes).to(edges.device).expand(B)
        self._most_nodes = int(nodes.max(initial=1))
        # a copy, which nobody else can change
        self.index = index.clone().expand(B, E, 2)
        zeros = np.zeros(given.shape[:2], np.float32)
        _, connected = _best_trees(zeros, given, nodes)
        if not connected.all():
            raise ValueError(
                "index: expected edges that join all nodes from 0 to the highest, got "
                f"two nodes that no path joins at row {int(connected.argmin())}"
            )
        self._start({"edges": edges}, (E,))

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """``(batch,)``: the edges of each row."""
        return self._real.sum(1)

    @property
    def output_shapes(self) -> Int[Tensor, "batch 1"]:
        """``(batch, 1)``: one more than the last edge of each row."""
        E = self.shape[0]
        at = torch.arange(1, E + 1, device=self.edges.device)
        ends = torch.where(self._real, at, 0)
        return ends.amax(1, keepdim=True) if E else ends.sum(1, keepdim=True)

    @property
    def _real(self) -> Tensor:
        return self.index[..., 0] >= 0

    def _reads(self, name: str) -> Tensor:
        return self._real

    @property
    def _num_labels(self) -> int:
        return 2

    def _labels(self, y: Tensor) -> Tensor:
        return y.masked_fill(~self._real[:, None], -1)

    def _used(self, y: Tensor) -> Tensor:
        at = torch.arange(self.shape[0], device=y.device)
        return torch.where((y == 1) & self._real[:, None], at, -1)

    def _exist(self, y: Tensor) -> Tensor:
        if not checks.values_are_there():
            return torch.ones_like(y[..., 0] if y.shape[2] else y.sum(2)).bool()
        found = np.empty(tuple(y.shape[:2]), np.bool_)
        kruskal.are_trees(*self._graph(), array(y.cpu().contiguous()), found)
        return torch.from_numpy(found).to(y.device)

    def _graph(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Nodes of edges ``[B, E, 2]``, and how many nodes there are ``[B]``."""
        index, nodes = self.index.cpu().contiguous(), self._nodes.cpu().contiguous()
        return array(index), array(nodes)

    def _best(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        edges = self.edges.detach().cpu()
        return _best_trees(array(edges.contiguous()), *self._graph())

    def _k_best(self, k: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        ys, exist = self._rooted(self.edges.detach().cpu())._k_best(k)
        return array(self._from_heads(torch.from_numpy(ys))), exist

    # Sums: of trees rooted at node 0 --------------------------------------------

    def _rooted(self, edges: Tensor) -> LabelledSpanningTree:
        """Trees of arcs both ways; several between two nodes have labels."""
        B, V = len(edges), self._most_nodes
        arcs = edges.new_full((B, V, V, self._many), -torch.inf)
        real = self._real.to(edges.device)
        row, edge = real.nonzero().unbind(1)
        start, end = self.index.to(edges.device)[row, edge].unbind(1)
        rank, scores = self._rank.to(edges.device)[row, edge], edges[row, edge]
        arcs = arcs.index_put((row, start, end, rank), scores)
        arcs = arcs.index_put((row, end, start, rank), scores)
        return LabelledSpanningTree._of(arcs, self._nodes.to(edges.device) - 1, False)

    def _from_heads(self, ys: Tensor) -> Tensor:
        """Edges ``(batch, k, E)`` of heads and labels ``(batch, k, V - 1, 2)``."""
        head, label = torch.nn.functional.pad(ys, (0, 0, 1, 0), value=-1).unbind(3)
        real, rank = (x.to(ys.device)[:, None] for x in (self._real, self._rank))
        ends = [x[:, None] for x in self.index.to(ys.device).clamp(min=0).unbind(2)]
        start, end = (x.expand(*ys.shape[:2], -1) for x in ends)
        used = (head.gather(2, end) == start) & (label.gather(2, end) == rank)
        used |= (head.gather(2, start) == end) & (label.gather(2, start) == rank)
        return torch.where(real, used.long(), -1)

    def _both_ways(self, arcs: Tensor) -> tuple[Tensor, Tensor]:
        """What arcs ``(batch, V, V, rank)`` have for each edge, in both directions."""
        row = torch.arange(len(arcs), device=arcs.device)[:, None]
        start, end = self.index.clamp(min=0).unbind(2)
        return arcs[row, start, end, self._rank], arcs[row, end, start, self._rank]

    def max_marginals(self, name: str = "edges") -> Float[Tensor, "batch E"]:
        """For each edge, the highest score of a tree that has it; -inf without any."""
        _check_name(name)
        found = self._both_ways(self._rooted(self.edges.detach()).max_marginals())
        return torch.maximum(*found).masked_fill(~self._real, -torch.inf)

    def log_partition(self) -> Float[Tensor, " batch"]:
        """Logarithm of the sum of exp(score) over all outputs: the exp oracle.

        Its gradient is the marginals; it may be differentiated twice.
        """
        return self._rooted(self.edges).log_partition()

    def marginals(self, name: str = "edges") -> Float[Tensor, "batch E"]:
        """Chance of each edge. Differentiable once."""
        _check_name(name)
        one, two = self._both_ways(self._rooted(self.edges).marginals())
        return (one + two).masked_fill(~self._real, 0)

    def log_prob(self, y: Tensor) -> Float[Tensor, " batch *k"]:
        """Log-probability of y: ``score(y) - log_partition()``, at most 0."""
        many, several = self._proved(y)
        edges = self._relative()
        scores = self._like({"edges": edges})._sum(self._used(many))
        chances = scores - self._rooted(edges).log_partition()[:, None]
        found = at_most_zero(chances).to(self.edges.dtype)
        return found if several else found.squeeze(1)

    def _relative(self) -> Tensor:
        """Edges in float64 less the best of each row: all trees have as many."""
        edges = torch.where(self._real, self.edges.double(), -torch.inf)
        if not edges.numel():
            return edges
        top = edges.detach().amax(1, keepdim=True)
        return edges - top.masked_fill(top == -torch.inf, 0)

    def log_prob_within(self, allowed: Tensor) -> Float[Tensor, " batch"]:
        """Log-probability that a tree uses only ``allowed`` edges: at most 0.

        The log-partition of ``restrict(allowed)`` less that of all.
        """
        self.restrict(allowed)
        edges = self._relative()
        some = self._rooted(edges.masked_fill(~allowed, -torch.inf)).log_partition()
        chances = some - self._rooted(edges).log_partition()
        return at_most_zero(chances).to(self.edges.dtype)

    def entropy(self) -> Float[Tensor, " batch"]:
        """Entropy of the outputs, in nats. Differentiable once."""
        return self._rooted(self._relative()).entropy().to(self.edges.dtype)

    def sample(
        self, n: int, generator: torch.Generator | None = None
    ) -> Int[Tensor, "batch n E"]:
        """Independent draws, ``(batch, n, E)`` int64, -1 for edges that a row lacks."""
        return self._from_heads(self._rooted(self.edges).sample(n, generator))

    def log_count(self) -> Float[Tensor, " batch"]:
        """Logarithm of the number of outputs that are not forbidden."""
        return self._rooted(self.edges).log_count()

    def _potentials(self) -> dict[str, Tensor]:
        return self._own

    def _wide(self) -> "UndirectedSpanningTree":
        return self._like({"edges": self.edges.double()})

    def _outputs_like(self, other: "UndirectedSpanningTree") -> bool:
        return self.index.equal(other.index)


def _best_trees(
    edges: NDArray[np.floating], index: NDArray[np.int64], nodes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Best trees ``[B, E]``, and whether a row has any."""
    B, E = edges.shape
    # NaN, which only edges hold that are none, comes last
    order = np.argsort(-edges, axis=1, kind="stable")
    trees, found = np.empty((B, E), np.int64), np.empty(B, np.bool_)
    given = edges, index, order, nodes, trees, found
    run_rows(kruskal.best, B, 20 * B * (E + 1), *given)
    return trees, found


def _check_index(index: NDArray[np.int64]) -> None:
    """Of graphs ``[L, E, 2]``: two nodes of each edge, or -1 twice."""
    E = index.shape[1]
    first, second = index[..., 0], index[..., 1]
    fine = (first >= 0) & (second >= 0) & (first != second) & (index.max(2) <= E)
    fine |= (first == -1) & (second == -1)
    if not fine.all():
        row, e = np.argwhere(~fine)[0]
        raise ValueError(
            f"index: expected two nodes from 0 to {E}, the number of edges, or -1 for "
            f"none, got {index[row, e].tolist()} at row {row}, edge {e}"
        )


def _ranks(index: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Of each edge ``[L, E]``, how many before it join the same nodes; and the most."""
    L, E = index.shape[:2]
    low, high = index.min(2, initial=E + 1), index.max(2, initial=-1)
    key = low * (E + 1) + high
    order = np.argsort(key, axis=1, kind="stable")
    inorder, at = np.take_along_axis(key, order, 1), np.arange(E)
    new = np.ones((L, E), np.bool_)
    new[:, 1:] = inorder[:, 1:] != inorder[:, :-1]
    since = at - np.maximum.accumulate(np.where(new, at, 0), axis=1)
    ranks = np.zeros((L, E), np.int64)
    np.put_along_axis(ranks, order, since, 1)
    ranks[low < 0] = 0
    return ranks, 1 + int(ranks.max(initial=0))


def _check_name(name: str) -> None:
    if name != "edges":
        raise ValueError(f"name: expected one of ['edges'], got {name!r}")
