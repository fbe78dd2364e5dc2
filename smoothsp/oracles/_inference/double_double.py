"""Double-double values, so that differences of large numbers keep their digits.

A result is a tensor of the structure's dtype, which carries the gradient, and
optionally its value as an unevaluated sum of two float64 numbers. Differences are
taken of these sums and rounded once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from smoothsp._kernels.vectors.double_double import sum_rows
from smoothsp.oracles._inference.tracing import is_eager


class DoubleDouble(NamedTuple):
    """A value ``[...]`` and, if computed, its double-double form ``[..., 2]``."""

    value: Tensor
    hi_lo: Tensor | None = None

    def map_leading_axes(self, change: Callable[[Tensor], Tensor]) -> "DoubleDouble":
        """Apply a function of the first axes to both forms."""
        hi_lo = None if self.hi_lo is None else change(self.hi_lo)
        return DoubleDouble(change(self.value), hi_lo)

    def to_dtype(self, dtype: torch.dtype) -> Tensor:
        """Convert the value to a dtype."""
        return to_dtype(self.value, dtype)

    def unsqueeze(self, axis: int) -> "DoubleDouble":
        """Insert an axis of length 1, counted from the front."""
        hi_lo = self.hi_lo
        expanded = None if hi_lo is None else hi_lo.unsqueeze(axis)
        return DoubleDouble(self.value.unsqueeze(axis), expanded)

    def squeeze(self, axis: int) -> "DoubleDouble":
        """Remove an axis of length 1, counted from the front."""
        hi_lo = self.hi_lo
        squeezed = None if hi_lo is None else hi_lo.squeeze(axis)
        return DoubleDouble(self.value.squeeze(axis), squeezed)

    def detach(self) -> "DoubleDouble":
        """Detach the value from its graph."""
        return DoubleDouble(self.value.detach(), self.hi_lo)

    def masked_fill(self, mask: Tensor, number: float = 0.0) -> "DoubleDouble":
        """Replace entries by a number where the mask is True."""
        hi_lo = self.hi_lo
        if hi_lo is not None:
            fill = hi_lo.new_tensor([number, 0.0])
            hi_lo = torch.where(mask.unsqueeze(-1), fill, hi_lo)
        return DoubleDouble(self.value.masked_fill(mask, number), hi_lo)

    def minus(self, other: "DoubleDouble", *, sign: int = 0) -> Tensor:
        """Difference, rounded once to the dtype of this value.

        ``sign`` 1 clips a difference that is mathematically at least 0, -1 one that is
        at most 0. Clipping does not change the gradient.
        """
        left, right = self.value, other.value
        if self.hi_lo is None or other.hi_lo is None:
            return clip_at_zero(left - right, sign)
        difference = (self.hi_lo - other.hi_lo).sum(-1).to(left.dtype)
        if sign > 0:
            difference.clamp_(min=0)
        elif sign < 0:
            difference.clamp_(max=0)
        if not torch.is_grad_enabled() or not (
            left.requires_grad or right.requires_grad
        ):
            return difference
        result: Tensor = _Difference.apply(difference, left, right.expand_as(left))
        return result


def to_dtype(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert to a dtype, without the 6 us of ``value.to`` if nothing changes."""
    return value if value.dtype == dtype else value.to(dtype)


def clip_at_zero(value: Tensor, sign: int) -> Tensor:
    """Clip at 0 without changing the gradient."""
    if not sign:
        return value
    is_beyond = value < 0 if sign > 0 else value > 0
    return torch.where(is_beyond, value - value.detach(), value)


class _Difference(torch.autograd.Function):
    """Difference of two tensors, with a value computed from double-doubles."""

    @staticmethod
    def forward(ctx: Any, difference: Tensor, left: Tensor, right: Tensor) -> Tensor:
        ctx.dtypes = left.dtype, right.dtype
        return difference

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        left_dtype, right_dtype = ctx.dtypes
        return None, grad.to(left_dtype), -grad.to(right_dtype)


def sum_hi_lo(x: Tensor) -> Tensor:
    """Sums of float64 ``[..., N]`` over N, as double-doubles ``[..., 2]``."""
    rows = x.detach().cpu().reshape(x.shape[:-1].numel(), x.shape[-1]).contiguous()
    result = rows.new_empty(len(rows), 2)
    sum_rows(rows.numpy(), result.numpy())
    return result.reshape(*x.shape[:-1], 2).to(x.device)


def as_hi_lo(value: Tensor) -> Tensor:
    """Convert values ``[...]`` to double-doubles ``[..., 2]`` with low part 0."""
    hi = value.detach().double()
    return torch.stack([hi, torch.zeros_like(hi)], -1)


def score(structure: Any, y: Tensor) -> DoubleDouble:
    """Scores of the outputs ``y``."""
    method = _hi_lo_method(structure, "score")
    return DoubleDouble(structure.score(y)) if method is None else method(y)


def decode(structure: Any) -> tuple[DoubleDouble, Tensor]:
    """Result of ``decode``."""
    method = _hi_lo_method(structure, "decode")
    if method is not None:
        result: tuple[DoubleDouble, Tensor] = method()
        return result
    value, y = structure.decode()
    return DoubleDouble(value), y


def decode_topk(structure: Any, k: int) -> tuple[DoubleDouble, Tensor, Tensor]:
    """Result of ``decode_topk``."""
    method = _hi_lo_method(structure, "decode_topk")
    if method is not None:
        result: tuple[DoubleDouble, Tensor, Tensor] = method(k)
        return result
    values, ys, valid = structure.decode_topk(k)
    return DoubleDouble(values), ys, valid


def log_partition(structure: Any) -> DoubleDouble:
    """Result of ``log_partition``."""
    method = _hi_lo_method(structure, "log_partition")
    return DoubleDouble(structure.log_partition()) if method is None else method()


def _hi_lo_method(structure: Any, name: str) -> Any:
    """Return the double-double form of a method; None if undefined or traced.

    None also if a subclass overrides the public method, which is then called instead.
    """
    if not is_eager():
        return None
    method_name = f"_{name}_hi_lo"
    for kind in type(structure).__mro__:
        if method_name in vars(kind):
            return getattr(structure, method_name)
        if name in vars(kind):
            return None
    return None
