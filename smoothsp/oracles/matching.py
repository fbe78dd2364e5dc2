"""Matchings of rows to columns."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.combinatorial import jonker_volgenant, murty
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.score_values import VECTORS
from smoothsp.oracles._inference.to_numpy import to_numpy
from smoothsp.oracles._inference.tracing import is_eager_tensor
from smoothsp.oracles._searches.structure import SearchStructure

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Solved = tuple[Ints, Floats, Floats, Bools]


class Matching(SearchStructure):
    r"""A batch of bipartite graphs, with rows matched to columns.

    No two rows have the same column. The score of a matching is the sum of the scores
    of its pairs. A pair with score ``-inf`` is forbidden. Every result is exact.

    Parameters
    ----------
    scores
        ``(batch, P, Q)``, or ``(batch, P, Q + 1)`` if ``partial``; float32 or float64,
        bfloat16 and float16 are computed in float32.
    partial
        False: an output has ``min(P, Q)`` pairs, so every row is matched if P <= Q,
        otherwise every column. True: any row may stay unmatched, with the score in the
        last column of ``scores``.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, NaN or +inf, or a row of the batch without such a matching.

    Notes
    -----
    An output is ``(batch, P)``: the column of each row, -1 for unmatched. ``decode`` is
    O(N^3) per row of the batch, with N = max(P, Q), or P + Q if ``partial``. Each
    further output of the k best needs at most P shortest paths, O(P N^2). ``hamming``
    counts the rows with a wrong column.

    There is no ``log_partition``: the sum over matchings is a permanent, whose
    computation is #P-hard. Use ``StructuralHinge`` or ``StructuralHinge(L2(mu, k))``.

    In float64, on the CPU; tensors on a device are copied to the CPU and back.

    Source: Jonker and Volgenant (1987) for the best, Murty (1968) for the k best. For
    max-marginals, Duchi et al., "Using Combinatorial Optimization within Max-Product
    Belief Propagation" (2006).

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import Matching
    >>> scores = torch.tensor([[[4.0, 1.0, 3.0], [2.0, 0.0, 5.0], [3.0, 2.0, 2.0]]])
    >>> value, columns = Matching(scores).decode()
    >>> value.tolist(), columns.tolist()
    ([11.0], [[0, 2, 1]])
    """

    scores: Tensor
    output_description = "columns of rows, none of them twice, -1 for unmatched"

    def __init__(self, scores: Tensor, *, partial: bool = False) -> None:
        scores = checks.as_potentials("scores", scores)
        self._partial = checks.as_flag("partial", partial)
        if scores.dim() != 3 or (partial and scores.shape[2] == 0):
            expected = "(batch, P, Q + 1)" if partial else "(batch, P, Q)"
            raise ValueError(f"scores: expected {expected}, got {tuple(scores.shape)}")
        super().__init__({"scores": scores}, (scores.shape[1],))

    @property
    def _sizes(self) -> tuple[int, int]:
        """Number of rows and columns to match."""
        _, P, C = self.scores.shape
        return P, C - 1 if self._partial else C

    @property
    def _turned(self) -> bool:
        """Whether columns look for rows: all of them find one."""
        P, Q = self._sizes
        return P > Q and not self._partial

    @property
    def _num_labels(self) -> int:
        return self.scores.shape[2]

    def _labels(self, y: Tensor) -> Tensor:
        return torch.where(y < 0, self._sizes[1], y) if self._partial else y

    def _entries_of(self, y: Tensor) -> tuple[Tensor | None, int]:
        if not is_eager_tensor(y):
            return super()._entries_of(y)
        y = y.contiguous()
        used = y.new_empty(y.shape)
        sizes = y.shape[0] * y.shape[1], *self.scores.shape[1:]
        places = y.data_ptr(), used.data_ptr()
        return used, jonker_volgenant.indices_of_pairs(sizes, places, self._partial)

    def _used(self, y: Tensor) -> Tensor:
        used, _ = self._entries_of(y) if is_eager_tensor(y) else (None, 0)
        if used is not None:
            return used
        (_, P, C), Q = self.scores.shape, self._sizes[1]
        column = torch.where((y >= 0) & (y < Q), y, Q)
        entry = torch.arange(P, device=y.device) * C + column
        return entry if self._partial else entry.masked_fill(column == Q, -1)

    def _exist(self, y: Tensor) -> Tensor:
        P, Q = self._sizes
        inside = (y >= -1) & (y < Q)
        column = torch.where(inside & (y >= 0), y, Q)
        taken = y.new_zeros(*y.shape[:2], Q + 1)
        taken = taken.scatter_add(2, column, torch.ones_like(y))
        fine = inside.all(2) & (taken[..., :Q] <= 1).all(2)
        return fine if self._partial else fine & (taken[..., Q] == max(P - Q, 0))

    def hamming(self, y: Tensor) -> Float[Tensor, "batch row column"]:
        """Cost of each pair; they sum to the number of rows with a wrong column.

        Each pair that y does not use costs 1. If some rows must stay unmatched, pairs
        of rows that y leaves unmatched cost 2, since another row loses its pair.
        """
        cost = super().hamming(y)
        if not self._turned:
            return cost
        return cost + (y < 0)[..., None].to(cost.dtype)

    def _augment_by_hamming(
        self, y: Tensor, scale: float
    ) -> tuple["Matching", Tensor] | None:
        if self._turned or not self._inherits_costs(Matching):
            return None
        return self._with_hamming(self._gold_parts(y), scale)

    def _have_outputs(self) -> Bools:
        scores = self._on_host()
        given = scores.data_ptr(), tuple(scores.shape), VECTORS[scores.dtype]
        found = np.empty(given[1][0], np.bool_)
        jonker_volgenant.is_feasible(*given, self._partial, found)
        return found

    def _totals(self, y: Ints) -> Floats:
        values = np.empty(y.shape[:2])
        alone = self._sizes[1] if self._partial else -1
        jonker_volgenant.score_assignments(to_numpy(self.scores), alone, y, values)
        return values

    def _squares(self, scores: Floats) -> Floats:
        """Scores ``[M, N, N]`` of as many rows as columns: who is left meets padding.

        Those whom the first rows stand for are all matched, or with ``partial`` have a
        column of padding each.
        """
        P, Q = self._sizes
        if self._partial:
            squares = np.zeros((len(scores), P + Q, P + Q))
            squares[:, :P, :Q] = scores[:, :, :Q]
            squares[:, :P, Q:] = -np.inf
            at = np.arange(P)
            squares[:, at, Q + at] = scores[:, :, Q]
            return squares
        if self._turned:
            scores = scores.transpose(0, 2, 1)
        if P == Q:
            return np.ascontiguousarray(scores)
        squares = np.zeros((len(scores), max(P, Q), max(P, Q)))
        squares[:, : min(P, Q)] = scores
        return squares

    @property
    def _real(self) -> int:
        """Number of rows of the square that distinguish matchings."""
        P, Q = self._sizes
        return P if self._partial else min(P, Q)

    def _outputs(self, columns: Ints) -> Ints:
        """Outputs ``[..., P]`` of the columns ``[..., N]`` of a square's rows."""
        P, Q = self._sizes
        real = columns[..., : self._real]
        if not self._turned:
            return np.where(real < Q, real, -1)
        found = np.full((*columns.shape[:-1], P), -1, np.int64)
        at = np.broadcast_to(np.arange(Q), real.shape)
        np.put_along_axis(found, np.maximum(real, 0), at, -1)
        return found

    def _assigned(self, squares: Floats) -> Solved:
        """Columns and prices ``[M, N]`` of a square's rows and columns, which exist."""
        M, N = squares.shape[:2]
        columns, found = np.empty((M, N), np.int64), np.empty(M, np.bool_)
        u, v = np.empty((M, N)), np.empty((M, N))
        work = M * N**2 * (10 + N // 4)
        run_rows(
            jonker_volgenant.best_assignment, M, work, squares, columns, u, v, found
        )
        return columns, u, v, found

    def _search(self) -> tuple[Ints, NDArray[Any], Bools]:
        """Best outputs, their scores, and which rows have any."""
        scores = self._on_host()
        B, P, C = shape = tuple(scores.shape)
        columns, found = np.empty((B, P), np.int64), np.empty(B, np.bool_)
        values = np.empty(B, VECTORS[scores.dtype].dtype)
        N = P + C - 1 if self._partial else max(P, C)
        given = scores.data_ptr(), shape, self._partial
        work = B * N**2 * (10 + N // 4)
        run_rows(
            jonker_volgenant.decode_assignment, B, work, *given, columns, values, found
        )
        return columns, values, found

    def _best(self) -> tuple[Ints, Bools]:
        columns, _, found = self._search()
        return columns, found

    def _best_and_total(self) -> tuple[Ints, NDArray[Any]]:
        columns, values, _ = self._search()
        return columns, values

    def _k_best(self, k: int) -> tuple[Ints, Bools]:
        squares = self._squares(self._array("scores"))
        solved = self._assigned(squares)
        if self._real == 0:
            # one output, which matches nobody
            exist = np.zeros((len(squares), k), np.bool_)
            exist[:, 0] = True
            return np.full((len(squares), k, *self.shape), -1, np.int64), exist
        M, N = squares.shape[:2]
        columns = np.empty((M, k, self._real), np.int64)
        exist = np.empty((M, k), np.bool_)
        work = M * N**2 * (10 + N // 4 + k * self._real // 4)
        arrays = squares, self._real, solved, columns, exist
        run_rows(murty.k_best_assignments, M, work, *arrays)
        return self._outputs(columns), exist

    def max_marginals(self) -> Float[Tensor, "batch row column"]:
        """Highest score of a matching that has each pair; -inf if there is none.

        Of the shape of the scores; not differentiable. O(N^3): one maximum, and
        shortest paths between all rows.
        """
        to_numpy = self._array("scores")
        found = self._max_marginals(to_numpy)
        return torch.from_numpy(found).to(self.scores)

    def _max_marginals(self, scores: Floats) -> Floats:
        squares = self._squares(scores)
        M, N = squares.shape[:2]
        columns, u, v, exist = self._assigned(squares)
        lost = np.empty_like(squares)
        run_rows(
            jonker_volgenant.max_marginal_gaps,
            M,
            M * N**3,
            squares,
            columns,
            u,
            v,
            lost,
        )
        picked = np.take_along_axis(squares, columns[..., None], 2)
        value = np.where(exist, picked.sum((1, 2)), -np.inf)
        P, Q = self._sizes
        padded = value[:, None, None] - lost
        if self._partial:
            at = np.arange(P)
            alone = padded[:, at, Q + at][..., None]
            return np.concatenate([padded[:, :P, :Q], alone], 2)
        kept = padded[:, : self._real]
        return kept.transpose(0, 2, 1) if self._turned else kept
