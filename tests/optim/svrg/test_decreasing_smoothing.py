"""Smoothing that shrinks: budgets follow, and what is proved is said."""

import warnings

import pytest
import torch
from torch import nn

from smoothsp.optim import CasimirSVRG
from smoothsp.optim.schedules import CasimirSchedule
from tests.optim.problems import Vector, closure_of, max_of_affine, seeded

TERMS = [torch.tensor([i]) for i in range(5)]


def decreasing(**options):
    problem = max_of_affine(n=5, m=4, d=3, weight_decay=0.1, seed=3)
    model = Vector(torch.ones(3, dtype=torch.float64))
    optimizer = CasimirSVRG(
        model.parameters(),
        None,
        0.1,
        smoothness=problem.curvature("l2") / 0.5,
        mu=0.5,
        decreasing=True,
        generator=seeded(),
        **options,
    )
    closure = closure_of(problem, model.w, optimizer, "l2")
    gap = problem.value(model.w.detach()) - problem.minimum
    return problem, model.w, optimizer, closure, gap


def test_budget_follows_so_that_the_iterates_do_not_freeze():
    """Below the bound of corollary 18 at each outer iteration, and like 1 / epochs."""
    problem, w, optimizer, closure, gap = decreasing()
    excess, outer = {}, 0
    for epoch in range(1, 81):
        optimizer.epoch(closure, TERMS)
        excess[epoch] = problem.value(w.detach()) - problem.minimum
        if optimizer.progress["outer"] > outer:
            outer += 1
            assert excess[epoch] <= optimizer.schedule.bound(outer, gap, 0.0, 0.5)
    assert outer >= 5
    for epoch in (20, 40, 80):
        assert excess[epoch] <= 2 * excess[10] * 10 / epoch


@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.05, "weight_decay": 0.1, "mu": 1.0, "decreasing": True},
        {"smoothness": 8.0, "kappa": 0.5, "mu": 1.0, "decreasing": True},
        {"smoothness": 8.0, "kappa": 0.5, "mu": 1.0, "weight_decay": 0.1},
        {"smoothness": 8.0, "kappa": 0.5, "mu": 1.0},
    ],
)
def test_budget_stays_where_the_condition_or_the_step_does(options):
    """A step that is given, corollary 20, and constant smoothing."""
    w = nn.Parameter(torch.ones(1))
    optimizer = CasimirSVRG([w], epochs=3, **options)

    def closure():
        loss = w.square().sum()
        loss.backward()
        return loss

    for epoch in range(1, 61):
        optimizer.snapshot(closure)
        optimizer.step(closure)
        optimizer.end_epoch()
        assert optimizer.progress["outer"] == epoch // 3


@pytest.mark.long
def test_proved_and_below_the_bound_while_the_cap_is_not_hit():
    problem, w, optimizer, closure, gap = decreasing(stop="relative")
    kept, outer = optimizer.state[w], 0
    for _ in range(120):
        optimizer.epoch(closure, TERMS)
        if optimizer.progress["outer"] > outer:
            outer = optimizer.progress["outer"]
            excess = problem.value(kept["iterate"]) - problem.minimum
            assert excess <= optimizer.schedule.bound(outer, gap, 0.0, 0.5)
    assert optimizer.progress["proved"] and outer >= 8


def test_cap_is_warned_of_once_and_nothing_is_proved_any_more():
    _, _, optimizer, closure, _ = decreasing(stop="relative", epochs=1)
    assert optimizer.progress["proved"]
    message = r"epochs: expected outer iteration \d+ to reach its relative accuracy"
    with pytest.warns(RuntimeWarning, match=message) as seen:
        for _ in range(40):
            optimizer.epoch(closure, TERMS)
    assert len(seen) == 1
    assert not optimizer.progress["proved"]
    assert optimizer.progress["outer"] > 3


def relative(**options):
    w = nn.Parameter(torch.ones(2, dtype=torch.float64))
    optimizer = CasimirSVRG([w], weight_decay=0.1, stop="relative", **options)

    def closure():
        loss = (w - 1).square().sum() + optimizer.mu * w.square().sum()
        loss.backward()
        return loss

    def advance():
        optimizer.snapshot(closure)
        for _ in range(10):
            optimizer.step(closure)

    return optimizer, advance


def until_outer(optimizer, advance, outer):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        while optimizer.progress["outer"] < outer:
            advance()
    return optimizer.progress["proved"]


class Growing:
    """Kappa falls or mu grows: what theorem 16 does not cover."""

    def __init__(self, alpha_0=0.9, kappa=1.0, mu=1.0, delta=0.5):
        self.alpha_0, self.kappa, self.mu, self.delta = alpha_0, kappa, mu, delta

    def kappa_at(self, k):
        return self.kappa**k

    def mu_at(self, k):
        return self.mu**k

    def delta_at(self, k):
        return self.delta


@pytest.mark.parametrize(
    ("schedule", "proved"),
    [
        (CasimirSchedule(0.1, 0.5, 0.5), True),
        (Growing(), True),
        (Growing(kappa=1.1, mu=0.9), True),
        (Growing(kappa=0.9), False),
        (Growing(mu=1.1), False),
        (Growing(alpha_0=0.1), False),
        (Growing(delta=1.5), False),
    ],
)
def test_only_schedules_of_theorem_16_are_proved(schedule, proved):
    optimizer, advance = relative(smoothness=4.0, schedule=schedule)
    assert until_outer(optimizer, advance, 3) is proved


def test_mu_by_hand_or_a_budget_prove_nothing():
    options = {"smoothness": 4.0, "kappa": 0.5, "mu": 0.5}
    optimizer, advance = relative(**options)
    assert until_outer(optimizer, advance, 2)
    optimizer.mu = 1.0
    assert not until_outer(optimizer, advance, 4)
    w = nn.Parameter(torch.ones(1))
    assert not CasimirSVRG([w], weight_decay=0.1, **options).progress["proved"]
