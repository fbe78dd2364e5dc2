"""Estimators whose solvers take the whole set at a time."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import f1_score, roc_auc_score

from smoothsp.linear import F1SVC, L1SVC, ROCSVC, HingeSVC
from tests.linear.problems.test_set_losses import labellings


def skewed(seed, n=400, d=8, noise=1.5, share=1.8):
    rng = np.random.default_rng(seed)
    direction = np.random.default_rng(0).normal(size=d)
    X = rng.normal(size=(n, d))
    scores = X @ direction / np.linalg.norm(direction) + noise * rng.normal(size=n)
    return X, (scores > share * np.sqrt(1 + noise**2)).astype(int)


def test_f1_is_the_objective():
    X, y = skewed(0, n=9, d=2, share=0.3)
    model = F1SVC(C=3.0, tol=1e-8, fit_intercept=False).fit(X, y)
    signs = np.where(y == 1, 1, -1)

    def objective(w):
        return w @ w / 2 + 3.0 * 9 * labellings(X, signs, w)[0].max()

    best = objective(model.coef_[0])
    assert model.history_[-1].primal == pytest.approx(best, rel=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(50):
        w = model.coef_[0] + rng.normal(size=2) * 10.0 ** rng.integers(-4, 1)
        assert objective(w) >= best * (1 - 1e-7)


def test_f1_where_few_are_positive():
    X, y = skewed(0, noise=0.6, share=1.3)
    more, wanted = skewed(1, n=4000, noise=0.6, share=1.3)
    ours = f1_score(wanted, F1SVC(C=0.1).fit(X, y).predict(more))
    hinge = HingeSVC(C=0.1, fit_intercept=True).fit(X, y)
    assert ours > f1_score(wanted, hinge.predict(more)) + 0.1


def test_roc_area_is_the_objective():
    X, y = skewed(0, n=60, share=1.0)
    model = ROCSVC(C=1.0, tol=1e-8).fit(X, y)
    pairs = (X[y == 1][:, None] - X[y == 0]).reshape(-1, X.shape[1])

    def objective(w):
        return w @ w / 2 + 60 * np.maximum(1 - pairs @ w, 0).mean()

    best = objective(model.coef_[0])
    assert model.history_[-1].primal == pytest.approx(best, rel=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(50):
        w = model.coef_[0] + rng.normal(size=8) * 10.0 ** rng.integers(-4, 1)
        assert objective(w) >= best * (1 - 1e-7)
    area = roc_auc_score(y, model.decision_function(X))
    assert 1 - area <= np.maximum(1 - pairs @ model.coef_[0], 0).mean()
    # no other threshold has a smaller hinge
    signs, scores = np.where(y == 1, 1, -1), X @ model.coef_[0]

    def hinge(b):
        return np.maximum(1 - signs * (scores + b), 0).sum()

    least = min(hinge(b) for b in signs - scores)
    assert hinge(model.intercept_[0]) == pytest.approx(least)


@pytest.mark.parametrize("model", [ROCSVC(C=1e-4), L1SVC(C=1.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_an_intercept_that_is_not_determined_is_the_middle(model, weighted):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 100)
    X = rng.normal(size=(200, 2)) + 4 * y[:, None] - 2
    weight = rng.permutation(np.repeat([0.3, 0.6], 50)) if weighted else None
    given = None if weight is None else np.tile(weight, 2)
    assert clone(model).fit(X, y, sample_weight=given).score(X, y) >= 0.98


def repeated(X, y, seed=0):
    times = np.random.default_rng(seed).integers(0, 3, len(y))
    times[:2] = 2
    return times, np.repeat(X, times, 0), np.repeat(y, times)


@pytest.mark.parametrize("kind", [F1SVC, ROCSVC])
def test_weights_are_repetitions(kind):
    X, y = skewed(4, n=60, share=1.0)
    times, more, labels = repeated(X, y)
    settings = {"C": 0.3, "tol": 1e-7}
    weighted = kind(**settings).fit(sparse.csr_array(X), y, sample_weight=times)
    again = kind(**settings).fit(more, labels)
    np.testing.assert_allclose(weighted.coef_, again.coef_, atol=1e-4)
    np.testing.assert_allclose(weighted.intercept_, again.intercept_, atol=1e-4)
    assert weighted.history_[-1].primal == pytest.approx(
        again.history_[-1].primal, rel=1e-6
    )
    with pytest.raises(ValueError, match="sample_weight: expected"):
        kind().fit(X, y, sample_weight=-np.ones(60))
    if kind is F1SVC:
        with pytest.raises(ValueError, match="expected whole numbers, as F1"):
            kind().fit(X, y, sample_weight=np.full(60, 0.5))


def test_wrong_parameters_are_named():
    X, y = skewed(0, n=50, share=1.0)
    with pytest.raises(ValueError, match="C: expected a positive number"):
        F1SVC(C=0).fit(X, y)
    with pytest.raises(TypeError, match=r"resume: expected the state .* got str"):
        F1SVC().fit(X, y, resume="run.npz")
    with pytest.raises(ValueError, match="Only binary classification"):
        F1SVC().fit(X, np.arange(50) % 3)
    for wrong in (1e-320, 1e305):
        with pytest.raises(ValueError, match="C: expected a value for which"):
            ROCSVC(C=wrong).fit(X, y)
    with pytest.raises(ValueError, match="X: expected samples whose squared norm"):
        ROCSVC().fit(sparse.csr_array(X * 1e155), y)
