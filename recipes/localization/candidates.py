"""Candidate boxes of an image: selective search, or a sliding window.

Selective search costs about a second an image, so its boxes are kept on disk, under a
checksum of the image's file, and several processes share the work.
"""

import ctypes
import hashlib
import multiprocessing
import os
import signal
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import cv2
import numpy as np
from tqdm import tqdm

from localization.folder import read_image
from runs import checkpoint

# as large as the images of VOC; larger ones are searched at this size
LONGEST_SIDE = 500
SMALLEST_BOX = 4
SCALES, SHAPES = 2.0 ** -np.arange(0, 3.5, 0.5), (0.5, 1.0, 2.0)
# fewer images are not worth the start of another process
PER_PROCESS = 10


def selective_search(image: np.ndarray) -> np.ndarray:
    """Boxes ``(n, 4)`` of OpenCV's selective search, the most promising first."""
    scale = min(LONGEST_SIDE / max(image.shape[:2]), 1)
    small = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    search = cv2.ximgproc.segmentation.createSelectiveSearchSegmentation()
    search.setBaseImage(cv2.cvtColor(small, cv2.COLOR_RGB2BGR))
    search.switchToSelectiveSearchFast()
    if os.name == "posix":
        # OpenCV perturbs the ranking with C's rand(): the same for the same image
        ctypes.CDLL(None).srand(1)
    found = search.process()
    ratio = np.array(image.shape[1::-1]) / small.shape[1::-1]
    boxes = np.concatenate([found[:, :2], found[:, :2] + found[:, 2:]], 1)
    boxes = boxes * np.tile(ratio, 2)
    # distinct, in the order of first appearance
    _, first = np.unique(boxes, axis=0, return_index=True)
    boxes = boxes[np.sort(first)]
    large = (boxes[:, 2:] - boxes[:, :2] >= SMALLEST_BOX).all(1)
    return _or_all(boxes[large], image)


def sliding_window(image: np.ndarray, limit: int) -> np.ndarray:
    """The densest grid of at most ``limit`` windows, over scales and shapes."""
    height, width = image.shape[:2]
    sides = min(height, width) * SCALES
    sizes = [(s * shape**0.5, s / shape**0.5) for s, shape in product(sides, SHAPES)]
    sizes = [
        (w, h)
        for w, h in sizes
        if w <= width and h <= height and min(w, h) >= SMALLEST_BOX
    ]
    for stride in (1 / 8, 1 / 6, 1 / 4, 1 / 3, 1 / 2, 1):
        grids = [
            (_places(width - w, stride * w), _places(height - h, stride * h), w, h)
            for w, h in sizes
        ]
        if sum(len(xs) * len(ys) for xs, ys, _, _ in grids) <= limit:
            break
    boxes = [(x, y, x + w, y + h) for xs, ys, w, h in grids for y in ys for x in xs]
    return _or_all(np.array(boxes).reshape(-1, 4), image)[:limit]


def _places(room: float, stride: float) -> np.ndarray:
    return (
        np.linspace(0, room, int(np.ceil(room / stride)) + 1) if room else np.zeros(1)
    )


def _or_all(boxes: np.ndarray, image: np.ndarray) -> np.ndarray:
    if not len(boxes):
        boxes = np.array([(0, 0, image.shape[1], image.shape[0])])
    return boxes.astype(np.float32)


def of_images(
    images: list[Path], method: str, limit: int, cache: Path, workers: int
) -> list[np.ndarray]:
    """At most ``limit`` boxes of each image: x1, y1, x2, y2 in its pixels."""
    if method == "grid":
        bar = tqdm(images, "windows", leave=False, disable=None)
        return [sliding_window(read_image(path), limit) for path in bar]
    paths = [cache / f"{key(image)}.npz" for image in images]
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
    return [_load(path)[:limit] for path in paths]


def key(image: Path) -> str:
    """What the boxes depend on."""
    digest = hashlib.sha256(image.read_bytes())
    digest.update(f"{cv2.__version__} {LONGEST_SIDE} {SMALLEST_BOX}".encode())
    return digest.hexdigest()[:32]


def _searched(missing: dict[Path, Path], workers: int) -> Iterator[None]:
    if workers == 1:
        for path, image in missing.items():
            yield _search(path, image)
        return
    with _processes(workers) as pool:
        tasks = [pool.submit(_search, *pair) for pair in missing.items()]
        for task in as_completed(tasks):
            yield task.result()


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
    multiprocessing.parent_process().join()
    os._exit(1)


def _search(path: Path, image: Path) -> None:
    boxes = selective_search(read_image(image))
    checkpoint.write(path, lambda sink: np.savez_compressed(sink, boxes=boxes))


def _load(path: Path) -> np.ndarray | None:
    """Boxes kept at ``path``; None if there are none, or a file that is damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            boxes = kept["boxes"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    sound = boxes.ndim == 2 and boxes.shape[1:] == (4,) and len(boxes)
    return boxes if sound and np.isfinite(boxes).all() else None
