"""Linear models of several runs at once, fitted for their decisions."""

from collections.abc import Callable

import torch
from torch import Tensor

from decisions.problems import Examples, Problem
from smoothsp.losses import Interpolation, PerturbedLoss, SPOPlus

BATCH, RATE, CHECKS = 32, 0.05, 20
SAMPLES, SIGMA, STRENGTH = 8, 0.5, 10.0


def append_ones(features: Tensor) -> Tensor:
    return torch.cat([features, torch.ones_like(features[..., :1])], -1)


def least_squares(train: Examples) -> Tensor:
    """Weights ``(runs, p + 1, parts)`` of the scores, in units of their mean size."""
    x, t = append_ones(train.features).double(), train.scores.double()
    scale = t.abs().mean((1, 2), keepdim=True)
    return torch.linalg.lstsq(x, t / scale).solution.to(train.scores)


def loss_of(
    method: str, problem: Problem
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Of predicted scores, best decisions and true scores, ``(batch, parts)`` each."""
    if method == "spo+":
        surrogate = SPOPlus(reduction="sum")
        return lambda s, y, t: surrogate(problem.build(s), y.long(), t)
    if method == "perturbed":
        perturbed = PerturbedLoss(SAMPLES, SIGMA, reduction="sum")
        return lambda s, y, t: perturbed(problem.build(s), y.long())
    decide = Interpolation(STRENGTH)
    return lambda s, y, t: ((y - decide(problem.build(s))) * t).sum()


def fit(
    method: str,
    problem: Problem,
    parts: dict[str, Examples],
    steps: int,
    seed: int,
    advance: Callable[[], object],
) -> Tensor:
    """Weights ``(runs, p + 1, parts)``, those of the least regret on ``dev``.

    From least squares, Adam with a rate that falls to 0. All runs make the same steps:
    their gradients are separate, and Adam takes each weight by itself.
    """
    train, dev = parts["train"], parts["dev"]
    start = least_squares(train)
    if method == "least-squares":
        return start
    torch.manual_seed(seed)
    loss = loss_of(method, problem)
    train_x, dev_x = append_ones(train.features), append_ones(dev.features)
    true = train.scores / train.scores.abs().mean((1, 2), keepdim=True)
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([weights], RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    best, lowest = start.clone(), dev.regret(problem, dev_x @ start)
    order = torch.empty(0, dtype=torch.int64)
    for step in range(1, steps + 1):
        if not len(order):
            order = torch.randperm(len(train))
        chosen, order = order[:BATCH], order[BATCH:]
        predicted = train_x[:, chosen] @ weights
        optimizer.zero_grad()
        loss(
            predicted.flatten(0, 1),
            train.best[:, chosen].flatten(0, 1),
            true[:, chosen].flatten(0, 1),
        ).backward()
        optimizer.step()
        schedule.step()
        if step % max(1, steps // CHECKS) == 0:
            current = weights.detach()
            regret = dev.regret(problem, dev_x @ current)
            is_better = regret < lowest
            lowest = torch.where(is_better, regret, lowest)
            best = torch.where(is_better[:, None, None], current, best)
        advance()
    return best
