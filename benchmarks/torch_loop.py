"""The chain as a loop over time in plain PyTorch: what one writes without a library.

Shapes: emissions [B, T, S], transitions [S, S] as [from, to], start and end [S],
labels [B, T]. All positions are real.
"""

import torch
from torch import Tensor


def score(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, labels: Tensor
) -> Tensor:
    unary = emissions.gather(2, labels[..., None]).squeeze(2).sum(1)
    moves = transitions[labels[:, :-1], labels[:, 1:]].sum(1)
    return unary + moves + start[labels[:, 0]] + end[labels[:, -1]]


def nll(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, labels: Tensor
) -> Tensor:
    alpha = start + emissions[:, 0]  # [B, S]
    for emission in emissions.unbind(1)[1:]:
        alpha = torch.logsumexp(alpha[:, :, None] + transitions, dim=1) + emission
    log_partition = torch.logsumexp(alpha + end, dim=1)
    return (log_partition - score(emissions, transitions, start, end, labels)).mean()


def hinge(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, labels: Tensor
) -> Tensor:
    cost = torch.ones_like(emissions).scatter(2, labels[..., None], 0.0)
    best = start + emissions[:, 0] + cost[:, 0]  # [B, S]
    for emission in (emissions + cost).unbind(1)[1:]:
        best = (best[:, :, None] + transitions).max(dim=1).values + emission
    worst = (best + end).max(dim=1).values
    return (worst - score(emissions, transitions, start, end, labels)).mean()


def decode(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor
) -> tuple[Tensor, Tensor]:
    best = start + emissions[:, 0]
    pointers = []
    for emission in emissions.unbind(1)[1:]:
        best, pointer = (best[:, :, None] + transitions).max(dim=1)
        best = best + emission
        pointers.append(pointer)
    value, label = (best + end).max(dim=1)
    labels = [label]
    for pointer in reversed(pointers):
        label = pointer.gather(1, label[:, None]).squeeze(1)
        labels.append(label)
    return value, torch.stack(labels[::-1], dim=1)


def decode_topk(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """Best scores [B, k] and labels [B, k, T]; k lists carried for every state."""
    batch, _, states = emissions.shape
    best = emissions.new_full((batch, states, k), -torch.inf)
    best[:, :, 0] = start + emissions[:, 0]
    pointers = []
    for emission in emissions.unbind(1)[1:]:
        # [B, from, k, to] -> [B, to, from * k]
        moves = best[:, :, :, None] + transitions[:, None, :]
        moves = moves.permute(0, 3, 1, 2).reshape(batch, states, states * k)
        best, pointer = moves.topk(k, dim=2)
        best = best + emission[:, :, None]
        pointers.append(pointer.reshape(batch, states * k))
    final = (best + end[:, None]).reshape(batch, states * k)
    values, cell = final.topk(k, dim=1)  # a cell is state * k + rank
    labels = [cell // k]
    for pointer in reversed(pointers):
        cell = pointer.gather(1, cell)
        labels.append(cell // k)
    return values, torch.stack(labels[::-1], dim=2)
