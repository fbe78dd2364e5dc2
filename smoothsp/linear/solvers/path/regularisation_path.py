r"""The regularisation path: weights for every lambda, each certified.

Breakpoints are solved one after the other, lambda falling, and each two neighbours
prove what lies between them. Below the last one the dual point is
mixed with the gold outputs, whose dual value is 0 at lambda = 0: with gap g and mean
hinge H its weights have at ``rho lambda`` the gap ``g + (1 - rho) (H - g)``, and are
good for every smaller lambda if H is at most eps.
"""

from collections.abc import Callable
from typing import Any

from smoothsp.linear.problems import LinearProblem
from smoothsp.linear.solvers.path.dual_point import State, StepSettings, cone
from smoothsp.linear.solvers.path.points import PointLimits
from smoothsp.linear.solvers.path.run import PathRun, Rules
from smoothsp.linear.solvers.path.solution import PathPoint, PathSolution


class RegularisationPath:
    r"""Weights for every :math:`\lambda`, at most eps above the minimum.

    The path begins with a lambda above which one dual point is good enough, found from
    the data, and goes down. At each breakpoint block-coordinate Frank-Wolfe brings the
    gap down to ``kappa eps``; for fixed weights the objective is linear in lambda and
    the best dual value is concave, so two gaps bound all between them, and the next
    breakpoint is about as far as that bound allows. It ends where the mean hinge is at
    most eps: such weights are good for every smaller lambda. Where data contradict each
    other, the mean hinge stays above eps; then it ends where lambda has no effect any
    more (``stop_when_flat``).

    Parameters
    ----------
    eps
        How far the objective may be from its minimum, positive.
    kappa
        The gap at breakpoints over eps, between 0 and 1: closer to 1, more breakpoints
        of less work.
    certified
        False: stop at a breakpoint where the estimated gaps are small enough, without
        a pass that computes them, and go on to where the same weights have an estimated
        gap of eps.
    smallest
        Where to stop at the latest.
    stop_when_flat
        Whether to stop at a breakpoint, ``PathSolution.flat``, where the minimum at ten
        times its lambda is proved to be at most eps above that at its lambda. Not
        before lambda is so small that each of the n examples would be fitted if it had
        no features in common with the others. A minimum that falls again below such a
        range, since small differences begin to count, is missed;
        ``solve(problem, resume=path.state)`` with False goes on.
    sampling, steps, cache, seed, refresh_every
        As in :class:`BCFW`.
    bounds
        As in :class:`BCFW`, where each bound is 0 or none: weights of either sign, at
        least 0, at most 0, or 0.
    max_points, max_passes, max_seconds
        Budgets: breakpoints; n oracle calls each, those for certificates included;
        seconds.
    callback
        Called with a :class:`PathPoint` at each breakpoint; a true return value stops
        the run.
    progress
        Whether to show a bar with lambda and the gap; None: on a terminal, if the run
        takes longer than three seconds.

    Notes
    -----
    Breakpoints keep their weights: memory grows with breakpoints times weights.

    Source: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
    Structured SVMs", section 4, proposition 1, algorithms 6 and 7, appendix K for the
    path without certificates, and appendix H for bounds. That two breakpoints prove
    what lies between them, where the paper goes on from one as far as its own dual
    point allows, is ours.

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
        certified: bool = True,
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
        self.rules = Rules(
            eps=eps,
            kappa=kappa,
            certified=certified,
            smallest=smallest,
            stop_when_flat=stop_when_flat,
            step_settings=StepSettings(
                sampling, steps, cache, seed, refresh_every, cone(bounds)
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
            What to solve; the gold outputs cost nothing.
        resume
            The ``state`` of a path of the same parameters: goes on from there.

        Returns
        -------
        PathSolution
            Ctrl-C does not raise once there is a breakpoint: it gives what is reached.
        """
        run = PathRun(self.rules, problem, resume)
        run.follow(self.rules.goal, self.rules.certified)
        return run.solution()
