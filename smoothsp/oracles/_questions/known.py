"""Values that are known together with their gradients: one node of a graph.

The first backward pass takes the gradient that is there. Another one, and higher
derivatives, ask for the value again by differentiable questions.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from smoothsp.oracles._questions.question import (
    EagerGradient,
    needs_gradient,
    wants_gradient,
)
from smoothsp.oracles._questions.tracing import is_eager_tensor

# Gradients of all potentials from that of the value, where they are wanted.
Slopes = Callable[[Tensor, Sequence[bool]], Sequence[Tensor | None]]


class Known:
    """A value of potentials, and its gradient.

    Parameters
    ----------
    value
        Any shape; without a gradient.
    slopes
        Called once at most: the gradient may be made in memory that it keeps.
    again
        The same value by differentiable questions.
    """

    def __init__(
        self, value: Tensor, slopes: Slopes, again: Callable[[], Tensor]
    ) -> None:
        self.value, self.slopes, self.again = value, slopes, again

    def of(self, potentials: Sequence[Tensor]) -> Tensor:
        """The value; gradients reach the potentials."""
        if not wants_gradient(potentials):
            return self.value
        found: Tensor = EagerGradient.apply(self, *potentials)
        return found

    def begin(self, ctx: Any, potentials: tuple[Tensor, ...]) -> Tensor:
        ctx.save_for_backward(*potentials)
        ctx.slopes = vars(self).pop("slopes")
        found: Tensor = vars(self).pop("value")
        return found

    def gradient(
        self, ctx: Any, grad: Tensor
    ) -> tuple[Sequence[Tensor | None], tuple[()]]:
        # one step, so that no other thread gets them too
        slopes = vars(ctx).pop("slopes", None)
        higher = torch.is_grad_enabled()
        if slopes is not None and not higher and is_eager_tensor(grad, "cpu"):
            return slopes(grad, ctx.needs_input_grad[1:]), ()
        # asked for here, potentials must not have been changed in the meantime
        potentials = ctx.saved_tensors
        some = needs_gradient(ctx, len(potentials))
        with torch.enable_grad():
            value = self.again()
        wanted = [x for x, want in zip(potentials, some, strict=True) if want]
        found = iter(
            torch.autograd.grad(
                value, wanted, grad, create_graph=higher, allow_unused=True
            )
        )
        return [next(found) if want else None for want in some], ()
