"""Words for pixels: the nearest of a few colours, and of a few textures.

Source: Kolesnikov et al. (2014) describe superpixels by histograms of SIFT words and of
colours; the textures here are responses of derivatives of Gaussians.
"""

from dataclasses import dataclass

import cv2
import numpy as np

COLOURS, TEXTURES = 32, 64
# Widths of the Gaussians, in pixels.
SCALES = (1.0, 2.0, 4.0)
# Pixels that are clustered, and rounds of it.
SAMPLE, ROUNDS = 12_000, 15


@dataclass(frozen=True)
class Words:
    """Centres of colours ``(COLOURS, 3)`` and of textures ``(TEXTURES, 9)``."""

    colours: np.ndarray
    textures: np.ndarray

    def of(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The colour and the texture of each pixel, ``(H, W)``."""
        found = []
        maps = (colours(image), textures(image))
        for values, centres in zip(maps, (self.colours, self.textures), strict=True):
            near = _nearest(values.reshape(-1, values.shape[2]), centres)
            found.append(near.reshape(image.shape[:2]))
        return found[0], found[1]


def learn(images: list[np.ndarray], seed: int = 0) -> Words:
    """By k-means over pixels drawn from some images."""
    chance = np.random.default_rng(seed)
    each = max(SAMPLE // len(images), 1)
    pixels: tuple[list[np.ndarray], ...] = ([], [])
    for image in images:
        chosen = chance.integers(image.shape[0] * image.shape[1], size=each)
        for known, values in zip(
            pixels, (colours(image), textures(image)), strict=True
        ):
            known.append(values.reshape(-1, values.shape[2])[chosen])
    found = [
        _means(np.concatenate(known), count, chance)
        for known, count in zip(pixels, (COLOURS, TEXTURES), strict=True)
    ]
    return Words(found[0], found[1])


def lab(image: np.ndarray) -> np.ndarray:
    """L* from 0 to 100, a* and b*: ``(H, W, 3)`` float32."""
    return cv2.cvtColor(image.astype(np.float32) / 255, cv2.COLOR_RGB2Lab)


def colours(image: np.ndarray) -> np.ndarray:
    """``(H, W, 3)``, a little blurred."""
    return cv2.GaussianBlur(lab(image), (0, 0), 1)


def textures(image: np.ndarray) -> np.ndarray:
    """``(H, W, 9)``: two first derivatives and the Laplacian at each scale.

    Roots of their sizes with their signs: a border is no outlier.
    """
    grey, found = np.ascontiguousarray(lab(image)[..., 0]), []
    for scale in SCALES:
        smooth = cv2.GaussianBlur(grey, (0, 0), scale)
        across = scale * cv2.Sobel(smooth, cv2.CV_32F, 1, 0) / 8
        down = scale * cv2.Sobel(smooth, cv2.CV_32F, 0, 1) / 8
        found += [across, down, scale**2 * cv2.Laplacian(smooth, cv2.CV_32F) / 4]
    stacked = np.stack(found, 2)
    return np.sign(stacked) * np.sqrt(np.abs(stacked))


def _means(points: np.ndarray, count: int, chance: np.random.Generator) -> np.ndarray:
    """k-means; a centre that nothing is nearest to stays where it was."""
    centres = points[chance.choice(len(points), count, replace=len(points) < count)]
    for _ in range(ROUNDS):
        near = _nearest(points, centres)
        sizes = np.bincount(near, minlength=count)[:, None]
        sums = np.stack(
            [np.bincount(near, column, minlength=count) for column in points.T], 1
        )
        means = (sums / np.maximum(sizes, 1)).astype(np.float32)
        centres = np.where(sizes > 0, means, centres)
    return centres


def _nearest(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return ((centres**2).sum(1) - 2 * points @ centres.T).argmin(1)
