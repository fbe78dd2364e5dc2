"""Bundle methods for regularised risk minimisation: cutting planes of the risk."""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.run_monitor import RunMonitor, Tolerance, check_limits
from smoothsp.linear.engines.runner import Solver, run_solver
from smoothsp.linear.engines.solution import (
    Callback,
    Solution,
    State,
    check_start_weights,
)
from smoothsp.linear.inputs import checks
from smoothsp.linear.problems.callback import as_batch_linear_problem
from smoothsp.linear.solvers.cutting_planes.models import AllCuts, AveragedCut, Model

Floats = NDArray[np.float64]

# Rounds without a better bound or objective after which the run stops.
_MAX_IDLE_ROUNDS = 10
# Rounding error of a sum, relative to the magnitude of its terms.
_RELATIVE_ROUNDING = 16 * float(np.finfo(np.float64).eps)


class BMRM:
    r"""Cutting planes, which replace the risk by the maximum of its tangents so far.

    .. math:: w_t = \arg\min_w \tfrac{\lambda}{2} \|w\|^2
        + \max_{i \le t} \langle w, a_i \rangle + b_i

    for tangents :math:`\langle w, a_i \rangle + b_i` of the risk at :math:`w_{i-1}`.
    The minimum is a lower bound, so each round certifies a gap. On a structured hinge
    this is the one-slack structural SVM, and on the hinge of two classes SVM-perf.

    Parameters
    ----------
    lam
        lambda, positive.
    inner
        ``"qp"`` keeps all cuts and solves a quadratic programme of their number by
        warm-started active sets. ``"line-search"`` keeps one average of all cuts, which
        it moves towards the newest by exact line search. It takes O(features) time and
        memory, and many more rounds.
    drop_after
        With ``"qp"``: rounds without weight after which a cut is dropped; None keeps
        all. Time, memory and a saved state are O(cuts x features).
    tol
        The gap at which to stop, >= 0.
    certify_every
        Passes between certificates. They cost nothing: the next pass uses their
        tangent.
    max_passes, max_seconds, callback, progress
        As in :class:`BCFW`. A pass is one evaluation of the risk and a subgradient.

    Notes
    -----
    ``primal`` and ``w`` are the best so far, the start included, because the objective
    is not monotone. ``dual`` never falls. For a risk of at least 0 with subgradients no
    longer than G, the gap is at most epsilon after
    :math:`\log_2(\lambda P(0) / G^2) + 8 G^2 / (\lambda \epsilon) - 4` rounds.
    ``LowerBoundProblem`` takes :math:`1 / (2 \lambda \epsilon)`.

    Source: Teo, Vishwanathan, Smola and Le, "Bundle Methods for Regularized Risk
    Minimization", algorithms 1 to 3; Saha, Zhang and Vishwanathan, "Lower Bounds for
    BMRM and Faster Rates for Training SVMs", equations 3 to 13.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import BinaryProblem
    >>> problem = BinaryProblem(np.eye(4), [1, 1, -1, -1])
    >>> BMRM(lam=0.1, tol=1e-8).solve(problem).converged
    True
    """

    def __init__(
        self,
        *,
        lam: float,
        inner: Literal["qp", "line-search"] = "qp",
        drop_after: int | None = 50,
        tol: float | Tolerance = 1e-4,
        certify_every: int = 1,
        max_passes: int = 1000,
        max_seconds: float | None = None,
        callback: Callback | None = None,
        progress: bool | None = None,
    ) -> None:
        self.lam = checks.as_positive("lam", lam)
        checks.require_choice("inner", inner, ("qp", "line-search"))
        self.inner = inner
        if drop_after is not None:
            drop_after = checks.as_positive_int("drop_after", drop_after)
        self.drop_after = drop_after
        self.certify_every = checks.as_positive_int("certify_every", certify_every)
        self._limits = check_limits(
            "BMRM", tol, max_passes, max_seconds, callback, progress
        )

    def solve(
        self,
        problem: Any,
        start: Solution | NDArray[np.float64] | None = None,
        resume: State | None = None,
    ) -> Solution:
        """Minimise until the gap is small enough, or the budget is used up.

        Parameters
        ----------
        problem
            A ``BatchProblem``, with a method ``risk(w)``, or any ``LinearProblem``.
        start
            A solution, or weights, to take the first tangent at; by default 0.
        resume
            The ``state`` of a solution of this solver; the run continues bit for bit.

        Returns
        -------
        Solution
            The best weights so far. Ctrl-C does not raise; it returns the current
            weights.
        """
        cuts: Model = AveragedCut(self.lam)
        if self.inner == "qp":
            cuts = AllCuts(problem.num_weights, self.lam, self.drop_after)
        bmrm_run = _BMRMRun(problem, self.lam, cuts, self.certify_every)
        monitor = RunMonitor(self._limits, problem)
        settings = f"BMRM lam={self.lam!r} inner={self.inner}"
        return run_solver(bmrm_run, monitor, settings, start, resume)


class _BundleState(NamedTuple):
    """State of a run; replaced by one assignment, which Ctrl-C cannot split."""

    cuts: Model
    w: Floats
    # risk and its gradient at w, None before the evaluation
    value_and_gradient: tuple[float, Floats] | None
    best: float
    best_w: Floats
    dual: float
    passes: int
    calls: int
    # rounds without a better bound or objective
    num_idle_rounds: int


class _BMRMRun(Solver):
    certify_on_interrupt = True

    def __init__(
        self, problem: Any, lam: float, cuts: Model, certify_every: int
    ) -> None:
        self.problem, self.lam, self.certify_every = problem, lam, certify_every
        risk = getattr(problem, "risk", None)
        self.risk = risk or as_batch_linear_problem(problem).risk
        w = np.zeros(problem.num_weights)
        self.bundle_state = _BundleState(cuts, w, None, math.inf, w, -math.inf, 0, 0, 0)

    @property
    def passes(self) -> int:
        return self.bundle_state.passes

    @property
    def calls(self) -> int:
        return self.bundle_state.calls

    def begin(self, start: Any) -> None:
        """Start from weights."""
        w = check_start_weights(start, len(self.bundle_state.w))
        self.bundle_state = self.bundle_state._replace(w=w, best_w=w)

    def _evaluate(self) -> tuple[float, Floats]:
        bundle_state = self.bundle_state
        if bundle_state.value_and_gradient is not None:
            return bundle_state.value_and_gradient
        value, gradient = self.risk(bundle_state.w)
        value_and_gradient = value, np.ascontiguousarray(gradient, dtype=np.float64)
        best, best_w, num_idle_rounds = (
            bundle_state.best,
            bundle_state.best_w,
            bundle_state.num_idle_rounds,
        )
        objective = self.lam / 2 * float(bundle_state.w @ bundle_state.w) + value
        if objective < best:
            best, best_w, num_idle_rounds = objective, bundle_state.w, 0
        calls = bundle_state.calls + len(self.problem)
        self.bundle_state = _BundleState(
            bundle_state.cuts,
            bundle_state.w,
            value_and_gradient,
            best,
            best_w,
            bundle_state.dual,
            bundle_state.passes,
            calls,
            num_idle_rounds,
        )
        return value_and_gradient

    def advance(self) -> str | None:
        if self.bundle_state.num_idle_rounds >= _MAX_IDLE_ROUNDS:
            return "no tangent raises the lower bound by more than rounding error"
        value, gradient = self._evaluate()
        bundle_state, lam = self.bundle_state, self.lam
        inner_product = float(bundle_state.w @ gradient)
        # Lower the tangent by its rounding error: it must not exceed the risk.
        rounding = _RELATIVE_ROUNDING * (abs(value) + abs(inner_product))
        cuts = bundle_state.cuts.add(gradient, value - inner_product - rounding)
        p, offset, spread, length = cuts.average
        squared_norm = float(p @ p)
        # Dual value of the averaged cut: a lower bound at any feasible weights of the
        # cuts, so that the quadratic programme need not be solved exactly.
        bound = offset - squared_norm / (2 * lam)
        bound -= _RELATIVE_ROUNDING * (spread + length * math.sqrt(squared_norm) / lam)
        self.bundle_state = _BundleState(
            cuts,
            p / -lam,
            None,
            bundle_state.best,
            bundle_state.best_w,
            max(bundle_state.dual, bound),
            bundle_state.passes + 1,
            bundle_state.calls,
            0 if bound > bundle_state.dual else bundle_state.num_idle_rounds + 1,
        )
        return None

    def due(self) -> bool:
        return self.bundle_state.passes % self.certify_every == 0

    def bound(self) -> float:
        return self.bundle_state.dual

    def certify(self) -> tuple[float, float, float]:
        if not self.bundle_state.passes:
            # A budget or Ctrl-C ended the run before its first pass.
            self.advance()
        self._evaluate()
        best, dual = self.bundle_state.best, self.bundle_state.dual
        return best, dual, max(best - dual, 0.0)

    def weights(self) -> Floats:
        return self.bundle_state.best_w.copy()

    def state(self) -> State:
        bundle_state = self.bundle_state
        value, gradient = bundle_state.value_and_gradient or (math.nan, np.zeros(0))
        return {
            **bundle_state.cuts.state(),
            "point": bundle_state.w.copy(),
            "w": bundle_state.best_w.copy(),
            "numbers": np.array([bundle_state.best, bundle_state.dual, value]),
            "slope": gradient.copy(),
            "counts": np.array([bundle_state.calls, bundle_state.num_idle_rounds]),
        }

    def load(self, state: State) -> None:
        w, best_w = np.empty((2, len(self.bundle_state.w)))
        checks.fill_from_state(state, point=w, w=best_w)
        best, dual, value = (float(x) for x in state["numbers"])
        calls, num_idle_rounds = (int(x) for x in state["counts"])
        is_evaluated = not math.isnan(value)
        self.bundle_state = _BundleState(
            self.bundle_state.cuts.load(state),
            w,
            (value, state["slope"].copy()) if is_evaluated else None,
            best,
            best_w,
            dual,
            int(state["passes"]),
            calls,
            num_idle_rounds,
        )
