"""Pragam: primal-dual gap minimisation by the excessive gap technique."""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.run_monitor import RunMonitor, Tolerance, check_limits
from smoothsp.linear.engines.runner import Solver, run_solver
from smoothsp.linear.engines.solution import Callback, Solution, State
from smoothsp.linear.inputs import checks
from smoothsp.linear.problems.binary import BinaryProblem

Floats = NDArray[np.float64]

# Adaptive L: factor after a failed trial, divisor at the start of a step.
_L_INCREASE, _L_DECREASE = 2.0, 1.5
_RELATIVE_ROUNDING = 1e-12
# Smallest L times the largest bound: below it rounding exceeds the bounds.
_MIN_L_FACTOR = 1e-6


class Pragam:
    r"""Primal-adjoint gap minimisation, for the hinge of two classes.

    .. math:: P(w) = \tfrac{\lambda}{2} \|w\|^2 + R(w), \qquad
        D(\alpha) = \sum_i \alpha_i - \tfrac{1}{2 \lambda} \|K \alpha\|^2

    Each step keeps :math:`P_\mu(w_k) \le D(\alpha_k)` for a smoothing mu that falls as
    :math:`4 L / ((k + 1) (k + 2))`. The gap is then at most mu times half the squared
    diameter of the dual set, after :math:`O(R / \sqrt{\lambda \epsilon})` passes.

    Parameters
    ----------
    lam
        lambda, positive.
    lipschitz
        L, the Lipschitz constant of the gradient of D. ``"fixed"``:
        :math:`1.05 \|K\|^2 / \lambda` by power iteration. ``"adaptive"``: searched at
        each step for the smallest value that keeps the gap excessive; a trial costs two
        products. Or a number.
    tol
        The gap at which to stop, >= 0.
    certify_every
        Passes from one certificate to the next, which costs a product with X.
    max_passes, max_seconds, callback, progress
        As in :class:`BCFW`. A pass is two products with X.

    Notes
    -----
    The bias is the problem's: ``BinaryProblem(X, y, bias=True)``; dual variables are
    then projected on a box cut by one equation, in O(n). Primal and dual are those of
    ``w``, not the best so far.

    Source: Saha, Zhang and Vishwanathan, "Lower Bounds for BMRM and Faster Rates for
    Training SVMs", algorithm 1 and equations 23 to 26. The solver starts at 0: from
    other weights the gap would not be excessive.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import BinaryProblem
    >>> problem = BinaryProblem(np.eye(4), [1, 1, -1, -1], bias=True)
    >>> Pragam(lam=0.1, tol=1e-6).solve(problem).converged
    True
    """

    def __init__(
        self,
        *,
        lam: float,
        lipschitz: Literal["fixed", "adaptive"] | float = "fixed",
        tol: float | Tolerance = 1e-4,
        certify_every: int = 10,
        max_passes: int = 10_000,
        max_seconds: float | None = None,
        callback: Callback | None = None,
        progress: bool | None = None,
    ) -> None:
        self.lam = checks.as_positive("lam", lam)
        if isinstance(lipschitz, str):
            checks.require_choice("lipschitz", lipschitz, ("fixed", "adaptive"))
        else:
            lipschitz = checks.as_positive("lipschitz", lipschitz)
        self.lipschitz = lipschitz
        self.certify_every = checks.as_positive_int("certify_every", certify_every)
        self._limits = check_limits(
            "Pragam", tol, max_passes, max_seconds, callback, progress
        )

    def solve(self, problem: BinaryProblem, resume: State | None = None) -> Solution:
        """Minimise until the gap is small enough, or the budget is used up.

        Parameters
        ----------
        problem
            Problem to solve.
        resume
            The ``state`` of a solution of this solver; the run continues bit for bit.

        Returns
        -------
        Solution
            Its ``state`` has the dual variables, ``alpha``. Ctrl-C does not raise; it
            returns the current weights. There is no warm start: the first step must be
            taken from 0.
        """
        if not isinstance(problem, BinaryProblem):
            raise TypeError(
                "problem: expected a BinaryProblem, got"
                f" {type(problem).__name__}; use BMRM for other problems"
            )
        pragam_run = _PragamRun(problem, self.lam, self.lipschitz, self.certify_every)
        settings = f"Pragam lam={self.lam!r} lipschitz={self.lipschitz!r}"
        return run_solver(
            pragam_run, RunMonitor(self._limits, problem), settings, resume=resume
        )


class _Iterate(NamedTuple):
    """Iterate: weights and their scores, dual variables, mu and L.

    ``next_mix`` is the mixed dual point of the next step, if computed already.
    """

    w: Floats
    scores: Floats
    alpha: Floats
    mu: float
    L: float
    k: int
    calls: int
    next_mix: tuple[Floats, Floats] | None = None


def _tau(k: int) -> float:
    """Step weight tau_k = 2 / (k + 3) with fixed L.

    The product of 1 - tau_k gives mu_k = 4 L / ((k + 1) (k + 2)).
    """
    return 2 / (k + 3)


class _PragamRun(Solver):
    certify_on_interrupt = True
    # oracle calls for certificates
    certificate_oracle_calls = 0

    def __init__(
        self, problem: BinaryProblem, lam: float, lipschitz: Any, certify_every: int
    ) -> None:
        self.problem, self.lam, self.certify_every = problem, lam, certify_every
        self.lipschitz = lipschitz
        self.adaptive = lipschitz == "adaptive"
        self.min_L = _MIN_L_FACTOR / float(problem.bounds.max())
        # |K|^2 is at most the sum of squared norms: no larger L is needed.
        self.max_L = max(float(problem.squares.sum()) / lam, self.min_L)
        self.iterate: _Iterate | None = None

    @property
    def passes(self) -> int:
        return 0 if self.iterate is None else self.iterate.k + 1

    @property
    def calls(self) -> int:
        return self.certificate_oracle_calls + (
            0 if self.iterate is None else self.iterate.calls
        )

    def advance(self) -> None:
        if self.iterate is None:
            next_iterate = self._first_iterate()
        elif self.adaptive:
            next_iterate = self._adaptive_step(self.iterate)
        else:
            iterate = self.iterate
            next_iterate = self._make_step(iterate, _tau(iterate.k), iterate.L)
        # One assignment, which Ctrl-C cannot split.
        self.iterate = next_iterate

    def _first_iterate(self) -> _Iterate:
        problem, lam = self.problem, self.lam
        n, zero_w = len(problem), np.zeros(problem.num_weights)
        zero_scores = np.zeros(n)
        if not self.adaptive:
            L = self.lipschitz
            if L == "fixed":
                L = self._largest_curvature()
            # Algorithm 1 from alpha_{-1} = 0, the prox centre: mu_0 = 2 L, and alpha_0
            # is the projected gradient step. From other points the gap may not be
            # excessive.
            alpha = problem.project(np.full(n, 1 / L))
            return _Iterate(zero_w, zero_scores, alpha, 2 * L, L, 0, n)
        L, calls = max(float(problem.squares.max()) / lam, self.min_L), 0
        while True:
            alpha = problem.project(np.full(n, 1 / L))
            # The projection and the test cost n calls each.
            calls += 2 * n
            iterate = _Iterate(zero_w, zero_scores, alpha, L, L, 0, calls)
            if self._gap_is_excessive(iterate) or self.max_L <= L:
                return iterate
            L = min(_L_INCREASE * L, self.max_L)

    def _largest_curvature(self) -> float:
        estimate = 1.05 * squared_spectral_norm(self.problem) / self.lam
        return max(min(estimate, self.max_L), self.min_L)

    def _smoothed_duals(self, iterate: _Iterate) -> Floats:
        """Dual variables that attain the smoothed risk at w."""
        # The invariant P_mu(w) <= D(alpha), tested up to rounding.
        margin_deficits = 1 - self.problem.y * iterate.scores
        return self.problem.project(margin_deficits / iterate.mu)

    def _make_step(self, iterate: _Iterate, tau: float, L: float) -> _Iterate:
        next_mix = iterate.next_mix or self.problem.mix(
            iterate.alpha, iterate.scores, iterate.mu, tau
        )
        # beta = (1 - tau) alpha + tau alpha_mu(w), and w = w(beta): equation 24.
        beta, w = next_mix[0], next_mix[1] / self.lam
        mu, k = (1 - tau) * iterate.mu, iterate.k + 1
        next_mu_tau = None if self.adaptive else (mu, _tau(k))
        # Scores are linear in w: no product with X is needed.
        alpha, scores, following_mix = self.problem.climb(
            beta, w, iterate.scores, tau, L, next_mu_tau
        )
        mean = (1 - tau) * iterate.w + tau * w
        # Two projections; one computed in advance counts in its own step.
        calls = iterate.calls + 2 * len(self.problem)
        return _Iterate(mean, scores, alpha, mu, L, k, calls, following_mix)

    def _adaptive_step(self, iterate: _Iterate) -> _Iterate:
        L = max(iterate.L / _L_DECREASE, self.min_L)
        while True:
            iterate = iterate._replace(calls=iterate.calls + len(self.problem))
            ratio = iterate.mu / L
            # Root of tau^2 / (1 - tau) = mu / L, the largest step for which the proof
            # keeps the gap excessive.
            tau = 2 / (1 + math.sqrt(1 + 4 / ratio))
            candidate = self._make_step(iterate, tau, L)
            iterate = iterate._replace(calls=candidate.calls)
            if self._gap_is_excessive(candidate) or self.max_L <= L:
                return candidate
            L = min(_L_INCREASE * L, self.max_L)

    def _gap_is_excessive(self, iterate: _Iterate) -> bool:
        margin_deficits = 1 - self.problem.y * iterate.scores
        smoothed = self._smoothed_duals(iterate)
        risk = float(smoothed @ margin_deficits) - iterate.mu / 2 * float(
            smoothed @ smoothed
        )
        primal = self.lam / 2 * float(iterate.w @ iterate.w) + risk
        dual = self._dual_objective(iterate.alpha)
        return primal <= dual + _RELATIVE_ROUNDING * max(abs(primal), abs(dual))

    def _dual_objective(self, alpha: Floats) -> float:
        p = self.problem.combine(alpha)
        return float(alpha.sum()) - float(p @ p) / (2 * self.lam)

    def due(self) -> bool:
        return self.passes % self.certify_every == 0

    def certify(self) -> tuple[float, float, float]:
        if self.iterate is None:
            # A budget or Ctrl-C ended the run before its first pass.
            self.advance()
        iterate = self.iterate
        assert iterate is not None
        self.certificate_oracle_calls += len(self.problem)
        risk = self.problem.risk_of_scores(iterate.scores)[0]
        primal = self.lam / 2 * float(iterate.w @ iterate.w) + risk
        dual = self._dual_objective(iterate.alpha)
        return primal, dual, max(primal - dual, 0.0)

    def weights(self) -> Floats:
        if self.iterate is None:
            return np.zeros(self.problem.num_weights)
        return self.iterate.w.copy()

    def state(self) -> State:
        arrays: State = {"calls": np.array(self.calls)}
        if self.iterate is not None:
            iterate = self.iterate
            arrays |= {"w": iterate.w.copy(), "scores": iterate.scores.copy()}
            arrays |= {"alpha": iterate.alpha.copy(), "k": np.array(iterate.k)}
            arrays |= {"mu": np.array(iterate.mu), "L": np.array(iterate.L)}
        return arrays

    def load(self, state: State) -> None:
        if "k" not in state:
            return
        scores, alpha = np.empty((2, len(self.problem)))
        w = np.empty(self.problem.num_weights)
        checks.fill_from_state(state, w=w, scores=scores, alpha=alpha)
        numbers = float(state["mu"]), float(state["L"]), int(state["k"])
        self.iterate = _Iterate(w, scores, alpha, *numbers, int(state["calls"]))


def squared_spectral_norm(problem: BinaryProblem) -> float:
    r""":math:`\|K\|^2`, from below, by power iteration to a thousandth.

    Notes
    -----
    Starts at fixed random numbers; each round costs two products.
    """
    alpha = np.random.default_rng(0).normal(size=len(problem))
    estimate = 0.0
    for _ in range(100):
        norm = float(np.linalg.norm(alpha))
        if norm == 0:
            return 0.0
        alpha = problem.y * problem.scores(problem.combine(alpha / norm))
        previous, estimate = estimate, float(np.linalg.norm(alpha))
        if estimate - previous <= 1e-3 * estimate:
            break
    return estimate
