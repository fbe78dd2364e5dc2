"""Batch Frank-Wolfe for structured SVMs: all dual variables in one step."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines import run_monitor
from smoothsp.linear.engines.run_monitor import RunMonitor, Tolerance, check_limits
from smoothsp.linear.engines.runner import Solver, run_solver
from smoothsp.linear.engines.solution import Callback, Solution, State
from smoothsp.linear.inputs import checks
from smoothsp.linear.problems import LinearProblem
from smoothsp.linear.problems.callback import (
    BatchLinearProblem,
    as_batch_linear_problem,
)

Floats = NDArray[np.float64]


class BatchFrankWolfe:
    r"""Frank-Wolfe on the dual of a structured SVM, all examples at once.

    .. math:: g = \lambda \langle w - w_s, w \rangle - \ell + \ell_s, \qquad
        w \leftarrow w + \gamma (w_s - w), \quad
        \gamma = \min\left(1, \frac{g}{\lambda \|w - w_s\|^2}\right)

    where ``w_s`` and ``l_s`` belong to the worst outputs at w. Each pass certifies the
    gap. The method needs many more passes than :class:`BCFW`, and no memory for dual
    variables.

    Parameters
    ----------
    lam
        lambda, positive.
    tol
        The duality gap at which to stop.
    max_passes, max_seconds
        Budgets; a pass is one oracle call for each example.
    callback
        Called with each :class:`~smoothsp.linear.Certificate`; a true return value
        stops the run.
    progress
        Show a progress bar with the gap. None: on a terminal, if the run takes longer
        than three seconds.
    bounds
        ``(lower, upper)`` of the weights, as for :class:`BCFW`.

    Notes
    -----
    Source: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
    Structured SVMs", algorithm 8.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import MulticlassProblem
    >>> problem = MulticlassProblem(np.eye(2), [0, 1])
    >>> solution = BatchFrankWolfe(lam=1.0, tol=1e-2).solve(problem)
    >>> solution.converged
    True
    """

    def __init__(
        self,
        *,
        lam: float,
        tol: float | Tolerance = 1e-3,
        max_passes: int = 1000,
        max_seconds: float | None = None,
        callback: Callback | None = None,
        progress: bool | None = None,
        bounds: tuple[Any, Any] | None = None,
    ) -> None:
        self.lam = checks.as_positive("lam", lam)
        self._bounds = run_monitor.check_bounds(bounds)
        self._limits = check_limits(
            "BatchFrankWolfe", tol, max_passes, max_seconds, callback, progress
        )

    def solve(
        self,
        problem: LinearProblem,
        resume: State | None = None,
    ) -> Solution:
        """Train until the gap is small enough, or the budget is used up.

        Parameters
        ----------
        problem
            Problem to solve.
        resume
            The ``state`` of a solution of this solver; the run continues bit for bit.
        """
        batch_problem = as_batch_linear_problem(problem)
        if hasattr(batch_problem, "require_range"):
            batch_problem.require_range(self.lam)
        bounds = run_monitor.expand_bounds(self._bounds, problem.num_weights)
        frank_wolfe_run = _FrankWolfeRun(batch_problem, bounds, self.lam)
        monitor = RunMonitor(self._limits, problem)
        return run_solver(
            frank_wolfe_run,
            monitor,
            f"batch Frank-Wolfe lam={self.lam!r}",
            resume=resume,
        )


class _FrankWolfeRun(Solver):
    """Run of batch Frank-Wolfe: n oracle calls give a certificate and the next step."""

    passes, recertify_on_resume = 0, True

    def __init__(
        self, problem: BatchLinearProblem, bounds: tuple[Floats, Floats], lam: float
    ) -> None:
        self.problem, self.bounds, self.lam = problem, bounds, lam
        self.n = len(problem)
        # unclipped weights and expected cost, replaced by one assignment
        self.dual_state: tuple[Floats, float] = (np.zeros(len(bounds[0])), 0.0)
        # Frank-Wolfe vertex at these weights, its expected cost, and the gap
        self.vertex: tuple[Floats, float, float] | None = None
        self.certificate = math.nan, math.nan, math.nan

    @property
    def calls(self) -> int:
        return self.passes * self.n

    def advance(self) -> None:
        if self.vertex is not None:
            self._step_to_vertex(*self.vertex)
        v, ell = self.dual_state
        w, lam = self.weights(), self.lam
        dual = self.bound()
        vertex_w, vertex_ell, hinge = self.problem.corners(w, 1 / (lam * self.n))
        norm, cross = float(np.dot(w, w)), float(np.dot(v, w))
        gap = lam * (cross - float(np.dot(vertex_w, w))) - ell + vertex_ell
        self.certificate = lam / 2 * norm + hinge, dual, gap
        self.vertex = vertex_w, vertex_ell, gap
        self.passes += 1

    def _step_to_vertex(self, vertex_w: Floats, vertex_ell: float, gap: float) -> None:
        v, ell = self.dual_state
        step = vertex_w - v
        curvature = self.lam * float(np.dot(step, step))
        # Line search for the minimum of a parabola: slope -gap, curvature lambda |w_s -
        # v|^2.
        gamma = min(max(gap / curvature, 0.0), 1.0) if curvature > 0 else 0.0
        self.dual_state = v + gamma * step, ell + gamma * (vertex_ell - ell)
        self.vertex = None

    def estimate(self) -> float:
        return self.certificate[2]

    def bound(self) -> float:
        (v, ell), w = self.dual_state, self.weights()
        # With bounds, the duals determine v and w = clip(v): f = lambda (<v, w> - |w|^2
        # / 2) - l of appendix H, which is lambda |w|^2 / 2 - l without bounds.
        return ell - self.lam * float(np.dot(v, w) - np.dot(w, w) / 2)

    def certify(self) -> tuple[float, float, float]:
        if self.vertex is None:
            # A budget or Ctrl-C ended the run before its first pass.
            self.advance()
        return self.certificate

    def weights(self) -> Floats:
        return np.clip(self.dual_state[0], *self.bounds)

    def state(self) -> State:
        v, ell = self.dual_state
        unclipped = {} if np.isinf(self.bounds).all() else {"v": v.copy()}
        scalars = {"total_ell": np.array(ell), "lam": np.array(self.lam)}
        return {"w": self.weights(), **unclipped, **scalars}

    def load(self, state: State) -> None:
        unclipped = {"v": state.get("v", state["w"])}
        (v,) = checks.fill_from_state(unclipped, v=np.empty_like(self.dual_state[0]))
        self.dual_state = v, float(state["total_ell"])
        self.passes = int(state["passes"])
