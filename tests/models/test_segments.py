"""Segments over emissions of BIOES labels against the definition, word by word."""

import itertools
import re

import pytest
import torch

from smoothsp.losses import CRFLoss, LatentHinge, MarginalLikelihood, StructuralHinge
from smoothsp.models.segments import SegmentHead

LABELS = ["O", *(f"{p}-{kind}" for kind in ("A", "B") for p in "BIES")]
LONGEST = 3


@pytest.fixture
def head():
    torch.manual_seed(0)
    made = SegmentHead(LABELS, LONGEST).double()
    for scores in made.parameters():
        torch.nn.init.normal_(scores)
    return made


def segmentations(n):
    """All lists of (first, last, state) that cover n words."""
    if n == 0:
        yield []
        return
    for d in range(min(LONGEST, n)):
        for state in (0, 1, 2) if d == 0 else (1, 2):
            for rest in segmentations(n - d - 1):
                yield [*rest, (n - d - 1, n - 1, state)]


def labels_of(segments):
    found = []
    for first, last, state in segments:
        if state == 0:
            found.append("O")
            continue
        size = last + 1 - first
        prefixes = "S" if size == 1 else f"B{'I' * (size - 2)}E"
        found += [f"{p}-{' AB'[state]}" for p in prefixes]
    return [LABELS.index(label) for label in found]


@torch.no_grad()
def score_of(head, emissions, segments):
    total = sum(emissions[t, label] for t, label in enumerate(labels_of(segments)))
    total += sum(head.durations[last - first, s] for first, last, s in segments)
    for (_, _, a), (_, _, b) in itertools.pairwise(segments):
        total += head.transitions[a, b]
    if segments:
        total += head.start_transitions[segments[0][2]]
        total += head.end_transitions[segments[-1][2]]
    return total


@pytest.mark.parametrize("n", [0, 1, 2, 4])
def test_every_segmentation_has_its_score_and_its_labels(head, n):
    torch.manual_seed(n)
    emissions = torch.randn(1, 5, len(LABELS), dtype=torch.float64)
    mask = torch.arange(5) < torch.tensor([[n]])
    structure = head.structure(emissions, mask)
    every = list(segmentations(n))
    found = [float(score_of(head, emissions[0], s)) for s in every]
    scores = torch.tensor(found, dtype=torch.float64)
    torch.testing.assert_close(structure.log_partition()[0], scores.logsumexp(0))
    torch.testing.assert_close(head.decode(emissions, mask).scores[0], scores.max())
    for segments, score in zip(every, scores, strict=True):
        tags = torch.tensor([labels_of(segments) + [-1] * (5 - n)])
        y = head.outputs(tags, mask)
        torch.testing.assert_close(structure.score(y)[0], score)
        again = head.tags(y[:, None], structure.lengths).squeeze(1)
        assert again.tolist() == tags.tolist()
    best = head.decode(emissions, mask).tags[0, :n].tolist()
    assert best == labels_of(every[int(scores.argmax())])


def test_partial_labels_leave_the_segmentations_that_fit(head):
    torch.manual_seed(7)
    emissions = torch.randn(1, 4, len(LABELS), dtype=torch.float64)
    mask = torch.ones(1, 4, dtype=torch.bool)
    labels = torch.rand(1, 4, len(LABELS)) < 0.6
    labels[..., 0] = True
    structure = head.structure(emissions, mask)
    loss = MarginalLikelihood()(structure, head.allowed(labels))
    fits = [
        float(score_of(head, emissions[0], s))
        for s in segmentations(4)
        if all(labels[0, t, label] for t, label in enumerate(labels_of(s)))
    ]
    some = torch.tensor(fits, dtype=torch.float64).logsumexp(0)
    torch.testing.assert_close(loss, structure.log_partition()[0] - some)
    assert LatentHinge()(structure, head.allowed(labels)) >= 0


def test_losses_differentiate_in_all_scores(head):
    emissions = torch.randn(2, 4, len(LABELS), dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True] * 4, [True] * 2 + [False] * 2])
    tags = torch.tensor([[1, 2, 3, 8], [0, 4, -1, -1]])
    for loss in (CRFLoss(), StructuralHinge()):
        head.zero_grad()
        head(emissions, tags, mask, loss=loss).backward()
        assert all(p.grad.abs().sum() > 0 for p in head.parameters())


def test_what_does_not_fit_is_named(head):
    with pytest.raises(ValueError, match=r"^longest: expected"):
        SegmentHead(LABELS, 0)
    with pytest.raises(ValueError, match=r"^labels: expected O and B-"):
        SegmentHead(["O", "B-A", "I-A"], 2)
    emissions = torch.zeros(1, 3, len(LABELS), dtype=torch.float64)
    with pytest.raises(ValueError, match=r"^mask: .* got a hole"):
        head.structure(emissions, torch.tensor([[True, False, True]]))
    mask, tags = torch.ones(1, 3, dtype=torch.bool), torch.tensor([[0, 9, 0]])
    for wrong, message in (
        ((emissions[..., :4], mask), "emissions: expected (batch, time, 9)"),
        ((emissions, None), "mask: expected a torch.Tensor"),
        ((emissions, mask.long()), "mask: expected torch.bool"),
        ((emissions, mask[:, :2]), "mask: expected (batch, time) = (1, 3)"),
        ((emissions.to("meta"), mask), "emissions: structures compute on cpu"),
    ):
        with pytest.raises((TypeError, ValueError), match=re.escape(message)):
            head.structure(*wrong)
    for wrong, message in (
        ([None], r"^emissions: expected a torch.Tensor, got NoneType"),
        ([emissions.float()], r"^emissions: expected torch.float64 like this head"),
        ([emissions.int()], r"^emissions: expected float32 or float64"),
    ):
        with pytest.raises(TypeError, match=message):
            head.structure(*wrong, mask)
    for place, value in ((4, "nan"), (2, "inf")):
        wrong = emissions.clone()
        wrong[0, 1, place] = float(value)
        message = f"^emissions: .* got {value} at row 0, step 1, label {place}; "
        with pytest.raises(ValueError, match=message):
            head.structure(wrong, mask)
    # nothing is read of what is padding
    wrong[0, 1:] = torch.nan
    head.structure(wrong, torch.tensor([[True, False, False]]))
    with pytest.raises(ValueError, match=r"^emissions, durations: row 0 has no"):
        head.structure(torch.full_like(emissions, -torch.inf), mask)
    diverged = SegmentHead(LABELS, 2).double()
    diverged.durations.data[1, 0] = torch.nan
    with pytest.raises(ValueError, match=r"^durations: .* nan at duration 1, state 0"):
        diverged.structure(emissions, mask)
    for wrong in (None, tags.double()):
        with pytest.raises(TypeError, match=r"^tags: expected"):
            head.outputs(wrong, mask)
    for wrong in (None, 3, [["O"]]):
        with pytest.raises(TypeError, match=r"^labels: expected strings, got"):
            SegmentHead(wrong, 2)
    with pytest.raises(ValueError, match=r"^tags: .* got 9 at row 0, step 1"):
        head.outputs(tags, mask)
    with pytest.raises(ValueError, match=r"^tags: expected \(batch, time\)"):
        head.outputs(tags[:, :2], mask)
