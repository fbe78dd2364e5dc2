"""How the estimators behave: scikit-learn's rules, seeds, interrupts, memory."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from smoothsp.linear import Certificate, WestonWatkinsSVC
from smoothsp.linear.inputs import arrays
from tests.truth.svm_objectives import MODELS, MULTICLASS, blobs, data_for


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
def test_a_fitted_model_can_be_pickled(model):
    X, y = data_for(model)
    fitted = model(random_state=0).fit(X, y)
    kept = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(kept.predict(X), fitted.predict(X))
    assert kept.status_ is fitted.status_


@pytest.mark.parametrize("model", MODELS)
def test_the_callback_sees_every_certificate(model):
    X, y = data_for(model)
    seen = []
    fitted = model(random_state=0, callback=seen.append).fit(X, y)
    assert seen == fitted.history_
    assert all(isinstance(one, Certificate) for one in seen)


@pytest.mark.parametrize("model", MULTICLASS)
def test_what_does_not_fit_raises_before_it_is_allocated(model, monkeypatch):
    X, y = blobs(50, 6, 5)
    monkeypatch.setattr(arrays, "available_bytes", lambda: 1000)
    message = (
        r"needs 3.84e-07 GB for weights of 6 features x 5 classes, 3.2e-06 GB for "
        r"coefficients of 50 samples x 5 classes; this machine has 1e-06 GB left\. A "
        r"fit keeps .* float32"
    )
    with pytest.raises(MemoryError, match=message):
        model(fit_intercept=False).fit(X, y)


def test_a_kernel_matrix_that_does_not_fit_raises(monkeypatch):
    X, y = blobs(50, 6, 5)
    monkeypatch.setattr(arrays, "available_bytes", lambda: 10_000)
    with pytest.raises(MemoryError, match="a kernel matrix of 50 x 50 samples"):
        WestonWatkinsSVC(kernel="rbf").fit(X, y)
