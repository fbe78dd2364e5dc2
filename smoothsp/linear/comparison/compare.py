"""Comparison of solvers at equal costs, by one objective."""

import importlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.comparison.fingerprint import describe_settings
from smoothsp.linear.comparison.objectives import (
    Objective,
    as_number,
    evaluate_objective,
    make_common_objective,
)
from smoothsp.linear.comparison.storage import Row, StoredRun
from smoothsp.linear.engines.evaluations import RunEvaluation, observe_runs
from smoothsp.linear.engines.run_monitor import check_seed, make_progress_bar
from smoothsp.linear.engines.runner import Solver, solve
from smoothsp.linear.engines.solution import Solution, State
from smoothsp.linear.inputs import checks
from smoothsp.optim import curves
from smoothsp.optim.curves import CurvePoint, Panel

Metric = Callable[[NDArray[np.float64]], float]
Unit = Literal["calls", "seconds", "passes"]
UNITS = ("calls", "seconds", "passes")
COSTS = ("passes", "oracle_calls", "calls", "seconds")
# Columns of each row, besides the metrics.
COLUMNS = ("solver", "seed", "look", *COSTS, "primal", "dual", "gap", "status")
AXES = {
    "calls": "oracle calls per example",
    "seconds": "seconds",
    "passes": "passes",
}


@dataclass(frozen=True, repr=False)
class Comparison:
    """Measurements of solvers at increasing costs.

    Parameters
    ----------
    rows
        One dict per run and cost. ``solver``, ``seed`` and ``look`` identify it.
        ``passes``, ``oracle_calls`` and ``seconds`` are totals of the run, and
        ``calls`` is oracle calls per example. ``primal`` is the objective computed by
        the problem, ``dual`` the best lower bound of this run so far, and ``gap`` their
        difference, NaN if unknown. Each metric has a value. ``status`` is the reason
        why the run ended, in its last row. A run that diverges ends with an infinite
        ``primal``.
    metrics
        Names of the metrics.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear import compare
    >>> from smoothsp.linear.problems import MulticlassProblem
    >>> from smoothsp.linear.solvers import BCFW
    >>> problem = MulticlassProblem(np.eye(3), [0, 1, 2])
    >>> race = compare({"BCFW": lambda seed: BCFW(lam=0.1)}, problem, looks=[1, 2])
    >>> race.rows[0]["oracle_calls"], race.rows[0]["calls"]
    (3, 1.0)
    """

    rows: list[Row]
    metrics: tuple[str, ...] = ()

    @property
    def lower_bound(self) -> float:
        """The largest ``dual`` of all runs; NaN if there is none."""
        return max((row["dual"] for row in self.rows if row["dual"] > -math.inf),
                   default=math.nan)  # fmt: skip

    def table(self) -> Any:
        """Return ``rows`` as a pandas DataFrame; as a list if pandas is missing."""
        try:
            pandas: Any = importlib.import_module("pandas")
        except ModuleNotFoundError:
            return self.rows
        return pandas.DataFrame(self.rows)

    def __str__(self) -> str:
        """Return the last row of each run as a text table."""
        last = {(row["solver"], row["seed"]): row for row in self.rows}
        names = ("solver", "seed", "calls", "seconds", "primal", "gap", *self.metrics)
        lines = [
            names,
            *([_format_cell(row[name]) for name in names] for row in last.values()),
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(w) if k else cell.ljust(w)
                      for k, (cell, w) in enumerate(zip(line, widths, strict=True)))
            for line in lines
        )  # fmt: skip

    def panels(
        self,
        x: Unit = "calls",
        lower_bound: float | None = None,
        title: str = "",
    ) -> list[Panel]:
        """Return panels of :func:`draw_panels`, from top to bottom.

        Duality gap, primal suboptimality and each metric against ``x``, without
        quantities that are never finite.
        """
        checks.require_choice("x", x, UNITS)
        bound = self.lower_bound if lower_bound is None else lower_bound
        label = "primal suboptimality"
        if math.isnan(bound):
            finite = [row["primal"] for row in self.rows if row["primal"] < math.inf]
            bound, label = min(finite, default=math.nan), "primal above the lowest"
        values_of: list[tuple[str, Callable[[Row], float]]] = [
            ("duality gap", lambda row: float(row["gap"])),
            (label, lambda row: float(row["primal"] - bound)),
            *((name, itemgetter(name)) for name in self.metrics),
        ]
        panels: list[Panel] = []
        for panel_index, (y, value_of) in enumerate(values_of):
            runs: dict[str, dict[int, list[CurvePoint]]] = {}
            for row in self.rows:
                run = runs.setdefault(row["solver"], {}).setdefault(row["seed"], [])
                # Values of a diverged run are shown as infinite.
                diverged = math.isinf(row["primal"])

                value = math.inf if diverged else value_of(row)
                run.append(CurvePoint(row["look"], row[x], value))
            lists = {
                solver: list(runs_by_seed.values())
                for solver, runs_by_seed in runs.items()
            }
            values = [
                at.y
                for runs_by_seed in lists.values()
                for run in runs_by_seed
                for at in run
            ]
            if any(map(math.isfinite, values)):
                heading = title if not panels else ""
                panels.append(Panel(AXES[x], y, lists, panel_index < 2, heading))
        return panels

    def draw(
        self, path: str | os.PathLike[str], lower_bound: float | None = None
    ) -> None:
        """Write a figure: gap, suboptimality and metrics against calls and seconds.

        Curves are medians over seeds, bands their range.

        Parameters
        ----------
        path
            Path of the figure, ending in ``.png``, ``.svg`` or ``.pdf``.
        lower_bound
            Lower bound of the minimum, for the suboptimality. Default: the largest
            ``dual``, or without duals the lowest objective.

        Raises
        ------
        ModuleNotFoundError
            Without matplotlib.
        """
        columns = [self.panels(x, lower_bound) for x in ("calls", "seconds")]
        curves.draw(path, list(zip(*columns, strict=True)))


def _format_cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def compare(
    solvers: Mapping[str, Callable[[int], Any]],
    problem: Any,
    *,
    looks: Sequence[float],
    unit: Unit = "calls",
    seeds: Sequence[int] = (0,),
    metrics: Mapping[str, Metric] | None = None,
    objective: Objective | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Run solvers with equal budgets and measure them at equal costs.

    The clock stops during a measurement.

    Parameters
    ----------
    solvers
        A function ``make(seed)`` for each name, which returns a new solver of
        :mod:`smoothsp.linear.solvers`, or your own object for this problem with the
        interface :class:`~smoothsp.linear.solvers.Solver`. Its ``max_passes`` and
        ``max_seconds`` are ignored. It stops at its ``tol``; with 0 it runs to the last
        cost in ``looks``.
    problem
        Problem to solve.
    looks
        Costs at which to measure, ascending. A measurement within a pass is made after
        the pass, and its row has the true costs. A pass that crosses several costs has
        one row, with the last of them.
    unit
        Unit of ``looks``: ``"calls"``, oracle calls per example; ``"seconds"``; or
        ``"passes"``. Each solver first makes one pass that is not counted, so that
        compilation is not measured.
    seeds
        Seeds of the runs of each solver, all different.
    metrics
        Functions of the weights that compute a number, such as ``{"test error": f}``.
        Names of other columns are reserved.
    objective
        Function of the weights that computes ``primal``, without duals. Default: the
        problem's hinge or likelihood with the terms of ``lam`` and ``l1``, equal for
        all solvers.
    out
        Folder in which finished runs are stored. Runs with equal settings are read, all
        other runs are computed; functions are compared by name. After Ctrl-C, which
        raises, the next call continues the interrupted run.
    progress
        Show a progress bar. None: on a terminal, if it takes longer than three seconds.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        If solvers have different objectives, or ``make`` returns one object twice. If
        ``looks`` does not ascend, seeds are equal, or names of metrics are reserved. If
        a file in ``out`` is damaged or was edited.
    TypeError
        If ``make`` does not return a solver, or a metric not a number.
    Exception
        Errors of a solver, ``make`` or a metric, with solver and seed appended to the
        message. Finished runs are in ``out``. A FloatingPointError, or any error at
        weights that are not finite, does not raise but ends the run as diverged.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear import compare
    >>> from smoothsp.linear.problems import MulticlassProblem
    >>> from smoothsp.linear.solvers import BCFW, SGD
    >>> problem = MulticlassProblem(np.eye(3), [0, 1, 2])
    >>> race = compare(
    ...     {
    ...         "BCFW": lambda seed: BCFW(lam=0.1, tol=0, seed=seed),
    ...         "SGD": lambda seed: SGD(lam=0.1, seed=seed),
    ...     },
    ...     problem,
    ...     looks=[1, 2, 4],
    ... )
    >>> [(row["solver"], row["look"], row["oracle_calls"]) for row in race.rows][:3]
    [('BCFW', 1.0, 3), ('BCFW', 2.0, 6), ('BCFW', 4.0, 12)]
    """
    metrics = _require_functions("metrics", metrics or {})
    for name in metrics:
        if name in COLUMNS:
            raise ValueError(
                f"metrics: expected names besides those of other columns, got {name!r};"
                " choose another"
            )
    solvers = _require_functions("solvers", solvers)
    looks = _require_increasing(looks)
    seeds = [check_seed(seed, "seeds") for seed in _as_list("seeds", seeds)]
    if len({*seeds}) < len(seeds):
        raise ValueError(f"seeds: expected different seeds, got {seeds}")
    checks.require_choice("unit", unit, UNITS)
    if not solvers or not seeds:
        raise ValueError(
            f"{'seeds' if solvers else 'solvers'}: expected at least one, got none"
        )
    cold_solvers = {name: _make_solver(solvers, name, seeds[0]) for name in solvers}
    first_solvers = {name: _make_solver(solvers, name, seeds[0]) for name in solvers}
    for name, solver in cold_solvers.items():
        if not hasattr(solver, "solve") and not hasattr(solver, "advance"):
            raise TypeError(
                f"solvers: expected make(seed) of {name!r} to return a solver, got"
                f" {type(solver).__name__}"
            )
        if first_solvers[name] is solver:
            raise ValueError(
                f"solvers: expected make(seed) of {name!r} to return a new solver each"
                f" time, got the same {type(solver).__name__} twice"
            )
    runs = _ComparisonRuns(problem, looks, unit, metrics, objective, cold_solvers)
    folder = None if out is None else Path(out)
    bar = make_progress_bar(
        progress, "compare", unit=" runs", total=len(solvers) * len(seeds)
    )
    rows: list[Row] = []
    try:
        for seed in seeds:
            for name in solvers:
                if bar is not None:
                    bar.set_postfix_str(f"{name}, seed {seed}")
                solver = first_solvers.pop(name, None)
                if solver is None:
                    solver = _make_solver(solvers, name, seed)
                stored_run = StoredRun(folder, name, seed, runs.describe_run(solver))
                run_rows = stored_run.load_finished()
                if run_rows is None:
                    run_rows = runs.run_solver(name, seed, solver, stored_run)
                rows += run_rows
                if bar is not None:
                    bar.update()
    finally:
        if bar is not None:
            bar.close()
    order = {name: k for k, name in enumerate(solvers)}
    rows.sort(key=lambda row: order[row["solver"]])
    return Comparison(rows, tuple(metrics))


def _require_functions(name: str, value: Any) -> dict[str, Callable[..., Any]]:
    """Validate a dict of functions by name."""
    if not isinstance(value, Mapping):
        raise TypeError(
            f"{name}: expected a dict of functions, got {checks.short_repr(value)}"
        )
    for key, function in value.items():
        if not isinstance(key, str) or not callable(function):
            raise TypeError(
                f"{name}: expected functions by names, got"
                f" {checks.short_repr({key: function})}"
            )
    return dict(value)


def _as_list(name: str, value: Any) -> list[Any]:
    """Convert a sequence to a list; raise for other types."""
    try:
        return list(value)
    except TypeError as error:
        raise TypeError(
            f"{name}: expected a sequence, got {checks.short_repr(value)}"
        ) from error


def _make_solver(
    solvers: Mapping[str, Callable[[int], Any]], name: str, seed: int
) -> Any:
    with _append_to_errors(f"make(seed) of {name!r}, seed {seed}"):
        return solvers[name](seed)


@contextmanager
def _append_to_errors(subject: str) -> Iterator[None]:
    """Append the subject to messages of errors: ``add_note`` needs Python 3.11."""
    try:
        yield
    except Exception as error:
        message, *other_args = error.args or ("",)
        if isinstance(message, str):
            error.args = (f"{message} ({subject})".lstrip(), *other_args)
        else:
            error.args = (message, *other_args, f"({subject})")
        if subject in str(error):
            raise
        # OSError composes its message from errno, not from args.
        error_name = type(error).__name__
        raise RuntimeError(f"{error_name}: {error} ({subject})") from error


def _require_increasing(looks: Sequence[float]) -> list[float]:
    numbers = [checks.as_nonnegative("looks", x) for x in _as_list("looks", looks)]
    if not numbers or any(b <= a for a, b in pairwise(numbers)):
        raise ValueError(f"looks: expected numbers that rise, got {numbers}")
    return numbers


class _ComparisonRuns:
    """Problem, thresholds and objective of all runs."""

    def __init__(
        self,
        problem: Any,
        looks: list[float],
        unit: str,
        metrics: dict[str, Metric],
        objective: Objective | None,
        cold_solvers: Mapping[str, Any],
    ) -> None:
        self.problem, self.looks, self.unit = problem, looks, unit
        # Solvers without an uncounted warm-up pass yet.
        self.metrics, self.cold_solvers = metrics, dict(cold_solvers)
        self.objective = objective or make_common_objective(problem, cold_solvers)
        # Duals bound the default objective, not an objective of the user.
        self.has_duals = objective is None
        self.shared_settings = {
            "problem": f"{type(problem).__name__} of {len(problem)} examples, "
            f"{getattr(problem, 'checksum', None)}",
            "looks": f"{looks} {unit}",
            "metrics": describe_settings(metrics),
            "objective": "default"
            if objective is None
            else describe_settings(objective),
        }

    def describe_run(self, solver: Any) -> dict[str, str]:
        """Settings that determine the rows of a run, as text."""
        return {**self.shared_settings, "solver": describe_settings(solver)}

    def run_solver(
        self, name: str, seed: int, solver: Any, stored_run: StoredRun
    ) -> list[Row]:
        """Run a solver to the last threshold and store its rows."""
        rows, state = stored_run.load_interrupted()
        recorder = _RunRecorder(self, name, seed, rows)
        try:
            self._warm_up(name)
            with observe_runs(recorder):
                solution = self._solve(solver, state)
        except Exception as error:
            if not recorder.is_divergence(error):
                metric = recorder.metric
                metric_text = "" if metric is None else f", metric {metric!r}"
                with _append_to_errors(f"solver {name!r}, seed {seed}{metric_text}"):
                    raise
            recorder.append_diverged_row(str(error))
        else:
            if solution.interrupted:
                if hasattr(solver, "solve") or type(solver).load is not Solver.load:
                    stored_run.save_interrupted(rows, solution.state)
                raise KeyboardInterrupt
            recorder.append_last_row(solution)
        stored_run.save_finished(rows)
        return rows

    def _warm_up(self, name: str) -> None:
        """Make one uncounted pass: first calls compile kernels and fill caches."""
        solver = self.cold_solvers.pop(name, None)
        if solver is None:
            return
        passes: list[int] = []

        def stop_after_first_pass(evaluation: RunEvaluation) -> bool:
            passes.append(evaluation.passes)
            return evaluation.passes > 0

        try:
            with observe_runs(stop_after_first_pass):
                solution = self._solve(solver, None)
        except Exception:
            # The run itself raises the same error, with its name and seed.
            return
        if not passes:
            raise TypeError(
                f"solvers: expected a solver of smoothsp.linear.solvers or a Solver as"
                f" {name!r}, got {type(solver).__name__}, whose passes cannot be"
                " observed"
            )
        if solution.interrupted:
            raise KeyboardInterrupt

    def _solve(self, solver: Any, state: State | None) -> Solution:
        # Pass resume only if needed: not all solvers have the parameter.
        options: dict[str, Any] = {} if state is None else {"resume": state}
        if hasattr(solver, "solve"):
            solution: Solution = solver.solve(self.problem, **options)
            return solution
        return solve(solver, self.problem, tol=0.0, progress=False, **options)


class _RunRecorder:
    """Observer that adds a row when a run reaches the next threshold of its costs."""

    def __init__(
        self, race: _ComparisonRuns, name: str, seed: int, rows: list[Row]
    ) -> None:
        self.race, self.name, self.seed, self.rows = race, name, seed, rows
        self.diverged = False
        self.weights: Callable[[], NDArray[np.float64]] | None = None
        # name of the metric being computed, for messages
        self.metric: str | None = None
        self.costs: Row = self._costs(0, 0, 0.0)

    def _costs(self, passes: int, oracle_calls: int, seconds: float) -> Row:
        calls = oracle_calls / len(self.race.problem)
        return {
            "passes": passes,
            "oracle_calls": oracle_calls,
            "calls": calls,
            "seconds": seconds,
        }

    def __call__(self, evaluation: RunEvaluation) -> bool:
        self.weights = evaluation.weights
        self.costs = self._costs(
            evaluation.passes, evaluation.oracle_calls, evaluation.seconds
        )
        cost = self.costs[self.race.unit]
        reached_looks = [x for x in self.race.looks if x <= cost]
        if reached_looks and (
            not self.rows or reached_looks[-1] > self.rows[-1]["look"]
        ):
            self._evaluate(reached_looks[-1], evaluation.weights(), evaluation.bound())
        return self.diverged or bool(
            reached_looks and reached_looks[-1] == self.race.looks[-1]
        )

    def _evaluate(self, threshold: float, w: NDArray[np.float64], bound: float) -> None:
        race = self.race
        primal = evaluate_objective(race.objective, w)
        if math.isinf(primal):
            self.append_diverged_row("the objective leaves float64")
            return
        bounds = [row["dual"] for row in self.rows]
        # A dual of -inf is no bound.
        bounds = [x for x in (*bounds, float(bound)) if x > -math.inf]
        # Largest dual so far: later bounds may be lower.
        dual = max(bounds, default=math.nan) if race.has_duals else math.nan
        values: Row = {}
        for self.metric, compute_metric in race.metrics.items():
            values[self.metric] = as_number(
                f"metrics of {self.metric!r}", compute_metric(w)
            )
        self.metric = None
        self._append_row(threshold, primal, dual, max(primal - dual, 0.0), values)

    def _append_row(
        self, threshold: float, primal: float, dual: float, gap: float, values: Row
    ) -> None:
        run_columns = {"solver": self.name, "seed": self.seed, "look": threshold}
        certificate_columns = {"primal": primal, "dual": dual, "gap": gap}
        self.rows.append(
            {**run_columns, **self.costs, **certificate_columns, **values, "status": ""}
        )

    def is_divergence(self, error: Exception) -> bool:
        """Whether an error comes from divergence, not from a metric."""
        if self.metric is not None or isinstance(error, FloatingPointError):
            return self.metric is None
        with suppress(Exception):
            if self.weights is not None:
                return not np.isfinite(self.weights()).all()
        return False

    def append_diverged_row(self, status: str) -> None:
        """Add the last row of a run that diverged."""
        if self.diverged:
            return
        self.diverged = True
        nan_metrics = dict.fromkeys(self.race.metrics, math.nan)
        self._append_row(
            self._next_threshold(), math.inf, math.nan, math.nan, nan_metrics
        )
        self.rows[-1]["status"] = f"diverged: {status}"

    def _next_threshold(self) -> float:
        """The next threshold, or the last one."""
        previous_threshold = self.rows[-1]["look"] if self.rows else -math.inf
        return next(
            (x for x in self.race.looks if x > previous_threshold), self.race.looks[-1]
        )

    def append_last_row(self, solution: Solution) -> None:
        """Add the last row of a run that stopped before the last threshold."""
        if self.diverged:
            return
        if not self.rows or solution.passes > self.rows[-1]["passes"]:
            counts = solution.passes, solution.oracle_calls, solution.seconds
            self.costs = self._costs(*counts)
            unsmoothed_bounds = [
                r.dual for r in solution.history if math.isnan(r.smoothed_primal)
            ]
            dual = np.fmax.reduce([*unsmoothed_bounds, math.nan])
            self._evaluate(self._next_threshold(), solution.w, float(dual))
        if not self.diverged:
            self.rows[-1]["status"] = solution.status
