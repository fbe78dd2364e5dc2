"""The estimator over any structure."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import cross_val_score

from smoothsp.linear import ChainSVM, StructuredSVM
from smoothsp.linear.problems import Parts, Shared, StructureProblem
from smoothsp.oracles import Chain, ProjectiveDependencies

HIDDEN = np.random.default_rng(1).normal(size=6)


def arcs(X):
    return {"arcs": Parts.of_examples(X)}


def trees(potentials, batch):
    words = batch.sizes["arcs"][:, 0] - 1
    return ProjectiveDependencies(potentials["arcs"], lengths=words)


def treebank(seed=0, n=8):
    """Sentences of up to four words whose trees a linear model explains."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, size=n)
    X = [rng.normal(size=(m, m, 6)) for m in sizes]
    return X, StructureProblem(trees, arcs(X)).decode(HIDDEN)


@pytest.fixture(scope="module")
def bank():
    return treebank()


@pytest.fixture
def X(bank):
    return bank[0]


@pytest.fixture
def Y(bank):
    return bank[1]


def test_a_fit_ends_at_its_certificate(X, Y):
    records = []
    model = StructuredSVM(trees, arcs, C=10.0, tol=1e-3, callback=records.append)
    assert model.fit(X, Y) is model
    problem, lam = StructureProblem(trees, arcs(X), Y), 1 / (10 * len(X))
    value = problem.primal(model.weights_, lam)
    assert model.primal_ == pytest.approx(value, abs=1e-12)
    assert model.gap_ <= 1e-3 * value and model.dual_ <= value
    assert model.history_ == records and model.n_iter_ == model.n_passes_ > 0
    assert np.array_equal(model.coef_["arcs"], model.weights_)
    # a minimum: no point near has a lower value by more than the gap
    for step in np.random.default_rng(0).normal(size=(20, 6)) * 0.01:
        assert problem.primal(model.weights_ + step, lam) >= value - model.gap_


def test_trees_of_other_sentences_are_found(X, Y):
    model = StructuredSVM(trees, arcs, C=10.0).fit(X, Y)
    assert model.score(X, Y) == 1
    more, gold = treebank(7, n=20)
    found = model.predict(more)
    assert [y.shape for y in found] == [y.shape for y in gold]
    right = sum((a == b).sum() for a, b in zip(found, gold, strict=True))
    assert model.score(more, gold) == right / sum(y.size for y in gold) > 0.8


def test_it_is_an_estimator_like_others(X, Y):
    model = StructuredSVM(trees, arcs, C=3.0, tol=1e-2, solver_options={"cache": False})
    again = clone(model)
    assert again.get_params() == model.get_params()
    again.set_params(C=10.0, tol=0.1, solver_options=None)
    scores = cross_val_score(again, X, Y, cv=2, error_score="raise")
    assert scores.shape == (2,) and scores.mean() > 0.5
    with pytest.raises(NotFittedError):
        model.predict(X)


def words(X):
    return {
        "emissions": Parts.of_examples(X, states=2),
        "transitions": Shared((2, 2)),
        "start": Shared((2,)),
        "end": Shared((2,)),
    }


def chains(potentials, batch):
    return Chain(**potentials, lengths=batch.sizes["emissions"])


@pytest.mark.long
def test_chains_are_those_of_the_tagger():
    rng = np.random.default_rng(2)
    X = [sparse.csr_matrix(rng.normal(size=(m, 3))) for m in (3, 1, 4, 2)]
    y = [rng.integers(2, size=x.shape[0]) for x in X]
    tagger = ChainSVM(tol=1e-7).fit(X, y)
    model = StructuredSVM(chains, words, tol=1e-7).fit(X, y)
    assert model.primal_ == pytest.approx(tagger.primal_, abs=1e-9)
    np.testing.assert_allclose(model.coef_["emissions"].T, tagger.coef_, atol=1e-6)
    np.testing.assert_allclose(
        model.coef_["transitions"], tagger.transitions_, atol=1e-6
    )
    assert all(map(np.array_equal, model.predict(X), tagger.predict(X)))


def test_the_likelihood_has_a_certificate_too(X, Y):
    model = StructuredSVM(
        trees, arcs, l2=0.3, loss="likelihood", solver="lbfgs", tol=1e-3
    ).fit(X, Y)
    problem = StructureProblem(trees, arcs(X), Y)
    value, slope = problem.likelihood(model.weights_)
    slope += 0.3 * model.weights_
    value += 0.15 * model.weights_ @ model.weights_
    assert model.primal_ == pytest.approx(value, abs=1e-12)
    assert model.gap_ <= 1e-3
    assert model.gap_ == pytest.approx(slope @ slope / 0.6, abs=1e-12)


def test_what_falls_short_warns_and_what_does_not_fit_is_refused(X, Y):
    short = StructuredSVM(trees, arcs, tol=0, max_passes=2)
    with pytest.warns(ConvergenceWarning, match="max_passes = 2 passes are used up"):
        short.fit(X, Y)
    before = short.weights_
    for change, message in (
        ({"loss": "likelihood"}, "loss: expected 'hinge' for solver='bcfw'"),
        ({"features": None}, "features: expected a function"),
        ({"build": None}, "build: expected a function"),
    ):
        wrong = clone(short).set_params(**change)
        with pytest.raises((ValueError, TypeError), match=message):
            wrong.fit(X, Y)
        assert not hasattr(wrong, "weights_")
    with pytest.raises(ValueError, match="y: expected an output for each of 8"):
        short.fit(X, Y[1:])
    assert short.weights_ is before
    with pytest.raises(ValueError, match="X: expected features with 6 weights"):
        short.predict([np.zeros((2, 2, 5))])
    with pytest.raises(ValueError, match="y: expected 8 outputs, got 1"):
        short.score(X, Y[:1])
    with pytest.raises(ValueError, match="y: expected an output of shape"):
        short.score(X[:1], [np.zeros(9, int)])
    warm = StructuredSVM(trees, arcs, tol=1e-2, warm_start=True).fit(X, Y)
    with pytest.raises(ValueError, match="warm_start: expected the features"):
        warm.fit(X[1:], Y[1:])


def test_arrays_of_examples_are_stacked():
    parts = Parts.of_examples([np.zeros((2, 3, 4)), np.ones((1, 0, 4))])
    assert parts.shapes == [(2, 3), (1, 0)] and parts.features.shape == (6, 4)
    assert Parts.of_examples([np.zeros((2, 3, 0))]).features.shape == (6, 0)
    for wrong, message in (
        ([], "at least one example"),
        ([np.zeros(3)], "arrays: expected 1 axes"),
        ([np.zeros((2, 3)), np.zeros((2, 4))], r"got shape \(2, 4\) at example 1"),
    ):
        with pytest.raises(ValueError, match=message):
            Parts.of_examples(wrong)
    with pytest.raises(TypeError, match=r"arrays: expected a list .*, got NoneType"):
        Parts.of_examples(None)
    assert len(Parts.of_examples(np.ones((1, 2)) for _ in range(3)).shapes) == 3
