"""The chain as a loop over time in plain PyTorch: what one writes without a library.

Shapes: emissions [B, T, S], transitions [S, S] as [from, to], start and end [S], labels
[B, T]. With a mask [B, T], the real positions of a row come first; without one, all are
real. In float64 the answers are the truth that all methods must agree with.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from inference.problems import Problem
from inference.questions import (
    DECODE,
    HINGE,
    MARGINALS,
    NLL,
    TOP,
    Method,
    alone,
    with_gradients,
)

NAME = "PyTorch loop"


def score(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    unary = emissions.gather(2, labels[..., None]).squeeze(2)
    moves = transitions[labels[:, :-1], labels[:, 1:]]
    last = labels[:, -1]
    if mask is not None:
        unary = unary.masked_fill(~mask, 0)
        moves = moves.masked_fill(~mask[:, 1:], 0)
        last = labels.gather(1, mask.sum(1, keepdim=True) - 1).squeeze(1)
    return unary.sum(1) + moves.sum(1) + start[labels[:, 0]] + end[last]


def steps(
    emissions: Tensor, mask: Tensor | None
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Emissions [B, S] of positions 1, 2, ... and which rows are real there [B, 1]."""
    for t in range(1, emissions.shape[1]):
        yield emissions[:, t], None if mask is None else mask[:, t, None]


def keep(real: Tensor | None, new: Tensor, old: Tensor) -> Tensor:
    """What is carried on: the new where a row is real."""
    if real is None:
        return new
    return torch.where(real.reshape(-1, *[1] * (new.dim() - 1)), new, old)


def log_partition(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    alpha = start + emissions[:, 0]  # [B, S]
    for emission, real in steps(emissions, mask):
        moved = torch.logsumexp(alpha[:, :, None] + transitions, dim=1) + emission
        alpha = keep(real, moved, alpha)
    return torch.logsumexp(alpha + end, dim=1)


def nll(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    potentials = (emissions, transitions, start, end)
    return (log_partition(*potentials, mask) - score(*potentials, labels, mask)).mean()


def hinge(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    cost = torch.ones_like(emissions).scatter(2, labels[..., None], 0.0)
    best = start + emissions[:, 0] + cost[:, 0]  # [B, S]
    for emission, real in steps(emissions + cost, mask):
        moved = (best[:, :, None] + transitions).max(dim=1).values + emission
        best = keep(real, moved, best)
    worst = (best + end).max(dim=1).values
    gold = score(emissions, transitions, start, end, labels, mask)
    return (worst - gold).mean()


def decode(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    best = start + emissions[:, 0]
    here = torch.arange(len(start), device=start.device).expand_as(best)
    pointers = []
    for emission, real in steps(emissions, mask):
        moved, pointer = (best[:, :, None] + transitions).max(dim=1)
        best = keep(real, moved + emission, best)
        pointers.append(keep(real, pointer, here))
    value, label = (best + end).max(dim=1)
    labels = [label]
    for pointer in reversed(pointers):
        label = pointer.gather(1, label[:, None]).squeeze(1)
        labels.append(label)
    return value, torch.stack(labels[::-1], dim=1)


def decode_topk(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    k: int,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Best scores [B, k] and labels [B, k, T]; k lists carried for every state."""
    batch, _, states = emissions.shape
    best = emissions.new_full((batch, states, k), -torch.inf)
    best[:, :, 0] = start + emissions[:, 0]
    here = torch.arange(states * k, device=best.device).view(1, states, k)
    pointers = []
    for emission, real in steps(emissions, mask):
        # [B, from, k, to] -> [B, to, from * k]
        moves = best[:, :, :, None] + transitions[:, None, :]
        moves = moves.permute(0, 3, 1, 2).reshape(batch, states, states * k)
        moved, pointer = moves.topk(k, dim=2)
        best = keep(real, moved + emission[:, :, None], best)
        pointers.append(keep(real, pointer, here).reshape(batch, states * k))
    final = (best + end[:, None]).reshape(batch, states * k)
    values, cell = final.topk(k, dim=1)  # a cell is state * k + rank
    labels = [cell // k]
    for pointer in reversed(pointers):
        cell = pointer.gather(1, cell)
        labels.append(cell // k)
    return values, torch.stack(labels[::-1], dim=2)


def marginals(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    """The gradient of the log-partition."""
    with torch.enable_grad():
        emissions = emissions.detach().requires_grad_()
        value = log_partition(emissions, transitions, start, end, mask).sum()
        return torch.autograd.grad(value, emissions)[0]


def methods(problem: Problem) -> dict[str, Method]:
    given, labels = problem.potentials, problem.labels
    mask = None if problem.lengths is None else problem.mask
    without = torch.no_grad()

    def method(question, call, read=tuple):
        return Method(question, problem, call, read)

    def loss(question, function):
        call = with_gradients(lambda: function(*given, labels, mask), given)
        return method(question, call)

    answers = [
        loss(NLL, nll),
        loss(HINGE, hinge),
        method(DECODE, without(lambda: decode(*given, mask)), lambda x: x[1:]),
        method(MARGINALS, without(lambda: marginals(*given, mask)), alone),
    ]
    for k, question in TOP.items():
        call = without(lambda k=k: decode_topk(*given, k, mask))
        answers.append(method(question, call, lambda x: x[1:]))
    return {answer.question: answer for answer in answers}
