"""Features of superpixels for a linear model: histograms of visual words.

Words of pixels are the nearest of a few colours, and of a few textures. Each superpixel
has histograms of colours, textures and places: its own, that of its neighbours and that
of their neighbours. Neighbours have the contrasts of ``smoothsp.models.superpixels``,
and those of both histograms of words.

Source: Osokin et al., "Minding the Gaps", appendix I, after Kolesnikov et al. (2014),
who take SIFT words; the textures here are responses of derivatives of Gaussians.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from scipy import sparse

from smoothsp.models.superpixels import EDGE_FEATURES as CONTRASTS
from smoothsp.models.superpixels import ETAS, Graph, decay_features, to_lab

COLOURS, TEXTURES = 32, 64
# Places are cells of a grid laid over the image.
GRID_SIDE = 5
NODE_FEATURES = 1 + 3 * (COLOURS + TEXTURES + GRID_SIDE**2)
EDGE_FEATURES = CONTRASTS + 2 * len(ETAS)
# Widths of the Gaussians, in pixels.
SCALES = (1.0, 2.0, 4.0)
# Pixels that are clustered, and rounds of it.
SAMPLE, ROUNDS = 12_000, 15


@dataclass(frozen=True)
class VisualWords:
    """Centres of colours ``(COLOURS, 3)`` and of textures ``(TEXTURES, 9)``."""

    colours: np.ndarray
    textures: np.ndarray

    def assign(self, image: np.ndarray) -> list[np.ndarray]:
        """The colour and the texture of each pixel, ``(H W,)``."""
        maps = (colours(image), textures(image))
        return [
            _nearest_centres(values.reshape(-1, values.shape[2]), centres)
            for values, centres in zip(maps, (self.colours, self.textures), strict=True)
        ]


@dataclass(frozen=True)
class Features(Graph):
    """A graph with features ``(V, NODE_FEATURES)`` and ``(E, EDGE_FEATURES)``."""

    nodes: np.ndarray


def graph_with_features(
    image: np.ndarray, graph: Graph, words: VisualWords
) -> Features:
    index, count = graph.index, len(graph.sizes)
    neighbours = sparse.coo_matrix(
        (np.ones(len(index)), index.T), (count, count)
    ).tocsr()
    neighbours = neighbours + neighbours.T
    # the superpixel itself is no neighbour of its neighbours
    is_near = neighbours.toarray() > 0
    np.fill_diagonal(is_near, True)
    second_neighbours = sparse.csr_matrix(
        ((neighbours @ neighbours) > 0).toarray() & ~is_near
    )
    histograms = [
        _histograms(graph.pixels, values, num_bins, count)
        for values, num_bins in (
            *zip(words.assign(image), (COLOURS, TEXTURES), strict=True),
            (_grid_cells(*graph.pixels.shape), GRID_SIDE**2),
        )
    ]
    columns = [np.ones((count, 1))]
    for counts in histograms:
        # roots of shares: each histogram has length 1
        columns += [
            np.sqrt(_normalise_counts(x))
            for x in (counts, neighbours @ counts, second_neighbours @ counts)
        ]
    distances = [
        _chi_squared(_normalise_counts(counts), index) for counts in histograms[:2]
    ]
    edges = np.concatenate([graph.edges, decay_features(distances)], 1).astype(
        np.float32
    )
    nodes = np.concatenate(columns, 1).astype(np.float32)
    return Features(graph.pixels, graph.sizes, index, edges, nodes)


def _chi_squared(histograms: np.ndarray, index: np.ndarray) -> np.ndarray:
    p, q = histograms[index[:, 0]], histograms[index[:, 1]]
    return ((p - q) ** 2 / np.maximum(p + q, 1e-12)).sum(1)


def _histograms(
    pixels: np.ndarray, values: np.ndarray, num_bins: int, num_superpixels: int
) -> np.ndarray:
    """Histograms ``(V, most)``."""
    flat = pixels.ravel() * num_bins + values.ravel()
    return (
        np.bincount(flat, minlength=num_superpixels * num_bins)
        .reshape(num_superpixels, num_bins)
        .astype(float)
    )


def _normalise_counts(counts: np.ndarray) -> np.ndarray:
    return counts / np.maximum(counts.sum(1, keepdims=True), 1)


def _grid_cells(height: int, width: int) -> np.ndarray:
    rows = np.arange(height) * GRID_SIDE // height
    return rows[:, None] * GRID_SIDE + np.arange(width) * GRID_SIDE // width


def fit_visual_words(images: list[np.ndarray], seed: int = 0) -> VisualWords:
    """By k-means over pixels drawn from some images."""
    rng = np.random.default_rng(seed)
    num_samples = max(SAMPLE // len(images), 1)
    pixels: tuple[list[np.ndarray], ...] = ([], [])
    for image in images:
        chosen = rng.integers(image.shape[0] * image.shape[1], size=num_samples)
        for samples, values in zip(
            pixels, (colours(image), textures(image)), strict=True
        ):
            samples.append(values.reshape(-1, values.shape[2])[chosen])
    centres = [
        _k_means(np.concatenate(samples), count, rng)
        for samples, count in zip(pixels, (COLOURS, TEXTURES), strict=True)
    ]
    return VisualWords(centres[0], centres[1])


def colours(image: np.ndarray) -> np.ndarray:
    """``(H, W, 3)``, a little blurred."""
    return cv2.GaussianBlur(to_lab(image), (0, 0), 1)


def textures(image: np.ndarray) -> np.ndarray:
    """``(H, W, 9)``: two first derivatives and the Laplacian at each scale.

    Roots of their sizes with their signs: a border is no outlier.
    """
    grey, responses = np.ascontiguousarray(to_lab(image)[..., 0]), []
    for scale in SCALES:
        smooth = cv2.GaussianBlur(grey, (0, 0), scale)
        across = scale * cv2.Sobel(smooth, cv2.CV_32F, 1, 0) / 8
        down = scale * cv2.Sobel(smooth, cv2.CV_32F, 0, 1) / 8
        responses += [across, down, scale**2 * cv2.Laplacian(smooth, cv2.CV_32F) / 4]
    stacked = np.stack(responses, 2)
    return np.sign(stacked) * np.sqrt(np.abs(stacked))


def _k_means(points: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """k-means; a centre that nothing is nearest to stays where it was."""
    centres = points[rng.choice(len(points), count, replace=len(points) < count)]
    for _ in range(ROUNDS):
        near = _nearest_centres(points, centres)
        sizes = np.bincount(near, minlength=count)[:, None]
        sums = np.stack(
            [np.bincount(near, column, minlength=count) for column in points.T], 1
        )
        means = (sums / np.maximum(sizes, 1)).astype(np.float32)
        centres = np.where(sizes > 0, means, centres)
    return centres


def _nearest_centres(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return ((centres**2).sum(1) - 2 * points @ centres.T).argmin(1)
