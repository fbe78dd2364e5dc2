"""Log-sum-exp, softmax and entropy over the last axis, where scores may be all -inf.

Computed by ``softmax`` and ``log_softmax``, whose gradients are accurate for large
scores: the gradient of ``torch.logsumexp`` is ``exp(scores - value)`` with a rounded
value.
"""

import torch
from torch import Tensor


def logsumexp(scores: Tensor) -> Tensor:
    """``log sum exp`` over the last axis; value -inf and gradient 0 if all are -inf."""
    top, argmax = scores.detach().max(-1, keepdim=True)
    is_empty = top == -torch.inf
    finite = scores.masked_fill(is_empty, 0)
    # log_softmax of the largest score is that score minus log sum exp
    value = finite.gather(-1, argmax) - finite.log_softmax(-1).gather(-1, argmax)
    return value.masked_fill(is_empty, -torch.inf).squeeze(-1)


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last axis; 0 if all scores are -inf."""
    is_empty = (scores.detach() == -torch.inf).all(-1, keepdim=True)
    return scores.masked_fill(is_empty, 0).softmax(-1).masked_fill(is_empty, 0)


def softmax_entropy(scores: Tensor) -> Tensor:
    """Entropy of the softmax over the last axis, in nats; 0 if all scores are -inf."""
    is_empty = (scores.detach() == -torch.inf).all(-1, keepdim=True)
    finite = scores.masked_fill(is_empty, 0)
    probs, log_probs = finite.softmax(-1), finite.log_softmax(-1)
    # p log p tends to 0 with p, but 0 times -inf is NaN
    terms = probs * log_probs.masked_fill(probs.detach() == 0, 0)
    return -terms.masked_fill(is_empty, 0).sum(-1)
