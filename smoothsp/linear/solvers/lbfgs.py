"""L-BFGS for linear models with a smooth loss, by scipy."""

import math
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from smoothsp.linear import _checks
from smoothsp.linear.problems import ChainProblem
from smoothsp.linear.solvers import _plan
from smoothsp.linear.solvers._course import Course, Limits
from smoothsp.linear.solvers._surface import Loss, Surface
from smoothsp.linear.solvers.solution import Callback, Solution


class LBFGS:
    r"""L-BFGS on the whole objective, for the likelihood or a smoothed hinge.

    .. math:: P(w) = \tfrac{\lambda}{2} \|w\|^2 + \tfrac{1}{n} \sum_i f_i(w),
        \qquad P(w) - \min P \le \frac{\|\nabla P(w)\|^2}{2 \lambda}

    Parameters
    ----------
    lam
        lambda, positive.
    loss
        ``"likelihood"``, ``"hinge-entropy"`` or ``"hinge-l2"``, as in :class:`SGD`.
    mu, k
        Strength of the smoothing, and over how many labellings.
    memory
        Pairs of differences that are kept.
    tol
        The gap at which to stop: the bound above.
    max_passes, max_seconds, callback, progress
        As in :class:`SGD`. A pass is one evaluation of objective and gradient.

    Notes
    -----
    ``primal``, ``dual`` and ``gap`` are those of the objective as it is minimised,
    smoothing included. The weights of features that do not occur stay 0 and take no
    memory in the pairs. A run cannot be resumed bit for bit; ``start`` begins at the
    weights of an earlier one.

    Source: Byrd et al., "A limited memory algorithm for bound constrained
    optimization" (1995), as implemented by ``scipy.optimize.minimize``.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import ChainProblem
    >>> problem = ChainProblem(np.eye(3), [0, 1, 1], lengths=[2, 1])
    >>> LBFGS(lam=0.1, tol=1e-8).solve(problem).converged
    True
    """

    def __init__(
        self,
        *,
        lam: float,
        loss: str = "likelihood",
        mu: float = 1.0,
        k: int = 5,
        memory: int = 6,
        tol: float = 1e-4,
        max_passes: int = 500,
        max_seconds: float | None = None,
        callback: Callback | None = None,
        progress: bool = False,
    ) -> None:
        self.lam = _checks.positive("lam", lam)
        _checks.choice("loss", loss, ("likelihood", "hinge-entropy", "hinge-l2"))
        self.loss = Loss(loss, _checks.positive("mu", mu), k)
        self.memory = _checks.count("memory", memory)
        self._limits = Limits(
            tol=_checks.at_least_zero("tol", tol),
            max_passes=_checks.count("max_passes", max_passes),
            max_seconds=_plan.seconds_of(max_seconds),
            callback=callback,
            progress=_checks.flag("progress", progress),
            name="L-BFGS",
        )

    def solve(self, problem: ChainProblem, start: Solution | None = None) -> Solution:
        """Minimise until the gap is small enough, or the budget is used up.

        Parameters
        ----------
        problem
            What to solve.
        start
            A solution to start from.

        Returns
        -------
        Solution
            Of all points that were tried the one of the smallest objective. Ctrl-C does
            not raise: it gives what is reached. ``state`` is empty.
        """
        surface = Surface(problem, self.loss, self.lam)
        course = Course(self._limits)
        search = _Search(surface, course)
        if start is not None:
            search.best = surface.fits(start.w)[search.used]
        found = None
        with course.running(), suppress(_Done):
            found = minimize(
                search.objective,
                search.best,
                jac=True,
                method="L-BFGS-B",
                callback=search.told,
                options={
                    "maxcor": self.memory,
                    # this solver's own criteria come first
                    "maxiter": 10 * self._limits.max_passes,
                    "maxfun": 10 * self._limits.max_passes,
                    "ftol": 0.0,
                    "gtol": 0.0,
                },
            )
        if found is not None and not course.over:
            course.over = True
            course.status = "no step lowers the objective any more: it is rounding"
        return search.solution()


class _Done(Exception):
    """A budget is used up, or the gap is small enough."""


class _Search:
    """Objective and gradient on the weights that matter, and the best so far."""

    def __init__(self, surface: Surface, course: Course) -> None:
        self.surface, self.course = surface, course
        problem = surface.problem
        S, P = problem.num_labels, problem.row_width
        occur = np.zeros(problem.num_rows, dtype=bool)
        occur[problem.indices] = True
        occur[problem.num_features :] = True
        columns = np.arange(S)
        rows = np.flatnonzero(occur) * P
        self.used = (rows[:, None] + columns).ravel()
        self.flat, self.G = surface.room(), surface.room()
        self.best = self.flat[self.used]
        self.least = (math.inf, math.inf)

    def objective(self, x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Value and gradient at x."""
        surface = self.surface
        self.flat[self.used] = x
        mean, _, _ = surface.gradient(self.flat, surface.loss.mu, self.G)
        slope = self.G[self.used] + surface.lam * x
        value = mean + surface.lam / 2 * float(np.dot(x, x))
        gap = float(np.dot(slope, slope)) / (2 * surface.lam)
        self.course.passes += 1
        enough = gap <= self.course.limits.tol
        if value < self.least[0] or enough:
            self.best, self.least = x.copy(), (value, gap)
        if enough or self.course.spent():
            self.told(x)
        return value, slope

    def told(self, _: NDArray[np.float64]) -> None:
        """Record the best point so far after a step."""
        value, gap = self.least
        course = self.course
        course.certify(course.passes * self.surface.n, value, value - gap, gap)
        course.show(gap)
        if course.over:
            raise _Done

    def solution(self) -> Solution:
        """The best point."""
        course, surface = self.course, self.surface
        calls = course.passes * surface.n
        if not course.history or course.history[-1].passes != course.passes:
            value, gap = self.least
            course.interrupted, kept = True, course.interrupted
            course.certify(calls, value, value - gap, gap)
            course.interrupted = kept
        self.flat[self.used] = self.best
        return course.solution(surface.problem.plain_weights(self.flat), calls, {})
