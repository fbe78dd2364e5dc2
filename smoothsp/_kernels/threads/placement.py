"""Keep threads off the core of the thread that wakes them.

Where no idle core shares a cache with the waking one, as on virtual machines, Linux
wakes a thread on the very core of its waker. There the two take turns, for milliseconds
and whatever other cores are idle, so the second thread would gain nothing.
"""

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import suppress


class Placement:
    """The threads of a pool, and the core that they were last kept off."""

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
