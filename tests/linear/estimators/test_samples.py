"""Odd samples, labels and weights: legal ones, and what is said of the others."""

import numpy as np
import pytest
from scipy import sparse

from smoothsp.linear import HingeSVC
from tests.sweeps import thinned
from tests.truth.svm_objectives import (
    MODELS,
    blobs,
    data_for,
    optimum,
    primal,
)

EXACT = {
    "stopping": "gap", "tol": 1e-11, "max_epochs": 100_000, "random_state": 0,
    "fit_intercept": False,
}  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_weights_of_samples_multiply_c(model):
    X, y = data_for(model)
    weight = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = model(C=0.4, **EXACT).fit(X, y, sample_weight=weight)
    assert weighted.history_[-1].primal == pytest.approx(
        optimum(model, X, y, 0.4 * weight), rel=1e-6
    )
    rows = np.repeat(np.arange(len(y)), weight)
    repeated = model(C=0.4, **EXACT).fit(X[rows], y[rows])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=2e-5)


@pytest.mark.parametrize("model", MODELS)
def test_weights_of_classes_multiply_c(model):
    X, y = data_for(model)
    factors = {0: 3.0, 1: 0.5}
    weight = np.array([factors.get(int(label), 1.0) for label in y])
    by_class = model(class_weight=factors, **EXACT).fit(X, y)
    by_sample = model(**EXACT).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(by_class.coef_, by_sample.coef_)
    counts = np.bincount(y)
    balanced = model(class_weight="balanced", **EXACT).fit(X, y)
    weight = (len(y) / len(counts) / counts)[y]
    expected = model(**EXACT).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(balanced.coef_, expected.coef_, atol=1e-12)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("scaling", [1.0, 3.0])
def test_an_intercept_is_one_more_feature(model, scaling):
    X, y = data_for(model)
    options = EXACT | {"fit_intercept": True, "intercept_scaling": scaling}
    with_one = model(**options).fit(X, y)
    wide = np.hstack([X, np.full((len(y), 1), scaling)])
    expected = model(**EXACT).fit(wide, y)
    np.testing.assert_array_equal(with_one.coef_, expected.coef_[:, :-1])
    np.testing.assert_array_equal(with_one.intercept_, scaling * expected.coef_[:, -1])
    assert with_one.n_features_in_ == X.shape[1]
    scores = with_one.decision_function(X)
    np.testing.assert_allclose(scores, expected.decision_function(wide))
    assert (model(**EXACT).fit(X, y).intercept_ == 0).all()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("costs", [False, True])
def test_samples_without_length_pay_and_change_nothing(model, costs):
    X, y = data_for(model)
    if costs and model is HingeSVC:
        return
    options = dict(EXACT)
    table = None
    if costs:
        k = int(y.max()) + 1
        table = 1.0 * np.arange(k * k).reshape(k, k) % 3
        np.fill_diagonal(table, 0)
        options["cost"] = table
    without = model(**options).fit(X, y)
    X, y = np.vstack([np.zeros((3, 4)), X]), np.concatenate([[1, 0, 1], y])
    # a squared norm that underflows is none either
    X[2, 0] = 1e-170
    fitted = model(**options).fit(X, y)
    np.testing.assert_allclose(fitted.coef_, without.coef_, atol=1e-5)
    assert fitted.gap_ <= 1e-11 * (1 + len(y))
    found = primal(model, fitted.coef_, X, y, 1.0, table)
    assert model is HingeSVC or fitted.history_[-1].primal == pytest.approx(found)


@pytest.mark.parametrize("model", MODELS)
def test_dense_and_sparse_samples_are_the_same(model):
    X, y = data_for(model)
    X[X < 0.3] = 0
    expected = model(random_state=0).fit(X, y)
    twice = sparse.csr_matrix(X)
    # every entry in two halves, in the wrong order
    halves = sparse.csr_matrix(
        (
            np.concatenate([np.repeat(row.data / 2, 2)[::-1] for row in twice]),
            np.concatenate([np.repeat(row.indices, 2)[::-1] for row in twice]),
            2 * twice.indptr,
        ),
        shape=X.shape,
    )
    before = halves.data.copy()
    wide = sparse.csr_matrix(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype("i8")
    for form in (twice, halves, wide, sparse.csc_array(X), np.asfortranarray(X)):
        fitted = model(random_state=0).fit(form, y)
        np.testing.assert_allclose(fitted.coef_, expected.coef_, rtol=1e-12)
        found = fitted.decision_function(form)
        np.testing.assert_allclose(found, expected.decision_function(X), rtol=1e-10)
    np.testing.assert_array_equal(halves.data, before)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "names",
    [["b", "a", "d", "c", "e"], [-3, 7, 0, 100, 2], [2.0, 1.0, 4.0, 3.0, 9.0]],
)
def test_labels_are_what_they_are(model, names):
    X, y = data_for(model)
    labels = np.array(names)[y]
    ranks = np.argsort(np.argsort(names[: y.max() + 1]))
    expected = model(random_state=0).fit(X, ranks[y])
    fitted = model(random_state=0).fit(X, labels)
    np.testing.assert_array_equal(fitted.coef_, expected.coef_)
    assert list(fitted.classes_) == sorted(set(labels))
    assert list(fitted.predict(X)) == list(fitted.classes_[expected.predict(X)])
    if model is HingeSVC:
        fitted = model(random_state=0).fit(X, y == 1)
        assert fitted.predict(X).dtype == bool


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dtype", thinned([np.float64, np.float32], 2))
def test_float_types_stay(model, dtype):
    X, y = data_for(model, dtype=dtype)
    options = {"tol": 1e-4, "fit_intercept": True, "random_state": 0}
    fitted = model(**options).fit(X, y)
    assert fitted.coef_.dtype == fitted.intercept_.dtype == dtype
    assert fitted.decision_function(X).dtype == dtype
    expected = model(**options).fit(X.astype(float), y)
    # the objective is strongly convex: |w - w*|^2 <= 2 gap
    far = np.linalg.norm(fitted.coef_ - expected.coef_)
    assert far <= np.sqrt(2 * fitted.gap_) + np.sqrt(2 * expected.gap_) + 1e-5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"C": 0.0}, "C: expected a positive number, got 0.0"),
        ({"C": np.inf}, "C: expected a positive number"),
        ({"C": "1"}, "C: expected a number, got str"),
        ({"shuffle": 1}, "shuffle: expected a bool"),
        ({"random_state": -1}, r"random_state: expected None, an int .*, got -1$"),
        ({"tol": -1e-3}, "tol: expected a number of at least 0"),
        ({"stopping": "kkt"}, "stopping: expected one of"),
        ({"max_epochs": 0}, "max_epochs: expected at least 1"),
        ({"class_weight": "even"}, "class_weight: expected None"),
        ({"class_weight": {0: -1.0}}, "class_weight of class .*: expected a number"),
        ({"cost": np.ones((3, 3))}, "cost: expected zeros on the diagonal"),
        ({"cost": np.eye(2)}, r"cost: expected \(class, class\) = \(3, 3\)"),
        ({"cost": -np.ones((3, 3))}, "cost: expected finite numbers"),
        ({"solver": "shark"}, "solver: expected one of"),
        ({"kernel": "poly"}, "kernel: expected one of"),
    ],
)
def test_wrong_parameters_are_named(change, message):
    X, y = blobs(20, 3, 3)
    for model in MODELS:
        if set(change) <= set(model().get_params()):
            labels = y > 0 if model is HingeSVC else y
            with pytest.raises((TypeError, ValueError), match=message):
                model(**change).fit(X, labels)


@pytest.mark.parametrize("model", MODELS)
def test_wrong_data_are_named(model):
    X, y = data_for(model)
    with pytest.raises(ValueError, match="at least two classes, got only one class, 3"):
        model().fit(X, np.full(len(y), 3))
    for bad in (np.nan, np.inf):
        wrong = X.copy()
        wrong[3, 1] = bad
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            model().fit(wrong, y)
        with pytest.raises(ValueError, match=r"sample_weight: .* at sample 2"):
            model().fit(X, y, sample_weight=np.where(np.arange(len(y)) == 2, bad, 1))
    with pytest.raises(ValueError, match=r"sample_weight: .*got -1.0 at sample 0"):
        model().fit(X, y, sample_weight=-np.ones(len(y)))
    with pytest.raises(ValueError, match="only zeros"):
        model().fit(X, y, sample_weight=np.zeros(len(y)))
    with pytest.raises(ValueError, match=r"sample_weight: expected \(samples,\)"):
        model().fit(X, y, sample_weight=np.ones(3))
    with pytest.raises(TypeError, match=r"sample_weight: expected numbers, got"):
        model().fit(X, y, sample_weight="heavy")
    with pytest.raises(TypeError, match="y: expected labels that can be sorted"):
        model().fit(X, [None if label else "a" for label in y])
    with pytest.raises(TypeError, match=r"resume: expected the state of a cert.* int"):
        model().fit(X, y, resume=5)


def test_a_third_class_is_too_many_for_the_binary_svm():
    X, y = blobs(20, 3, 3)
    with pytest.raises(ValueError, match="expected two classes, got 3; WestonWatkins"):
        HingeSVC().fit(X, y)
