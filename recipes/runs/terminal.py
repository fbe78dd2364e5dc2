"""How a recipe ends when it is run from a terminal: no traceback for what is expected.

A wrong argument, a damaged file, a full disk and data that do not fit in memory are one
line; Ctrl-C is status 130 to a shell, however often it is pressed.
"""

import errno
import os
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from typing import Any

from runs import options, start

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def run(recipe: Callable[[], Any]) -> None:
    _open_what_is_closed()
    command = False
    options.written.clear()
    try:
        command = start.awaited()
        recipe()
        sys.stdout.flush()
    except SystemExit:
        # after --help, say
        _flush()
        raise
    except KeyboardInterrupt:
        if command:
            start.quietly()
        _flush()
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has seen enough, as in a pipe to head.
        _drop_output()
    except (ValueError, OSError, MemoryError, BrokenExecutor) as error:
        sys.exit(f"error: {_said(error)}")
    finally:
        if command:
            start.quietly()


def _open_what_is_closed() -> None:
    """Standard streams that a shell closed hold nothing, and take everything."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    if hasattr(sys.stdout, "reconfigure"):
        # names of files may be bytes that are no text: as they are;
        # lines are written at once, to pipes and files too
        sys.stdout.reconfigure(errors="surrogateescape", line_buffering=True)


def _said(error: BaseException) -> str:
    unwritten = _flush() is not None or getattr(error, "errno", None) in FULL
    # of files that cannot be written, recipes say the names
    if isinstance(error, OSError) and error.filename is None and unwritten:
        return f"standard output: expected to write to it, got {error.strerror}"
    if isinstance(error, UnicodeEncodeError) and error.encoding != "utf-8":
        letters = error.object[error.start : error.end][:20]
        return (
            f"standard output: expected an encoding that has {letters!a}, got"
            f" {error.encoding}. Run it with PYTHONIOENCODING=utf-8"
        )
    if isinstance(error, OSError) and error.filename and error.strerror:
        name = os.fsdecode(error.filename)
        return options.named(f"{name}: expected to open it, got {error.strerror}")
    if isinstance(error, MemoryError) and not str(error):
        return "this takes more memory than there is"
    return options.named(str(error))


def _flush() -> OSError | None:
    """Write what is left of the output; what went wrong, if anything did."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _drop_output()
        return error
    return None


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
