r"""Regularisation path: certified weights for every lambda.

Breakpoints are solved in order of decreasing lambda. The gaps of two neighbouring
breakpoints bound the gaps between them. Below the last breakpoint, its dual point is
mixed with the gold outputs, whose dual value is 0. With gap g and mean hinge H, its
weights have the gap ``g + (1 - rho) (H - g)`` at ``rho lambda``. They are therefore
within eps of the minimum for every smaller lambda if H is at most eps.
"""

from collections.abc import Callable
from typing import Any

from smoothsp.linear.problems import LinearProblem
from smoothsp.linear.solvers.path.dual_point import (
    State,
    StepSettings,
    check_cone_bounds,
)
from smoothsp.linear.solvers.path.points import PointLimits
from smoothsp.linear.solvers.path.run import PathRun, PathSettings
from smoothsp.linear.solvers.path.solution import PathPoint, PathSolution


class RegularisationPath:
    r"""Weights for every :math:`\lambda`, at most eps above the minimum.

    The path begins at a lambda above which a single dual point suffices, and lambda
    decreases. At each breakpoint block-coordinate Frank-Wolfe reduces the gap to
    ``kappa eps``. For fixed weights the objective is linear in lambda, and the dual
    optimum is concave. The gaps of two breakpoints therefore bound all gaps between
    them. The next breakpoint is about as far as this bound allows.

    The path ends where the mean hinge is at most eps: such weights are within eps of
    the minimum for every smaller lambda. On contradictory data the mean hinge stays
    above eps. The path then ends where lambda has no further effect
    (``stop_when_flat``).

    Parameters
    ----------
    eps
        Largest distance of the objective from its minimum, positive.
    kappa
        Ratio of the gap at breakpoints to eps, between 0 and 1. A larger kappa gives
        more breakpoints with less work each.
    smallest
        Smallest lambda of the path.
    stop_when_flat
        If True, stop at a breakpoint ``PathSolution.flat`` whose minimum is proved to
        be at most eps below the minimum at ten times its lambda. The rule applies once
        lambda is so small that examples without common features would all be fitted.
        A minimum that falls again at smaller lambda is missed; to continue, call
        ``solve(problem, resume=path.state)`` with False.
    sampling, steps, cache, seed, refresh_every
        As in :class:`BCFW`.
    bounds
        As in :class:`BCFW`, but each bound is 0 or None: a weight is free, at least 0,
        at most 0, or 0.
    max_points, max_passes, max_seconds
        Budgets of breakpoints, of passes and of seconds. A pass is n oracle calls,
        including those for certificates.
    callback
        Called with a :class:`PathPoint` at each breakpoint; a true return value stops
        the run.
    progress
        Show a progress bar with lambda and the gap. None: on a terminal, if the run
        takes longer than three seconds.

    Notes
    -----
    Memory is O(breakpoints times weights).

    Source: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
    Structured SVMs", section 4, proposition 1, algorithms 6 and 7, appendix K for the
    path without certificates, and appendix H for bounds. In the paper the dual point of
    one breakpoint determines the next. The bound from two breakpoints is not in the
    paper.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import MulticlassProblem
    >>> problem = MulticlassProblem(np.eye(3), [0, 1, 2])
    >>> path = RegularisationPath(eps=0.05).solve(problem)
    >>> path.complete, path.evaluate(0.01).shape
    (True, (9,))
    """

    def __init__(
        self,
        *,
        eps: float = 0.1,
        kappa: float = 0.8,
        smallest: float = 1e-10,
        stop_when_flat: bool = True,
        sampling: str = "gap",
        steps: str = "fw",
        cache: bool = False,
        seed: int = 0,
        refresh_every: int = 10,
        bounds: tuple[Any, Any] | None = None,
        max_points: int = 10_000,
        max_passes: int = 200_000,
        max_seconds: float | None = None,
        callback: Callable[[PathPoint], Any] | None = None,
        progress: bool | None = None,
    ) -> None:
        self.settings = PathSettings(
            eps=eps,
            kappa=kappa,
            smallest=smallest,
            stop_when_flat=stop_when_flat,
            step_settings=StepSettings(
                sampling, steps, cache, seed, refresh_every, check_cone_bounds(bounds)
            ),
            max_points=max_points,
            limits=PointLimits(max_passes, max_seconds, callback, progress),
        )

    def solve(
        self, problem: LinearProblem, resume: State | None = None
    ) -> PathSolution:
        """Follow the path until it is complete, or a budget is used up.

        Parameters
        ----------
        problem
            Problem to solve. Gold outputs must have cost 0.
        resume
            The ``state`` of a path with equal parameters; the path is continued.

        Returns
        -------
        PathSolution
            After the first breakpoint, Ctrl-C does not raise but returns the path so
            far.
        """
        run = PathRun(self.settings, problem, resume)
        run.run_loop(self.settings.target_gap)
        return run.solution()
