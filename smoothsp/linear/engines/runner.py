"""Main loop of solvers: passes, certificates, saved states and resumed runs.

A solver implements its steps and its certificate. ``run_solver`` calls them
alternately. ``RunMonitor`` holds the stopping rules and the callback, and handles
Ctrl-C.
"""

import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.compilation.interrupts import defer_sigint
from smoothsp.linear.engines.callback_dual import CallbackEngine
from smoothsp.linear.engines.compiled_dual import ChainEngine
from smoothsp.linear.engines.run_monitor import (
    EngineSettings,
    RunMonitor,
    Tolerance,
    check_limits,
    require_same_examples,
)
from smoothsp.linear.engines.solution import Callback, Solution, State
from smoothsp.linear.inputs import states
from smoothsp.linear.problems.callback import as_batch_linear_problem

# Key of a saved state: weights before a certificate that an uninterrupted run skips.
_PREVIOUS_W = "w_before"


class Solver(Protocol):
    """Interface of solvers for :func:`solve` and :func:`~smoothsp.linear.compare`.

    Inherit from it and implement ``passes``, ``calls``, ``advance``, ``certify`` and
    ``weights``. Runs that are resumed also need ``state`` and ``load``. Implement
    ``due`` if a certificate costs oracle calls: by default each pass ends with one.

    Attributes
    ----------
    passes
        Number of passes so far, those of earlier runs included.
    calls
        Oracle calls so far, as in :class:`~smoothsp.linear.Certificate`.
    parameters
        Parameters as text. A state is resumed only if they are equal.
    compiled
        Whether a pass is one compiled loop. Ctrl-C then takes effect at its end.
    certify_on_interrupt
        Whether a certificate is computed after Ctrl-C.
    recertify_on_resume
        Whether a resumed run repeats the last pass and its certificate. ``state`` then
        returns the state one pass earlier.

    Notes
    -----
    A run is

        while not over:
            advance()                           unless the budget is used up
            if due() or the budget is used up:
                certify()                       recorded, then the callback

    To resume bit for bit, ``state`` and ``load`` must include everything that the steps
    depend on: iterates, counters, random generators. ``state`` may be read between any
    two passes, within callbacks, and after Ctrl-C in the middle of ``advance``. A pass
    should therefore replace its results at its end, by a single assignment.

    Examples
    --------
    Gradient descent on ``|w - 1|^2 / 2``, whose minimum is 0:

    >>> import numpy as np
    >>> from smoothsp.linear.solvers import Solver, solve
    >>> class Descent(Solver):
    ...     passes = calls = 0
    ...     w = np.zeros(2)
    ...     def advance(self):
    ...         self.passes, self.w = self.passes + 1, self.w - (self.w - 1) / 2
    ...     def certify(self):
    ...         primal = float(((self.w - 1) ** 2).sum()) / 2
    ...         return primal, 0.0, primal
    ...     def weights(self):
    ...         return self.w.copy()
    ...     def state(self):
    ...         return {"w": self.w.copy()}
    ...     def load(self, state):
    ...         self.passes, self.w = int(state["passes"]), state["w"].copy()
    >>> solve(Descent(), tol=1e-6).status
    'the gap is at most tol = 1e-06'
    """

    parameters: str = ""
    compiled: bool = False
    certify_on_interrupt: bool = False
    recertify_on_resume: bool = False

    if TYPE_CHECKING:

        @property
        def passes(self) -> int:
            """Number of passes made."""

        @property
        def calls(self) -> int:
            """Oracle calls so far, those for certificates included."""

    else:
        # Solvers define them as attributes or as properties.
        passes = calls = 0

    def begin(self, start: Any) -> None:
        """Start from weights, or from a solution."""
        raise TypeError(f"start: expected None, got {type(start).__name__}")

    def advance(self) -> str | None:
        """Make one pass; without one, return the reason why the run is over."""

    def due(self) -> bool:
        """Whether a certificate is due; by default after each pass."""
        return True

    def estimate(self) -> float:
        """Estimate of the gap for the progress bar; NaN if unknown."""
        return math.nan

    def bound(self) -> float:
        """A lower bound of the minimum that costs no oracle call; NaN if unknown."""
        return math.nan

    def certify(self) -> tuple[float, ...]:
        """Compute primal, dual and gap at ``weights``; NaN for unknown bounds.

        A fourth number is the smoothed objective, if dual and gap belong to it.
        """

    def weights(self) -> NDArray[np.float64]:
        """Copy of the weights ``(num_weights,)``."""

    def state(self) -> State:
        """Copies of all arrays that a pass changes; the weights ``w`` are added."""
        return {}

    def load(self, state: State) -> None:
        """Restore a state, which also contains ``passes`` and the weights ``w``."""
        raise ValueError(f"resume: expected None for {type(self).__name__}: no load()")


def solve(
    solver: Solver,
    problem: Any = None,
    *,
    tol: float | Tolerance = 1e-3,
    max_passes: int = 1000,
    max_seconds: float | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    start: Any = None,
    resume: State | None = None,
) -> Solution:
    """Run a solver until its gap is small enough, or a budget is used up.

    Parameters
    ----------
    solver
        Your solver; a new object for each run.
    problem
        Problem to solve, or None. A resumed state must belong to the same problem.
    tol, max_passes, max_seconds, callback, progress
        As in :class:`BCFW`.
    start
        Argument of ``solver.begin``, if not None.
    resume
        The ``state`` of a solution or of a certificate, for ``solver.load``.

    Returns
    -------
    Solution
        Ctrl-C does not raise; it returns the current weights.

    Examples
    --------
    See :class:`Solver`.
    """
    name = type(solver).__name__
    limits = check_limits(name, tol, max_passes, max_seconds, callback, progress)
    settings = f"{name} {solver.parameters}".strip()
    return run_solver(solver, RunMonitor(limits, problem), settings, start, resume)


def run_solver(
    solver: Solver,
    monitor: RunMonitor,
    settings: str,
    start: Any = None,
    resume: State | None = None,
) -> Solution:
    """Run passes until a stopping rule holds.

    Parameters
    ----------
    solver
        Solver; ``start`` and ``resume`` replace its current weights.
    monitor
        New monitor with the limits of the solver and the problem.
    settings
        Solver and parameters as text; a state of other settings raises an error.
    start
        Argument of ``solver.begin``, or None.
    resume
        State of an earlier run, or None.
    """
    if resume is not None:
        if start is not None:
            raise ValueError("start: expected None when there is a state to resume")
        with states.open_state(resume) as opened:
            monitor.load(opened, settings)
            start_w = opened.get(_PREVIOUS_W, opened["w"])
            solver.load({**opened, "w": start_w})
    elif start is not None:
        solver.begin(start)
    saved_state: State = {}

    def state() -> State:
        if saved_state:
            return saved_state
        monitor.passes = solver.passes
        certificate = solver.state()
        if "w" not in certificate:
            certificate["w"] = solver.weights()
        return {**monitor.state(settings, solver.recertify_on_resume), **certificate}

    def certify() -> None:
        certificate = solver.certify()
        if saved_state and not np.array_equal(saved_state["w"], w := solver.weights()):
            # certify() may change the weights: the state has both.
            saved_state.update({"w": w, _PREVIOUS_W: saved_state["w"]})
        monitor.record_certificate(solver.calls, certificate, state, solver.weights)

    with monitor.guard_run():
        while True:
            monitor.report_to_observer(solver.calls, solver.weights, solver.bound)
            if monitor.has_stopped:
                break
            if not monitor.is_exhausted():
                was_certified = monitor.is_certified
                monitor.invalidate_certificate()
                with defer_sigint(solver.compiled):
                    reason = solver.advance()
                    monitor.passes = solver.passes
                if reason is not None:
                    monitor.stop(reason, was_certified)
                    if was_certified:
                        break
                monitor.update_progress(solver.estimate())
            is_due = solver.due()
            if not (is_due or monitor.is_exhausted() or monitor.has_stopped):
                continue
            if not is_due:
                # An uninterrupted run would not certify here. The state is taken
                # before, so that a resumed run computes the same bits.
                saved_state = state()
            certify()
            monitor.update_progress(solver.estimate())
    if monitor.interrupted and not monitor.is_certified:
        saved_state = state()
        if solver.certify_on_interrupt:
            certify()
    return monitor.solution(solver.weights(), solver.calls, state())


class Steps(Protocol):
    """Interface of engines that make steps on single examples."""

    n: int

    @property
    def gap_estimates(self) -> NDArray[np.float64]:
        """Gaps of the examples at their last oracle calls."""

    def visit_in_order(self, order: NDArray[np.int64]) -> None:
        """Make one step for each example of ``order``."""

    def visit_by_gap(self, uniforms: NDArray[np.float64], gap_floor: float) -> int:
        """Sample examples by estimated gaps until these sum to ``gap_floor``.

        Returns the number of steps made.
        """


class Engine(Steps, Protocol):
    """Interface of dual engines: dual variables, weights, steps, certificates."""

    problem: Any
    num_certificates: int
    compiled: bool
    hinges: NDArray[np.float64]

    @property
    def oracle_calls(self) -> int:
        """Oracle calls so far, including certificates."""

    @property
    def dual(self) -> float:
        """Dual objective."""

    @property
    def w(self) -> NDArray[np.float64]:
        """Weights to return: with averaging, those of the average."""

    def compute_certificate(self) -> tuple[float, float, float]:
        """Compute primal, dual and the exact gap of each example."""

    def expected_costs_and_squared_norms(
        self,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Expected costs ``n ell_i`` and ``|psi_i|^2``, or lower bounds, ``(n,)``."""

    def rebuild_weights(self) -> None:
        """Recompute w from the dual variables."""

    def shrink_duals(self, rho: float) -> None:
        """``alpha <- rho alpha``, plus weight 1 - rho on the gold outputs."""

    def scale_weights(self, factor: float) -> None:
        """``w <- factor w``, with the same dual variables."""

    def load_duals(self, state: dict[str, NDArray[Any]]) -> None:
        """Set dual variables and weights to those of a state."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays from which ``load`` continues the run."""

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore the arrays of ``state``."""


def make_engine(problem: Any, settings: EngineSettings) -> Engine:
    """Return the compiled engine for chains, else the engine in numpy."""
    if hasattr(problem, "sequences"):
        if settings.batch_size > 1:
            raise ValueError(
                "batch_size: expected 1 for a problem of chains in compiled loops, got"
                f" {settings.batch_size}; StructureProblem and CallbackProblem take it"
            )
        problem.require_all_pairs("BCFW")
        problem.require_range(settings.lam)
        return ChainEngine(problem, settings)
    return CallbackEngine(as_batch_linear_problem(problem), settings)


def warm_start_engine(
    engine: Engine, start: Solution, lam: float, keep_fixed: str
) -> None:
    """Start the dual engine from a solution at another lambda.

    Notes
    -----
    Source: Osokin et al., "Minding the Gaps", proposition 1 and section 5.2.
    """
    if not isinstance(start, Solution) or "ell" not in start.state:
        raise TypeError(
            "start: expected a Solution of a solver with dual variables, got "
            f"{type(start).__name__}"
        )
    require_same_examples("start", engine.problem, start.state)
    engine.load_duals(start.state)
    rho = lam / float(start.state["lam"])
    # alpha proportional to lambda w: equal weights need alpha scaled by rho.
    if rho < 1 and keep_fixed == "primal":
        engine.shrink_duals(rho)
    elif rho != 1:
        # With larger lambda, shrinking would need weights of outputs above 1.
        # w_i <- (lambda_old / lambda_new) w_i for the same alpha.
        engine.scale_weights(1 / rho)


def run_block_pass(
    engine: Steps, rng: np.random.Generator, sampling: str, gap_floor: float
) -> None:
    """Make n steps of the dual engine, in the order of ``sampling``.

    Gap sampling ends early, when the estimated gaps sum to ``gap_floor``.
    """
    n = engine.n
    if sampling == "uniform":
        engine.visit_in_order(rng.integers(n, size=n))
    elif sampling == "permutation" or np.isinf(engine.gap_estimates).any():
        # Visit all examples once before sampling by gaps.
        engine.visit_in_order(rng.permutation(n))
    else:
        engine.visit_by_gap(rng.random(n), gap_floor)
