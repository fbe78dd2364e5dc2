"""Losses of the whole set, against enumeration of all labellings and of all pairs."""

from itertools import product

import numpy as np
import pytest
from scipy import sparse
from scipy.special import logsumexp

from smoothsp.linear.problems import F1Problem, ROCAreaProblem


def labellings(X, y, w):
    """Loss plus score of every labelling less that of y, and the labellings."""
    n, scores, positives = len(y), X @ w, (y > 0).sum()
    every = np.array(list(product([-1, 1], repeat=n)))
    b = ((every < 0) & (y > 0)).sum(axis=1)
    c = ((every > 0) & (y < 0)).sum(axis=1)
    loss = (b + c) / (2 * positives - b + c)
    return loss + (every - y) @ scores / n, every


def drawn(seed, n=9):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * 10.0 ** rng.integers(-1, 4)
    if seed % 3 == 0:
        X = np.round(X)
    y = rng.choice([-1, 1], n)
    y[0] = 1 if seed % 5 else y[0]
    y[1] = 1
    # one class alone
    y = np.abs(y) if seed % 7 == 0 else y
    return X, y, rng.normal(size=3), rng


@pytest.mark.parametrize("seed", range(12))
def test_f1_against_all_labellings(seed):
    X, y, w, rng = drawn(seed)
    z, every = labellings(X, y, w)
    problem = F1Problem(X, y)
    value, slope = problem.risk(w)
    assert value == pytest.approx(z.max(), rel=1e-9)
    worst = every[z >= z.max() - 1e-9 * max(1, z.max())]
    slopes = (worst - y) @ X / len(y)
    assert np.abs(slopes - slope).max(axis=1).min() <= 1e-9 * max(1, np.abs(X).max())
    size = max(1.0, np.abs(X).max())
    for mu in 10.0 ** rng.uniform(-4, 2, 3):
        total = logsumexp(z / mu)
        chances = np.exp(z / mu - total)
        value, slope, offset = problem.smoothed_tangent(w, mu)
        loss = z - (every - y) @ (X @ w) / len(y)
        assert offset == pytest.approx(chances @ loss, rel=1e-9, abs=1e-9 * size)
        expected = mu * (total - len(y) * np.log(2))
        assert value == pytest.approx(expected, rel=1e-9, abs=1e-9)
        slopes = chances @ (every - y) @ X / len(y)
        np.testing.assert_allclose(slope, slopes, rtol=0, atol=1e-9 * size)
        most = mu * problem.diameter()
        assert z.max() - most <= value + 1e-9 * size and value <= z.max() + 1e-9 * size
    likelihood, slope = problem.likelihood(w)
    no_loss = (every - y) @ (X @ w) / len(y)
    assert likelihood == pytest.approx(logsumexp(no_loss), rel=1e-9)
    slopes = np.exp(no_loss - likelihood) @ (every - y) @ X / len(y)
    np.testing.assert_allclose(slope, slopes, rtol=0, atol=1e-9 * size)


def log_marginals(theta, log_weights):
    """The recurrence of the paper in log space: all rows kept, both ways."""
    m = len(theta)
    rows = np.full((m + 1, m + 1), -np.inf)
    rows[0, 0] = 0
    for k in range(m):
        rows[k + 1] = rows[k]
        rows[k + 1, 1:] = np.logaddexp(rows[k, 1:], rows[k, :-1] + theta[k])
    back, found = log_weights.copy(), np.empty(m)
    total = logsumexp(rows[m] + back)
    for k in range(m - 1, -1, -1):
        found[k] = logsumexp(rows[k, :-1] + theta[k] + back[1:])
        back[:-1] = np.logaddexp(back[:-1], theta[k] + back[1:])
    return rows[m], np.exp(found - total)


@pytest.mark.parametrize("share", [0.5, 0.03])
@pytest.mark.parametrize("mu", [1e-6, 1e-3, 1e-1, 10.0])
def test_f1_against_the_recurrence_in_log_space(share, mu):
    rng = np.random.default_rng(1)
    n = 300
    X = rng.normal(size=(n, 4)).round(1)
    y, w = np.where(rng.random(n) < share, 1, -1), rng.normal(size=4)
    problem = F1Problem(X, y)
    value, slope = problem.smoothed_risk(w, mu)
    odds = -2 * y * (X @ w) / (n * mu)
    above, below = odds[y > 0], odds[y < 0]
    b, c = np.meshgrid(np.arange(len(above) + 1), np.arange(len(below) + 1))
    loss = ((b + c) / (2 * len(above) - b + c) / mu).T
    tops = [log_marginals(side, np.zeros(len(side) + 1))[0] for side in (above, below)]
    table = loss + tops[0][:, None] + tops[1]
    expected = mu * (logsumexp(table) - n * np.log(2))
    assert value == pytest.approx(expected, rel=1e-9)
    flips = np.empty(n)
    flips[y > 0] = log_marginals(above, logsumexp(loss + tops[1], axis=1))[1]
    flips[y < 0] = log_marginals(below, logsumexp(loss.T + tops[0], axis=1))[1]
    slopes = -2 / n * (y * flips) @ X
    np.testing.assert_allclose(slope, slopes, rtol=0, atol=1e-9)


@pytest.mark.parametrize("mu", [1e-9, 1e-3 / 2000, 1e-3, 1e6])
def test_f1_of_thousands_is_finite_and_between_its_bounds(mu):
    rng = np.random.default_rng(2)
    n = 2000
    X, y = rng.normal(size=(n, 5)), np.where(rng.random(n) < 0.2, 1, -1)
    problem = F1Problem(sparse.csr_array(X), y)
    for scale in (0.0, 1e-3, 1.0, 1e5):
        w = scale * np.ones(5)
        exact, _ = problem.risk(w)
        value, slope = problem.smoothed_risk(w, mu)
        assert np.isfinite(slope).all()
        assert exact - mu * problem.diameter() <= value + 1e-9 * (exact + mu * n)
        assert value <= exact * (1 + 1e-12)
        step = rng.normal(size=5)
        step *= 1e-3 * mu / np.abs(X @ step).max() * n
        # convex, with this gradient
        other = problem.smoothed_risk(w + step, mu)[0]
        assert other >= value + slope @ step - 1e-11 * (abs(value) + mu * n)


@pytest.mark.parametrize("seed", range(12))
def test_roc_area_against_all_pairs(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    X = rng.normal(size=(n, 3)) * 10.0 ** rng.integers(-1, 3)
    X = np.round(X) if seed % 2 else X
    y = rng.choice([-1, 1], n)
    y[:2] = 1, -1
    w = rng.integers(-1, 2, 3) * 1.0 if seed % 3 else rng.normal(size=3)
    problem = ROCAreaProblem(X, y)
    pairs = (X[y > 0][:, None] - X[y < 0]).reshape(-1, 3)
    short = 1 - pairs @ w
    value, slope = problem.risk(w)
    assert value == pytest.approx(np.maximum(short, 0).mean(), abs=1e-9)
    swapped = (pairs @ w < 0).mean() + (pairs @ w == 0).mean() / 2
    assert swapped <= value + 1e-12
    for _ in range(5):
        step = rng.normal(size=3)
        other = np.maximum(1 - pairs @ (w + step), 0).mean()
        assert other >= value + slope @ step - 1e-9
    if np.abs(short).min() > 1e-3:
        np.testing.assert_allclose(
            slope, -(1.0 * (short > 0)) @ pairs / len(pairs), atol=1e-9
        )
    for mu in 10.0 ** rng.uniform(-2, 2, 3):
        smooth, slope = problem.smoothed_risk(w, mu, "l2")
        share = np.clip(short / mu, 0, 1)
        expected = (share * short - mu / 2 * share**2).mean()
        assert smooth == pytest.approx(expected, rel=1e-8, abs=1e-8)
        slopes = -share @ pairs / len(pairs)
        np.testing.assert_allclose(slope, slopes, atol=1e-8)
        assert value - mu / 2 <= smooth + 1e-8 and smooth <= value + 1e-8


@pytest.mark.parametrize("seed", range(3))
def test_weights_of_the_roc_area_are_repetitions(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(9, 3)), rng.choice([-1, 1], 9)
    y[:2] = 1, -1
    times = rng.integers(0, 4, 9)
    times[:2] = 2, 3
    weighted = ROCAreaProblem(X, y, weights=times)
    repeated = ROCAreaProblem(np.repeat(X, times, 0), np.repeat(y, times))
    w = rng.normal(size=3)
    for ours, theirs in (
        (weighted.risk(w), repeated.risk(w)),
        (weighted.smoothed_tangent(w, 0.5), repeated.smoothed_tangent(w, 0.5)),
    ):
        for found, wanted in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_wrong_arguments_are_named():
    X = np.eye(3)
    with pytest.raises(ValueError, match="y: expected at least one positive sample"):
        F1Problem(X, [-1, -1, -1])
    with pytest.raises(ValueError, match="y: expected a positive and a negative"):
        ROCAreaProblem(X, [1, 1, 1])
    f1, roc = F1Problem(X, [1, -1, 1]), ROCAreaProblem(X, [1, -1, 1])
    huge = np.full(3, np.inf)
    for problem in (f1, roc):
        with pytest.raises(ValueError, match="w: expected weights with finite scores"):
            problem.risk(huge)
        with pytest.raises(ValueError, match="smoothing: expected one of"):
            problem.diameter("topk")
        with pytest.raises(ValueError, match="mu: expected a positive number"):
            problem.smoothed_risk(np.zeros(3), 0, "l2" if problem is roc else "entropy")
    with pytest.raises(ValueError, match="mu: expected a number by which scores"):
        f1.smoothed_risk(np.full(3, 1e300), 1e-20)
    with pytest.raises(ValueError, match="smoothing: expected one of"):
        roc.smoothed_risk(np.zeros(3), 1.0, "entropy")
    with pytest.raises(TypeError, match="likelihood: expected a problem that sums"):
        roc.likelihood(np.zeros(3))
