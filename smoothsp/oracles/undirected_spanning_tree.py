"""Spanning trees of undirected graphs."""

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.combinatorial import kruskal
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.double_double import DoubleDouble
from smoothsp.oracles._inference.to_numpy import to_numpy, unbatched_to_numpy
from smoothsp.oracles._inference.tracing import is_compiling
from smoothsp.oracles._searches.edge_subset import EdgeSubset, as_edges_and_index
from smoothsp.oracles._searches.trees import Trees
from smoothsp.oracles.labelled_spanning_tree import LabelledSpanningTree
from smoothsp.oracles.spanning_tree import SpanningTree


class UndirectedSpanningTree(EdgeSubset, Trees):
    r"""A batch of undirected graphs; the outputs are their spanning trees.

    .. math:: s(y) = \sum_e y_e \, \mathrm{edges}[e], \quad
        y \in \{0, 1\}^E \text{ the edges of a spanning tree}

    An edge with score ``-inf`` is forbidden. Every result is exact, and differentiable
    in the edges.

    Parameters
    ----------
    edges
        ``(batch, E)``: score of each edge in the tree; float32 or float64; bfloat16 and
        float16 are computed in float32.
    index
        ``(E, 2)`` integers: the nodes that each edge joins, numbered from 0; one graph
        for all rows. Several edges may join the same nodes, but no edge joins a node
        with itself. Or ``(batch, E, 2)``, a graph for each row, with -1 for edges that
        it lacks. Their scores are never read, and their gradient is exactly zero. A row
        without edges has one node and one output, the empty tree, with score 0.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, or an edge that joins a node with itself. Also for NaN or
        +inf in an entry that is read, or a row without an allowed spanning tree.

    Notes
    -----
    An output is ``(batch, E)``: 1 for the edges of the tree, 0 for others, -1 where the
    row has none. The Hamming cost counts the edges of the tree that are not in y.
    ``decode`` is O(E log E) per row. Sums are O(V^3), over trees rooted at node 0, by
    the matrix-tree theorem without subtractions as in ``SpanningTree``. They are
    computed in float64 on the CPU.

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
    row_attributes = ("index", "_num_nodes", "_edge_table")
    output_description = "0 or 1 for each edge, 1 for those of one spanning tree"

    def __init__(self, edges: Tensor, index: Tensor) -> None:
        edges, index = as_edges_and_index("edges", edges, index)
        B, E = edges.shape
        if is_compiling():
            super().__init__({"edges": edges}, (E,))
            return
        index_array: NDArray[np.int64] = unbatched_to_numpy("index", index)
        rows = index_array.shape[0] if index_array.ndim == 3 else 1
        num_nodes, table = _num_nodes_and_edge_table(index_array.tobytes(), rows, E)
        self._max_nodes = table.shape[1]
        self._num_nodes, self._edge_table = (
            torch.from_numpy(x).to(edges.device).expand(B, *x.shape[1:])
            for x in (num_nodes, table)
        )
        # a copy: later changes of the argument must not reach the structure
        self.index = index.clone().expand(B, E, 2)
        super().__init__({"edges": edges}, (E,))

    def _is_output(self, y: Tensor) -> Tensor:
        if not checks.has_concrete_values():
            return torch.ones_like(y[..., 0] if y.shape[2] else y.sum(2)).bool()
        is_tree = np.empty(tuple(y.shape[:2]), np.bool_)
        kruskal.are_spanning_trees(
            *self._index_and_num_nodes(), to_numpy(y.cpu().contiguous()), is_tree
        )
        return torch.from_numpy(is_tree).to(y.device)

    def _index_and_num_nodes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Nodes of edges ``[B, E, 2]``, and number of nodes ``[B]``."""
        index, nodes = self.index.cpu().contiguous(), self._num_nodes.cpu().contiguous()
        return to_numpy(index), to_numpy(nodes)

    def _search_best_outputs(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        edges = self.edges.detach().cpu()
        return _maximum_spanning_trees(
            to_numpy(edges.contiguous()), *self._index_and_num_nodes()
        )

    def _search_k_best_outputs(
        self, k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        ys, valid = self._rooted_trees(
            self.edges.detach().cpu()
        )._search_k_best_outputs(k)
        return to_numpy(self._heads_to_edges(torch.from_numpy(ys))), valid

    # Sums: of trees rooted at node 0 --------------------------------------------

    def _rooted_trees(self, edges: Tensor) -> SpanningTree | LabelledSpanningTree:
        """Dependency trees rooted at node 0, with an arc in each direction per edge.

        Parallel edges become labels of an arc.
        """
        table = self._edge_table.to(edges.device)
        # index E of the table is an absent edge: -inf
        padded = torch.nn.functional.pad(edges, (0, 1), value=-torch.inf)
        arcs = padded.gather(1, table.flatten(1)).reshape(table.shape)
        words = self._num_nodes.to(edges.device) - 1
        if arcs.shape[3] == 1:
            return SpanningTree._from_checked(arcs[..., 0], words, False)
        return LabelledSpanningTree._from_checked(arcs, words, False)

    def _heads_to_edges(self, ys: Tensor) -> Tensor:
        """Convert heads ``(batch, k, V - 1)``, or with labels, to ``(batch, k, E)``."""
        num_parallel = self._edge_table.shape[3]
        head, label = ys.unbind(3) if num_parallel > 1 else (ys, torch.zeros_like(ys))
        word = torch.arange(1, self._max_nodes, device=ys.device)
        entry = (head * self._max_nodes + word) * num_parallel + label
        table = self._edge_table.to(ys.device).flatten(1)[:, None]
        table = table.expand(*ys.shape[:2], table.shape[2])
        edge = table.gather(2, entry.clamp(min=0)).masked_fill(head < 0, self.shape[0])
        used = ys.new_zeros(*ys.shape[:2], self.shape[0] + 1).scatter(2, edge, 1)
        return torch.where(self._real_mask.to(ys.device)[:, None], used[..., :-1], -1)

    def _reduce_arcs_to_edges(
        self, arcs: Tensor, fill_value: float, reduction: str
    ) -> Tensor:
        """Reduce arcs ``(batch, V, V)``, or with labels, to edges ``(batch, E)``."""
        values = arcs.new_full((len(arcs), self.shape[0] + 1), fill_value)
        table = self._edge_table.flatten(1)
        return values.scatter_reduce(1, table, arcs.flatten(1), reduction)[:, :-1]

    def max_marginals(self, name: str = "edges") -> Float[Tensor, "batch E"]:
        """Highest score of a tree that has each edge; -inf if there is none."""
        self._resolve_name(name)
        arc_maxima = self._rooted_trees(self.edges.detach()).max_marginals()
        return self._reduce_arcs_to_edges(arc_maxima, -torch.inf, "amax")

    def log_partition(self) -> Float[Tensor, " batch"]:
        """Logarithm of the sum of exp(score) over all outputs: the exp oracle.

        Its gradient is the marginals. Differentiable twice.
        """
        return self._log_partition_float64(self.edges)

    def _log_partition_float64(self, edges: Tensor) -> Tensor:
        return self._rooted_trees(edges).log_partition()

    def _log_partition_hi_lo(self) -> DoubleDouble:
        edges = torch.where(self._real_mask, self.edges.detach().double(), -torch.inf)
        # a tree has V - 1 edges; each is shifted by the best score of the row
        tree_edge = torch.arange(1, self._max_nodes, device=edges.device)
        top = edges.amax(1, keepdim=True) if edges.numel() else edges.sum(1, True)
        shifts = torch.where(tree_edge < self._num_nodes[:, None], top, 0.0)
        shifted = self._log_partition_float64(self._shifted_potentials().detach())
        return self._add_log_partition_hi_lo(self.log_partition(), shifts, shifted)

    def marginals(self, name: str = "edges") -> Float[Tensor, "batch E"]:
        """Probability of each edge. Differentiable once."""
        self._resolve_name(name)
        return self._reduce_arcs_to_edges(
            self._rooted_trees(self.edges).marginals(), 0.0, "sum"
        )

    def _shifted_potentials(self) -> Tensor:
        """Edges in float64 less the best of each row.

        All trees of a row have the same number of edges, so probabilities stay the
        same.
        """
        edges = torch.where(self._real_mask, self.edges.double(), -torch.inf)
        if not edges.numel():
            return edges
        top = edges.detach().amax(1, keepdim=True)
        return edges - top.masked_fill(top == -torch.inf, 0)

    def entropy(self) -> Float[Tensor, " batch"]:
        """Entropy of the outputs, in nats. Differentiable once."""
        return (
            self._rooted_trees(self._shifted_potentials())
            .entropy()
            .to(self.edges.dtype)
        )

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        *,
        replace: bool = True,
    ) -> Int[Tensor, "batch n E"]:
        """Independent samples, ``(batch, n, E)`` int64, -1 for edges that a row lacks.

        With ``replace=False`` the trees of a row are distinct: each is drawn from the
        outputs that were not drawn before it. If a row has fewer than n outputs, the
        remaining samples are -1 throughout.
        """
        heads = self._rooted_trees(self.edges).sample(n, generator, replace=replace)
        ys = self._heads_to_edges(heads)
        if replace:
            return ys
        # -1 for all heads marks a missing sample, except the first of a single node,
        # whose only tree is empty
        absent = (heads < 0).flatten(2).all(2)
        absent[:, :1] = False
        return ys.masked_fill(absent[..., None], -1)

    def log_count(self) -> Float[Tensor, " batch"]:
        """Logarithm of the number of outputs that are not forbidden."""
        return self._rooted_trees(self.edges).log_count()


def _maximum_spanning_trees(
    edges: NDArray[np.floating], index: NDArray[np.int64], num_nodes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Best trees ``[B, E]``, and True where one exists."""
    B, E = edges.shape
    # argsort puts NaN last; only padding may hold it
    order = np.argsort(-edges, axis=1, kind="stable")
    trees, has_output = np.empty((B, E), np.int64), np.empty(B, np.bool_)
    args = edges, index, order, num_nodes, trees, has_output
    run_rows(kruskal.best_spanning_tree, B, 20 * B * (E + 1), *args)
    return trees, has_output


@lru_cache(maxsize=64)
def _num_nodes_and_edge_table(
    index: bytes, num_graphs: int, E: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Validate graphs ``[graphs, E, 2]``; return their sizes and edge tables.

    The table ``[graphs, V, V, parallel]`` holds the edges that join two nodes, in both
    directions, with E for none.
    """
    ends = np.frombuffer(index, np.int64).reshape(num_graphs, E, 2)
    first, second = ends[..., 0], ends[..., 1]
    is_valid = (first >= 0) & (second >= 0) & (first != second) & (ends.max(2) <= E)
    is_valid |= (first == -1) & (second == -1)
    if not is_valid.all():
        row, e = np.argwhere(~is_valid)[0]
        raise ValueError(
            f"index: expected two nodes from 0 to {E}, the number of edges, or -1 for "
            f"none, got {ends[row, e].tolist()} at row {row}, edge {e}"
        )
    num_nodes = 1 + ends.max((1, 2), initial=0)
    _, connected = _maximum_spanning_trees(
        np.zeros((num_graphs, E), np.float32), ends, num_nodes
    )
    if not connected.all():
        raise ValueError(
            "index: expected edges that join all nodes from 0 to the highest, got two "
            f"nodes that no path joins at row {int(connected.argmin())}"
        )
    V = int(num_nodes.max(initial=1))
    row, edge = (first >= 0).nonzero()
    pair = row * V * V + ends[row, edge].min(1) * V + ends[row, edge].max(1)
    # number parallel edges: position within the run of equal pairs after sorting
    order = np.argsort(pair, kind="stable")
    sorted_pair, position = pair[order], np.arange(len(pair))
    is_first = np.append(True, sorted_pair[1:] != sorted_pair[:-1])[: len(pair)]
    parallel_index = np.empty_like(pair)
    parallel_index[order] = position - np.maximum.accumulate(
        np.where(is_first, position, 0)
    )
    table = np.full((num_graphs, V, V, 1 + int(parallel_index.max(initial=0))), E)
    start, end = ends[row, edge].T
    table[row, start, end, parallel_index] = table[row, end, start, parallel_index] = (
        edge
    )
    return num_nodes, table
