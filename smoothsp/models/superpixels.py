"""An image as a graph: superpixels, and the contrast between neighbours.

Neighbours have ``exp(-eta d)`` of two distances d and several eta: numbers from 0 to 1,
near 1 where both look alike.

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
SLIC_ROUNDS, SMALLEST = 10, 20


def import_opencv() -> Any:
    """Import OpenCV, which takes a moment, at the first use."""
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
    """Superpixels of an image."""

    pixels: Integers
    """Superpixel of each pixel: ``(height, width)``."""
    sizes: Integers
    """Number of pixels of each superpixel: ``(V,)``."""
    index: Integers
    """Superpixels that touch: ``(E, 2)``."""
    edges: Numbers
    """Features of the pairs in ``index``: ``(E, EDGE_FEATURES)``."""

    def gold(self, mask: Mask) -> Integers:
        """Labels of superpixels that are nearest to a mask: ``(V,)``."""
        count = len(self.sizes)
        inside = np.bincount(self.pixels.ravel(), mask.ravel(), minlength=count)
        return (2 * inside > self.sizes).astype(np.int64)

    def mask(self, labels: Integers) -> Mask:
        """Pixels whose superpixels have the label 1: ``(height, width)``."""
        return (labels > 0)[self.pixels]

    def costs(self, gold: Integers, kind: Cost) -> Numbers:
        """Cost of a wrong label of each superpixel: ``(V,)``, with the sum 1.

        In proportion to its pixels: of the image, or, balanced, of its class, where
        each class costs the same.
        """
        if kind == "pixels":
            return np.asarray(self.sizes / self.sizes.sum())
        sums = np.bincount(gold, self.sizes, minlength=2)
        return np.asarray(self.sizes / sums[gold] / (sums > 0).sum())


def build_graph(image: Image, count: int) -> Graph:
    """About ``count`` superpixels of an image ``(height, width, 3)``, red first."""
    pixels = slic(image, count)
    sizes = np.bincount(pixels.ravel())
    index, borders = adjacent_pairs(pixels)
    first, second = index.T
    values = to_lab(image)
    sums = [np.bincount(pixels.ravel(), x.ravel()) for x in np.moveaxis(values, 2, 0)]
    means: Numbers = np.stack(sums, 1) / sizes[:, None]
    # of mean colours, and along the border, over their means in this image
    apart = ((means[first] - means[second]) ** 2).sum(1)
    jumps = _jumps(values, pixels, index, len(sizes)) / borders
    distances = [x / max(x.mean(), 1e-6) if len(x) else x for x in (apart, jumps)]
    edges = np.concatenate([np.ones((len(index), 1)), decay_features(distances)], 1)
    return Graph(pixels, sizes, index, edges.astype(np.float32))


def decay_features(distances: Sequence[Numbers]) -> Numbers:
    """``exp(-eta d)`` of each distance ``(E,)`` and each eta, in columns."""
    return np.stack([np.exp(-eta * d) for d in distances for eta in ETAS], 1)


def slic(image: Image, count: int) -> Integers:
    """Superpixels ``(height, width)``, numbered from 0."""
    cv2 = import_opencv()
    height, width = image.shape[:2]
    side = max(round((height * width / count) ** 0.5), 2)
    smooth = cv2.GaussianBlur(image, (3, 3), 0)
    found = cv2.ximgproc.createSuperpixelSLIC(
        cv2.cvtColor(smooth, cv2.COLOR_RGB2Lab), cv2.ximgproc.SLICO, side
    )
    found.iterate(SLIC_ROUNDS)
    found.enforceLabelConnectivity(SMALLEST)
    labels = found.getLabels()
    numbers = np.unique(labels, return_inverse=True)[1].reshape(labels.shape)
    return numbers.astype(np.int64)


def adjacent_pairs(pixels: Integers) -> tuple[Integers, Integers]:
    """Superpixels that touch, ``(E, 2)``, and along how many pixels ``(E,)``."""
    across = np.stack([pixels[:, :-1].ravel(), pixels[:, 1:].ravel()], 1)
    down = np.stack([pixels[:-1].ravel(), pixels[1:].ravel()], 1)
    pairs = np.sort(np.concatenate([across, down]), 1)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    return np.unique(pairs, axis=0, return_counts=True)


def to_lab(image: Image) -> Numbers:
    """L* from 0 to 100, a* and b*: ``(height, width, 3)`` float32."""
    cv2 = import_opencv()
    return np.asarray(cv2.cvtColor(image.astype(np.float32) / 255, cv2.COLOR_RGB2Lab))


def _jumps(values: Numbers, pixels: Integers, index: Integers, count: int) -> Numbers:
    """Sums over the border of each edge of how far pixels across it are apart."""
    keys, sizes = [], []
    for axis in (0, 1):
        a, b = np.delete(pixels, -1, axis), np.delete(pixels, 0, axis)
        keys.append((np.minimum(a, b) * count + np.maximum(a, b)).ravel())
        sizes.append(np.linalg.norm(np.diff(values, axis=axis), axis=2).ravel())
    key, size = np.concatenate(keys), np.concatenate(sizes)
    edges = index[:, 0] * count + index[:, 1]
    if not len(edges):
        return np.zeros(0)
    at = np.searchsorted(edges, key).clip(max=len(edges) - 1)
    real = edges[at] == key
    return np.bincount(at[real], size[real], minlength=len(edges)).astype(float)
