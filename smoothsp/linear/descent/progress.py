"""The progress of a long fit, one line on stderr."""

import sys
import time

from smoothsp.linear.engines.solution import Certificate

# A fit shorter than this many seconds shows nothing, unless it is verbose.
_PATIENCE = 3.0
_INTERVAL = 0.2


class Progress:
    """A line that is written over itself.

    Parameters
    ----------
    name
        Of what is fitted.
    verbose
        True: show it. False: do not. None: when stderr is a terminal, and only after
        three seconds.
    """

    def __init__(self, name: str, verbose: bool | None) -> None:
        self._name = name
        terminal = sys.stderr is not None and sys.stderr.isatty()
        self._wanted = terminal if verbose is None else verbose
        self._start = time.monotonic()
        self._next = self._start + (0 if verbose else _PATIENCE)
        self._certificate = ""
        self._width = 0

    def tell(self, epoch: int, share: float) -> None:
        """``share`` of an epoch, counted from 1, is done."""
        now = time.monotonic()
        if not self._wanted or now < self._next:
            return
        self._next = now + _INTERVAL
        done = f"epoch {epoch}, {share:4.0%}"
        self._write("; ".join(filter(None, (done, self._certificate))))

    def certify(self, certificate: Certificate, goal: float) -> None:
        """Remember what to say about the gap."""
        self._certificate = (
            f"objective {certificate.primal:.5g}, gap {certificate.gap:.2e}, "
            f"goal {goal:.2e}"
        )

    def close(self) -> None:
        """Leave the last certificate, if there is a line, and go to the next."""
        if self._width:
            self._write(self._certificate)
            sys.stderr.write("\n")
            sys.stderr.flush()

    def _write(self, text: str) -> None:
        seconds = time.monotonic() - self._start
        line = f"{self._name}: {text}; {seconds:.1f} s"
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = len(line)
