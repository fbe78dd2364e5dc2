"""Logarithms of sums of exponentials, the shares of the terms, and their entropies.

By ``softmax`` and ``log_softmax``, whose gradients keep their digits beside large
scores: that of ``logsumexp`` is ``exp(scores - value)`` with a value that is rounded.
"""

import torch
from torch import Tensor


def logsumexp(scores: Tensor) -> Tensor:
    """``log sum exp`` over the last axis, whose gradient is 0 where all is -inf."""
    top, argmax = scores.detach().max(-1, keepdim=True)
    is_empty = top == -torch.inf
    finite = scores.masked_fill(is_empty, 0)
    # less the highest score this is minus the logarithm
    value = finite.gather(-1, argmax) - finite.log_softmax(-1).gather(-1, argmax)
    return value.masked_fill(is_empty, -torch.inf).squeeze(-1)


def softmax(scores: Tensor) -> Tensor:
    """The softmax over the last axis; 0 where all is -inf."""
    is_empty = (scores.detach() == -torch.inf).all(-1, keepdim=True)
    return scores.masked_fill(is_empty, 0).softmax(-1).masked_fill(is_empty, 0)


def softmax_entropy(scores: Tensor) -> Tensor:
    """The entropies of softmaxes over the last axis; 0 where all is -inf."""
    is_empty = (scores.detach() == -torch.inf).all(-1, keepdim=True)
    finite = scores.masked_fill(is_empty, 0)
    probs, log_probs = finite.softmax(-1), finite.log_softmax(-1)
    terms = probs * log_probs.masked_fill(probs.detach() == 0, 0)
    return -terms.masked_fill(is_empty, 0).sum(-1)
