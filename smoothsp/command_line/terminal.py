"""Error handling of commands: one line in place of a traceback.

Invalid arguments, damaged files, a full disk and lack of memory end a command with one
line. Ctrl-C ends it with exit status 130.
"""

import errno
import os
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from typing import Any

__all__ = ["SkippedInputs", "run_command"]

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class SkippedInputs:
    """Inputs of a prediction that could not be used: messages and their number.

    With ``skip_bad``, such inputs do not fail the command.
    """

    def __init__(self, skip_bad: bool = False) -> None:
        self.skip_bad, self.count = skip_bad, 0

    def add(self, problem: object) -> None:
        """Print the problem of one input on standard error, and count it."""
        self.count += 1
        sys.stderr.write(f"warning: left out: {problem}\n")

    def end(self, num_done: int, noun: str) -> None:
        """Raise if inputs were skipped, unless ``skip_bad`` and some were processed.

        Raises
        ------
        ValueError
            With the number of skipped inputs, called ``noun``.
        """
        if self.count and not (self.skip_bad and num_done):
            remedy = (
                "" if self.skip_bad else ". Fix them, or add --skip-bad to skip them"
            )
            raise ValueError(
                f"left out {self.count} of {self.count + num_done} {noun}, named"
                f" above{remedy}"
            )


def run_command(
    command: Callable[[], Any], name_option: Callable[[str], str] = str
) -> None:
    """Run a command; print an expected error as one line and exit with status 1.

    ``name_option`` replaces the argument in a message by the option of the command.
    """
    _reopen_closed_streams()
    try:
        command()
        sys.stdout.flush()
    except SystemExit:
        # raised by --help and by argparse errors
        _flush_stdout()
        raise
    except KeyboardInterrupt:
        _flush_stdout()
        sys.exit(130)
    except BrokenPipeError:
        # the reader closed the pipe, as head does
        _discard_output()
    except ModuleNotFoundError as error:
        # optional dependencies: the message names the extra to install
        if "pip install" not in str(error):
            raise
        sys.exit(f"error: {error}")
    except (ValueError, OSError, MemoryError, BrokenExecutor) as error:
        sys.exit(f"error: {_error_message(error, name_option)}")


def _reopen_closed_streams() -> None:
    """Open the null device for standard streams that the shell closed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure:
        # surrogateescape: print file names that are not valid text byte by byte;
        # line_buffering: write each line at once, also to pipes and files
        reconfigure(errors="surrogateescape", line_buffering=True)


def _error_message(error: BaseException, name_option: Callable[[str], str]) -> str:
    """Return the line that is printed for an error."""
    is_stdout = (
        _flush_stdout() is not None or getattr(error, "errno", None) in DISK_FULL_ERRNOS
    )
    # an error without a file name comes from standard output
    reason = error.strerror if isinstance(error, OSError) else None
    if reason and is_stdout and getattr(error, "filename", None) is None:
        return f"standard output: expected to write to it, got {reason}"
    if isinstance(error, UnicodeEncodeError) and error.encoding != "utf-8":
        letters = error.object[error.start : error.end][:20]
        return (
            f"standard output: expected an encoding that has {letters!a}, got"
            f" {error.encoding}. Run it with PYTHONIOENCODING=utf-8"
        )
    if isinstance(error, OSError) and error.filename and error.strerror:
        name = os.fsdecode(error.filename)
        return name_option(f"{name}: expected to open it, got {error.strerror}")
    if isinstance(error, MemoryError) and not str(error):
        return "not enough memory"
    return name_option(str(error))


def _flush_stdout() -> OSError | None:
    """Flush standard output; return the error if that fails."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _discard_output()
        return error
    return None


def _discard_output() -> None:
    """Redirect standard output to the null device."""
    # by file descriptor: Python flushes the stream once more at exit
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
