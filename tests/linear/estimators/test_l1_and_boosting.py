"""The l1 SVM against a linear programme, boosting against a cone programme."""

import itertools

import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog, minimize
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from smoothsp.linear import L1SVC, LPBoostClassifier
from smoothsp.linear.estimators import l1_svc
from smoothsp.linear.estimators.lp_boost import EntropicGame, capped_softmax
from smoothsp.linear.estimators.stumps import StumpLearner
from smoothsp.linear.problems import BinaryProblem
from tests.sweeps import thinned
from tests.truth.svm_objectives import blobs


def least(X, y, C, bias):
    """``min |w|_1 + sum C hinge`` as a linear programme."""
    n, d = X.shape
    s = np.where(y == 1, 1.0, -1.0)
    signed = s[:, None] * np.hstack([X, -X, np.ones((n, 1)), -np.ones((n, 1))])
    cost = np.concatenate([np.ones(2 * d), np.zeros(2), C])
    ends = [(0, None)] * (2 * d) + [(0, None if bias else 0)] * 2 + [(0, None)] * n
    found = linprog(
        cost, A_ub=np.hstack([-signed, -np.eye(n)]), b_ub=-np.ones(n), bounds=ends
    )
    return found.fun


@pytest.mark.parametrize("C", [0.02, 3.0])
@pytest.mark.parametrize(("bias", "weighted"), [(False, True), (True, False)])
def test_the_l1_svm_is_a_linear_programme(C, bias, weighted):
    X, y = blobs(60, 5, 2, seed=1)
    weight = np.random.default_rng(0).integers(0, 4, 60) if weighted else None
    model = L1SVC(C=C, tol=1e-4, fit_intercept=bias)
    model.fit(sparse.csr_array(X), y, sample_weight=weight)
    costs = C * (np.ones(60) if weight is None else weight)
    best, last = least(X, y, costs, bias), model.history_[-1]
    assert last.dual <= best * (1 + 1e-9) and last.gap <= 1e-4 * last.dual
    s = np.where(y == 1, 1, -1)
    hinges = np.maximum(1 - s * model.decision_function(X), 0)
    value = np.abs(model.coef_).sum() + costs @ hinges
    assert value == pytest.approx(last.primal, rel=1e-9)
    assert best * (1 - 1e-9) <= value <= best * (1 + 2e-4)


@pytest.mark.parametrize("seed", range(8))
def test_large_c_and_columns_far_apart_in_size_are_no_worse(seed):
    rng = np.random.default_rng(seed)
    n, d = rng.integers(10, 80), rng.integers(5, 50)
    X = rng.normal(size=(n, d)) * 10 ** rng.uniform(-4, 4, size=d)
    X[rng.random((n, d)) < 0.7] = 0
    y, bias = np.arange(n) % 3 == 0, seed % 2 == 0
    C = 10 ** rng.uniform(1, 3)
    model = L1SVC(C=C, tol=1e-6, fit_intercept=bool(bias)).fit(X, y)
    best = least(X, y, np.full(n, C), bias)
    assert model.history_[-1].primal <= best * (1 + 1.1e-6)
    assert model.history_[-1].dual <= best * (1 + 1e-9)
    assert model.n_epochs_ <= 3000


def test_features_of_few_samples_are_learnt_as_fast_as_others():
    rng, d = np.random.default_rng(0), 24
    X = (rng.random((600, d)) < 0.5 ** (1 + np.arange(d) % 8)).astype(float)
    scores = X @ (rng.normal(size=d) * 2.0 ** (np.arange(d) % 8 / 2))
    y = np.where(scores + 0.2 * rng.normal(size=600) > 0, 1, -1)
    model = L1SVC(C=0.5, tol=1e-3).fit(sparse.csr_array(X), y)
    # Newton steps; products with the samples alone would take hundreds of them
    assert model.n_epochs_ <= 100


def test_weights_that_move_a_few_at_a_time_reach_the_same(monkeypatch):
    X, y = blobs(60, 5, 2, seed=3)
    monkeypatch.setattr(l1_svc, "_MAX_ACTIVE", 2)
    model = L1SVC(C=0.3, tol=1e-3).fit(sparse.csr_array(X), y)
    best = least(X, y, np.full(60, 0.3), True)
    last = model.history_[-1]
    assert (model.coef_ != 0).sum() > 2 and last.gap <= 1e-3 * last.dual
    assert last.dual <= best * (1 + 1e-9) and last.primal >= best * (1 - 1e-9)


def test_the_l1_svm_gets_far_where_samples_share_their_margins():
    # most samples have no features, and only the bias tells them apart
    rng = np.random.default_rng(0)
    X = (rng.random((900, 12)) < 0.03).astype(float)
    y = np.where(X @ rng.normal(size=12) + 0.1 * rng.normal(size=900) > 0.05, 1, -1)
    model = L1SVC(C=1.0, tol=1e-7, max_epochs=300).fit(X, y)
    last = model.history_[-1]
    best = least(X, y, np.ones(900), True)
    assert last.gap <= 1e-7 * last.dual
    for at in model.history_:
        assert at.dual <= best * (1 + 1e-9) and at.primal >= best * (1 - 1e-9)


def test_multipliers_prove_a_bound_once_no_bias_can_gain():
    X, y = blobs(60, 5, 2, seed=2)
    signs, rng = np.where(y == 1, 1.0, -1.0), np.random.default_rng(0)
    problem = BinaryProblem(X, signs, bias=True)
    steps = l1_svc._MultiplierMethod(problem, 0.05, np.ones(5))
    alpha = rng.random(60) * problem.bounds * np.where(signs > 0, 1.0, 0.3)
    found = steps._balance_classes(alpha)
    assert abs(signs @ found) <= 1e-15 and (found >= 0).all()
    assert (found <= alpha).all() and found.sum() > 0.2 * alpha.sum()
    assert not steps._balance_classes(np.where(signs > 0, alpha, 0.0)).any()


def test_bounds_of_the_l1_svm_hold_on_the_way():
    X, y = blobs(60, 5, 2, seed=2)
    best = least(X, y, np.full(60, 0.3), True)
    for at in L1SVC(C=0.3, tol=1e-4).fit(X, y).history_:
        assert at.dual <= best * (1 + 1e-9) and at.primal >= best * (1 - 1e-9)


def test_without_features_the_bias_is_certified_at_once():
    y = np.array([0, 1] * 10)
    for labels, best in ((y, 20.0), (np.repeat([0, 1], [15, 5]), 10.0)):
        for scale in (0.0, 1e-150):
            X = scale * np.random.default_rng(0).normal(size=(20, 3))
            for given in (X, sparse.csr_array(X)):
                model = L1SVC().fit(given, labels)
                assert model.n_epochs_ <= 10 and model.gap_ <= 1e-9
                assert model.history_[-1].primal == pytest.approx(best)
                # of two classes of a size all intercepts from -1 to 1 are as good
                middle = 0 if best == 20 else -1
                assert not model.coef_.any() and model.intercept_[0] == middle


def test_an_l1_penalty_picks_features():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 30))
    y = (X[:, 3] - X[:, 7] + 0.3 * rng.normal(size=200) > 0).astype(int)
    model = L1SVC(C=0.05).fit(X, y)
    used = np.flatnonzero(model.coef_[0])
    assert {3, 7} <= set(used) and len(used) < 10
    # so small a C leaves none
    assert not L1SVC(C=1e-4).fit(X, y).coef_.any()


@pytest.mark.parametrize("seed", range(6))
def test_a_softmax_with_a_cap(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    z = rng.normal(size=n) * 10.0 ** rng.integers(-2, 4)
    z = np.round(z) if seed % 3 == 0 else z
    cap = 1 / n + rng.random() * (1.2 - 1 / n)
    d = capped_softmax(z, cap)
    assert d.sum() == pytest.approx(1) and (d <= cap + 1e-12).all()
    # those below the cap are in proportion to e^z, and those at it would be more
    free = d < cap - 1e-12
    if free.any():
        level = (np.log(np.maximum(d, 1e-300)) - z)[free & (d > 1e-290)]
        assert np.ptp(level) <= 1e-9 * max(1, np.abs(z).max())
        if (~free).any() and len(level):
            assert (np.log(cap) - z[~free]).max() <= level.min() + 1e-9


@pytest.mark.parametrize(
    ("seed", "cap"), thinned(itertools.product(range(2), [1.0, 0.2]), 3, 1)
)
def test_the_game_against_a_cone_programme(seed, cap):
    rng = np.random.default_rng(seed)
    votes, lam = rng.uniform(-1, 1, (6, 12)), 0.1
    d = cp.Variable(12)
    divergence = cp.sum(cp.kl_div(d, np.full(12, 1 / 12)))
    goal = cp.Minimize(lam * divergence + cp.max(votes @ d))
    cp.Problem(goal, [cp.sum(d) == 1, d >= 0, d <= cap]).solve(solver=cp.CLARABEL)
    game = EntropicGame(votes, lam, cap)
    alpha, weights, bound = game.solve(np.full(6, 1 / 6), 1e-6)
    assert game.primal(weights) - bound <= 1e-6
    assert game.primal(weights) == pytest.approx(goal.value, abs=2e-6)
    assert alpha.sum() == pytest.approx(1) and (alpha >= 0).all()
    # the conjugate of the regulariser, as a minimum over the multipliers of the cap
    v = -(alpha @ votes)

    def conjugate(beta):
        logs = (v - beta) / lam - np.log(12)
        top = logs.max()
        return lam * (top + np.log(np.exp(logs - top).sum())) + cap * beta.sum()

    found = minimize(conjugate, np.zeros(12), bounds=[(0, None)] * 12, tol=1e-14)
    assert game.dual(alpha) == pytest.approx(-found.fun, abs=1e-6)


class Listed(DecisionTreeClassifier):
    """The best of all stumps on a grid, by looking at each."""

    maximises_edge = True

    def fit(self, X, y, sample_weight=None):
        signs, best = 2 * y - 1, -np.inf
        for j in range(X.shape[1]):
            for at in (-1.0, -0.3, 0.0, 0.3, 1.0):
                for side in (1, -1):
                    edge = sample_weight @ (signs * np.where(X[:, j] > at, side, -side))
                    if edge > best:
                        best, self.rule_ = edge, (j, at, side)
        return self

    def predict(self, X):
        j, at, side = self.rule_
        return (np.where(X[:, j] > at, side, -side) + 1) // 2


@pytest.mark.parametrize("nu", thinned([None, 0.3], 2, 1))
def test_boosting_reaches_the_optimum_over_all_hypotheses(nu):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    y = (X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=50) > 0).astype(int)
    model = LPBoostClassifier(Listed(), lam=0.02, nu=nu, tol=1e-3).fit(X, y)
    signs, cap = 2 * y - 1, 1.0 if nu is None else 1 / (nu * 50)
    every = [
        signs * np.where(X[:, j] > at, side, -side)
        for j in range(3)
        for at in (-1.0, -0.3, 0.0, 0.3, 1.0)
        for side in (1, -1)
    ]
    game = EntropicGame(np.array(every, dtype=float), 0.02, cap)
    _, weights, bound = game.solve(np.full(30, 1 / 30), 1e-4)
    last = model.history_[-1]
    assert last.gap <= 1e-3 * max(last.dual, 1e-3) and model.gap_ == last.gap
    assert last.dual <= game.primal(weights) and last.primal >= bound
    assert model.sample_weights_.max() <= cap + 1e-9
    assert model.estimator_weights_.sum() == pytest.approx(1)
    for at in model.history_:
        assert at.dual <= game.primal(weights) and at.primal >= bound


def largest_edge(X, y, weights):
    """Over all features, thresholds and signs, by looking at each."""
    signed, found = weights * np.where(y == y.max(), 1.0, -1.0), 0.0
    for column in X.T:
        for threshold in [-np.inf, *column]:
            found = max(found, abs(signed @ np.where(column > threshold, 1, -1)))
    return found


def test_no_stump_has_a_larger_edge_than_boosting_certifies():
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[::6, :6], y[::6]
    model = LPBoostClassifier(lam=0.1, tol=1e-3).fit(X, y)
    d, last = model.sample_weights_, model.history_[-1]
    used = d > 0
    divergence = float(d[used] @ np.log(len(y) * d[used]))
    value = 0.1 * divergence + largest_edge(X, y, d)
    assert value == pytest.approx(last.primal, rel=1e-9)
    assert last.gap <= 1e-3 * last.dual
    assert model.status_ == "the gap is at most tol = 0.001"


@pytest.mark.parametrize("seed", range(12))
def test_the_best_stump_is_found(seed):
    rng = np.random.default_rng(seed)
    n, features = int(rng.integers(1, 12)), int(rng.integers(1, 5))
    X = rng.integers(-2, 3, (n, features)) * (rng.random((n, features)) < 0.6)
    if seed % 2:
        # neighbours of a float, between which there is no number
        X = np.nextafter(np.float32(1), np.float32(3)) ** X
    X = X.astype(np.float32 if seed % 3 else np.float64)
    signed = rng.normal(size=n)
    best = largest_edge(X, np.sign(signed), np.abs(signed))
    for given in (X, sparse.csr_array(X)):
        guess = 2 * StumpLearner(given).best(signed).predict(given) - 1
        assert signed @ guess == pytest.approx(best, rel=1e-12)


def test_a_learner_without_a_promise_gives_no_certificate():
    X, y = blobs(60, 3, 2, seed=4)
    stump = DecisionTreeClassifier(max_depth=1)
    model = LPBoostClassifier(stump, lam=0.1, tol=0.05).fit(X, y)
    assert np.isnan(model.gap_) and np.isnan([at.gap for at in model.history_]).all()
    assert "there is no certificate" in model.status_
    with pytest.warns(ConvergenceWarning, match="no certificate"):
        LPBoostClassifier(
            DecisionTreeClassifier(max_depth=1), n_estimators=2, tol=1e-6
        ).fit(X, y)


def test_weights_in_boosting_are_repetitions():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(40, 3))
    y = (X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=40) > 0).astype(int)
    times = rng.integers(0, 3, 40)
    model = LPBoostClassifier(Listed(), lam=0.05, nu=0.3, tol=1e-3)
    model.fit(X, y, sample_weight=times)
    d, gap = model.sample_weights_, model.history_[-1]
    again = LPBoostClassifier(Listed(), lam=0.05, nu=0.3, tol=1e-3)
    again.fit(np.repeat(X, times, 0), np.repeat(y, times))
    other = again.history_[-1]
    assert gap.dual <= other.primal + 1e-12 and other.dual <= gap.primal + 1e-12
    at = np.repeat(np.arange(40), times)
    assert not d[times == 0].any() and (d <= times / (0.3 * times.sum()) + 1e-12).all()
    copies = np.bincount(at, again.sample_weights_, 40)
    np.testing.assert_allclose(d, copies, atol=0.02)


def test_boosting_learns_what_no_stump_knows():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (80, 2))
    y = np.where((X**2).sum(axis=1) < 0.6, "in", "out")
    model = LPBoostClassifier(tol=0.1, random_state=0).fit(X, y)
    stump = DecisionTreeClassifier(max_depth=1).fit(X, y)
    assert model.score(X, y) > 0.9 > stump.score(X, y) + 0.1
    with pytest.warns(ConvergenceWarning, match="n_estimators = 3 rounds are used up"):
        LPBoostClassifier(n_estimators=3, tol=1e-3).fit(X, y)


def test_boosting_takes_any_indices():
    X, y = blobs(20, 2, 2)
    rows = sparse.csr_array(X)
    rows.indices, rows.indptr = (
        x.astype(np.int64) for x in (rows.indices, rows.indptr)
    )
    rows.indices[:2], rows.data[:2] = (
        rows.indices[1::-1].copy(),
        rows.data[1::-1].copy(),
    )
    rows.has_sorted_indices = False
    few = {"n_estimators": 3, "random_state": 0, "tol": 2000.0}
    found, dense = (LPBoostClassifier(**few).fit(x, y) for x in (rows, X))
    scores = found.decision_function(rows)
    np.testing.assert_array_equal(scores, dense.decision_function(X))
    assert rows.indices.dtype == np.int64


def test_wrong_parameters_are_named():
    X, y = blobs(20, 2, 2)
    with pytest.raises(ValueError, match="C: expected a positive number"):
        L1SVC(C=0).fit(X, y)
    with pytest.raises(ValueError, match="C: expected a value for which"):
        L1SVC(C=1e-310).fit(X, y)
    for wrong in (3, DecisionTreeClassifier, KNeighborsClassifier()):
        with pytest.raises(TypeError, match="estimator: expected a classifier of"):
            LPBoostClassifier(wrong).fit(X, y)
    with pytest.raises(ValueError, match="lam: expected a positive number"):
        LPBoostClassifier(lam=0).fit(X, y)
    with pytest.raises(ValueError, match="nu: expected at most 1, got 2"):
        LPBoostClassifier(nu=2).fit(X, y)
    with pytest.raises(ValueError, match="tol: expected a positive number"):
        LPBoostClassifier(tol=0).fit(X, y)
    with pytest.raises(ValueError, match="Only binary classification"):
        LPBoostClassifier().fit(X, np.arange(20) % 3)
