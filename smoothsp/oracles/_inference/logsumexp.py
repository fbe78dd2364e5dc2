"""Logarithms of sums of exponentials, the shares of the terms, and their entropies.

By ``softmax`` and ``log_softmax``, whose gradients keep their digits beside large
scores: that of ``logsumexp`` is ``exp(scores - value)`` with a value that is rounded.
"""

import torch
from torch import Tensor


def logsumexp(scores: Tensor) -> Tensor:
    """``log sum exp`` over the last axis, whose gradient is 0 where all is -inf."""
    top, at = scores.detach().max(-1, keepdim=True)
    none = top == -torch.inf
    given = scores.masked_fill(none, 0)
    # less the highest score this is minus the logarithm
    found = given.gather(-1, at) - given.log_softmax(-1).gather(-1, at)
    return found.masked_fill(none, -torch.inf).squeeze(-1)


def softmax(scores: Tensor) -> Tensor:
    """The softmax over the last axis; 0 where all is -inf."""
    none = (scores.detach() == -torch.inf).all(-1, keepdim=True)
    return scores.masked_fill(none, 0).softmax(-1).masked_fill(none, 0)


def softmax_entropy(scores: Tensor) -> Tensor:
    """The entropies of softmaxes over the last axis; 0 where all is -inf."""
    none = (scores.detach() == -torch.inf).all(-1, keepdim=True)
    given = scores.masked_fill(none, 0)
    share, logarithm = given.softmax(-1), given.log_softmax(-1)
    terms = share * logarithm.masked_fill(share.detach() == 0, 0)
    return -terms.masked_fill(none, 0).sum(-1)
