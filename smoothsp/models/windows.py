"""Windows that may hold an object: a grid of boxes as large as those of training."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["MIN_SIDE", "cluster_shapes", "window_grid"]

Numbers = NDArray[np.floating]

# how far windows are apart, in units of their shorter side
STRIDE = 1 / 3
# a class has as many shapes as it takes for this share of its boxes to overlap one by
# so much, if their centres were the same; shapes that overlap by more are one
SHARE, FITS, ALIKE = 0.8, 0.6, 0.85
MIN_SIDE = 4
# windows of an image
MOST = 2**20


def cluster_shapes(
    boxes: Sequence[Sequence[Sequence[float]]],
    labels: Sequence[Sequence[str]],
    sizes: Sequence[tuple[int, int]],
) -> Numbers:
    """Typical widths and heights ``(shape, 2)`` of each class: means of clusters.

    Boxes that end at the edge of an image do not count where a class has others.

    Parameters
    ----------
    boxes, labels, sizes
        Of each image: boxes of four numbers, their classes, and width and height.
    """
    whole: dict[str, list[tuple[float, float]]] = defaultdict(list)
    cut: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for own, names, (width, height) in zip(boxes, labels, sizes, strict=True):
        for box, label in zip(own, names, strict=True):
            left, top, right, bottom = box
            inside = left > 1 and top > 1 and right < width - 1 and bottom < height - 1
            (whole if inside else cut)[label].append((right - left, bottom - top))
    found = [
        _clusters(np.log(whole[label] or cut[label]))
        for label in sorted(whole.keys() | cut.keys())
    ]
    kept: list[Numbers] = []
    for shape in np.exp(np.concatenate(found)):
        if all(_overlap(shape, other) < ALIKE for other in kept):
            kept.append(shape)
    return np.array(kept)


def _overlap(one: Numbers, other: Numbers) -> float:
    """Overlap of two shapes around one centre."""
    inside = np.minimum(one, other).prod()
    return float(inside / (one.prod() + other.prod() - inside))


def _clusters(points: Numbers) -> Numbers:
    """Means of as few clusters as fit; Lloyd's, from quantiles of the size."""
    points = points[points.sum(1).argsort(kind="stable")]
    for count in range(1, len(points) + 1):
        means = np.array([part.mean(0) for part in np.array_split(points, count)])
        for _ in range(20):
            nearest = ((points[:, None] - means) ** 2).sum(2).argmin(1)
            means = np.array([points[nearest == n].mean(0) for n in np.unique(nearest)])
        fits = [
            max(_overlap(np.exp(point), np.exp(mean)) for mean in means) > FITS
            for point in points
        ]
        if np.mean(fits) >= SHARE:
            break
    return means


def window_grid(box_shapes: Numbers, width: int, height: int) -> NDArray[np.float32]:
    """Boxes ``(box, 4)`` of these shapes, whose centres cover the image.

    They end where the image does.

    Raises
    ------
    ValueError
        If they are more than a million.
    """
    steps = [max(STRIDE * min(across, down), 1) for across, down in box_shapes]
    grids = [(_count(width, step), _count(height, step)) for step in steps]
    if (count := sum(x * y for x, y in grids)) > MOST:
        raise ValueError(
            f"images: expected at most {MOST:,} windows in an image, got {count:,} in"
            f" one of {width} x {height} pixels. Make it smaller"
        )
    found = []
    for (across, down), counts in zip(box_shapes, grids, strict=True):
        axes = [
            (np.arange(n) + 0.5) * side / n
            for n, side in zip(counts, (width, height), strict=True)
        ]
        x, y = (grid.ravel() for grid in np.meshgrid(*axes))
        found.append(
            np.stack([x - across / 2, y - down / 2, x + across / 2, y + down / 2], 1)
        )
    limits = np.array([width, height, width, height])
    boxes = np.concatenate(found).clip(0, limits).astype(np.float32)
    boxes = np.unique(boxes, axis=0)
    large = (boxes[:, 2:] - boxes[:, :2] >= MIN_SIDE).all(1)
    return boxes[large] if large.any() else np.array([[0, 0, width, height]], "f4")


def _count(side: int, step: float) -> int:
    return max(int(np.ceil(side / step)), 1)
