"""Sets of objects in an image: the structure and its losses."""

import itertools

import numpy as np
import pytest
import torch
from torchvision.ops import box_iou

from smoothsp.models import detection
from smoothsp.models.detection import MAX_OVERLAP
from smoothsp.models.packing import (
    build_packing,
    cover_with_cliques,
    find_conflicts,
    undominated_boxes,
)
from smoothsp.models.set_losses import MATCH_IOU, Targets, hinge_loss
from smoothsp.models.set_losses import clique_loss as of_cliques
from smoothsp.models.windows import cluster_shapes, window_grid


def boxes_of(seed, count, side=40):
    chance = np.random.default_rng(seed)
    corners = chance.uniform(0, side, (count, 2))
    sizes = chance.uniform(10, 25, (count, 2))
    return torch.tensor(np.concatenate([corners, corners + sizes], 1)).float()


def sets_of(boxes):
    """All sets of boxes of which none overlap too much."""
    apart = box_iou(boxes, boxes) <= MAX_OVERLAP
    for used in itertools.product((False, True), repeat=len(boxes)):
        mask = torch.tensor(used)
        own = apart[mask][:, mask]
        if bool((own | torch.eye(len(own), dtype=torch.bool)).all()):
            yield mask


def test_boxes_on_difficult_objects_count_neither_way():
    true = torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([0])
    hard = torch.tensor([[20.0, 0, 30, 10]]), torch.tensor([0])
    none = torch.zeros(0, 4), torch.zeros(0, dtype=torch.long)

    def precision(*boxes, difficult=hard):
        count = len(boxes)
        scores = torch.linspace(1, 0.5, count)
        found = detection.Detections(
            torch.tensor(boxes), torch.zeros(count).long(), scores, count
        )
        return detection.mean_average_precision([found], [true], ["cup"], [difficult])[
            "map50"
        ]

    right, on_hard = [0.0, 0, 10, 10], [20.0, 0, 30, 10]
    assert precision(on_hard, right) == precision(right) == 1
    assert precision(on_hard, right, difficult=none) == pytest.approx(0.5)
    # it has to overlap as much as a true one
    assert precision([20.0, 0, 24, 10], right) == pytest.approx(0.5)


@pytest.mark.parametrize("seed", range(3))
def test_the_best_set_is_that_of_enumeration(seed):
    boxes, chance = boxes_of(seed, 10), torch.Generator().manual_seed(seed)
    scores = torch.randn(10, generator=chance)
    found = build_packing(scores, boxes, MAX_OVERLAP).best()
    assert any(torch.equal(found, mask) for mask in sets_of(boxes))
    best = max(float(scores[mask].sum()) for mask in sets_of(boxes))
    assert float(scores[found].sum()) == pytest.approx(best, abs=1e-5)
    # without those of no use it is the same, but for negative scores
    positive = (scores > 0).nonzero().squeeze(1)
    kept = positive[undominated_boxes(scores[positive], boxes[positive], MAX_OVERLAP)]
    assert len(kept) < 10
    again = kept[build_packing(scores[kept], boxes[kept], MAX_OVERLAP).best()]
    assert float(scores[again].sum()) == pytest.approx(best, abs=1e-5)


def test_cliques_cover_all_conflicts_and_are_cliques():
    conflict = find_conflicts(boxes_of(4, 30), MAX_OVERLAP)
    covered = np.zeros_like(conflict)
    for clique in cover_with_cliques(conflict):
        pairs = np.ix_(clique, clique)
        assert (conflict[pairs] | np.eye(len(clique), dtype=bool)).all()
        covered[pairs] = True
    np.fill_diagonal(covered, False)
    assert conflict.any() and (covered == conflict).all()


def few(seed):
    """Targets of an image whose object is one of six windows but for an inch."""
    boxes = boxes_of(seed, 6)
    none = torch.empty(0, 4)
    return Targets(boxes, boxes[:1] + 0.5, torch.tensor([1]), none, 2)


@pytest.mark.parametrize("seed", range(3))
def test_the_hinge_is_that_of_enumeration(seed):
    image = few(seed)
    chance = torch.Generator().manual_seed(seed)
    scores = torch.randn(6, 2, generator=chance, dtype=torch.float64)
    windows = image.select_windows(scores, "hinge")
    assert windows[0] == 0 and sorted(windows.tolist()) == list(range(6))
    own = scores[windows]
    pairs = image.boxes.repeat_interleave(2, 0)
    cost = torch.tensor(
        [
            [-c if c > MATCH_IOU else 1 for c in row]
            for row in image.class_overlap.double().tolist()
        ]
    )
    values = [float((scores + cost).flatten()[mask].sum()) for mask in sets_of(pairs)]
    expected = max(values) - float((scores + cost)[0, 1])
    found = hinge_loss(own, image, windows, None)
    assert float(found) == pytest.approx(expected, abs=1e-5)
    # mu / 2 for each box of a set is the most that smoothing takes off, or adds
    smoothed = hinge_loss(own, image, windows, 0.01)
    assert float(found) - 0.03 < float(smoothed) < float(found) + 0.03


def test_the_likelihood_of_groups_sums_to_one():
    image = few(1)
    scores = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    windows = image.select_windows(scores, "cliques")
    own = scores[windows]
    found = of_cliques(own, image, windows)
    # windows of the group of the true one compete with it, others with nothing
    leaders = [0]
    for n in own.amax(1).argsort(descending=True).tolist():
        near = box_iou(image.boxes[windows[[n]]], image.boxes[windows[leaders]])
        if n and bool((near <= MAX_OVERLAP).all()):
            leaders.append(n)
    near = box_iou(image.boxes[windows], image.boxes[windows[leaders]])
    group = near.argmax(1)
    none = torch.zeros(1)
    expected = -own[0, 1]
    for n in range(len(leaders)):
        expected = expected + torch.cat([none, own[group == n].flatten()]).logsumexp(0)
    assert float(found) == pytest.approx(float(expected), abs=1e-5)


def test_the_true_set_has_no_boxes_that_exclude_each_other():
    boxes = boxes_of(5, 40)
    found = Targets(boxes, boxes[:20], torch.arange(20) % 2, boxes[:0], 2)
    own = box_iou(boxes[found.true], boxes[found.true])
    assert 2 < len(found.true) < 20
    assert float(own.fill_diagonal_(0).max()) <= MAX_OVERLAP
    assert (found.class_overlap[found.true, found.labels] > MATCH_IOU).all()
    hard = Targets(boxes, boxes[:0], torch.arange(0), boxes[:1], 2)
    assert hard.is_ignored[0] and not len(hard.true) and not hard.class_overlap.any()


def test_windows_are_as_large_as_boxes_and_cover_an_image():
    boxes = np.float32([[5, 5, 25, 35], [40, 40, 60, 70], [0, 0, 8, 9]])
    found = cluster_shapes([boxes], [["a"] * 3], [(100, 80)])
    assert found == pytest.approx(np.array([[20, 30]]), rel=1e-4)
    placed = torch.from_numpy(window_grid(found, 100, 80))
    assert float(placed.min()) >= 0 and (placed.amax(0)[2:] <= 100).all()
    assert float(box_iou(placed, torch.tensor([[61.0, 37, 81, 67]])).max()) > 0.6
