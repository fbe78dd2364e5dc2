"""What a tagger has learnt, by the names of features and labels."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from smoothsp.linear import ChainCRF
from smoothsp.linear.features import Templates

X = [
    [{"word": "Ada", "caps": True}, {"word": "met"}, {"word": "Bob", "caps": True}],
    [{"word": "the"}, {"word": "dog"}],
]
Y = [["PER", "O", "PER"], ["O", "O"]]


@pytest.fixture(scope="module")
def tagger():
    return ChainCRF(C=5.0).fit(X, Y)


def test_scores_are_sums_of_named_weights(tagger):
    states, moves = tagger.state_features_, tagger.transition_features_
    names = [["word=Ada", "caps"], ["word=met"], ["word=Bob", "caps"]]
    [scores] = tagger.decision_function(X[:1])
    for position, row in enumerate(names):
        for n, label in enumerate(tagger.classes_.tolist()):
            total = sum(states.get((name, label), 0.0) for name in row)
            total += tagger.start_[n] if position == 0 else 0
            total += tagger.end_[n] if position == 2 else 0
            assert scores[position, n] == pytest.approx(total)
    assert moves["PER", "O"] == tagger.transitions_[1, 0]
    assert len(moves) == 4


def test_the_table_has_the_largest_weights_of_each_label(tagger):
    table = tagger.top_features(2)
    for n, label in enumerate(tagger.classes_.tolist()):
        rows = [r for r in table if r.label == label and r.kind == "feature"]
        sizes = np.sort(np.abs(tagger.coef_[n]))[::-1][:2]
        assert sorted((abs(r.weight) for r in rows), reverse=True) == sizes.tolist()
        assert [r.weight for r in rows] == sorted(r.weight for r in rows)[::-1]
        for row in rows:
            assert row.weight == tagger.state_features_[row.feature, label]
        moves = [r for r in table if r.label == label and r.kind == "transition"]
        for row in moves:
            assert row.weight == tagger.transition_features_[row.feature, label]
    lines = str(table).splitlines()
    assert len(lines) == len(table) + 1
    assert sum("  after " in line for line in lines) == 4
    assert table[0].feature == "caps" or "caps" in str(table)


def test_marginals_of_one_sentence_are_those_of_many(tagger):
    named = tagger.predict_marginals_single(X[0])
    [found] = tagger.predict_marginals(X[:1])
    for row, values in zip(named, found, strict=True):
        assert list(row) == tagger.classes_.tolist()
        assert list(row.values()) == values.tolist()
        assert sum(row.values()) == pytest.approx(1)
    assert tagger.predict_marginals_single([]) == []


WORDS = [["Ada", "met", "Bob"], [], ["the", "dog"]]


def test_a_pipeline_names_the_features_of_its_templates():
    templates = Templates(["word[-1..0]", "shape(word)"])
    pipeline = make_pipeline(templates, ChainCRF(C=5.0)).fit(WORDS, [Y[0], [], Y[1]])
    names = pipeline[:-1].get_feature_names_out()
    assert names.dtype == object and names.tolist() == templates.names()
    tagger = pipeline[-1]
    assert tagger.state_features_.keys() == {
        (name, label) for name in names for label in tagger.classes_
    }
    table = tagger.top_features(3)
    assert {row.feature for row in table if row.kind == "feature"} <= set(names)
    assert table == tagger.top_features(3, names=names)
    # the names are those of the fit
    templates.fit([["else"]])
    assert tagger.top_features(3) == table
    pipeline.set_output(transform="default").fit(WORDS, [Y[0], [], Y[1]])
    with pytest.raises(ValueError, match="names: expected templates without hashing"):
        Templates(["word"], hashing=7).get_feature_names_out()
    with pytest.raises(ValueError, match=r"one for each of the 11 features, got 2"):
        tagger.top_features(names=["a", "b"])
    hashed = make_pipeline(Templates(["word"], hashing=7), ChainCRF())
    hashed.fit(WORDS, [Y[0], [], Y[1]])
    assert {row.feature for row in hashed[-1].top_features()} & {*"0123456"}
