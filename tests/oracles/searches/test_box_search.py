"""Boxes: larger images against all boxes, what is visited, what is refused."""

import pytest
import torch
from torch.testing import assert_close

from smoothsp.losses import MinimumRisk, RankingHinge
from smoothsp.losses import functional as F
from smoothsp.oracles import BoxSearch
from tests.truth.circuits.cases import draw


def every_box(cells):
    """Scores ``[H, W, H, W]`` of all boxes of an image, -inf of what is none."""
    H, W = cells.shape
    sums = torch.zeros(H + 1, W + 1, dtype=torch.float64)
    sums[1:, 1:] = cells.cumsum(0).cumsum(1)
    top, left = torch.arange(H)[:, None, None, None], torch.arange(W)[:, None, None]
    bottom, right = torch.arange(H)[:, None], torch.arange(W)
    total = sums[bottom + 1, right + 1] - sums[top, right + 1]
    total = total - sums[bottom + 1, left] + sums[top, left]
    return total.masked_fill((top > bottom) | (left > right), -torch.inf)


def blobs(seed, B, H, W):
    """Noise with a brighter box in each image."""
    generator = torch.Generator().manual_seed(seed)
    cells = torch.randn(B, H, W, generator=generator, dtype=torch.float64) - 0.3
    for b in range(B):
        top, left = int(0.2 * H) + b, int(0.3 * W)
        cells[b, top : top + H // 3, left : left + W // 3] += 0.8
    return cells


def test_the_best_boxes_are_those_of_all_boxes():
    cells = blobs(0, 4, 18, 13)
    values, boxes, valid = BoxSearch(cells).decode_topk(7)
    assert valid.all()
    for b in range(4):
        ranked = every_box(cells[b]).flatten().sort(descending=True).values
        assert_close(values[b], ranked[:7])
        assert len(boxes[b].unique(dim=0)) == 7


def test_the_hinge_adds_what_boxes_do_not_overlap():
    cells = blobs(1, 3, 11, 12).requires_grad_()
    gold = torch.tensor([[2, 3, 5, 7], [0, 0, 10, 11], [4, 4, 4, 4]])
    built = BoxSearch(cells)
    for scale in (0.0, 1.0, 30.0):
        found = F.structural_hinge(built, gold, cost_scale=scale)
        for b in range(3):
            area = torch.zeros(11, 12, dtype=torch.float64)
            top, left, bottom, right = gold[b].tolist()
            area[top : bottom + 1, left : right + 1] = 1
            both, size = every_box(area), every_box(torch.ones_like(area))
            cost = 1 - both / (size + area.sum() - both)
            scores = every_box(cells[b].detach())
            best = torch.where(scores > -torch.inf, scores + scale * cost, scores).max()
            assert_close(found[b], best - scores[tuple(gold[b])])
    found.sum().backward()
    assert cells.grad.isfinite().all()


def test_risk_and_ranking_take_what_listed_boxes_do_not_overlap():
    case = draw("box_search", 0)
    ours, truth = case.leaves(), case.leaves()
    y = torch.stack([row[17] for row in case.outputs])
    built = ours.structure()
    risk = MinimumRisk(k=100, temperature=50.0, reduction="none")(built, y)
    ranking = RankingHinge(k=100, reduction="none")(built, y)
    (risk + ranking).sum().backward()
    total = 0
    for b, row in enumerate(truth.outputs):
        scores = truth.scores(b)
        costs = torch.stack([truth.wrong(box, y[b]) for box in row])
        expected = ((scores / 50).softmax(0) * costs).sum()
        ahead = (costs + scores - truth.score(b, y[b])).clamp(min=0).mean()
        assert_close((risk[b], ranking[b]), (expected, ahead))
        total = total + expected + ahead
    total.backward()
    assert_close(ours.potentials["cells"].grad, truth.potentials["cells"].grad)


def test_most_boxes_are_never_visited():
    cells = blobs(2, 1, 60, 60)
    visits = BoxSearch(cells).visits()
    every = (60 * 61 // 2) ** 2
    assert 0 < int(visits) < every // 100
    assert (BoxSearch(cells).visits(5) > visits).all()


def test_a_box_holds_no_forbidden_cell():
    cells = torch.full((1, 5, 5), 1.0)
    cells[0, 2, 2] = -torch.inf
    value, box = BoxSearch(cells).decode()
    assert value.item() == 10
    _, boxes, valid = BoxSearch(cells).decode_topk(300)
    assert int(valid.sum()) == 225 - 81
    assert not (
        (boxes[valid][:, :2] <= 2).all(1) & (boxes[valid][:, 2:] >= 2).all(1)
    ).any()
    assert (BoxSearch(cells).score(torch.tensor([[0, 0, 4, 4]])) == -torch.inf).all()
    assert box.shape == (1, 4)


def test_one_cell_and_no_image():
    value, box = BoxSearch(torch.tensor([[[-3.0]]])).decode()
    assert value.tolist() == [-3.0]
    assert box.tolist() == [[0, 0, 0, 0]]
    values, boxes, valid = BoxSearch(torch.zeros(0, 2, 2)).decode_topk(2)
    assert values.shape == valid.shape == (0, 2)
    assert boxes.shape == (0, 2, 4)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: BoxSearch(torch.zeros(2, 0, 3)), "cells: "),
        (
            lambda: BoxSearch(torch.zeros(1, 2, 2)).score(torch.tensor([[1, 0, 0, 1]])),
            r"y: expected first row.*got \[1, 0, 0, 1\] at row 0",
        ),
        (
            lambda: BoxSearch(torch.zeros(1, 2, 2)).augment(torch.eye(2)[None]),
            "cost: expected one number .* at row 0; use hamming",
        ),
        (
            lambda: BoxSearch(torch.zeros(1, 2, 2)).augment(-torch.ones(1, 2, 2)),
            "cost: ",
        ),
        (
            lambda: (
                BoxSearch(torch.zeros(1, 2, 2))
                .augment(torch.ones(1, 2, 2))
                .augment(torch.ones(1, 2, 2))
            ),
            "cost: ",
        ),
    ],
)
def test_what_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
