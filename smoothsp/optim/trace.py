"""Traces of optimizer runs: record, save as CSV, plot."""

import csv
import io
import math
import os
import time
from collections.abc import Callable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import torch

from smoothsp.optim import _checks, curves
from smoothsp.optim.curves import CurvePoint, Panel

FIELDS = ("run", "seed", "seconds", "objective", "gap", "calls")
# Prefix of the columns of metrics.
METRIC = "metric: "
Value = float | torch.Tensor | Callable[[], Any]


class Point(NamedTuple):
    """Measurements of a run at one time."""

    run: str
    seconds: float
    """Seconds since the run began, without evaluations of objectives."""
    objective: float
    gap: float
    """Upper bound of the suboptimality; NaN if unknown."""
    calls: dict[str, float]
    """Number of examples with evaluations of loss or gradient, by kind."""
    seed: int = 0
    """Seed of the run."""
    metrics: Mapping[str, float] = {}
    """Values of the metrics, by name."""


class Trace:
    """Objective, gap, oracle calls and seconds of several runs, for comparison.

    Any ``torch.optim.Optimizer`` works. Optimizers of ``smoothsp.optim`` count their
    calls by kind. For all others, every evaluation in a step counts: one, or one per
    call of the closure.

    Parameters
    ----------
    path
        A CSV file that is replaced atomically at each record; existing runs are read
        first. None: no file.

    Attributes
    ----------
    points
        Recorded points, in order.

    Raises
    ------
    ValueError
        If the file was not written by a trace.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.optim import Trace
    >>> weight = torch.nn.Parameter(torch.ones(3))
    >>> optimizer = torch.optim.SGD([weight], lr=0.1)
    >>> trace = Trace()
    >>> run = trace.run("SGD", optimizer, examples=10)
    >>> for _ in range(2):
    ...     optimizer.zero_grad()
    ...     weight.square().sum().backward()
    ...     optimizer.step()
    ...     point = run.record(lambda: weight.square().sum())
    >>> point.calls, round(point.objective, 4)
    ({'iterate': 20.0}, 1.2288)
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path)
        self.points: list[Point] = []
        if self.path is not None and self.path.exists():
            curves.require_file(self.path)
            self.points = _read_points(self.path)

    def run(
        self,
        name: str,
        optimizer: torch.optim.Optimizer,
        *,
        seed: int = 0,
        examples: int = 1,
        resume: bool = False,
    ) -> "Run":
        """Start a run and its clock.

        Parameters
        ----------
        name
            Name of the run in the file and in the legend.
        optimizer
            Optimizer whose calls are counted from now on.
        seed
            Seed of the run, an int. Runs of one name and several seeds are one curve of
            the figure, with a band.
        examples
            Examples of a batch: the count of one evaluation, for optimizers without
            their own counts. Their kind of call is ``iterate``.
        resume
            If True, points of this name and seed are kept, and seconds and calls
            continue from them. Otherwise they are removed.
        """
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(
                "optimizer: expected a torch.optim.Optimizer, got "
                f"{type(optimizer).__name__}"
            )
        if not isinstance(name, str) or not name:
            raise TypeError(f"name: expected a name, got {name!r}")
        _checks.count("examples", examples)
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise TypeError(f"seed: expected an int, got {seed!r}")
        key = name, seed
        before = [point for point in self.points if (point.run, point.seed) == key]
        if not resume:
            self.points = [p for p in self.points if (p.run, p.seed) != key]
        last = before[-1:] if resume else []
        return Run(self, key, optimizer, examples, last, resume)

    def add(self, point: Point) -> None:
        """Add a point and write the file, if there is one."""
        self.points.append(point)
        if self.path is not None:
            self.save(self.path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all points as CSV.

        The columns are ``FIELDS``, then each kind of calls, then each metric. ``calls``
        is the sum over the kinds.
        """
        kinds = sorted({kind for point in self.points for kind in point.calls})
        names = list(dict.fromkeys(x for point in self.points for x in point.metrics))
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*FIELDS, *kinds, *(METRIC + name for name in names)])
        for point in self.points:
            numbers = (point.seconds, point.objective, point.gap, _total_calls(point))
            calls = [point.calls.get(kind, "") for kind in kinds]
            values = [point.metrics.get(name, "") for name in names]
            # repr of floats is shortest and exact: reading gives equal numbers.
            row = [point.run, point.seed, *map(repr, numbers), *calls, *values]
            writer.writerow(row)
        # Each record replaces the file atomically: a reader never sees a part of it.
        curves.write_file(Path(path), text.getvalue().encode())

    def draw(self, path: str | os.PathLike[str], lowest: float | None = None) -> None:
        """Plot suboptimality and metrics against oracle calls and seconds.

        Curves are medians over seeds, bands their range.

        Parameters
        ----------
        path
            Path of the figure, ending in ``.png``, ``.svg`` or ``.pdf``.
        lowest
            The minimum, or a lower bound. If absent, the largest difference of
            objective and gap. Without gaps, the lowest objective; the run that reached
            it then ends one point early.

        Raises
        ------
        ModuleNotFoundError
            Without matplotlib.
        ValueError
            If there are no points, or an objective is below ``lowest``.
        """
        if lowest is not None:
            _checks.number("lowest", lowest)
        reference = self._reference_value(lowest)
        reference_name = "a lower bound" if self._lower_bounds() else "the lowest"
        label = f"objective above {reference_name}"
        if lowest is not None:
            label = f"objective - {lowest:.6g}"
        names = dict.fromkeys(name for point in self.points for name in point.metrics)
        rows: list[tuple[str, Callable[[Point], float]]] = [
            (label, lambda point: point.objective - reference),
            *((name, _metric_getter(name)) for name in names),
        ]
        panels = [
            [
                Panel(x, y, self._curves(x, value), logarithmic=not k)
                for x in ("calls", "seconds")
            ]
            for k, (y, value) in enumerate(rows)
        ]
        curves.draw(path, panels)

    def _curves(
        self, x: str, value: Callable[[Point], float]
    ) -> dict[str, list[list[CurvePoint]]]:
        """Values of each run, a list for each seed, record by record."""
        runs: dict[str, dict[int, list[CurvePoint]]] = {}
        for point in self.points:
            run = runs.setdefault(point.run, {}).setdefault(point.seed, [])
            cost = _total_calls(point) if x == "calls" else point.seconds
            run.append(CurvePoint(len(run), cost, value(point)))
        return {name: list(seeds.values()) for name, seeds in runs.items()}

    def _lower_bounds(self) -> list[float]:
        """Lower bounds of the minimum, from gaps."""
        bounds = [point.objective - point.gap for point in self.points]
        return [bound for bound in bounds if math.isfinite(bound)]

    def _reference_value(self, lowest: float | None) -> float:
        values = [p.objective for p in self.points if math.isfinite(p.objective)]
        if not values:
            raise ValueError(
                "draw: expected finite objectives, got none; record() some"
            )
        if lowest is None:
            bounds = self._lower_bounds()
            return max(bounds) if bounds else min(values)
        if min(values) < lowest:
            raise ValueError(
                f"lowest: expected at most the lowest objective, {min(values)!r}, got "
                f"{lowest!r}"
            )
        return lowest


class Run:
    """One run of a trace; create it with ``Trace.run``."""

    def __init__(
        self,
        trace: Trace,
        key: tuple[str, int],
        optimizer: torch.optim.Optimizer,
        examples: int,
        before: list[Point],
        resume: bool,
    ) -> None:
        self.trace, self.optimizer = trace, optimizer
        self.name, self.seed = key
        self._examples = examples
        self._counts: dict[str, float] = dict(before[0].calls) if before else {}
        # Earlier calls of this optimizer belong to other runs.
        initial_calls: dict[str, float] = getattr(optimizer, "oracle_calls", {})
        self._start = {} if resume else dict(initial_calls)
        self._counts_steps = not hasattr(optimizer, "oracle_calls")
        if self._counts_steps:
            self._counts.setdefault("iterate", 0.0)
            optimizer.register_step_pre_hook(self._count_a_step)
        self._devices = {
            p.device
            for group in optimizer.param_groups
            for p in group["params"]
            if p.device.type == "cuda"
        }
        self._start_time = self._now() - (before[0].seconds if before else 0.0)

    @property
    def calls(self) -> dict[str, float]:
        """Number of oracle calls so far, by kind."""
        calls: dict[str, float] = getattr(self.optimizer, "oracle_calls", self._counts)
        return {kind: calls[kind] - self._start.get(kind, 0) for kind in sorted(calls)}

    def record(
        self,
        objective: Value,
        gap: Value | None = None,
        metrics: Mapping[str, Value] | None = None,
    ) -> Point:
        """Record the current point of the run.

        Parameters
        ----------
        objective
            A number, or a function without arguments that computes it. The clock stops
            during the call, and autograd is off.
        gap
            Certified upper bound of the suboptimality, at least 0: a number or a
            function.
        metrics
            Further numbers or functions by name, such as ``{"test error": f}``.

        Raises
        ------
        TypeError, ValueError
            If they are not numbers, or the gap is negative.
        """
        stopped = self._now()
        with torch.no_grad():
            value = _evaluate_number("objective", objective)
            gap_value = math.nan if gap is None else _evaluate_number("gap", gap)
            metric_values = {
                name: _evaluate_number(name, x) for name, x in (metrics or {}).items()
            }
        if gap_value < 0:
            raise ValueError(f"gap: expected at least 0, got {gap_value}")
        seconds, seed_and_metrics = (
            stopped - self._start_time,
            (self.seed, metric_values),
        )
        point = Point(
            self.name, seconds, value, gap_value, self.calls, *seed_and_metrics
        )
        self.trace.add(point)
        # Evaluation takes no time of the run, kernels that it started included.
        self._start_time += self._now() - stopped
        return point

    def _now(self) -> float:
        # CUDA kernels run asynchronously: synchronise the devices first.
        for device in self._devices:
            torch.cuda.synchronize(device)
        return time.perf_counter()

    def _count_a_step(self, _: Any, args: Any, kwargs: Any) -> Any:
        """Count the step, or each of the evaluations that it makes of its closure."""
        # torch passes the optimizer as the first positional argument of the hook.
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            self._counts["iterate"] += self._examples
            return None

        def counted_closure() -> Any:
            self._counts["iterate"] += self._examples
            return closure()

        if "closure" in kwargs:
            return args, {**kwargs, "closure": counted_closure}
        return (args[0], counted_closure, *args[2:]), kwargs


def _total_calls(point: Point) -> float:
    return sum(point.calls.values())


def _metric_getter(name: str) -> Callable[[Point], float]:
    return lambda point: point.metrics.get(name, math.nan)


def _evaluate_number(name: str, value_or_function: Any) -> float:
    value = value_or_function() if callable(value_or_function) else value_or_function
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(
            f"{name}: expected a number, or a function that returns one, got "
            f"{type(value).__name__}"
        )
    return float(value)


def _read_points(path: Path) -> list[Point]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"path: expected a file that a trace wrote, got {error} in {path}"
        ) from error
    with io.StringIO(text, newline="") as file:
        rows = csv.reader(file)
        head = tuple(next(rows, ()))
        if head[: len(FIELDS)] != FIELDS:
            raise ValueError(
                f"path: expected a file with the columns {', '.join(FIELDS)}, got "
                f"{', '.join(head) or 'an empty one'} in {path}"
            )
        kinds, points = head[len(FIELDS) :], []
        for line, row in enumerate(rows, start=2):
            try:
                name, seed, seconds, objective, gap, _, *more = row
                columns = dict(zip(kinds, more, strict=True))
                numbers_by_name = {kind: float(n) for kind, n in columns.items() if n}
                calls = {
                    k: n for k, n in numbers_by_name.items() if not k.startswith(METRIC)
                }
                metrics = {
                    k[len(METRIC) :]: n
                    for k, n in numbers_by_name.items()
                    if k not in calls
                }
                numbers = float(seconds), float(objective), float(gap)
                seed_and_metrics = int(seed), metrics
            except ValueError as error:
                raise ValueError(
                    f"path: expected numbers in {len(head)} columns, got {error} in "
                    f"line {line} of {path}"
                ) from error
            points.append(Point(name, *numbers, calls, *seed_and_metrics))
    return points
