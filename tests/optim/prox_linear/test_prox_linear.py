"""The prox-linear loop: convex cases, theorem 35, acceptance, schedules."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from smoothsp.losses import L2, StructuralHinge
from smoothsp.optim import SVRG, CasimirSVRG, ProxLinear
from smoothsp.oracles import Multiclass
from tests.optim.problems import ridge, seeded, smooth_max


def least_squares(problem, lr, start=1.0, **options):
    model = nn.Linear(3, 1, bias=False, dtype=torch.float64)
    nn.init.constant_(model.weight, start)
    optimizer = ProxLinear(
        model,
        lr,
        problem.weight_decay,
        inner=partial(SVRG, lr=0.1, averaging=False, generator=seeded()),
        epochs=2000,
        generator=seeded(),
        **options,
    )

    def closure(batch):
        loss = (optimizer.model(batch[0])[:, 0] - batch[1]).square().mean() / 2
        loss.backward()
        return loss

    return model, optimizer, closure


def objective_of(problem, w):
    loss = (problem.X @ w - problem.y).square().mean() / 2
    return float(loss + problem.weight_decay / 2 * (w @ w))


def test_one_step_of_an_affine_model_without_proximal_term_is_the_convex_solve():
    problem = ridge(weight_decay=0.2)
    model, optimizer, closure = least_squares(problem, math.inf)
    optimizer.epochs = 45
    value = optimizer.step(closure, problem.batches(8))
    assert_close(model.weight[0].detach(), problem.best)
    assert value == pytest.approx(objective_of(problem, problem.best), rel=1e-12)
    assert optimizer.progress["accepted"]


def test_one_step_of_an_affine_model_is_the_proximal_point():
    decay, eta = 0.0, 0.7
    problem = ridge(weight_decay=decay)
    model, optimizer, closure = least_squares(problem, eta, tolerance=1e-20)
    w = model.weight[0].detach().clone()
    for k in range(1, 3):
        optimizer.step(closure, problem.batches(8))
        H = problem.X.T @ problem.X / 40 + (decay + 1 / eta) * torch.eye(3).double()
        expected = torch.linalg.solve(H, problem.X.T @ problem.y / 40 + w / eta)
        assert_close(model.weight[0].detach(), expected)
        moved = float((w - expected).norm()) / eta
        progress = optimizer.progress
        assert progress["prox_gradient_norm"] == pytest.approx(moved, rel=1e-6)
        assert progress["objective"] == pytest.approx(objective_of(problem, expected))
        assert progress["outer"] == k and progress["epochs"] < 2000
        w = expected


def test_inner_solver_stops_when_the_gradient_proves_the_accuracy():
    """``|v|^2 <= 2 (lambda + 1/eta) eps_k``, and not before."""
    problem, eta = ridge(weight_decay=0.1), 2.0
    model, optimizer, closure = least_squares(problem, eta, start=3.0, tolerance=1e-2)
    optimizer.inner = partial(torch.optim.SGD, lr=0.05)
    whole = [(problem.X, problem.y)]
    for k in range(1, 4):
        w = model.weight[0].detach().clone()

        def excess(x, w=w):
            """Gradient norm that is left, and what is allowed."""
            v = problem.X.T @ (problem.X @ x - problem.y) / 40
            return float((v + 0.1 * x + (x - w) / eta).norm())

        optimizer.step(closure, whole)
        allowed = math.sqrt(2 * (0.1 + 1 / eta) * 1e-2 / k)
        x, epochs = w, optimizer.progress["epochs"]
        for done in range(1, epochs + 1):
            v = problem.X.T @ (problem.X @ x - problem.y) / 40
            x = x - 0.05 * (v + 0.1 * x + (x - w) / eta)
            assert (excess(x) <= allowed) == (done == epochs)
        assert_close(model.weight[0].detach(), x)
        assert 1 < epochs < 2000


def test_groups_have_their_own_step_and_decay():
    """Per coordinate, the subproblem of a diagonal quadratic is in closed form."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
            self.b = nn.Parameter(torch.tensor([3.0], dtype=torch.float64))

        def forward(self):
            return self.a, self.b

    model = Two()
    optimizer = ProxLinear(
        model,
        lr=0.5,
        params=[
            {"params": [model.b], "weight_decay": 0.3},
            {"params": [model.a], "lr": math.inf, "weight_decay": 0.1},
        ],
        inner=partial(torch.optim.SGD, lr=0.3),
        epochs=200,
    )

    def closure(_):
        a, b = optimizer.model()
        loss = (a - 1).square().sum() / 2 + (b - 1).square().sum() / 2
        loss.backward()
        return loss

    optimizer.step(closure, [torch.zeros(1)])
    assert_close(model.a.item(), 1 / 1.1)
    assert_close(model.b.item(), (1 + 3 / 0.5) / (1 + 0.3 + 1 / 0.5))


class Waves(nn.Module):
    """Scores ``sin(x w) + b``: smooth, with constant ``max |x|^2``."""

    def __init__(self, seed=5):
        super().__init__()
        draw = seeded(seed)
        self.X = torch.randn(8, 4, 3, generator=draw, dtype=torch.float64)
        self.b = torch.rand(8, 4, generator=draw, dtype=torch.float64)
        start = 2 * torch.randn(3, generator=draw, dtype=torch.float64)
        self.w = nn.Parameter(start)

    @property
    def smoothness(self):
        return float(self.X.square().sum(-1).max())

    def forward(self, examples):
        return torch.sin(self.X[examples] @ self.w) + self.b[examples]

    def value(self, decay, mu=0.0, kind="entropy"):
        with torch.no_grad():
            scores = self(torch.arange(8))
            return float(
                smooth_max(scores, mu, kind).mean() + decay / 2 * (self.w @ self.w)
            )


def waves_closure(optimizer, mu):
    def closure(examples):
        loss = smooth_max(optimizer.model(examples), mu, "entropy").mean()
        loss.backward()
        return loss

    return closure


EXAMPLES = [torch.tensor([i]) for i in range(8)]


def test_theorem_35_and_monotone_objective():
    model, mu, decay = Waves(), 0.3, 0.01
    eta = 1 / model.smoothness
    rough = model.smoothness / mu + decay + 1 / eta
    optimizer = ProxLinear(
        model, eta, decay, inner=partial(SVRG, lr=1 / rough, averaging=False),
        epochs=300, tolerance=1e-4, generator=seeded(),
    )  # fmt: skip
    closure = waves_closure(optimizer, mu)
    values, norms, errors = [model.value(decay, mu)], [], 0.0
    for k in range(1, 9):
        value = optimizer.step(closure, EXAMPLES)
        assert value == pytest.approx(model.value(decay, mu), rel=1e-12)
        values.append(value)
        # exact minimiser and candidate differ by at most this, by strong convexity
        apart = math.sqrt(2 * 1e-4 / k / (decay + 1 / eta)) / eta
        norms.append(max(optimizer.progress["prox_gradient_norm"] - apart, 0.0))
        errors += 1e-4 / k
        assert min(norms) ** 2 <= 2 / (eta * k) * (values[0] - value + errors)
        assert optimizer.progress["epochs"] < 300
    assert values == sorted(values, reverse=True)
    assert values[-1] < values[0] - 0.1


def test_worse_candidates_are_taken_back():
    def run(accept):
        model = Waves()
        optimizer = ProxLinear(
            model, math.inf, 1e-3, inner=partial(torch.optim.SGD, lr=0.5),
            epochs=1, accept=accept, generator=seeded(),
        )  # fmt: skip
        closure = waves_closure(optimizer, 0.3)
        values, refused = [model.value(1e-3, 0.3)], 0
        for _ in range(6):
            before = model.w.detach().clone()
            value = optimizer.step(closure, EXAMPLES)
            values.append(value)
            assert value == pytest.approx(model.value(1e-3, 0.3), rel=1e-12)
            if not optimizer.progress["accepted"]:
                refused += 1
                assert torch.equal(model.w, before)
                assert optimizer.progress["candidate"] > value
        return values, refused

    values, refused = run("if-better")
    assert refused and values == sorted(values, reverse=True)
    values, refused = run("always")
    assert not refused and values != sorted(values, reverse=True)


def test_mu_and_smoothness_follow_the_iteration():
    seen = []
    hinge = StructuralHinge(L2(mu=6.0, k=2))
    model = nn.Linear(2, 3)
    x, y = torch.randn(4, 2), torch.tensor([0, 1, 2, 0])

    def inner(groups):
        seen.append((hinge.smoothing.mu, groups[0]["smoothness"]))
        return CasimirSVRG.const(groups, num_batches=1)

    def run(adaptive):
        seen.clear()
        hinge.smoothing.mu = 6.0
        optimizer = ProxLinear(
            model, 1.0, inner=inner, smoothness=5.0, smoothing=hinge.smoothing,
            adaptive=adaptive, epochs=1,
        )  # fmt: skip

        def closure(rows):
            loss = hinge(Multiclass(optimizer.model(x[rows])), y[rows])
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure, [torch.arange(4)])
        return optimizer

    optimizer = run(adaptive=True)
    assert seen == [(6.0, 5.0), (3.0, 10.0), (2.0, 15.0)]
    assert optimizer.progress["mu"] == 2.0 and optimizer.progress["smoothness"] == 15.0
    assert optimizer.mu == hinge.smoothing.mu == 1.5
    optimizer.mu = 0.5
    assert hinge.smoothing.mu == 0.5
    run(adaptive=False)
    assert seen == [(6.0, 5.0)] * 3


def test_oracle_calls_are_counted_in_examples():
    problem = ridge()
    _, optimizer, closure = least_squares(problem, 1.0)
    optimizer.epochs = 2
    optimizer.step(closure, problem.batches(8))
    assert optimizer.oracle_calls == {
        "iterate": 80, "snapshot": 80, "full": 80, "objective": 80,
    }  # fmt: skip
    optimizer.inner = partial(torch.optim.SGD, lr=0.1)
    optimizer.step(closure, problem.batches(8))
    assert optimizer.oracle_calls == {
        "iterate": 160, "snapshot": 80, "full": 80, "objective": 160,
    }  # fmt: skip
