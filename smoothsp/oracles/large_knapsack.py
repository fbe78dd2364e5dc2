"""Knapsacks whose chart is too large for a circuit, in O(sqrt(N)) chart rows."""

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
    """A batch of knapsacks that never stores its whole dynamic-programming chart.

    ``Knapsack`` returns this class for more than 4,000,000 elements times units of
    capacity. It lacks ``sample`` and second derivatives. ``decode`` needs one pass over
    the chart, sums need two, and the k best 6k - 3.

    Parameters
    ----------
    scores
        ``(batch, N)``, validated.
    weights
        ``(N,)``: weights of the elements, in units.
    capacities
        ``(batch,)``: capacities in units, at most the sum of the weights.
    lengths
        ``(batch,)``: number of elements of each row.
    """

    scores: Tensor
    row_attributes = ("_capacities", "_lengths")
    output_description = "0 or 1 for each element, of no more weight than the capacity"
    _label_counts_width = 2

    def __init__(
        self, scores: Tensor, weights: Ints, capacities: Tensor, lengths: Tensor
    ) -> None:
        self._weights, self._capacities, self._lengths = weights, capacities, lengths
        super().__init__({"scores": scores}, (scores.shape[1],))

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """``(batch,)``: the number of elements of each row."""
        return self._lengths.clone()

    @property
    def output_shapes(self) -> Int[Tensor, "batch 1"]:
        """``(batch, 1)``: the number of elements of each row."""
        return self._lengths[:, None].clone()

    @property
    def _real_mask(self) -> Tensor:
        element = torch.arange(self.shape[0], device=self.scores.device)
        return element < self._lengths[:, None]

    @property
    def _weights_on_device(self) -> Tensor:
        return torch.from_numpy(self._weights).to(self.scores.device)

    def _usable_parts(self, name: str) -> Tensor:
        # an element heavier than the capacity is in no output
        return self._real_mask & (self._weights_on_device <= self._capacities[:, None])

    def _can_be_infeasible(self, name: str) -> bool:
        # the empty knapsack is always an output
        return False

    def _labels_of_outputs(self, y: Tensor) -> Tensor:
        return y.masked_fill(~self._real_mask[:, None], -1)

    def _used_entry_indices(self, y: Tensor) -> Tensor:
        chosen = (y == 1) & self._real_mask[:, None]
        return torch.where(chosen, torch.arange(self.shape[0], device=y.device), -1)

    def _is_output(self, y: Tensor) -> Tensor:
        real = self._real_mask[:, None]
        weight = ((y == 1) & real).long() * self._weights_on_device
        is_binary = ((y == 0) | (y == 1) | ~real).all(2)
        return is_binary & (weight.sum(2) <= self._capacities[:, None])

    @property
    def _engine(self) -> "KnapsackEngine":
        return self._engine_with_scores(self.scores)

    def _engine_with_scores(self, scores: Tensor) -> "KnapsackEngine":
        return KnapsackEngine(scores, self._capacities, self._lengths, self._weights)

    def _score_tables(self) -> Floats:
        """Scores ``[B, N, 2]`` for leaving out and for choosing each element."""
        return _stack_score_tables(
            torch.where(self._usable_parts("scores"), self.scores, -torch.inf)
        )

    def _decode_tables(self, tables: Floats, rows: Ints) -> tuple[Ints, Bools]:
        outputs, _, has_output = self._engine.decode_tables(tables, rows)
        return outputs, has_output

    def _search_best_outputs(self) -> tuple[Ints, Bools]:
        return self._decode_tables(self._score_tables(), np.arange(len(self.scores)))

    def _search_best_outputs_and_scores(self) -> tuple[Ints, Floats]:
        rows = np.arange(len(self.scores))
        outputs, values, _ = self._engine.decode_tables(self._score_tables(), rows)
        return outputs, values

    def _search_k_best_outputs(self, k: int) -> tuple[Ints, Bools]:
        tables = self._score_tables()
        # without elements there is one output, the empty one
        if not self.shape[0]:
            valid = np.zeros((len(tables), k), np.bool_)
            valid[:, 0] = True
            return np.empty((len(tables), k, 0), np.int64), valid
        return bmmf.k_best(tables, k, self._decode_tables, self._engine.max_marginals)

    def max_marginals(self, name: str = "scores") -> Float[Tensor, "batch element"]:
        """Highest score of an output that chooses each element; -inf if there is none.

        Not differentiable.
        """
        self._resolve_name(name)
        rows = np.arange(len(self.scores))
        highest = self._engine.max_marginals(self._score_tables(), rows)[..., 1]
        return torch.from_numpy(highest).to(self.scores)

    def log_partition(self) -> Float[Tensor, " batch"]:
        """Logarithm of the sum of exp(score) over all outputs: the exp oracle.

        Its gradient is the marginals. Differentiable once.
        """
        return self._to_dtype(self._log_partition_float64(self.scores))

    def _log_partition_float64(self, scores: Tensor) -> Tensor:
        return rules.log_partition(
            self._engine_with_scores(scores), torch.float64
        ).value

    def _log_partition_hi_lo(self) -> DoubleDouble:
        value = self._log_partition_float64(self.scores)
        # the kernel computes in float64: no low word is known
        hi_lo = torch.stack([value.detach(), torch.zeros_like(value)], -1)
        return DoubleDouble(self._to_dtype(value), hi_lo)

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
        return self._to_dtype(self._log_partition_float64(flat))

    def _has_same_outputs(self, other: "LargeKnapsack") -> bool:
        same = np.array_equal(self._weights, other._weights)
        return same and super()._has_same_outputs(other)


class KnapsackEngine(Engine):
    """Ops of scores ``[B, N]`` with capacities, lengths ``[B]`` and weights ``[N]``."""

    num_row_potentials = 1

    def __init__(
        self, scores: Tensor, capacities: Tensor, lengths: Tensor, weights: Ints
    ) -> None:
        self.potentials, self.row_attributes = (scores,), (capacities, lengths)
        self.weights = weights

    def with_tensors(self, tensors: Sequence[Tensor]) -> "KnapsackEngine":
        """The engine of other scores, and optionally other capacities and lengths."""
        scores, capacities, lengths = (
            *tensors,
            *self.row_attributes[len(tensors) - 1 :],
        )
        return KnapsackEngine(scores, capacities, lengths, self.weights)

    def log_partition_and_marginals(
        self,
        needs_grad: Sequence[bool],
        dtype: torch.dtype | None,
        with_hi_lo: bool = False,
    ) -> tuple[Tensor, None, list[Tensor]]:
        """Log-partition ``[B]`` and, if a gradient is needed, marginals ``[B, N]``."""
        (scores,) = self.potentials
        tables = _stack_score_tables(scores)
        value, parts = self._run_passes(
            tables, np.arange(len(tables)), True, any(needs_grad)
        )
        marginals = torch.from_numpy(parts[..., 1]).to(scores)
        log_partition = torch.from_numpy(value).to(scores.device)
        return to_dtype(log_partition, dtype or scores.dtype), None, [marginals]

    def entropy(self) -> Tensor:
        """Entropy ``log Z - E[score]`` of each row, ``[B]``."""
        (scores,) = self.potentials
        tables = _stack_score_tables(scores)
        value, parts = self._run_passes(tables, np.arange(len(tables)), True, True)
        # 0 * -inf of forbidden elements would be NaN
        means = (np.where(np.isfinite(tables), tables, 0) * parts).sum((1, 2))
        # rounding may leave a small negative entropy
        return torch.from_numpy(np.maximum(value - means, 0)).to(scores)

    def covariance(self, directions: Sequence[Tensor]) -> list[Tensor]:
        """Raise NotImplementedError: second derivatives would need the whole chart."""
        raise NotImplementedError(
            "log_partition: expected one derivative of a Knapsack of over 4,000,000 "
            "elements times units of capacity, got a second one, or one of marginals "
            "or entropy; measure weights in larger units, or detach"
        )

    def decode_tables(self, tables: Floats, rows: Ints) -> tuple[Ints, Floats, Bools]:
        """Best outputs ``[M, N]`` of tables ``[M, N, 2]``, scores, and which exist."""
        M, N = tables.shape[:2]
        outputs = np.empty((M, N), np.int64)
        values, has_output = np.empty(M), np.empty(M, np.bool_)
        args = (
            tables,
            *self._weights_capacities_lengths(rows),
            outputs,
            values,
            has_output,
        )
        run_rows(knapsack.best_packing, M, self._estimated_work(M), *args)
        return outputs, values, has_output

    def max_marginals(self, tables: Floats, rows: Ints) -> Floats:
        """Highest scores ``[M, N, 2]`` of outputs without and with each element."""
        return self._run_passes(tables, rows, False, True)[1]

    def _run_passes(
        self, tables: Floats, rows: Ints, use_logsumexp: bool, with_marginals: bool
    ) -> tuple[Floats, Floats]:
        """Forward and optional backward pass: values ``[M]``, marginals ``[M, N, 2]``.

        Max-marginals if ``use_logsumexp`` is False.
        """
        values = np.empty(len(tables))
        marginals = np.empty(tables.shape if with_marginals else (0, 0, 2))
        args = (
            tables,
            *self._weights_capacities_lengths(rows),
            use_logsumexp,
            with_marginals,
            values,
            marginals,
        )
        run_rows(
            knapsack.forward_backward,
            len(tables),
            20 * self._estimated_work(len(tables)),
            *args,
        )
        return values, marginals

    def _weights_capacities_lengths(self, rows: Ints) -> tuple[Ints, Any, Any]:
        """Weights, and capacities and lengths of ``rows``."""
        capacities, lengths = (to_numpy(x.cpu())[rows] for x in self.row_attributes)
        return self.weights, capacities, lengths

    def _estimated_work(self, num_rows: int) -> int:
        """Number of chart entries of a pass, in the units of ``run_rows``."""
        max_capacity = int(self.row_attributes[0].max()) if num_rows else 0
        # capacities are 0 to max_capacity
        return num_rows * len(self.weights) * (1 + max_capacity)


def _stack_score_tables(scores: Tensor) -> Floats:
    """Scores ``[B, N, 2]`` for leaving out and for choosing each element."""
    chosen = to_numpy(scores.detach().cpu().double())
    return np.stack([np.zeros_like(chosen), chosen], 2)
