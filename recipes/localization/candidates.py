"""Candidate boxes of images, kept on disk.

Selective search costs about a second an image, so its boxes are kept, under a checksum
of the image's file, and several processes share the work.
"""

import hashlib
import multiprocessing
import os
import signal
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
from tqdm import tqdm

from runs import files
from smoothsp.data.images import read_image, size_of
from smoothsp.models.proposals import LONGEST_SIDE, SMALLEST_BOX, propose

# fewer images are not worth the start of another process
PER_PROCESS = 10
# all that selective search finds
ALL = 1_000_000


def of_images(
    images: list[Path], method: str, limit: int, cache: Path, workers: int
) -> list[np.ndarray]:
    """At most ``limit`` boxes of each image: x1, y1, x2, y2 in its pixels."""
    if method == "grid":
        bar = tqdm(images, "windows", leave=False, disable=None)
        return [propose(read_image(path), method, limit) for path in bar]
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
    digest = hashlib.sha256(image.read_bytes() + turned(image))
    digest.update(f"{cv2.__version__} {LONGEST_SIDE} {SMALLEST_BOX}".encode())
    return digest.hexdigest()[:32]


def turned(image: Path) -> bytes:
    """What a key of kept numbers has more if EXIF turns the image."""
    orientation = size_of(image)[2]
    return b"" if orientation == 1 else f"turned {orientation}".encode()


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
    boxes = propose(read_image(image), "selective-search", ALL)
    files.write(path, lambda sink: np.savez_compressed(sink, boxes=boxes))


def _load(path: Path) -> np.ndarray | None:
    """Boxes kept at ``path``; None if there are none, or a file that is damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            boxes = kept["boxes"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    sound = boxes.ndim == 2 and boxes.shape[1:] == (4,) and len(boxes)
    return boxes if sound and np.isfinite(boxes).all() else None
