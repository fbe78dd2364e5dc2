"""The loop that solvers of the primal share: pass after pass, within a budget."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.budget import Budget, Limits
from smoothsp.linear.engines.solution import Solution, weights_of
from smoothsp.linear.engines.which_objective import AnyObjective

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
    objective: AnyObjective,
    limits: Limits,
    every: int,
    settings: str,
    start: Solution | NDArray[np.float64] | None,
    resume: State | None,
) -> Solution:
    """Passes until the budget is used up or the gap, where there is one, is small."""
    budget = Budget(limits, objective.problem)
    looked = 0
    if resume is not None:
        if start is not None:
            raise ValueError("start: expected None when there is a state to resume")
        budget.load(resume, settings)
        stepper.load(resume)
        looked = int(resume["looked"])
    elif start is not None:
        stepper.begin(objective.fits(weights_of(start)))

    def state() -> State:
        budget.passes = stepper.passes
        extra = {"looked": np.array(looked)}
        return {**stepper.state(), **budget.state(settings), **extra}

    def certify() -> None:
        nonlocal looked
        found = objective.certificate(stepper.weights())
        looked += objective.n
        budget.certify(stepper.calls + looked, found, lambda: saved or state())
        budget.show()

    saved: State = {}
    with budget.running():
        while not budget.over:
            if not budget.spent():
                budget.moves()
                stepper.advance()
                budget.passes = stepper.passes
                budget.show()
            due = budget.passes % every == 0
            if not due and budget.spent():
                # an uninterrupted run would not certify here: saved before, so that
                # resuming gives the same bits
                saved = state()
            if due or budget.spent():
                certify()
    if budget.interrupted and not budget.certified:
        budget.passes = stepper.passes
        saved = state()
        certify()
    weights = objective.plain(stepper.weights())
    return budget.solution(weights, stepper.calls + looked, saved or state())
