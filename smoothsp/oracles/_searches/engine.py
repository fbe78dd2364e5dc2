"""Ops of search structures: best outputs, k best outputs, and scores."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from smoothsp.oracles._inference.double_double import as_hi_lo, sum_hi_lo, to_dtype
from smoothsp.oracles._inference.engine import BestOutputs, Engine
from smoothsp.oracles._inference.op import Op
from smoothsp.oracles._inference.to_numpy import to_numpy


class SearchEngine(Engine):
    """Adapter of a ``SearchStructure`` to the interface of ``Engine``."""

    def __init__(self, structure: Any) -> None:
        self.structure = structure
        self.potentials = tuple(structure._row_potentials.values())
        self.num_row_potentials = len(self.potentials)

    @property
    def row_attributes(self) -> tuple[Tensor, ...]:  # type: ignore[override]
        structure = self.structure
        return tuple(getattr(structure, name) for name in structure.row_attributes)

    def with_tensors(self, tensors: Sequence[Tensor]) -> "SearchEngine":
        potentials, row_attributes = (
            tensors[: self.num_row_potentials],
            tensors[self.num_row_potentials :] or self.row_attributes,
        )
        return SearchEngine(
            self.structure._from_row_tensors((*potentials, *row_attributes))
        )

    def best(
        self, k: int | None, dtype: torch.dtype, recheck_in_float64: bool = False
    ) -> BestOutputs:
        """Best outputs, without values: losses score them again as hi + lo."""
        y, valid = self.structure._run_search(k)
        value = y.new_empty(0, dtype=dtype)
        return BestOutputs(value, y, valid=None if k is None else valid)

    def score(
        self, used_parts: Tensor, dtype: torch.dtype, with_hi_lo: bool = False
    ) -> tuple[Tensor, Any]:
        """Scores ``[B, k]`` of outputs ``used_parts [B, k, ...]``.

        The parts of a search are the outputs themselves.
        """
        structure = self.structure
        kernel_scores = structure._kernel_scores(to_numpy(used_parts))
        is_float32 = self.potentials[0].dtype == torch.float32
        if kernel_scores is not None and (is_float32 or not with_hi_lo):
            value = torch.from_numpy(kernel_scores)
            # float64 sums of float32 scores are exact enough: lo would be 0
            return to_dtype(value, dtype), as_hi_lo(value) if with_hi_lo else None
        hi_lo = sum_hi_lo(
            structure._gather_entries(structure._used_entry_indices(used_parts))
        )
        return hi_lo.sum(2).to(dtype), hi_lo

    def part_entries(self, used_parts: Tensor) -> Tensor:
        entries: Tensor = self.structure._used_entry_indices(used_parts)
        return entries


class SearchOp(Op):
    """Best outputs ``[B, ...]``, or the k best ``[B, k, ...]``, and which exist.

    Integers: not differentiable.
    """

    returns_tensor = False
    is_differentiable = False

    def __init__(self, engine: SearchEngine, k: int | None) -> None:
        super().__init__(engine)
        self.k = k

    def compute(self) -> tuple[Tensor, Tensor]:
        outputs: tuple[Tensor, Tensor] = self.engine.structure._run_search(self.k)  # type: ignore[attr-defined]
        return outputs
