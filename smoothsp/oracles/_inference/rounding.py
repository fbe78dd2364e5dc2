"""Corrections of rounding errors."""

import torch
from torch import Tensor


def clip_log_probs(log_probs: Tensor) -> Tensor:
    """Log-probabilities, 0 where rounding lifted them above; gradients as they were."""
    return torch.where(log_probs > 0, log_probs - log_probs.detach(), log_probs)


def multiply(x: Tensor, factor: float) -> Tensor:
    """``x * factor``, in float64 where float32 would make NaN of 0 or of -inf."""
    within = 1e-30 < factor < 1e30
    return x * factor if within else (x.double() * factor).to(x.dtype)


def multiply_by_weight(values: Tensor, weight: Tensor | float) -> Tensor:
    """``values * weight``, where an infinite value of weight 0 is 0."""
    return values.masked_fill(values.isinf() & (weight == 0), 0) * weight
