"""Ctrl-C in solvers, which return what they have reached, and in trainers that exit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Solved = TypeVar("Solved")


def raise_if_interrupted(solution: Solved) -> Solved:
    """A solution, path, grid or fitted estimator, unless Ctrl-C ended it.

    Raises
    ------
    KeyboardInterrupt
        As Ctrl-C does elsewhere.
    """
    status = getattr(solution, "status", None) or solution.status_.name
    if status.lower().startswith("interrupted"):
        raise KeyboardInterrupt
    return solution


def require_finished(model: Any) -> None:
    """Raise KeyboardInterrupt if Ctrl-C ended the training of a model."""
    if model.about.pop("interrupted", False):
        epoch = len(model.about["history"])
        print(f"\nstopped; add --resume to continue after epoch {epoch}")
        raise KeyboardInterrupt


@contextmanager
def print_resume_hint(completed: str) -> Iterator[None]:
    """Print how to continue if Ctrl-C ends the run; ``last`` is what was finished."""
    try:
        yield
    except KeyboardInterrupt:
        hint = (
            f"add --resume to continue after {completed}"
            if completed
            else "nothing is kept"
        )
        print(f"\nstopped; {hint}")
        raise


@contextmanager
def raise_keyboard_interrupt(is_interrupted: Callable[[], bool]) -> Iterator[None]:
    """Ctrl-C raises, as elsewhere, also where a trainer exits after it."""
    try:
        yield
    except SystemExit as end:
        if is_interrupted():
            raise KeyboardInterrupt from end
        raise
