"""Progress line on stderr for long fits."""

import sys
import time

from smoothsp.linear.engines.solution import Certificate

# Seconds before the first line, unless verbose=True.
_DISPLAY_DELAY = 3.0
# Seconds between updates.
_UPDATE_INTERVAL = 0.2


class ProgressLine:
    """Line on stderr that each update overwrites.

    Parameters
    ----------
    name
        Name of the estimator.
    verbose
        True: show the line. False: hide it. None: show it on a terminal, after three
        seconds.
    """

    def __init__(self, name: str, verbose: bool | None) -> None:
        self._name = name
        is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._is_enabled = is_terminal if verbose is None else verbose
        self._start = time.monotonic()
        self._next_update = self._start + (0 if verbose else _DISPLAY_DELAY)
        self._certificate = ""
        self._width = 0

    def update(self, epoch: int, fraction: float) -> None:
        """Show that a fraction of an epoch, numbered from 1, is done."""
        now = time.monotonic()
        if not self._is_enabled or now < self._next_update:
            return
        self._next_update = now + _UPDATE_INTERVAL
        done = f"epoch {epoch}, {fraction:4.0%}"
        self._write("; ".join(filter(None, (done, self._certificate))))

    def set_certificate(self, certificate: Certificate, gap_threshold: float) -> None:
        """Store objective, gap and threshold for the next updates."""
        self._certificate = (
            f"objective {certificate.primal:.5g}, gap {certificate.gap:.2e}, "
            f"threshold {gap_threshold:.2e}"
        )

    def close(self) -> None:
        """Write the last certificate and end the line, if one was shown."""
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
