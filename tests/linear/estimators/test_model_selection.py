"""Sequence estimators in scikit-learn's searches, by its conventions."""

import functools

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score

from smoothsp.linear import ChainCRF, ChainGP, ChainSVM, StructuredSVM, scorers
from smoothsp.linear.problems import Parts
from smoothsp.oracles import Chain

RNG = np.random.default_rng(0)
ARRAY = RNG.normal(size=(12, 4, 2))
TAGS = (ARRAY[:, :, 0] > 0).astype(int)
WORDS = [[("caps",), ("low",)], [("low",), ("caps",), ("caps",)]] * 3
NAMES = [["B-PER", "O"], ["O", "B-PER", "I-PER"]] * 3


def structured():
    def build(potentials, batch):
        zero = potentials["scores"].new_zeros(2, 2)
        return Chain(potentials["scores"], zero, lengths=batch.sizes["scores"])

    return StructuredSVM(
        build, lambda X: {"scores": Parts.of_examples(X, states=2)}, C=10.0
    )


@pytest.mark.parametrize(
    "model",
    [ChainCRF(), ChainSVM(), ChainGP(), structured()],
    ids=lambda x: type(x).__name__,
)
def test_a_tag_not_seen_in_fit_counts_as_wrong(model):
    model.fit(ARRAY, TAGS)
    before = model.score(ARRAY, TAGS)
    place = np.argwhere(np.stack(model.predict(ARRAY)) == TAGS)[0]
    rare = TAGS.copy()
    rare[tuple(place)] = 7
    assert model.score(ARRAY, rare) == pytest.approx(before - 1 / TAGS.size)


def test_a_search_over_sentences_with_a_rare_tag_finds_the_best_C():
    numbers = np.random.default_rng(0).integers(9, size=(12, 5)).tolist()
    X = [[[f"word={k}"] for k in row] for row in numbers]
    rare = [["HIGH" if k > 5 else "O" for k in row] for row in numbers]
    rare[3][0] = "RARE"
    search = GridSearchCV(ChainCRF(), {"C": [1e-3, 10.0]}, cv=4).fit(X, rare)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_params_ == {"C": 10.0}


def test_scores_take_weights_of_sentences_and_no_sentence():
    model = ChainCRF().fit(WORDS, NAMES)
    wrong = [["X", "X"], *NAMES[1:]]
    only_first = [1.0] + [0.0] * 5
    assert model.score(WORDS, wrong, sample_weight=only_first) == 0
    assert model.score(WORDS, NAMES, sample_weight=only_first) == 1
    assert model.score([[]], [[]]) == 0


class Fixed:
    """Predicts what it is given."""

    def predict(self, X):
        return [np.array(tags) for tags in X]


def test_scorers_are_shares_of_tags_sequences_and_spans():
    found = [["B-PER", "I-PER", "O"], ["O"]]
    gold = [["B-PER", "O", "O"], ["O"]]
    assert scorers.token_accuracy(Fixed(), found, gold) == 3 / 4
    assert scorers.sequence_accuracy(Fixed(), found, gold) == 1 / 2
    assert scorers.span_f1(Fixed(), found, gold) == 0
    loose = [["I-PER", "O", "O"], ["O"]]
    assert scorers.span_f1(Fixed(), loose, gold) == 1
    assert scorers.span_f1(Fixed(), loose, gold, scheme="BIO", strict=True) == 0
    with pytest.raises(ValueError, match="y: expected 1 tags for sentence 1"):
        scorers.token_accuracy(Fixed(), found, [gold[0], ["O", "O"]])


def test_scorers_are_values_of_scoring():
    asked = {name: getattr(scorers, name) for name in scorers.__all__}
    asked["strict"] = functools.partial(scorers.span_f1, scheme="BIO", strict=True)
    search = GridSearchCV(
        ChainCRF(), {"C": [1e-3, 10.0]}, scoring=asked, refit="span_f1", cv=3
    ).fit(WORDS, NAMES)
    for name in asked:
        assert search.cv_results_[f"mean_test_{name}"][1] == 1


@pytest.mark.parametrize("model", [ChainCRF(), ChainSVM(), ChainGP()], ids=repr)
def test_an_array_of_sentences_is_the_list_of_its_rows(model):
    wanted = model.fit(list(ARRAY), TAGS.tolist()).predict(list(ARRAY))
    found = model.fit(ARRAY, TAGS).predict(ARRAY)
    assert np.array_equal(np.stack(found), np.stack(wanted))
    assert cross_val_score(model, ARRAY, TAGS, cv=3).mean() > 0.8


@pytest.mark.parametrize(
    "X",
    [
        [(("w=a", "caps"), ("w=b",))],
        np.array([[["w=a", "caps"], ["w=b", "w=b"]]]),
        np.array([[{"w=a": 1, "caps": 1}, {"w=b": 1}]], dtype=object),
        [[(("w", "a"), ("caps", 1.0)), (("w", "b"),)]],
        ([["caps", ("w", "a")], [("w", ("b",))]],),
    ],
    ids=["tuples", "strings", "objects", "pairs", "names and pairs"],
)
def test_tokens_come_as_tuples_arrays_and_pairs(X):
    model = ChainCRF(C=10.0).fit(X, [("P", "O")])
    assert sorted(model.feature_names_) in (
        ["caps", "w=a", "w=b"],
        ["caps", "w\\=a", "w\\=b"],
    )
    assert model.predict(X)[0].tolist() == ["P", "O"]


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (
            [[(1.0, 2.0), (1.0,)]],
            ValueError,
            r"X: expected a matrix \(positions, features\) of numbers in sentence 0, "
            "got rows of 1 and of 2",
        ),
        (
            [[("Ada", 1.0), ("met",)]],
            TypeError,
            "X: expected names of features, or pairs of a name and a value, got 1.0",
        ),
        (
            [[], [{"a": 1}, None]],
            TypeError,
            "X: expected the features of each token, got None at position 1 of "
            "sentence 1",
        ),
        (
            iter([[["a"]], [], [["a"], "b"]]),
            TypeError,
            "X: expected the features of each token, got 'b' at position 1 of "
            "sentence 2",
        ),
    ],
)
def test_tokens_of_other_kinds_are_named(X, error, message):
    with pytest.raises(error, match=message):
        ChainCRF().fit(X, [["P", "O"]])


@pytest.mark.parametrize("make", [ChainCRF, ChainSVM, ChainGP])
def test_verbose_takes_levels(make, capsys):
    make(verbose=0).fit(ARRAY, TAGS)
    assert not capsys.readouterr().err
    make(verbose=1).fit(ARRAY, TAGS)
    assert "gap" in capsys.readouterr().err


def test_levels_of_verbosity_are_not_negative():
    with pytest.raises(ValueError, match="verbose: expected 0, 1 or 2, got -1"):
        ChainCRF(verbose=-1).fit(ARRAY, TAGS)
    with pytest.raises(TypeError, match=r"verbose: expected 0, 1, 2, .* got 'yes'"):
        ChainCRF(verbose="yes").fit(ARRAY, TAGS)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("algorithm", "solver='lbfgs'"),
        ("c1", "there is no L1 penalty"),
        ("c2", r"C=1 / \(2 \* c2\)"),
        ("all_possible_states", "all_pairs"),
        ("gamma", "no equivalent; remove it"),
    ],
)
def test_parameters_of_sklearn_crfsuite_are_translated(name, remedy):
    message = f"got '{name}' of sklearn-crfsuite; .*{remedy}"
    with pytest.raises(TypeError, match=message):
        ChainCRF(**{name: 0.1})
    with pytest.raises(ValueError, match=message):
        ChainCRF().set_params(**{name: 0.1})


def test_other_unknown_parameters_are_named():
    with pytest.raises(TypeError, match=r"got 'Gamma'$"):
        ChainCRF(Gamma=1)
    assert "unknown" not in ChainCRF().get_params()
