"""Casimir-SVRG: against Catalyst, its variants, mu, warm starts, groups."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from smoothsp.losses import L2, Entropy
from smoothsp.optim import CasimirSVRG
from smoothsp.optim.schedules import CasimirSchedule
from tests.optim.problems import Vector, ridge, seeded, squares
from tests.sweeps import thinned

WARM_STARTS = ("restart", "prox-center", "extrapolation", "prev-iterate")


def catalyst(problem, size, kappas, warm_start, outer, epochs=1):
    """Catalyst around SVRG from the papers' formulas, in numpy; all w_k and z_k."""
    X, y, decay = problem.X.numpy(), problem.y.numpy(), problem.weight_decay
    terms, generator = len(X) // size, seeded()

    def gradient(x, rows):
        return X[rows].T @ (X[rows] @ x - y[rows]) / len(y[rows])

    def objective(x):
        return np.mean((X @ x - y) ** 2) / 2 + decay / 2 * x @ x

    w = z = older = np.zeros(X.shape[1])
    first = decay / (decay + kappas(1))
    alpha = alpha_0 = math.sqrt(first) if decay else (math.sqrt(5) - 1) / 2
    found, before = [], math.inf
    for k in range(1, outer + 1):
        kappa = kappas(k)
        rate = 1 / (4.0 + decay + kappa)
        if warm_start == "prox-center":
            x = z
        elif warm_start == "prev-iterate":
            x = w
        else:
            x = w + kappa / (kappa + decay) * (z - older)
        if warm_start == "restart":
            if objective(x) > before:
                x, z, alpha = w, w, alpha_0
            before = objective(x)
        for _ in range(epochs):
            start, full, iterates = x, gradient(x, slice(None)), []
            drawn = torch.randint(terms, (terms,), generator=generator)
            for i in drawn.tolist():
                rows = slice(i * size, i * size + size)
                v = gradient(x, rows) - gradient(start, rows) + full
                x = x - rate * (v + decay * x + kappa * (x - z))
                iterates.append(x)
            x = np.mean(iterates, axis=0)
        now, then = kappa + decay, kappas(k + 1) + decay
        weight = alpha**2 * now
        following = max(np.roots([then, weight - decay, -weight]).real)
        beta = alpha * (1 - alpha) * now / (weight + following * then)
        older, z, w, alpha = z, x + beta * (x - w), x, following
        found.append((w, z))
        assert k < 2 or np.abs(w - found[-2][0]).max() > 0
    return found


@pytest.mark.parametrize(
    ("decay", "growing", "warm_start", "epochs"),
    thinned(
        [
            (*decay, warm_start, epochs)
            for decay in ((0.1, False), (0, True))
            for warm_start, epochs in zip(WARM_STARTS, (1, 2, 1, 2), strict=True)
        ],
        3,
    ),
)
def test_without_smoothing_it_is_catalyst(decay, growing, warm_start, epochs):
    problem = ridge(weight_decay=decay)
    model = Vector(torch.zeros(3, dtype=torch.float64))
    optimizer = CasimirSVRG(
        model.parameters(),
        None,
        decay,
        smoothness=4.0,
        kappa=0.3,
        decreasing=growing,
        epochs=epochs,
        warm_start=warm_start,
        generator=seeded(),
    )
    closure = squares(model.w)

    def kappas(k):
        return 0.3 * k if growing else 0.3

    expected = catalyst(problem, 4, kappas, warm_start, 12, epochs)
    for k, (w, z) in enumerate(expected, 1):
        for _ in range(epochs):
            optimizer.epoch(closure, problem.batches(4))
        assert optimizer.progress["outer"] == k
        assert_close(model.w.detach(), torch.tensor(w), rtol=1e-10, atol=1e-12)
        center = optimizer.state[model.w]["center"]
        assert_close(center, torch.tensor(z), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("warm_start", "stop"),
    thinned([("restart", "budget"), ("prox-center", "relative")], 2),
)
def test_converges_to_the_optimum(warm_start, stop):
    problem = ridge(weight_decay=0.02)
    model = Vector(torch.zeros(3, dtype=torch.float64))
    optimizer = CasimirSVRG.const(
        model.parameters(),
        smoothness=6.0,
        num_batches=20,
        weight_decay=0.02,
        warm_start=warm_start,
        stop=stop,
        generator=seeded(),
    )
    for _ in range(50):
        optimizer.epoch(squares(model.w), problem.batches(2))
    assert (model.w.detach() - problem.best).norm() < 1e-8


def test_const_has_kappa_of_prop_29_and_its_step():
    w = nn.Parameter(torch.zeros(2))
    optimizer = CasimirSVRG.const([w], smoothness=32.0, num_batches=4, weight_decay=0.5)
    assert optimizer.progress["kappa"] == 32 / 4 - 0.5
    assert optimizer.param_groups[0]["lr"] == 1 / (32 + 0.5 + 7.5)
    root = math.sqrt(0.5 / 8)
    assert optimizer.progress["alpha"] == pytest.approx(root)
    assert optimizer.schedule.delta_at(3) == pytest.approx(root / (2 - root))
    gentle = CasimirSVRG.const([w], smoothness=4.0, num_batches=4, weight_decay=0.5)
    assert gentle.progress["kappa"] == 0.5


def test_adapt_has_kappa_of_the_decay_and_its_smoothing():
    w = nn.Parameter(torch.zeros(2))
    smoothing = L2(mu=2.0, k=5)
    optimizer = CasimirSVRG.adapt([w], 0.02, weight_decay=0.5, smoothing=smoothing)

    def closure():
        loss = w.square().sum() / smoothing.mu
        loss.backward()
        return loss

    mus = []
    for _ in range(6):
        mus.append(smoothing.mu)
        optimizer.snapshot(closure)
        optimizer.step(closure)
        optimizer.end_epoch()
    assert optimizer.progress["kappa"] == 0.5
    assert optimizer.param_groups[0]["lr"] == 0.02
    assert optimizer.progress["alpha"] == pytest.approx(0.707107, abs=1e-6)
    assert optimizer.progress["beta"] == pytest.approx(0.171573, abs=1e-6)
    golden = [0.804019, 0.646447, 0.519755, 0.417893, 0.335994, 0.270146]
    assert [round(mu / 2, 6) for mu in mus] == golden


@pytest.mark.parametrize(
    "smoothing", [L2(0.5, 3), Entropy(0.5), SimpleNamespace(mu=0.5)]
)
def test_bound_smoothing_follows_mu(smoothing):
    w = nn.Parameter(torch.zeros(2))
    options = {"smoothness": 8.0, "num_batches": 4, "weight_decay": 0.1}
    optimizer = CasimirSVRG.const([w], smoothing=smoothing, **options)
    assert (optimizer.mu, smoothing.mu) == (0.5, 0.5)
    optimizer.mu = 0.125
    assert (optimizer.mu, smoothing.mu) == (0.125, 0.125)
    # the smoothness is inverse to mu
    kappa = optimizer.progress["kappa"]
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1 / (32 + 0.1 + kappa))
    CasimirSVRG.const([w], smoothing=smoothing, mu=3.0, **options)
    assert smoothing.mu == 3.0
    smoothing.mu = 0.5


def test_step_follows_growing_kappa_and_shrinking_mu():
    w = nn.Parameter(torch.zeros(1))
    optimizer = CasimirSVRG([w], smoothness=8.0, kappa=0.5, mu=2.0, decreasing=True)

    def closure():
        loss = w.square().sum()
        loss.backward()
        return loss

    for k in range(1, 5):
        lr = optimizer.param_groups[0]["lr"]
        assert lr == pytest.approx(1 / (8 * k + 0.5 * k))  # L mu_1/mu_k + kappa k
        optimizer.snapshot(closure)
        optimizer.step(closure)
        optimizer.end_epoch()


def test_groups_have_their_own_smoothness_decay_and_step():
    w, v, u = (nn.Parameter(torch.zeros(1)) for _ in range(3))
    optimizer = CasimirSVRG(
        [
            {"params": [w], "smoothness": 10.0},
            {"params": [v], "weight_decay": 0.5},
            {"params": [u], "lr": 0.25},
        ],
        weight_decay=0.2,
        smoothness=2.0,
        num_batches=5,
    )
    kappa = optimizer.progress["kappa"]
    assert kappa == 10 / 5 - 0.2  # the roughest group and the smallest decay
    assert optimizer.schedule == CasimirSchedule(0.2, kappa)
    rates = [group["lr"] for group in optimizer.param_groups]
    assert rates == [1 / (10 + 0.2 + kappa), 1 / (2 + 0.5 + kappa), 0.25]
    late = nn.Parameter(torch.zeros(1))
    optimizer.add_param_group({"params": [late]})
    assert optimizer.param_groups[-1]["lr"] == 1 / (2 + 0.2 + kappa)


def test_parameters_without_gradient_are_left_alone():
    w, unused = (nn.Parameter(torch.ones(2)) for _ in range(2))
    frozen = nn.Parameter(torch.ones(2), requires_grad=False)
    options = {"smoothness": 4.0, "num_batches": 2, "weight_decay": 0.1}
    optimizer = CasimirSVRG.const([w, frozen, unused], **options)

    def closure(batch):
        loss = (w * batch * frozen).sum()
        loss.backward()
        return loss

    batches = [torch.ones(1), torch.ones(1)]
    for _ in range(3):
        optimizer.epoch(closure, batches)
    assert (frozen == 1).all() and (unused == 1).all() and not (w == 1).any()

    def with_the_other(batch):
        loss = (w * batch).sum() + (unused * batch).sum()
        loss.backward()
        return loss

    # used from now on: its centre is where it stands
    optimizer.snapshot(with_the_other, batches)
    assert torch.equal(optimizer.state[unused]["center"], torch.ones(2))
    optimizer.step(lambda: with_the_other(batches[0]))
    assert not (unused == 1).any()
