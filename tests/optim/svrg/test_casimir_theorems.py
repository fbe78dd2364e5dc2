"""Theorem 16 and its corollaries, asserted at every outer iteration."""

import itertools
import math
import random
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from smoothsp.optim import CasimirSVRG, _outer
from smoothsp.optim.schedules import CasimirSchedule, next_alpha
from tests.optim.problems import Vector, closure_of, max_of_affine, ridge
from tests.sweeps import thinned

KINDS = ("l2", "entropy")


def outer_iterates(problem, kind, outer, schedule, w_0, steps=25):
    """``w_1 .. w_outer``, each subproblem solved to its relative accuracy.

    One term, so that a step of SVRG is one of gradient descent.
    """
    model = Vector(w_0)
    optimizer = CasimirSVRG(
        model.parameters(),
        None,
        problem.weight_decay,
        smoothness=problem.curvature(kind) / schedule.mu_at(1),
        schedule=schedule,
        stop="relative",
        epochs=1000,
        averaging=False,
    )
    closure = closure_of(problem, model.w, optimizer, kind)
    found = []
    while len(found) < outer:
        optimizer.snapshot(closure)
        if optimizer.progress["outer"] > len(found):
            found.append(optimizer.state[model.w]["iterate"].clone())
        for _ in range(steps):
            optimizer.step(closure)
    assert optimizer.progress["proved"]
    return found


@pytest.mark.parametrize(
    ("kind", "kappa", "decreasing", "decay"),
    thinned(
        [
            ("l2", 0.1, False, 0.2),
            ("entropy", 1.0, False, 0.0),
            ("l2", 1.0, True, 0.2),
            ("entropy", 0.1, True, 0.0),
        ],
        2,
    ),
)
def test_bounds_of_corollaries_17_to_20(kind, kappa, decay, decreasing):
    problem = max_of_affine(weight_decay=decay)
    schedule = CasimirSchedule(decay, kappa, 0.6, decreasing)
    w_0 = torch.ones(4, dtype=torch.float64)
    gap = problem.value(w_0) - problem.minimum
    distance, D = float((w_0 - problem.best).norm()), problem.range(kind)
    for k, w in enumerate(outer_iterates(problem, kind, 6, schedule, w_0), 1):
        excess = problem.value(w) - problem.minimum
        assert -1e-12 <= excess <= schedule.bound(k, gap, distance, D)


@dataclass
class Drawn:
    """Any sequences that theorem 16 allows."""

    alpha_0: float
    kappas: list[float]
    mus: list[float]
    deltas: list[float]

    def kappa_at(self, k):
        return self.kappas[k - 1]

    def mu_at(self, k):
        return self.mus[k - 1]

    def delta_at(self, k):
        return self.deltas[k - 1]


@pytest.mark.parametrize("seed", thinned(range(4), 3))
def test_bound_of_theorem_16_with_drawn_sequences(seed):
    draw = random.Random(seed)
    outer, kind, decay = 6, KINDS[seed % 2], (0.2, 0.0)[seed // 2]
    kappas = list(itertools.accumulate(draw.uniform(0.05, 0.5) for _ in range(9)))
    floor = math.sqrt(decay / (decay + kappas[0]))
    schedule = Drawn(
        min(0.95, floor + draw.uniform(0.01, 0.3)),
        kappas,
        sorted((draw.uniform(0.1, 1) for _ in range(9)), reverse=True),
        [draw.uniform(0.05, 0.9) for _ in range(9)],
    )
    problem = max_of_affine(weight_decay=decay, seed=seed)
    w_0 = torch.ones(4, dtype=torch.float64)
    found = outer_iterates(problem, kind, outer, schedule, w_0)

    D, alphas = problem.range(kind), [schedule.alpha_0]
    for k in range(1, outer + 1):
        alphas.append(next_alpha(alphas[-1], kappas[k - 1], kappas[k], decay))
    weight = (kappas[0] + decay) * alphas[0] ** 2 - decay * alphas[0]
    distance = float((w_0 - problem.best).norm())
    start = problem.value(w_0) - problem.minimum
    start += weight / (2 * (1 - alphas[0])) * distance**2

    def mu(k):
        return 2 * schedule.mu_at(1) if k == 0 else schedule.mu_at(k)

    for k, w in enumerate(found, 1):
        shrink = [1 - alpha for alpha in alphas[:k]]
        slack = [1 - schedule.delta_at(j) for j in range(1, k + 1)]
        bound = math.prod(shrink) / math.prod(slack) * start + mu(k) * D
        for j in range(1, k + 1):
            factor = math.prod(shrink[j:]) / math.prod(slack[j - 1 :])
            bound += factor * (mu(j - 1) - slack[j - 1] * mu(j)) * D
        assert problem.value(w) - problem.minimum <= bound


@given(st.integers(0, 10_000), st.floats(0.05, 2), st.floats(0.05, 0.9))
def test_gradient_norm_test_implies_relative_accuracy(seed, kappa, delta):
    """(26) follows from the test, on quadratics whose minimum is a solve."""
    problem = ridge(n=8, weight_decay=0.3, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    eye = torch.eye(3, dtype=torch.float64)
    H = problem.X.T @ problem.X / 8
    linear = problem.X.T @ problem.y / 8
    z = torch.randn(3, generator=generator, dtype=torch.float64)
    whole = H + (0.3 + kappa) * eye
    best = torch.linalg.solve(whole, linear + kappa * z)
    accepted = 0
    for size in (1e-3, 1e-2, 0.1, 0.3, 1.0):
        w = best + size * torch.randn(3, generator=generator, dtype=torch.float64)
        kept = [{"center": z, "full_gradient": H @ w - linear}]
        if _outer.is_accurate([w], kept, [0.3], 0.3, kappa, delta):
            accepted += 1
            excess = (w - best) @ whole @ (w - best) / 2
            assert excess <= delta * kappa / 2 * (w - z) @ (w - z) + 1e-12
    assert accepted or (best - z).norm() < 0.05


@pytest.mark.long
def test_const_reaches_the_accuracy_of_its_smoothing():
    """Corollary 17's bias, c_q mu D, with mini-batches and a budget of one epoch."""
    problem = max_of_affine(n=30, d=6, weight_decay=0.1, seed=3)
    model = Vector(torch.zeros(6, dtype=torch.float64))
    mu = 0.03
    optimizer = CasimirSVRG.const(
        model.parameters(),
        smoothness=problem.curvature("entropy") / mu,
        num_batches=30,
        weight_decay=0.1,
        mu=mu,
        generator=torch.Generator().manual_seed(0),
    )
    closure = closure_of(problem, model.w, optimizer, "entropy")
    terms = [torch.tensor([i]) for i in range(30)]
    for _ in range(40):
        optimizer.epoch(closure, terms)
    assert problem.value(model.w.detach()) - problem.minimum <= mu * problem.range(
        "entropy"
    )
