"""Object proposals: selective search, or a grid of sliding windows."""

import ctypes
import os
import threading
from itertools import product

import cv2
import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_SIDE", "METHODS", "MIN_BOX_SIDE", "propose_boxes"]

METHODS = ("selective-search", "grid")
# Longest side in pixels at which images are searched: that of Pascal VOC.
MAX_SIDE = 500
MIN_BOX_SIDE = 4
GRID_SCALES, GRID_ASPECT_RATIOS = 2.0 ** -np.arange(0, 3.5, 0.5), (0.5, 1.0, 2.0)

Pixels = NDArray[np.uint8]
Boxes = NDArray[np.float32]

# Threads of a process share the state of C's rand(), which OpenCV uses.
_RAND_LOCK = threading.Lock()


def propose_boxes(image: Pixels, method: str, limit: int) -> Boxes:
    """Return at most ``limit`` boxes ``(box, 4)``: left, top, right, bottom in pixels.

    Parameters
    ----------
    image
        ``(height, width, 3)``, red first.
    method
        ``"selective-search"`` of OpenCV, best first, about a second for 500 x 375
        pixels; or ``"grid"``, the densest grid of windows over scales and aspect ratios
        with at most ``limit`` boxes.
    limit
        At least 1.

    Notes
    -----
    Source: Uijlings et al., "Selective Search for Object Recognition", the fast mode.
    """
    if method not in METHODS:
        raise ValueError(
            f"proposals: expected one of {', '.join(METHODS)}, got {method!r}"
        )
    if limit < 1:
        raise ValueError(f"max_boxes: expected at least 1, got {limit}")
    boxes = (
        _sliding_windows(image, limit) if method == "grid" else _selective_search(image)
    )
    if not len(boxes):
        boxes = np.array([(0, 0, image.shape[1], image.shape[0])])
    return boxes[:limit].astype(np.float32)


def _selective_search(image: Pixels) -> NDArray[np.float64]:
    scale = min(MAX_SIDE / max(image.shape[:2]), 1)
    size = [max(round(x * scale), 1) for x in image.shape[1::-1]]
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    search = cv2.ximgproc.segmentation.createSelectiveSearchSegmentation()
    search.setBaseImage(cv2.cvtColor(small, cv2.COLOR_RGB2BGR))
    search.switchToSelectiveSearchFast()
    with _RAND_LOCK:
        if os.name == "posix":
            # OpenCV randomises the ranking by C's rand(): a fixed seed makes it
            # deterministic.
            ctypes.CDLL(None).srand(1)
        rectangles = np.asarray(search.process())
    ratio = np.array(image.shape[1::-1]) / small.shape[1::-1]
    boxes = np.concatenate(
        [rectangles[:, :2], rectangles[:, :2] + rectangles[:, 2:]], 1
    )
    boxes = boxes * np.tile(ratio, 2)
    # Remove duplicates, keeping the order of first occurrence.
    _, first = np.unique(boxes, axis=0, return_index=True)
    boxes = boxes[np.sort(first)]
    large = (boxes[:, 2:] - boxes[:, :2] >= MIN_BOX_SIDE).all(1)
    return np.asarray(boxes[large], np.float64)


def _sliding_windows(image: Pixels, limit: int) -> NDArray[np.float64]:
    height, width = image.shape[:2]
    sides = min(height, width) * GRID_SCALES
    sizes = [
        (s * shape**0.5, s / shape**0.5)
        for s, shape in product(sides, GRID_ASPECT_RATIOS)
    ]
    sizes = [
        (w, h)
        for w, h in sizes
        if w <= width and h <= height and min(w, h) >= MIN_BOX_SIDE
    ]
    for stride in (1 / 8, 1 / 6, 1 / 4, 1 / 3, 1 / 2, 1):
        grids = [
            (
                _window_offsets(width - w, stride * w),
                _window_offsets(height - h, stride * h),
                w,
                h,
            )
            for w, h in sizes
        ]
        if sum(len(xs) * len(ys) for xs, ys, _, _ in grids) <= limit:
            break
    boxes = [(x, y, x + w, y + h) for xs, ys, w, h in grids for y in ys for x in xs]
    return np.array(boxes, np.float64).reshape(-1, 4)


def _window_offsets(free_length: float, stride: float) -> NDArray[np.float64]:
    count = int(np.ceil(free_length / stride)) + 1 if free_length else 1
    return np.linspace(0, free_length, count)
