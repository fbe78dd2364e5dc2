"""Fits of taggers that go on: from a checkpoint, from the fit before, after Ctrl-C."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from smoothsp.linear import ChainCRF, ChainSVM, CrammerSingerSVC

RUNS = [
    (ChainSVM, "bcfw"),
    (ChainSVM, "sgd"),
    (ChainSVM, "agm"),
    (ChainCRF, "lbfgs"),
    (ChainCRF, "sgd"),
]
ROUGH = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def corpus(seed=0, sentences=10):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(rng.integers(1, 6), 4)) for _ in range(sentences)]
    W = rng.normal(size=(4, 3)) + rng.normal(size=(4, 3)) / 2
    return X, [[("O", "B", "I")[j] for j in (x @ W).argmax(1)] for x in X]


X, Y = corpus()


@ROUGH
@pytest.mark.parametrize(("make", "solver"), RUNS)
def test_a_warm_start_goes_on(make, solver):
    given = {"solver": solver, "tol": 0.0, "max_passes": 20}
    first = make(warm_start=True, **given).fit(X, Y)
    before = first.primal_
    assert first.fit(X, Y).n_iter_ <= 20
    assert first.primal_ <= before + 1e-9
    cold = make(**given).fit(X, Y)
    assert cold.primal_ == before
    cold.fit(X, Y)
    assert cold.primal_ == before
    # at another C, and after a file
    first.set_params(C=2.0).fit(X, Y)
    least = first.history_[-1].minimised
    assert first.gap_ != first.gap_ or least >= first.dual_ - 1e-9
    again = pickle.loads(pickle.dumps(first))
    assert again.fit(X, Y).weights_.tobytes() == first.fit(X, Y).weights_.tobytes()
    assert not hasattr(clone(first), "weights_")


def test_a_warm_start_of_an_optimum_is_done_at_once():
    for make, options in ((ChainSVM, {"steps": "pairwise"}), (ChainCRF, {})):
        given = {"tol": 1e-4, "max_passes": 5000, "solver_options": options}
        tagger = make(warm_start=True, **given).fit(X, Y)
        passes = tagger.n_iter_
        assert passes > 3
        assert tagger.fit(X, Y).n_iter_ <= passes / 8
        assert tagger.gap_ <= 1e-4 * tagger.dual_


@ROUGH
def test_what_a_warm_start_cannot_go_on_from():
    tagger = ChainSVM(warm_start=True).fit(X, Y)
    other, tags = corpus(1)
    with pytest.raises(
        ValueError, match="warm_start: expected the features, labels and"
    ):
        tagger.fit(other, tags)
    with pytest.raises(
        ValueError, match="warm_start: expected the tags of the previous fit"
    ):
        tagger.fit(X, [[t + "x" for t in y] for y in Y])
    tagger.set_params(solver="sgd").fit(other, tags)
    with pytest.raises(ValueError, match="warm_start: expected the features"):
        tagger.fit([x[:, :3] for x in X], Y)
    # a fit that kept no dual variables, and one that could
    tagger.set_params(solver="bcfw").fit(other, tags)
    classes = CrammerSingerSVC(solver="bcfw", warm_start=True)
    classes.fit([[0.0], [1.0], [2.0]], [0, 1, 1])
    with pytest.raises(ValueError, match="warm_start: expected the features, labels"):
        classes.fit([[0.0], [1.0], [3.0]], [0, 1, 1])


@ROUGH
def test_a_warm_start_finds_features_by_their_names():
    one = [[{"a": 1, "w": "x"}, {"b": 1}], [{"a": 1}]]
    two = [[{"c": 1}, {"w": "x", "b": 1}], [{"a": 1}]]
    tags = [["P", "Q"], ["P"]]
    tagger = ChainCRF(warm_start=True).fit(one, tags)
    known = dict(zip(tagger.feature_names_, tagger.coef_.T, strict=True))
    moves = tagger.transitions_.copy()
    start = []
    solver = tagger._make_solver
    tagger._make_solver = lambda n: type(
        "", (), {"solve": lambda self, p, start, resume: start_of(start)}
    )()

    def start_of(w):
        start.append(w)
        raise KeyError

    with pytest.raises(KeyError):
        tagger.fit(two, tags)
    tagger._make_solver = solver
    table = start[0].reshape(-1, 2)
    np.testing.assert_array_equal(
        table[:4], [known["a"], known["b"], [0, 0], known["w=x"]]
    )
    np.testing.assert_array_equal(table[4:6], moves)
