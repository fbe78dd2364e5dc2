"""How a recipe ends when it is run from a terminal."""

from collections.abc import Callable
from typing import Any

from runs import options, start
from smoothsp.command_line import terminal


def run(recipe: Callable[[], Any]) -> None:
    """Run a recipe; an error about one of its options names it."""
    options.written.clear()
    command = start.awaited()
    try:
        terminal.run(recipe, options.named)
    finally:
        if command:
            start.quietly()
