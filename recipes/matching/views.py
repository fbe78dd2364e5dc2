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
NOISE, BLUR, HIDDEN = 6.0, 0.8, 0.35
SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff"}


@dataclass(frozen=True)
class View:
    """An image, where it shows something, and the way there from the other one."""

    image: np.ndarray
    seen: np.ndarray
    homography: np.ndarray


def images_of(folder: Path, most: int) -> list[Path]:
    """Images of a folder and of its folders, in order of name; at most so many."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"data: expected a folder of images, found none at {folder}"
        )
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and path.is_file()
        and not path.name.startswith(".")
    )
    if len(found) < 5:
        raise ValueError(
            f"data: expected at least 5 images below {folder}, for training, choosing"
            f" and testing, found {len(found)}. Names of images end in"
            f" {', '.join(sorted(SUFFIXES))}"
        )
    # evenly, so that a sequence of frames is not cut to its beginning
    chosen = np.unique(np.linspace(0, len(found) - 1, min(most, len(found))).round())
    return [found[int(number)] for number in chosen]


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


def other_view(image: np.ndarray, rng: np.random.Generator) -> View:
    """The image turned, zoomed, slanted, partly hidden, blurred, in another light."""
    height, width = image.shape[:2]
    homography = _homography(width, height, rng)
    size, flat = (width, height), (127, 127, 127)
    moved = cv2.warpPerspective(image, homography, size, borderValue=flat)
    seen = cv2.warpPerspective(
        np.full((height, width), 255, np.uint8), homography, size
    )
    if rng.random() < 0.7:
        _hide(moved, rng)
    moved = cv2.GaussianBlur(moved, (0, 0), rng.uniform(0.3, BLUR))
    light = moved * rng.uniform(0.75, 1.2) + rng.uniform(-25, 25)
    noisy = light + rng.normal(0, NOISE, moved.shape)
    return View(noisy.clip(0, 255).astype(np.uint8), seen > 127, homography)


def _homography(width: int, height: int, rng: np.random.Generator) -> np.ndarray:
    angle = rng.uniform(-TURN, TURN)
    zoom = np.exp(rng.uniform(-np.log(ZOOM), np.log(ZOOM)))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], float)
    middle, longest = corners.mean(0), max(width, height)
    moved = zoom * (corners - middle) @ turn.T + middle
    moved += rng.uniform(-SLANT, SLANT, moved.shape) * longest
    return cv2.getPerspectiveTransform(
        corners.astype(np.float32), moved.astype(np.float32)
    )


def _hide(image: np.ndarray, rng: np.random.Generator) -> None:
    """Put a patch of noise somewhere."""
    height, width = image.shape[:2]
    high, wide = (int(HIDDEN * x) for x in (height, width))
    top, left = (int(rng.integers(x)) for x in (height - high, width - wide))
    patch = image[top : top + high, left : left + wide]
    patch[:] = rng.integers(90, 160, patch.shape)


def moved(places: np.ndarray, homography: np.ndarray) -> np.ndarray:
    """Where places ``(n, 2)`` of the first view are in the other."""
    if not len(places):
        return places
    return cv2.perspectiveTransform(places[None].astype(np.float64), homography)[0]
