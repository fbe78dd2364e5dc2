"""What taggers take: features by name, empty sentences, templates in a pipeline."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline

from smoothsp.linear import ChainCRF, ChainSVM
from smoothsp.linear.estimators.named_features import (
    ColumnIndex,
    build_rows,
    fit_columns,
)
from smoothsp.linear.features import Templates
from smoothsp.linear.problems import ChainProblem
from smoothsp.linear.solvers import BCFW
from tests.truth.chain_losses import Truth

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def dense(X, names=None):
    found, rows = fit_columns(X)
    if names is not None:
        rows = build_rows(X, ColumnIndex.from_names(names), len(names))
    arrays = rows.values, rows.indices, rows.indptr
    shape = len(rows.indptr) - 1, rows.columns
    return found, sparse.csr_matrix(arrays, shape).toarray()


# paths as sklearn-crfsuite reads them, but for what joins their steps
FORMS = [
    ({"word": "Ada"}, {"word=Ada": 1}),
    ({"word": ["Ada", "ada"]}, {"word=Ada": 1, "word=ada": 1}),
    ({"word": ["a", "a"]}, {"word=a": 2}),
    ({"length": 3, "caps": True, "no": False}, {"caps": 1, "length": 3}),
    ({"x": np.float32(0.5), "y": np.bool_(True), 7: 1}, {"7": 1, "x": 0.5, "y": 1}),
    ({"next": {"word": "met", "length": 3}}, {"next=length": 3, "next=word=met": 1}),
    ({"a": {"b": {"c": 2.5}, "d": ["e"]}}, {"a=b=c": 2.5, "a=d=e": 1}),
    ({"a": [], "b": {}, "c": ""}, {"c=": 1}),
    (["word=Ada", "caps"], {"caps": 1, r"word\=Ada": 1}),
    ({"a=b": 1, "a": "b"}, {"a=b": 1, r"a\=b": 1}),
    ({"a": "b=c", "a=b": "c"}, {r"a=b\=c": 1, r"a\=b=c": 1}),
    ({"\\": "=", "\\=": 1}, {r"\\=\=": 1, r"\\\=": 1}),
]


@pytest.mark.parametrize(("token", "wanted"), FORMS)
def test_values_of_features(token, wanted):
    names, table = dense([[token]])
    assert set(names) >= set(wanted) and names == sorted(names)
    found = {n: v for n, v in zip(names, table[0], strict=True) if v}
    assert found == wanted
    # the same columns when they are looked up
    assert dense([[token]], names)[1].tolist() == table.tolist()


def test_a_value_and_a_name_do_not_collide():
    X = [[{"a": "b"}, {"a=b": 1}] * 3]
    y = [["X", "Y"] * 3]
    tagger = ChainSVM(C=100, tol=0.01).fit(X, y)
    found = tagger.predict([[{"a": "b"}], [{"a=b": 1}]])
    assert [p.tolist() for p in found] == [["X"], ["Y"]]


def with_empty(X, y):
    return [[], X[0], [], [], *X[1:], []], [[], y[0], [], [], *y[1:], []]


def words(seed=0, sentences=8):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(rng.integers(1, 5), 4)) for _ in range(sentences)]
    W = rng.normal(size=(4, 3))
    return X, [[("A", "B", "C")[j] for j in (x @ W).argmax(1)] for x in X]


SOLVERS = [
    (ChainSVM, "bcfw", {"steps": "pairwise", "sampling": "uniform", "cache": True}),
    (ChainSVM, "bcfw", {"steps": "best", "sampling": "permutation"}),
    (ChainSVM, "sgd", {"decay": "pegasos", "loss": "hinge-l2", "mu": 0.01}),
    (ChainCRF, "lbfgs", {}),
    (ChainCRF, "sdca", {}),
]


@pytest.mark.parametrize(("make", "solver", "options"), SOLVERS)
def test_an_empty_sentence_is_a_sentence_without_loss(make, solver, options):
    X, y = words()
    X, y = with_empty(X, y)
    # C counts the sum of the losses: empty sentences change nothing but the mean
    plain = make(C=1.0, tol=1e-4, max_passes=3000)
    plain.fit([x for x in X if len(x)], [t for t in y if len(t)])
    tagger = make(
        C=1.0, tol=1e-4, max_passes=400, solver=solver, solver_options=options
    )
    tagger.fit(X, y)
    share = sum(map(bool, y)) / len(y)
    least = share * plain.dual_
    assert least - 1e-9 <= tagger.primal_ <= share * plain.primal_ + 0.02
    lengths = [len(t) for t in y]
    assert [len(p) for p in tagger.predict(X)] == lengths
    assert [p.shape for p in tagger.decision_function(X)] == [(n, 3) for n in lengths]
    if make is ChainCRF:
        marginals = tagger.predict_marginals(X)
        assert [p.shape for p in marginals] == [(n, 3) for n in lengths]
        np.testing.assert_allclose(np.concatenate(marginals).sum(1), 1)
    full = [x for x in X if len(x)]
    for one, two in zip(
        [p for p in tagger.predict(X) if len(p)], tagger.predict(full), strict=True
    ):
        np.testing.assert_array_equal(one, two)
    assert tagger.predict([]) == [] and tagger.predict([[]])[0].tolist() == []


@pytest.mark.parametrize("boundaries", [False, True])
def test_empty_sentences_of_problems(boundaries):
    X, y = words(1, 5)
    labels = np.searchsorted(["A", "B", "C"], np.concatenate(y))
    lengths = np.array([0, *map(len, y), 0, 0])
    options = {"num_labels": 3, "boundaries": boundaries}
    problem = ChainProblem(np.vstack(X), labels, lengths=lengths, **options)
    plain = ChainProblem(np.vstack(X), labels, lengths=lengths[1:-2], **options)
    w = np.random.default_rng(0).normal(size=problem.num_weights)
    hinges = problem.hinges(w)
    assert hinges[[0, -2, -1]].tolist() == [0, 0, 0]
    np.testing.assert_array_equal(hinges[1:-2], plain.hinges(w))
    np.testing.assert_array_equal(problem.decode(w), plain.decode(w))
    assert problem.primal(w, 0.1) == pytest.approx(
        Truth(problem, "hinge").objective(w, 0.1)[0]
    )
    solution = BCFW(lam=0.1, tol=1e-4, cache=True, steps="away").solve(problem)
    assert solution.converged
    part = problem.subset([0, 2])
    assert part.hinges(w).tolist() == [0.0, hinges[2]]


def test_empty_sentences_of_named_features():
    X = [[], [{"a": 1}, {"b": "c"}], []]
    tagger = ChainSVM(C=10).fit(X, [[], ["X", "Y"], []])
    assert [p.tolist() for p in tagger.predict(X)] == [[], ["X", "Y"], []]
    # a token without features is one, and a sentence of such tells no form
    assert len(tagger.predict([[[], []], []])[0]) == 2
    assert [p.tolist() for p in tagger.predict([[], []])] == [[], []]
    with pytest.raises(ValueError, match="at least one position, got none"):
        ChainSVM().fit([[], []], [[], []])


TEXTS = [["Ada", "met", "Bob"], ["the", "dog"], [], ["Bob", "ran"], ["a", "cat", "sat"]]
TAGS = [["P", "O", "P"], ["O", "O"], [], ["P", "O"], ["O", "O", "O"]]


@pytest.mark.parametrize(("make", "hashing"), [(ChainSVM, None), (ChainCRF, 64)])
def test_templates_and_taggers_make_a_pipeline(make, hashing):
    templates = Templates(["word[-1..0]", "shape(word)"], hashing=hashing)
    model = make_pipeline(templates, make(C=10)).fit(TEXTS * 4, TAGS * 4)
    assert [p.tolist() for p in model.predict(TEXTS)] == TAGS
    assert model.score(TEXTS, TAGS) == 1
    found = cross_val_predict(model, TEXTS * 4, TAGS * 4, cv=4)
    assert [p.tolist() for p in found] == TAGS * 4
    scores = cross_val_score(model, TEXTS * 4, TAGS * 4, cv=4, error_score="raise")
    assert scores.tolist() == [1] * 4
    search = GridSearchCV(
        model,
        {"templates__templates": [["word"], ["word", "suffix(word, 1)"]]},
        cv=2,
        error_score="raise",
    ).fit(TEXTS * 4, TAGS * 4)
    assert len(search.predict(TEXTS)) == 5
    # without a pipeline the matrix says where sentences end
    matrix = templates.fit_transform(TEXTS)
    assert matrix.lengths.tolist() == [3, 2, 0, 2, 3]
    alone = make(C=10).fit(matrix, TAGS)
    by_lengths = make(C=10).fit(matrix, TAGS, lengths=matrix.lengths)
    assert alone.weights_.tobytes() == by_lengths.weights_.tobytes()
    with pytest.raises(TypeError, match="Give the lengths"):
        alone.predict(matrix[:3])
