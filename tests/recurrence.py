"""The second truth: a chain's forward recurrence in log space, for large instances.

Plain torch, one step of Python a position, differentiable by autograd. Potentials are
finite here; `test_recurrence.py` holds it against enumeration.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tests.brute_force import ChainCase


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
