"""Deferred SIGINT for steps that must not be interrupted halfway."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def defer_sigint(enabled: bool = True) -> Iterator[None]:
    """Defer SIGINT (Ctrl-C) until the block is done, if ``enabled``.

    Python delivers signals to the main thread only, so others only run the block.
    """
    if not enabled:
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    is_main_thread = threading.current_thread() is threading.main_thread()
    if not (is_main_thread and callable(handler)):
        yield
        return
    signals: list[Any] = []
    signal.signal(signal.SIGINT, lambda *call: signals.append(call))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if signals:
            handler(*signals[0])
