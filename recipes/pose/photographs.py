"""Photographs of people with 14 joints each: ``images`` and a MATLAB file of joints.

The layout of Leeds Sports Pose: ``joints.mat`` holds ``joints``, ``(14, 3, n)`` of x, y
and whether the joint is known, and ``images`` as many files, in order of name. Each
person is cut out as a square around the known joints, a quarter larger on each side, as
a detector of people would hand it on.
"""

from pathlib import Path

import cv2
import numpy as np
import scipy.io
from tqdm import tqdm

from pose.joints import People
from smoothsp.data.images import SUFFIXES, list_images, read_image, read_image_size

SIDE, MARGIN = 128, 0.25
GREY = (127, 127, 127)


def read(folder: Path, max_people: int | None) -> People:
    """The first so many people of a folder; all if None."""
    joints = _read_joints(folder / "joints.mat")
    images = folder / "images"
    paths = list_images(images) if images.is_dir() else []
    if len(paths) != len(joints):
        raise ValueError(
            f"data: expected an image for each of the {len(joints)} people of"
            f" {folder / 'joints.mat'}, found {len(paths)} files"
            f" ({', '.join(SUFFIXES)}) in {images}"
        )
    count = len(paths) if max_people is None else min(max_people, len(paths))
    if count < 20:
        raise ValueError(f"data: expected at least 20 people, got {count}")
    cut = [
        _read_person(path, person_joints)
        for path, person_joints in zip(
            tqdm(paths[:count], "images", leave=False, disable=None),
            joints[:count],
            strict=True,
        )
    ]
    images, joints_in_square = (np.stack(x) for x in zip(*cut, strict=True))
    return People(images, joints_in_square, joints[:count, :, 2] > 0)


def _read_joints(path: Path) -> np.ndarray:
    """``(n, 14, 3)``: x, y, known."""
    if not path.is_file():
        raise FileNotFoundError(
            f"data: expected {path}, found no such file. Give the folder that holds it"
            " and images"
        )
    try:
        matrices = scipy.io.loadmat(path)
    # what is damaged may fail at any place of the reader
    except Exception as error:
        raise ValueError(
            f"{path}: expected a MATLAB file, got one that does not read ({error})"
        ) from error
    joints = np.asarray(matrices.get("joints", 0.0))
    if (
        joints.ndim != 3
        or joints.shape[:2] != (14, 3)
        or joints.dtype.kind not in "fiu"
    ):
        raise ValueError(
            f"{path}: expected joints, numbers (14, 3, n), got {joints.dtype} of shape"
            f" {joints.shape}"
        )
    people = joints.transpose(2, 0, 1).astype(float)
    has_too_few = (people[..., 2] > 0).sum(1) < 2
    if has_too_few.any():
        raise ValueError(
            f"{path}: expected at least two known joints of each person, got fewer of"
            f" number {int(has_too_few.argmax()) + 1}"
        )
    unknown = ~(people[..., 2] > 0) & np.isfinite(people[..., 2])
    # joints that nobody marked may be anywhere, which some files call NaN
    people[unknown] = np.nan_to_num(people[unknown], posinf=0, neginf=0)
    if not np.isfinite(people).all():
        number = int((~np.isfinite(people)).any((1, 2)).argmax()) + 1
        raise ValueError(f"{path}: expected numbers, got NaN for number {number}")
    return people


def _read_person(path: Path, joints: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if read_image_size(path)[2] != 1:
        raise ValueError(
            f"{path}: expected a photograph whose pixels the joints count, got one that"
            " EXIF turns. Save it without EXIF, turned or not as the joints have it"
        )
    image = read_image(path)
    size = np.array(image.shape[1::-1])
    marked = joints[joints[:, 2] > 0, :2]
    # beyond the borders where somebody is cut off, but not far
    is_outside = ((marked < -size) | (marked > 2 * size)).any(1)
    if is_outside.any():
        x, y = marked[is_outside][0]
        raise ValueError(
            f"{path}: expected joints in this image of {size[0]} x {size[1]} pixels,"
            f" got one at ({x:g}, {y:g})"
        )
    return crop_person(image, joints)


def crop_person(image: np.ndarray, joints: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The square around a person's known joints, and the joints in it."""
    marked = joints[joints[:, 2] > 0, :2]
    low, high = marked.min(0), marked.max(0)
    extent = max((high - low).max(), 1.0) * (1 + 2 * MARGIN)
    return crop_square(image, (low + high) / 2, extent, joints[:, :2], SIDE)


def crop_square(
    image: np.ndarray,
    middle: np.ndarray,
    extent: float,
    joints: np.ndarray,
    side: int,
) -> tuple[np.ndarray, np.ndarray]:
    """A square of an image as ``side`` by ``side`` pixels, grey beyond its borders."""
    scale = side / extent
    shift = side / 2 - scale * middle
    transform = np.array([[scale, 0, shift[0]], [0, scale, shift[1]]])
    # to small sizes by areas, of which an affine map would take single pixels
    if scale < 0.5:
        # of a side that would vanish a pixel stays
        across, down = np.maximum(2 * scale, 1 / np.array(image.shape[1::-1]))
        image = cv2.resize(
            image, None, fx=across, fy=down, interpolation=cv2.INTER_AREA
        )
        transform[:, :2] /= across, down
    cut = cv2.warpAffine(image, transform, (side, side), borderValue=GREY)
    return cut, scale * joints + shift
