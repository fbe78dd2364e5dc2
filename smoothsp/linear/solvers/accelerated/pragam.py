"""Excessive gaps: primal and dual variables that certify each other."""

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

# of an adaptive constant: after a trial that failed, and before the next step
_UP, _DOWN = 2.0, 1.5
_ROUNDING = 1e-12
# the least L, times the largest dual variable: with less, rounding hides the box
_LEAST = 1e-6


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
        L, the Lipschitz constant of the gradient of D. ``"fixed"``: by power iteration,
        :math:`1.05 \|K\|^2 / \lambda`. ``"adaptive"``: the smallest that keeps the gap
        excessive, found anew at each step; a trial costs two products. Or a number.
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
        steps = _Steps(problem, self.lam, self.lipschitz, self.certify_every)
        settings = f"Pragam lam={self.lam!r} lipschitz={self.lipschitz!r}"
        return run_solver(
            steps, RunMonitor(self._limits, problem), settings, resume=resume
        )


class _Reached(NamedTuple):
    """Weights and their scores, dual variables, mu and L.

    ``ahead`` is what the next step begins with, if that is known.
    """

    w: Floats
    scores: Floats
    alpha: Floats
    mu: float
    L: float
    k: int
    calls: int
    ahead: tuple[Floats, Floats] | None = None


def _weight(k: int) -> float:
    """Tau of step k where L is fixed."""
    return 2 / (k + 3)


class _Steps(Solver):
    certify_on_interrupt = True
    # oracle calls for certificates
    looked = 0

    def __init__(
        self, problem: BinaryProblem, lam: float, lipschitz: Any, every: int
    ) -> None:
        self.problem, self.lam, self.every = problem, lam, every
        self.lipschitz = lipschitz
        self.adaptive = lipschitz == "adaptive"
        self.least = _LEAST / float(problem.bounds.max())
        # a sample alone has no more curvature than all of them, nor all than their sum
        self.most = max(float(problem.squares.sum()) / lam, self.least)
        self.at: _Reached | None = None

    @property
    def passes(self) -> int:
        return 0 if self.at is None else self.at.k + 1

    @property
    def calls(self) -> int:
        return self.looked + (0 if self.at is None else self.at.calls)

    def advance(self) -> None:
        if self.at is None:
            following = self._first()
        elif self.adaptive:
            following = self._adapted(self.at)
        else:
            at = self.at
            following = self._step(at, _weight(at.k), at.L)
        # one assignment, which Ctrl-C does not take apart
        self.at = following

    def _first(self) -> _Reached:
        problem, lam = self.problem, self.lam
        n, zero = len(problem), np.zeros(problem.num_weights)
        nothing = np.zeros(n)
        if not self.adaptive:
            L = self.lipschitz
            if L == "fixed":
                L = self._largest_curvature()
            alpha = problem.project(np.full(n, 1 / L))
            return _Reached(zero, nothing, alpha, 2 * L, L, 0, n)
        L, calls = max(float(problem.squares.max()) / lam, self.least), 0
        while True:
            alpha = problem.project(np.full(n, 1 / L))
            # of the projection, and of the test
            calls += 2 * n
            at = _Reached(zero, nothing, alpha, L, L, 0, calls)
            if self._excessive(at) or self.most <= L:
                return at
            L = min(_UP * L, self.most)

    def _largest_curvature(self) -> float:
        found = 1.05 * squared_spectral_norm(self.problem) / self.lam
        return max(min(found, self.most), self.least)

    def _smoothed(self, at: _Reached) -> Floats:
        """The dual variables of the smoothed objective at w."""
        short = 1 - self.problem.y * at.scores
        return self.problem.project(short / at.mu)

    def _step(self, at: _Reached, tau: float, L: float) -> _Reached:
        ahead = at.ahead or self.problem.mix(at.alpha, at.scores, at.mu, tau)
        beta, w = ahead[0], ahead[1] / self.lam
        mu, k = (1 - tau) * at.mu, at.k + 1
        following = None if self.adaptive else (mu, _weight(k))
        # scores of the mean by linearity: no product
        alpha, scores, ahead_of_next = self.problem.climb(
            beta, w, at.scores, tau, L, following
        )
        mean = (1 - tau) * at.w + tau * w
        # two projections; one ahead of its step counts in that
        calls = at.calls + 2 * len(self.problem)
        return _Reached(mean, scores, alpha, mu, L, k, calls, ahead_of_next)

    def _adapted(self, at: _Reached) -> _Reached:
        L = max(at.L / _DOWN, self.least)
        while True:
            at = at._replace(calls=at.calls + len(self.problem))
            ratio = at.mu / L
            # tau^2 / (1 - tau) = mu / L
            tau = 2 / (1 + math.sqrt(1 + 4 / ratio))
            following = self._step(at, tau, L)
            at = at._replace(calls=following.calls)
            if self._excessive(following) or self.most <= L:
                return following
            L = min(_UP * L, self.most)

    def _excessive(self, at: _Reached) -> bool:
        short = 1 - self.problem.y * at.scores
        smoothed = self._smoothed(at)
        risk = float(smoothed @ short) - at.mu / 2 * float(smoothed @ smoothed)
        primal = self.lam / 2 * float(at.w @ at.w) + risk
        dual = self._dual(at.alpha)
        return primal <= dual + _ROUNDING * max(abs(primal), abs(dual))

    def _dual(self, alpha: Floats) -> float:
        p = self.problem.combine(alpha)
        return float(alpha.sum()) - float(p @ p) / (2 * self.lam)

    def due(self) -> bool:
        return self.passes % self.every == 0

    def certify(self) -> tuple[float, float, float]:
        if self.at is None:
            # there was no time for a pass
            self.advance()
        at = self.at
        assert at is not None
        self.looked += len(self.problem)
        risk = self.problem.risk_of_scores(at.scores)[0]
        primal = self.lam / 2 * float(at.w @ at.w) + risk
        dual = self._dual(at.alpha)
        return primal, dual, max(primal - dual, 0.0)

    def weights(self) -> Floats:
        if self.at is None:
            return np.zeros(self.problem.num_weights)
        return self.at.w.copy()

    def state(self) -> State:
        found: State = {"calls": np.array(self.calls)}
        if self.at is not None:
            at = self.at
            found |= {"w": at.w.copy(), "scores": at.scores.copy()}
            found |= {"alpha": at.alpha.copy(), "k": np.array(at.k)}
            found |= {"mu": np.array(at.mu), "L": np.array(at.L)}
        return found

    def load(self, state: State) -> None:
        if "k" not in state:
            return
        scores, alpha = np.empty((2, len(self.problem)))
        w = np.empty(self.problem.num_weights)
        checks.fill_from_state(state, w=w, scores=scores, alpha=alpha)
        numbers = float(state["mu"]), float(state["L"]), int(state["k"])
        self.at = _Reached(w, scores, alpha, *numbers, int(state["calls"]))


def squared_spectral_norm(problem: BinaryProblem) -> float:
    r""":math:`\|K\|^2`, from below, by power iteration to a thousandth.

    Notes
    -----
    Starts at fixed random numbers; each round costs two products.
    """
    alpha = np.random.default_rng(0).normal(size=len(problem))
    found = 0.0
    for _ in range(100):
        size = float(np.linalg.norm(alpha))
        if size == 0:
            return 0.0
        alpha = problem.y * problem.scores(problem.combine(alpha / size))
        before, found = found, float(np.linalg.norm(alpha))
        if found - before <= 1e-3 * found:
            break
    return found
