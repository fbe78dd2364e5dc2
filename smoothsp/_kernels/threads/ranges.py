"""Ranges of rows on a small pool of threads."""

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

import torch


class CoreAffinity:
    """The threads of a pool, and the core that they were last kept off.

    Where no idle core shares a cache with the waking one, as on virtual machines, Linux
    wakes a thread on the very core of its waker. There the two take turns, for
    milliseconds and whatever other cores are idle, so the second would gain nothing.
    """

    def __init__(self) -> None:
        self._threads: list[int] = []
        self._avoided = -1

    def enter(self) -> None:
        """To be called by each thread of the pool, first of all."""
        self._threads.append(threading.get_native_id())
        self._avoided = -1

    def avoid_this_core(self) -> None:
        """Let the threads run wherever the caller may, but for the core it is on.

        Microseconds if the caller has moved since the last time, else nothing.
        """
        here = _this_core()
        if here == self._avoided:
            return
        self._avoided = here
        elsewhere = os.sched_getaffinity(0) - {here}
        if not elsewhere:
            return
        for thread in self._threads:
            # it may have ended, and a core may have been taken away
            with suppress(OSError):
                os.sched_setaffinity(thread, elsewhere)


def _find_this_core() -> Callable[[], int]:
    if hasattr(os, "sched_setaffinity"):
        with suppress(OSError, AttributeError):
            found: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
            return found
    return lambda: -1


_this_core = _find_this_core()


# To start work on another thread costs about 90 us, and cache misses there: nearly all
# that a second thread saves of less than half a millisecond.
WORK_PER_THREAD = 800_000
CHUNKS_PER_THREAD = 4

_lock = threading.Lock()
_pool: tuple[ThreadPoolExecutor, CoreAffinity] | None = None
_pool_size = 0


def run_rows(
    kernel: Callable[..., None], rows: int, work: int, *arrays: Any, group_size: int = 1
) -> None:
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
    together
        Rows that the kernel computes at a time: ranges hold whole groups of them.
    """
    groups = -(-rows // group_size)
    # small calls do not read the number of threads, which takes most of a microsecond
    most = min(groups, work // WORK_PER_THREAD)
    threads = min(torch.get_num_threads(), most) if most > 1 else 1
    if threads < 2:
        kernel(0, rows, *arrays)
        return
    # more than there are threads: some rows, and some cores, take longer than others
    pieces = min(most, CHUNKS_PER_THREAD * threads)
    bounds = [min(groups * i // pieces * group_size, rows) for i in range(pieces + 1)]
    run_all([partial(kernel, *range_, *arrays) for range_ in pairwise(bounds)])


def run_all(pieces: Sequence[Callable[[], Any]]) -> list[Any]:
    """What the pieces return, in order.

    Each thread runs its share from front to back, then helps others from back to front,
    so that a repeated question meets warm caches.

    Parameters
    ----------
    pieces
        Release the GIL for several times what a hand-over costs.
    """
    count = len(pieces)
    threads = min(torch.get_num_threads(), count)
    if threads < 2:
        return [piece() for piece in pieces]
    found: list[Any] = [None] * count
    left = set(range(count))

    def take(thread: int) -> None:
        first, last = count * thread // threads, count * (thread + 1) // threads
        for i in (*range(first, last), *range(count - 1, -1, -1)):
            try:
                left.remove(i)  # one step, which no other thread interrupts
            except KeyError:
                continue
            found[i] = pieces[i]()

    pool, placement = _get_pool(threads - 1)
    placement.avoid_this_core()
    others = [pool.submit(take, thread) for thread in range(1, threads)]
    try:
        take(0)
    finally:
        # After an error no piece is begun, and those under way are waited for: they
        # may write to memory that the caller is about to free.
        left.clear()
        running = [other for other in others if not other.cancel()]
        wait(running)
    for other in running:
        other.result()
    return found


def _get_pool(size: int) -> tuple[ThreadPoolExecutor, CoreAffinity]:
    global _pool, _pool_size
    with _lock:
        if _pool is None or _pool_size < size:
            # The pool that was too small finishes its pieces; then its threads end.
            placement = CoreAffinity()
            threads = ThreadPoolExecutor(size, "smoothsp", placement.enter)
            _pool, _pool_size = (threads, placement), size
        return _pool


def _forget_pool() -> None:
    """Threads do not survive a fork: the child starts with no pool and a free lock."""
    global _lock, _pool, _pool_size
    _lock, _pool, _pool_size = threading.Lock(), None, 0


os.register_at_fork(after_in_child=_forget_pool)
