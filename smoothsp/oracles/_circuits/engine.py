"""Answers about a circuit, of the loops of the device where the leaves are."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from smoothsp.oracles._circuits import cpu, cuda
from smoothsp.oracles._circuits.circuit_batch import CircuitBatch, Leaves
from smoothsp.oracles._inference.engine import BestOutputs, Engine, weight_rows
from smoothsp.oracles._inference.rules import zero_if_infinite

# Modules of the same functions, by the type of the device that they run on.
BACKENDS: dict[str, Any] = {"cpu": cpu, "cuda": cuda}


class CircuitEngine(Engine):
    """Leaves, as potentials, and which item of a circuit answers for which row."""

    def __init__(self, leaves: Leaves, query: CircuitBatch) -> None:
        self.leaves, self.batch = leaves, query
        self.potentials = (*leaves.per_row, *leaves.shared)
        self.num_row_potentials = len(leaves.per_row)

    @property
    def backend(self) -> Any:
        """The functions for the device of the leaves."""
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
        self, wanted: Sequence[bool], dtype: torch.dtype | None, two: bool = False
    ) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        found: tuple[Tensor, Tensor, list[Tensor]] = (
            self.backend.log_partition_and_marginals(
                self.leaves, self.batch, wanted, dtype or self.potentials[0].dtype
            )
        )
        return found

    def vjp(
        self, weights: Tensor, marginals: Any, wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        pairs = list(zip(marginals, wanted, strict=True))
        for x, want in pairs:
            if want and not (x.is_cpu and x.is_contiguous()):
                # loops of a device answer with views of one array
                return weight_rows(weights, marginals, self.num_row_potentials, wanted)
        found: list[Tensor | None] = []
        for i, (x, want) in enumerate(pairs):
            if not want:
                found.append(None)
            elif i < self.num_row_potentials:
                found.append(cpu.scale_in_place(weights, x))
            else:
                found.append(cpu.add_weighted(weights, x))
        return found

    def covariance(self, along: Sequence[Tensor]) -> list[Tensor]:
        every = [True] * len(along)
        given = self.leaves, self.batch, Leaves(tuple(along), ()), every
        moved = self.backend.jvp(*given)[2]
        return [x.to(self.potentials[0].dtype) for x in moved]

    def entropy(self) -> Tensor:
        none = [False] * len(self.potentials)
        given = self.leaves, self.batch, self.leaves.map(zero_if_infinite), none
        value, means, _ = self.backend.jvp(*given)
        found: Tensor = value - means
        return found.clamp(min=0).to(self.potentials[0].dtype)

    def best(
        self, k: int | None, dtype: torch.dtype, precise: bool = False
    ) -> BestOutputs:
        if k is None:
            given = self.leaves, self.batch, None, dtype, precise
            value, two, labels, parts = self.backend.best(*given)
            return BestOutputs(value, labels, parts, two)
        device = self.potentials[0].device
        leaves = self.leaves.map(lambda x: x.cpu())
        value, two, labels, parts = cpu.best(leaves, self.batch, k, dtype)
        if device.type != "cpu":
            value, two, labels, parts = (
                x.to(device) for x in (value, two, labels, parts)
            )
        return BestOutputs(value, labels, parts, two)

    def empty_outputs(self, k: int | None) -> tuple[Tensor, ...]:
        topology, new = self.batch.topology, self.potentials[0].new_empty
        rows = (len(self.potentials[0]), *([] if k is None else [k]))
        labels = new((*rows, topology.labels), dtype=torch.int64)
        return labels, new((*rows, topology.max_leaves), dtype=torch.int32)

    def score(
        self, used: Tensor, dtype: torch.dtype, two: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        found: tuple[Tensor, Tensor] = self.backend.score(self.leaves, used, dtype)
        return found

    def count_parts(
        self, weights: Tensor, used: Tensor, wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        if weights.device.type != "cpu":
            return super().count_parts(weights, used, wanted)
        return cpu.count_parts(weights, used, self.leaves, wanted)

    def sample(self, numbers: Tensor) -> Tensor:
        leaves = self.leaves.map(lambda x: x.detach().cpu())
        found = cpu.samples(leaves, self.batch, numbers.cpu())
        return found.to(numbers.device)

    def distinct_samples(self, n: int, seeds: Tensor) -> tuple[Tensor, Tensor]:
        """Labels ``[B, n, N]`` of distinct draws, and which of them exist."""
        leaves = self.leaves.map(lambda x: x.detach().cpu())
        found = cpu.distinct_samples(leaves, self.batch, n, seeds.cpu())
        return found[0].to(seeds.device), found[1].to(seeds.device)

    def max_marginals(self) -> list[Tensor]:
        """Highest scores of outputs with each leaf ``[B, ...]``, in float64."""
        device = self.potentials[0].device
        leaves = self.leaves.map(lambda x: x.detach().cpu())
        return [x.to(device) for x in cpu.max_marginals(leaves, self.batch)]
