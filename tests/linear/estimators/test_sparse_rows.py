"""Sparse matrices whose arrays were changed behind scipy's back are refused, by name.

Compiled loops, and scipy's own, read and write where indices point.
"""

from functools import partial

import numpy as np
import pytest
from scipy import sparse

from smoothsp.linear import ChainCRF, ChainSVM, CrammerSingerSVC
from tests.truth.svm_objectives import MODELS, data_for

EVERY = (*MODELS, partial(CrammerSingerSVC, solver="bcfw"))
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def texts(model, form=sparse.csr_matrix):
    X, y = data_for(model)
    X[X < 0] = 0
    return form(X), y


def with_index(value):
    def damage(X):
        X.indices[5] = value

    return damage


def with_ends(change):
    def damage(X):
        X.indptr = change(X.indptr.copy())

    return damage


def _put(array, place, value):
    array[place] = value
    return array


DAMAGE = {
    "index past the last column": (
        with_index(4),
        r"X: expected column indices from 0 to 3, got 4 in row \d",
    ),
    "negative index": (with_index(-1), r"expected column indices from 0 to 3, got -1"),
    "indptr that falls": (
        with_ends(lambda p: _put(p, 3, p[2] - 1)),
        "X: expected an indptr of 41 numbers that rise from 0 .* build the matrix anew",
    ),
    "indptr too far": (with_ends(lambda p: _put(p, -1, 10**6)), "expected an indptr"),
    "indptr too short": (with_ends(lambda p: p[:-1]), "expected an indptr of 41"),
    "fewer values": (
        lambda X: setattr(X, "data", X.data[:-3]),
        "expected an indptr .* number of entries, ",
    ),
}


def calls_of(model):
    X, y = texts(model)
    fitted = model().fit(X, y)
    fresh = model()
    return {
        "fit": lambda X: fresh.fit(X, y),
        "predict": fitted.predict,
        "decision_function": fitted.decision_function,
        "score": lambda X: fitted.score(X, y),
    }


@pytest.mark.parametrize("model", EVERY)
def test_indices_that_point_outside_raise(model):
    for call in calls_of(model).values():
        for damage, message in DAMAGE.values():
            X, _ = texts(model)
            damage(X)
            with pytest.raises(ValueError, match=message):
                call(X)


@pytest.mark.parametrize("model", EVERY)
def test_other_forms_are_checked_before_they_are_converted(model):
    calls = calls_of(model)
    for call in calls.values():
        by_column, _ = texts(model, sparse.csc_matrix)
        by_column.indices[2] = 40
        with pytest.raises(
            ValueError, match="row indices from 0 to 39, got 40 in column 0"
        ):
            call(by_column)
        blocks, _ = texts(model, sparse.bsr_matrix)
        blocks.indices[2] = 10**6
        with pytest.raises(ValueError, match=r"column indices .*, got 1000000 in row"):
            call(blocks)
        for axis, length, kind in ((0, 40, "row"), (1, 4, "column")):
            triples, _ = texts(model, sparse.coo_array)
            triples.coords[axis][1] = -3
            with pytest.raises(
                ValueError, match=f"{kind} indices from 0 to {length - 1}, got -3"
            ):
                call(triples)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("model", EVERY)
def test_order_is_looked_at_and_not_believed(model, intercept):
    X, y = texts(model)
    expected = model(random_state=0, fit_intercept=intercept).fit(X, y)
    turned, _ = texts(model)
    assert turned.has_canonical_format
    for i in range(len(y)):
        first, last = turned.indptr[i : i + 2]
        turned.indices[first:last] = turned.indices[first:last][::-1].copy()
        turned.data[first:last] = turned.data[first:last][::-1].copy()
    # room that no row uses
    turned.indices = np.append(turned.indices, [77, 78]).astype(np.int32)
    turned.data = np.append(turned.data, [1.0, 1.0])
    # scipy remembers what it once found
    assert turned.has_canonical_format
    kept = turned.indices.copy(), turned.data.copy(), turned.indptr.copy()
    fitted = model(random_state=0, fit_intercept=intercept).fit(turned, y)
    np.testing.assert_allclose(fitted.coef_, expected.coef_, rtol=1e-12, atol=1e-12)
    found = fitted.decision_function(turned)
    np.testing.assert_allclose(found, expected.decision_function(X), atol=1e-10)
    for mine, before in zip(
        (turned.indices, turned.data, turned.indptr), kept, strict=True
    ):
        np.testing.assert_array_equal(mine, before)


LENGTHS = [5] * 8
TAGS = [["A", "B", "A", "C", "B"]] * 8


def sentences(form=sparse.csr_matrix):
    return texts(EVERY[0], form)[0]


def calls_of_tagger(model):
    fitted = model(max_passes=2).fit(sentences(), TAGS, lengths=LENGTHS)

    return {
        "fit": lambda X: model(max_passes=2).fit(X, TAGS, lengths=LENGTHS).weights_,
        "predict": lambda X: np.concatenate(fitted.predict(X, LENGTHS)),
        "score": lambda X: fitted.score(X, TAGS, LENGTHS),
        "decision_function": lambda X: np.concatenate(
            fitted.decision_function(X, LENGTHS)
        ),
    }


def in_list(call):
    """The matrix as one of two sentences."""
    tags = [["A", "B"] * 20, ["A", "C", "B"]]
    return lambda X: call([X, sentences()[:3]], tags)


@pytest.mark.parametrize("model", [ChainSVM, ChainCRF])
def test_sentences_whose_indices_point_outside_raise(model):
    calls = calls_of_tagger(model)
    calls["fit, list"] = in_list(model(max_passes=2).fit)
    more = {
        "far": (with_ends(lambda p: _put(p, 5, 10**9)), "expected an indptr of 41"),
        "first": (with_ends(lambda p: _put(p, 0, 2)), "expected an indptr of 41"),
        "axes": (
            lambda X: setattr(X, "indices", X.indices[:, None]),
            r"expected flat indices, got shape \(\d+, 1\)",
        ),
        "entries": (
            lambda X: setattr(X, "data", X.data[:, None]),
            r"expected entries in an array of 1 axes, got ndarray of shape",
        ),
        "NaN": (lambda X: _put(X.data, 2, np.nan), "X: expected finite numbers"),
    }
    for call in calls.values():
        for damage, message in (DAMAGE | more).values():
            X = sentences()
            damage(X)
            message = message.replace("X: ", r"X(\[0\])?: ")
            with pytest.raises(ValueError, match=message):
                call(X)
        X = sentences()
        X.indices = X.indices.astype(np.float64)
        with pytest.raises(TypeError, match="indices of int32 or int64, got float64"):
            call(X)


@pytest.mark.parametrize("model", [ChainSVM, ChainCRF])
def test_entries_of_sentences_may_have_any_order_and_be_split(model):
    X = sentences()
    rows = np.repeat(np.arange(40), np.diff(X.indptr))
    order = np.lexsort((-X.indices, rows))
    half = (X.data[order] / 2).repeat(2)
    split = sparse.csr_matrix(
        (np.append(half, 7.0), np.append(X.indices[order].repeat(2), 3), 2 * X.indptr),
        shape=X.shape,
    )
    split.has_canonical_format = split.has_sorted_indices = True
    for call in calls_of_tagger(model).values():
        np.testing.assert_array_equal(call(split), call(X))
