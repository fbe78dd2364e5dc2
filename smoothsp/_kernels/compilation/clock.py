"""Wall-clock time that excludes the compilation of kernels."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
# compilations in progress, the start of the first of them, seconds of earlier ones
_num_compiling, _compiling_since, _compilation_seconds = 0, 0.0, 0.0


@contextmanager
def exclude_compilation() -> Iterator[None]:
    """Stop the clock during the block: a compilation, or a load from the disk cache."""
    global _num_compiling, _compiling_since, _compilation_seconds
    with _lock:
        if not _num_compiling:
            _compiling_since = time.perf_counter()
        _num_compiling += 1
    try:
        yield
    finally:
        with _lock:
            _num_compiling -= 1
            if not _num_compiling:
                _compilation_seconds += time.perf_counter() - _compiling_since


def seconds_without_compilation() -> float:
    """Return seconds of wall time without compilation, from an arbitrary origin."""
    with _lock:
        now = _compiling_since if _num_compiling else time.perf_counter()
        return now - _compilation_seconds
