"""Pragam: its invariant, its bound and its optimum, with and without a bias."""

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from smoothsp.linear.problems import BinaryProblem, CallbackProblem
from smoothsp.linear.solvers import BMRM, Pragam
from smoothsp.linear.solvers.accelerated.pragam import squared_spectral_norm
from tests.sweeps import thinned

MODES = ["fixed", "adaptive"]


def drawn(seed, bias, n=40, d=5, weights=None):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.uniform(0.2, 3, d)
    y = np.sign(X @ rng.normal(size=d) + 0.4 + rng.normal(size=n))
    return BinaryProblem(X, y, bias=bias, weights=weights)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("seed", thinned(range(3), 3))
@pytest.mark.parametrize("lam", [1.0, 1e-2])
def test_the_gap_is_excessive_and_falls_as_the_theorem_says(lam, seed, bias):
    problem = drawn(seed, bias)
    n, states = len(problem), []
    solver = Pragam(
        lam=lam,
        tol=0,
        certify_every=1,
        max_passes=400,
        callback=lambda at: states.append((at, at.state)),
    )
    solver.solve(problem)
    K = problem.X.T * problem.y
    L = float(states[0][1]["L"])
    assert np.linalg.norm(K, 2) ** 2 / lam <= L
    for k, (at, state) in enumerate(states):
        mu, w, alpha = float(state["mu"]), state["w"], state["alpha"]
        assert mu == pytest.approx(4 * L / ((k + 1) * (k + 2)))
        assert (alpha >= 0).all() and (alpha <= 1 / n + 1e-15).all()
        if bias:
            assert problem.y @ alpha == pytest.approx(0, abs=1e-12)
        p = K @ alpha
        dual = alpha.sum() - p @ p / (2 * lam)
        primal = lam / 2 * w @ w + problem.risk(w)[0]
        assert at.primal == pytest.approx(primal, abs=1e-10)
        assert at.dual == pytest.approx(dual, abs=1e-10)
        assert -1e-12 <= primal - dual <= mu / (2 * n) + 1e-10
        # a hinge of width mu / n is that of mu on the box of 1 / n
        smoothed = lam / 2 * w @ w + problem.smoothed_risk(w, mu / n, "l2")[0]
        assert smoothed <= dual + 1e-10


@pytest.mark.parametrize("bias", [False, True])
def test_an_adaptive_constant_keeps_the_gap_excessive(bias):
    lam, states = 1e-2, []
    problem = drawn(3, bias)
    n = len(problem)
    Pragam(
        lam=lam,
        lipschitz="adaptive",
        tol=0,
        certify_every=1,
        max_passes=150,
        callback=lambda at: states.append((at, at.state)),
    ).solve(problem)
    L = np.linalg.norm(problem.X, 2) ** 2 / lam
    for at, state in states:
        mu, w = float(state["mu"]), state["w"]
        smoothed = lam / 2 * w @ w + problem.smoothed_risk(w, mu / n, "l2")[0]
        assert smoothed <= at.dual + 1e-10
        assert at.gap <= mu / (2 * n) + 1e-10
        assert state["L"] < 2 * L
    found = np.array([float(state["L"]) for _, state in states])
    assert (np.diff(found) < 0).any() and found.mean() < 0.9 * L


@pytest.mark.parametrize(
    ("mode", "bias", "weighted"),
    thinned(itertools.product(MODES, [False, True], [False, True]), 3),
)
def test_it_finds_the_optimum_of_cutting_planes(mode, bias, weighted):
    weights = np.random.default_rng(1).integers(0, 3, 40) * 1.0 if weighted else None
    problem = drawn(5, bias, weights=weights)
    exact = BMRM(lam=0.05, tol=1e-10).solve(problem)
    found = Pragam(lam=0.05, lipschitz=mode, tol=1e-6).solve(problem)
    assert found.converged and exact.converged
    assert found.dual <= exact.primal + 1e-10
    assert found.primal == pytest.approx(exact.primal, abs=1e-6)


def test_extreme_samples():
    # all the same, or orthonormal: the largest and the smallest curvature
    same = BinaryProblem(np.outer([1, -1, 1, -1.0], [0.6, 0.8]), [1, -1, 1, -1])
    apart = BinaryProblem(np.eye(4), [1, -1, 1, -1])
    assert squared_spectral_norm(same) == pytest.approx(4)
    assert squared_spectral_norm(apart) == pytest.approx(1)
    for problem in (same, apart, BinaryProblem(np.zeros((3, 2)), [1, 1, -1])):
        for mode in MODES:
            found = Pragam(lam=0.3, lipschitz=mode, tol=1e-6).solve(problem)
            exact = BMRM(lam=0.3, tol=1e-10).solve(problem)
            assert found.converged
            assert found.primal == pytest.approx(exact.primal, abs=1e-6)
    # one class: the bias does it all
    alone = BinaryProblem(np.eye(3), [1, 1, 1], bias=True)
    found = Pragam(lam=0.3, tol=1e-8).solve(alone)
    assert found.converged and found.primal == 0 and not found.w.any()


@pytest.mark.parametrize("seed", range(4))
def test_projections_on_the_dual_set(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 8))
    weights = rng.integers(0, 3, n) * 1.0
    weights[:2] = 1
    y = rng.choice([-1, 1], n)
    y[:2] = 1, -1
    v = rng.normal(size=n) / n
    for bias in (False, True):
        problem = BinaryProblem(np.ones((n, 1)), y, bias=bias, weights=weights)
        equal = {"type": "eq", "fun": lambda a: y @ a}
        expected = minimize(
            lambda a: ((a - v) ** 2).sum(),
            np.zeros(n),
            bounds=[(0, c / n) for c in weights],
            constraints=[equal] if bias else [],
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 500},
        )
        np.testing.assert_allclose(problem.project(v), expected.x, atol=1e-6)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="lam: expected a positive number"):
        Pragam(lam=-1)
    with pytest.raises(ValueError, match="lipschitz: expected one of"):
        Pragam(lam=1, lipschitz="guessed")
    with pytest.raises(ValueError, match="lipschitz: expected a positive number"):
        Pragam(lam=1, lipschitz=0.0)
    other = CallbackProblem(1, 1, lambda i, w: (np.zeros(1), 0.0, 0))
    with pytest.raises(TypeError, match="problem: expected a BinaryProblem"):
        Pragam(lam=1).solve(other)
    problem = BinaryProblem([[1.0], [2.0]], [1, -1])
    known = Pragam(lam=1.0, lipschitz=10.0, tol=1e-3).solve(problem)
    assert known.converged
