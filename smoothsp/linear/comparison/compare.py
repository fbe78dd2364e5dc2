"""A race of solvers: equal budgets, looks at equal costs, one objective for all."""

import importlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.comparison.fingerprint import described
from smoothsp.linear.comparison.objectives import Objective, objective_of, value_at
from smoothsp.linear.comparison.storage import Row, Stored
from smoothsp.linear.engines.budget import bar_of, seed_of
from smoothsp.linear.engines.looks import Look, watching
from smoothsp.linear.engines.runner import Solver, solve
from smoothsp.linear.engines.solution import Solution, State
from smoothsp.linear.inputs import checks
from smoothsp.optim import curves
from smoothsp.optim.curves import At, Panel

Metric = Callable[[NDArray[np.float64]], float]
Unit = Literal["calls", "seconds", "passes"]
UNITS = ("calls", "seconds", "passes")
AXES = {
    "calls": "oracle calls per example",
    "seconds": "seconds",
    "passes": "passes",
}


@dataclass(frozen=True, repr=False)
class Comparison:
    """Measurements of solvers, look by look.

    Parameters
    ----------
    rows
        A dict for each look at each run: ``solver``, ``seed``, ``look``; ``passes``,
        ``oracle_calls`` and ``seconds`` so far, and ``calls``, oracle calls per
        example; ``primal``, the objective computed by the problem; ``dual``, the best
        bound that this run knows below the minimum, and ``gap``, primal less dual, NaN
        if unknown; a value for each metric; and ``status``, the reason why the run
        ended, in its last row. A run that diverges ends with an infinite ``primal``.
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
        """The last look at each run, as text."""
        last = {(row["solver"], row["seed"]): row for row in self.rows}
        names = ("solver", "seed", "calls", "seconds", "primal", "gap", *self.metrics)
        lines = [
            names,
            *([_text(row[name]) for name in names] for row in last.values()),
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

        The duality gap, the primal suboptimality and each metric, without those of
        which nothing is known, against ``x``.
        """
        checks.choice("x", x, UNITS)
        bound = self.lower_bound if lower_bound is None else lower_bound
        label = "primal suboptimality"
        if math.isnan(bound):
            finite = [row["primal"] for row in self.rows if row["primal"] < math.inf]
            bound, label = min(finite, default=math.nan), "primal above the lowest"
        rows = [{**row, label: row["primal"] - bound} for row in self.rows]
        found: list[Panel] = []
        for name in ("gap", label, *self.metrics):
            runs: dict[str, dict[int, list[At]]] = {}
            for row in rows:
                run = runs.setdefault(row["solver"], {}).setdefault(row["seed"], [])
                # what diverged has no gap, and its metrics say nothing
                diverged = math.isinf(row["primal"])
                value = math.inf if diverged else row[name]
                run.append(At(row["look"], row[x], value))
            lists = {solver: list(of.values()) for solver, of in runs.items()}
            values = [at.y for of in lists.values() for run in of for at in run]
            if any(map(math.isfinite, values)):
                y = "duality gap" if name == "gap" else name
                log = name not in self.metrics
                found.append(Panel(AXES[x], y, lists, log, title if not found else ""))
        return found

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
            A bound below the minimum, for the suboptimality. Default: the largest
            ``dual``. Without any, the lowest objective.

        Raises
        ------
        ModuleNotFoundError
            Without matplotlib.
        """
        columns = [self.panels(x, lower_bound) for x in ("calls", "seconds")]
        curves.draw(path, list(zip(*columns, strict=True)))


def _text(value: Any) -> str:
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
    """Run solvers with equal budgets, and look at each when it has spent the same.

    The clock stops during a look.

    Parameters
    ----------
    solvers
        A function ``make(seed)`` for each name, which returns a fresh solver of
        :mod:`smoothsp.linear.solvers`, or your own object of this problem with the
        interface :class:`~smoothsp.linear.solvers.Solver`. Its ``max_passes`` and
        ``max_seconds`` are ignored. It stops at its ``tol``; with 0 it runs to the last
        look.
    problem
        The problem that all of them solve.
    looks
        Costs at which to look, rising. A look that falls into a pass happens after the
        pass, and its row has the true costs.
    unit
        Unit of the looks: ``"calls"``, oracle calls per example; ``"seconds"``; or
        ``"passes"``. For seconds, each solver first makes one pass that is not counted.
    seeds
        Seeds of the runs of each solver.
    metrics
        Functions of the weights, such as ``{"test error": f}``.
    objective
        Function of the weights that computes ``primal``. Default: the problem's hinge
        or likelihood with the terms of ``lam`` and ``l1``, equal for all solvers.
    out
        Folder where each run is stored once it is finished. Runs with equal settings
        are read, others computed; functions count by their name. After Ctrl-C, which
        raises, the next call continues the interrupted run.
    progress
        Show a progress bar. None: on a terminal, if it takes longer than three seconds.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        If solvers have different objectives; for looks that do not rise; for a file in
        ``out`` that is damaged.
    TypeError
        If ``make`` returns no solver.

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
    metrics = dict(metrics or {})
    looks, seeds = _rising(looks), [seed_of(seed) for seed in seeds]
    checks.choice("unit", unit, UNITS)
    if not solvers or not seeds:
        raise ValueError(
            f"{'seeds' if solvers else 'solvers'}: expected at least one, got none"
        )
    made = {name: make(seeds[0]) for name, make in solvers.items()}
    for name, solver in made.items():
        if not hasattr(solver, "solve") and not hasattr(solver, "advance"):
            raise TypeError(
                f"solvers: expected make(seed) of {name!r} to return a solver, got"
                f" {type(solver).__name__}"
            )
    race = _Race(problem, looks, unit, metrics, objective, made)
    folder = None if out is None else Path(out)
    bar = bar_of(progress, "compare", unit=" runs", total=len(solvers) * len(seeds))
    rows: list[Row] = []
    try:
        for seed in seeds:
            for name, make in solvers.items():
                if bar is not None:
                    bar.set_postfix_str(f"{name}, seed {seed}")
                solver = make(seed)
                stored = Stored(folder, name, seed, race.settings(solver))
                found = stored.finished()
                if found is None:
                    found = race.run(name, seed, make, solver, stored)
                rows += found
                if bar is not None:
                    bar.update()
    finally:
        if bar is not None:
            bar.close()
    order = {name: k for k, name in enumerate(solvers)}
    rows.sort(key=lambda row: order[row["solver"]])
    return Comparison(rows, tuple(metrics))


def _rising(looks: Sequence[float]) -> list[float]:
    found = [checks.at_least_zero("looks", look) for look in looks]
    if not found or any(b <= a for a, b in pairwise(found)):
        raise ValueError(f"looks: expected numbers that rise, got {list(looks)}")
    return found


class _Race:
    """Problem, looks and objective of all runs."""

    def __init__(
        self,
        problem: Any,
        looks: list[float],
        unit: str,
        metrics: dict[str, Metric],
        objective: Objective | None,
        made: Mapping[str, Any],
    ) -> None:
        self.problem, self.looks, self.unit = problem, looks, unit
        self.metrics, self.warm = metrics, set[str]()
        self.objective = objective or objective_of(problem, made)
        self.of_all = {
            "problem": f"{type(problem).__name__} of {len(problem)} examples, "
            f"{getattr(problem, 'checksum', None)}",
            "looks": f"{looks} {unit}",
            "metrics": described(metrics),
            "objective": "default" if objective is None else described(objective),
        }

    def settings(self, solver: Any) -> dict[str, str]:
        """All that decides a run, in words."""
        return {**self.of_all, "solver": described(solver)}

    def run(
        self,
        name: str,
        seed: int,
        make: Callable[[int], Any],
        solver: Any,
        stored: Stored,
    ) -> list[Row]:
        """Run a solver to the last look, and store its rows."""
        if self.unit == "seconds" and name not in self.warm:
            with watching(lambda look: look.passes > 0):
                self._solve(make(seed), None)
            self.warm.add(name)
        rows, state = stored.interrupted()
        watcher = _Watcher(self, name, seed, rows)
        try:
            with watching(watcher):
                solution = self._solve(solver, state)
        except FloatingPointError as error:
            watcher.diverge(str(error))
        else:
            if not watcher.seen:
                raise TypeError(
                    f"solvers: expected one of smoothsp.linear.solvers or a Solver as"
                    f" {name!r}, got {type(solver).__name__}, whose passes cannot be"
                    " looked at"
                )
            if solution.interrupted:
                if hasattr(solver, "solve") or type(solver).load is not Solver.load:
                    stored.keep_interrupted(rows, solution.state)
                raise KeyboardInterrupt
            watcher.finish(solution)
        stored.keep(rows)
        return rows

    def _solve(self, solver: Any, state: State | None) -> Solution:
        # without an argument that is not needed: not all solvers know all
        more: dict[str, Any] = {} if state is None else {"resume": state}
        if hasattr(solver, "solve"):
            found: Solution = solver.solve(self.problem, **more)
            return found
        return solve(solver, self.problem, tol=0.0, progress=False, **more)


class _Watcher:
    """Looks at one run when it has spent enough."""

    def __init__(self, race: _Race, name: str, seed: int, rows: list[Row]) -> None:
        self.race, self.name, self.seed, self.rows = race, name, seed, rows
        self.seen = self.diverged = False
        self.costs: Row = self._costs(0, 0, 0.0)

    def _costs(self, passes: int, oracle_calls: int, seconds: float) -> Row:
        calls = oracle_calls / len(self.race.problem)
        return {
            "passes": passes,
            "oracle_calls": oracle_calls,
            "calls": calls,
            "seconds": seconds,
        }

    def __call__(self, look: Look) -> bool:
        self.seen = True
        self.costs = self._costs(look.passes, look.oracle_calls, look.seconds)
        spent = self.costs[self.race.unit]
        reached = [x for x in self.race.looks if x <= spent]
        if reached and (not self.rows or reached[-1] > self.rows[-1]["look"]):
            self._add(reached[-1], look.weights(), look.bound())
        return self.diverged or bool(reached and reached[-1] == self.race.looks[-1])

    def _add(self, look: float, w: NDArray[np.float64], bound: float) -> None:
        race = self.race
        primal = value_at(race.objective, w)
        if math.isinf(primal):
            self.diverge("the objective leaves float64")
            return
        known = [row["dual"] for row in self.rows]
        # -inf is a bound of nothing
        known = [x for x in (*known, float(bound)) if x > -math.inf]
        dual = max(known, default=math.nan)
        values = {name: float(metric(w)) for name, metric in race.metrics.items()}
        self._append(look, primal, dual, max(primal - dual, 0.0), values)

    def _append(
        self, look: float, primal: float, dual: float, gap: float, values: Row
    ) -> None:
        of_run = {"solver": self.name, "seed": self.seed, "look": look}
        found = {"primal": primal, "dual": dual, "gap": gap}
        self.rows.append({**of_run, **self.costs, **found, **values, "status": ""})

    def diverge(self, status: str) -> None:
        """Add the last row of a run that diverged."""
        self.diverged = True
        nothing = dict.fromkeys(self.race.metrics, math.nan)
        self._append(self._next(), math.inf, math.nan, math.inf, nothing)
        self.rows[-1]["status"] = f"diverged: {status}"

    def _next(self) -> float:
        """The look that comes next, or the last one."""
        before = self.rows[-1]["look"] if self.rows else -math.inf
        return next((x for x in self.race.looks if x > before), self.race.looks[-1])

    def finish(self, solution: Solution) -> None:
        """Look at the end of a run that stopped before the last look."""
        if self.diverged:
            return
        if not self.rows or solution.passes > self.rows[-1]["passes"]:
            counts = solution.passes, solution.oracle_calls, solution.seconds
            self.costs = self._costs(*counts)
            plain = [r.dual for r in solution.history if math.isnan(r.smoothed_primal)]
            self._add(self._next(), solution.w, max(plain, default=math.nan))
        if not self.diverged:
            self.rows[-1]["status"] = solution.status
