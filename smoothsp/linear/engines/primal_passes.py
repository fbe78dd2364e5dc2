"""Run of a primal solver: passes, and the objective every few passes."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.objective_factory import AnyObjective
from smoothsp.linear.engines.run_monitor import RunLimits, RunMonitor
from smoothsp.linear.engines.runner import Solver, run_solver
from smoothsp.linear.engines.solution import Bounds, Solution, State


class PrimalStepper(Protocol):
    """Interface of primal methods that make passes."""

    @property
    def passes(self) -> int:
        """Number of passes made."""

    @property
    def calls(self) -> int:
        """Oracle calls of the passes."""

    def initialise(self, w: NDArray[np.float64]) -> None:
        """Set the iterate to padded weights."""

    def run_pass(self) -> None:
        """Make one pass."""

    def weights(self) -> NDArray[np.float64]:
        """Padded weights to return."""

    def state(self) -> State:
        """Arrays from which ``load`` continues the run."""

    def load(self, state: State) -> None:
        """Restore the arrays of ``state``."""


def run_primal_solver(
    stepper: PrimalStepper,
    objective: AnyObjective,
    limits: RunLimits,
    evaluate_every: int,
    settings: str,
    start: Solution | NDArray[np.float64] | None,
    resume: State | None,
    current_mu: Callable[[], float] | None = None,
) -> Solution:
    """Run a primal method and evaluate its objective every ``evaluate_every`` passes.

    ``current_mu`` returns the smoothing of the last pass if it decreases, else None.
    """
    if objective.compiled:
        objective.problem.require_all_pairs(limits.name)
    monitor = RunMonitor(limits, objective.problem)
    solver = _PrimalSolver(stepper, objective, evaluate_every, current_mu)
    return run_solver(solver, monitor, settings, start, resume)


def compute_certificate(
    objective: AnyObjective, flat: NDArray[np.float64], mu: float, mu_decreases: bool
) -> tuple[Bounds, int]:
    r"""Compute objective, lower bound and gap; return them and the oracle calls.

    The regulariser makes the objective lambda-strongly convex, so that
    :math:`P - \min P \le \|\nabla P\|^2 / (2 \lambda)`. Subgradients of the unsmoothed
    hinge do not vanish at the minimum, so that it has no bound. The smoothed hinge
    exceeds the hinge by at most :math:`\mu D`. With ``mu_decreases`` the bound is that
    of the smoothed objective minus :math:`\mu D`, a lower bound of the hinge objective.
    """
    lam, loss, n = objective.lam, objective.loss, objective.n
    regulariser = lam / 2 * float(np.dot(flat, flat))
    if loss.name != "likelihood" and (loss.name == "hinge" or not mu):
        return Bounds(regulariser + float(objective.losses(flat, 0.0).mean())), n
    G = objective.zero_buffer()
    smoothed = regulariser + objective.gradient(flat, mu, G)[0]
    # Gradient of the regularised objective, in place of that of the loss.
    G += lam * flat
    gap = float(np.dot(G, G)) / (2 * lam)
    if loss.name == "likelihood":
        return Bounds(smoothed, smoothed - gap, gap), n
    primal = regulariser + float(objective.losses(flat, 0.0).mean())
    if not mu_decreases:
        return Bounds(primal, smoothed - gap, gap, smoothed), 2 * n
    # Python oracles support only l2 smoothing, whose diameter is 1/2.
    D = 0.5
    if hasattr(objective.problem, "diameter"):
        smoothing = "l2" if loss.name == "hinge-l2" else "entropy"
        D = objective.problem.diameter(smoothing)
    lower_bound = smoothed - gap - mu * D
    return Bounds(primal, lower_bound, max(primal - lower_bound, 0.0)), 2 * n


class _PrimalSolver(Solver):
    certify_on_interrupt = True

    def __init__(
        self,
        stepper: PrimalStepper,
        objective: AnyObjective,
        evaluate_every: int,
        current_mu: Callable[[], float] | None,
    ) -> None:
        self.stepper, self.objective, self.evaluate_every = (
            stepper,
            objective,
            evaluate_every,
        )
        self.current_mu = current_mu
        # oracle calls of certificates
        self.certificate_oracle_calls = 0

    @property
    def passes(self) -> int:
        return self.stepper.passes

    @property
    def calls(self) -> int:
        return self.stepper.calls + self.certificate_oracle_calls

    def begin(self, start: Any) -> None:
        self.stepper.initialise(self.objective.as_start_weights(start))

    def advance(self) -> None:
        self.stepper.run_pass()

    def due(self) -> bool:
        return self.passes % self.evaluate_every == 0

    def certify(self) -> Bounds:
        objective, mu_decreases = self.objective, self.current_mu is not None
        mu = objective.loss.mu if self.current_mu is None else self.current_mu()
        bounds, calls = compute_certificate(
            objective, self.stepper.weights(), mu, mu_decreases
        )
        self.certificate_oracle_calls += calls
        return bounds

    def weights(self) -> NDArray[np.float64]:
        return self.objective.unpad(self.stepper.weights())

    def state(self) -> State:
        return {
            **self.stepper.state(),
            "looked": np.array(self.certificate_oracle_calls),
        }

    def load(self, state: State) -> None:
        self.stepper.load(state)
        self.certificate_oracle_calls = int(state["looked"])
