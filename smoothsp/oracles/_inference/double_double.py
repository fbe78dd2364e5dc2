"""Answers as two numbers, so that differences of large ones keep their digits.

An answer is a tensor of the structure's dtype, which gradients go through. Beside it
may stand its value as the sum of two float64 numbers. The difference of two answers is
taken in these, and rounded once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from smoothsp._kernels.vectors.double_double import sum_rows
from smoothsp.oracles._inference.tracing import is_eager


class Exact(NamedTuple):
    """An answer ``[...]``, and its value as two numbers ``[..., 2]`` where known."""

    value: Tensor
    parts: Tensor | None = None

    def map(self, change: Callable[[Tensor], Tensor]) -> "Exact":
        """Apply a function that changes the first axes."""
        parts = None if self.parts is None else change(self.parts)
        return Exact(change(self.value), parts)

    def rounded(self, dtype: torch.dtype) -> Tensor:
        """The value in a dtype."""
        return in_dtype(self.value, dtype)

    def unsqueeze(self, axis: int) -> "Exact":
        """Insert an axis of length 1, counted from the front."""
        parts = self.parts
        known = None if parts is None else parts.unsqueeze(axis)
        return Exact(self.value.unsqueeze(axis), known)

    def squeeze(self, axis: int) -> "Exact":
        """Without an axis of length 1, counted from the front."""
        parts = self.parts
        known = None if parts is None else parts.squeeze(axis)
        return Exact(self.value.squeeze(axis), known)

    def detach(self) -> "Exact":
        """Without a gradient."""
        return Exact(self.value.detach(), self.parts)

    def filled(self, mask: Tensor, number: float = 0.0) -> "Exact":
        """A number where the mask is True."""
        parts = self.parts
        if parts is not None:
            alone = parts.new_tensor([number, 0.0])
            parts = torch.where(mask.unsqueeze(-1), alone, parts)
        return Exact(self.value.masked_fill(mask, number), parts)

    def less(self, other: "Exact", *, sign: int = 0) -> Tensor:
        """The difference, rounded once to the dtype of the first.

        ``sign`` is 1 if by its formula it is at least 0, -1 if at most: what rounding
        took beyond 0 becomes 0, and the gradient stays.
        """
        one, two = self.value, other.value
        if self.parts is None or other.parts is None:
            return at_zero(one - two, sign)
        known = (self.parts - other.parts).sum(-1).to(one.dtype)
        if sign > 0:
            known.clamp_(min=0)
        elif sign < 0:
            known.clamp_(max=0)
        if not torch.is_grad_enabled() or not (one.requires_grad or two.requires_grad):
            return known
        found: Tensor = _Difference.apply(known, one, two.expand_as(one))
        return found


def in_dtype(value: Tensor, dtype: torch.dtype) -> Tensor:
    """``value.to(dtype)``, which takes 6 us even where nothing is to be converted."""
    return value if value.dtype == dtype else value.to(dtype)


def at_zero(found: Tensor, sign: int) -> Tensor:
    """Clip at 0 without changing the gradient."""
    if not sign:
        return found
    beyond = found < 0 if sign > 0 else found > 0
    return torch.where(beyond, found - found.detach(), found)


class _Difference(torch.autograd.Function):
    """The difference of two tensors, whose value is known better."""

    @staticmethod
    def forward(ctx: Any, known: Tensor, one: Tensor, two: Tensor) -> Tensor:
        ctx.dtypes = one.dtype, two.dtype
        return known

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        one, two = ctx.dtypes
        return None, grad.to(one), -grad.to(two)


def sums(x: Tensor) -> Tensor:
    """Sums of float64 ``[..., N]`` as two numbers, ``[..., 2]``."""
    rows = x.detach().cpu().reshape(x.shape[:-1].numel(), x.shape[-1]).contiguous()
    found = rows.new_empty(len(rows), 2)
    sum_rows(rows.numpy(), found.numpy())
    return found.reshape(*x.shape[:-1], 2).to(x.device)


def as_two(value: Tensor) -> Tensor:
    """A value ``[...]`` as two numbers of float64, ``[..., 2]``."""
    wide = value.detach().double()
    return torch.stack([wide, torch.zeros_like(wide)], -1)


def score(structure: Any, y: Tensor) -> Exact:
    """Scores of the outputs ``y``."""
    ask = _query(structure, "score")
    return Exact(structure.score(y)) if ask is None else ask(y)


def best(structure: Any) -> tuple[Exact, Tensor]:
    """Result of ``decode``."""
    ask = _query(structure, "decode")
    if ask is not None:
        found: tuple[Exact, Tensor] = ask()
        return found
    value, y = structure.decode()
    return Exact(value), y


def k_best(structure: Any, k: int) -> tuple[Exact, Tensor, Tensor]:
    """Result of ``decode_topk``."""
    ask = _query(structure, "decode_topk")
    if ask is not None:
        found: tuple[Exact, Tensor, Tensor] = ask(k)
        return found
    values, ys, valid = structure.decode_topk(k)
    return Exact(values), ys, valid


def log_partition(structure: Any) -> Exact:
    """Result of ``log_partition``."""
    ask = _query(structure, "log_partition")
    return Exact(structure.log_partition()) if ask is None else ask()


def _query(structure: Any, name: str) -> Any:
    """The method ``_exact_...`` that belongs to a question; None if there is none.

    A class with a method of its own for the question has it called.
    """
    if not is_eager():
        return None
    exactly = f"_exact_{name}"
    for kind in type(structure).__mro__:
        if exactly in vars(kind):
            return getattr(structure, exactly)
        if name in vars(kind):
            return None
    return None
