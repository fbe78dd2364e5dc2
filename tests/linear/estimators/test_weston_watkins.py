"""The greedy baseline, the kernel form, and the rbf kernel of Weston-Watkins."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.metrics.pairwise import rbf_kernel

from smoothsp.linear import WestonWatkinsSVC
from tests.sweeps import thinned
from tests.truth.svm_objectives import blobs, optimum

EXACT = {
    "stopping": "gap", "tol": 1e-10, "max_epochs": 100_000, "random_state": 0,
    "fit_intercept": False,
}  # fmt: skip


def gram_root(gram):
    """Features whose products are the Gram matrix."""
    values, vectors = np.linalg.eigh(gram)
    return vectors * np.sqrt(np.maximum(values, 0))


@pytest.mark.parametrize("C", [0.05, 1.0])
@pytest.mark.parametrize("shrinking", [True, False])
def test_greedy_takes_the_same_way(C, shrinking):
    X, y = blobs(60, 6, 8)
    options = {"C": C, "random_state": 9, "tol": 9e-4, "shrinking": shrinking}
    options |= {"stopping": "relative_gap", "certify_every": 1}
    exact = WestonWatkinsSVC(**options).fit(X, y)
    greedy = WestonWatkinsSVC(solver="greedy", **options).fit(X, y)
    assert greedy.n_epochs_ == exact.n_epochs_
    first, other = greedy.history_[0].gap, exact.history_[0].gap
    assert first == pytest.approx(other, rel=1e-5)
    # the inner tolerance of 1e-6 leaves a trace: it is another solver
    assert first != other
    np.testing.assert_allclose(greedy.coef_, exact.coef_, atol=1e-4)


@pytest.mark.parametrize("solver", ["walrus", "greedy"])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_linear_kernel_takes_the_same_way_as_the_linear_form(solver, intercept):
    X, y = blobs(40, 4, 5)
    options = {"random_state": 2, "tol": 1e-4, "C": 0.3, "solver": solver}
    # which samples rest depends on the last digits of the gap
    options["shrinking"] = solver == "walrus"
    options |= {"fit_intercept": intercept, "intercept_scaling": 0.5}
    linear = WestonWatkinsSVC(store_dual=True, **options).fit(X, y)
    kernel = WestonWatkinsSVC(kernel="precomputed", **options).fit(X @ X.T, y)
    assert kernel.n_epochs_ == linear.n_epochs_
    new = np.random.default_rng(1).normal(size=(7, 4))
    found = kernel.decision_function(new @ X.T)
    np.testing.assert_allclose(found, linear.decision_function(new), atol=1e-10)
    np.testing.assert_allclose(kernel.intercept_, linear.intercept_, atol=1e-10)
    for one, other in zip(kernel.history_, linear.history_, strict=True):
        assert one.gap == pytest.approx(other.gap, rel=1e-8)
        assert one.dual == pytest.approx(other.dual, rel=1e-10)


@pytest.mark.parametrize("gamma", [0.3, "scale", "auto"])
def test_the_rbf_kernel_is_its_gram_matrix(gamma):
    X, y = blobs(40, 4, 5)
    value = {"scale": 1 / (4 * X.var()), "auto": 1 / 4}.get(gamma, gamma)
    rbf = WestonWatkinsSVC(kernel="rbf", gamma=gamma, random_state=0).fit(X, y)
    gram = rbf_kernel(X, gamma=value)
    same = WestonWatkinsSVC(kernel="precomputed", random_state=0).fit(gram, y)
    assert rbf.gamma_ == pytest.approx(value)
    found = rbf.decision_function(X)
    np.testing.assert_allclose(found, same.decision_function(gram), atol=1e-9)
    assert (rbf.predict(X) == rbf.classes_[found.argmax(1)]).all()
    np.testing.assert_array_equal(rbf.support_vectors_, X[rbf.support_])


@pytest.mark.parametrize("dtype", thinned([np.float64, np.float32], 2))
def test_the_optimum_with_a_kernel_is_that_of_a_general_solver(dtype):
    X, y = blobs(25, 3, 3)
    gram = rbf_kernel(X, gamma=0.5).astype(dtype)
    tol = 1e-10 if dtype == np.float64 else 3e-5
    fitted = WestonWatkinsSVC(C=0.7, kernel="precomputed", **EXACT | {"tol": tol})
    fitted.fit(gram, y)
    features = gram_root(gram.astype(np.float64))
    expected = optimum(WestonWatkinsSVC, features, y, 0.7)
    assert fitted.history_[-1].primal == pytest.approx(expected, rel=1e-5)
    assert fitted.decision_function(gram).dtype == dtype


def test_two_classes_with_a_kernel_have_one_score():
    X, y = blobs(30, 3, 2)
    linear = WestonWatkinsSVC(**EXACT).fit(X, y)
    kernel = WestonWatkinsSVC(kernel="precomputed", **EXACT).fit(X @ X.T, y)
    scores = kernel.decision_function(X @ X.T)
    assert scores.shape == (30,) and kernel.dual_coef_.shape[0] == 1
    np.testing.assert_allclose(scores, linear.decision_function(X), atol=1e-5)
    assert (kernel.predict(X @ X.T) == linear.predict(X)).all()


@pytest.mark.parametrize(
    ("gram", "message"),
    [
        (np.ones((4, 3)), "expected a Gram matrix"),
        (np.triu(np.ones((4, 4))), "expected a symmetric Gram matrix"),
        (-np.eye(4), "diagonal of at least 0"),
    ],
)
def test_a_matrix_that_is_no_gram_matrix_is_refused(gram, message):
    with pytest.raises(ValueError, match=message):
        model = WestonWatkinsSVC(kernel="precomputed", fit_intercept=False)
        model.fit(gram, [0, 1, 0, 1])


def test_a_centred_kernel_is_one_with_an_intercept():
    X, y = load_iris(return_X_y=True)
    gram = X @ X.T
    centred = gram - gram.mean()
    model = WestonWatkinsSVC(kernel="precomputed", random_state=0, tol=1e-6)
    least = centred.diagonal().min()
    assert least < 0
    found = model.fit(centred, y).decision_function(centred)
    lifted = centred + 1 - least
    model.set_params(fit_intercept=False).fit(lifted, y)
    np.testing.assert_allclose(found, model.decision_function(lifted))
    with pytest.raises(ValueError, match="X: expected a Gram matrix with a diagonal"):
        model.fit(centred, y)


def test_a_fitted_model_stays_what_it_is_until_the_next_fit():
    X, y = blobs(20, 3, 4)
    model = WestonWatkinsSVC(kernel="rbf", random_state=0).fit(X, y)
    found = model.decision_function(X)
    for kernel in ("linear", "precomputed"):
        model.set_params(kernel=kernel)
        np.testing.assert_array_equal(model.decision_function(X), found)
    model.set_params(kernel="linear").fit(X, y)
    # nothing of the fit before
    others = ("dual_coef_", "gamma_", "support_", "support_vectors_")
    assert not any(hasattr(model, name) for name in others)
    found = model.decision_function(X)
    np.testing.assert_array_equal(found, X @ model.coef_.T + model.intercept_)
    np.testing.assert_array_equal(
        model.set_params(kernel="rbf").decision_function(X), found
    )
    with pytest.raises(ValueError, match="gamma: expected"):
        model.set_params(gamma=-1.0).fit(X, y)
    np.testing.assert_array_equal(model.decision_function(X), found)
    assert not hasattr(model.set_params(gamma=1.0).fit(X, y), "coef_")
