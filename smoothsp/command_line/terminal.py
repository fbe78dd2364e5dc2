"""Ends of commands in a terminal, without traceback for expected errors.

A wrong argument, a damaged file, a full disk and data that do not fit in memory are one
line; Ctrl-C is status 130 to a shell, however often it is pressed.
"""

import errno
import os
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from typing import Any

__all__ = ["SkippedInputs", "run_command"]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class SkippedInputs:
    """Count of the inputs of a prediction that cannot be used.

    ``skip_bad`` says that some are expected.
    """

    def __init__(self, skip_bad: bool = False) -> None:
        self.skip_bad, self.count = skip_bad, 0

    def add(self, wrong: object) -> None:
        """Name one on standard error."""
        self.count += 1
        sys.stderr.write(f"warning: left out: {wrong}\n")

    def end(self, done: int, what: str) -> None:
        """Raise, so that the exit status is 1, unless they were expected or none.

        Raises
        ------
        ValueError
            With the number of ``what`` that was left out.
        """
        if self.count and not (self.skip_bad and done):
            remedy = "" if self.skip_bad else ". Mend them, or give --skip-bad"
            raise ValueError(
                f"left out {self.count} of {self.count + done} {what}, named"
                f" above{remedy}"
            )


def run_command(command: Callable[[], Any], named: Callable[[str], str] = str) -> None:
    """Run a command; ``named`` makes the message of an error that of an option."""
    _open_what_is_closed()
    try:
        command()
        sys.stdout.flush()
    except SystemExit:
        # after --help, say
        _flush()
        raise
    except KeyboardInterrupt:
        _flush()
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has seen enough, as in a pipe to head.
        _drop_output()
    except ModuleNotFoundError as error:
        # of libraries that are not installed; the message has the remedy
        if "pip install" not in str(error):
            raise
        sys.exit(f"error: {error}")
    except (ValueError, OSError, MemoryError, BrokenExecutor) as error:
        sys.exit(f"error: {_said(error, named)}")


def _open_what_is_closed() -> None:
    """Replace standard streams that a shell closed by empty ones."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure:
        # names of files may be bytes that are no text: as they are;
        # lines are written at once, to pipes and files too
        reconfigure(errors="surrogateescape", line_buffering=True)


def _said(error: BaseException, named: Callable[[str], str]) -> str:
    unwritten = _flush() is not None or getattr(error, "errno", None) in FULL
    # of files that cannot be written, the messages say the names
    reason = error.strerror if isinstance(error, OSError) else None
    if reason and unwritten and getattr(error, "filename", None) is None:
        return f"standard output: expected to write to it, got {reason}"
    if isinstance(error, UnicodeEncodeError) and error.encoding != "utf-8":
        letters = error.object[error.start : error.end][:20]
        return (
            f"standard output: expected an encoding that has {letters!a}, got"
            f" {error.encoding}. Run it with PYTHONIOENCODING=utf-8"
        )
    if isinstance(error, OSError) and error.filename and error.strerror:
        name = os.fsdecode(error.filename)
        return named(f"{name}: expected to open it, got {error.strerror}")
    if isinstance(error, MemoryError) and not str(error):
        return "this takes more memory than there is"
    return named(str(error))


def _flush() -> OSError | None:
    """Write the rest of the output, and return the error if there is one."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _drop_output()
        return error
    return None


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
