"""The time that a program spends, without the compilation of its kernels."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
# kernels that are being compiled, since when any is, and seconds before that
_active, _since, _total = 0, 0.0, 0.0


@contextmanager
def exclude_compilation() -> Iterator[None]:
    """Around the compilation of a kernel, or its loading from disk."""
    global _active, _since, _total
    with _lock:
        if not _active:
            _since = time.perf_counter()
        _active += 1
    try:
        yield
    finally:
        with _lock:
            _active -= 1
            if not _active:
                _total += time.perf_counter() - _since


def seconds_without_compilation() -> float:
    """Seconds of wall time, of which differences count; kernels compile in none."""
    with _lock:
        now = _since if _active else time.perf_counter()
        return now - _total
