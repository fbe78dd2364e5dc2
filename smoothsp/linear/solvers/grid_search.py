"""Grid search over lambda, with or without warm starts."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from smoothsp._kernels.compilation.interrupts import defer_sigint
from smoothsp.linear.inputs import arrays, checks, states
from smoothsp.linear.problems import LinearProblem
from smoothsp.linear.solvers.path.dual_point import DualPoint, State, StepSettings
from smoothsp.linear.solvers.path.points import PointLimits, PointRun
from smoothsp.linear.solvers.path.solution import GridSolution, PathPoint

# 2^15 down to 2^-15
GRID = tuple(2.0**k for k in range(15, -16, -1))
_WARM_STARTS = ("primal", "dual", "none")


def grid_search(
    problem: LinearProblem,
    lams: Sequence[float] = GRID,
    *,
    tol: float = 0.1,
    warm_start: str = "primal",
    sampling: str = "gap",
    steps: str = "fw",
    cache: bool = False,
    seed: int = 0,
    refresh_every: int = 10,
    bounds: tuple[Any, Any] | None = None,
    max_passes: int = 200_000,
    max_seconds: float | None = None,
    callback: Callable[[PathPoint], Any] | None = None,
    progress: bool | None = None,
    resume: State | None = None,
) -> GridSolution:
    r"""Solve at several :math:`\lambda`, from the largest to the smallest.

    Parameters
    ----------
    problem
        Problem to solve.
    lams
        Positive, by default the 31 powers of two from :math:`2^{15}` to
        :math:`2^{-15}`.
    tol
        The duality gap at which to stop, positive.
    warm_start
        Start at the next value: ``"primal"``, the same weights; ``"dual"``, the same
        dual variables; or ``"none"``.
    sampling, steps, cache, seed, refresh_every, bounds
        As in :class:`BCFW`.
    max_passes, max_seconds
        Budgets of all values together; a pass is n oracle calls.
    callback
        Called with a :class:`PathPoint` for each value, which has the ``state`` of the
        run; a true return value stops the run.
    progress
        Show a progress bar with the gap. None: on a terminal, if the run takes longer
        than three seconds.
    resume
        The ``state`` of a grid of the same parameters, budgets apart. The run continues
        bit for bit.

    Returns
    -------
    GridSolution
        After Ctrl-C or a budget, with the values that were solved before.

    Notes
    -----
    With the same weights the gap at the next value needs no oracle call. A value whose
    gap is small enough is solved already.

    Source: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
    Structured SVMs", section 5.2.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import MulticlassProblem
    >>> grid = grid_search(MulticlassProblem(np.eye(3), [0, 1, 2]), [1.0, 0.1])
    >>> [point.lam for point in grid.points], grid.points[1].gap <= 0.1
    ([1.0, 0.1], True)
    """
    checks.require_choice("warm_start", warm_start, _WARM_STARTS)
    checks.as_positive("tol", tol)
    if not isinstance(lams, Iterable) or isinstance(lams, str):
        raise TypeError(
            "lams: expected a sequence of positive numbers, got"
            f" {checks.short_repr(lams)}"
        )
    # Proposition 1 needs a falling lambda.
    values = sorted((checks.as_positive("lams", lam) for lam in lams), reverse=True)
    if not values:
        raise ValueError("lams: expected at least one value, got none")
    limits = PointLimits(max_passes, max_seconds, callback, progress)
    step_settings = StepSettings(sampling, steps, cache, seed, refresh_every, bounds)
    run = _GridRun(problem, values, tol, warm_start, step_settings, limits)
    if resume is not None:
        with states.open_state(resume) as opened:
            run.load(opened)
    run.run_loop(tol, len(values))
    return GridSolution(
        points=run.points,
        complete=len(run.points) == len(values),
        oracle_calls=run.calls,
        seconds=run.seconds,
        status=run.status,
        state=states.add_checksums(run.state()),
    )


class _GridRun(PointRun):
    name, unit = "grid", " values"

    def __init__(
        self,
        problem: Any,
        values: list[float],
        tol: float,
        warm_start: str,
        step_settings: StepSettings,
        limits: PointLimits,
    ) -> None:
        checksum = arrays.checksum(np.array(values))
        settings = (
            f"grid of {len(values)} values ({checksum}) tol={tol!r}"
            f" warm_start={warm_start} {step_settings}"
        )
        super().__init__(problem, limits, settings)
        self.values, self.warm_start = values, warm_start
        self.step_settings = step_settings
        self.dual_point = DualPoint(problem, values[0], step_settings)
        # index of the lambda of the dual point
        self.index = 0

    def _move_to_next(self) -> bool:
        """Move the dual point to the next value of lambda."""
        if self.index == len(self.points):
            return True
        with defer_sigint():
            self.index = len(self.points)
            lam = self.values[self.index]
            if self.warm_start == "none":
                self.previous_oracle_calls += self.dual_point.oracle_calls
                self.dual_point = DualPoint(self.problem, lam, self.step_settings)
            elif lam < self.dual_point.lam:
                _decrease_lambda(self.dual_point, lam, self.warm_start)
        return True

    def _accept_point(self) -> PathPoint:
        dual_point = self.dual_point
        point = PathPoint(
            lam=self.values[self.index],
            w=dual_point.engine.w,
            primal=dual_point.primal,
            gap=dual_point.gap,
            oracle_calls=self.calls,
            seconds=self.seconds,
        )
        self.points.append(point)
        self._update_status()
        return point

    def _update_status(self) -> None:
        if len(self.points) == len(self.values):
            self.status = "all values are solved"

    def state(self) -> State:
        return {**super().state(), "place": np.array(self.index)}

    def load(self, state: State) -> None:
        super().load(state)
        self.index = int(state["place"])
        self._update_status()


def _decrease_lambda(dual_point: DualPoint, lam: float, warm_start: str) -> None:
    rho = lam / dual_point.lam
    if warm_start == "primal":
        gap_slopes = (
            dual_point.engine.hinges / dual_point.n - dual_point.engine.gap_estimates
        )
        dual_point.shrink_duals(rho, np.asarray(gap_slopes))
    else:
        dual_point.scale_weights(rho)
        dual_point.compute_certificate()
