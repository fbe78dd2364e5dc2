"""Localisation by its definition."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from smoothsp.metrics import average_precision, corloc


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


def test_what_are_no_numbers_is_named():
    complex_ones = torch.ones(1, dtype=torch.complex64)
    for wrong in (None, "0.5", [None], complex_ones, torch.ones(1, device="meta")):
        with pytest.raises(TypeError, match=r"^iou: expected"):
            corloc(wrong)
        with pytest.raises(TypeError, match=r"^confidence: expected"):
            average_precision([0.5], wrong)
