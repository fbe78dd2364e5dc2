"""Weights at the values of a grid, each solved on its own or from the one above."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from smoothsp.linear.engines import settings
from smoothsp.linear.inputs import checks
from smoothsp.linear.problems import LinearProblem
from smoothsp.linear.solvers.path.dual_point import DualPoint, StepSettings
from smoothsp.linear.solvers.path.solution import GridSolution, PathPoint

# 2^15 down to 2^-15
GRID = tuple(2.0**k for k in range(15, -16, -1))
_STARTS = ("primal", "dual", "none")


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
    progress: bool = False,
) -> GridSolution:
    r"""Solve at several :math:`\lambda`, from the largest to the smallest.

    Parameters
    ----------
    problem
        What to solve.
    lams
        Positive, by default the 31 powers of two from :math:`2^{15}` to
        :math:`2^{-15}`.
    tol
        The duality gap at which to stop, positive.
    warm_start
        Where the next value begins: ``"primal"``, with the same weights;
        ``"dual"``, with the same dual variables; ``"none"``, from nothing.
    sampling, steps, cache, seed, refresh_every, bounds
        As in :class:`BCFW`.
    max_passes, max_seconds
        Budgets of all values together; a pass is n oracle calls.
    callback
        Called with a :class:`PathPoint` for each value; a true answer stops.
    progress
        Whether to show a bar with the gap.

    Returns
    -------
    GridSolution
        After Ctrl-C or a budget, with the values that were solved before.

    Notes
    -----
    With the same weights the gap at the next value is known without a call of the
    oracle; where it is small enough, there is nothing to do.

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
    checks.choice("warm_start", warm_start, _STARTS)
    checks.positive("tol", tol)
    checks.count("max_passes", max_passes)
    checks.flag("progress", progress)
    limit = settings.seconds_of(max_seconds)
    values = sorted((checks.positive("lams", lam) for lam in lams), reverse=True)
    if not values:
        raise ValueError("lams: expected at least one value, got none")
    step_settings = StepSettings(sampling, steps, cache, seed, refresh_every, bounds)
    start = time.perf_counter()
    points: list[PathPoint] = []
    dual_point, earlier, bar, status = (
        DualPoint(problem, values[0], step_settings),
        0,
        None,
        "",
    )

    def calls() -> int:
        return earlier + dual_point.oracle_calls

    def spent() -> bool:
        nonlocal status
        if calls() >= max_passes * dual_point.n:
            status = f"max_passes = {max_passes} passes are used up"
        elif time.perf_counter() - start >= limit:
            status = f"max_seconds = {max_seconds:.3g} seconds are used up"
        return bool(status)

    try:
        if progress:
            from tqdm import tqdm

            bar = tqdm(desc="grid", unit=" values", total=len(values))
        for lam in values:
            if points and warm_start == "none":
                earlier += dual_point.oracle_calls
                dual_point = DualPoint(problem, lam, step_settings)
            elif points and lam < dual_point.lam:
                _go_down(dual_point, lam, warm_start)
            if dual_point.to_gap(tol, True, spent) is None:
                break
            point = PathPoint(
                lam=lam,
                w=dual_point.engine.w,
                primal=dual_point.primal,
                gap=dual_point.gap,
                oracle_calls=calls(),
                seconds=time.perf_counter() - start,
            )
            points.append(point)
            if bar is not None:
                bar.set_postfix_str(f"lambda {lam:.3g}, gap {dual_point.gap:.2e}")
                bar.update()
            if callback is not None and callback(point):
                status = "stopped by the callback"
                break
    except KeyboardInterrupt:
        status = f"interrupted at lambda = {dual_point.lam:.4g}"
    finally:
        if bar is not None:
            bar.close()
    return GridSolution(
        points=points,
        complete=len(points) == len(values),
        oracle_calls=calls(),
        seconds=time.perf_counter() - start,
        status=status or "all values are solved",
    )


def _go_down(dual_point: DualPoint, lam: float, warm_start: str) -> None:
    rho = lam / dual_point.lam
    if warm_start == "primal":
        delta = dual_point.engine.hinges / dual_point.n - dual_point.engine.estimates
        dual_point.mix_with_gold(rho, np.asarray(delta))
    else:
        dual_point.scale_weights(rho)
        dual_point.measure()
