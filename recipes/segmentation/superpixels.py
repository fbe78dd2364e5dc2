"""An image as a graph: superpixels with features, and neighbours with contrast.

Each superpixel has histograms of colours, textures and places: its own, that of its
neighbours and that of their neighbours. Neighbours have ``exp(-eta d)`` of four
distances d and several eta: numbers from 0 to 1, near 1 where both look alike.

Source: Osokin et al., "Minding the Gaps", appendix I, after Kolesnikov et al. (2014).
"""

from dataclasses import dataclass

import cv2
import numpy as np
from scipy import sparse

from segmentation.words import COLOURS, TEXTURES, Words, lab

# Places are cells of a grid laid over the image.
PLACES = 5
ETAS = 2.0 ** np.arange(-2, 5, 2)
DISTANCES = 4
NODE_FEATURES = 1 + 3 * (COLOURS + TEXTURES + PLACES**2)
EDGE_FEATURES = 1 + DISTANCES * len(ETAS)
SLIC_ROUNDS, SMALLEST = 10, 20
COSTS = ("balanced", "pixels")


@dataclass(frozen=True)
class Graph:
    """Superpixels of an image.

    ``pixels (H, W)`` says which one a pixel belongs to, ``sizes (V,)`` how many pixels
    each has, ``nodes (V, NODE_FEATURES)`` and ``edges (E, EDGE_FEATURES)`` are features
    of superpixels and of the neighbours ``index (E, 2)``.
    """

    pixels: np.ndarray
    sizes: np.ndarray
    nodes: np.ndarray
    index: np.ndarray
    edges: np.ndarray

    def paint(self, labels: np.ndarray) -> np.ndarray:
        """Pixels ``(H, W)`` of labels of superpixels."""
        return labels[self.pixels]

    def gold(self, mask: np.ndarray) -> np.ndarray:
        """The labels of superpixels that are nearest to a mask."""
        inside = np.bincount(
            self.pixels.ravel(), mask.ravel(), minlength=len(self.sizes)
        )
        return (2 * inside > self.sizes).astype(np.int64)

    def costs(self, gold: np.ndarray, kind: str) -> np.ndarray:
        """What a wrong superpixel costs; all wrong cost 1.

        In proportion to its pixels: of all, or balanced, where both classes cost the
        same, 1/2 each.
        """
        if kind == "pixels":
            return self.sizes / self.sizes.sum()
        sums = np.bincount(gold, self.sizes, minlength=2)
        return self.sizes / sums[gold] / (sums > 0).sum()


def graph_of(image: np.ndarray, words: Words, count: int) -> Graph:
    """About ``count`` superpixels of an image."""
    pixels = slic(image, count)
    sizes = np.bincount(pixels.ravel())
    index, borders = neighbours(pixels)
    near = sparse.coo_matrix((np.ones(len(index)), index.T), (len(sizes),) * 2).tocsr()
    near = near + near.T
    # the superpixel itself is no neighbour of its neighbours
    far = sparse.csr_matrix(((near @ near) > 0).toarray() & ~_reached(near))
    colours, textures = words.of(image)
    own = [
        _counts(pixels, values, most, len(sizes))
        for values, most in (
            (colours, COLOURS),
            (textures, TEXTURES),
            (_places(*pixels.shape), PLACES**2),
        )
    ]
    columns = [np.ones((len(sizes), 1))]
    for counts in own:
        # roots of shares: each histogram has length 1
        columns += [np.sqrt(_shares(x)) for x in (counts, near @ counts, far @ counts)]
    nodes = np.concatenate(columns, 1).astype(np.float32)
    edges = contrast(image, pixels, sizes, index, borders, own[:2])
    return Graph(pixels, sizes, nodes, index, edges)


def slic(image: np.ndarray, count: int) -> np.ndarray:
    """Superpixels ``(H, W)``, numbered from 0."""
    height, width = image.shape[:2]
    side = max(round((height * width / count) ** 0.5), 2)
    smooth = cv2.GaussianBlur(image, (3, 3), 0)
    found = cv2.ximgproc.createSuperpixelSLIC(
        cv2.cvtColor(smooth, cv2.COLOR_RGB2Lab), cv2.ximgproc.SLICO, side
    )
    found.iterate(SLIC_ROUNDS)
    found.enforceLabelConnectivity(SMALLEST)
    labels = found.getLabels()
    return np.unique(labels, return_inverse=True)[1].reshape(labels.shape)


def neighbours(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Superpixels that touch, ``(E, 2)``, and along how many pixels ``(E,)``."""
    across = np.stack([pixels[:, :-1].ravel(), pixels[:, 1:].ravel()], 1)
    down = np.stack([pixels[:-1].ravel(), pixels[1:].ravel()], 1)
    pairs = np.sort(np.concatenate([across, down]), 1)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    return np.unique(pairs, axis=0, return_counts=True)


def contrast(
    image: np.ndarray,
    pixels: np.ndarray,
    sizes: np.ndarray,
    index: np.ndarray,
    borders: np.ndarray,
    histograms: list[np.ndarray],
) -> np.ndarray:
    """``(E, EDGE_FEATURES)``: 1, and ``exp(-eta d)`` of each distance and each eta.

    Distances: chi-squared of colours and of textures, squared difference of the mean
    colours over its mean in this image, and size of the gradient along the border over
    its mean.
    """
    first, second = index.T
    distances = []
    for counts in histograms:
        shares = _shares(counts)
        p, q = shares[first], shares[second]
        distances.append(((p - q) ** 2 / np.maximum(p + q, 1e-12)).sum(1))
    values = lab(image)
    means = np.stack(
        [np.bincount(pixels.ravel(), x.ravel()) for x in np.moveaxis(values, 2, 0)], 1
    )
    means /= sizes[:, None]
    distances.append(_relative(((means[first] - means[second]) ** 2).sum(1)))
    distances.append(_relative(_jumps(values, pixels, index, len(sizes)) / borders))
    columns = [np.ones(len(index))]
    columns += [np.exp(-eta * d) for d in distances for eta in ETAS]
    return np.stack(columns, 1).astype(np.float32)


def _jumps(
    values: np.ndarray, pixels: np.ndarray, index: np.ndarray, count: int
) -> np.ndarray:
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
    return np.bincount(at[real], size[real], minlength=len(edges))


def _relative(distance: np.ndarray) -> np.ndarray:
    return distance / max(distance.mean(), 1e-6) if len(distance) else distance


def _reached(near: sparse.csr_matrix) -> np.ndarray:
    found = near.toarray() > 0
    np.fill_diagonal(found, True)
    return found


def _counts(
    pixels: np.ndarray, values: np.ndarray, most: int, count: int
) -> np.ndarray:
    """Histograms ``(V, most)``."""
    flat = pixels.ravel() * most + values.ravel()
    return np.bincount(flat, minlength=count * most).reshape(count, most).astype(float)


def _shares(counts: np.ndarray) -> np.ndarray:
    return counts / np.maximum(counts.sum(1, keepdims=True), 1)


def _places(height: int, width: int) -> np.ndarray:
    rows = np.arange(height) * PLACES // height
    return rows[:, None] * PLACES + np.arange(width) * PLACES // width
