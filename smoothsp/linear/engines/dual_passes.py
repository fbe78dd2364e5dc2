"""Run of a dual solver: passes of block steps, exact gaps every few passes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines import run_monitor
from smoothsp.linear.engines.run_monitor import RunMonitor, Tolerance
from smoothsp.linear.engines.runner import Solver, run_block_pass
from smoothsp.linear.engines.solution import State

# Gap sampling ends a pass when the estimated gaps sum to this fraction of the gap at
# which the run stops.
STOP_SAMPLING_FRACTION = 0.8
# Certificates between two computations of w from the dual variables.
REBUILD_PERIOD = 10


class DualPasses(Solver):
    """Run of a dual solver: passes of block steps and certificates.

    Parameters
    ----------
    solver
        Solver with ``lam``, ``sampling``, ``seed``, ``tol`` and ``refresh_every``.
    engine
        Dual variables and weights, an ``Engine`` of ``runner``.
    monitor
        Monitor of the run.
    """

    passes = 0

    def __init__(self, solver: Any, engine: Any, monitor: RunMonitor) -> None:
        self.solver, self.engine, self.monitor = solver, engine, monitor
        self.compiled = self.certify_on_interrupt = engine.compiled
        self.rng = np.random.Generator(np.random.PCG64(solver.seed))
        self.passes_since_certificate = 0
        self.has_relative_tolerance = isinstance(solver.tol, Tolerance)

    @property
    def stop_sampling_gap(self) -> float:
        """Sum of estimated gaps at which gap sampling ends a pass."""
        return STOP_SAMPLING_FRACTION * self.monitor.gap_threshold

    @property
    def certify_gap(self) -> float:
        """Sum of estimated gaps at which a pass ends with a certificate."""
        return self.stop_sampling_gap

    @property
    def calls(self) -> int:
        """Oracle calls so far, including certificates."""
        return int(self.engine.oracle_calls)

    def advance(self) -> None:
        """Make one pass."""
        run_block_pass(
            self.engine, self.rng, self.solver.sampling, self.stop_sampling_gap
        )
        self.passes += 1
        self.passes_since_certificate += 1

    def estimate(self) -> float:
        """Sum of the gaps of examples at their last visits."""
        return float(self.engine.gap_estimates.sum())

    def due(self) -> bool:
        """Whether a certificate is due."""
        is_overdue = self.passes_since_certificate >= self.solver.refresh_every
        # A relative threshold needs a first certificate.
        is_threshold_unknown = self.has_relative_tolerance and not self.monitor.history
        return is_overdue or is_threshold_unknown or self.estimate() <= self.certify_gap

    def certify(self) -> tuple[float, float, float]:
        """Compute primal, dual and gap; recompute w every few certificates."""
        # Increments accumulate rounding errors in w.
        if self.engine.num_certificates % REBUILD_PERIOD == REBUILD_PERIOD - 1:
            self.engine.rebuild_weights()
        primal, dual, gap = self.engine.compute_certificate()
        self.passes_since_certificate = 0
        return primal, dual, gap

    def weights(self) -> NDArray[np.float64]:
        """Weights, a copy."""
        w: NDArray[np.float64] = self.engine.w
        return w

    def state(self) -> State:
        """Arrays from which ``load`` continues the run."""
        return {
            **self.engine.state(),
            "stream": run_monitor.save_rng(self.rng),
            "since_refresh": np.array(self.passes_since_certificate),
            "lam": np.array(self.solver.lam),
        }

    def load(self, state: State) -> None:
        """Restore the arrays of ``state``."""
        self.engine.load(state)
        self.rng = run_monitor.load_rng(state["stream"])
        self.passes_since_certificate = int(state["since_refresh"])
        self.passes = int(state["passes"])
