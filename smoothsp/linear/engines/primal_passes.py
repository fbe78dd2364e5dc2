"""Solvers of the primal that look at their objective every few passes."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.budget import Budget, Limits
from smoothsp.linear.engines.runner import Solver, run
from smoothsp.linear.engines.solution import Solution, State, weights_of
from smoothsp.linear.engines.which_objective import AnyObjective


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


def run_steps(
    stepper: Stepper,
    objective: AnyObjective,
    limits: Limits,
    every: int,
    settings: str,
    start: Solution | NDArray[np.float64] | None,
    resume: State | None,
) -> Solution:
    """Passes of ``stepper``, and the objective after ``every`` of them."""
    budget = Budget(limits, objective.problem)
    return run(_Looking(stepper, objective, every), budget, settings, start, resume)


class _Looking(Solver):
    certifies_late = True

    def __init__(self, stepper: Stepper, objective: AnyObjective, every: int) -> None:
        self.stepper, self.objective, self.every = stepper, objective, every
        # oracle calls for certificates
        self.looked = 0

    @property
    def passes(self) -> int:
        return self.stepper.passes

    @property
    def calls(self) -> int:
        return self.stepper.calls + self.looked

    def begin(self, start: Any) -> None:
        self.stepper.begin(self.objective.fits(weights_of(start)))

    def advance(self) -> None:
        self.stepper.advance()

    def due(self) -> bool:
        return self.passes % self.every == 0

    def certify(self) -> tuple[float, float, float]:
        found = self.objective.certificate(self.stepper.weights())
        self.looked += self.objective.n
        return found

    def weights(self) -> NDArray[np.float64]:
        return self.objective.plain(self.stepper.weights())

    def state(self) -> State:
        return {**self.stepper.state(), "looked": np.array(self.looked)}

    def load(self, state: State) -> None:
        self.stepper.load(state)
        self.looked = int(state["looked"])
