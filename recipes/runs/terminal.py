"""Ends of recipes that are run from a terminal."""

from collections.abc import Callable
from typing import Any

from runs import options, sigint
from smoothsp.command_line.terminal import run_command


def run(recipe: Callable[[], Any]) -> None:
    """Run a recipe; an error about one of its options names it."""
    options.parsed_options.clear()
    was_default = sigint.restore_sigint()
    try:
        run_command(recipe, options.name_option)
    finally:
        if was_default:
            sigint.default_sigint()
