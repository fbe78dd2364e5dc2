"""Shortest paths of directed graphs, which may have cycles."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.combinatorial import shortest_paths
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.to_numpy import to_numpy, unbatched_to_numpy
from smoothsp.oracles._inference.tracing import is_compiling
from smoothsp.oracles._searches.edge_subset import EdgeSubset, as_edges_and_index

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class ShortestPath(EdgeSubset):
    r"""A batch of directed graphs; the outputs are paths from source to target.

    .. math:: s(y) = \sum_e y_e \, \mathrm{arcs}[e], \quad
        y \in \{0, 1\}^E \text{ the arcs of a path without a cycle}

    Scores are minus lengths. An arc with score ``-inf`` is forbidden. Every result is
    exact, and differentiable in the arcs.

    Parameters
    ----------
    arcs
        ``(batch, E)``: score of each arc on the path, usually at most 0; float32 or
        float64; bfloat16 and float16 are computed in float32. Scores may be positive if
        no reachable cycle has a positive total, which would make the problem NP-hard.
        Costs that a loss adds count too.
    index
        ``(E, 2)`` integers: the tail and head node of each arc, numbered from 0; one
        graph for all rows. Several arcs may join the same nodes. Or ``(batch, E, 2)``,
        a graph for each row, with -1 for arcs that it lacks. Their scores are never
        read, and their gradient is exactly zero.
    source, target
        Node numbers: integers, or one for each row ``(batch,)``. If they are the same
        node, the only output is the empty path, with score 0.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, or NaN or +inf in an entry that is read. Also for a row
        without an allowed path, or with a cycle of positive score. Cycles of score 0
        are fine; sums that differ by a few roundings in float64 are equal.

    Notes
    -----
    An output is ``(batch, E)``: 1 for arcs on the path, 0 for others, -1 where the row
    has none. The Hamming cost counts the arcs on the path that are not in y.

    ``decode`` is O(E log V) per row. If scores are positive it is O(V E), or O(E) if
    each arc also leads to a higher number. Each of the k best needs at most V shortest
    paths. In float64, on the CPU; tensors on a device are copied to the CPU and back.

    There is no ``log_partition``: the sum over paths without a cycle is #P-hard. Use
    ``Lattice`` for graphs without cycles.

    Source: Dijkstra, "A Note on Two Problems in Connexion with Graphs" (1959), problem
    2; Johnson, "Efficient Algorithms for Shortest Paths in Sparse Networks" (1977), for
    positive scores; Yen, "Finding the K Shortest Loopless Paths in a Network" (1971),
    in the form of Lawler (1972), for the k best.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import ShortestPath
    >>> index = torch.tensor([[0, 1], [1, 2], [2, 1], [0, 2], [2, 3], [1, 3]])
    >>> minutes = torch.tensor([[4.0, 1.0, 1.0, 1.0, 3.0, 1.0]])
    >>> value, y = ShortestPath(-minutes, index, 0, 3).decode()
    >>> value.tolist(), y.tolist()
    ([-3.0], [[0, 0, 1, 1, 0, 1]])
    """

    arcs: Tensor
    row_attributes = ("index", "_graph_of_row", "_source_and_target")
    output_description = "0 or 1 for each arc, 1 along one path from source to target"

    def __init__(
        self, arcs: Tensor, index: Tensor, source: int | Tensor, target: int | Tensor
    ) -> None:
        arcs, index = as_edges_and_index("arcs", arcs, index)
        B, E = arcs.shape
        source_and_target = [
            checks.as_row_ints(name, x, B, arcs.device)
            for name, x in (("source", source), ("target", target))
        ]
        if is_compiling():
            super().__init__({"arcs": arcs}, (E,))
            return
        index_array: Ints = unbatched_to_numpy("index", index)
        differs_by_row = index_array.ndim == 3 or any(
            isinstance(x, Tensor) for x in (source, target)
        )
        rows = B if differs_by_row else min(B, 1)
        pairs = tuple(zip(*(x[:rows] for x in source_and_target), strict=True))
        graphs = len(index_array) if index_array.ndim == 3 else 1
        self._layout = _build_layout(index_array.tobytes(), graphs, E, pairs)
        self._graph_of_row, self._source_and_target = (
            torch.from_numpy(x).to(arcs.device).expand(B, *x.shape[1:])
            for x in (self._layout.graph_of_row, self._layout.source_and_target)
        )
        self._all_edges_real = self._layout.all_arcs_real
        # a copy: later changes of the argument must not reach the structure
        self.index = index.clone().expand(B, E, 2)
        super().__init__({"arcs": arcs}, (E,))

    def _is_output(self, y: Tensor) -> Tensor:
        if not checks.has_concrete_values():
            return torch.ones_like(y[..., 0] if y.shape[2] else y.sum(2)).bool()
        is_path = np.empty(tuple(y.shape[:2]), np.bool_)
        shortest_paths.are_paths(to_numpy(y.cpu()), *self._kernel_args(), is_path)
        return torch.from_numpy(is_path).to(y.device)

    def _kernel_args(self) -> tuple[tuple[Ints, ...], Ints, Ints]:
        """Arguments of kernels: graphs, graph of each row, source and target."""
        return (
            self._layout.graphs,
            to_numpy(self._graph_of_row.cpu()),
            to_numpy(self._source_and_target.cpu()),
        )

    def _validate_values(
        self, argument: str, only: str | None = None, changed: Tensor | None = None
    ) -> bool:
        """Validate scores, and test whether a cycle may have a positive score."""
        may_lack_output = super()._validate_values(argument, only, changed)
        if (
            may_lack_output
            or not checks.has_concrete_values()
            or self._layout.is_acyclic
        ):
            return may_lack_output
        return bool((self._first_potentials.detach() > 0).any())

    def _require_feasible(self, argument: str) -> None:
        # raises for cycles of positive score, under the caller's argument name
        self._decode_rows(argument)
        super()._require_feasible(argument)

    def _decode_rows(self, argument: str = "arcs") -> tuple[Ints, Floats, Bools]:
        """Best outputs ``[B, E]``, their scores ``[B]``, and which exist."""
        arcs = self._potentials_as_numpy("arcs")
        B, E = arcs.shape
        outputs, values = np.empty((B, E), np.int64), np.empty(B)
        status = np.empty(B, np.int64)
        work = 50 * B * (E + 1)
        args = arcs, *self._kernel_args()
        run_rows(shortest_paths.shortest_path, B, work, *args, outputs, values, status)
        _require_no_positive_cycle(status, argument)
        return outputs, values, status == shortest_paths.PATH

    def _search_best_outputs(self) -> tuple[Ints, Bools]:
        outputs, _, has_output = self._decode_rows()
        return outputs, has_output

    def _search_best_outputs_and_scores(self) -> tuple[Ints, Floats]:
        outputs, values, _ = self._decode_rows()
        return outputs, values

    def _search_k_best_outputs(self, k: int) -> tuple[Ints, Bools]:
        arcs = self._potentials_as_numpy("arcs")
        B, E = arcs.shape
        outputs, status = np.empty((B, k, E), np.int64), np.empty((B, k), np.int64)
        work = 500 * B * k * (E + 1)
        args = arcs, *self._kernel_args()
        run_rows(shortest_paths.k_shortest_paths, B, work, *args, outputs, status)
        _require_no_positive_cycle(status[:, 0], "arcs")
        return outputs, status == shortest_paths.PATH


def _require_no_positive_cycle(status: Ints, argument: str) -> None:
    """Raise ValueError that names ``argument`` if a kernel found a positive cycle."""
    cycle = status == shortest_paths.CYCLE
    if cycle.any():
        raise ValueError(
            f"{argument}: row {int(cycle.argmax())} has a cycle of positive score, "
            "which makes the best path without a cycle NP-hard; keep scores at most "
            "0, with the cost or noise that a loss adds, or use a graph without cycles"
        )


class _GraphLayout(NamedTuple):
    """Graphs of a batch in the layout of the kernels."""

    graphs: tuple[Ints, ...]  # offsets, arcs by tail, tail and head, of each graph
    graph_of_row: Ints  # [rows]: index of the graph
    source_and_target: Ints  # [rows, 2]
    all_arcs_real: bool  # whether no row has padding
    is_acyclic: bool  # whether each arc leads to a higher number, a sufficient test


@lru_cache(maxsize=64)
def _build_layout(
    index: bytes, num_graphs: int, E: int, pairs: tuple[tuple[int, int], ...]
) -> _GraphLayout:
    """Validate graphs int64 ``[graphs, E, 2]`` and sort their arcs by tail (CSR).

    ``pairs`` are source and target, of one row for all or of each row.
    """
    nodes = np.frombuffer(index, np.int64).reshape(num_graphs, E, 2)
    real = nodes[..., 0] >= 0
    is_invalid = (nodes < -1).any(2) | (real != (nodes[..., 1] >= 0))
    if is_invalid.any():
        row, e = np.argwhere(is_invalid)[0]
        raise ValueError(
            "index: expected two nodes for each arc, from 0 on, or -1 for none, got "
            f"{nodes[row, e].tolist()} at row {row}, arc {e}"
        )
    source_and_target = np.array(pairs, np.int64).reshape(-1, 2)
    # compact node numbers in the same order: unused ones would only cost memory
    used_nodes = np.unique(
        np.concatenate([nodes[real].ravel(), source_and_target.ravel(), [0]])
    )
    V = len(used_nodes)
    tail, head = (
        np.where(real, np.searchsorted(used_nodes, nodes[..., i]), -1) for i in (0, 1)
    )
    # padding sorts behind all nodes
    start = np.where(real, tail, V)
    order = np.argsort(start, axis=1, kind="stable")
    bounds = [np.searchsorted(np.sort(x), np.arange(V + 1)) for x in start]
    begin = np.array(bounds).reshape(num_graphs, V + 1)
    source_and_target = np.searchsorted(used_nodes, source_and_target)
    graph_of_row = (
        np.arange(num_graphs)
        if num_graphs > 1
        else np.zeros(len(source_and_target), np.int64)
    )
    kernel_graphs = tuple(
        np.ascontiguousarray(x, np.int64) for x in (begin, order, tail, head)
    )
    rows = len(source_and_target)
    outputs, values = np.empty((rows, E), np.int64), np.empty(rows)
    status = np.empty(rows, np.int64)
    # with scores of 0 the search tests reachability, once for all scores
    arcs = np.zeros((rows, E))
    shortest_paths.shortest_path(
        0,
        rows,
        arcs,
        kernel_graphs,
        graph_of_row,
        source_and_target,
        outputs,
        values,
        status,
    )
    if not status.all():
        row = int(status.argmin())
        source, target = pairs[row]
        raise ValueError(
            f"index: expected a path from source to target, got none from {source} to "
            f"{target} at row {row}"
        )
    is_acyclic = bool((tail < head)[real].all())
    return _GraphLayout(
        kernel_graphs, graph_of_row, source_and_target, bool(real.all()), is_acyclic
    )
