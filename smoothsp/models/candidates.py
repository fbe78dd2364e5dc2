"""Candidate boxes of images: proposals of selective search, or windows.

Selective search takes about a second an image. Its boxes are cached on disk under a
checksum of the image file, and computed by several processes.
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

# With fewer images a process, starting it costs more than it saves.
MIN_IMAGES_PER_PROCESS = 10
# Above the number of boxes that selective search returns for any image.
MAX_PROPOSALS = 1_000_000
# Longest side of a window in pixels.
MAX_WINDOW_SIDE = 2**20

Pixels = NDArray[np.uint8]
Boxes = NDArray[np.float32]


@dataclass(frozen=True)
class Proposals:
    """Object proposals, by method and maximum number; see ``propose_boxes``."""

    method: str = "selective-search"
    limit: int = 1000

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(
                f"proposals: expected one of {', '.join(METHODS)}, got {self.method!r}"
            )
        if type(self.limit) is not int or self.limit < 1:
            raise ValueError(f"max_boxes: expected at least 1, got {self.limit!r}")

    def compute_boxes(self, image: Pixels) -> Boxes:
        """Return boxes ``(box, 4)`` of an image."""
        return propose_boxes(image, self.method, self.limit)


@dataclass(frozen=True)
class Windows:
    """Grid of windows with the given widths and heights."""

    shapes: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        sides = [side for shape in self.shapes for side in shape]
        if not sides or {len(shape) for shape in self.shapes} != {2}:
            raise ValueError(f"shapes: expected pairs of numbers, got {self.shapes!r}")
        for side in sides:
            if isinstance(side, bool) or not isinstance(side, int | float):
                raise ValueError(f"shapes: expected numbers, got {side!r}")
            if not (math.isfinite(side) and 0 < side <= MAX_WINDOW_SIDE):
                raise ValueError(f"shapes: expected 0 to {MAX_WINDOW_SIDE}, got {side}")

    def compute_boxes(self, image: Pixels) -> Boxes:
        """Return boxes ``(box, 4)`` of an image."""
        return self.in_size(image.shape[1], image.shape[0])

    def in_size(self, width: int, height: int) -> Boxes:
        """Return boxes ``(box, 4)`` for images of a size."""
        return _cached_window_grid(self.shapes, width, height)


# Many images of a data set have the same size.
@lru_cache(maxsize=64)
def _cached_window_grid(
    box_shapes: tuple[tuple[float, float], ...], width: int, height: int
) -> Boxes:
    return windows.window_grid(np.array(box_shapes), width, height)


def compute_candidates(
    images: Sequence[Path], proposals: Proposals, cache: Path, workers: int = 1
) -> list[Boxes]:
    """Return candidate boxes of each image, from the disk cache where possible."""
    if proposals.method == "grid":
        progress = tqdm(images, "windows", leave=False, disable=None)
        return [proposals.compute_boxes(read_image(path)) for path in progress]
    paths = [cache / f"{_proposal_cache_key(image)}.npz" for image in images]
    missing = {
        path: image
        for path, image in zip(paths, images, strict=True)
        if _load_cached_boxes(path) is None
    }
    workers = max(min(workers, len(missing) // MIN_IMAGES_PER_PROCESS), 1)
    with tqdm(
        total=len(missing), desc="selective search", leave=False, disable=None
    ) as progress:
        for _ in _search_missing(missing, workers):
            progress.update()
    candidates = []
    for path, image in zip(paths, images, strict=True):
        boxes = _load_cached_boxes(path)
        if boxes is None:
            raise OSError(f"{path}: expected the boxes of {image}, which were written")
        candidates.append(boxes[: proposals.limit])
    return candidates


def _proposal_cache_key(image: Path) -> str:
    """Return a checksum of image, OpenCV version and search parameters."""
    digest = hashlib.sha256(image.read_bytes() + orientation_key(image))
    digest.update(f"{cv2.__version__} {MAX_SIDE} {MIN_BOX_SIDE}".encode())
    return digest.hexdigest()[:32]


def orientation_key(image: Path) -> bytes:
    """Return the part of a cache key for the EXIF orientation; empty if normal."""
    orientation = read_image_size(image)[2]
    return b"" if orientation == 1 else f"turned {orientation}".encode()


def _search_missing(
    image_by_cache_path: dict[Path, Path], workers: int
) -> Iterator[None]:
    if workers == 1:
        for path, image in image_by_cache_path.items():
            _save_proposals(path, image)
            yield
        return
    with _spawn_pool(workers) as pool:
        tasks = [
            pool.submit(_save_proposals, *pair) for pair in image_by_cache_path.items()
        ]
        for task in as_completed(tasks):
            task.result()
            yield


@contextmanager
def _spawn_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    # spawn: a forked process would inherit locks held by threads of this process.
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, spawn, _init_worker)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _init_worker() -> None:
    """Initialise a worker: ignore Ctrl-C, one thread, exit with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(1)
    threading.Thread(target=_exit_after_parent, daemon=True).start()


def _exit_after_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _save_proposals(cache_path: Path, image_path: Path) -> None:
    boxes, content = (
        propose_boxes(read_image(image_path), "selective-search", MAX_PROPOSALS),
        io.BytesIO(),
    )
    np.savez_compressed(content, boxes=boxes)
    cache_path.parent.mkdir(parents=True, exist_ok=True)
    replace(cache_path, content.getbuffer())


def _load_cached_boxes(path: Path) -> Boxes | None:
    """Load cached boxes; None if the file is missing or damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            boxes: Boxes = arrays["boxes"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    is_valid = boxes.ndim == 2 and boxes.shape[1:] == (4,) and len(boxes)
    return boxes if is_valid and np.isfinite(boxes).all() else None
