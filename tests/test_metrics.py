"""Span F1 against seqeval, and against spans read by hand."""

import pytest
import seqeval.metrics
from hypothesis import given
from hypothesis import strategies as st

from smoothsp.metrics import span_f1, spans


@st.composite
def corpora(draw):
    """Draw gold and predicted sentences of equal lengths, often ill-formed."""
    prefixes = draw(st.sampled_from(["BI", "I", "BIES"]))
    labels = ["O", *(f"{p}-{kind}" for p in prefixes for kind in ("X", "Y"))]
    label = st.sampled_from(labels)
    gold = draw(st.lists(st.lists(label, max_size=8), min_size=1, max_size=4))
    changes = st.tuples(st.booleans(), label)
    predicted = []
    for sentence in gold:
        changed = draw(
            st.lists(changes, min_size=len(sentence), max_size=len(sentence))
        )
        pairs = zip(sentence, changed, strict=True)
        predicted.append([new if change else old for old, (change, new) in pairs])
    return gold, predicted


@given(corpora())
def test_span_f1_equals_seqeval(drawn):
    gold, predicted = drawn
    ours = span_f1(gold, predicted)
    options = {"zero_division": 0}
    for found, score in zip(
        ours,
        (
            seqeval.metrics.precision_score,
            seqeval.metrics.recall_score,
            seqeval.metrics.f1_score,
        ),
        strict=True,
    ):
        assert found == pytest.approx(score(gold, predicted, **options), abs=1e-12)


@given(corpora())
def test_spans_equal_those_of_seqeval(drawn):
    for sentence in drawn[0]:
        found = seqeval.metrics.sequence_labeling.get_entities(list(sentence))
        assert spans(sentence) == set(found)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("", []),
        ("O O", []),
        ("B-PER I-PER O B-LOC", [("PER", 0, 1), ("LOC", 3, 3)]),
        ("I-PER I-PER B-PER O", [("PER", 0, 1), ("PER", 2, 2)]),
        ("I-PER I-LOC", [("PER", 0, 0), ("LOC", 1, 1)]),
        ("B-PER B-PER I-PER", [("PER", 0, 0), ("PER", 1, 2)]),
        ("S-PER S-PER", [("PER", 0, 0), ("PER", 1, 1)]),
        ("B-PER I-PER E-PER S-LOC", [("PER", 0, 2), ("LOC", 3, 3)]),
        ("B-PER E-PER I-PER", [("PER", 0, 1), ("PER", 2, 2)]),
        ("O I-MISC-A I-MISC-A", [("MISC-A", 1, 2)]),
    ],
)
def test_spans_are_read_by_the_rules_of_conll(tags, expected):
    assert spans(tags.split()) == set(expected)


def test_the_numbers_are_fractions_of_all_spans():
    gold = [["B-X", "I-X", "O"], ["B-Y", "O"], ["B-X"]]
    predicted = [["B-X", "I-X", "B-X"], ["B-X", "O"], ["O"]]
    # one of three proposed, one of three wanted
    assert span_f1(gold, predicted) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert span_f1(gold, gold) == (1.0, 1.0, 1.0)
    assert span_f1([["O"]], [["O"]]) == (0.0, 0.0, 0.0)
    assert span_f1([], []) == (0.0, 0.0, 0.0)


def test_sentences_that_do_not_match_are_named():
    with pytest.raises(ValueError, match=r"predicted: expected 1 sentences.*got 2"):
        span_f1([["O"]], [["O"], ["O"]])
    with pytest.raises(
        ValueError, match=r"predicted: expected 1 labels.*sentence 1.*got 2"
    ):
        span_f1([["O"], ["O"]], [["O"], ["O", "O"]])
