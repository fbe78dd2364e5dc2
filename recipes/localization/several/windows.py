"""Windows that may hold an object: a grid of boxes as large as those of training."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

# how far windows are apart, in units of their shorter side
STRIDE = 1 / 3
# a class has as many shapes as it takes for this share of its boxes to overlap one by
# so much, if their centres were the same; shapes that overlap by more are one
SHARE, FITS, ALIKE = 0.8, 0.6, 0.85
SMALLEST = 4


def shapes(
    boxes: Sequence[np.ndarray], labels: Sequence[Sequence[int]], sizes: Sequence[tuple]
) -> np.ndarray:
    """Typical widths and heights ``(shape, 2)`` of each class: means of clusters.

    Of boxes ``(object, 4)`` of images of such sizes. Boxes that end at the edge of an
    image do not count where a class has others.
    """
    whole, cut = defaultdict(list), defaultdict(list)
    for own, names, (width, height) in zip(boxes, labels, sizes, strict=True):
        for box, label in zip(own, names, strict=True):
            left, top, right, bottom = box
            inside = left > 1 and top > 1 and right < width - 1 and bottom < height - 1
            (whole if inside else cut)[label].append((right - left, bottom - top))
    found = [
        _clusters(np.log(whole[label] or cut[label]))
        for label in sorted(whole.keys() | cut.keys())
    ]
    kept: list[np.ndarray] = []
    for shape in np.exp(np.concatenate(found)):
        if all(_overlap(shape, other) < ALIKE for other in kept):
            kept.append(shape)
    return np.array(kept)


def _overlap(one: np.ndarray, other: np.ndarray) -> float:
    """Of two shapes around one centre."""
    inside = np.minimum(one, other).prod()
    return float(inside / (one.prod() + other.prod() - inside))


def _clusters(points: np.ndarray) -> np.ndarray:
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


def windows(shapes: np.ndarray, width: int, height: int) -> np.ndarray:
    """Boxes ``(box, 4)`` of these shapes, whose centres cover the image.

    They end where the image does.
    """
    found = []
    for across, down in shapes:
        step = max(STRIDE * min(across, down), 1)
        xs, ys = (_centres(side, step) for side in (width, height))
        x, y = (grid.ravel() for grid in np.meshgrid(xs, ys))
        found.append(
            np.stack([x - across / 2, y - down / 2, x + across / 2, y + down / 2], 1)
        )
    boxes = np.concatenate(found)
    limits = np.array([width, height, width, height])
    boxes = np.unique(boxes.clip(0, limits).astype(np.float32), axis=0)
    large = (boxes[:, 2:] - boxes[:, :2] >= SMALLEST).all(1)
    return boxes[large] if large.any() else limits[None] * np.float32([0, 0, 1, 1])


def _centres(side: int, step: float) -> np.ndarray:
    count = max(int(np.ceil(side / step)), 1)
    return (np.arange(count) + 0.5) * side / count
