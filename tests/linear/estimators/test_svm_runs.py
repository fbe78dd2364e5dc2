"""SVMs of samples that go on: from a checkpoint, from the fit before."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from smoothsp.linear import CrammerSingerSVC, MulticlassSVM
from tests.truth.svm_objectives import MODELS, data_for

ROUGH = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SOLVERS = ("bcfw", "sgd", "svrg", "casimir")


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
def test_a_warm_start_on_other_samples_is_refused(model):
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
@pytest.mark.parametrize("first", SOLVERS)
@pytest.mark.parametrize("second", SOLVERS)
def test_a_warm_start_after_another_solver(first, second):
    X, y = data_for(CrammerSingerSVC)
    given = {"max_passes": 5, "tol": 0.0}
    model = MulticlassSVM(solver=first, warm_start=True, **given).fit(X, y)
    w = model.coef_.copy()
    model.set_params(solver=second).fit(X, y)
    cold = MulticlassSVM(solver=second, **given).fit(X, y)
    if second == "bcfw" and first != "bcfw":
        # there are no dual variables
        assert model.coef_.tobytes() == cold.coef_.tobytes()
    else:
        assert not np.array_equal(model.coef_, cold.coef_)
        assert not np.array_equal(model.coef_, w)


@ROUGH
@pytest.mark.parametrize("solver", SOLVERS)
def test_what_a_structured_svm_cannot_go_on_from(solver):
    X, y = data_for(CrammerSingerSVC)
    model = MulticlassSVM(solver=solver, warm_start=True, max_passes=3).fit(X, y)
    before = dict(vars(model))
    with pytest.raises(
        ValueError, match="warm_start: expected the classes of the previous"
    ):
        model.fit(X, y + 1)
    with pytest.raises(
        ValueError, match="warm_start: expected the classes of the previous"
    ):
        model.fit(X, y % 3)
    with pytest.raises(ValueError, match="warm_start: expected the features"):
        model.fit(X[:, :2], y)
    assert vars(model) == before
    if solver == "bcfw":
        with pytest.raises(ValueError, match=r"warm_start: .* bcfw starts from"):
            model.fit(X, np.roll(y, 1))
    else:
        model.fit(X, np.roll(y, 1))


@pytest.mark.parametrize("solver", ["bcfw", "sgd"])
def test_after_an_interrupt_without_a_gap_the_warning_says_so(solver):
    X, y = data_for(CrammerSingerSVC)

    def press(record):
        raise KeyboardInterrupt

    model = MulticlassSVM(solver=solver, callback=press, tol=1e-9)
    with pytest.warns(ConvergenceWarning, match="interrupted after") as caught:
        model.fit(X, y)
    text = str(caught[0].message)
    unknown = np.isnan(model.gap_)
    assert unknown == (solver == "sgd")
    assert ("the gap is not known" in text) == unknown
