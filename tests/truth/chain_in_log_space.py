"""Chains of any numbers by autograd: log-partition, marginals, covariances.

Plain torch in float64 and in log space. Arguments are those of ``_chain.buffers``,
answers have the shapes of ``_chain.forward_backward``; parts may be forbidden.
"""

import torch
from torch import Tensor


def log_partition(chain: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the log-partition ``[B]`` and the marginals."""
    leaves = _leaves(chain)
    value = _log_partition(*leaves, *chain[4:])
    marginals = torch.autograd.grad(value.sum(), leaves, materialize_grads=True)
    return value.detach(), *_shaped(chain, marginals)


def covariance(chain: tuple[Tensor, ...], *weights: Tensor) -> tuple[Tensor, ...]:
    """Return the covariance of each part with the sum of weights over parts."""
    leaves = _leaves(chain)
    value = _log_partition(*leaves, *chain[4:])
    given = {"create_graph": True, "materialize_grads": True}
    marginals = torch.autograd.grad(value.sum(), leaves, **given)
    pairs = zip(_shaped(chain, marginals), weights, strict=True)
    mean = sum((p * v.double()).sum() for p, v in pairs)
    return _shaped(chain, torch.autograd.grad(mean, leaves, materialize_grads=True))


def _leaves(chain: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return potentials of each row and step, 0 where there is no position."""
    emissions, transitions, start, end, steps, lengths = chain
    B, T, S = emissions.shape
    real = torch.arange(T) < lengths[:, None]
    real = torch.zeros_like(real).scatter(1, steps, real)
    nodes = emissions.masked_fill(~real[..., None], 0)
    edges = transitions.expand(B, max(T - 1, 0), S, S)
    found = (nodes, edges, start.expand(B, S), end.expand(B, S))
    return tuple(x.detach().double().clone().requires_grad_() for x in found)


def _shaped(chain: tuple[Tensor, ...], parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    nodes, edges, heads, tails = parts
    shared = chain[1].dim() == 2
    return nodes, edges.sum(1, keepdim=True) if shared else edges, heads, tails


def _log_partition(
    nodes: Tensor,
    edges: Tensor,
    heads: Tensor,
    tails: Tensor,
    steps: Tensor,
    lengths: Tensor,
) -> Tensor:
    rows = torch.arange(len(nodes))
    alpha = torch.zeros_like(heads)
    for n, t in enumerate(steps.T):
        into = edges[rows, (t - 1).clamp(min=0)] if n else None
        before = heads if into is None else _log_sum(alpha[..., None] + into)
        alpha = torch.where((n < lengths)[:, None], before + nodes[rows, t], alpha)
    return torch.where(lengths > 0, _log_sum(alpha + tails), 0)


def _log_sum(x: Tensor) -> Tensor:
    """Return logarithms of sums over axis 1; -inf, without a gradient, if all are."""
    top = x.detach().amax(1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0)
    total = (x - top).exp().sum(1)
    value = total.masked_fill(total == 0, 1).log() + top.squeeze(1)
    return value.masked_fill(total == 0, -torch.inf)
