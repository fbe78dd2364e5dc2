"""Ctrl-C in solvers, which return what they have reached: no result of a recipe."""

from typing import TypeVar

Solved = TypeVar("Solved")


def whole(found: Solved) -> Solved:
    """A solution, path, grid or fitted estimator, unless Ctrl-C ended it.

    Raises
    ------
    KeyboardInterrupt
        As Ctrl-C does elsewhere.
    """
    status = getattr(found, "status", None) or found.status_.name
    if status.lower().startswith("interrupted"):
        raise KeyboardInterrupt
    return found
