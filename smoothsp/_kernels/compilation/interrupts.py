"""Steps that Ctrl-C does not take apart."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def defer_sigint(enabled: bool = True) -> Iterator[None]:
    """Make Ctrl-C wait until the block is done, if ``wanted``.

    Python interrupts the main thread alone, and none of its compiled loops.
    """
    if not enabled:
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    inside = threading.current_thread() is threading.main_thread()
    if not (inside and callable(before)):
        yield
        return
    pressed: list[Any] = []
    signal.signal(signal.SIGINT, lambda *call: pressed.append(call))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if pressed:
            before(*pressed[0])
