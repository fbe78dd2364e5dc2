"""Block-coordinate Frank-Wolfe: gap sampling, pairwise and away steps, caching."""

from typing import Any

import numpy as np

from smoothsp.linear.engines import run_monitor
from smoothsp.linear.engines.dual_passes import DualPasses
from smoothsp.linear.engines.run_monitor import RunMonitor, Tolerance, check_limits
from smoothsp.linear.engines.runner import (
    Engine,
    make_engine,
    run_solver,
    warm_start_engine,
)
from smoothsp.linear.engines.solution import Callback, Solution, State
from smoothsp.linear.inputs import checks
from smoothsp.linear.problems import LinearProblem


class BCFW:
    r"""Block-coordinate Frank-Wolfe on the dual of a structured SVM.

    .. math:: \min_w \tfrac{\lambda}{2} \|w\|^2
        + \tfrac{1}{n} \sum_i \max_y L_i(y) - \langle w, \psi_i(y) \rangle

    A step calls the max oracle for the worst output of one example and moves its dual
    variable towards that output by exact line search. Every ``refresh_every`` passes
    the oracle is called for all examples to compute the exact duality gap.

    Parameters
    ----------
    lam
        lambda, positive. ``1 / (C n)`` for the form that multiplies the sum by C.
    sampling
        Choice of the next example: ``"gap"``, in proportion to the gap at its last
        oracle call; ``"uniform"``; or ``"permutation"``, a new random order each pass.
    steps
        ``"fw"``; ``"pairwise"``, which moves weight from the worst stored output to the
        new one; ``"away"``; ``"safeguarded"``, the better of pairwise and fw; or
        ``"best"``, the best of all three.
    cache
        If True, stored outputs may replace calls of the oracle.
    tol
        The duality gap at which to stop, at least 0; a
        :class:`~smoothsp.linear.solvers.Tolerance` is relative to the objective. All
        solvers take either.
    max_passes, max_seconds
        Budgets; a pass is n steps.
    seed
        Seed of the random numbers; equal seeds give equal results bit for bit.
    callback
        Called with each :class:`~smoothsp.linear.Certificate`; a true return value
        stops the run.
    progress
        Show a progress bar with the gap. None: on a terminal, if the run takes longer
        than three seconds.
    averaging
        If True, return the average of the iterates, iterate k with weight k, and its
        gap.
    bounds
        Bounds ``(lower, upper)`` of the weights: numbers, arrays ``(num_weights,)`` or
        None.
    refresh_every
        Passes between certificates.
    cache_size
        Number of outputs stored per example. Pairwise and away steps store all outputs
        with weight in addition.
    cache_local, cache_global
        Two thresholds for the gap of a cached output: ``cache_local`` times the gap of
        the example at its last oracle call, and ``cache_global`` times the last exact
        gap over n. An output that reaches both is used.
    warm_start
        From a solution at another lambda: ``"primal"`` keeps its weights where the new
        lambda is smaller, ``"dual"`` keeps its dual variables.
    batch_size
        Examples whose oracle is called at once, at equal weights, before their steps:
        of :class:`StructureProblem`, whose structures decode batches, and of
        :class:`CallbackProblem` with a ``batch_oracle``. Outputs are then computed at
        older weights, so more passes are needed. Not for chains in compiled loops.

    Notes
    -----
    Dual variables are stored as marginals of parts. Memory grows with positions times
    labels, and for chains with examples times squared labels.

    Source: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
    Structured SVMs", algorithms 1 to 5 and 9; Lacoste-Julien et al., "Block-Coordinate
    Frank-Wolfe Optimization for Structural SVMs", section 5, for averaging.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import MulticlassProblem
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    >>> solution = BCFW(lam=0.1, tol=1e-6).solve(MulticlassProblem(X, [0, 1, 1]))
    >>> solution.converged, solution.gap <= 1e-6
    (True, True)
    """

    def __init__(
        self,
        *,
        lam: float,
        sampling: str = "gap",
        steps: str = "fw",
        cache: bool = False,
        tol: float | Tolerance = 1e-3,
        max_passes: int = 1000,
        max_seconds: float | None = None,
        seed: int = 0,
        callback: Callback | None = None,
        progress: bool | None = None,
        averaging: bool = False,
        bounds: tuple[Any, Any] | None = None,
        refresh_every: int = 10,
        cache_size: int = 50,
        cache_local: float = 0.25,
        cache_global: float = 0.01,
        warm_start: str = "primal",
        batch_size: int = 1,
    ) -> None:
        checks.require_choice("sampling", sampling, run_monitor.SAMPLINGS)
        checks.require_choice("steps", steps, run_monitor.STEP_RULES)
        checks.require_choice("warm_start", warm_start, ("primal", "dual"))
        uses_cache = checks.as_bool("cache", cache)
        lower, upper = run_monitor.check_bounds(bounds)
        cache_size = checks.as_positive_int("cache_size", cache_size)
        self.engine_settings = run_monitor.EngineSettings(
            lam=checks.as_positive("lam", lam),
            step_rule=run_monitor.STEP_RULES.index(steps),
            uses_cache=uses_cache,
            cache_local=checks.as_positive("cache_local", cache_local),
            cache_global=checks.as_positive("cache_global", cache_global),
            # Without a cache, exactly the outputs with weight are stored.
            cache_size=cache_size if uses_cache else run_monitor.NO_CACHE_LIMIT,
            averages=checks.as_bool("averaging", averaging),
            lower=lower,
            upper=upper,
            batch_size=checks.as_positive_int("batch_size", batch_size),
        )
        self.lam, self.sampling, self.tol = self.engine_settings.lam, sampling, tol
        self.seed = run_monitor.check_seed(seed)
        self.refresh_every = checks.as_positive_int("refresh_every", refresh_every)
        self.warm_start = warm_start
        self._limits = check_limits(
            "BCFW", tol, max_passes, max_seconds, callback, progress
        )

    def solve(
        self,
        problem: LinearProblem,
        start: Solution | None = None,
        resume: State | None = None,
    ) -> Solution:
        """Train until the gap is small enough, or the budget is used up.

        Parameters
        ----------
        problem
            Problem to solve.
        start
            A solution of the same problem, at any lambda, to start from.
        resume
            The ``state`` of a solution of this solver, or that of a record in the
            callback: the run continues bit for bit. (After Ctrl-C within a Python
            oracle the current pass is not repeated.)

        Returns
        -------
        Solution
            Weights with their certificate. Ctrl-C does not raise; it returns the
            current weights, for chains with their certificate. A second Ctrl-C raises.
        """
        monitor = RunMonitor(self._limits, problem)
        bcfw_run = _BCFWRun(self, make_engine(problem, self.engine_settings), monitor)
        return run_solver(bcfw_run, monitor, self._settings(), start, resume)

    def _settings(self) -> str:
        settings = self.engine_settings
        return (
            f"lam={settings.lam!r} sampling={self.sampling} "
            f"steps={run_monitor.STEP_RULES[settings.step_rule]} "
            f"cache={settings.uses_cache} averaging={settings.averages}"
            f" seed={self.seed}"
            # States saved before batch_size existed have no such entry.
            + (f" batch={settings.batch_size}" if settings.batch_size > 1 else "")
        )


class _BCFWRun(DualPasses):
    """Run of BCFW; stores the estimated gap before each certificate."""

    def __init__(self, solver: BCFW, engine: Engine, monitor: RunMonitor) -> None:
        super().__init__(solver, engine, monitor)
        # Read by gap_diagnostics.staleness.
        self.estimated_gap = np.inf

    @property
    def stop_sampling_gap(self) -> float:
        # Gaps of the iterates do not bound the gap of their average.
        return (
            0.0 if self.solver.engine_settings.averages else super().stop_sampling_gap
        )

    def begin(self, start: Any) -> None:
        warm_start_engine(self.engine, start, self.solver.lam, self.solver.warm_start)

    def bound(self) -> float:
        return float(self.engine.dual)

    def certify(self) -> tuple[float, float, float]:
        # Sum of the estimates that gap sampling used, before the certificate replaces
        # them.
        self.estimated_gap = self.estimate()
        return super().certify()

    def state(self) -> State:
        return super().state() | {"estimated_gap": np.array(self.estimated_gap)}

    def load(self, state: State) -> None:
        super().load(state)
        self.estimated_gap = float(state["estimated_gap"])
