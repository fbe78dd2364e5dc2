"""Intersection over union, pixels that are right, and what needs no learning."""

from collections.abc import Sequence

import cv2
import numpy as np

from segmentation.folder import Example

Masks = Sequence[np.ndarray]
# Radii of the ellipse, in heights and widths of the image; the area is 25 % of it.
RADII = (0.26, 0.31)
# Pixels of the map into which training masks are averaged.
SHAPE = (64, 64)


def scores(examples: list[Example], masks: Masks) -> dict[str, float]:
    """Means over images: IoU of the figure, and the share of pixels that are right."""
    own = [
        (iou(example.mask, mask), float((example.mask == mask).mean()))
        for example, mask in zip(examples, masks, strict=True)
    ]
    found = np.mean(own, 0)
    return {"iou": float(found[0]), "accuracy": float(found[1])}


def iou(one: np.ndarray, other: np.ndarray) -> float:
    """Intersection over union; 1 if neither has anything."""
    union = (one | other).sum()
    return float((one & other).sum() / union) if union else 1.0


def baselines(train: list[Example], examples: list[Example]) -> dict[str, list]:
    """Masks that look at no image: of nothing, of an ellipse, of training masks."""
    mean = np.mean([_stretched(x.mask, SHAPE[::-1]) for x in train], 0)
    sizes = [example.mask.shape for example in examples]
    return {
        "all background": [np.zeros(size, bool) for size in sizes],
        "ellipse": [_ellipse(size) for size in sizes],
        "mean mask": [_stretched(mean, size[::-1]) > 0.5 for size in sizes],
    }


def _ellipse(size: tuple[int, ...]) -> np.ndarray:
    rows, columns = ((np.arange(x) + 0.5) / x - 0.5 for x in size)
    return (rows[:, None] / RADII[0]) ** 2 + (columns / RADII[1]) ** 2 < 1


def _stretched(mask: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    return cv2.resize(mask.astype(np.float32), size, interpolation=cv2.INTER_AREA)
