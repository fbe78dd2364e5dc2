"""Lattices: distributions over the paths of acyclic graphs."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from smoothsp.oracles._circuits import Circuit, CircuitStructure, Items, topology
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.to_numpy import unbatched_to_numpy
from smoothsp.oracles._inference.tracing import is_compiling


class Lattice(CircuitStructure):
    r"""A batch of acyclic graphs; the outputs are paths from source to sink.

    .. math:: s(y) = \sum_e y_e \, \mathrm{arcs}[e], \quad
        y \in \{0, 1\}^E \text{ the arcs of a path}

    An arc with score ``-inf`` is forbidden. Every result is exact, and differentiable
    in the arcs.

    Parameters
    ----------
    arcs
        ``(batch, E)``: score of each arc on the path; float32 or float64; bfloat16 and
        float16 are computed in float32.
    index
        ``(E, 2)`` integers: the tail and head node of each arc, one graph for all rows.
        Nodes are numbered in topological order: each arc leads to a higher number. Node
        0 is the source and the highest number the sink. Several arcs may join the same
        nodes. Or ``(batch, E, 2)``, a graph for each row, with -1 after its last arc.
        Scores there are never read, and their gradient is exactly zero. A row without
        arcs has one output, the empty path, with score 0.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, an arc that does not lead to a higher number, or arcs after a
        -1. Also for NaN or +inf in an entry that is read, or a row without an allowed
        path. Values are not checked while ``torch.compile`` traces.

    Notes
    -----
    An output is ``(batch, E)``: 1 for arcs on the path, 0 for others, -1 after the last
    arc of the row. The Hamming cost counts the arcs on the path that are not in y.
    O(batch E). Rows with equal graphs are computed together, so a batch of many
    different graphs is slower. The grouping of a batch is cached.

    Source: Cormen et al., "Introduction to Algorithms" (2009), section 24.2; Eisner,
    "Parameter Estimation for Probabilistic Finite-State Transducers" (2002), section 4,
    for sums.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import Lattice
    >>> index = torch.tensor([[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]])
    >>> lattice = Lattice(torch.tensor([[1.0, 1.0, 2.0, 0.0, 1.0]]), index)
    >>> value, y = lattice.decode()
    >>> value.tolist(), y.tolist(), round(lattice.log_count().exp().item())
    ([4.0], [[1, 0, 1, 0, 1]], 3)
    """

    arcs: Tensor
    row_attributes = ("_index", "_original_index")
    output_description = "0 or 1 for each arc, 1 along one path from source to sink"

    def __init__(self, arcs: Tensor, index: Tensor) -> None:
        arcs = checks.as_potentials("arcs", arcs)
        if arcs.dim() != 2:
            raise ValueError(f"arcs: expected (batch, E), got {tuple(arcs.shape)}")
        B, E = arcs.shape
        index = checks.as_int64("index", index, arcs.device)
        if tuple(index.shape) not in ((E, 2), (B, E, 2)):
            raise ValueError(
                f"index: expected (E, 2) = ({E}, 2) or (batch, E, 2) = ({B}, {E}, 2), "
                f"got {tuple(index.shape)}"
            )
        if is_compiling():
            built = topology(_build_lattice, E, ())
            super().__init__(built, {"arcs": arcs}, roots=0, lengths=E, shape=(E,))
            return
        index_array: NDArray[np.int64] = unbatched_to_numpy("index", index)
        # int32 halves the size of the cache key
        index_int32 = index_array.clip(-2, 2**31 - 1).astype(np.int32)
        rows = len(index_array) if index_array.ndim == 3 else 1
        layout = _group_graphs(index_int32.tobytes(), rows, E)
        self._index = layout.nodes.to(arcs.device).expand(B, E, 2)
        size: Tensor | int = E
        if layout.num_arcs is not None:
            size = layout.num_arcs.to(arcs.device).expand(B).clone()
        built = topology(_build_lattice, E, layout.graphs)
        graph_of_row = 0 if rows == 1 else layout.graph_of_row
        self._original_index = (
            index.clone().expand(B, E, 2) if layout.renumbered else None
        )
        super().__init__(
            built,
            {"arcs": arcs},
            roots=built.root(graph_of_row),
            lengths=size,
            shape=(E,),
        )

    @property
    def index(self) -> Int[Tensor, "batch E 2"]:
        """``(batch, E, 2)``: the tail and head node of each arc, -1 for none."""
        return (
            self._index if self._original_index is None else self._original_index
        ).clone()

    def outputs_of(self, labels: Tensor) -> Tensor:
        """1 for the arcs of the path, -1 in the padding."""
        real = self._index[:, None, :, 0] >= 0
        return torch.where(real, (labels >= 0).to(labels.dtype), -1)

    def labels_of(self, y: Tensor) -> Tensor:
        """Labels of y: 0 for arcs of the path, -1 for others; all 1 if y is no path."""
        start, end = self._index[:, None].expand(*y.shape, 2).unbind(3)
        real = start >= 0
        chosen = real & (y == 1)
        # in an acyclic graph y is a path iff flow is conserved: out-degree less
        # in-degree is 1 at the source, -1 at the sink and 0 elsewhere
        balance = y.new_zeros(*y.shape[:2], 2 * self.shape[0] + 1)
        sink = torch.where(real, end, 0).amax(2, keepdim=True) if y.shape[2] else 0
        for ends, sign in ((start, 1), (end, -1)):
            balance.scatter_add_(2, ends.clamp(min=0), sign * chosen.long())
        node = torch.arange(balance.shape[2], device=y.device)
        expected = (node == 0).long() - (node == sink).long()
        is_path = ((y == 0) | chosen | ~real).all(2) & (balance == expected).all(2)
        # label 1 belongs to no leaf, so y is rejected as an output
        return torch.where(is_path[..., None], torch.where(chosen, 0, -1), 1)


class _GraphLayout(NamedTuple):
    """Distinct graphs of a batch, and the graph of each row."""

    graphs: tuple[bytes, ...]  # distinct graphs, int32 [arcs, 2]
    graph_of_row: Tensor  # [rows]: index into graphs
    nodes: Tensor  # [rows, E, 2]: tail and head of each arc
    num_arcs: Tensor | None  # [rows]; None if all rows have E arcs
    renumbered: bool  # whether nodes were renumbered to leave out unused ones


@lru_cache(maxsize=64)
def _group_graphs(index: bytes, rows: int, E: int) -> _GraphLayout:
    """Validate the graphs int32 ``[rows, E, 2]`` and group equal ones."""
    nodes = np.frombuffer(index, np.int32).reshape(rows, E, 2)
    start, end = nodes[..., 0], nodes[..., 1]
    real = start >= 0
    is_invalid = real & ~(start < end) | ~real & ((end >= 0) | (start < -1))
    if is_invalid.any():
        row, e = np.argwhere(is_invalid)[0]
        raise ValueError(
            "index: expected arcs from a node to one of a higher number, or -1 for "
            f"none, got {nodes[row, e].tolist()} at row {row}, arc {e}"
        )
    is_after_padding = real[:, 1:] & ~real[:, :-1]
    if is_after_padding.any():
        row = int(is_after_padding.any(1).argmax())
        raise ValueError(f"index: expected no arcs after a -1, got some at row {row}")
    renumbered = bool((end > E).any())
    if renumbered:
        # E arcs join at most E + 1 nodes: unused numbers would only cost memory
        nodes = np.stack([_renumber_nodes(x) for x in nodes])
    index_of_graph: dict[bytes, int] = {}
    sizes = real.sum(1)
    for row, size in zip(nodes, sizes, strict=True):
        index_of_graph.setdefault(row[:size].tobytes(), len(index_of_graph))
    graph_of_row = [
        index_of_graph[x[:n].tobytes()] for x, n in zip(nodes, sizes, strict=True)
    ]
    with torch._C._DisableFuncTorch():
        return _GraphLayout(
            tuple(index_of_graph),
            torch.tensor(graph_of_row, dtype=torch.int64, device="cpu"),
            torch.from_numpy(nodes.astype(np.int64)),
            torch.from_numpy(sizes) if (sizes < E).any() else None,
            renumbered,
        )


def _renumber_nodes(index: NDArray[np.int32]) -> NDArray[np.int32]:
    """Renumber the used nodes of ``index [E, 2]`` from 0, the source, in order."""
    used_nodes = np.unique(np.append(index[index >= 0], 0))
    new_numbers = np.searchsorted(used_nodes, index).astype(np.int32)
    return np.where(index >= 0, new_numbers, np.int32(-1))


def _build_lattice(E: int, graphs: tuple[bytes, ...]) -> tuple[Circuit, Items]:
    """Build item ``prefix[v]`` of each graph: the sum over paths from source to v.

    ``prefix[v] = sum over arcs (u, v) of prefix[u] arc[u, v]``. The items of a graph
    are consecutive, so rows with this graph compute no items of other graphs.
    """
    c = Circuit()
    arc = c.leaves(E)
    c.label(arc, np.arange(E), 0)
    roots = np.full(len(graphs), c.ONE, np.int32)
    for graph_index, graph in enumerate(graphs):
        start, end = np.frombuffer(graph, np.int32).reshape(-1, 2).T
        if not len(end):
            continue
        prefix = c.chart(int(end.max()) + 1)
        prefix[0] = c.ONE
        # define_each reads the incoming arcs of node 1, then of node 2, ...
        order = np.argsort(end, kind="stable")
        counts = np.bincount(end)[1:]
        c.define_each(prefix[1:], counts, prefix[start[order]], arc[order])
        roots[graph_index] = prefix[-1]
    return c, roots
