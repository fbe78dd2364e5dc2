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
Assignments = tuple[Ints, Floats, Floats, Bools]


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
    def _num_rows_and_columns(self) -> tuple[int, int]:
        """Number of rows and columns to match."""
        _, P, C = self.scores.shape
        return P, C - 1 if self._partial else C

    @property
    def _is_transposed(self) -> bool:
        """Return True if columns are assigned to rows: P > Q, so each has a row."""
        P, Q = self._num_rows_and_columns
        return P > Q and not self._partial

    @property
    def _label_counts_width(self) -> int:
        return self.scores.shape[2]

    def _labels_of_outputs(self, y: Tensor) -> Tensor:
        # in the scores an unmatched row uses the last column
        return (
            torch.where(y < 0, self._num_rows_and_columns[1], y) if self._partial else y
        )

    def _used_entries_and_first_invalid(self, y: Tensor) -> tuple[Tensor | None, int]:
        if not is_eager_tensor(y):
            return super()._used_entries_and_first_invalid(y)
        # one kernel validates y and returns the used entries
        y = y.contiguous()
        used = y.new_empty(y.shape)
        sizes = y.shape[0] * y.shape[1], *self.scores.shape[1:]
        data_ptrs = y.data_ptr(), used.data_ptr()
        return used, jonker_volgenant.indices_of_pairs(sizes, data_ptrs, self._partial)

    def _used_entry_indices(self, y: Tensor) -> Tensor:
        used, _ = (
            self._used_entries_and_first_invalid(y) if is_eager_tensor(y) else (None, 0)
        )
        if used is not None:
            return used
        (_, P, C), Q = self.scores.shape, self._num_rows_and_columns[1]
        column = torch.where((y >= 0) & (y < Q), y, Q)
        entry = torch.arange(P, device=y.device) * C + column
        return entry if self._partial else entry.masked_fill(column == Q, -1)

    def _is_output(self, y: Tensor) -> Tensor:
        P, Q = self._num_rows_and_columns
        inside = (y >= -1) & (y < Q)
        # count rows per column; column Q collects unmatched rows
        column = torch.where(inside & (y >= 0), y, Q)
        num_rows_of_column = y.new_zeros(*y.shape[:2], Q + 1)
        num_rows_of_column = num_rows_of_column.scatter_add(
            2, column, torch.ones_like(y)
        )
        is_matching = inside.all(2) & (num_rows_of_column[..., :Q] <= 1).all(2)
        return (
            is_matching
            if self._partial
            else is_matching & (num_rows_of_column[..., Q] == max(P - Q, 0))
        )

    def hamming(self, y: Tensor) -> Float[Tensor, "batch row column"]:
        """Cost of each pair; they sum to the number of rows with a wrong column.

        Each pair that y does not use costs 1. If some rows must stay unmatched, pairs
        of rows that y leaves unmatched cost 2, since another row loses its pair.
        """
        cost = super().hamming(y)
        if not self._is_transposed:
            return cost
        return cost + (y < 0)[..., None].to(cost.dtype)

    def _augment_and_gold_parts(
        self, y: Tensor, scale: float
    ) -> tuple["Matching", Tensor] | None:
        # with unmatched rows the cost is not 1 for each unused part, see ``hamming``
        if self._is_transposed or not self._inherits_costs(Matching):
            return None
        return self._add_hamming_cost(self._gold_parts(y), scale)

    def _has_output(self) -> Bools:
        scores = self._first_potentials_on_cpu()
        args = scores.data_ptr(), tuple(scores.shape), VECTORS[scores.dtype]
        has_output = np.empty(args[1][0], np.bool_)
        jonker_volgenant.is_feasible(*args, self._partial, has_output)
        return has_output

    def _kernel_scores(self, y: Ints) -> Floats:
        values = np.empty(y.shape[:2])
        # without ``partial`` unmatched rows use no entry
        unmatched_column = self._num_rows_and_columns[1] if self._partial else -1
        jonker_volgenant.score_assignments(
            to_numpy(self.scores), unmatched_column, y, values
        )
        return values

    def _pad_to_square(self, scores: Floats) -> Floats:
        """Pad scores to square assignment problems ``[M, N, N]``.

        The first rows are the rows (or columns, if P > Q) that must be matched; padding
        scores 0. With ``partial`` row i has a private padding column Q + i, whose score
        is that of leaving it unmatched.
        """
        P, Q = self._num_rows_and_columns
        if self._partial:
            squares = np.zeros((len(scores), P + Q, P + Q))
            squares[:, :P, :Q] = scores[:, :, :Q]
            squares[:, :P, Q:] = -np.inf
            row = np.arange(P)
            squares[:, row, Q + row] = scores[:, :, Q]
            return squares
        if self._is_transposed:
            scores = scores.transpose(0, 2, 1)
        if P == Q:
            return np.ascontiguousarray(scores)
        squares = np.zeros((len(scores), max(P, Q), max(P, Q)))
        squares[:, : min(P, Q)] = scores
        return squares

    @property
    def _num_assigned_rows(self) -> int:
        """Number of rows of the square that distinguish matchings."""
        P, Q = self._num_rows_and_columns
        return P if self._partial else min(P, Q)

    def _columns_to_outputs(self, columns: Ints) -> Ints:
        """Outputs ``[..., P]`` of the columns ``[..., N]`` of a square's rows."""
        P, Q = self._num_rows_and_columns
        assigned = columns[..., : self._num_assigned_rows]
        if not self._is_transposed:
            return np.where(assigned < Q, assigned, -1)
        outputs = np.full((*columns.shape[:-1], P), -1, np.int64)
        column = np.broadcast_to(np.arange(Q), assigned.shape)
        np.put_along_axis(outputs, np.maximum(assigned, 0), column, -1)
        return outputs

    def _solve_assignments(self, squares: Floats) -> Assignments:
        """Solve assignments: columns and duals u, v ``[M, N]``, and which exist.

        ``columns`` are those of the rows of a square; u prices rows, v columns.
        """
        M, N = squares.shape[:2]
        columns, has_output = np.empty((M, N), np.int64), np.empty(M, np.bool_)
        u, v = np.empty((M, N)), np.empty((M, N))
        work = M * N**2 * (10 + N // 4)
        run_rows(
            jonker_volgenant.best_assignment,
            M,
            work,
            squares,
            columns,
            u,
            v,
            has_output,
        )
        return columns, u, v, has_output

    def _decode_rows(self) -> tuple[Ints, NDArray[Any], Bools]:
        """Best outputs ``[B, P]``, their scores ``[B]``, and which exist."""
        scores = self._first_potentials_on_cpu()
        B, P, C = shape = tuple(scores.shape)
        columns, has_output = np.empty((B, P), np.int64), np.empty(B, np.bool_)
        values = np.empty(B, VECTORS[scores.dtype].dtype)
        N = P + C - 1 if self._partial else max(P, C)
        args = scores.data_ptr(), shape, self._partial
        # O(N^3) with a small constant: most rows are assigned before augmentation
        work = B * N**2 * (10 + N // 4)
        run_rows(
            jonker_volgenant.decode_assignment,
            B,
            work,
            *args,
            columns,
            values,
            has_output,
        )
        return columns, values, has_output

    def _search_best_outputs(self) -> tuple[Ints, Bools]:
        columns, _, has_output = self._decode_rows()
        return columns, has_output

    def _search_best_outputs_and_scores(self) -> tuple[Ints, NDArray[Any]]:
        columns, values, _ = self._decode_rows()
        return columns, values

    def _search_k_best_outputs(self, k: int) -> tuple[Ints, Bools]:
        squares = self._pad_to_square(self._potentials_as_numpy("scores"))
        assignments = self._solve_assignments(squares)
        if self._num_assigned_rows == 0:
            # the only output has no pair
            valid = np.zeros((len(squares), k), np.bool_)
            valid[:, 0] = True
            return np.full((len(squares), k, *self.shape), -1, np.int64), valid
        M, N = squares.shape[:2]
        columns = np.empty((M, k, self._num_assigned_rows), np.int64)
        valid = np.empty((M, k), np.bool_)
        work = M * N**2 * (10 + N // 4 + k * self._num_assigned_rows // 4)
        arrays = squares, self._num_assigned_rows, assignments, columns, valid
        run_rows(murty.k_best_assignments, M, work, *arrays)
        return self._columns_to_outputs(columns), valid

    def max_marginals(self) -> Float[Tensor, "batch row column"]:
        """Highest score of a matching that has each pair; -inf if there is none.

        Has the shape of the scores. Not differentiable. O(N^3): one maximum, and
        shortest paths between all rows.
        """
        scores = self._potentials_as_numpy("scores")
        highest = self._max_marginals_float64(scores)
        return torch.from_numpy(highest).to(self.scores)

    def _max_marginals_float64(self, scores: Floats) -> Floats:
        squares = self._pad_to_square(scores)
        M, N = squares.shape[:2]
        columns, u, v, has_output = self._solve_assignments(squares)
        # forcing a pair loses its reduced cost plus a shortest path between its rows
        loss = np.empty_like(squares)
        run_rows(
            jonker_volgenant.max_marginal_gaps,
            M,
            M * N**3,
            squares,
            columns,
            u,
            v,
            loss,
        )
        picked = np.take_along_axis(squares, columns[..., None], 2)
        value = np.where(has_output, picked.sum((1, 2)), -np.inf)
        P, Q = self._num_rows_and_columns
        padded = value[:, None, None] - loss
        if self._partial:
            row = np.arange(P)
            # row i is unmatched iff it takes its private padding column
            unmatched = padded[:, row, Q + row][..., None]
            return np.concatenate([padded[:, :P, :Q], unmatched], 2)
        highest = padded[:, : self._num_assigned_rows]
        return highest.transpose(0, 2, 1) if self._is_transposed else highest
