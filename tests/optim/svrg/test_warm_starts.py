"""Where an outer iteration starts: what is accelerated, what is stable, restarts."""

import math

import pytest
import torch

from smoothsp.optim import SVRG, CasimirSVRG
from tests.optim.problems import Vector, logistic, ridge, seeded, squares
from tests.sweeps import thinned

ACCELERATED = ("restart", "extrapolation", "prox-center")


def svrg_or_casimir(start, decay, warm_start, smoothness, n):
    model = Vector(start)
    options = {"weight_decay": decay, "generator": seeded(), "backtrack": None}
    if warm_start is None:
        return model.w, SVRG(model.parameters(), 1 / (smoothness + decay), **options)
    options |= {"smoothness": smoothness, "num_batches": n, "warm_start": warm_start}
    return model.w, CasimirSVRG.const(model.parameters(), **options)


@pytest.fixture(scope="module")
def epochs():
    """Until the gap is 1e-6 of the first one, 280 at most; L/(lambda n) = 256."""
    problem = logistic(n=3, d=3, weight_decay=0.25 / (256 * 3))
    found = {}
    for warm_start in ACCELERATED:
        w, optimizer = svrg_or_casimir(
            problem.start, problem.weight_decay, warm_start, 0.25, 3
        )
        gap = problem.value(w) - problem.minimum
        closure = problem.closure(w)
        while optimizer.progress["epoch"] < 280:
            optimizer.epoch(closure, problem.terms)
            if problem.value(w) - problem.minimum <= 1e-6 * gap:
                break
        found[warm_start] = optimizer.progress["epoch"]
    return found


@pytest.mark.long
def test_restart_extrapolation_and_prox_center_are(epochs):
    """Within the count of corollary 17, ``2 (1 - sqrt q / 2)^k <= 1e-6``, q = 1/256."""
    enough = math.log(2e6) / -math.log(1 - math.sqrt(1 / 256) / 2)
    assert max(epochs[warm_start] for warm_start in ACCELERATED) < enough
    assert epochs["restart"] <= enough / 3
    assert epochs["restart"] <= epochs["extrapolation"] < epochs["prox-center"]


@pytest.mark.parametrize(("ratio", "guess"), thinned([(1, 4), (256, 1), (4096, 4)], 3))
def test_restart_keeps_up_with_no_acceleration(ratio, guess):
    """Also where nothing is gained: good conditioning, strong convexity of the data."""
    problem = logistic(n=6, d=3, weight_decay=0.25 / (ratio * 6))
    gaps = []
    for warm_start in ("restart", None):
        w, optimizer = svrg_or_casimir(
            problem.start, problem.weight_decay, warm_start, 0.25 * guess, 6
        )
        gap = problem.value(w) - problem.minimum
        for _ in range(40):
            optimizer.epoch(problem.closure(w), problem.terms)
        gaps.append((problem.value(w) - problem.minimum) / gap)
    assert gaps[0] <= max(2 * gaps[1], 1e-12)


def overshooting(warm_start, **options):
    """Weight decay so small that the momentum, which relies on it, is too much."""
    problem = ridge(n=20, d=4, weight_decay=1e-4)
    w, optimizer = svrg_or_casimir(
        torch.zeros(4, dtype=torch.float64), 1e-4, warm_start, 12.0, 20
    )
    return problem, w, optimizer


def test_restart_saves_a_run_that_extrapolation_loses():
    distances = []
    for warm_start in ("restart", "extrapolation"):
        problem, w, optimizer = overshooting(warm_start)
        for _ in range(30):
            optimizer.epoch(squares(w), problem.batches(1))
        distances.append(float((w.detach() - problem.best).norm()))
    assert distances[0] < 1e-6 < 1e-3 < distances[1]


@pytest.mark.parametrize("once", thinned([False, True], 2))
def test_restart_begins_anew_where_the_last_iteration_ended(once):
    """With one more full gradient there, unless the batches are used up."""
    problem, w, optimizer = overshooting("restart")
    kept, ended, full, restarts = optimizer.state[w], w.detach().clone(), 0.0, 0
    for _ in range(40):
        batches = problem.batches(1)
        optimizer.snapshot(squares(w), iter(batches) if once else batches)
        restarted = optimizer.progress["restarts"] > restarts
        full += 40 if restarted and not once else 20
        assert optimizer.oracle_calls["full"] == full
        start = problem.value(kept["snapshot"])
        assert optimizer.progress["start_objective"] == pytest.approx(start, rel=1e-12)
        if restarted:
            restarts += 1
            assert torch.equal(w, ended) and torch.equal(kept["center"], ended)
            assert torch.equal(kept["snapshot"], ended) is not once
            assert "older_center" not in kept
            assert optimizer.progress["alpha"] == optimizer.schedule.alpha_0
        for batch in batches:
            optimizer.step(lambda batch=batch: squares(w)(batch))
        optimizer.end_epoch()
        ended = w.detach().clone()
    assert restarts >= 2
    assert (ended - problem.best).norm() < 1e-3


@pytest.mark.long
def test_without_restarts_at_the_optimum_in_float32():
    """Rounding of the objective is no increase."""
    problem = logistic(n=12, d=3, weight_decay=0.01)
    Z = problem.Z.float()
    w = torch.nn.Parameter(torch.zeros(3))
    optimizer = CasimirSVRG.const(
        [w], smoothness=0.25, num_batches=12, weight_decay=0.01, generator=seeded()
    )

    def closure(rows):
        loss = torch.nn.functional.softplus(-Z[rows] @ w).mean()
        loss.backward()
        return loss

    for _ in range(60):
        optimizer.epoch(closure, problem.terms)
    before = optimizer.progress["restarts"]
    for _ in range(40):
        optimizer.epoch(closure, problem.terms)
    assert optimizer.progress["restarts"] - before <= 4
