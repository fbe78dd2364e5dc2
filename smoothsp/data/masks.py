"""Images with foreground masks, from folders, pairs and dictionaries.

A folder holds ``images`` (or ``gray``, or ``rgb``) and ``figure_ground`` (or ``masks``)
with the same names, as the Weizmann horses do.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from smoothsp.data.images import DEEP_MODES, list_images, read_image, read_mask
from smoothsp.data.text_files import as_path

__all__ = ["MaskedImage", "as_masks", "as_pixels", "read_masks", "shrink_image"]

IMAGE_FOLDERS, MASK_FOLDERS = ("images", "gray", "rgb"), ("figure_ground", "masks")
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")
MASK_KEYS = ("mask", "label")
# Largest relative difference between the aspect ratios of an image and its mask.
MAX_RATIO_DIFFERENCE = 0.02
MIN_SIDE = 16
# Mask pixels above this value belong to the figure.
FIGURE_THRESHOLD = 127


@dataclass(frozen=True)
class MaskedImage:
    """An image and the mask of its figure.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.data import MaskedImage
    >>> image = np.zeros((40, 60, 3), np.uint8)
    >>> _, mask = MaskedImage(image, image[..., 0] > 0).read(side=30)
    >>> mask.shape
    (20, 30)
    """

    image: Any
    """A file, an image of Pillow, or RGB pixels ``(height, width, 3)``, uint8."""
    mask: Any
    """A file, an image of Pillow, or pixels ``(height, width)``: figure is True, 1, or
    above 127. Its size may differ from that of the image, but not its shape."""
    name: str = ""
    """For messages; the name of its file by default."""

    def read(
        self, side: int | None = None
    ) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """Return pixels and mask, with the longest side shrunk to at most ``side``."""
        import cv2

        image, mask = as_pixels(self.image, self.name or "image"), self._load_mask()
        ratio = image.shape[1] / image.shape[0] * mask.shape[0] / mask.shape[1]
        if abs(ratio - 1) > MAX_RATIO_DIFFERENCE:
            raise ValueError(
                f"{self._mask_source}: expected the shape of its image,"
                f" {image.shape[1]} x {image.shape[0]} pixels, got"
                f" {mask.shape[1]} x {mask.shape[0]}"
            )
        image = image if side is None else shrink_image(image, side)
        coverage, size = mask.astype(np.float32), image.shape[1::-1]
        return image, cv2.resize(coverage, size, interpolation=cv2.INTER_AREA) > 0.5

    @property
    def _mask_source(self) -> str:
        is_file = isinstance(self.mask, str | os.PathLike)
        return os.fspath(self.mask) if is_file else self.name or "mask"

    def _load_mask(self) -> NDArray[np.bool_]:
        mask = self.mask
        if isinstance(mask, str | os.PathLike):
            if isinstance(self.image, str | os.PathLike):
                pixels = read_mask(Path(mask), Path(self.image))
            else:
                pixels = read_image(Path(mask), "L")
        elif isinstance(mask, Pillow.Image):
            pixels = as_pixels(mask, self._mask_source, "L")
        else:
            pixels = np.asarray(mask)
        if pixels.ndim != 2 or not pixels.size or pixels.dtype.kind not in "bui":
            raise TypeError(
                f"{self._mask_source}: expected a mask (height, width) of bool or int,"
                f" got {pixels.dtype} {pixels.shape}"
            )
        if pixels.max() <= 1:
            return pixels > 0
        if pixels.max() <= FIGURE_THRESHOLD:
            raise ValueError(
                f"{self._mask_source}: expected figure in values above"
                f" {FIGURE_THRESHOLD}, or labels 0 and 1, got at most {pixels.max()}"
            )
        return pixels > FIGURE_THRESHOLD


def read_masks(folder: str | os.PathLike[str]) -> list[MaskedImage]:
    """Return the images of a folder with their masks, sorted by name.

    Pixels are read later, by ``MaskedImage.read``.

    Raises
    ------
    FileNotFoundError
        If a folder or the mask of an image is missing.
    ValueError
        If there is no image.
    """
    return _read_folder(as_path(folder, "folder"), "data")


def _read_folder(folder: Path, argument: str) -> list[MaskedImage]:
    images, masks = _find_folders(folder, argument)
    examples = [
        MaskedImage(path, _find_mask(path, masks), path.stem)
        for path in list_images(images, SUFFIXES)
    ]
    if not examples:
        raise ValueError(f"{images}: expected images, got none")
    return examples


def as_masks(data: Any, *, name: str = "data") -> list[MaskedImage]:
    """Convert a folder, pairs of image and mask, or dictionaries to examples.

    Dictionaries, as of ``datasets``, have ``image`` and ``mask`` or ``label``. Error
    messages begin with ``name``.
    """
    if isinstance(data, str | os.PathLike):
        return _read_folder(Path(data), name)
    if not isinstance(data, Iterable):
        raise TypeError(
            f"{name}: expected a folder, pairs of image and mask, or dictionaries, got"
            f" {type(data).__name__}"
        )
    examples = [
        _as_masked_image(row, f"{name}[{number}]") for number, row in enumerate(data)
    ]
    if not examples:
        raise ValueError(f"{name}: expected at least one image, got none")
    return examples


def as_pixels(image: Any, source: str, mode: str = "RGB") -> NDArray[np.uint8]:
    """Return RGB pixels ``(height, width, 3)`` of a file, Pillow image or array.

    With mode ``L``, grey levels ``(height, width)``. Error messages begin with
    ``source``.
    """
    if isinstance(image, str | os.PathLike):
        return read_image(Path(image), mode)
    if isinstance(image, Pillow.Image):
        if image.mode.startswith(DEEP_MODES):
            raise ValueError(
                f"{source}: expected pixels of 8 bits a channel, got Pillow's mode"
                f" {image.mode}"
            )
        return np.asarray(image.convert(mode))
    if not isinstance(image, np.ndarray):
        raise TypeError(
            f"{source}: expected a file, an image of Pillow or an array, got"
            f" {type(image).__name__}"
        )
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise TypeError(
            f"{source}: expected uint8 pixels (height, width, 3), got {image.dtype}"
            f" {image.shape}"
        )
    if not image.size:
        raise ValueError(f"{source}: expected pixels, got {image.shape}")
    return image


def shrink_image(image: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Shrink an image to a longest side of ``side``; sides stay at least 16 pixels."""
    import cv2

    scale = min(side / max(image.shape[:2]), 1)
    height, width = (max(round(scale * x), MIN_SIDE) for x in image.shape[:2])
    return np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA))


def _as_masked_image(row: Any, source: str) -> MaskedImage:
    if isinstance(row, MaskedImage):
        return row
    if isinstance(row, Mapping):
        key = next((key for key in MASK_KEYS if key in row), None)
        if "image" in row and key:
            return MaskedImage(row["image"], row[key], source)
        got = f"the keys {', '.join(map(str, row))}"
    elif isinstance(row, tuple | list) and len(row) == 2:
        return MaskedImage(row[0], row[1], source)
    else:
        got = type(row).__name__
    raise TypeError(
        f"{source}: expected a pair of image and mask, or a dictionary with image and"
        f" {' or '.join(MASK_KEYS)}, got {got}"
    )


def _find_folders(folder: Path, argument: str) -> tuple[Path, Path]:
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{argument}: expected a folder of images and masks, found no {folder}"
        )
    paths = []
    for names in (IMAGE_FOLDERS, MASK_FOLDERS):
        existing = [folder / name for name in names if (folder / name).is_dir()]
        if not existing:
            raise FileNotFoundError(
                f"{folder}: expected one of the folders {', '.join(names)}, found none"
            )
        paths.append(existing[0])
    return paths[0], paths[1]


def _find_mask(image: Path, masks: Path) -> Path:
    candidates = [
        masks / f"{image.stem}{suffix}" for suffix in (image.suffix, *SUFFIXES)
    ]
    mask = next((path for path in candidates if path.is_file()), None)
    if mask is None:
        raise FileNotFoundError(
            f"{image}: expected a mask of the same name, found no {candidates[0]}"
        )
    return mask
