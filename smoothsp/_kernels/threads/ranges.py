"""Ranges of rows, computed by a pool of threads."""

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
    """CPU affinity that excludes the caller's core from the threads of a pool.

    If no idle core shares a cache with the waking core, as on virtual machines, Linux
    wakes a thread on the core of its waker. Both then share that core for milliseconds
    although other cores are idle, and run no faster than one thread.
    """

    def __init__(self) -> None:
        self._thread_ids: list[int] = []
        self._avoided_core = -1

    def register_thread(self) -> None:
        """Register the current thread; each thread of the pool calls it first."""
        self._thread_ids.append(threading.get_native_id())
        self._avoided_core = -1

    def avoid_current_core(self) -> None:
        """Restrict the threads to the caller's cores without its current one.

        Takes microseconds if the caller runs on another core than last time, else
        nothing.
        """
        core = _current_core()
        if core == self._avoided_core:
            return
        self._avoided_core = core
        other_cores = os.sched_getaffinity(0) - {core}
        if not other_cores:
            return
        for thread in self._thread_ids:
            # the thread may have ended, or the process may have lost a core
            with suppress(OSError):
                os.sched_setaffinity(thread, other_cores)


def _make_core_getter() -> Callable[[], int]:
    if hasattr(os, "sched_setaffinity"):
        with suppress(OSError, AttributeError):
            sched_getcpu: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
            return sched_getcpu
    return lambda: -1


_current_core = _make_core_getter()


# Inner-loop steps of about half a millisecond. A second thread takes about 90 us to
# start, plus cache misses, which is nearly all that it would save for less work.
WORK_PER_THREAD = 800_000
CHUNKS_PER_THREAD = 4

_lock = threading.Lock()
_pool: tuple[ThreadPoolExecutor, CoreAffinity] | None = None
_pool_size = 0


def run_rows(
    kernel: Callable[..., None],
    num_rows: int,
    work: int,
    *arrays: Any,
    group_size: int = 1,
) -> None:
    """Call ``kernel(first, last, *arrays)`` on ranges that cover all rows.

    Rows are independent and each is computed by one thread, so the result does not
    depend on the number of threads.

    Parameters
    ----------
    kernel
        Releases the GIL, and writes outputs of its rows only.
    num_rows
        Number of rows.
    work
        Inner-loop steps of the whole call; determines the number of threads.
    arrays
        Further arguments of the kernel.
    group_size
        Rows that the kernel computes at a time: ranges are multiples of it.
    """
    num_groups = -(-num_rows // group_size)
    # small calls do not read the number of threads, which takes most of a microsecond
    max_chunks = min(num_groups, work // WORK_PER_THREAD)
    num_threads = min(torch.get_num_threads(), max_chunks) if max_chunks > 1 else 1
    if num_threads < 2:
        kernel(0, num_rows, *arrays)
        return
    # more chunks than threads balance rows and cores of different speed
    num_chunks = min(max_chunks, CHUNKS_PER_THREAD * num_threads)
    bounds = [
        min(num_groups * i // num_chunks * group_size, num_rows)
        for i in range(num_chunks + 1)
    ]
    run_all([partial(kernel, *range_, *arrays) for range_ in pairwise(bounds)])


def run_all(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run the tasks on the pool; return their results in order.

    Each thread runs its range of tasks from front to back, then takes unstarted tasks
    from back to front. Repeated calls thus find their rows in the same core's cache.

    Parameters
    ----------
    tasks
        Functions that release the GIL, for much longer than a thread switch takes.
    """
    num_tasks = len(tasks)
    num_threads = min(torch.get_num_threads(), num_tasks)
    if num_threads < 2:
        return [task() for task in tasks]
    results: list[Any] = [None] * num_tasks
    unstarted = set(range(num_tasks))

    def run_unstarted_tasks(thread: int) -> None:
        first, last = (
            num_tasks * thread // num_threads,
            num_tasks * (thread + 1) // num_threads,
        )
        for i in (*range(first, last), *range(num_tasks - 1, -1, -1)):
            try:
                unstarted.remove(i)  # atomic under the GIL
            except KeyError:
                continue
            results[i] = tasks[i]()

    pool, core_affinity = _get_pool(num_threads - 1)
    core_affinity.avoid_current_core()
    futures = [
        pool.submit(run_unstarted_tasks, thread) for thread in range(1, num_threads)
    ]
    try:
        run_unstarted_tasks(0)
    finally:
        # After an error no task is started, and running tasks are awaited, as they may
        # write to memory that the caller is about to free.
        unstarted.clear()
        started = [future for future in futures if not future.cancel()]
        wait(started)
    for future in started:
        future.result()
    return results


def _get_pool(num_threads: int) -> tuple[ThreadPoolExecutor, CoreAffinity]:
    global _pool, _pool_size
    with _lock:
        if _pool is None or _pool_size < num_threads:
            # the smaller pool finishes its tasks; then its threads end
            core_affinity = CoreAffinity()
            executor = ThreadPoolExecutor(
                num_threads, "smoothsp", core_affinity.register_thread
            )
            _pool, _pool_size = (executor, core_affinity), num_threads
        return _pool


def _reset_pool_after_fork() -> None:
    """Reset pool and lock in a forked child, which has none of its parent's threads."""
    global _lock, _pool, _pool_size
    _lock, _pool, _pool_size = threading.Lock(), None, 0


os.register_at_fork(after_in_child=_reset_pool_after_fork)
