"""Numbers near the ends of the range: exact, or an error that names the argument."""

import os
import re
import warnings
from functools import partial

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from smoothsp.linear import (
    F1SVC,
    ChainCRF,
    ChainSVM,
    CrammerSingerSVC,
    HingeSVC,
    LPBoostClassifier,
    WestonWatkinsSVC,
)
from smoothsp.linear.descent.coordinate_descent import Status
from tests import sweeps
from tests.sweeps import thinned
from tests.truth.svm_objectives import MODELS, data_for, losses

EVERY = (*MODELS, partial(CrammerSingerSVC, solver="bcfw"))
DTYPES = (np.float64, np.float32)


def fit(model, X, y, **more):
    """Fitted, whether it converged or not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y, **more)


@pytest.mark.parametrize("scale", [1e155, 1e308])
@pytest.mark.parametrize("model", EVERY)
def test_features_too_large_are_named(model, scale):
    X, y = data_for(model)
    X /= abs(X).max()
    message = r"X: expected samples whose squared norm fits float64, got inf at sample"
    with pytest.raises(ValueError, match=message + r" \d+; scale the features"):
        model().fit(X * scale, y)


@pytest.mark.parametrize("model", MODELS)
def test_the_range_is_that_of_the_dtype(model):
    X, y = data_for(model, dtype=np.float32)
    with pytest.raises(ValueError, match=r"squared norm fits float32, got .*e\+4"):
        model().fit(X * np.float32(1e20), y)
    assert np.isfinite(fit(model(), X.astype(float) * 1e20, y).coef_).all()


@pytest.mark.parametrize("model", MODELS)
def test_a_c_too_large_is_named(model):
    X, y = data_for(model)
    with pytest.raises(ValueError, match="C: expected losses at weights 0 whose sum"):
        model(C=1e308).fit(X, y)
    with pytest.raises(ValueError, match="C: expected C times the weights of a sample"):
        model(C=1e200).fit(X, y, sample_weight=np.full(len(y), 1e200))


@pytest.mark.parametrize("model", EVERY)
def test_scores_out_of_range_are_named(model):
    X, y = data_for(model)
    fitted = fit(model(), X, y)
    rows = X.copy()
    rows[7] = 1e308 * np.sign(fitted.coef_[0])
    fitted.coef_ = fitted.coef_ * 1e3
    for ask in (fitted.predict, fitted.decision_function):
        with pytest.raises(ValueError, match=r"X: expected .* scores fit .* sample 7"):
            ask(rows)


@pytest.mark.parametrize("dtype", thinned(DTYPES, 2))
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("C", [1e3, 1e9])
def test_what_rounding_hides_is_never_called_converged(model, C, dtype):
    # classes that can be told apart: the optimum does not depend on a large C
    k = 2 if model is HingeSVC else 3
    X = (
        np.repeat(np.eye(k), 4, axis=0)
        + np.random.default_rng(0).random((4 * k, k)) / 8
    )
    y = np.repeat(np.arange(k), 4)
    best = fit(model(C=1e3, tol=1e-9, max_epochs=5000), X, y).history_[-1].dual
    fitted = fit(model(C=C, random_state=0), X.astype(dtype), y)
    last = fitted.history_[-1]
    if fitted.status_ is Status.CONVERGED:
        assert best * (1 - 1e-6) <= last.primal <= 1.001 * best * (1 + 1e-6)
    else:
        # C times the rounding of a margin
        assert fitted.status_ is Status.ROUNDED
        assert last.gap <= 16 * np.finfo(dtype).eps * C * len(y) * k
    assert losses(model, fitted.decision_function(X), y).max() <= 1e-2
    assert C > 1e3 or fitted.status_ is Status.CONVERGED


# the loops of many classes take seconds to compile for float32
@pytest.mark.parametrize("model", thinned([HingeSVC, WestonWatkinsSVC], 2))
def test_rounding_ends_in_a_warning_unless_tol_is_0(model):
    X, y = data_for(model, dtype=np.float32)
    with pytest.warns(
        ConvergenceWarning, match="remaining gap is below rounding error.*float64"
    ):
        model(tol=1e-12, random_state=0).fit(X, y)
    fitted = model(tol=0, random_state=0).fit(X, y)
    assert fitted.status_ is Status.ROUNDED
    assert fitted.gap_ <= 1e-5 * fitted.history_[-1].primal


KINDS = {
    "HingeSVC": (HingeSVC, {}),
    "WestonWatkinsSVC": (WestonWatkinsSVC, {}),
    "WestonWatkinsSVC, rbf": (WestonWatkinsSVC, {"kernel": "rbf"}),
    "CrammerSingerSVC": (CrammerSingerSVC, {}),
    **{
        f"{model.__name__}, {solver}": (model, {"solver": solver, budget: 8})
        for model, budget in (
            (CrammerSingerSVC, "max_epochs"),
            (ChainSVM, "max_passes"),
            (ChainCRF, "max_passes"),
        )
        for solver in model.SOLVERS
    },
}
# how an error begins: with an argument of fit, of the estimator or of its solver
ARGUMENT = r"(X|C|sample_weight|gamma|rate): expected|choose a smaller rate"


def fit_or_refuse(name, scale, dtype=np.float64, C=1.0, weight=None):
    """The fitted model, or None after an error that names an argument."""
    model, options = KINDS[name]
    X, y = data_for(model, dtype=dtype)
    X = (X / abs(X).max() * dtype(scale)).astype(dtype)
    more = {} if weight is None else {"sample_weight": np.full(len(y), weight)}
    if model in (ChainSVM, ChainCRF):
        X, y = [X[:15], X[15:]], [y[:15], y[15:]]
    try:
        return fit(model(C=C, **options), X, y, **more)
    except (ValueError, FloatingPointError) as error:
        assert re.search(ARGUMENT, str(error)), error
        return None


def is_finite(fitted):
    names = ("coef_", "intercept_", "transitions_", "start_", "end_", "dual_coef_")
    parts = [getattr(fitted, name) for name in names if hasattr(fitted, name)]
    return bool(parts) and all(np.isfinite(part).all() for part in parts)


@pytest.mark.parametrize("name", KINDS)
def test_no_numbers_lead_to_coefficients_that_are_none(name):
    cases = [(scale, 1.0) for scale in (1e-300, 1e-30, 1e38, 1e145, 1e155)]
    cases += [(1.0, C) for C in (5e-324, 1e300, 1.7e308)]
    cases += [(1e145, 1e30), (1e-145, 1e-30), (1e-100, 1e300)]
    cases, fitted = cases[:: 1 if sweeps.long else 3], 0
    for scale, C in cases:
        found = fit_or_refuse(name, scale, C=C)
        assert found is None or is_finite(found), (scale, C)
        assert found is None or not np.isinf(found.gap_), (scale, C)
        fitted += found is not None
    assert fitted >= (3 if sweeps.long else 1)
    # out of range for every way to multiply
    assert fit_or_refuse(name, 1e300) is None


@pytest.mark.long
# other solvers compute in float64
@pytest.mark.parametrize(
    "name", [name for name in KINDS if "SVC" in name and "," not in name]
)
def test_no_numbers_of_float32_lead_to_coefficients_that_are_none(name):
    cases = [(scale, None) for scale in (1e-38, 1e-15, 1e15, 1e18, 1e19)]
    cases += [(s, w) for s in (1e-15, 1.0, 1e15) for w in (1e-38, 1e38)]
    fitted = 0
    for scale, weight in cases:
        found = fit_or_refuse(name, scale, np.float32, weight=weight)
        assert found is None or is_finite(found), (scale, weight)
        fitted += found is not None
    assert fitted >= 5
    for scale, weight in ((1e20, None), (1e38, None), (1.0, 1e45)):
        assert fit_or_refuse(name, scale, np.float32, weight=weight) is None


@pytest.mark.parametrize("model", [CrammerSingerSVC, WestonWatkinsSVC])
def test_costs_of_zero_are_solved_by_weights_of_zero(model):
    X, y = np.eye(3), [0, 1, 2]
    found = model(cost=np.zeros((3, 3))).fit(X, y)
    assert found.gap_ == 0 and not found.coef_.any()


@pytest.mark.skipif(not hasattr(os, "sysconf"), reason="its memory is unknown")
def test_repeating_more_samples_than_there_is_memory_raises():
    with pytest.raises(MemoryError, match="sample_weight repeats"):
        F1SVC().fit(np.eye(2), [0, 1], sample_weight=[1e15, 1])


def test_weights_of_classes_are_named():
    with pytest.raises(ValueError, match=r"class_weight: .* classes of y \(0, 1\)"):
        HingeSVC(class_weight={0: 1, 7: 2}).fit(np.eye(2), [0, 1])


def test_weights_of_boosted_samples_may_be_any_numbers():
    X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 1, 0, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few = LPBoostClassifier().fit(X, y, [1e20, 1e20, 5e-324, 5e-324])
    assert few.score(X[:2], y[:2]) == 1 and not few.sample_weights_[2:].any()
    with pytest.raises(ValueError, match="sample_weight: expected weights whose sum"):
        LPBoostClassifier().fit(X, y, np.full(4, 1e308))
