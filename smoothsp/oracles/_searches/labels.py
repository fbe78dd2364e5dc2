"""Arcs with labels, summed over these."""

import torch
from torch import Tensor


def log_sum(arcs: Tensor) -> Tensor:
    """``log sum exp`` over the last axis, whose gradient is 0 where all is -inf."""
    top = arcs.detach().amax(-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0)
    total = (arcs - top).exp().sum(-1)
    some = total > 0
    return torch.where(
        some, total.masked_fill(~some, 1).log() + top[..., 0], -torch.inf
    )


def shares(arcs: Tensor, joined: Tensor) -> Tensor:
    """Chances of labels, given the arc; 0 where the arc cannot be."""
    none = joined.isneginf()[..., None]
    less = arcs - joined[..., None].masked_fill(none, 0)
    return torch.where(none, 0.0, less.masked_fill(none, 0).exp())
