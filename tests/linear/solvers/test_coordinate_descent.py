"""The elastic net by coordinate descent, against scikit-learn's, and its bounds."""

import itertools

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import ElasticNet

from smoothsp.linear.problems import BinaryProblem, LeastSquaresProblem
from smoothsp.linear.solvers import AGM, CoordinateDescent
from tests.sweeps import thinned

FORMS = [np.asarray, sparse.csr_array]


def drawn(seed, n=40, d=12, share=0.5):
    """Features of which some are 0 in all samples, or twice there, and numbers."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < share)
    X[:, 3], X[:, 5] = 0.0, X[:, 4]
    w = rng.normal(size=d) * (rng.random(d) < 0.4)
    return X, X @ w + 0.3 * rng.normal(size=n)


def objective(X, y, w, lam, l1):
    square = np.mean((y - X @ w) ** 2)
    return square + l1 * np.abs(w).sum() + lam / 2 * w @ w


@pytest.mark.parametrize(
    ("n", "d", "lam", "l1"),
    [(40, 12, 1e-3, 0.5), (15, 50, 0.3, 0.1), (15, 50, 0, 0.05)],
)
def test_the_optimum_is_that_of_scikit_learn(n, d, lam, l1):
    X, y = drawn(1, n, d)
    # theirs halves the mean square
    exact = ElasticNet(
        alpha=(l1 + lam) / 2,
        l1_ratio=l1 / (l1 + lam),
        fit_intercept=False,
        tol=1e-14,
        max_iter=100_000,
    ).fit(X, y)
    expected = objective(X, y, exact.coef_, lam, l1)
    for form in FORMS:
        for products in (None, False, True):
            solver = CoordinateDescent(lam=lam, l1=l1, products=products, tol=1e-10)
            found = solver.solve(LeastSquaresProblem(form(X), y))
            assert found.converged and found.gap <= 1e-10
            assert found.primal == pytest.approx(objective(X, y, found.w, lam, l1))
            assert found.primal == pytest.approx(expected, abs=1e-10)
            assert found.dual <= expected + 1e-12
            assert found.w[3] == 0
            if lam:
                np.testing.assert_allclose(found.w, exact.coef_, atol=1e-4)


def test_what_is_asked_for_too_strongly_is_zero():
    X, y = drawn(3)
    l1 = 2 / len(y) * np.abs(X.T @ y).max()
    problem = LeastSquaresProblem(X, y)
    found = CoordinateDescent(lam=0.1, l1=1.001 * l1, tol=1e-9).solve(problem)
    assert not found.w.any() and found.primal == pytest.approx(y @ y / len(y))
    found = CoordinateDescent(lam=0.1, l1=0.99 * l1, tol=1e-9).solve(problem)
    assert (found.w != 0).any()
    # nothing to explain
    none = LeastSquaresProblem(X, np.zeros(len(y)))
    assert CoordinateDescent(lam=0.0, l1=1.0, tol=0).solve(none).gap == 0


@pytest.mark.parametrize(
    ("seed", "products"), thinned(itertools.product(range(3), [False, True]), 3, 2)
)
def test_bounds_hold_at_every_certificate(seed, products):
    rng = np.random.default_rng(seed)
    X, y = drawn(seed, int(rng.integers(5, 40)), int(rng.integers(6, 40)))
    lam = 0.0 if seed % 3 == 0 else 10.0 ** rng.uniform(-4, 0)
    l1 = 10.0 ** rng.uniform(-3, 0)
    problem = LeastSquaresProblem(sparse.csr_array(X), y)
    best = AGM(lam=lam, l1=l1, loss="likelihood", tol=1e-9, max_passes=3000)
    best = best.solve(problem).primal
    start = rng.normal(size=X.shape[1])
    for first in (None, start):
        solver = CoordinateDescent(lam=lam, l1=l1, products=products, tol=1e-10)
        found = solver.solve(problem, first)
        primal = np.array([at.primal for at in found.history])
        dual = np.array([at.dual for at in found.history])
        assert (dual <= best + 1e-12).all() and (primal >= found.dual).all()
        assert (np.diff(dual) >= 0).all() and (np.diff(primal) <= 1e-12).all()
        assert found.converged and found.primal <= best + 1e-10


def test_rounding_ends_a_run_without_a_tolerance():
    X, y = drawn(5)
    problem = LeastSquaresProblem(X, y)
    found = CoordinateDescent(lam=0.1, l1=0.1, tol=0).solve(problem)
    assert "rounding" in found.status and found.passes < 1000
    assert found.gap <= 1e-13


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="lam: expected a positive number if l1"):
        CoordinateDescent(lam=0)
    with pytest.raises(ValueError, match="l1: expected"):
        CoordinateDescent(lam=1, l1=-1)
    with pytest.raises(TypeError, match="products: expected a bool"):
        CoordinateDescent(lam=1, products="yes")
    with pytest.raises(TypeError, match="problem: expected a LeastSquaresProblem"):
        CoordinateDescent(lam=1).solve(BinaryProblem(np.eye(2), [1, -1]))
    problem = LeastSquaresProblem(np.eye(2), [1.0, 2.0])
    with pytest.raises(ValueError, match=r"start: expected \(2,\) weights"):
        CoordinateDescent(lam=1).solve(problem, start=np.zeros(3))
    with pytest.raises(ValueError, match="start: expected finite"):
        CoordinateDescent(lam=1).solve(problem, start=np.full(2, np.nan))


@pytest.mark.parametrize("products", [True, False])
@pytest.mark.parametrize("form", [np.array, sparse.csr_array])
def test_features_whose_squares_leave_float64_are_named(form, products):
    problem = LeastSquaresProblem(form(np.diag([1.0, 1e200])), [1.0, 2.0])
    with pytest.raises(ValueError, match=r"X: expected columns whose .* in column 1;"):
        CoordinateDescent(lam=1.0, products=products).solve(problem)
