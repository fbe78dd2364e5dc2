"""Losses of window scores for several objects: set hinge, cliques, softmax.

Each loss uses the windows of the true set and the highest-scoring other ones, selected
by scores of all windows. Gradients flow to the selected windows only.
"""

import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision.ops import box_iou, nms

from smoothsp.losses import CRFLoss, SparseMAPLoss, StructuralHinge
from smoothsp.models.detection import MAX_OVERLAP
from smoothsp.models.packing import build_packing
from smoothsp.oracles import Multiclass

__all__ = [
    "LOSSES",
    "MATCH_IOU",
    "Targets",
    "clique_loss",
    "hinge_loss",
    "softmax_loss",
]

# IoU above which a window matches an object, as in mean average precision.
MATCH_IOU = 0.5
# Maximum number of windows beside the true set, and of outputs of a SparseMAP mixture.
MAX_NEGATIVES, MIXTURE_OUTPUTS = 80, 4
# For softmax, windows whose IoU with all objects is below this are background; those
# between the thresholds are not used.
BACKGROUND_IOU = 0.4


class Targets:
    """Windows matched to the objects of an image, and overlaps of all windows.

    Parameters
    ----------
    boxes
        Boxes of windows ``(window, 4)``.
    objects, labels
        Boxes ``(object, 4)`` and classes ``(object,)``.
    difficult
        Boxes ``(object, 4)`` that are neither trained on nor scored.
    classes
        Number of classes.
    """

    def __init__(
        self,
        boxes: Tensor,
        objects: Tensor,
        labels: Tensor,
        difficult: Tensor,
        classes: int,
    ) -> None:
        self.boxes = boxes
        overlap = box_iou(boxes, objects)
        self.true, self.labels = _match_windows_to_objects(
            boxes, overlap, labels
        ).unbind(1)
        class_overlaps = overlap[:, :, None] * F.one_hot(labels, classes)
        # Highest IoU of each window with an object of each class.
        self.class_overlap = (
            class_overlaps.amax(1) if len(labels) else class_overlaps.sum(1)
        )
        # Cost relative to the empty set: 1 for a false positive. A match has -IoU,
        # since it saves the cost of a missed object.
        self.cost = torch.where(
            self.class_overlap > MATCH_IOU, -self.class_overlap, 1.0
        )
        self.is_ignored = (box_iou(boxes, difficult) > BACKGROUND_IOU).any(1)

    def select_windows(self, scores: Tensor, loss: str) -> Tensor:
        """Select windows for a loss by the scores of all; the true set comes first."""
        value = (scores + self.cost if loss == "hinge" else scores).amax(1)
        first = torch.zeros(len(value), dtype=torch.bool)
        if loss == "softmax":
            # All matching windows are positives of their class.
            first = (self.class_overlap.amax(1) > MATCH_IOU) & ~self.is_ignored
        first[self.true] = False
        value = value.masked_fill(first | self.is_ignored, -torch.inf)
        value[self.true] = -torch.inf
        top = value.topk(min(MAX_NEGATIVES, len(value))).indices
        others = top[value[top] > -torch.inf]
        return torch.cat([self.true, first.nonzero().squeeze(1), others])

    def true_indices(self, classes: int) -> Tensor:
        """Return flat indices of the true set in the selected ``(window, class)``."""
        return torch.arange(len(self.true)) * classes + self.labels


def _match_windows_to_objects(boxes: Tensor, overlap: Tensor, labels: Tensor) -> Tensor:
    """Match windows to objects: (window, class) of each match, ``(match, 2)``.

    Greedy, objects with the highest IoU first: each object gets the best window that
    excludes no window chosen before.
    """
    is_free, chosen = torch.ones(len(boxes), dtype=torch.bool), []
    best = overlap.amax(0) if len(labels) else overlap.new_zeros(0)
    for object_index in best.argsort(descending=True).tolist():
        free_overlap = overlap[:, object_index].where(is_free, 0.0)
        window = int(free_overlap.argmax())
        if free_overlap[window] > MATCH_IOU:
            chosen.append((window, int(labels[object_index])))
            is_free &= box_iou(boxes[window : window + 1], boxes)[0] <= MAX_OVERLAP
    return torch.tensor(chosen, dtype=torch.long).reshape(-1, 2)


def hinge_loss(
    scores: Tensor, image: Targets, windows: Tensor, mu: float | None = None
) -> Tensor:
    """Structural hinge over sets of boxes; with ``mu``, smoothed by SparseMAP.

    A set costs 1 for each false positive, and ``1 - IoU`` for each object, relative to
    the cost of the true set. Pairs that are in no best set are removed beforehand:
    classes of a window other than its best, and pairs whose score plus cost is not
    positive.
    """
    classes = scores.shape[1]
    true = image.true_indices(classes)
    flat, cost = scores.flatten(), image.cost[windows].flatten()
    augmented_score, best = (scores.detach() + image.cost[windows]).max(1)
    negatives = (augmented_score > 0).nonzero().squeeze(1)
    negatives = negatives * classes + best[negatives]
    pairs = torch.cat([true, negatives[~torch.isin(negatives, true)]])
    if not len(pairs):
        return flat.sum() * 0
    packed = build_packing(
        flat[pairs], image.boxes[windows[pairs // classes]], MAX_OVERLAP
    )
    y = packed.scatter((torch.arange(len(pairs)) < len(true)).long())
    scattered_cost = packed.scatter(cost[pairs])
    if mu is None:
        criterion = StructuralHinge(reduction="sum")
        augmented: Tensor = criterion(packed.program, y, None, scattered_cost)
    else:
        loss = SparseMAPLoss(
            mu, scattered_cost, max_outputs=MIXTURE_OUTPUTS, reduction="sum"
        )
        augmented = loss(packed.program, y)
    return augmented - cost[true].sum()


def clique_loss(scores: Tensor, image: Targets, windows: Tensor) -> Tensor:
    """Negative log-likelihood of the true set, as a product over groups of windows.

    Each group is a leader and the windows that overlap it most. Leaders are the windows
    of the true set, then further windows by non-maximum suppression. Each group has a
    softmax over no object and all its pairs of window and class.
    """
    classes, boxes = scores.shape[1], image.boxes[windows]
    best = scores.detach().amax(1)
    best[: len(image.true)] = torch.inf
    # Infinite scores make all windows of the true set leaders.
    leaders = nms(boxes, best, MAX_OVERLAP).sort().values
    group = box_iou(boxes, boxes[leaders]).argmax(1)
    group[leaders] = torch.arange(len(leaders))
    order, counts = group.argsort(stable=True), group.bincount()
    position_in_group = torch.empty_like(group)
    position_in_group[order] = (
        torch.arange(len(order)) - (counts.cumsum(0) - counts)[group[order]]
    )
    columns = 1 + position_in_group[:, None] * classes + torch.arange(classes)
    rows = group[:, None].expand_as(columns)
    table = scores.new_full((len(leaders), 1 + len(boxes) * classes), -torch.inf)
    table = table[:, : 2 + int(columns.max())]
    table[:, 0] = 0
    y = torch.zeros(len(leaders), dtype=torch.long)
    true = image.true_indices(classes)
    y[rows.flatten()[true]] = columns.flatten()[true]
    structure = Multiclass(table.index_put((rows, columns), scores))
    loss: Tensor = CRFLoss(reduction="sum")(structure, y)
    return loss


def softmax_loss(scores: Tensor, image: Targets, windows: Tensor) -> Tensor:
    """Cross-entropy of single windows, summed and divided by the number of objects."""
    best, labels = image.class_overlap[windows].max(1)
    y = torch.where(best > MATCH_IOU, labels + 1, 0)
    clear = (best > MATCH_IOU) | (best < BACKGROUND_IOU)
    logits = torch.cat([scores.new_zeros(len(scores), 1), scores], 1)
    total = F.cross_entropy(logits[clear], y[clear], reduction="sum")
    return total / max(len(image.true), 1)


LOSSES = {"hinge": hinge_loss, "cliques": clique_loss, "softmax": softmax_loss}
