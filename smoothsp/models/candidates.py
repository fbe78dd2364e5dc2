"""Candidate boxes of images: proposals of selective search, or windows.

Selective search costs about a second an image, so its boxes are kept on disk, under a
checksum of the image's file, and several processes share the work.
"""

import hashlib
import io
import math
import multiprocessing
import os
import signal
import threading
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from smoothsp.atomic_files import replace
from smoothsp.data.images import read_image, read_image_size
from smoothsp.models import windows
from smoothsp.models.proposals import MAX_SIDE, METHODS, MIN_BOX_SIDE, propose_boxes

__all__ = [
    "MAX_PROPOSALS",
    "Proposals",
    "Windows",
    "compute_candidates",
    "orientation_key",
]

# fewer images are not worth the start of another process
PER_PROCESS = 10
# all that selective search finds
MAX_PROPOSALS = 1_000_000
# pixels of a side of a window
LARGEST = 2**20

Pixels = NDArray[np.uint8]
Boxes = NDArray[np.float32]


@dataclass(frozen=True)
class Proposals:
    """Boxes that may hold an object, by the arguments of ``propose``."""

    method: str = "selective-search"
    limit: int = 1000

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(
                f"proposals: expected one of {', '.join(METHODS)}, got {self.method!r}"
            )
        if type(self.limit) is not int or self.limit < 1:
            raise ValueError(f"max_boxes: expected at least 1, got {self.limit!r}")

    def of(self, image: Pixels) -> Boxes:
        """Boxes ``(box, 4)`` of an image."""
        return propose_boxes(image, self.method, self.limit)


@dataclass(frozen=True)
class Windows:
    """Windows of these widths and heights whose centres cover the image."""

    shapes: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        sides = [side for shape in self.shapes for side in shape]
        if not sides or {len(shape) for shape in self.shapes} != {2}:
            raise ValueError(f"shapes: expected pairs of numbers, got {self.shapes!r}")
        for side in sides:
            if isinstance(side, bool) or not isinstance(side, int | float):
                raise ValueError(f"shapes: expected numbers, got {side!r}")
            if not (math.isfinite(side) and 0 < side <= LARGEST):
                raise ValueError(f"shapes: expected 0 to {LARGEST}, got {side}")

    def of(self, image: Pixels) -> Boxes:
        """Boxes ``(box, 4)`` of an image."""
        return self.in_size(image.shape[1], image.shape[0])

    def in_size(self, width: int, height: int) -> Boxes:
        """Boxes ``(box, 4)`` of images of a size."""
        return _windows(self.shapes, width, height)


# images of a set often have one size
@lru_cache(maxsize=64)
def _windows(shapes: tuple[tuple[float, float], ...], width: int, height: int) -> Boxes:
    return windows.window_grid(np.array(shapes), width, height)


def compute_candidates(
    images: Sequence[Path], proposals: Proposals, cache: Path, workers: int = 1
) -> list[Boxes]:
    """Boxes of each image, those of selective search from disk where they are kept."""
    if proposals.method == "grid":
        bar = tqdm(images, "windows", leave=False, disable=None)
        return [proposals.of(read_image(path)) for path in bar]
    paths = [cache / f"{_key(image)}.npz" for image in images]
    missing = {
        path: image
        for path, image in zip(paths, images, strict=True)
        if _load(path) is None
    }
    workers = max(min(workers, len(missing) // PER_PROCESS), 1)
    with tqdm(
        total=len(missing), desc="selective search", leave=False, disable=None
    ) as bar:
        for _ in _searched(missing, workers):
            bar.update()
    found = []
    for path, image in zip(paths, images, strict=True):
        boxes = _load(path)
        if boxes is None:
            raise OSError(f"{path}: expected the boxes of {image}, which were written")
        found.append(boxes[: proposals.limit])
    return found


def _key(image: Path) -> str:
    """A checksum of all that the boxes depend on."""
    digest = hashlib.sha256(image.read_bytes() + orientation_key(image))
    digest.update(f"{cv2.__version__} {MAX_SIDE} {MIN_BOX_SIDE}".encode())
    return digest.hexdigest()[:32]


def orientation_key(image: Path) -> bytes:
    """Part of a key of kept numbers: empty unless EXIF turns the image."""
    orientation = read_image_size(image)[2]
    return b"" if orientation == 1 else f"turned {orientation}".encode()


def _searched(missing: dict[Path, Path], workers: int) -> Iterator[None]:
    if workers == 1:
        for path, image in missing.items():
            _search(path, image)
            yield
        return
    with _processes(workers) as pool:
        tasks = [pool.submit(_search, *pair) for pair in missing.items()]
        for task in as_completed(tasks):
            task.result()
            yield


@contextmanager
def _processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    # started afresh: a fork would take over the locks of this process's threads
    fresh = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, fresh, _begin_work)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_work() -> None:
    """Leave Ctrl-C to the process that gives the work, and end when it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _search(path: Path, image: Path) -> None:
    boxes, content = (
        propose_boxes(read_image(image), "selective-search", MAX_PROPOSALS),
        io.BytesIO(),
    )
    np.savez_compressed(content, boxes=boxes)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, content.getbuffer())


def _load(path: Path) -> Boxes | None:
    """Boxes kept at ``path``; None if there are none, or a file that is damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            boxes: Boxes = kept["boxes"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    sound = boxes.ndim == 2 and boxes.shape[1:] == (4,) and len(boxes)
    return boxes if sound and np.isfinite(boxes).all() else None
