"""Messages while kernels are compiled, and their number."""

import logging
import sys
import time
from typing import Any

from numba.core import event

KERNELS = "smoothsp._kernels"
CLEAR = "\r\x1b[K"
LOG = logging.getLogger("smoothsp")


class CompileListener(event.Listener):  # type: ignore[misc]
    """Counts kernels that are compiled, and says so while it happens.

    A terminal shows the name of each. Elsewhere the first of a process is a warning of
    the logger ``smoothsp``, and the seconds of each have level INFO.
    """

    def __init__(self) -> None:
        self.count, self.depth, self.began = 0, 0, 0.0

    def on_start(self, event: Any) -> None:
        """A function is about to be compiled."""
        name = _kernel(event)
        if name is None:
            return
        self.count, self.depth = self.count + 1, self.depth + 1
        if self.depth > 1:
            return
        self.began = time.monotonic()
        if sys.stderr is not None and sys.stderr.isatty():
            sys.stderr.write(
                f"{CLEAR}smoothsp: compiling {name}, kept on disk for the next time"
            )
            sys.stderr.flush()
        elif self.count == 1:
            LOG.warning(
                "smoothsp: compiling kernels for this processor, once, some seconds "
                "each; python -m smoothsp.compilation compiles them beforehand"
            )

    def on_end(self, event: Any) -> None:
        """It has been compiled, or could not be."""
        name = _kernel(event)
        if name is None:
            return
        self.depth -= 1
        if self.depth > 0:
            return
        if sys.stderr is not None and sys.stderr.isatty():
            sys.stderr.write(CLEAR)
            sys.stderr.flush()
        else:
            LOG.info("compiled %s in %.1f s", name, time.monotonic() - self.began)


def _kernel(event: Any) -> str | None:
    """The name of the kernel that an event is about, if it is one of ours."""
    function = getattr((event.data or {}).get("dispatcher"), "py_func", None)
    if function is None or not (function.__module__ or "").startswith(KERNELS):
        return None
    return str(function.__name__)


listener = CompileListener()
event.register("numba:compile", listener)
