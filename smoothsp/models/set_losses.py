"""Losses of the scores of windows: three ways to train the same network.

Each looks at some windows only, which it chooses by the scores of all: those of the
true set, and the ones that matter most to it. Gradients are theirs.
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

# a window is an object if it overlaps one by more, as mean average precision has it
MATCH_IOU = 0.5
# windows beside those of the true set, and outputs of a mixture
CONSIDERED, OUTPUTS = 80, 4
# windows that overlap an object by less are none, for softmax
OTHER = 0.4


class Targets:
    """Windows of an image that stand for its objects, and how much the others cover.

    Parameters
    ----------
    boxes
        Windows ``(window, 4)``.
    objects, labels
        Boxes ``(object, 4)`` and classes ``(object,)``.
    difficult
        Boxes ``(object, 4)`` that are neither right nor wrong.
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
        self.true, self.labels = _true_set(boxes, overlap, labels).unbind(1)
        own = overlap[:, :, None] * F.one_hot(labels, classes)
        # highest overlap with an object of each class
        self.covered = own.amax(1) if len(labels) else own.sum(1)
        # beyond what the true set costs: 1 a box that is no object, and less where a
        # box stands for one, the better it fits
        self.cost = torch.where(self.covered > MATCH_IOU, -self.covered, 1.0)
        self.ignored = (box_iou(boxes, difficult) > OTHER).any(1)

    def considered(self, scores: Tensor, loss: str) -> Tensor:
        """Numbers of windows, those of the true set first, by scores of all."""
        value = (scores + self.cost if loss == "hinge" else scores).amax(1)
        first = torch.zeros(len(value), dtype=torch.bool)
        if loss == "softmax":
            # each of them has a class to learn
            first = (self.covered.amax(1) > MATCH_IOU) & ~self.ignored
        first[self.true] = False
        value = value.masked_fill(first | self.ignored, -torch.inf)
        value[self.true] = -torch.inf
        top = value.topk(min(CONSIDERED, len(value))).indices
        others = top[value[top] > -torch.inf]
        return torch.cat([self.true, first.nonzero().squeeze(1), others])

    def true_pairs(self, classes: int) -> Tensor:
        """Places of the true set among scores ``(window, class)`` of the considered."""
        return torch.arange(len(self.true)) * classes + self.labels


def _true_set(boxes: Tensor, overlap: Tensor, labels: Tensor) -> Tensor:
    """Windows and classes that stand for the objects, ``(object, 2)``.

    The best window of each object, of those that exclude none taken before; objects
    that windows fit best come first.
    """
    free, taken = torch.ones(len(boxes), dtype=torch.bool), []
    best = overlap.amax(0) if len(labels) else overlap.new_zeros(0)
    for one in best.argsort(descending=True).tolist():
        own = overlap[:, one].where(free, 0.0)
        window = int(own.argmax())
        if own[window] > MATCH_IOU:
            taken.append((window, int(labels[one])))
            free &= box_iou(boxes[window : window + 1], boxes)[0] <= MAX_OVERLAP
    return torch.tensor(taken, dtype=torch.long).reshape(-1, 2)


def hinge_loss(
    scores: Tensor, image: Targets, windows: Tensor, mu: float | None = None
) -> Tensor:
    """The structural hinge over sets, smoothed by squared marginals with ``mu``.

    A set costs 1 for each box that is no object, and for each object 1 less the overlap
    of the box that stands for it, beyond what the true set costs. In no best set are
    the classes of a window that are not its best one, nor any whose score and cost are
    not above 0: these are left out before.
    """
    classes = scores.shape[1]
    true = image.true_pairs(classes)
    flat, cost = scores.flatten(), image.cost[windows].flatten()
    raised, best = (scores.detach() + image.cost[windows]).max(1)
    others = (raised > 0).nonzero().squeeze(1)
    others = others * classes + best[others]
    pairs = torch.cat([true, others[~torch.isin(others, true)]])
    if not len(pairs):
        return flat.sum() * 0
    own = build_packing(
        flat[pairs], image.boxes[windows[pairs // classes]], MAX_OVERLAP
    )
    y = own.laid_out((torch.arange(len(pairs)) < len(true)).long())
    laid = own.laid_out(cost[pairs])
    if mu is None:
        criterion = StructuralHinge(reduction="sum")
        above: Tensor = criterion(own.program, y, None, laid)
    else:
        loss = SparseMAPLoss(mu, laid, max_outputs=OUTPUTS, reduction="sum")
        above = loss(own.program, y)
    return above - cost[true].sum()


def clique_loss(scores: Tensor, image: Targets, windows: Tensor) -> Tensor:
    """Negative log-likelihood of the true set, one group of windows after another.

    Groups are windows around a leader, which excludes them: the leaders are the windows
    of the true set, then the best others that none excludes. The distribution is a
    product over groups, each a softmax over no object and one window with one class.
    """
    classes, boxes = scores.shape[1], image.boxes[windows]
    best = scores.detach().amax(1)
    best[: len(image.true)] = torch.inf
    leaders = nms(boxes, best, MAX_OVERLAP).sort().values
    group = box_iou(boxes, boxes[leaders]).argmax(1)
    group[leaders] = torch.arange(len(leaders))
    order, counts = group.argsort(stable=True), group.bincount()
    place = torch.empty_like(group)
    place[order] = torch.arange(len(order)) - (counts.cumsum(0) - counts)[group[order]]
    columns = 1 + place[:, None] * classes + torch.arange(classes)
    rows = group[:, None].expand_as(columns)
    table = scores.new_full((len(leaders), 1 + len(boxes) * classes), -torch.inf)
    table = table[:, : 2 + int(columns.max())]
    table[:, 0] = 0
    y = torch.zeros(len(leaders), dtype=torch.long)
    true = image.true_pairs(classes)
    y[rows.flatten()[true]] = columns.flatten()[true]
    structure = Multiclass(table.index_put((rows, columns), scores))
    loss: Tensor = CRFLoss(reduction="sum")(structure, y)
    return loss


def softmax_loss(scores: Tensor, image: Targets, windows: Tensor) -> Tensor:
    """Cross-entropy of each window alone, per object."""
    best, labels = image.covered[windows].max(1)
    y = torch.where(best > MATCH_IOU, labels + 1, 0)
    clear = (best > MATCH_IOU) | (best < OTHER)
    logits = torch.cat([scores.new_zeros(len(scores), 1), scores], 1)
    total = F.cross_entropy(logits[clear], y[clear], reduction="sum")
    return total / max(len(image.true), 1)


LOSSES = {"hinge": hinge_loss, "cliques": clique_loss, "softmax": softmax_loss}
