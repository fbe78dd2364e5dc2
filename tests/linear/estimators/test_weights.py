"""Weights of examples and of classes are what repeating examples is."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from smoothsp.linear import ChainCRF, ChainSVM, CrammerSingerSVC
from smoothsp.linear.problems import ChainProblem, MulticlassProblem

REPEATS = np.array([2, 0, 1, 3, 1, 1])
LENGTHS = np.array([3, 2, 4, 1, 0, 5])
COST = np.array([[0.0, 2.0, 1.0], [0.5, 0.0, 1.0], [1.0, 3.0, 0.0]])


def sentences():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(size, 4)) for size in LENGTHS]
    y = [rng.integers(3, size=size).tolist() for size in LENGTHS]
    y[0] = [0, 1, 2]
    return X, y


def samples():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(6, 4)), np.array([0, 1, 2, 0, 2, 1])
    return X, y


def repeated(rows):
    return [row for row, many in zip(rows, REPEATS, strict=True) for _ in range(many)]


def chains(*, as_weights):
    X, y = sentences()
    scale = REPEATS * len(X) / REPEATS.sum() if as_weights else None
    if not as_weights:
        X, y = repeated(X), repeated(y)
    return ChainProblem.from_sequences(
        [sparse.csr_matrix(x) for x in X], y, num_labels=3, cost=COST, loss_scale=scale
    )


def classes(*, as_weights):
    X, y = samples()
    scale = REPEATS * len(X) / REPEATS.sum() if as_weights else None
    if not as_weights:
        X, y = np.array(repeated(X)), np.array(repeated(y))
    return MulticlassProblem(X, y, num_labels=3, cost=COST, loss_scale=scale)


@pytest.mark.parametrize("make", [chains, classes])
def test_a_problem_with_weights_is_the_one_that_repeats(make):
    weighted, plain = make(as_weights=True), make(as_weights=False)
    w = np.random.default_rng(2).normal(size=plain.num_weights)
    answers = [
        (
            problem.primal(w, 0.1),
            problem.diameter(),
            *problem.risk(w),
            *problem.smoothed_risk(w, 0.3),
            *problem.smoothed_risk(w, 0.3, "l2", 3),
            *problem.smoothed_tangent(w, 0.3),
            *problem.likelihood(w),
            *problem.corners(w, 1.0 / len(problem)),
        )
        for problem in (weighted, plain)
    ]
    # the mean of a corner's loss and hinge is over fewer sentences, each times more
    for found, wanted in zip(*answers, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)
    each = np.concatenate([weighted.subset([i]).hinges(w) for i in range(6)])
    np.testing.assert_allclose(weighted.hinges(w), each)


TAGGERS = [
    ChainSVM(cost=COST, tol=1e-6),
    ChainSVM(tol=1e-6, normalise_cost=True, solver_options={"steps": "away"}),
    ChainSVM(tol=1e-2, solver_options={"steps": "fw", "cache": False}),
    ChainCRF(tol=1e-8),
    ChainCRF(tol=1e-4, solver="sdca"),
]


@pytest.mark.parametrize("tagger", TAGGERS, ids=repr)
def test_a_tagger_with_weights_is_the_one_that_repeats(tagger):
    X, y = sentences()
    tagger.set_params(C=0.7)
    found = tagger.fit(X, y, sample_weight=REPEATS)
    primal, dual, gap = found.primal_, found.dual_, found.gap_
    assert gap <= tagger.tol * dual
    tagger.fit(repeated(X), repeated(y))
    assert tagger.gap_ <= tagger.tol * tagger.dual_
    # each certificate bounds what the other fit found
    slack = 1e-9
    assert dual - slack <= tagger.primal_ <= primal + tagger.gap_ + slack
    assert tagger.dual_ - slack <= primal <= tagger.primal_ + gap + slack


@pytest.mark.parametrize("solver", ["bcfw", "sgd", "agm"])
def test_every_solver_of_a_classifier_takes_weights(solver):
    X, y = samples()
    tol = 1e-6 if solver == "bcfw" else 1e-3
    model = CrammerSingerSVC(C=0.7, solver=solver, tol=tol, cost=COST, random_state=0)
    weighted = model.fit(X, y, REPEATS).history_[-1].primal
    primal = model.fit(repeated(X), repeated(y)).history_[-1].primal
    # the others draw other samples, and their smoothing ends above the minimum
    assert weighted == pytest.approx(primal, rel=1e-5 if solver == "bcfw" else 0.1)


def test_class_weights_are_weights_of_samples():
    X, y = samples()
    named = np.array(["a", "b", "c"])[y]
    model = CrammerSingerSVC(solver="bcfw", random_state=0)
    by_class = clone(model).set_params(class_weight={"a": 2.0, "c": 0.5})
    by_class.fit(X, named)
    by_sample = clone(model).fit(X, named, np.array([2.0, 1.0, 0.5])[y])
    np.testing.assert_allclose(by_class.coef_, by_sample.coef_)
    both = clone(model).set_params(class_weight="balanced").fit(X[:5], named[:5])
    counts = np.bincount(y[:5])
    same = clone(model).fit(X[:5], named[:5], (5 / (3 * counts))[y[:5]])
    np.testing.assert_allclose(both.coef_, same.coef_)


@pytest.mark.parametrize("make", [ChainSVM, ChainCRF])
def test_class_weights_of_a_sentence_are_the_mean_over_its_tags(make):
    X, y = sentences()
    factors = np.array([3.0, 1.0, 0.5])
    means = [factors[tags].mean() if tags else 1.0 for tags in y]
    by_class = make(class_weight=dict(enumerate(factors))).fit(X, y)
    by_sentence = make().fit(X, y, sample_weight=means)
    np.testing.assert_allclose(by_class.weights_, by_sentence.weights_)
    again = make(class_weight="balanced").fit(X, y, sample_weight=REPEATS)
    assert not np.allclose(again.weights_, by_class.weights_)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 2.0], "sample_weight: expected"),
        ([1.0, 1.0, -1.0, 1.0, 1.0, 1.0], "at least 0, got -1.0 at sample 2"),
        (np.zeros(6), "sample_weight: expected a positive weight, got only zeros"),
        (np.full(6, 1e308), "finite sum, got inf|whose sum fits float64, got 1e"),
    ],
)
def test_wrong_weights_are_refused(weights, message):
    X, y = sentences()
    with pytest.raises(ValueError, match=message):
        ChainSVM().fit(X, y, sample_weight=weights)
    with pytest.raises(ValueError, match=message):
        CrammerSingerSVC(solver="bcfw").fit(*samples(), weights)
