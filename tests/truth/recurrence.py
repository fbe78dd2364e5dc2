"""The second truth: a chain's forward recurrence in log space, for large instances.

Plain torch, one step of Python a position, differentiable by autograd. Potentials are
finite here; `test_recurrence.py` holds it against enumeration.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tests.truth.chain_cases import ChainCase


def forward(case: ChainCase, plus: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Fold each row with ``plus``, logsumexp or amax, and return the values, [B]."""
    B, T, S = case.emissions.shape
    zero = case.emissions.new_zeros(B)
    start = zero.new_zeros(S) if case.start is None else case.start
    end = zero.new_zeros(S) if case.end is None else case.end
    alpha = zero.new_zeros(B, S)
    seen = torch.zeros(B, dtype=torch.bool)
    for t in range(T):
        real = case.real[:, t]
        before = start.expand(B, S)
        if t > 0:
            shared = case.transitions.ndim == 2
            into = case.transitions if shared else case.transitions[:, t - 1]
            later = plus(alpha[:, :, None] + into, 1)
            before = torch.where(seen[:, None], later, before)
        alpha = torch.where(real[:, None], before + case.emissions[:, t], alpha)
        seen = seen | real
    return torch.where(seen, plus(alpha + end, 1), zero)


def log_partition(case: ChainCase) -> Tensor:
    """Return the log-partition of each row, [B]."""
    return forward(case, torch.logsumexp)


def maximum(case: ChainCase) -> Tensor:
    """Return the best score of each row, [B]."""
    return forward(case, torch.amax)


def marginals(case: ChainCase) -> Tensor:
    """Return the node marginals, the gradient of the log-partition, [B, T, S]."""
    leaf = case.replace(emissions=case.emissions.detach().clone().requires_grad_())
    return torch.autograd.grad(log_partition(leaf).sum(), leaf.emissions)[0]


def topk(case: ChainCase, k: int) -> Tensor:
    """Return the k best scores of each row, sorted, filled with -inf, [B, k]."""
    B, T, S = case.emissions.shape
    zero = case.emissions.new_zeros(B)
    start = zero.new_zeros(S) if case.start is None else case.start
    end = zero.new_zeros(S) if case.end is None else case.end
    first = torch.arange(k) == 0
    best = torch.full((B, S, k), -torch.inf, dtype=zero.dtype)
    seen = torch.zeros(B, dtype=torch.bool)
    for t in range(T):
        begun = torch.where(first, start[:, None], -torch.inf).expand(B, S, k)
        if t > 0:
            shared = case.transitions.ndim == 2
            into = case.transitions if shared else case.transitions[:, t - 1]
            # every predecessor i with every rank, [B, from, rank, to]
            reach = best[:, :, :, None] + into.reshape(-1, S, 1, S)
            later = reach.flatten(1, 2).topk(k, 1).values.transpose(1, 2)
            begun = torch.where(seen[:, None, None], later, begun)
        real = case.real[:, t, None, None]
        best = torch.where(real, begun + case.emissions[:, t, :, None], best)
        seen = seen | case.real[:, t]
    last = (best + end[:, None]).flatten(1).topk(k, 1).values
    nothing = torch.where(first, 0.0, -torch.inf).to(zero.dtype)
    return torch.where(seen[:, None], last, nothing)
