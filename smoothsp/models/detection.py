"""Sets of objects from the scores of windows, and how good they are."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torchvision.ops import batched_nms, box_iou, nms

from smoothsp.models.packing import build_packing, undominated_boxes

__all__ = [
    "DECODERS",
    "MAX_BOXES",
    "MAX_OVERLAP",
    "NMS_OVERLAP",
    "Detections",
    "mean_average_precision",
]

# boxes of a set overlap by no more: of true ones few in a hundred do
MAX_OVERLAP = 0.4
# most windows that a set is chosen from, and most boxes of an image (COCO's)
CONSIDERED, MAX_BOXES = 150, 100
# softmax: boxes below are left out; overlap of those that suppress each other
LEAST, NMS_OVERLAP = 0.01, 0.3


@dataclass(frozen=True)
class Detections:
    """Boxes of an image ``(box, 4)``, their classes and their scores, best first."""

    boxes: Tensor
    labels: Tensor
    scores: Tensor
    sure: int
    """How many are in the best set; the others only rank behind them."""


def decode_best_set(scores: Tensor, boxes: Tensor) -> Detections:
    """The best set of labelled boxes, and behind it boxes for the curve of precision.

    The sum of the scores ``(box, class)`` decides, and a box that is left out counts
    nothing. The set is the best of the ``CONSIDERED`` best boxes, by integer
    programming. Behind it come, best first, boxes that exclude none before them.
    """
    best, labels = scores.max(1)
    top = best.topk(min(CONSIDERED, len(best)))
    kept = top.indices[top.values > 0]
    if len(kept):
        kept = kept[undominated_boxes(best[kept], boxes[kept], MAX_OVERLAP)]
        kept = kept[build_packing(best[kept], boxes[kept], MAX_OVERLAP).best()]
    order = best.clone()
    order[kept] = torch.inf
    found = nms(boxes, order, MAX_OVERLAP)[:MAX_BOXES]
    found = torch.cat([kept[best[kept].argsort(descending=True)], found[len(kept) :]])
    return Detections(boxes[found], labels[found], best[found], len(kept))


def decode_nms(scores: Tensor, boxes: Tensor) -> Detections:
    """Non-maximum suppression by class, of the softmax over classes and nothing."""
    none = scores.new_zeros(len(scores), 1)
    probability = torch.cat([none, scores], 1).softmax(1)[:, 1:]
    windows, labels = (probability > LEAST).nonzero(as_tuple=True)
    own = probability[windows, labels]
    kept = batched_nms(boxes[windows], own, labels, NMS_OVERLAP)[:MAX_BOXES]
    found, labels = windows[kept], labels[kept]
    sure = int((own[kept] > 0.5).sum())
    return Detections(boxes[found], labels, own[kept], sure)


DECODERS = {"best sets": decode_best_set, "non-maximum suppression": decode_nms}


def mean_average_precision(
    found: Sequence[Detections],
    objects: Sequence[tuple[Tensor, Tensor]],
    classes: list[str],
    difficult: Sequence[tuple[Tensor, Tensor]] = (),
) -> dict[str, float]:
    """COCO's mean average precision: at IoU .5, its mean to .95, and of each class.

    As in VOC, boxes whose nearest object of their class is ``difficult`` count neither
    as right nor as wrong if they overlap it enough.
    """
    true = [{"boxes": boxes, "labels": labels} for boxes, labels in objects]
    any_difficult = any(len(labels) for _, labels in difficult)

    def at(threshold: float) -> dict[str, Tensor]:
        kept = found
        if any_difficult:
            both = zip(found, objects, difficult, strict=True)
            kept = [_counted(*one, threshold) for one in both]
        return _metric(_as_given(kept), true, [threshold])

    at_half = at(0.5)
    numbers = {"map50": float(at_half["map"])}
    if any_difficult:
        values = [float(at(0.5 + 0.05 * step)["map"]) for step in range(10)]
        numbers["map"] = sum(values) / len(values)
    else:
        numbers["map"] = float(_metric(_as_given(found), true, None)["map"])
    own = at_half["map_per_class"].reshape(-1).tolist()
    for label, value in zip(at_half["classes"].reshape(-1).tolist(), own, strict=True):
        numbers[f"ap50_{classes[label]}"] = value
    return numbers


def _counted(
    found: Detections,
    objects: tuple[Tensor, Tensor],
    difficult: tuple[Tensor, Tensor],
    threshold: float,
) -> Detections:
    """Without the boxes that find a difficult object."""

    def nearest(boxes: Tensor, labels: Tensor) -> Tensor:
        same = found.labels[:, None] == labels
        overlap = box_iou(found.boxes, boxes).masked_fill(~same, 0.0)
        best: Tensor = overlap.amax(1) if len(labels) else overlap.sum(1)
        return best

    hard = nearest(*difficult)
    kept = (hard < threshold) | (hard <= nearest(*objects))
    return Detections(
        found.boxes[kept], found.labels[kept], found.scores[kept], found.sure
    )


def _as_given(found: Sequence[Detections]) -> list[dict[str, Tensor]]:
    return [
        {"boxes": one.boxes, "labels": one.labels, "scores": one.scores}
        for one in found
    ]


def _metric(
    predicted: list[dict[str, Tensor]],
    true: list[dict[str, Tensor]],
    thresholds: list[float] | None,
) -> dict[str, Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # seconds to import
        try:
            from torchmetrics.detection import MeanAveragePrecision
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f'evaluate: needs {error.name}: pip install "smoothsp[localiser]"',
                name=error.name,
            ) from error

        metric = MeanAveragePrecision(
            iou_thresholds=thresholds,
            class_metrics=thresholds is not None,
            backend="pycocotools",
        )
        metric.update(predicted, true)
        found: dict[str, Tensor] = metric.compute()
        return found
