"""ChainSVM, ChainCRF and structured classifiers: input, output, and what is kept."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from smoothsp.linear import ChainCRF, ChainSVM, CrammerSingerSVC
from smoothsp.linear.problems import ChainProblem, MulticlassProblem
from smoothsp.linear.solvers import LBFGS
from tests.sweeps import thinned
from tests.truth.chain_losses import Truth
from tests.truth.linear_chain import labellings, phi

TAGGERS = [ChainSVM, ChainCRF]
# few of these fits need their optimum
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def corpus(seed=0, sentences=12, features=6):
    """Arrays and tags that a chain can tell apart, but for some."""
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(rng.integers(1, 6), features)) for _ in range(sentences)]
    W = rng.normal(size=(features, 3))
    y = [[("O", "B", "I")[j] for j in (x @ W).argmax(1)] for x in X]
    y[0] = ["O", "B", "I", "O", "B"][: len(y[0])]
    return X, y


def named(X):
    return [
        [{f"f{n}": float(v) for n, v in enumerate(t)} | {"at": "x"} for t in x]
        for x in X
    ]


class Table:
    """As pandas has them: a matrix whose entries, one by one, are names of columns."""

    def __init__(self, values):
        self.values, self.shape = values, values.shape

    def __len__(self):
        return len(self.values)

    def __iter__(self):
        return (f"column {n}" for n in range(self.shape[1]))

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)


class Series:
    """As pandas has them: entries in order, which have other names than 0, 1, 2."""

    def __init__(self, entries):
        self.entries = entries

    def __len__(self):
        return len(self.entries)

    def __iter__(self):
        return iter(self.entries)

    def __getitem__(self, name):
        return self.entries[-1 - name]


def of_objects(sequences):
    return np.array([*sequences, None], dtype=object)[:-1]


@pytest.mark.parametrize("make", TAGGERS)
def test_forms_of_sequences_are_one(make):
    X, y = corpus()
    flat, lengths = np.vstack(X), [len(x) for x in X]
    tagger = make(C=0.5).fit(X, y)
    for given, more in (
        ([sparse.csr_matrix(x) for x in X], {}),
        ([x.tolist() for x in X], {}),
        ([Table(x) for x in X], {}),
        (Series(X), {}),
        (of_objects(X), {}),
        (flat, {"lengths": lengths}),
        (sparse.csr_array(flat), {"lengths": lengths}),
    ):
        other = make(C=0.5).fit(given, y, **more)
        assert other.weights_.tobytes() == tagger.weights_.tobytes()
        for one, two in zip(
            tagger.predict(X), other.predict(given, **more), strict=True
        ):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("make", TAGGERS)
def test_named_features_are_columns(make):
    X, y = corpus()
    tokens = named(X)
    # names in alphabetical order: at=x first
    wide = [np.hstack([np.ones((len(x), 1)), x]) for x in X]
    by_name, by_column = make().fit(tokens, y), make().fit(wide, y)
    assert by_name.feature_names_ == ["at=x", *(f"f{n}" for n in range(6))]
    assert by_name.weights_.tobytes() == by_column.weights_.tobytes()
    unseen = [[{**token, "new": 3, "at": "y"} for token in x] for x in tokens]
    plain = [np.hstack([np.zeros((len(x), 1)), x]) for x in X]
    for one, two in zip(by_name.predict(unseen), by_column.predict(plain), strict=True):
        np.testing.assert_array_equal(one, two)
    lists = [[["a", "b"], {"b"}], [("a",)]]
    tagger = make().fit(lists, [["B", "O"], ["B"]])
    assert [p.tolist() for p in tagger.predict(lists)] == [["B", "O"], ["B"]]


@pytest.mark.parametrize("make", TAGGERS)
def test_predictions_are_the_best_labellings(make):
    X, y = corpus(1)
    tagger = make(l2=0.05, tol=0.02).fit(X, y)
    assert tagger.gap_ <= tagger.tol
    problem = ChainProblem(
        np.vstack(X), np.zeros(sum(map(len, X)), int), lengths=list(map(len, X)),
        num_labels=3,
    )  # fmt: skip
    scores = tagger.decision_function(X)
    for i, found in enumerate(tagger.predict(X)):
        outputs = labellings(problem, i)
        of = [phi(problem, i, o) @ tagger.weights_ for o in outputs]
        best = outputs[int(np.argmax(of))]
        assert found.tolist() == [tagger.classes_[j] for j in best]
        moves = sum(tagger.transitions_[a, b] for a, b in pairwise(best))
        total = sum(row[j] for row, j in zip(scores[i], best, strict=True)) + moves
        assert total == pytest.approx(max(of))
    right = [
        a == b
        for p, t in zip(tagger.predict(X), y, strict=True)
        for a, b in zip(p, t, strict=True)
    ]
    assert tagger.score(X, y) == pytest.approx(np.mean(right))


@pytest.mark.parametrize(("make", "solver"), [(ChainSVM, "sgd"), (ChainCRF, "sgd")])
def test_solvers_of_one_objective_agree(make, solver):
    X, y = corpus(2)
    best = make(l2=0.1, tol=1e-6, max_passes=5000).fit(X, y)
    options = {"rate": 0.05, "evaluate_every": 400}
    other = make(l2=0.1, solver=solver, tol=0.0, max_passes=400, solver_options=options)
    other.fit(X, y)
    assert best.dual_ - 1e-9 <= other.primal_ <= best.primal_ + 0.02


def test_marginals_are_those_of_enumeration():
    X, y = corpus(3)
    tagger = ChainCRF().fit(X, y)
    problem = ChainProblem(
        np.vstack(X), np.zeros(sum(map(len, X)), int), lengths=list(map(len, X)),
        num_labels=3,
    )  # fmt: skip
    for i, found in enumerate(tagger.predict_marginals(X)):
        outputs = np.array(labellings(problem, i))
        scores = np.array([phi(problem, i, o) @ tagger.weights_ for o in outputs])
        p = np.exp(scores - scores.max())
        p /= p.sum()
        truth = [
            [p[outputs[:, t] == j].sum() for j in range(3)] for t in range(len(X[i]))
        ]
        np.testing.assert_allclose(found, truth, atol=1e-12)


def test_C_counts_the_sum_and_l2_the_mean():
    X, y = corpus()
    one = ChainSVM(C=2.0).fit(X, y)
    two = ChainSVM(l2=1 / (2.0 * len(X))).fit(X, y)
    assert one.weights_.tobytes() == two.weights_.tobytes()


def test_costs_of_tags_and_of_lengths():
    X, y = corpus()
    cost = np.array([[0, 1, 2], [1, 0, 0.5], [4, 1, 0]])
    tagger = ChainSVM(l2=0.1, cost=cost, normalise_cost=True).fit(X, y)
    labels = np.searchsorted(tagger.classes_, np.concatenate(y))
    lengths = np.array(list(map(len, X)))
    problem = ChainProblem(
        np.vstack(X), labels, lengths=lengths, cost=cost, cost_scale=1 / lengths
    )
    objective = Truth(problem, "hinge").objective(tagger.weights_, 0.1)[0]
    assert tagger.primal_ == pytest.approx(objective)


@pytest.mark.parametrize("make", TAGGERS)
def test_saved_pickled_and_cloned(make, tmp_path):
    X, y = corpus()
    for given, tags in ((X, y), (named(X), [[ord(t) for t in s] for s in y])):
        tagger = make(C=0.7, random_state=3).fit(given, tags)
        tagger.save(tmp_path / "tagger.npz")
        for other in (
            make.load(tmp_path / "tagger.npz"),
            pickle.loads(pickle.dumps(tagger)),
        ):
            assert other.get_params() == tagger.get_params()
            assert other.gap_ == tagger.gap_
            assert other.classes_.dtype == tagger.classes_.dtype
            for one, two in zip(
                tagger.predict(given), other.predict(given), strict=True
            ):
                np.testing.assert_array_equal(one, two)
            assert other.score(given, tags) == tagger.score(given, tags)
            np.testing.assert_array_equal(other.coef_, tagger.coef_)
    assert [path.name for path in tmp_path.iterdir()] == ["tagger.npz"]
    assert not hasattr(clone(tagger), "classes_")


X, Y = corpus()
BAD = [
    ((X[:-1], Y), "expected 11 sequences, one for each sentence of X, got 12"),
    (([], []), "X: expected at least one sentence"),
    ((None, Y), "X: expected a list of sentences, got"),
    ((X, None), "y: expected a list of tags, got NoneType"),
    (([{"word": "a"}, {"word": "b"}], Y[:1]), r"X: .* write \[sentence\] for one"),
    (([X[0], np.zeros((0, 6))], Y[:2]), "expected 0 tags for sentence 1"),
    (([X[0], X[1][:, :4]], Y[:2]), r"\(positions, 6\) in sentence 1"),
    ((X, [Y[0][:-1], *Y[1:]]), "tags for sentence 0, one a position"),
    ((X, [["O"] * len(x) for x in X]), "at least two classes"),
    (([*X[:-1], X[-1] * np.nan], Y), "NaN or infinity in sentence 11"),
    ((np.vstack(X), Y), "a matrix for each sentence, got ndarray"),
    ((np.eye(2), [["O", "P"]], [3, -1]), "lengths: expected ints .* at least -1"),
    (([["word"]], [["O"]]), "the string 'word'"),
    (([[{"a": None}]], [["O"]]), "got None for 'a'"),
    (
        ([[["a", 3]]], [["O"]]),
        "names of features, or pairs of a name and a value, got 3",
    ),
    (([[1, 2]], [["O", "P"]]), r"X: expected a matrix \(positions, features\)"),
    ((X, [[1.5 for _ in s] for s in Y]), "all strings or all integers"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_loses_nothing(arguments, message):
    tagger = ChainCRF().fit(X, Y)
    before = {name: id(value) for name, value in vars(tagger).items()}
    with pytest.raises((TypeError, ValueError), match=message):
        tagger.fit(*arguments)
    assert {name: id(value) for name, value in vars(tagger).items()} == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": 0}, "C: expected a positive"),
        ({"l2": -1}, "l2: expected a positive"),
        ({"solver": "newton"}, "solver: expected one of"),
        ({"tol": -1}, "tol: expected a number of at least 0"),
        ({"solver_options": {"tol": 1}}, r"none that are parameters, got \['tol'\]"),
        ({"solver_options": "fw"}, "solver_options: expected a dict .*, got 'fw'"),
    ],
)
def test_wrong_parameters(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ChainSVM(**options).fit(X, Y)


def test_what_was_not_seen_in_fit():
    make = ChainSVM
    tagger = make().fit(X, Y)
    with pytest.raises(ValueError, match="expected 6 features, as in fit, got 4"):
        tagger.predict([x[:, :4] for x in X])
    with pytest.raises(TypeError, match="expected matrices, as in fit"):
        tagger.predict(named(X))
    with pytest.raises(TypeError, match="tokens with named features, as in fit"):
        make().fit(named(X), Y).predict(X)
    with pytest.raises(NotFittedError):
        make().predict(X)


def test_multiclass_minimises_its_objective():
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(30, 4)), rng.integers(3, size=30)
    cost = np.array([[0, 1, 5], [1, 0, 1], [0.2, 1, 0]])
    model = CrammerSingerSVC(
        C=0.3, solver="bcfw", cost=cost, fit_intercept=False, tol=1e-6
    )
    model.fit(rows, labels)
    problem = MulticlassProblem(rows, labels, cost=cost)
    value = Truth(problem, "hinge").objective(model.coef_.T.ravel(), 1 / 9)[0]
    last = model.history_[-1]
    # C times the sum in place of the mean
    assert last.primal == pytest.approx(9 * value)
    assert model.gap_ == last.gap <= 1e-6 * last.dual
    before = model.coef_
    with pytest.raises(ValueError, match="at least two classes"):
        model.fit(rows[:, :2], np.zeros(30))
    assert model.coef_ is before
    assert model.n_features_in_ == 4


@pytest.mark.parametrize("make", TAGGERS)
def test_sentences_may_come_from_an_iterator(make):
    arrays, y = corpus()
    # the first has no tokens to tell what they are
    X, y = [[], *named(arrays)], [[], *y]
    tagger = make(C=0.7).fit(X, y)
    read = []

    def tags():
        for n, given in enumerate(y):
            read.append(n)
            yield given

    def sentences():
        for n, given in enumerate(X):
            # both are read in turns, but for what tells the kind of the tokens
            assert len(read) >= n - 2
            yield given

    for pair in ((iter(X), y), (sentences(), tags())):
        found = make(C=0.7).fit(*pair)
        np.testing.assert_array_equal(found.weights_, tagger.weights_)
    for one, two in zip(tagger.predict(iter(X)), tagger.predict(X), strict=True):
        np.testing.assert_array_equal(one, two)
    plain = make(C=0.7).fit(arrays, y[1:])
    streamed = make(C=0.7).fit(iter(arrays), iter(y[1:]))
    np.testing.assert_array_equal(plain.weights_, streamed.weights_)
    for wrong in (iter(y[:-1]), iter([*y, ["O"]]), y[:-1]):
        with pytest.raises(ValueError, match="sequences, one for each sentence of X"):
            make().fit(iter(X), wrong)
    with pytest.raises(TypeError, match="y: expected a list of tags, got int"):
        make().fit(iter(X), 3)


WORDS = [["The", "cat", "sat"], ["A", "dog", "ran", "off"], ["Dogs", "sat"], ["It"]]
TAGS = [["D", "N", "V"], ["D", "N", "V", "P"], ["N", "V"], ["P"]]


def indicators(words):
    return [[w, "the end" if w is words[-1] else "inside"] for w in words]


@pytest.mark.parametrize(
    ("make", "solver"),
    thinned([(ChainCRF, "lbfgs"), (ChainSVM, "agm"), (ChainSVM, "bmrm")], 2),
)
def test_only_pairs_that_occur(make, solver, tmp_path):
    X = [indicators(words) for words in WORDS]
    given = {"C": 3, "solver": solver, "tol": 1e-2}
    tagger = make(all_pairs=False, **given).fit(X, TAGS)
    seen = {(f, t) for x, y in zip(X, TAGS, strict=True)
            for fs, t in zip(x, y, strict=True) for f in fs}  # fmt: skip
    moves = {pair for tags in TAGS for pair in pairwise(tags)}
    assert tagger.state_features_.keys() == seen
    known = {k for k, v in tagger.transition_features_.items() if v}
    assert known == moves
    assert {t for t, w in zip(tagger.classes_, tagger.start_, strict=True) if w} == {
        tags[0] for tags in TAGS
    }
    shown = {(row.feature, row.label) for row in tagger.top_features(99)}
    assert shown == seen | moves
    full = make(**given).fit(X, TAGS)
    assert tagger.primal_ > full.primal_
    assert full.state_features_.keys() > seen
    tagger.save(tmp_path / "tagger.npz")
    again = make.load(tmp_path / "tagger.npz")
    assert again.all_pairs is False
    for found in (again, clone(tagger).fit(X, TAGS)):
        np.testing.assert_array_equal(found.weights_, tagger.weights_)
        for one, two in zip(found.predict(X), tagger.predict(X), strict=True):
            np.testing.assert_array_equal(one, two)
    # a fit that begins with the weights of all pairs
    full.set_params(all_pairs=False, warm_start=True).fit(X, TAGS)
    assert full.state_features_.keys() == seen


@pytest.mark.parametrize(("make", "solver"), [(ChainCRF, "sgd"), (ChainSVM, "bcfw")])
def test_solvers_that_change_the_weights_of_all_pairs_raise(make, solver):
    X = [indicators(words) for words in WORDS]
    with pytest.raises(ValueError, match="all_pairs: expected True for"):
        make(solver=solver, all_pairs=False).fit(X, TAGS)


@pytest.mark.parametrize("all_pairs", [False, True])
def test_weights_are_those_of_crfsuite(all_pairs, tmp_path):
    pycrfsuite = pytest.importorskip("pycrfsuite")
    trainer = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False)
    names = sorted({f for words in WORDS for fs in indicators(words) for f in fs})
    tags = sorted({t for y in TAGS for t in y})
    rows = []
    for words, y in zip(WORDS, TAGS, strict=True):
        trainer.append(indicators(words), y)
        rows += [[float(f in fs) for f in names] for fs in indicators(words)]
    trainer.set_params(
        {
            "c2": 0.5,
            "epsilon": 1e-9,
            "feature.possible_states": all_pairs,
            "feature.possible_transitions": all_pairs,
        }
    )
    trainer.train(str(tmp_path / "model"))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(tmp_path / "model"))
    W, A = np.zeros((len(names), len(tags))), np.zeros((len(tags), len(tags)))
    for (name, tag), weight in tagger.info().state_features.items():
        W[names.index(name), tags.index(tag)] = weight
    for (first, second), weight in tagger.info().transitions.items():
        A[tags.index(first), tags.index(second)] = weight
    problem = ChainProblem(
        np.array(rows),
        [tags.index(t) for y in TAGS for t in y],
        lengths=[len(y) for y in TAGS],
        boundaries=False,
        all_pairs=all_pairs,
    )
    # its objective is n times ours, with c2 |w|^2
    found = LBFGS(lam=2 * 0.5 / len(TAGS), tol=1e-12).solve(problem)
    np.testing.assert_allclose(found.w, np.vstack([W, A]).ravel(), atol=1e-4)


PARTS = [slice(0, 2), slice(2, 4), slice(0, 4)]


@pytest.mark.parametrize(("make", "solver"), [(make, "sgd") for make in TAGGERS])
def test_parts_are_passes_from_the_weights_so_far(make, solver):
    X = [indicators(words) for words in WORDS]
    tagger = make(l2=0.1, solver=solver, max_passes=1, warm_start=True)
    other = make(l2=0.1, solver=solver)
    other.partial_fit(X, TAGS, classes=["V", "P", "N", "D"])
    tagger.fit(X, TAGS)
    for _ in range(2):
        np.testing.assert_array_equal(other.weights_, tagger.weights_)
        assert other.primal_ == tagger.primal_
        other.partial_fit(X, TAGS)
        tagger.fit(X, TAGS)
    assert other.n_iter_ == 3 and len(other.history_) == 3
    # names of later calls come after those of earlier ones
    parts = make(l2=0.1, solver=solver)
    for n, part in enumerate(PARTS):
        parts.partial_fit(X[part], TAGS[part], classes=None if n else list("DNPV"))
    assert set(parts.feature_names_) == set(other.feature_names_)
    first = make().fit(X[:2], TAGS[:2]).feature_names_
    assert parts.feature_names_[: len(first)] == first != other.feature_names_
    parts.set_params(solver_options={"rate": 0.01})
    for _ in range(100):
        parts.partial_fit(iter(X), iter(TAGS))
    assert parts.score(X, TAGS) == 1


def test_parts_that_do_not_fit():
    X = [indicators(words) for words in WORDS]
    tagger = ChainCRF(solver="sgd")
    with pytest.raises(ValueError, match="classes: expected all classes in the first"):
        tagger.partial_fit(X, TAGS)
    with pytest.raises(ValueError, match=r"some of classes \(D, N, V\), got 'P'"):
        tagger.partial_fit(X, TAGS, classes=["D", "N", "V"])
    assert not hasattr(tagger, "classes_")
    tagger.partial_fit(X, TAGS, classes=["D", "N", "V", "P"])
    with pytest.raises(
        ValueError, match="classes: expected those of the previous call"
    ):
        tagger.partial_fit(X, TAGS, classes=["D", "N"])
    with pytest.raises(TypeError, match="expected named features, as before"):
        tagger.partial_fit([np.eye(3)], [["D", "N", "V"]])
    arrays = ChainSVM(solver="sgd")
    arrays.partial_fit([np.eye(3)], [["D", "N", "V"]], classes=["D", "N", "V"])
    with pytest.raises(ValueError, match="expected 3 features, as before, got 4"):
        arrays.partial_fit([np.eye(4)], [["D", "N", "V", "V"]])
    for model in (ChainSVM(), CrammerSingerSVC()):
        assert not hasattr(model, "partial_fit")


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("intercept", [True, False])
def test_parts_of_samples(classes, intercept):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 4)), rng.integers(classes, size=30)
    given = {"solver": "sgd", "fit_intercept": intercept, "C": 1 / 6}
    given["random_state"] = 0
    model = CrammerSingerSVC(**given)
    other = CrammerSingerSVC(**given, max_epochs=1, warm_start=True)
    for n in range(3):
        model.partial_fit(X, y, classes=None if n else np.arange(classes))
        other.fit(X, y)
        np.testing.assert_allclose(model.coef_, other.coef_, rtol=1e-9)
        np.testing.assert_allclose(model.intercept_, other.intercept_, rtol=1e-9)
    # a class may be missing in a part
    model.partial_fit(X[y > 0], y[y > 0])
    assert model.classes_.tolist() == list(range(classes)) and model.n_iter_ == 4
    with pytest.raises(ValueError, match="X has 3 features, but CrammerSingerSVC is"):
        model.partial_fit(X[:, :3], y)
