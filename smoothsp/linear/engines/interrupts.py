"""Steps that Ctrl-C does not take apart."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def uninterrupted(wanted: bool = True) -> Iterator[None]:
    """Ctrl-C waits until the block is done, if ``wanted``.

    Only the main thread is ever interrupted; a compiled loop is not, so nothing comes
    later than it would.
    """
    before = signal.getsignal(signal.SIGINT)
    inside = threading.current_thread() is threading.main_thread()
    if not (wanted and inside and callable(before)):
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
