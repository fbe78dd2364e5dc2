"""The loop that solvers of the primal share: pass after pass, within a budget."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.budget import Course, Limits
from smoothsp.linear.engines.solution import Solution, weights_of
from smoothsp.linear.engines.which_objective import AnySurface

State = dict[str, NDArray[Any]]


class Stepper(Protocol):
    """What makes the passes."""

    @property
    def passes(self) -> int:
        """How many were made."""

    @property
    def calls(self) -> int:
        """Oracle calls in them."""

    def begin(self, w: NDArray[np.float64]) -> None:
        """Start from padded weights."""

    def advance(self) -> None:
        """Make one pass."""

    def weights(self) -> NDArray[np.float64]:
        """Padded weights to return."""

    def state(self) -> State:
        """All that changes."""

    def load(self, state: State) -> None:
        """Go on from a state."""


def run(
    stepper: Stepper,
    surface: AnySurface,
    limits: Limits,
    every: int,
    settings: str,
    start: Solution | NDArray[np.float64] | None,
    resume: State | None,
) -> Solution:
    """Passes until the budget is used up or the gap, where there is one, is small."""
    course = Course(limits, surface.problem)
    looked = 0
    if resume is not None:
        if start is not None:
            raise ValueError("start: expected None when there is a state to resume")
        course.load(resume, settings)
        stepper.load(resume)
        looked = int(resume["looked"])
    elif start is not None:
        stepper.begin(surface.fits(weights_of(start)))

    def state() -> State:
        course.passes = stepper.passes
        extra = {"looked": np.array(looked)}
        return {**stepper.state(), **course.state(settings), **extra}

    def certify() -> None:
        nonlocal looked
        found = surface.certificate(stepper.weights())
        looked += surface.n
        course.certify(stepper.calls + looked, found, lambda: saved or state())
        course.show()

    saved: State = {}
    with course.running():
        while not course.over:
            if not course.spent():
                course.moves()
                stepper.advance()
                course.passes = stepper.passes
                course.show()
            due = course.passes % every == 0
            if not due and course.spent():
                # one certificate more than a run that goes on would take
                saved = state()
            if due or course.spent():
                certify()
    if course.interrupted and not course.certified:
        course.passes = stepper.passes
        saved = state()
        certify()
    weights = surface.plain(stepper.weights())
    return course.solution(weights, stepper.calls + looked, saved or state())
