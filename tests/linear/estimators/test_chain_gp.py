"""Gaussian processes of chains against the dual of the source, written out densely."""

from itertools import pairwise, product

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from smoothsp.linear import ChainGP
from smoothsp.linear.features import KernelFeatures
from smoothsp.linear.problems import ChainProblem
from smoothsp.linear.solvers import LBFGS

SIZES, S = (3, 2), 2


def rbf(A, B):
    return np.exp(-0.7 * ((A[:, None] - B) ** 2).sum(-1))


def drawn(seed=0, sizes=SIZES, classes=S):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(T, 2)) for T in sizes]
    y = [rng.integers(0, classes, T) for T in sizes]
    y[0][:classes] = range(classes)
    return X, y


def dense_kernel(X):
    """Of pairs of positions with their labels, (i, t, s, s'), and their places."""
    places = [
        (i, t, s, r)
        for i, x in enumerate(X)
        for t in range(len(x) - 1)
        for s in range(S)
        for r in range(S)
    ]
    K = np.zeros((len(places), len(places)))
    for a, (i, t, *here) in enumerate(places):
        for b, (j, u, *there) in enumerate(places):
            K[a, b] = here == there
            for p, q in product((0, 1), (0, 1)):
                if here[p] == there[q]:
                    K[a, b] += rbf(X[i][t + p][None], X[j][u + q][None])[0, 0]
    return K, {place: a for a, place in enumerate(places)}


def of_the_source(X, y):
    """Equation 32, every labelling enumerated: its minimum, and K alpha there."""
    K, place = dense_kernel(X)

    def used(i, labels):
        found = np.zeros(len(K))
        for t in range(len(labels) - 1):
            found[place[i, t, labels[t], labels[t + 1]]] += 1
        return found

    every = [
        np.array([used(i, labels) for labels in product(range(S), repeat=len(x))])
        for i, x in enumerate(X)
    ]
    gold = sum(used(i, tuple(labels)) for i, labels in enumerate(y))

    def value(alpha):
        f = K @ alpha
        sums = [logsumexp(rows @ f) for rows in every]
        slope = 2 * alpha - gold
        for rows, total in zip(every, sums, strict=True):
            slope = slope + np.exp(rows @ f - total) @ rows
        return alpha @ f - f @ gold + sum(sums), K @ slope

    found = minimize(value, np.zeros(len(K)), jac=True, method="BFGS", tol=1e-12)
    return found.fun, K @ found.x, place


def test_the_optimum_is_that_of_the_source():
    X, y = drawn()
    least, f, place = of_the_source(X, y)
    seen = []
    model = ChainGP(rbf, C=0.5, tol=1e-9, callback=seen.append)
    model.fit(X, y)
    # the source has no half before the norm, and C n = 1 of two sequences
    assert 2 * model.primal_ * 0.5 * len(X) == pytest.approx(least, abs=1e-7)
    for at in seen:
        assert at.dual * len(X) <= least + 1e-7 <= at.primal * len(X) + 2e-7
    # potentials of pairs: those of two positions, and of their labels
    W = model.weights_[: -S * S].reshape(-1, S)
    scores = [model.features_.transform(x) @ W for x in X]
    for (i, t, s, r), a in place.items():
        pair = scores[i][t, s] + scores[i][t + 1, r] + model.transitions_[s, r]
        assert pair == pytest.approx(f[a], abs=1e-4)


def test_marginals_and_labels_are_those_of_all_labellings():
    X, y = drawn(1)
    model = ChainGP(rbf, C=3.0, tol=1e-8).fit(X, y)
    more, _ = drawn(2, sizes=(4, 1))
    W = model.weights_[: -S * S].reshape(-1, S)
    for x, found, tags in zip(
        more, model.predict_marginals(more), model.predict(more), strict=True
    ):
        scores = model.features_.transform(x) @ W
        counts = np.array([1, 2, 2, 1]) if len(x) == 4 else np.ones(1)
        every = list(product(range(S), repeat=len(x)))
        total = np.array(
            [
                sum(counts[t] * scores[t, s] for t, s in enumerate(labels))
                + sum(model.transitions_[a, b] for a, b in pairwise(labels))
                for labels in every
            ]
        )
        chances = np.exp(total - logsumexp(total))
        expected = np.zeros((len(x), S))
        for p, labels in zip(chances, every, strict=True):
            expected[range(len(x)), labels] += p
        np.testing.assert_allclose(found, expected, atol=1e-9)
        assert tuple(tags) == every[int(total.argmax())]


def test_a_kernel_sees_what_no_line_does():
    rng = np.random.default_rng(3)
    X = [rng.normal(size=(6, 1)) * 2 for _ in range(30)]
    y = [(np.abs(x[:, 0]) > 1.3).astype(int) for x in X]
    assert ChainGP(C=10.0).fit(X, y).score(X, y) > 0.95
    line = ChainGP("linear", C=10.0, counts="positions").fit(X, y)
    assert line.score(X, y) < 0.8
    few = ChainGP(C=10.0, max_rank=12).fit(X, y)
    assert few.features_.rows.shape == (180, 12) and few.score(X, y) > 0.9
    assert few.features_.residual < 1


def test_a_linear_kernel_is_a_linear_model():
    X, y = drawn(4, sizes=(5, 3, 4))
    model = ChainGP("linear", C=2.0, tol=1e-10, counts="positions").fit(X, y)
    features = model.features_
    assert features.rows.shape[1] == 2 and features.residual < 1e-9
    flat = np.concatenate(X)
    np.testing.assert_allclose(features.rows @ features.rows.T, flat @ flat.T)
    problem = ChainProblem(flat, np.concatenate(y), lengths=[5, 3, 4], boundaries=False)
    other = LBFGS(lam=1 / (2.0 * 3), loss="likelihood", tol=1e-10).solve(problem)
    assert model.primal_ == pytest.approx(other.primal, abs=1e-9)


@pytest.mark.parametrize("rank", [1, 4, 9])
def test_features_have_the_kernel_as_inner_products(rank):
    rng = np.random.default_rng(5)
    base = rng.normal(size=(9, rank))
    K = base @ base.T
    points = np.arange(9)

    def kernel(A, B):
        return K[np.ix_(A, B)]

    found = KernelFeatures(kernel, points)
    assert found.rows.shape == (9, rank)
    np.testing.assert_allclose(found.rows @ found.rows.T, K, atol=1e-9)
    np.testing.assert_allclose(found.transform(points), found.rows, atol=1e-9)
    part = KernelFeatures(kernel, points, most=1)
    off = np.abs(part.rows @ part.rows.T - K).max()
    assert off <= part.residual + 1e-9 and part.rows.shape == (9, 1)
    empty = KernelFeatures(kernel, points[:0])
    assert empty.rows.shape == (0, 0)
    assert found.transform(points[:0]).shape == (0, rank)


def test_runs_go_on_and_empty_sequences_are_sequences():
    X, y = drawn(6, sizes=(4, 3, 1))
    X, y = [*X, np.zeros((0, 2))], [*y, []]
    states = []
    model = ChainGP(C=5.0, tol=1e-8, callback=lambda at: states.append(at.state))
    whole = model.fit(X, y).weights_
    again = ChainGP(C=5.0, tol=1e-8).fit(X, y, resume=states[2])
    np.testing.assert_array_equal(again.weights_, whole)
    assert [len(tags) for tags in model.predict(X)] == [4, 3, 1, 0]
    with pytest.warns(ConvergenceWarning, match="ChainGP"):
        ChainGP(tol=1e-9, max_passes=2).fit(X, y)


def test_wrong_arguments_are_named():
    X, y = drawn()
    with pytest.raises(ValueError, match="counts: expected one of"):
        ChainGP(counts="cliques").fit(X, y)
    with pytest.raises(ValueError, match=r"kernel: expected .* finite numbers"):
        ChainGP(lambda A, B: np.ones(3)).fit(X, y)
    with pytest.raises(ValueError, match="kernel: expected a positive semi"):
        ChainGP(lambda A, B: 1 - ((A[:, None] - B) ** 2).sum(-1)).fit(X, y)
    with pytest.raises(TypeError, match=r"^kernel: expected a function, or the name"):
        ChainGP("precomputed").fit(X, y)
    with pytest.raises(TypeError, match=r"^gamma: expected a number, got str"):
        ChainGP(gamma="scale").fit(X, y)
    with pytest.raises(ValueError, match="at least two"):
        ChainGP().fit(X, [np.zeros(3, int), np.zeros(2, int)])
    model = ChainGP().fit(X, y)
    with pytest.raises(ValueError, match="X: expected 2 features, as in fit, got 3"):
        model.predict([np.zeros((2, 3))])
    with pytest.raises(ValueError, match="y: expected 3 tags for sentence 0"):
        model.score(X, [[0], [1, 0]])


@pytest.mark.filterwarnings("error")
def test_marginals_of_nothing_are_nothing():
    model = ChainGP().fit([np.eye(2)], [["a", "b"]])
    assert model.predict_marginals([]) == []
    assert model.predict_marginals([np.zeros((0, 2))])[0].shape == (0, 2)
