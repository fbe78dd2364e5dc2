"""What taggers take: features by name, empty sentences, templates in a pipeline."""

import json
import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline

from smoothsp.linear import ChainCRF, ChainGP, ChainSVM
from smoothsp.linear.estimators.named_features import (
    Columns,
    learn,
    name_of,
    path_of,
    rows_by_name,
)
from smoothsp.linear.features import Templates
from smoothsp.linear.problems import ChainProblem
from smoothsp.linear.solvers import BCFW
from tests.truth.chain_losses import Truth

TAGGERS = [ChainSVM, ChainCRF]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def dense(X, names=None):
    found, rows = learn(X)
    if names is not None:
        rows = rows_by_name(X, Columns.of(names, True), len(names))
    arrays = rows.values, rows.indices, rows.indptr
    shape = len(rows.indptr) - 1, rows.columns
    return found, sparse.csr_matrix(arrays, shape).toarray()


# paths as sklearn-crfsuite reads them, but for what joins their steps
FORMS = [
    ({"word": "Ada"}, {"word=Ada": 1}),
    ({"word": ["Ada", "ada"]}, {"word=Ada": 1, "word=ada": 1}),
    ({"word": {"Ada", "ada"}}, {"word=Ada": 1, "word=ada": 1}),
    ({"word": ["a", "a"]}, {"word=a": 2}),
    ({"length": 3, "caps": True, "no": False}, {"caps": 1, "length": 3}),
    ({"x": np.float32(0.5), "y": np.bool_(True), 7: 1}, {"7": 1, "x": 0.5, "y": 1}),
    ({"next": {"word": "met", "length": 3}}, {"next=length": 3, "next=word=met": 1}),
    ({"a": {"b": {"c": 2.5}, "d": ["e"]}}, {"a=b=c": 2.5, "a=d=e": 1}),
    ({"a": {"b": 1}}, {"a=b": 1}),
    ({"a": [], "b": {}, "c": ""}, {"c=": 1}),
    (["word=Ada", "caps"], {"caps": 1, r"word\=Ada": 1}),
    ({"a=b": 1, "a": "b"}, {"a=b": 1, r"a\=b": 1}),
    ({"a": "b=c", "a=b": "c"}, {r"a=b\=c": 1, r"a\=b=c": 1}),
    ({"\\": "=", "\\=": 1}, {r"\\=\=": 1, r"\\\=": 1}),
    ({np.str_("a"): np.str_("b")}, {"a=b": 1}),
]


@pytest.mark.parametrize(("token", "wanted"), FORMS)
def test_values_of_features(token, wanted):
    names, table = dense([[token]])
    assert set(names) >= set(wanted) and names == sorted(names)
    found = {n: v for n, v in zip(names, table[0], strict=True) if v}
    assert found == wanted
    # the same columns when they are looked up
    assert dense([[token]], names)[1].tolist() == table.tolist()


def test_different_paths_have_different_names():
    letters = ["", "a", "=", "\\", "a=", "\\="]
    paths = letters + [(a, b) for a in letters for b in letters]
    names = [name_of(path) for path in paths]
    assert len(set(names)) == len(paths)
    assert list(map(path_of, names)) == paths


@pytest.mark.parametrize("make", TAGGERS)
def test_a_value_and_a_name_do_not_collide(make):
    X = [[{"a": "b"}, {"a=b": 1}] * 3]
    y = [["X", "Y"] * 3]
    tagger = make(C=100, tol=0.01).fit(X, y)
    found = tagger.predict([[{"a": "b"}], [{"a=b": 1}]])
    assert [p.tolist() for p in found] == [["X"], ["Y"]]


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ({"a": [1]}, "names of features, got 1"),
        ({"a": {"b": None}}, "got None for 'b'"),
        ({"a": object}, "a list of strings or a dict as feature"),
        ("word", "the features of each token, got 'word'"),
    ],
)
def test_features_that_are_none(token, message):
    with pytest.raises(TypeError, match=message):
        ChainSVM().fit([[{"a": 1.0}, token]], [["X", "Y"]])
    with pytest.raises(ValueError, match="NaN or infinity in sentence 1"):
        ChainSVM().fit([[["a"]], [{"a": np.nan}]], [["X"], ["Y"]])


def test_files_of_names_that_were_not_escaped_tag_as_before(tmp_path):
    X = [[{"a": "b"}, {"c=d": 1}, {"c": "d"}, ["e=f"]]]
    tagger = ChainSVM().fit(X, [["X", "Y", "X", "Y"]])
    path = tmp_path / "tagger.npz"
    tagger.save(path)
    with np.load(path) as file:
        arrays = dict(file)
    content = json.loads(arrays["json"].tobytes())
    # as they were written then
    content["facts"]["feature_names_"] = ["a=b", "c=d", "e=f"]
    content["facts"]["n_features_in_"] = 3
    del content["facts"]["escaped"]
    arrays["json"] = np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)
    W = np.array([[3.0, -3], [-3, 3], [2, -2]])
    arrays["weights"] = np.concatenate([W.ravel(), np.zeros(8)])
    np.savez(path, **arrays)
    old = ChainSVM.load(path)
    same = [{"a": "b"}, ["a=b"], {"a=b": 1}, {"c": "d"}, {"c=d": 2}, {"e": "f"}]
    found = old.decision_function([[token] for token in same])
    assert [row[0, 0] for row in found] == [3, 3, 3, -3, -6, 2]
    again = pickle.loads(pickle.dumps(old))
    assert again.predict([same])[0].tolist() == old.predict([same])[0].tolist()
    del old.__dict__["_escaped"], old.__dict__["_columns"]
    assert old.decision_function([same])[0][:3, 0].tolist() == [3, 3, 3]


def with_empty(X, y):
    return [[], X[0], [], [], *X[1:], []], [[], y[0], [], [], *y[1:], []]


def words(seed=0, sentences=8):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(rng.integers(1, 5), 4)) for _ in range(sentences)]
    W = rng.normal(size=(4, 3))
    return X, [[("A", "B", "C")[j] for j in (x @ W).argmax(1)] for x in X]


SOLVERS = [
    (ChainSVM, "bcfw", {"steps": steps, "sampling": sampling, "cache": cache})
    for steps, sampling, cache in (
        ("fw", "gap", False),
        ("pairwise", "uniform", True),
        ("best", "permutation", False),
    )
]
SOLVERS += [
    (ChainSVM, "sgd", {"decay": "pegasos", "average_after": 50}),
    (ChainSVM, "sgd", {"decay": "pegasos", "loss": "hinge-l2", "mu": 0.01}),
    (ChainSVM, "svrg", {"rate": 0.01, "mu": 0.01}),
    (ChainSVM, "casimir", {"smoothness": 200.0, "mu": 0.02}),
    (ChainCRF, "lbfgs", {}),
    (ChainCRF, "sgd", {"decay": "pegasos", "average_after": 50}),
    (ChainCRF, "svrg", {"rate": 0.02}),
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


@pytest.mark.parametrize("make", TAGGERS)
@pytest.mark.parametrize("hashing", [None, 64])
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


def test_parameters_of_templates():
    texts = ["word", "shape(word)"]
    templates = Templates(texts, min_count=2)
    again = clone(templates)
    assert again.get_params() == templates.get_params()
    templates.fit([["a", "a", "b"]])
    assert templates.num_features == 2
    templates.set_params(templates=["word"], min_count=1)
    with pytest.raises(ValueError, match="call fit first"):
        templates.transform([["a"]])
    assert templates.fit_transform([["a", "a", "b"]]).shape == (3, 2)
    before = templates.get_params()
    with pytest.raises(ValueError, match="at least one, got none"):
        templates.set_params(templates=[])
    assert templates.get_params() == before
    assert templates.transform([["a"]]).shape == (1, 2)


TOKENS = [[{"word": "a"}, {"word": "b"}]]
HURRIED = {
    "no sentences": (lambda: (None, TAGS[:1]), "X: expected a list of sentences, got"),
    "one sentence": (
        lambda: (TOKENS[0], TAGS[:1]),
        r"X: .* write \[sentence\] for one",
    ),
    "numbers for sentences": (lambda: ([1, 2], TAGS[:2]), "X: .*, got int"),
    "rows for sentences": (
        lambda: ([[1, 2]], [["O", "P"]]),
        r"X: expected a matrix \(positions, features\) .* 0, got int64 of shape \(2,\)",
    ),
    "ragged rows": (
        lambda: ([[[1, 2], [3]]], [["O", "P"]]),
        "X: expected a matrix .* in sentence 0, got rows that are none",
    ),
    "words in rows": (
        lambda: ([np.array([["a"], ["b"]])], [["O", "P"]]),
        "X: expected a matrix .* numbers in sentence 0, got <U1",
    ),
    "no sentences but a dict": (
        lambda: ({"a": 1}, TAGS[:1]),
        "X: expected a list, a matrix for each sentence, got dict",
    ),
    "no features": (
        lambda: ([np.ones((2, 0))], [["O", "P"]]),
        "X: expected at least one feature, got none",
    ),
    "lengths that are no ints": (
        lambda: (np.eye(2), [["O", "P"]], [2.0]),
        "lengths: expected ints .* sum to 2, .* got float64 of shape",
    ),
    "lengths of another matrix": (
        lambda: (np.eye(2), [["O", "P"]], [3, -1]),
        "lengths: expected ints .* got a sum of 2 and at least -1",
    ),
    "a word for lengths": (
        lambda: (np.eye(2), [["O", "P"]], "two"),
        "lengths: expected ints of at least 0",
    ),
    "a generator of tokens": (
        lambda: ((x for x in TOKENS[0]), TAGS[0]),
        "X: expected sentences, each a list of tokens, got a dict",
    ),
    "no tags": (lambda: (TOKENS, None), "y: expected a list of tags, got NoneType"),
    "weights for lengths": (
        lambda: (TOKENS, [["O", "P"]], [1.0]),
        "X: .* omit lengths, and pass other arguments by name: sample_weight=",
    ),
}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("fw", "solver_options: expected a dict .*, got 'fw'"),
        ({"step": "fw"}, "solver_options: expected some of lam, .*, got 'step'"),
        ({"tol": 1.0}, r"solver_options: expected none that are .*, got \['tol'\]"),
    ],
)
@pytest.mark.parametrize("make", [ChainSVM, ChainCRF, ChainGP])
def test_options_that_no_solver_has_are_named(make, options, message):
    model = make(solver_options=options)
    with pytest.raises((TypeError, ValueError), match=message):
        model.fit([np.eye(2)], [[0, 1]])


@pytest.mark.parametrize("mistake", HURRIED)
def test_hurried_calls_are_told_what_is_wrong(mistake):
    arguments, message = HURRIED[mistake]
    with pytest.raises((TypeError, ValueError), match=message):
        ChainCRF().fit(*arguments())
