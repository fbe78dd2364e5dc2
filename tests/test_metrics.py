"""Span F1 against seqeval and spans read by hand; localisation by its definition."""

import pytest
import seqeval.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st

from smoothsp.metrics import average_precision, corloc, span_f1, spans


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


# --- localisation ---


@st.composite
def boxes(draw):
    """Draw overlaps, confidences with ties, and how many true boxes there are."""
    size = draw(st.integers(1, 8))
    iou = draw(st.lists(st.sampled_from([0.0, 0.5, 0.51, 1.0]), min_size=size))
    scores = st.lists(st.integers(0, 3), min_size=len(iou), max_size=len(iou))
    return iou, draw(scores), len(iou) + draw(st.integers(0, 2))


@given(boxes())
def test_average_precision_is_the_area_under_the_best_precision_at_a_recall(drawn):
    iou, confidence, num_true = drawn
    points = []
    for threshold in set(confidence):
        pairs = zip(iou, confidence, strict=True)
        taken = [overlap > 0.5 for overlap, score in pairs if score >= threshold]
        points.append((sum(taken) / len(taken), sum(taken) / num_true))
    # constant between one recall that occurs and the next
    area, before = 0.0, 0.0
    for recall in sorted({recall for _, recall in points}):
        best = max(precision for precision, r in points if r >= recall)
        area, before = area + best * (recall - before), recall
    found = average_precision(iou, confidence, num_true)
    assert found == pytest.approx(area, abs=1e-12)


@given(boxes())
def test_corloc_is_a_share_that_no_average_precision_exceeds(drawn):
    iou, confidence, _ = drawn
    share = corloc(iou)
    assert share == sum(overlap > 0.5 for overlap in iou) / len(iou)
    assert average_precision(iou, confidence) <= share + 1e-12
    # all of one confidence: precision and recall are both the share
    assert average_precision(iou, [1.0] * len(iou)) == pytest.approx(share**2)


def test_an_overlap_of_the_threshold_is_not_enough():
    assert corloc([0.5]) == 0.0 == average_precision([0.5], [1.0])
    assert corloc([0.5], threshold=0.4) == 1.0
    assert average_precision([0.5], [1.0], threshold=0.4) == 1.0


def test_tensors_are_taken_as_lists_are():
    iou, confidence = torch.tensor([0.9, 0.1, 0.8]), torch.tensor([3, 2, 1])
    assert corloc(iou) == pytest.approx(2 / 3)
    assert average_precision(iou, confidence) == pytest.approx(1 / 3 + 2 / 9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], []), r"iou: expected one number per image, got shape \(0,\)"),
        (([[0.5]], [1.0]), r"iou: expected one number per image, got shape \(1, 1\)"),
        (([0.5, 1.5], [1, 1]), r"iou: expected overlaps in \[0, 1\], got 1.5 at 1"),
        (([0.5, -1.0], [1, 1]), "iou: expected overlaps.*got -1 at 1"),
        (([float("nan")], [1]), "iou: expected overlaps.*got nan at 0"),
        (([0.5], [1, 2]), r"confidence: expected 1 numbers as in iou, got \(2,\)"),
        (([0.5], [float("nan")]), "confidence: expected numbers, got NaN at 0"),
        (([0.9, 0.9], [1, 2], 1), "num_true: expected at least the 2.*got 1"),
        (([0.1], [1], 0), "num_true: expected at least 1, got 0"),
    ],
)
def test_overlaps_and_confidences_that_cannot_be_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        average_precision(*arguments)
    if message.startswith("iou"):
        with pytest.raises(ValueError, match=message):
            corloc(arguments[0])
