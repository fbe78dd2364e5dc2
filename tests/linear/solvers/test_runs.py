"""How the estimators behave: scikit-learn's rules, seeds, interrupts, memory."""

import io
import pickle
import re
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from smoothsp.linear import Certificate, HingeSVC, WestonWatkinsSVC
from smoothsp.linear.inputs import arrays
from tests.sweeps import thinned
from tests.truth.svm_objectives import MODELS, MULTICLASS, blobs, data_for

NEVER = "without an intercept no weight of a class moves a hyperplane off the origin"
ROUGH = "equal to the default tolerance, not to seven digits"
EXPECTED = {
    "check_class_weight_classifiers": NEVER,
    "check_sample_weight_equivalence_on_dense_data": ROUGH,
    "check_sample_weight_equivalence_on_sparse_data": ROUGH,
}
EXACT = {"stopping": "gap", "tol": 1e-14, "random_state": 0, "fit_intercept": True}


# one of each base in plain runs: of several classes here, of two by its defaults
ESTIMATORS = [model(**EXACT) for model in (*MULTICLASS, HingeSVC)]
ESTIMATORS += [WestonWatkinsSVC(kernel="rbf", gamma=0.1, **EXACT)]


@pytest.mark.parametrize("estimator", thinned(ESTIMATORS, len(ESTIMATORS)))
def test_scikit_learn_accepts_the_estimators(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(estimator, on_skip=None)


@pytest.mark.parametrize("model", thinned((HingeSVC, *MULTICLASS), 3))
def test_scikit_learn_accepts_the_defaults(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(model(), on_skip=None, expected_failed_checks=EXPECTED)


@pytest.mark.parametrize("model", MODELS)
def test_a_seed_gives_the_same_bits(model):
    X, y = data_for(model)
    first = model(random_state=5).fit(X, y)
    again = clone(first).fit(X, y)
    np.testing.assert_array_equal(first.coef_, again.coef_)
    assert [c.gap for c in first.history_] == [c.gap for c in again.history_]
    other = model(random_state=6).fit(X, y)
    assert (other.coef_ != first.coef_).any()
    cyclic = [model(shuffle=False, random_state=s).fit(X, y).coef_ for s in (5, 6)]
    np.testing.assert_array_equal(*cyclic)
    stream = np.random.RandomState(0)
    fits = [model(random_state=stream).fit(X, y).coef_ for _ in range(2)]
    assert (fits[0] != fits[1]).any()


@pytest.mark.parametrize("model", MODELS)
def test_a_fitted_model_can_be_kept(model):
    X, y = data_for(model)
    fitted = model(random_state=0).fit(X, y)
    kept = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(kept.predict(X), fitted.predict(X))
    assert kept.status_ is fitted.status_


@pytest.mark.parametrize("model", MODELS)
def test_dual_coefficients_come_on_request(model):
    X, y = data_for(model)
    assert not hasattr(model(random_state=0).fit(X, y), "dual_coef_")
    assert hasattr(model(random_state=0, store_dual=True).fit(X, y), "dual_coef_")


@pytest.mark.parametrize("model", MODELS)
def test_an_unfitted_model_says_so(model):
    with pytest.raises(NotFittedError):
        model().predict(np.ones((2, 2)))


@pytest.mark.parametrize("model", MODELS)
def test_the_callback_sees_every_certificate(model):
    X, y = data_for(model)
    seen = []
    fitted = model(random_state=0, callback=seen.append).fit(X, y)
    assert seen == fitted.history_
    assert all(isinstance(one, Certificate) for one in seen)


@pytest.mark.parametrize("model", MODELS)
def test_too_few_epochs_are_told(model):
    X, y = data_for(model)
    with pytest.warns(ConvergenceWarning, match="max_epochs are used up; the gap"):
        fitted = model(tol=0, max_epochs=2).fit(X, y)
    assert "max_epochs" in fitted.status_.value and fitted.n_epochs_ == 2


@pytest.mark.parametrize("model", MULTICLASS)
def test_what_does_not_fit_is_refused_before_it_is_allocated(model, monkeypatch):
    X, y = blobs(50, 6, 5)
    monkeypatch.setattr(arrays, "available_bytes", lambda: 1000)
    message = (
        r"needs 3.84e-07 GB for weights of 6 features x 5 classes, 3.2e-06 GB for "
        r"coefficients of 50 samples x 5 classes; this machine has 1e-06 GB left\. A "
        r"fit keeps .* float32"
    )
    with pytest.raises(MemoryError, match=message):
        model(fit_intercept=False).fit(X, y)


def test_a_kernel_matrix_that_does_not_fit_is_refused(monkeypatch):
    X, y = blobs(50, 6, 5)
    monkeypatch.setattr(arrays, "available_bytes", lambda: 10_000)
    with pytest.raises(MemoryError, match="a kernel matrix of 50 x 50 samples"):
        WestonWatkinsSVC(kernel="rbf").fit(X, y)


def test_the_machine_tells_its_memory():
    free = arrays.available_bytes()
    assert free is None or free > 1e6
    arrays.require_memory({"nothing much": 1000}, "")


def test_a_long_fit_shows_its_progress(monkeypatch):
    X, y = blobs(50, 6, 5)
    screen = io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    WestonWatkinsSVC(random_state=0).fit(X, y)
    assert screen.getvalue() == ""
    fitted = WestonWatkinsSVC(random_state=0, verbose=True).fit(X, y)
    assert re.match(r"\rWestonWatkinsSVC: epoch 1, 100%.*s\n", screen.getvalue())
    assert fitted.n_epochs_ > 1
