"""Listener of numba: counts compiled kernels and reports them."""

import logging
import sys
import time
from typing import Any

from numba.core import event

KERNELS = "smoothsp._kernels"
CLEAR = "\r\x1b[K"
LOG = logging.getLogger("smoothsp")


class CompileListener(event.Listener):  # type: ignore[misc]
    """Count kernels that are compiled, and report them.

    On a terminal, show the name of the current kernel. Otherwise log a warning at the
    first kernel of a process, and the seconds of each kernel at level INFO.
    """

    def __init__(self) -> None:
        self.count, self.depth, self.began = 0, 0, 0.0

    def on_start(self, event: Any) -> None:
        """Report the start of a compilation."""
        name = _kernel_name(event)
        if name is None:
            return
        self.count, self.depth = self.count + 1, self.depth + 1
        # kernels called by a kernel are compiled within it: report the outer one only
        if self.depth > 1:
            return
        self.began = time.monotonic()
        if sys.stderr is not None and sys.stderr.isatty():
            sys.stderr.write(
                f"{CLEAR}smoothsp: compiling {name}, cached on disk for later runs"
            )
            sys.stderr.flush()
        elif self.count == 1:
            LOG.warning(
                "smoothsp: compiling kernels for this processor, once, some seconds "
                "each; python -m smoothsp.compilation compiles them beforehand"
            )

    def on_end(self, event: Any) -> None:
        """Report the end of a compilation, successful or not."""
        name = _kernel_name(event)
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


def _kernel_name(event: Any) -> str | None:
    """Return the name of the kernel of an event; None for functions of other code."""
    function = getattr((event.data or {}).get("dispatcher"), "py_func", None)
    if function is None or not (function.__module__ or "").startswith(KERNELS):
        return None
    return str(function.__name__)


listener = CompileListener()
event.register("numba:compile", listener)
