"""Images and masks in two folders beside each other, with the same names.

``rgb``, ``images`` or ``gray`` holds the images, ``figure_ground`` or ``masks`` a mask
for each: pixels above 127 are figure. The first of the three that is there is taken.
"""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from tqdm import tqdm

from smoothsp.data.images import images_in, read_image, read_mask

IMAGES, MASKS = ("images", "gray", "rgb"), ("figure_ground", "masks")
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")
# The share of dev, and that of test.
HELD_OUT, FEWEST = 0.2, 3
# How far the shapes of an image and its mask may be apart.
SHAPES = 0.02
# Of the shuffle that says which images are held out; no flag, so it stays the same.
SPLIT = 7


@dataclass(frozen=True)
class Example:
    """An image ``(H, W, 3)``, red first, and its mask ``(H, W)``, True on figure."""

    name: str
    image: np.ndarray
    mask: np.ndarray


def load(folder: Path, limit: int | None, side: int) -> dict[str, list[Example]]:
    """The images of a folder in three parts, their longest side scaled to ``side``."""
    images, masks = _folders(folder)
    pairs = [(path, _mask_of(path, masks)) for path in images_in(images, SUFFIXES)]
    if len(pairs) < FEWEST:
        raise ValueError(
            f"{images}: expected at least {FEWEST} images, got {len(pairs)}"
        )
    order = np.random.default_rng(SPLIT).permutation(len(pairs))[:limit]
    bar = tqdm(order, "reading", leave=False, disable=None)
    return split([_read(*pairs[number], side) for number in bar])


def split(examples: list[Example]) -> dict[str, list[Example]]:
    """In the order in which they are: to train on, to choose by, held out."""
    held = max(1, round(HELD_OUT * len(examples)))
    train = len(examples) - 2 * held
    return {
        "train": examples[:train],
        "dev": examples[train : train + held],
        "test": examples[train + held :],
    }


def scaled(image: np.ndarray, side: int) -> np.ndarray:
    """With this longest side, which is at least 16 pixels; never enlarged."""
    scale = min(side / max(image.shape[:2]), 1)
    height, width = (max(round(scale * x), 16) for x in image.shape[:2])
    return cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)


def _folders(folder: Path) -> tuple[Path, Path]:
    if not folder.is_dir():
        raise FileNotFoundError(
            f"data: expected a folder of images and masks, found no {folder}"
        )
    found = []
    for names in (IMAGES, MASKS):
        there = [folder / name for name in names if (folder / name).is_dir()]
        if not there:
            raise FileNotFoundError(
                f"{folder}: expected one of the folders {', '.join(names)}, found none"
            )
        found.append(there[0])
    return found[0], found[1]


def _mask_of(image: Path, masks: Path) -> Path:
    same = [masks / f"{image.stem}{suffix}" for suffix in (image.suffix, *SUFFIXES)]
    found = next((path for path in same if path.is_file()), None)
    if found is None:
        raise FileNotFoundError(
            f"{image}: expected a mask of the same name, found no {same[0]}"
        )
    return found


def _read(path: Path, mask_path: Path, side: int) -> Example:
    image, mask = read_image(path), read_mask(mask_path, path)
    if abs(_shape(image) / _shape(mask) - 1) > SHAPES:
        raise ValueError(
            f"{mask_path}: expected the shape of {path}, {image.shape[1]} x"
            f" {image.shape[0]} pixels, got {mask.shape[1]} x {mask.shape[0]}"
        )
    if 0 < mask.max() <= 127:
        raise ValueError(
            f"{mask_path}: expected figure in values above 127, got at most"
            f" {mask.max()}; multiply labels 0 and 1 by 255"
        )
    image = scaled(image, side)
    size = image.shape[1::-1]
    mask = cv2.resize(
        (mask > 127).astype(np.float32), size, interpolation=cv2.INTER_AREA
    )
    return Example(path.stem, image, mask > 0.5)


def _shape(image: np.ndarray) -> float:
    return image.shape[1] / image.shape[0]
