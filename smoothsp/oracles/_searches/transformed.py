"""Questions to searches under ``torch.func``: kernels get the tensors below it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from smoothsp.oracles._questions.transforms import Transformed
from smoothsp.oracles._searches import tree_sums

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


class OfTrees(OfRows):
    """A question about sums over trees: of arcs ``[B, m, m]`` and lengths ``[B]``."""

    def __init__(self, single: bool) -> None:
        self.single = single

    def ask(self, *inputs: Tensor) -> Tensor:
        found: Tensor = Transformed.apply(self, *inputs)
        return found

    def trees(self, lengths: Tensor) -> tree_sums.Trees:
        return tree_sums.Trees(lengths.cpu().numpy(), self.single)

    def save(self, ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs)


class LogPartition(OfTrees):
    """The log-partition ``[B]``; its gradient is the chances."""

    def op(self, arcs: Tensor, lengths: Tensor) -> Tensor:
        return tree_sums.find_sums(arcs, self.trees(lengths), False)[0]

    def gradient(self, ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        chances = Chances(self.single).ask(*ctx.saved_tensors)
        return grads[0][:, None, None] * chances, None

    def tangent(self, ctx: Any, *tangents: Any) -> Tensor:
        chances = Chances(self.single).ask(*ctx.saved_tensors)
        found: Tensor = (chances * tangents[0]).sum((1, 2))
        return found


class Chances(OfTrees):
    """Chances of arcs; they move with the covariance of the arcs."""

    def op(self, arcs: Tensor, lengths: Tensor) -> Tensor:
        return tree_sums.find_sums(arcs, self.trees(lengths), True)[1]

    def gradient(self, ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        return Moves(self.single).ask(*ctx.saved_tensors, grads[0]), None

    def tangent(self, ctx: Any, *tangents: Any) -> Tensor:
        return Moves(self.single).ask(*ctx.saved_tensors, tangents[0])


class Moves(OfTrees):
    """How chances move along a direction of the arcs."""

    def op(self, arcs: Tensor, lengths: Tensor, along: Tensor) -> Tensor:
        return tree_sums.find_moves(arcs, self.trees(lengths), along)

    def gradient(self, ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError(
            "arcs: expected at most two derivatives of a log-partition, and one of "
            "marginals and of an entropy, got one more"
        )

    tangent = gradient


class Samples(OfTrees):
    """Heads of drawn trees, from seeds ``[B, draws]``; no gradient reaches them."""

    def op(self, arcs: Tensor, lengths: Tensor, seeds: Tensor) -> Tensor:
        return tree_sums.find_samples(arcs, self.trees(lengths), seeds)
