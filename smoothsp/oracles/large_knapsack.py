"""Knapsacks of too many elements and units of capacity for a circuit."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.combinatorial import knapsack
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._inference import rules
from smoothsp.oracles._inference.distribution import Distribution
from smoothsp.oracles._inference.double_double import DoubleDouble, to_dtype
from smoothsp.oracles._inference.engine import Engine
from smoothsp.oracles._inference.to_numpy import to_numpy
from smoothsp.oracles._k_best import bmmf
from smoothsp.oracles._searches.structure import SearchStructure

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class LargeKnapsack(SearchStructure, Distribution):
    """A batch of knapsacks, in memory of few rows of their chart.

    ``Knapsack`` returns this class for more than 4,000,000 elements times units of
    capacity. It lacks ``sample`` and second derivatives. ``decode`` takes one pass over
    the chart, sums two, and the k best 6k - 3.

    Parameters
    ----------
    scores
        ``(batch, N)``, checked.
    weights
        Of the elements, in units.
    rooms
        ``(batch,)``: capacities in units, of at most the sum of the weights.
    lengths
        ``(batch,)``: the elements of each row.
    """

    scores: Tensor
    row_attributes = ("_rooms", "_lengths")
    output_description = "0 or 1 for each element, of no more weight than the capacity"
    _num_labels = 2

    def __init__(
        self, scores: Tensor, weights: Ints, rooms: Tensor, lengths: Tensor
    ) -> None:
        self._weights, self._rooms, self._lengths = weights, rooms, lengths
        super().__init__({"scores": scores}, (scores.shape[1],))

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """``(batch,)``: the elements of each row."""
        return self._lengths.clone()

    @property
    def output_shapes(self) -> Int[Tensor, "batch 1"]:
        """``(batch, 1)``: the elements of each row."""
        return self._lengths[:, None].clone()

    @property
    def _real(self) -> Tensor:
        at = torch.arange(self.shape[0], device=self.scores.device)
        return at < self._lengths[:, None]

    @property
    def _weights_here(self) -> Tensor:
        return torch.from_numpy(self._weights).to(self.scores.device)

    def _usable_parts(self, name: str) -> Tensor:
        return self._real & (self._weights_here <= self._rooms[:, None])

    def _can_be_infeasible(self, name: str) -> bool:
        return False

    def _labels(self, y: Tensor) -> Tensor:
        return y.masked_fill(~self._real[:, None], -1)

    def _used(self, y: Tensor) -> Tensor:
        chosen = (y == 1) & self._real[:, None]
        return torch.where(chosen, torch.arange(self.shape[0], device=y.device), -1)

    def _exist(self, y: Tensor) -> Tensor:
        real = self._real[:, None]
        weight = ((y == 1) & real).long() * self._weights_here
        known = ((y == 0) | (y == 1) | ~real).all(2)
        return known & (weight.sum(2) <= self._rooms[:, None])

    @property
    def _engine(self) -> "KnapsackEngine":
        return self._engine_of(self.scores)

    def _engine_of(self, scores: Tensor) -> "KnapsackEngine":
        return KnapsackEngine(scores, self._rooms, self._lengths, self._weights)

    def _tables(self) -> Floats:
        """Scores ``[B, N, 2]`` for leaving out and for choosing each element."""
        return _tables(
            torch.where(self._usable_parts("scores"), self.scores, -torch.inf)
        )

    def _solve(self, tables: Floats, rows: Ints) -> tuple[Ints, Bools]:
        outputs, _, found = self._engine.best_of(tables, rows)
        return outputs, found

    def _best(self) -> tuple[Ints, Bools]:
        return self._solve(self._tables(), np.arange(len(self.scores)))

    def _best_and_total(self) -> tuple[Ints, Floats]:
        every = np.arange(len(self.scores))
        outputs, values, _ = self._engine.best_of(self._tables(), every)
        return outputs, values

    def _k_best(self, k: int) -> tuple[Ints, Bools]:
        tables = self._tables()
        if not self.shape[0]:
            exist = np.zeros((len(tables), k), np.bool_)
            exist[:, 0] = True
            return np.empty((len(tables), k, 0), np.int64), exist
        return bmmf.k_best(tables, k, self._solve, self._engine.max_marginals_of)

    def max_marginals(self, name: str = "scores") -> Float[Tensor, "batch element"]:
        """Highest score of an output that chooses each element; -inf if there is none.

        Not differentiable.
        """
        self._resolve_name(name)
        every = np.arange(len(self.scores))
        found = self._engine.max_marginals_of(self._tables(), every)[..., 1]
        return torch.from_numpy(found).to(self.scores)

    def log_partition(self) -> Float[Tensor, " batch"]:
        """Logarithm of the sum of exp(score) over all outputs: the exp oracle.

        Its gradient is the marginals. Differentiable once.
        """
        return self._to_dtype(self._log_partition(self.scores))

    def _log_partition(self, scores: Tensor) -> Tensor:
        return rules.log_partition(self._engine_of(scores), torch.float64).value

    def _log_partition_hi_lo(self) -> DoubleDouble:
        value = self._log_partition(self.scores)
        parts = torch.stack([value.detach(), torch.zeros_like(value)], -1)
        return DoubleDouble(self._to_dtype(value), parts)

    def marginals(self, name: str = "scores") -> Float[Tensor, "batch element"]:
        """Probability that each element is chosen. Not differentiable."""
        self._resolve_name(name)
        return rules.marginals(self._engine)[0]

    def entropy(self) -> Float[Tensor, " batch"]:
        """Entropy of the outputs, in nats. Not differentiable."""
        return rules.entropy(self._engine)

    def log_count(self) -> Float[Tensor, " batch"]:
        """Logarithm of the number of outputs that are not forbidden."""
        scores = self.scores.detach()
        flat = torch.where(scores > -torch.inf, 0.0, -torch.inf).to(scores.dtype)
        return self._to_dtype(self._log_partition(flat))

    def _has_same_outputs(self, other: "LargeKnapsack") -> bool:
        same = np.array_equal(self._weights, other._weights)
        return same and super()._has_same_outputs(other)


class KnapsackEngine(Engine):
    """Scores ``[B, N]``, rooms and lengths ``[B]``, and the weights ``[N]``."""

    num_row_potentials = 1

    def __init__(
        self, scores: Tensor, rooms: Tensor, lengths: Tensor, weights: Ints
    ) -> None:
        self.potentials, self.row_attributes = (scores,), (rooms, lengths)
        self.weights = weights

    def with_tensors(self, tensors: Sequence[Tensor]) -> "KnapsackEngine":
        """The engine of other scores, and perhaps of other rooms and lengths."""
        scores, rooms, lengths = (*tensors, *self.row_attributes[len(tensors) - 1 :])
        return KnapsackEngine(scores, rooms, lengths, self.weights)

    def log_partition_and_marginals(
        self, wanted: Sequence[bool], dtype: torch.dtype | None, two: bool = False
    ) -> tuple[Tensor, None, list[Tensor]]:
        """Log-partition ``[B]`` and, if wanted, marginals ``[B, N]``."""
        (scores,) = self.potentials
        tables = _tables(scores)
        value, parts = self._passes(tables, np.arange(len(tables)), True, any(wanted))
        chances = torch.from_numpy(parts[..., 1]).to(scores)
        found = torch.from_numpy(value).to(scores.device)
        return to_dtype(found, dtype or scores.dtype), None, [chances]

    def entropy(self) -> Tensor:
        """Entropy ``[B]`` of the outputs."""
        (scores,) = self.potentials
        tables = _tables(scores)
        value, parts = self._passes(tables, np.arange(len(tables)), True, True)
        means = (np.where(np.isfinite(tables), tables, 0) * parts).sum((1, 2))
        return torch.from_numpy(np.maximum(value - means, 0)).to(scores)

    def covariance(self, along: Sequence[Tensor]) -> list[Tensor]:
        """Raise an error."""
        raise NotImplementedError(
            "log_partition: expected one derivative of a Knapsack of over 4,000,000 "
            "elements times units of capacity, got a second one, or one of marginals "
            "or entropy; measure weights in larger units, or detach"
        )

    def best_of(self, tables: Floats, rows: Ints) -> tuple[Ints, Floats, Bools]:
        """Best outputs ``[M, N]`` of tables, scores, and which exist."""
        M, N = tables.shape[:2]
        outputs = np.empty((M, N), np.int64)
        values, found = np.empty(M), np.empty(M, np.bool_)
        given = tables, *self._sizes(rows), outputs, values, found
        run_rows(knapsack.best_packing, M, self._work(M), *given)
        return outputs, values, found

    def max_marginals_of(self, tables: Floats, rows: Ints) -> Floats:
        """Highest scores ``[M, N, 2]`` of outputs without and with each element."""
        return self._passes(tables, rows, False, True)[1]

    def _passes(
        self, tables: Floats, rows: Ints, soft: bool, inwards: bool
    ) -> tuple[Floats, Floats]:
        values = np.empty(len(tables))
        parts = np.empty(tables.shape if inwards else (0, 0, 2))
        given = tables, *self._sizes(rows), soft, inwards, values, parts
        run_rows(
            knapsack.forward_backward, len(tables), 20 * self._work(len(tables)), *given
        )
        return values, parts

    def _sizes(self, rows: Ints) -> tuple[Ints, Any, Any]:
        """Weights, and rooms and lengths of the rows."""
        rooms, lengths = (to_numpy(x.cpu())[rows] for x in self.row_attributes)
        return self.weights, rooms, lengths

    def _work(self, rows: int) -> int:
        most = int(self.row_attributes[0].max()) if rows else 0
        return rows * len(self.weights) * (1 + most)


def _tables(scores: Tensor) -> Floats:
    """Scores ``[B, N, 2]`` for leaving out and for choosing each element."""
    chosen = to_numpy(scores.detach().cpu().double())
    return np.stack([np.zeros_like(chosen), chosen], 2)
