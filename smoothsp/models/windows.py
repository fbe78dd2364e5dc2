"""Sliding windows: grids of boxes in typical shapes of the training boxes."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["MIN_SIDE", "cluster_shapes", "window_grid"]

Numbers = NDArray[np.floating]

# Distance of neighbouring windows, in units of their shorter side.
STRIDE = 1 / 3
# A class gets the fewest shapes for which this fraction of its boxes has at least the
# given IoU with a shape around the same centre. Shapes of higher IoU are merged.
MIN_FITTING_FRACTION, MIN_FIT_IOU, DUPLICATE_IOU = 0.8, 0.6, 0.85
MIN_SIDE = 4
# Maximum number of windows of an image.
MAX_WINDOWS = 2**20


def cluster_shapes(
    boxes: Sequence[Sequence[Sequence[float]]],
    labels: Sequence[Sequence[str]],
    sizes: Sequence[tuple[int, int]],
) -> Numbers:
    """Return typical widths and heights ``(shape, 2)``, clustered by class.

    Boxes that touch the border of an image are used only if a class has no others.

    Parameters
    ----------
    boxes, labels, sizes
        For each image: boxes, their classes, and width and height.
    """
    complete: dict[str, list[tuple[float, float]]] = defaultdict(list)
    truncated: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for image_boxes, names, (width, height) in zip(boxes, labels, sizes, strict=True):
        for box, label in zip(image_boxes, names, strict=True):
            left, top, right, bottom = box
            is_complete = (
                left > 1 and top > 1 and right < width - 1 and bottom < height - 1
            )
            (complete if is_complete else truncated)[label].append(
                (right - left, bottom - top)
            )
    clusters = [
        _cluster_means(np.log(complete[label] or truncated[label]))
        for label in sorted(complete.keys() | truncated.keys())
    ]
    distinct: list[Numbers] = []
    for shape in np.exp(np.concatenate(clusters)):
        if all(_centred_iou(shape, other) < DUPLICATE_IOU for other in distinct):
            distinct.append(shape)
    return np.array(distinct)


def _centred_iou(first: Numbers, second: Numbers) -> float:
    """Return the IoU of two shapes around the same centre."""
    inside = np.minimum(first, second).prod()
    return float(inside / (first.prod() + second.prod() - inside))


def _cluster_means(points: Numbers) -> Numbers:
    """Return means of the fewest clusters that fit, of log sizes ``(box, 2)``.

    Lloyd's algorithm, initialised by equal parts of the boxes sorted by area.
    """
    points = points[points.sum(1).argsort(kind="stable")]
    for count in range(1, len(points) + 1):
        means = np.array([part.mean(0) for part in np.array_split(points, count)])
        for _ in range(20):
            nearest = ((points[:, None] - means) ** 2).sum(2).argmin(1)
            means = np.array([points[nearest == n].mean(0) for n in np.unique(nearest)])
        fits = [
            max(_centred_iou(np.exp(point), np.exp(mean)) for mean in means)
            > MIN_FIT_IOU
            for point in points
        ]
        if np.mean(fits) >= MIN_FITTING_FRACTION:
            break
    return means


def window_grid(box_shapes: Numbers, width: int, height: int) -> NDArray[np.float32]:
    """Return boxes ``(box, 4)`` of the given shapes, on a grid over the image.

    Boxes are clipped to the image, and duplicates removed.

    Raises
    ------
    ValueError
        If there are more than ``MAX_WINDOWS``.
    """
    steps = [
        max(STRIDE * min(box_width, box_height), 1)
        for box_width, box_height in box_shapes
    ]
    grids = [
        (_num_positions(width, step), _num_positions(height, step)) for step in steps
    ]
    if (count := sum(x * y for x, y in grids)) > MAX_WINDOWS:
        raise ValueError(
            f"images: expected at most {MAX_WINDOWS:,} windows in an image, got"
            f" {count:,} in one of {width} x {height} pixels. Make it smaller"
        )
    grids_of_boxes = []
    for (box_width, box_height), counts in zip(box_shapes, grids, strict=True):
        axes = [
            (np.arange(n) + 0.5) * side / n
            for n, side in zip(counts, (width, height), strict=True)
        ]
        x, y = (grid.ravel() for grid in np.meshgrid(*axes))
        grids_of_boxes.append(
            np.stack(
                [
                    x - box_width / 2,
                    y - box_height / 2,
                    x + box_width / 2,
                    y + box_height / 2,
                ],
                1,
            )
        )
    limits = np.array([width, height, width, height])
    boxes = np.concatenate(grids_of_boxes).clip(0, limits).astype(np.float32)
    boxes = np.unique(boxes, axis=0)
    large = (boxes[:, 2:] - boxes[:, :2] >= MIN_SIDE).all(1)
    return boxes[large] if large.any() else np.array([[0, 0, width, height]], "f4")


def _num_positions(side: int, step: float) -> int:
    return max(int(np.ceil(side / step)), 1)
