"""Best paths of directed graphs, which may have cycles."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.combinatorial import shortest_paths
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.to_numpy import to_numpy, unwrapped_to_numpy
from smoothsp.oracles._inference.tracing import is_compiling
from smoothsp.oracles._searches.edge_subset import ChosenEdges, edges_and_index

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class ShortestPath(ChosenEdges):
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
    row_attributes = ("index", "_which", "_ends")
    output_description = "0 or 1 for each arc, 1 along one path from source to target"

    def __init__(
        self, arcs: Tensor, index: Tensor, source: int | Tensor, target: int | Tensor
    ) -> None:
        arcs, index = edges_and_index("arcs", arcs, index)
        B, E = arcs.shape
        ends = [
            checks.as_row_ints(name, x, B, arcs.device)
            for name, x in (("source", source), ("target", target))
        ]
        if is_compiling():
            super().__init__({"arcs": arcs}, (E,))
            return
        given: Ints = unwrapped_to_numpy("index", index)
        several = given.ndim == 3 or any(
            isinstance(x, Tensor) for x in (source, target)
        )
        rows = B if several else min(B, 1)
        pairs = tuple(zip(*(x[:rows] for x in ends), strict=True))
        graphs = len(given) if given.ndim == 3 else 1
        self._laid_out = _lay_out(given.tobytes(), graphs, E, pairs)
        self._which, self._ends = (
            torch.from_numpy(x).to(arcs.device).expand(B, *x.shape[1:])
            for x in (self._laid_out.which, self._laid_out.ends)
        )
        self._whole = self._laid_out.whole
        # a copy, which nobody else can change
        self.index = index.clone().expand(B, E, 2)
        super().__init__({"arcs": arcs}, (E,))

    def _exist(self, y: Tensor) -> Tensor:
        if not checks.has_concrete_values():
            return torch.ones_like(y[..., 0] if y.shape[2] else y.sum(2)).bool()
        found = np.empty(tuple(y.shape[:2]), np.bool_)
        shortest_paths.are_paths(to_numpy(y.cpu()), *self._graphs(), found)
        return torch.from_numpy(found).to(y.device)

    def _graphs(self) -> tuple[tuple[Ints, ...], Ints, Ints]:
        """Graphs, and of each row which it has, and its ends."""
        return (
            self._laid_out.graphs,
            to_numpy(self._which.cpu()),
            to_numpy(self._ends.cpu()),
        )

    def _validate_values(
        self, blame: str, only: str | None = None, changed: Tensor | None = None
    ) -> bool:
        """Validate scores, and test whether a cycle may have a positive score."""
        barred = super()._validate_values(blame, only, changed)
        if barred or not checks.has_concrete_values() or self._laid_out.ordered:
            return barred
        return bool((self._first_potentials.detach() > 0).any())

    def _require_feasible(self, blame: str) -> None:
        self._search(blame)
        super()._require_feasible(blame)

    def _search(self, blame: str = "arcs") -> tuple[Ints, Floats, Bools]:
        """Best outputs, their scores, and which rows have any."""
        arcs = self._array("arcs")
        B, E = arcs.shape
        outputs, values = np.empty((B, E), np.int64), np.empty(B)
        found = np.empty(B, np.int64)
        work = 50 * B * (E + 1)
        given = arcs, *self._graphs()
        run_rows(shortest_paths.shortest_path, B, work, *given, outputs, values, found)
        _refuse_cycles(found, blame)
        return outputs, values, found == shortest_paths.PATH

    def _best(self) -> tuple[Ints, Bools]:
        outputs, _, found = self._search()
        return outputs, found

    def _best_and_total(self) -> tuple[Ints, Floats]:
        outputs, values, _ = self._search()
        return outputs, values

    def _k_best(self, k: int) -> tuple[Ints, Bools]:
        arcs = self._array("arcs")
        B, E = arcs.shape
        outputs, found = np.empty((B, k, E), np.int64), np.empty((B, k), np.int64)
        work = 500 * B * k * (E + 1)
        given = arcs, *self._graphs()
        run_rows(shortest_paths.k_shortest_paths, B, work, *given, outputs, found)
        _refuse_cycles(found[:, 0], "arcs")
        return outputs, found == shortest_paths.PATH


def _refuse_cycles(found: Ints, blame: str) -> None:
    cycle = found == shortest_paths.CYCLE
    if cycle.any():
        raise ValueError(
            f"{blame}: row {int(cycle.argmax())} has a cycle of positive score, which "
            "makes the best path without a cycle NP-hard; keep scores at most 0, with "
            "the cost or noise that a loss adds, or use a graph without cycles"
        )


class _Graphs(NamedTuple):
    """The graphs of a batch, as kernels read them."""

    graphs: tuple[Ints, ...]  # begin, order, tail and head, of each graph
    which: Ints  # [rows]: the graph of each row
    ends: Ints  # [rows, 2]: source and target
    whole: bool  # whether no row lacks an arc
    ordered: bool  # whether each arc goes to a higher number: there is no cycle


@lru_cache(maxsize=64)
def _lay_out(
    index: bytes, graphs: int, E: int, pairs: tuple[tuple[int, int], ...]
) -> _Graphs:
    """Layout of int64 ``[graphs, E, 2]``, with source and target of one or each row."""
    given = np.frombuffer(index, np.int64).reshape(graphs, E, 2)
    real = given[..., 0] >= 0
    wrong = (given < -1).any(2) | (real != (given[..., 1] >= 0))
    if wrong.any():
        row, e = np.argwhere(wrong)[0]
        raise ValueError(
            "index: expected two nodes for each arc, from 0 on, or -1 for none, got "
            f"{given[row, e].tolist()} at row {row}, arc {e}"
        )
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    # nodes that do not occur are left out
    known = np.unique(np.concatenate([given[real].ravel(), ends.ravel(), [0]]))
    V = len(known)
    tail, head = (
        np.where(real, np.searchsorted(known, given[..., i]), -1) for i in (0, 1)
    )
    start = np.where(real, tail, V)
    order = np.argsort(start, axis=1, kind="stable")
    bounds = [np.searchsorted(np.sort(x), np.arange(V + 1)) for x in start]
    begin = np.array(bounds).reshape(graphs, V + 1)
    ends = np.searchsorted(known, ends)
    which = np.arange(graphs) if graphs > 1 else np.zeros(len(ends), np.int64)
    laid_out = tuple(
        np.ascontiguousarray(x, np.int64) for x in (begin, order, tail, head)
    )
    rows = len(ends)
    outputs, values = np.empty((rows, E), np.int64), np.empty(rows)
    found = np.empty(rows, np.int64)
    arcs = np.zeros((rows, E))
    shortest_paths.shortest_path(
        0, rows, arcs, laid_out, which, ends, outputs, values, found
    )
    if not found.all():
        row = int(found.argmin())
        source, target = pairs[row]
        raise ValueError(
            f"index: expected a path from source to target, got none from {source} to "
            f"{target} at row {row}"
        )
    ordered = bool((tail < head)[real].all())
    return _Graphs(laid_out, which, ends, bool(real.all()), ordered)
