"""Engine of circuits: calls the loops of the device that holds the leaves."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from smoothsp.oracles._circuits import cpu, cuda
from smoothsp.oracles._circuits.circuit_batch import CircuitBatch, Leaves
from smoothsp.oracles._inference.engine import BestOutputs, Engine, weight_rows
from smoothsp.oracles._inference.rules import zero_if_infinite

# Modules with the same functions, by device type.
BACKENDS: dict[str, Any] = {"cpu": cpu, "cuda": cuda}


class CircuitEngine(Engine):
    """Engine of a circuit: leaves as potentials, and the root item of each row."""

    def __init__(self, leaves: Leaves, query: CircuitBatch) -> None:
        self.leaves, self.batch = leaves, query
        self.potentials = (*leaves.per_row, *leaves.shared)
        self.num_row_potentials = len(leaves.per_row)

    @property
    def backend(self) -> Any:
        """Module of functions for the device of the leaves."""
        return BACKENDS[self.potentials[0].device.type]

    def with_tensors(self, tensors: Sequence[Tensor]) -> "CircuitEngine":
        n, m = self.num_row_potentials, len(self.potentials)
        leaves = Leaves(tuple(tensors[:n]), tuple(tensors[n:m]))
        other = copy.copy(self)
        other.leaves, other.potentials = leaves, tuple(tensors[:m])
        return other

    def with_repeated_rows(self, times: int) -> "CircuitEngine":
        other = copy.copy(self)
        other.batch = self.batch.repeat(times)
        return other

    def log_partition_and_marginals(
        self,
        needs_grad: Sequence[bool],
        dtype: torch.dtype | None,
        with_hi_lo: bool = False,
    ) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        results: tuple[Tensor, Tensor, list[Tensor]] = (
            self.backend.log_partition_and_marginals(
                self.leaves, self.batch, needs_grad, dtype or self.potentials[0].dtype
            )
        )
        return results

    def vjp(
        self, weights: Tensor, marginals: Any, needs_grad: Sequence[bool]
    ) -> list[Tensor | None]:
        pairs = list(zip(marginals, needs_grad, strict=True))
        for x, is_needed in pairs:
            if is_needed and not (x.is_cpu and x.is_contiguous()):
                # CUDA marginals are views of one array and not contiguous
                return weight_rows(
                    weights, marginals, self.num_row_potentials, needs_grad
                )
        grads: list[Tensor | None] = []
        for i, (x, is_needed) in enumerate(pairs):
            if not is_needed:
                grads.append(None)
            elif i < self.num_row_potentials:
                grads.append(cpu.scale_rows_inplace(weights, x))
            else:
                grads.append(cpu.sum_weighted_rows(weights, x))
        return grads

    def covariance(self, directions: Sequence[Tensor]) -> list[Tensor]:
        all_needed = [True] * len(directions)
        args = self.leaves, self.batch, Leaves(tuple(directions), ()), all_needed
        tangents = self.backend.log_partition_and_jvps(*args)[2]
        return [x.to(self.potentials[0].dtype) for x in tangents]

    def entropy(self) -> Tensor:
        none = [False] * len(self.potentials)
        args = self.leaves, self.batch, self.leaves.map(zero_if_infinite), none
        value, means, _ = self.backend.log_partition_and_jvps(*args)
        difference: Tensor = value - means
        return difference.clamp(min=0).to(self.potentials[0].dtype)

    def best(
        self, k: int | None, dtype: torch.dtype, recheck_in_float64: bool = False
    ) -> BestOutputs:
        if k is None:
            args = self.leaves, self.batch, None, dtype, recheck_in_float64
            value, with_hi_lo, labels, parts = self.backend.best(*args)
            return BestOutputs(value, labels, parts, with_hi_lo)
        device = self.potentials[0].device
        leaves = self.leaves.map(lambda x: x.cpu())
        value, with_hi_lo, labels, parts = cpu.best(leaves, self.batch, k, dtype)
        if device.type != "cpu":
            value, with_hi_lo, labels, parts = (
                x.to(device) for x in (value, with_hi_lo, labels, parts)
            )
        return BestOutputs(value, labels, parts, with_hi_lo)

    def empty_outputs(self, k: int | None) -> tuple[Tensor, ...]:
        topology, new = self.batch.topology, self.potentials[0].new_empty
        rows = (len(self.potentials[0]), *([] if k is None else [k]))
        labels = new((*rows, topology.labels), dtype=torch.int64)
        return labels, new((*rows, topology.max_leaves), dtype=torch.int32)

    def score(
        self, used_parts: Tensor, dtype: torch.dtype, with_hi_lo: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        result: tuple[Tensor, Tensor] = self.backend.score(
            self.leaves, used_parts, dtype
        )
        return result

    def count_parts(
        self, weights: Tensor, used_parts: Tensor, needs_grad: Sequence[bool]
    ) -> list[Tensor | None]:
        if weights.device.type != "cpu":
            return super().count_parts(weights, used_parts, needs_grad)
        return cpu.count_parts(weights, used_parts, self.leaves, needs_grad)

    def sample(self, random_numbers: Tensor) -> Tensor:
        leaves = self.leaves.map(lambda x: x.detach().cpu())
        labels = cpu.samples(leaves, self.batch, random_numbers.cpu())
        return labels.to(random_numbers.device)

    def distinct_samples(self, n: int, seeds: Tensor) -> tuple[Tensor, Tensor]:
        """Labels ``[B, n, N]`` of distinct samples, and their validity ``[B, n]``."""
        leaves = self.leaves.map(lambda x: x.detach().cpu())
        result = cpu.distinct_samples(leaves, self.batch, n, seeds.cpu())
        return result[0].to(seeds.device), result[1].to(seeds.device)

    def max_marginals(self) -> list[Tensor]:
        """Highest scores of outputs with each leaf ``[B, ...]``, in float64."""
        device = self.potentials[0].device
        leaves = self.leaves.map(lambda x: x.detach().cpu())
        return [x.to(device) for x in cpu.max_marginals(leaves, self.batch)]
