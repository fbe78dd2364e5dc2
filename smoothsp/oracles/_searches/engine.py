"""Questions to a search: which outputs are best, and what they score."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from smoothsp.oracles._inference.double_double import as_hi_lo, sum_hi_lo, to_dtype
from smoothsp.oracles._inference.engine import BestOutputs, Engine
from smoothsp.oracles._inference.op import Op
from smoothsp.oracles._inference.to_numpy import to_numpy


class SearchEngine(Engine):
    """A structure that searches: its potentials, and attributes of its rows."""

    def __init__(self, structure: Any) -> None:
        self.structure = structure
        self.potentials = tuple(structure._row_potentials.values())
        self.num_row_potentials = len(self.potentials)

    @property
    def row_attributes(self) -> tuple[Tensor, ...]:  # type: ignore[override]
        structure = self.structure
        return tuple(getattr(structure, name) for name in structure.row_attributes)

    def with_tensors(self, tensors: Sequence[Tensor]) -> "SearchEngine":
        own, others = (
            tensors[: self.num_row_potentials],
            tensors[self.num_row_potentials :] or self.row_attributes,
        )
        return SearchEngine(self.structure._from_row_tensors((*own, *others)))

    def best(
        self, k: int | None, dtype: torch.dtype, precise: bool = False
    ) -> BestOutputs:
        """The best outputs, without values: losses ask for these in two numbers."""
        y, valid = self.structure._run_search(k)
        value = y.new_empty(0, dtype=dtype)
        return BestOutputs(value, y, valid=None if k is None else valid)

    def score(
        self, used: Tensor, dtype: torch.dtype, two: bool = False
    ) -> tuple[Tensor, Any]:
        """Scores of outputs ``used`` ``[B, k, ...]``, by a kernel if there is one."""
        structure = self.structure
        kernel_scores = structure._kernel_scores(to_numpy(used))
        is_float32 = self.potentials[0].dtype == torch.float32
        if kernel_scores is not None and (is_float32 or not two):
            value = torch.from_numpy(kernel_scores)
            # of float32 sums in float64 are as good
            return to_dtype(value, dtype), as_hi_lo(value) if two else None
        hi_lo = sum_hi_lo(structure._gather_entries(structure._used_entries(used)))
        return hi_lo.sum(2).to(dtype), hi_lo

    def part_entries(self, used: Tensor) -> Tensor:
        entries: Tensor = self.structure._used_entries(used)
        return entries


class SearchOp(Op):
    """The best outputs ``[B, ...]``, or the k best ``[B, k, ...]``, and which exist.

    No gradient reaches them.
    """

    returns_tensor = False
    is_differentiable = False

    def __init__(self, engine: SearchEngine, k: int | None) -> None:
        super().__init__(engine)
        self.k = k

    def compute(self) -> tuple[Tensor, Tensor]:
        outputs: tuple[Tensor, Tensor] = self.engine.structure._run_search(self.k)  # type: ignore[attr-defined]
        return outputs
