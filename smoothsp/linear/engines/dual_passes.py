"""Passes of dual solvers that step on one example at a time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines import run_monitor
from smoothsp.linear.engines.run_monitor import RunMonitor, Tolerance
from smoothsp.linear.engines.runner import Solver, run_block_pass
from smoothsp.linear.engines.solution import State

# Draws by gap end when the estimated gaps sum to this share of the goal.
STOP_SAMPLING_FRACTION = 0.8
# Certificates between two computations of w from the dual variables.
REBUILD_EVERY = 10


class DualPasses(Solver):
    """Passes of single steps, and the exact gap every few of them.

    Parameters
    ----------
    solver
        Has ``lam``, ``sampling``, ``seed``, ``tol`` and ``refresh_every``.
    engine
        Dual variables and weights, as ``runner.Engine`` has them.
    budget
        Budget of the run.
    """

    passes = 0

    def __init__(self, solver: Any, engine: Any, budget: RunMonitor) -> None:
        self.solver, self.engine, self.budget = solver, engine, budget
        self.compiled = self.certify_on_interrupt = engine.compiled
        self.rng = np.random.Generator(np.random.PCG64(solver.seed))
        self.since_refresh = 0
        self.relative = isinstance(solver.tol, Tolerance)

    @property
    def stop_draws_at(self) -> float:
        """The sum of estimated gaps at which draws by gap end."""
        return STOP_SAMPLING_FRACTION * self.budget.goal

    @property
    def certify_at(self) -> float:
        """The sum of estimated gaps at which a certificate is due."""
        return self.stop_draws_at

    @property
    def calls(self) -> int:
        """Oracle calls so far, those of certificates included."""
        return int(self.engine.oracle_calls)

    def advance(self) -> None:
        """Make one pass."""
        run_block_pass(self.engine, self.rng, self.solver.sampling, self.stop_draws_at)
        self.passes += 1
        self.since_refresh += 1

    def estimate(self) -> float:
        """Sum of the gaps at the last visits."""
        return float(self.engine.gap_estimates.sum())

    def due(self) -> bool:
        """Whether it is time for a certificate."""
        late = self.since_refresh >= self.solver.refresh_every
        # a relative goal is known from the first certificate on
        unknown = self.relative and not self.budget.history
        return late or unknown or self.estimate() <= self.certify_at

    def certify(self) -> tuple[float, float, float]:
        """Primal, dual and gap at the weights."""
        if self.engine.num_certificates % REBUILD_EVERY == REBUILD_EVERY - 1:
            self.engine.rebuild_weights()
        primal, dual, gap = self.engine.compute_certificate()
        self.since_refresh = 0
        return primal, dual, gap

    def weights(self) -> NDArray[np.float64]:
        """Weights, a copy."""
        w: NDArray[np.float64] = self.engine.w
        return w

    def state(self) -> State:
        """All that changes, as arrays."""
        return {
            **self.engine.state(),
            "stream": run_monitor.save_rng(self.rng),
            "since_refresh": np.array(self.since_refresh),
            "lam": np.array(self.solver.lam),
        }

    def load(self, state: State) -> None:
        """Go on from a state."""
        self.engine.load(state)
        self.rng = run_monitor.load_rng(state["stream"])
        self.since_refresh = int(state["since_refresh"])
        self.passes = int(state["passes"])
