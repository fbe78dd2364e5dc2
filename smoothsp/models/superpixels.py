"""Superpixel graphs of images, with contrast features of edges.

Edge features are ``exp(-eta d)`` for two colour distances d and several eta: in (0, 1],
near 1 for similar neighbours.

Source: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
Structured SVMs", appendix I.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "EDGE_FEATURES",
    "ETAS",
    "Cost",
    "Graph",
    "Image",
    "Integers",
    "Mask",
    "Numbers",
    "adjacent_pairs",
    "build_graph",
    "decay_features",
    "import_opencv",
    "slic",
    "to_lab",
]

Image = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Integers = NDArray[np.int64]
Numbers = NDArray[np.floating[Any]]
Cost = Literal["balanced", "pixels"]

ETAS = 2.0 ** np.arange(-2, 5, 2)
EDGE_FEATURES = 1 + 2 * len(ETAS)
SLIC_ITERATIONS, MIN_SUPERPIXEL_PIXELS = 10, 20


def import_opencv() -> Any:
    """Import OpenCV at first use, with advice if it is missing."""
    try:
        import cv2
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "smoothsp.models: segmenters need opencv: pip install"
            ' "smoothsp[localiser]"',
            name=error.name,
        ) from error
    return cv2


@dataclass(frozen=True)
class Graph:
    """Superpixel graph of an image, with V superpixels and E edges."""

    pixels: Integers
    """Superpixel of each pixel: ``(height, width)``."""
    sizes: Integers
    """Number of pixels of each superpixel: ``(V,)``."""
    index: Integers
    """Adjacent superpixels: ``(E, 2)``."""
    edges: Numbers
    """Features of the pairs in ``index``: ``(E, EDGE_FEATURES)``."""

    def gold(self, mask: Mask) -> Integers:
        """Return majority labels of superpixels under a mask: ``(V,)``; ties are 0."""
        count = len(self.sizes)
        inside = np.bincount(self.pixels.ravel(), mask.ravel(), minlength=count)
        return (2 * inside > self.sizes).astype(np.int64)

    def mask(self, labels: Integers) -> Mask:
        """Return the mask of superpixels with label 1: ``(height, width)``."""
        return (labels > 0)[self.pixels]

    def costs(self, gold: Integers, kind: Cost) -> Numbers:
        """Return costs of wrong superpixel labels: ``(V,)``, with sum 1.

        Proportional to the number of pixels; ``"balanced"`` also gives each class of
        ``gold`` the same total.
        """
        if kind == "pixels":
            return np.asarray(self.sizes / self.sizes.sum())
        sums = np.bincount(gold, self.sizes, minlength=2)
        return np.asarray(self.sizes / sums[gold] / (sums > 0).sum())


def build_graph(image: Image, count: int) -> Graph:
    """Build a graph of about ``count`` superpixels of an RGB ``(height, width, 3)``."""
    pixels = slic(image, count)
    sizes = np.bincount(pixels.ravel())
    index, borders = adjacent_pairs(pixels)
    first, second = index.T
    values = to_lab(image)
    sums = [np.bincount(pixels.ravel(), x.ravel()) for x in np.moveaxis(values, 2, 0)]
    means: Numbers = np.stack(sums, 1) / sizes[:, None]
    # Squared distance of mean colours, and mean contrast along the border, each divided
    # by its mean over the image.
    colour_distance = ((means[first] - means[second]) ** 2).sum(1)
    border_distance = _sum_border_contrast(values, pixels, index, len(sizes)) / borders
    distances = [
        x / max(x.mean(), 1e-6) if len(x) else x
        for x in (colour_distance, border_distance)
    ]
    edges = np.concatenate([np.ones((len(index), 1)), decay_features(distances)], 1)
    return Graph(pixels, sizes, index, edges.astype(np.float32))


def decay_features(distances: Sequence[Numbers]) -> Numbers:
    """Return ``exp(-eta d)`` for each distance ``(E,)`` and each eta, as columns."""
    return np.stack([np.exp(-eta * d) for d in distances for eta in ETAS], 1)


def slic(image: Image, count: int) -> Integers:
    """Return SLIC superpixels ``(height, width)``, numbered from 0."""
    cv2 = import_opencv()
    height, width = image.shape[:2]
    side = max(round((height * width / count) ** 0.5), 2)
    smooth = cv2.GaussianBlur(image, (3, 3), 0)
    segmentation = cv2.ximgproc.createSuperpixelSLIC(
        cv2.cvtColor(smooth, cv2.COLOR_RGB2Lab), cv2.ximgproc.SLICO, side
    )
    segmentation.iterate(SLIC_ITERATIONS)
    segmentation.enforceLabelConnectivity(MIN_SUPERPIXEL_PIXELS)
    labels = segmentation.getLabels()
    numbers = np.unique(labels, return_inverse=True)[1].reshape(labels.shape)
    return numbers.astype(np.int64)


def adjacent_pairs(pixels: Integers) -> tuple[Integers, Integers]:
    """Return adjacent superpixels ``(E, 2)`` and their border lengths ``(E,)``."""
    horizontal = np.stack([pixels[:, :-1].ravel(), pixels[:, 1:].ravel()], 1)
    vertical = np.stack([pixels[:-1].ravel(), pixels[1:].ravel()], 1)
    pairs = np.sort(np.concatenate([horizontal, vertical]), 1)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    return np.unique(pairs, axis=0, return_counts=True)


def to_lab(image: Image) -> Numbers:
    """Convert RGB to CIELAB, ``(height, width, 3)`` float32, L* from 0 to 100."""
    cv2 = import_opencv()
    return np.asarray(cv2.cvtColor(image.astype(np.float32) / 255, cv2.COLOR_RGB2Lab))


def _sum_border_contrast(
    values: Numbers, pixels: Integers, index: Integers, count: int
) -> Numbers:
    """Sum the colour distances of pixel pairs across the border of each edge."""
    keys, sizes = [], []
    for axis in (0, 1):
        a, b = np.delete(pixels, -1, axis), np.delete(pixels, 0, axis)
        keys.append((np.minimum(a, b) * count + np.maximum(a, b)).ravel())
        sizes.append(np.linalg.norm(np.diff(values, axis=axis), axis=2).ravel())
    key, size = np.concatenate(keys), np.concatenate(sizes)
    edges = index[:, 0] * count + index[:, 1]
    if not len(edges):
        return np.zeros(0)
    edge_index = np.searchsorted(edges, key).clip(max=len(edges) - 1)
    is_edge = edges[edge_index] == key
    return np.bincount(edge_index[is_edge], size[is_edge], minlength=len(edges)).astype(
        float
    )
