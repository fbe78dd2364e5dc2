"""Ranges of rows on a small pool of threads."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import torch

# A hand-over to another thread costs about 40 us: stay here below several times that.
WORK_PER_THREAD = 300_000

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pool_size = 0


def run_rows(kernel: Callable[..., None], rows: int, work: int, *arrays: Any) -> None:
    """Call ``kernel(first, last, *arrays)`` on ranges that cover ``rows``.

    Rows are independent and each is computed by one thread, so the result does not
    depend on how many threads there are.

    Parameters
    ----------
    kernel
        Releases the GIL and writes only what belongs to its rows.
    rows
        Number of rows.
    work
        Inner-loop steps of the whole call: how many threads it deserves.
    arrays
        Passed on.
    """
    threads = min(torch.get_num_threads(), rows, work // WORK_PER_THREAD)
    if threads < 2:
        kernel(0, rows, *arrays)
        return
    bounds = [rows * i // threads for i in range(threads + 1)]
    pool = _get_pool(threads - 1)
    others = [
        pool.submit(kernel, first, last, *arrays)
        for first, last in pairwise(bounds[1:])
    ]
    kernel(bounds[0], bounds[1], *arrays)
    for other in others:
        other.result()


def deserves_threads(work: int) -> bool:
    """Whether ``run_rows`` would share so much work among threads."""
    return work >= 2 * WORK_PER_THREAD and torch.get_num_threads() > 1


def _get_pool(size: int) -> ThreadPoolExecutor:
    global _pool, _pool_size
    with _lock:
        if _pool is None or _pool_size < size:
            # An outgrown pool finishes what it was given; its threads end with it.
            _pool = ThreadPoolExecutor(size, thread_name_prefix="smoothsp")
            _pool_size = size
        return _pool


def _forget_pool() -> None:
    """Threads do not survive a fork: the child starts with no pool and a free lock."""
    global _lock, _pool, _pool_size
    _lock, _pool, _pool_size = threading.Lock(), None, 0


os.register_at_fork(after_in_child=_forget_pool)
