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
MAX_CANDIDATES, MAX_BOXES = 150, 100
# softmax: boxes below are left out; overlap of those that suppress each other
MIN_PROBABILITY, NMS_OVERLAP = 0.01, 0.3


@dataclass(frozen=True)
class Detections:
    """Boxes of an image ``(box, 4)``, their classes and their scores, best first."""

    boxes: Tensor
    labels: Tensor
    scores: Tensor
    num_selected: int
    """How many are in the best set; the others only rank behind them."""


def decode_best_set(scores: Tensor, boxes: Tensor) -> Detections:
    """The best set of labelled boxes, and behind it boxes for the curve of precision.

    The sum of the scores ``(box, class)`` decides, and a box that is left out counts
    nothing. The set is the best of the ``CONSIDERED`` best boxes, by integer
    programming. Behind it come, best first, boxes that exclude none before them.
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
    order[selected] = torch.inf
    ranked = nms(boxes, order, MAX_OVERLAP)[:MAX_BOXES]
    ranked = torch.cat(
        [selected[best[selected].argsort(descending=True)], ranked[len(selected) :]]
    )
    return Detections(boxes[ranked], labels[ranked], best[ranked], len(selected))


def decode_nms(scores: Tensor, boxes: Tensor) -> Detections:
    """Non-maximum suppression by class, of the softmax over classes and nothing."""
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
    """COCO's mean average precision: at IoU .5, its mean to .95, and of each class.

    As in VOC, boxes whose nearest object of their class is ``difficult`` count neither
    as right nor as wrong if they overlap it enough.
    """
    true_objects = [{"boxes": boxes, "labels": labels} for boxes, labels in objects]
    any_difficult = any(len(labels) for _, labels in difficult)

    def compute_at(threshold: float) -> dict[str, Tensor]:
        scored = detected
        if any_difficult:
            both = zip(detected, objects, difficult, strict=True)
            scored = [_drop_difficult_matches(*image, threshold) for image in both]
        return _compute_torchmetrics_map(
            _to_metric_input(scored), true_objects, [threshold]
        )

    at_half = compute_at(0.5)
    numbers = {"map50": float(at_half["map"])}
    if any_difficult:
        values = [float(compute_at(0.5 + 0.05 * step)["map"]) for step in range(10)]
        numbers["map"] = sum(values) / len(values)
    else:
        numbers["map"] = float(
            _compute_torchmetrics_map(_to_metric_input(detected), true_objects, None)[
                "map"
            ]
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
    """Without the boxes that find a difficult object."""

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


def _to_metric_input(detected: Sequence[Detections]) -> list[dict[str, Tensor]]:
    return [
        {"boxes": image.boxes, "labels": image.labels, "scores": image.scores}
        for image in detected
    ]


def _compute_torchmetrics_map(
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
        values: dict[str, Tensor] = metric.compute()
        return values
