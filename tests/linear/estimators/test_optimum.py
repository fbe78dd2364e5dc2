"""What every solver promises: the optimum, and certificates on the way to it."""

import itertools
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from smoothsp.linear import (
    CrammerSingerSVC,
    HingeSVC,
)
from smoothsp.linear.descent.coordinate_descent import Status
from tests.sweeps import thinned
from tests.truth.svm_objectives import (
    MODELS,
    MULTICLASS,
    all_rows,
    blobs,
    data_for,
    optimum,
    primal,
)

EXACT = {
    "stopping": "gap", "tol": 1e-10, "max_epochs": 100_000, "random_state": 0,
    "fit_intercept": False,
}  # fmt: skip
ROUNDING = {np.float64: 1e-12, np.float32: 1e-5}


def interrupted_after(model, epochs, X, y, **options):
    """Fitted for so many epochs, converged or not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        options |= {"max_epochs": epochs, "certify_every": 1, "store_dual": True}
        return model(**options).fit(X, y)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("C", [0.02, 1.0, 30.0])
def test_the_optimum_is_that_of_a_general_solver(model, C):
    X, y = data_for(model)
    fitted = model(C=C, **EXACT).fit(X, y)
    expected = optimum(model, X, y, C)
    assert primal(model, fitted.coef_, X, y, C) == pytest.approx(expected, rel=1e-6)
    assert fitted.history_[-1].primal == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("model", MULTICLASS)
def test_the_optimum_with_costs_is_that_of_a_general_solver(model):
    X, y = blobs(40, 4, 4)
    costs = np.random.default_rng(0).integers(0, 4, (4, 4)) / 2
    np.fill_diagonal(costs, 0)
    fitted = model(C=0.5, cost=costs, **EXACT).fit(X, y)
    expected = optimum(model, X, y, 0.5, costs)
    assert fitted.history_[-1].primal == pytest.approx(expected, rel=1e-6)
    found = primal(model, fitted.coef_, X, y, 0.5, costs)
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("dtype", thinned([np.float64, np.float32], 2))
@pytest.mark.parametrize("model", MODELS)
def test_certificates_are_true_at_every_epoch(model, dtype):
    X, y = data_for(model, dtype=dtype)
    best = primal(model, model(**EXACT).fit(X.astype(float), y).coef_, X, y, 1.0)
    tolerance = ROUNDING[dtype] * best
    for epoch in range(1, 12):
        fitted = interrupted_after(
            model, epoch, X, y, random_state=0, tol=0, fit_intercept=False
        )
        last = fitted.history_[-1]
        assert last.epoch == fitted.n_epochs_ == epoch == len(fitted.history_)
        value = primal(model, all_rows(fitted), X, y, 1.0)
        assert last.primal == pytest.approx(value, rel=ROUNDING[dtype])
        assert last.gap >= 0
        assert abs(last.primal - last.dual - last.gap) <= tolerance
        assert last.dual - tolerance <= best <= last.primal + tolerance


@pytest.mark.parametrize("model", MODELS)
def test_the_dual_rises_and_converges_linearly(model):
    X, y = data_for(model, seed=2)
    run = model(
        tol=1e-13, stopping="gap", random_state=3, shrinking=False, fit_intercept=False
    )
    run.set_params(certify_every=1)
    history = run.set_params(max_epochs=5000).fit(X, y).history_
    best = history[-1].dual
    left = np.array([best - one.dual for one in history])
    assert (np.diff(left) <= 1e-12 * best).all()
    left = left[left > 1e-9 * best]
    assert len(left) > 5
    assert (left[1:] <= 0.995 * left[:-1]).all()


@pytest.mark.parametrize("model", MODELS)
def test_resting_blocks_change_neither_optimum_nor_certificate(model):
    X, y = blobs(200, 3, 2 if model is HingeSVC else 4)
    tired, awake = (
        model(**EXACT, shrinking=shrinking).fit(X, y) for shrinking in (True, False)
    )
    np.testing.assert_allclose(tired.coef_, awake.coef_, atol=1e-5)
    assert tired.gap_ <= 1e-10
    assert tired.n_epochs_ <= 2 * awake.n_epochs_


@pytest.mark.parametrize("model", MULTICLASS)
@pytest.mark.parametrize("intercept", [False, True])
def test_two_classes_are_the_binary_svm(model, intercept):
    X, y = blobs(40, 4, 2)
    given = {**EXACT, "fit_intercept": intercept, "C": 0.3, "class_weight": {1: 2.0}}
    binary, pair = (m(**given, store_dual=True).fit(X, y) for m in (HingeSVC, model))
    last, other = pair.history_[-1], binary.history_[-1]
    assert last.primal == pytest.approx(other.primal)
    assert last.dual == pytest.approx(other.dual)
    assert pair.gap_ <= EXACT["tol"]
    for name in ("coef_", "intercept_"):
        found, expected = getattr(pair, name), getattr(binary, name)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(
        pair.dual_coef_ @ X[pair.support_], pair.coef_, atol=1e-12
    )
    assert np.abs(pair.dual_coef_).max() <= 0.6 * (1 + 1e-15)
    scores = pair.decision_function(X)
    assert scores.shape == (40,)
    np.testing.assert_allclose(scores, binary.decision_function(X), atol=1e-4)


@pytest.mark.parametrize("solver", ["bcfw", "bmrm"])
@pytest.mark.parametrize("intercept", [False, True])
def test_two_classes_with_any_solver_are_the_binary_svm(solver, intercept):
    X, y = blobs(40, 4, 2)
    binary = HingeSVC(C=0.3, **EXACT | {"fit_intercept": intercept}).fit(X, y)
    pair = CrammerSingerSVC(C=0.3, solver=solver, fit_intercept=intercept, tol=1e-7)
    pair.fit(X, y)
    primal = binary.history_[-1].primal
    assert pair.history_[-1].primal == pytest.approx(primal, rel=1e-6)
    assert pair.coef_.shape == (1, 4) and pair.intercept_.shape == (1,)
    np.testing.assert_allclose(pair.coef_, binary.coef_, atol=2e-3)
    np.testing.assert_allclose(pair.intercept_, binary.intercept_, atol=2e-3)
    assert pair.decision_function(X).shape == (40,)
    assert (pair.predict(X) == binary.predict(X)).all()


def test_two_classes_have_margins_of_their_own():
    X, y = blobs(40, 4, 2)
    cost = np.array([[0.0, 2.0], [0.5, 0.0]])
    fitted = [model(C=0.3, cost=cost, **EXACT).fit(X, y) for model in MULTICLASS]
    pair = CrammerSingerSVC(
        C=0.3, solver="bcfw", cost=cost, fit_intercept=False, tol=1e-7
    )
    fitted.append(pair.fit(X, y))
    margins, signs = cost[y, 1 - y], 2 * y - 1
    for model in fitted:
        losses = np.maximum(margins - signs * model.decision_function(X), 0)
        objective = float((model.coef_**2).sum()) / 2 + 0.3 * float(losses.sum())
        primal = model.history_[-1].primal
        assert primal == pytest.approx(objective, rel=1e-9)
        assert primal == pytest.approx(fitted[0].history_[-1].primal, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "C", "tol"),
    thinned(itertools.product(MODELS, [1.0, 0.05, 64.0], [1e-3, 0.3, 1e-6]), 4),
)
def test_the_default_promises_a_share_of_the_minimum(model, C, tol):
    X, y = data_for(model)
    options = {"C": C, "random_state": 0, "max_epochs": 100_000}
    options["fit_intercept"] = False
    fitted = model(tol=tol, **options).fit(X, y)
    assert fitted.status_ is Status.CONVERGED
    best = model(tol=1e-9, **options).fit(X, y).history_[-1].dual
    assert primal(model, all_rows(fitted), X, y, C) <= (1 + tol) * best * (1 + 1e-8)
    enough = [one.gap <= tol * one.dual for one in fitted.history_]
    assert enough == [False] * (len(enough) - 1) + [True]


@pytest.mark.parametrize("dtype", thinned([np.float64, np.float32], 2))
@pytest.mark.parametrize("model", MODELS)
def test_weights_are_computed_anew_before_they_are_certified(model, dtype):
    X, y = data_for(model, dtype=dtype)
    fitted = model(store_dual=True, tol=1e-4, random_state=0).fit(X, y)
    table = np.zeros((len(y), len(fitted.dual_coef_)))
    table[fitted.support_] = fitted.dual_coef_.T
    expected = table.T @ X.astype(np.float64)
    error = 2.5 * np.finfo(dtype).eps * abs(X).sum()
    np.testing.assert_allclose(fitted.coef_, expected, rtol=0, atol=error)
