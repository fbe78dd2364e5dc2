"""A question of which each row of a batch has its own: an object, asked of tensors."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from smoothsp.oracles._questions.registration import EagerGradient, is_transformed
from smoothsp.oracles._questions.old_transforms import Transformed


class OfRows:
    """A question of tensors, which ``ask`` puts to ``op`` by the right way.

    By default all tensors have an entry for each row. ``gradient(ctx, *grads)`` has one
    for each of them; None if no answer has any. ``tangent(ctx, *tangents)`` is that of
    the answers. What both take is saved by ``save``.
    """

    # The answer for tensors that no transform has wrapped.
    op: Any = None
    gradient: Any = None
    tangent: Any = None

    def call(self, *tensors: Tensor) -> Any:
        """The answer; gradients reach the tensors."""
        if is_transformed():
            return Transformed.apply(self, *tensors)
        if self.gradient is not None and wants_gradient(tensors):
            return EagerGradient.apply(self, None, *tensors)
        return self.op(*tensors)

    def begin(self, ctx: Any, buffers: None, tensors: tuple[Tensor, ...]) -> Any:
        """The answer, and in ``ctx`` what its gradient takes."""
        output = self.op(*tensors)
        self.save(ctx, tensors, output)
        return output

    def save(self, ctx: Any, tensors: tuple[Tensor, ...], output: Any) -> None:
        """Keep the tensors."""
        ctx.save_for_backward(*tensors)

    def repeated(self, size: int) -> Any:
        """The question of a batch so many times as large, one time after the other."""
        return self

    def by_row(self, axes: Sequence[int]) -> list[bool]:
        """Return True for tensors with an entry for each row, by number of axes."""
        return [True] * len(axes)

    def fold(self, tensors: list[Tensor], size: int) -> list[Tensor]:
        return tensors


def wants_gradient(tensors: Sequence[Tensor]) -> bool:
    """Whether a gradient is wanted of any of them."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def wanted(ctx: Any, count: int) -> Sequence[bool]:
    """Return True for each of the last inputs that needs a gradient."""
    found: tuple[bool, ...] = ctx.needs_input_grad[-count:]
    return found
