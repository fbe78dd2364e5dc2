"""Detection of several objects: decoding of window scores, average precision."""

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

# Largest IoU of two boxes of a set; few percent of true boxes overlap more.
MAX_OVERLAP = 0.4
# Maximum number of windows in the integer program, and of boxes of an image (as COCO).
MAX_CANDIDATES, MAX_BOXES = 150, 100
# Softmax decoding: smallest probability of a box, and IoU above which it is suppressed.
MIN_PROBABILITY, NMS_OVERLAP = 0.01, 0.3


@dataclass(frozen=True)
class Detections:
    """Boxes of an image ``(box, 4)``, their classes and their scores, best first."""

    boxes: Tensor
    labels: Tensor
    scores: Tensor
    num_selected: int
    """Number of leading boxes that form the output; further ones only complete the
    precision-recall curve."""


def decode_best_set(scores: Tensor, boxes: Tensor) -> Detections:
    """Decode the set of labelled boxes with the largest sum of scores.

    Boxes that overlap exclude each other. An integer program chooses among the
    ``MAX_CANDIDATES`` best boxes. Further boxes that overlap no earlier one follow,
    best first, for the precision-recall curve.
    """
    best, labels = scores.max(1)
    top_scores = best.topk(min(MAX_CANDIDATES, len(best)))
    selected = top_scores.indices[top_scores.values > 0]
    if len(selected):
        selected = selected[
            undominated_boxes(best[selected], boxes[selected], MAX_OVERLAP)
        ]
        selected = selected[
            build_packing(best[selected], boxes[selected], MAX_OVERLAP).best()
        ]
    order = best.clone()
    # Selected boxes come first in the suppression, so they exclude all others.
    order[selected] = torch.inf
    ranked = nms(boxes, order, MAX_OVERLAP)[:MAX_BOXES]
    ranked = torch.cat(
        [selected[best[selected].argsort(descending=True)], ranked[len(selected) :]]
    )
    return Detections(boxes[ranked], labels[ranked], best[ranked], len(selected))


def decode_nms(scores: Tensor, boxes: Tensor) -> Detections:
    """Decode by non-maximum suppression a class, with softmax probabilities.

    The background is a further class with score 0.
    """
    background = scores.new_zeros(len(scores), 1)
    probability = torch.cat([background, scores], 1).softmax(1)[:, 1:]
    pair_boxes, labels = (probability > MIN_PROBABILITY).nonzero(as_tuple=True)
    probabilities_of_pairs = probability[pair_boxes, labels]
    selected = batched_nms(
        boxes[pair_boxes], probabilities_of_pairs, labels, NMS_OVERLAP
    )[:MAX_BOXES]
    box_indices, labels = pair_boxes[selected], labels[selected]
    num_selected = int((probabilities_of_pairs[selected] > 0.5).sum())
    return Detections(
        boxes[box_indices], labels, probabilities_of_pairs[selected], num_selected
    )


DECODERS = {"best sets": decode_best_set, "non-maximum suppression": decode_nms}


def mean_average_precision(
    detected: Sequence[Detections],
    objects: Sequence[tuple[Tensor, Tensor]],
    classes: list[str],
    difficult: Sequence[tuple[Tensor, Tensor]] = (),
) -> dict[str, float]:
    """Return COCO's mean average precision: at IoU 0.5, over 0.5 to 0.95, by class.

    As in VOC, boxes that match a ``difficult`` object best count neither as true nor as
    false positives.
    """
    true_objects = [{"boxes": boxes, "labels": labels} for boxes, labels in objects]
    any_difficult = any(len(labels) for _, labels in difficult)

    def compute_at(threshold: float) -> dict[str, Tensor]:
        scored = detected
        if any_difficult:
            both = zip(detected, objects, difficult, strict=True)
            scored = [_drop_difficult_matches(*image, threshold) for image in both]
        return _compute_mean_average_precision(
            _to_torchmetrics(scored), true_objects, [threshold]
        )

    at_half = compute_at(0.5)
    numbers = {"map50": float(at_half["map"])}
    if any_difficult:
        values = [float(compute_at(0.5 + 0.05 * step)["map"]) for step in range(10)]
        numbers["map"] = sum(values) / len(values)
    else:
        numbers["map"] = float(
            _compute_mean_average_precision(
                _to_torchmetrics(detected), true_objects, None
            )["map"]
        )
    class_values = at_half["map_per_class"].reshape(-1).tolist()
    for label, value in zip(
        at_half["classes"].reshape(-1).tolist(), class_values, strict=True
    ):
        numbers[f"ap50_{classes[label]}"] = value
    return numbers


def _drop_difficult_matches(
    detected: Detections,
    objects: tuple[Tensor, Tensor],
    difficult: tuple[Tensor, Tensor],
    threshold: float,
) -> Detections:
    """Drop boxes that match a difficult object best, with at least ``threshold``."""

    def max_class_overlap(boxes: Tensor, labels: Tensor) -> Tensor:
        is_same_class = detected.labels[:, None] == labels
        overlap = box_iou(detected.boxes, boxes).masked_fill(~is_same_class, 0.0)
        best: Tensor = overlap.amax(1) if len(labels) else overlap.sum(1)
        return best

    difficult_overlap = max_class_overlap(*difficult)
    is_scored = (difficult_overlap < threshold) | (
        difficult_overlap <= max_class_overlap(*objects)
    )
    return Detections(
        detected.boxes[is_scored],
        detected.labels[is_scored],
        detected.scores[is_scored],
        detected.num_selected,
    )


def _to_torchmetrics(detected: Sequence[Detections]) -> list[dict[str, Tensor]]:
    return [
        {"boxes": image.boxes, "labels": image.labels, "scores": image.scores}
        for image in detected
    ]


def _compute_mean_average_precision(
    predicted: list[dict[str, Tensor]],
    true: list[dict[str, Tensor]],
    thresholds: list[float] | None,
) -> dict[str, Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Imported late: it takes seconds.
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
        values: dict[str, Tensor] = metric.compute()
        return values
