"""Questions to searches under ``torch.func``: kernels get the tensors below it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from smoothsp.oracles._searches.structure import SearchStructure


class OfRows:
    """A question whose arguments have an entry for each row, all of them tensors."""

    gradient: Any = None

    def by_row(self, axes: Sequence[int]) -> list[bool]:
        return [True] * len(axes)

    def fold(self, inputs: list[Tensor], size: int) -> list[Tensor]:
        return inputs


class Found(OfRows):
    """The best outputs, or the k best, and which exist; no gradient reaches them."""

    def __init__(self, structure: "SearchStructure", k: int | None) -> None:
        self.structure, self.k = structure, k

    def op(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        return self.structure._of_rows(tensors)._answer(self.k)
