"""Ends of recipes that are run from a terminal."""

from collections.abc import Callable
from typing import Any

from runs import options, start
from smoothsp.command_line.terminal import run_command


def run(recipe: Callable[[], Any]) -> None:
    """Run a recipe; an error about one of its options names it."""
    options.written.clear()
    command = start.awaited()
    try:
        run_command(recipe, options.named)
    finally:
        if command:
            start.quietly()
