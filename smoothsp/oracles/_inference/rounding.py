"""Products and log-probabilities corrected for rounding errors and infinities."""

import torch
from torch import Tensor


def clip_log_probs(log_probs: Tensor) -> Tensor:
    """Clip log-probabilities to at most 0 without changing their gradients."""
    return torch.where(log_probs > 0, log_probs - log_probs.detach(), log_probs)


def multiply(x: Tensor, factor: float) -> Tensor:
    """``x * factor``, in float64 if float32 overflow or underflow could give NaN.

    A factor rounded to inf or 0 would turn 0 or -inf into NaN.
    """
    within = 1e-30 < factor < 1e30
    return x * factor if within else (x.double() * factor).to(x.dtype)


def multiply_by_weight(values: Tensor, weight: Tensor | float) -> Tensor:
    """``values * weight``, with 0 for an infinite value of weight 0."""
    return values.masked_fill(values.isinf() & (weight == 0), 0) * weight
