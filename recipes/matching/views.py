"""Two views of an image: the image itself, and one by a random homography, with noise.

The homography is known, so it is known which points are the same.
"""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from smoothsp.data.images import read_image

# In pixels; key points are larger than an image below the shortest side.
LONGEST_SIDE, SHORTEST_SIDE = 240, 4
TURN, ZOOM, SLANT = 0.5, 1.25, 0.08
NOISE, BLUR, HIDDEN_FRACTION = 6.0, 0.8, 0.35
SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff"}


@dataclass(frozen=True)
class View:
    """An image, where it shows something, and the way there from the other one."""

    image: np.ndarray
    visible: np.ndarray
    homography: np.ndarray


def list_images(folder: Path, max_images: int) -> list[Path]:
    """Images of a folder and of its folders, in order of name; at most so many."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"data: expected a folder of images, found none at {folder}"
        )
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and path.is_file()
        and not path.name.startswith(".")
    )
    if len(paths) < 5:
        raise ValueError(
            f"data: expected at least 5 images below {folder}, for training, choosing"
            f" and testing, found {len(paths)}. Names of images end in"
            f" {', '.join(sorted(SUFFIXES))}"
        )
    # evenly, so that a sequence of frames is not cut to its beginning
    chosen = np.unique(
        np.linspace(0, len(paths) - 1, min(max_images, len(paths))).round()
    )
    return [paths[int(number)] for number in chosen]


def read(path: Path) -> np.ndarray:
    """An image, red first, at most ``LONGEST_SIDE`` wide and high."""
    image = read_image(path)
    height, width = image.shape[:2]
    scale = min(LONGEST_SIDE / max(height, width), 1)
    if scale * min(height, width) < SHORTEST_SIDE:
        raise ValueError(
            f"{path}: expected an image of at least {SHORTEST_SIDE} pixels wide and"
            f" high where it is at most {LONGEST_SIDE}, got {width} x {height}"
        )
    return cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)


def random_view(image: np.ndarray, rng: np.random.Generator) -> View:
    """The image turned, zoomed, slanted, partly hidden, blurred, in another light."""
    height, width = image.shape[:2]
    homography = _random_homography(width, height, rng)
    size, flat = (width, height), (127, 127, 127)
    warped = cv2.warpPerspective(image, homography, size, borderValue=flat)
    visible = cv2.warpPerspective(
        np.full((height, width), 255, np.uint8), homography, size
    )
    if rng.random() < 0.7:
        _hide_patch(warped, rng)
    warped = cv2.GaussianBlur(warped, (0, 0), rng.uniform(0.3, BLUR))
    light = warped * rng.uniform(0.75, 1.2) + rng.uniform(-25, 25)
    noisy = light + rng.normal(0, NOISE, warped.shape)
    return View(noisy.clip(0, 255).astype(np.uint8), visible > 127, homography)


def _random_homography(width: int, height: int, rng: np.random.Generator) -> np.ndarray:
    angle = rng.uniform(-TURN, TURN)
    zoom = np.exp(rng.uniform(-np.log(ZOOM), np.log(ZOOM)))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], float)
    middle, longest = corners.mean(0), max(width, height)
    warped = zoom * (corners - middle) @ turn.T + middle
    warped += rng.uniform(-SLANT, SLANT, warped.shape) * longest
    return cv2.getPerspectiveTransform(
        corners.astype(np.float32), warped.astype(np.float32)
    )


def _hide_patch(image: np.ndarray, rng: np.random.Generator) -> None:
    """Put a patch of noise somewhere."""
    height, width = image.shape[:2]
    patch_height, patch_width = (int(HIDDEN_FRACTION * x) for x in (height, width))
    top, left = (
        int(rng.integers(x)) for x in (height - patch_height, width - patch_width)
    )
    patch = image[top : top + patch_height, left : left + patch_width]
    patch[:] = rng.integers(90, 160, patch.shape)


def warp_points(positions: np.ndarray, homography: np.ndarray) -> np.ndarray:
    """Where places ``(n, 2)`` of the first view are in the other."""
    if not len(positions):
        return positions
    return cv2.perspectiveTransform(positions[None].astype(np.float64), homography)[0]
