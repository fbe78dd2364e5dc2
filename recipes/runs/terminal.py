"""How a recipe ends when it is run from a terminal: no traceback for what is expected.

A wrong argument, a damaged file and a full disk are one line; Ctrl-C is status 130.
"""

import os
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from typing import Any


def run(recipe: Callable[[], Any]) -> None:
    try:
        recipe()
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has seen enough, as in a pipe to head.
        _drop_output()
    except (ValueError, OSError, BrokenExecutor) as error:
        try:
            sys.stdout.flush()
        except OSError:
            # it is standard output that cannot be written to
            _drop_output()
        sys.exit(f"error: {error}")


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
