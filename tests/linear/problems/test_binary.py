"""The hinge of two classes as one function: biases, subgradients, smoothings."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import approx_fprime, linprog, minimize_scalar

from smoothsp._kernels.svm.excessive_gap import BLOCK
from smoothsp.linear.problems import BinaryProblem
from smoothsp.linear.problems.binary import optimal_bias
from tests.sweeps import thinned


def hinges(scores, y, b, weights):
    return (weights * np.maximum(1 - y * (scores + b), 0)).mean()


def drawn(seed, bias):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 12)), int(rng.integers(1, 4))
    X = rng.integers(-2, 3, (n, d)) if seed % 2 else rng.normal(size=(n, d))
    y = rng.choice([-1, 1], n)
    weights = rng.integers(0, 3, n) * 1.0 if seed % 3 == 0 else np.ones(n)
    weights[0] = max(weights[0], 1)
    problem = BinaryProblem(X, y, bias=bias, weights=weights)
    return problem, X, y, weights, rng


@pytest.mark.parametrize("seed", thinned(range(60), 5))
def test_the_best_bias_is_the_middle_of_those_of_least_risk(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    scores = rng.normal(size=n) if seed % 2 else rng.integers(-2, 3, n) * 1.0
    y = rng.choice([-1.0, 1.0], n)
    weights = rng.integers(0, 3, n) * 1.0
    weights[0] = 1
    for c in (np.ones(n), weights):
        best = min(hinges(scores, y, b, c) for b in np.append(y - scores, 0.0))
        found = optimal_bias(scores, y, c)
        assert hinges(scores, y, found, c) == pytest.approx(best, abs=1e-12)
        # the middle stays where it is when everything is turned round
        assert optimal_bias(-scores, -y, c) == pytest.approx(-found, abs=1e-12)
    plain = optimal_bias(scores, y)
    assert plain == optimal_bias(scores, y, np.ones(n))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_the_slope_is_a_subgradient(seed, bias):
    problem, X, y, weights, rng = drawn(seed, bias)
    w = rng.integers(-1, 2, X.shape[1]) * 1.0
    value, slope = problem.risk(w)
    b = problem.optimal_bias(w)
    assert value == pytest.approx(hinges(X @ w, y, b, weights), abs=1e-12)
    found, alpha = problem.risk_of_scores(problem.scores(w))
    assert found == value
    assert (alpha >= 0).all() and (alpha <= weights / len(y) + 1e-15).all()
    if bias:
        assert y @ alpha == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(slope, -(alpha * y) @ X, atol=1e-12)
    for _ in range(10):
        other = w + rng.normal(size=len(w)) * 10.0 ** rng.integers(-4, 2)
        assert problem.risk(other)[0] >= value + slope @ (other - w) - 1e-10


@pytest.mark.parametrize("smoothing", ["l2", "entropy"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_smoothed_risk_lies_below_by_at_most_its_diameter(seed, bias, smoothing):
    problem, X, y, _weights, rng = drawn(seed, bias)
    w, mu = rng.normal(size=X.shape[1]), float(10.0 ** rng.uniform(-2, 1))
    value, slope = problem.smoothed_risk(w, mu, smoothing)
    exact = problem.risk(w)[0]
    assert exact - mu * problem.diameter(smoothing) <= value + 1e-12
    assert value <= exact + 1e-12
    expected = approx_fprime(w, lambda w: problem.smoothed_risk(w, mu, smoothing)[0])
    np.testing.assert_allclose(slope, expected, atol=1e-5)
    alpha = problem.smoothed_risk_of_scores(X @ w, mu, smoothing)[1]
    if bias:
        assert y @ alpha == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("bias", [False, True])
def test_the_likelihood_is_logistic_regression(bias):
    problem, X, y, weights, rng = drawn(4, bias)
    w = rng.normal(size=X.shape[1])
    value, slope = problem.likelihood(w)

    def loss(b):
        return (weights * np.logaddexp(0, -y * (X @ w + b))).mean()

    best = minimize_scalar(loss).fun if bias else loss(0.0)
    assert value == pytest.approx(best, abs=1e-9)
    expected = approx_fprime(w, lambda w: problem.likelihood(w)[0])
    np.testing.assert_allclose(slope, expected, atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_the_minimum_over_the_bias_is_the_maximum_over_the_dual(seed):
    problem, X, y, weights, rng = drawn(seed, True)
    w = rng.normal(size=X.shape[1])
    n = len(y)
    dual = linprog(
        -(1 - y * (X @ w)),
        A_eq=y[None] * 1.0,
        b_eq=[0.0],
        bounds=np.stack([np.zeros(n), weights / n], 1),
    )
    assert problem.risk(w)[0] == pytest.approx(-dual.fun, abs=1e-9)


def test_sparse_dense_and_float32_samples_are_the_same():
    rng = np.random.default_rng(0)
    X = rng.integers(-1, 2, (9, 4)) * 1.0
    y, w = rng.choice([-1, 1], 9), rng.normal(size=4)
    value, slope = BinaryProblem(X, y).risk(w)
    forms = [sparse.csr_array(X), sparse.csc_matrix(X), np.asfortranarray(X)]
    for form in [*forms, X.astype(np.float32), X.astype(int)]:
        again, same = BinaryProblem(form, y).risk(w)
        assert again == pytest.approx(value) and same.dtype == np.float64
        np.testing.assert_allclose(same, slope, atol=1e-15)


@pytest.mark.parametrize("seed", range(4))
def test_sparse_samples_read_once_are_those_read_twice(seed):
    _, X, y, weights, rng = drawn(seed, False)
    # rows that are short, and long
    for width in (X.shape[1], 90):
        wide = np.tile(X, 90)[:, :width] * (rng.random((len(X), width)) < 0.6)
        w = rng.normal(size=width)
        value, slope = BinaryProblem(sparse.csr_array(wide), y, weights=weights).risk(w)
        short = np.maximum(1 - y * (wide @ w), 0)
        assert value == pytest.approx((weights * short).mean(), rel=1e-13)
        expected = -((weights * y * (short > 0)) @ wide) / len(y)
        np.testing.assert_allclose(slope, expected, atol=1e-13)
        # the steps of Pragam, whose answer for dense samples is in numpy
        both = [
            BinaryProblem(form, y, weights=weights)
            for form in (sparse.csr_array(wide), wide)
        ]
        alpha = rng.random(len(X)) * both[0].bounds
        scores = wide @ w
        ways = [x.mix(alpha, scores, 0.7, 0.3) for x in both]
        ways += [x.climb(alpha, w, scores + 1, 0.3, 7.0)[:2] for x in both]
        *one, ahead = both[0].climb(alpha, w, scores + 1, 0.3, 7.0, (0.6, 0.2))
        assert all(map(np.array_equal, one, ways[2]))
        assert all(map(np.array_equal, ahead, both[0].mix(*one, 0.6, 0.2)))
        for found, known in (ways[:2], ways[2:]):
            for one, two in zip(found, known, strict=True):
                np.testing.assert_allclose(one, two, atol=1e-13)


def test_steps_of_many_samples_are_those_of_dense_ones():
    # more than are computed at a time, and not a multiple of that
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2 * BLOCK + 100, 7)) * (rng.random((2 * BLOCK + 100, 7)) < 0.5)
    y = np.where(rng.random(len(X)) < 0.5, 1, -1)
    rows, dense = BinaryProblem(sparse.csr_array(X), y), BinaryProblem(X, y)
    # many dual variables are 0, and stay so
    alpha, w = np.maximum(rng.normal(size=len(X)), 0) / len(X), 9 * rng.normal(size=7)
    ways = [x.mix(alpha, X @ w, 0.7, 0.3) for x in (rows, dense)]
    ways += [x.climb(alpha, w, X @ w, 0.3, 7.0)[:2] for x in (rows, dense)]
    for found, known in (ways[:2], ways[2:]):
        for one, two in zip(found, known, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-13)
    *both, ahead = rows.climb(alpha, w, X @ w, 0.3, 7.0, (0.6, 0.2))
    assert all(map(np.array_equal, both, ways[2]))
    assert all(map(np.array_equal, ahead, rows.mix(*both, 0.6, 0.2)))


def test_what_is_given_may_change_afterwards():
    X, y = np.eye(3), np.array([1.0, -1, 1])
    S = sparse.csr_array(X)
    problems = [BinaryProblem(X, y), BinaryProblem(S, y)]
    X[:], y[:], S.data[:] = 7, 1, 7
    for problem in problems:
        assert problem.risk(np.array([1.0, -1, 1]))[0] == 0


def test_wrong_arguments_are_named():
    X = np.eye(2)
    with pytest.raises(ValueError, match="y: expected 1 or -1, got 0 at sample 1"):
        BinaryProblem(X, [1, 0])
    with pytest.raises(ValueError, match=r"y: expected \(2,\) labels, got \(3,\)"):
        BinaryProblem(X, [1, 1, 1])
    with pytest.raises(TypeError, match="y: expected numbers 1 and -1"):
        BinaryProblem(X, ["a", "b"])
    for form in (np.array, sparse.csr_array):
        with pytest.raises(ValueError, match=r"X: expected finite .* nan in sample 1"):
            BinaryProblem(form([[1.0, 2.0], [np.nan, 1.0]]), [1, -1])
    with pytest.raises(ValueError, match=r"w: expected \(2,\), got \(3,\)"):
        BinaryProblem(sparse.csr_array(X), [1, -1]).risk(np.zeros(3))
    rows, two, three = (
        BinaryProblem(sparse.csr_array(X), [1, -1]),
        *map(np.ones, (2, 3)),
    )
    with pytest.raises(ValueError, match=r"alpha: expected \(2,\), got \(3,\)"):
        rows.mix(three, two, 1.0, 0.5)
    with pytest.raises(ValueError, match=r"w: expected \(2,\), got \(3,\)"):
        rows.climb(two, three, two, 0.5, 1.0)
    with pytest.raises(ValueError, match=r"X: expected .samples, features., at least"):
        BinaryProblem(np.zeros((0, 3)), [])
    with pytest.raises(TypeError, match="X: expected real numbers, got complex"):
        BinaryProblem(X * 1j, [1, -1])
    with pytest.raises(ValueError, match="mu: expected a positive number"):
        BinaryProblem(X, [1, -1]).smoothed_risk(np.zeros(2), 0.0)
    with pytest.raises(ValueError, match="smoothing: expected one of"):
        BinaryProblem(X, [1, -1]).smoothed_risk(np.zeros(2), 1.0, "topk")


def test_a_single_class_costs_nothing_with_a_bias():
    for sign in (1, -1):
        problem = BinaryProblem([[1.0], [2.0]], [sign, sign], bias=True)
        w = np.array([-1.0 * sign])
        assert problem.risk(w)[0] == 0
        assert problem.risk(w)[1] == 0
        assert problem.smoothed_risk(w, 0.5, "l2")[0] == 0
