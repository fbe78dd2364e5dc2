"""SVMs of samples that go on: from a checkpoint, from the fit before."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from smoothsp.linear import CrammerSingerSVC
from tests.truth.svm_objectives import MODELS, data_for

ROUGH = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SOLVERS = ("bcfw", "sgd", "agm")
WITH_DUAL = (*SOLVERS, "dual")


@pytest.mark.parametrize("model", MODELS)
def test_a_warm_start_of_an_optimum_is_done_at_once(model):
    X, y = data_for(model)
    options = {"random_state": 0, "tol": 1e-4, "warm_start": True}
    fitted = model(**options).fit(X, y)
    cold, before = fitted.n_iter_, fitted.history_[-1].dual
    assert fitted.fit(X, y).n_iter_ == 1 < cold
    assert fitted.history_[-1].dual >= before * (1 - 1e-12)
    # at another C, and at other weights: the optimum of a cold start
    for C, weight in ((2.0, None), (0.5, np.linspace(0.5, 1.5, len(y)))):
        warm = fitted.set_params(C=C).fit(X, y, sample_weight=weight)
        new = model(random_state=0, tol=1e-4, C=C).fit(X, y, sample_weight=weight)
        one, two = warm.history_[-1], new.history_[-1]
        assert max(one.dual, two.dual) <= min(one.primal, two.primal)
    # other labels of some samples
    other = y.copy()
    other[:4] = y[:4][::-1]
    warm, new = fitted.fit(X, other), model(random_state=0, C=0.5).fit(X, other)
    assert warm.history_[-1].primal <= new.history_[-1].primal * 1.002


@pytest.mark.parametrize("model", MODELS)
def test_a_warm_start_on_other_samples_raises(model):
    X, y = data_for(model)
    fitted = model(warm_start=True, random_state=0).fit(X, y)
    before = dict(vars(fitted))
    with pytest.raises(ValueError, match=r"warm_start: expected the \d+ samples and"):
        fitted.fit(X[:-1], y[:-1])
    with pytest.raises(ValueError, match="or other classes; set warm_start=False"):
        fitted.fit(X, y + 1)
    assert vars(fitted) == before
    # dual variables do not depend on features
    assert fitted.fit(X[:, :2], y).coef_.shape[1] == 2
    fitted.set_params(warm_start=False).fit(X[:-1], y[:-1])


@ROUGH
@pytest.mark.parametrize("first", WITH_DUAL[::2])
@pytest.mark.parametrize("second", WITH_DUAL)
def test_a_warm_start_after_another_solver(first, second):
    X, y = data_for(CrammerSingerSVC)
    given = {"max_epochs": 5, "tol": 0.0, "random_state": 0}
    model = CrammerSingerSVC(solver=first, warm_start=True, **given).fit(X, y)
    w = model.coef_.copy()
    model.set_params(solver=second).fit(X, y)
    cold = CrammerSingerSVC(solver=second, **given).fit(X, y)
    if second in ("bcfw", "dual") and first != second:
        # there are no dual variables
        assert model.coef_.tobytes() == cold.coef_.tobytes()
    else:
        assert not np.array_equal(model.coef_, cold.coef_)
        assert not np.array_equal(model.coef_, w)


@ROUGH
@pytest.mark.parametrize("solver", ["bcfw", "sgd"])
def test_what_a_structured_svm_cannot_go_on_from(solver):
    X, y = data_for(CrammerSingerSVC)
    model = CrammerSingerSVC(solver=solver, warm_start=True, max_epochs=3).fit(X, y)
    before = dict(vars(model))
    with pytest.raises(
        ValueError, match="warm_start: expected the classes of the previous"
    ):
        model.fit(X, y + 1)
    with pytest.raises(ValueError, match="warm_start: expected the features"):
        model.fit(X[:, :2], y)
    assert vars(model) == before
    if solver == "bcfw":
        with pytest.raises(ValueError, match=r"warm_start: .* bcfw starts from"):
            model.fit(X, np.roll(y, 1))
    else:
        model.fit(X, np.roll(y, 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "smo"}, r"solver: expected one of \('dual', 'bcfw'"),
        ({"solver_options": {"rate": 1.0}}, "solver_options: expected None for solver"),
        ({"solver": "sgd", "solver_options": {"mystery": 1}}, "got 'mystery'"),
        ({"solver": "sgd", "store_dual": True}, "store_dual: expected False, or"),
        ({"solver": "sgd", "C": 1e-320}, "C: expected"),
    ],
)
def test_options_of_another_solver_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        CrammerSingerSVC(**options).fit(*data_for(CrammerSingerSVC))


def test_certificates_come_as_often_as_asked_for():
    X, y = data_for(CrammerSingerSVC)
    given = {"tol": 0.0, "max_epochs": 6, "certify_every": 3}
    for solver in CrammerSingerSVC.SOLVERS:
        with pytest.warns(ConvergenceWarning, match="max_epochs are used up"):
            model = CrammerSingerSVC(solver=solver, **given).fit(X, y)
        # bcfw begins with the gap of the first pass
        seen = [1, 4, 6] if solver == "bcfw" else [3, 6]
        assert [found.epoch for found in model.history_] == seen
