"""Image files: read pixels and sizes, rotated by their EXIF orientation."""

import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

__all__ = [
    "DEEP_MODES",
    "SIDEWAYS_ORIENTATIONS",
    "SUFFIXES",
    "BadFile",
    "list_images",
    "read_image",
    "read_mask",
]
__all__ += ["read_image_size"]

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp")
# EXIF tag of the orientation, and its values that exchange width and height.
ORIENTATION_TAG, SIDEWAYS_ORIENTATIONS = 0x0112, (5, 6, 7, 8)
# Pillow modes with more than 8 bits: files do not store the range of their values.
DEEP_MODES = ("I", "F")


class BadFile(ValueError):
    """Error of an image or annotation file; the message names the file."""


def list_images(folder: Path, suffixes: Collection[str] = SUFFIXES) -> list[Path]:
    """Return the image files of a folder, sorted by name, without hidden ones."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in suffixes and not path.name.startswith(".")
    )


def read_image(path: Path, mode: str = "RGB") -> NDArray[np.uint8]:
    """Read RGB pixels ``(height, width, 3)``, rotated by the EXIF orientation.

    With mode ``L``, grey levels ``(height, width)``.
    """
    with _open_image(path) as image:
        if image.mode.startswith(DEEP_MODES):
            raise ValueError(
                f"it has pixels of Pillow's mode {image.mode}: save it with 8 bits"
                " a channel"
            )
        return np.asarray(ImageOps.exif_transpose(image).convert(mode))


def read_mask(path: Path, image: Path, mode: str = "L") -> NDArray[np.uint8]:
    """Read a mask, rotated like its image if its size is that of the stored image."""
    mask = read_image(path, mode)
    width, height, orientation = read_image_size(image)
    if orientation in SIDEWAYS_ORIENTATIONS and mask.shape[:2] == (width, height):
        with _open_image(path) as original:
            exif = original.getexif()
            exif[ORIENTATION_TAG] = orientation
            oriented = Image.fromarray(mask)
            oriented.info["exif"] = exif.tobytes()
            return np.asarray(ImageOps.exif_transpose(oriented))
    return mask


def read_image_size(path: Path) -> tuple[int, int, int]:
    """Return width and height after rotation, and the EXIF orientation."""
    with _open_image(path) as image:
        orientation = image.getexif().get(ORIENTATION_TAG, 1)
        width, height = image.size
    if orientation in SIDEWAYS_ORIENTATIONS:
        width, height = height, width
    return width, height, orientation


@contextmanager
def _open_image(path: Path) -> Iterator[Image.Image]:
    """Open an image; errors within the context become ``BadFile``."""
    try:
        # Reading a named pipe would block.
        if path.exists() and not path.is_file():
            raise ValueError("it is no regular file")
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                yield image
    except FileNotFoundError as error:
        raise BadFile(f"{path}: expected an image, found no such file") from error
    except (
        UnidentifiedImageError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
        OSError,
        SyntaxError,
        ValueError,
    ) as error:
        reason = " ".join(str(error).split())
        raise BadFile(
            f"{path}: expected an image, got a file that does not decode ({reason})"
        ) from error
