"""Images read and checked, turned as their EXIF orientation says."""

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
# of EXIF: those that exchange width and height
ORIENTATION, SIDEWAYS_ORIENTATIONS = 0x0112, (5, 6, 7, 8)
# of Pillow: numbers whose range no file tells
DEEP_MODES = ("I", "F")


class BadFile(ValueError):
    """An image or annotation that cannot be used; names the file."""


def list_images(folder: Path, suffixes: Collection[str] = SUFFIXES) -> list[Path]:
    """Return the files of images in a folder, by name; none that are hidden."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in suffixes and not path.name.startswith(".")
    )


def read_image(path: Path, mode: str = "RGB") -> NDArray[np.uint8]:
    """Pixels ``(height, width, 3)``, red first, turned by EXIF's orientation.

    With the mode ``L`` grey ones ``(height, width)``.
    """
    with _opened(path) as image:
        if image.mode.startswith(DEEP_MODES):
            raise ValueError(
                f"it has pixels of Pillow's mode {image.mode}: save it with 8 bits"
                " a channel"
            )
        return np.asarray(ImageOps.exif_transpose(image).convert(mode))


def read_mask(path: Path, image: Path, mode: str = "L") -> NDArray[np.uint8]:
    """Pixels of the mask of an image, turned with it if it has its size before."""
    mask = read_image(path, mode)
    width, height, orientation = read_image_size(image)
    if orientation in SIDEWAYS_ORIENTATIONS and mask.shape[:2] == (width, height):
        with _opened(path) as before:
            exif = before.getexif()
            exif[ORIENTATION] = orientation
            turned = Image.fromarray(mask)
            turned.info["exif"] = exif.tobytes()
            return np.asarray(ImageOps.exif_transpose(turned))
    return mask


def read_image_size(path: Path) -> tuple[int, int, int]:
    """Width and height of an image as it is read, and EXIF's orientation."""
    with _opened(path) as image:
        orientation = image.getexif().get(ORIENTATION, 1)
        width, height = image.size
    if orientation in SIDEWAYS_ORIENTATIONS:
        width, height = height, width
    return width, height, orientation


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """An image, whose errors name the file."""
    try:
        # a pipe is not waited for
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
        said = " ".join(str(error).split())
        raise BadFile(
            f"{path}: expected an image, got a file that does not decode ({said})"
        ) from error
