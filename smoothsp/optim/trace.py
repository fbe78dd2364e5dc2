"""Traces of optimizer runs: record, save as CSV, plot."""

import csv
import io
import math
import os
import secrets
import time
from collections.abc import Callable
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import torch

from smoothsp.optim import _checks

FIELDS = ("run", "seconds", "objective", "gap", "calls")
Value = float | torch.Tensor | Callable[[], Any]


class Point(NamedTuple):
    """Measurements of a run at one time."""

    run: str
    seconds: float
    """Since the run began, without the time that objectives took."""
    objective: float
    gap: float
    """How far above the minimum the objective is at most; NaN if nobody knows."""
    calls: dict[str, float]
    """Examples whose loss or gradient was asked for, by kind."""


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
            _require_file(self.path)
            self.points = _read(self.path)

    def run(
        self,
        name: str,
        optimizer: torch.optim.Optimizer,
        *,
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
        examples
            Examples of a batch: the count of one evaluation, for optimizers without
            their own counts. Their kind of call is ``iterate``.
        resume
            If True, points of this name are kept, and seconds and calls continue from
            them. Otherwise they are removed.
        """
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(
                "optimizer: expected a torch.optim.Optimizer, got "
                f"{type(optimizer).__name__}"
            )
        if not isinstance(name, str) or not name:
            raise TypeError(f"name: expected a name, got {name!r}")
        _checks.count("examples", examples)
        before = [point for point in self.points if point.run == name]
        if not resume:
            self.points = [point for point in self.points if point.run != name]
        return Run(
            self, name, optimizer, examples, before[-1:] if resume else [], resume
        )

    def add(self, point: Point) -> None:
        """Add a point and write the file, if there is one."""
        self.points.append(point)
        if self.path is not None:
            self.save(self.path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all points as CSV: a column for each kind of calls, and their sum."""
        kinds = sorted({kind for point in self.points for kind in point.calls})
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*FIELDS, *kinds])
        for point in self.points:
            numbers = (point.seconds, point.objective, point.gap, _total(point))
            calls = [point.calls.get(kind, "") for kind in kinds]
            writer.writerow([point.run, *map(repr, numbers), *calls])
        _replace(Path(path), text.getvalue().encode())

    def draw(self, path: str | os.PathLike[str], lowest: float | None = None) -> None:
        """Plot the suboptimality of the runs against oracle calls and seconds.

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
        kind = Path(path).suffix[1:] or "png"
        _checks.choice("path: ending", kind, ("png", "svg", "pdf"))
        floor = self._floor(lowest)
        try:
            from matplotlib.figure import Figure
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f'draw: needs {error.name}: pip install "smoothsp[figures]"',
                name=error.name,
            ) from error
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        words = "objective above " + (
            "a lower bound" if self._bound() else "the lowest"
        )
        axes[0].set_ylabel(words if lowest is None else f"objective - {lowest:.6g}")
        for axis, label in zip(axes, ("calls", "seconds"), strict=True):
            axis.set_xlabel(label)
            axis.set_yscale("log")
            axis.grid(alpha=0.3)
            for name in dict.fromkeys(point.run for point in self.points):
                points = [
                    point
                    for point in self.points
                    if point.run == name and point.objective > floor
                ]
                x = [_total(p) if label == "calls" else p.seconds for p in points]
                y = [point.objective - floor for point in points]
                axis.plot(x, y, marker=".", label=name)
        axes[1].legend()
        held = io.BytesIO()
        figure.savefig(held, format=kind, dpi=150)
        _replace(Path(path), held.getvalue())

    def _bound(self) -> list[float]:
        """Lower bounds of the minimum, from gaps."""
        bounds = [point.objective - point.gap for point in self.points]
        return [bound for bound in bounds if math.isfinite(bound)]

    def _floor(self, lowest: float | None) -> float:
        values = [p.objective for p in self.points if math.isfinite(p.objective)]
        if not values:
            raise ValueError(
                "draw: expected finite objectives, got none; record() some"
            )
        if lowest is None:
            bounds = self._bound()
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
        name: str,
        optimizer: torch.optim.Optimizer,
        examples: int,
        before: list[Point],
        resume: bool,
    ) -> None:
        self.trace, self.name, self.optimizer = trace, name, optimizer
        self._examples = examples
        self._own: dict[str, float] = dict(before[0].calls) if before else {}
        # what it was asked before is not of this run
        asked: dict[str, float] = getattr(optimizer, "oracle_calls", {})
        self._start = {} if resume else dict(asked)
        self._counts = not hasattr(optimizer, "oracle_calls")
        if self._counts:
            self._own.setdefault("iterate", 0.0)
            optimizer.register_step_pre_hook(self._count_a_step)
        self._devices = {
            p.device
            for group in optimizer.param_groups
            for p in group["params"]
            if p.device.type == "cuda"
        }
        self._began = self._now() - (before[0].seconds if before else 0.0)

    @property
    def calls(self) -> dict[str, float]:
        """Number of oracle calls so far, by kind."""
        found: dict[str, float] = getattr(self.optimizer, "oracle_calls", self._own)
        return {kind: found[kind] - self._start.get(kind, 0) for kind in sorted(found)}

    def record(self, objective: Value, gap: Value | None = None) -> Point:
        """Record the current point of the run.

        Parameters
        ----------
        objective
            A number, or a function without arguments that computes it. The clock stops
            during the call, and autograd is off.
        gap
            Certified upper bound of the suboptimality, at least 0: a number or a
            function.

        Raises
        ------
        TypeError, ValueError
            If they are not numbers, or the gap is negative.
        """
        stopped = self._now()
        with torch.no_grad():
            value = _number("objective", objective)
            known = math.nan if gap is None else _number("gap", gap)
        if known < 0:
            raise ValueError(f"gap: expected at least 0, got {known}")
        point = Point(self.name, stopped - self._began, value, known, self.calls)
        self.trace.add(point)
        self._began += self._now() - stopped
        return point

    def _now(self) -> float:
        for device in self._devices:
            torch.cuda.synchronize(device)
        return time.perf_counter()

    def _count_a_step(self, _: Any, args: Any, kwargs: Any) -> Any:
        """Count the step, or each of the evaluations that it makes of its closure."""
        # by torch's own wrapper, the optimizer comes first among the arguments
        given = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if given is None:
            self._own["iterate"] += self._examples
            return None

        def counted() -> Any:
            self._own["iterate"] += self._examples
            return given()

        if "closure" in kwargs:
            return args, {**kwargs, "closure": counted}
        return (args[0], counted, *args[2:]), kwargs


def _total(point: Point) -> float:
    return sum(point.calls.values())


def _number(name: str, given: Any) -> float:
    value = given() if callable(given) else given
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(
            f"{name}: expected a number, or a function that returns one, got "
            f"{type(value).__name__}"
        )
    return float(value)


def _read(path: Path) -> list[Point]:
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
                name, seconds, objective, gap, _, *calls = row
                known = dict(zip(kinds, calls, strict=True))
                found = {kind: float(n) for kind, n in known.items() if n}
                numbers = float(seconds), float(objective), float(gap)
            except ValueError as error:
                raise ValueError(
                    f"path: expected numbers in {len(head)} columns, got {error} in "
                    f"line {line} of {path}"
                ) from error
            points.append(Point(name, *numbers, found))
    return points


def _require_file(path: Path) -> None:
    """Refuse a folder, and a device, whose place a file would take."""
    if path.exists() and not path.is_file():
        found = "a folder" if path.is_dir() else "a device"
        raise ValueError(f"path: expected a file, got {found} at {path}")


def _replace(path: Path, content: bytes) -> None:
    """Write a file in one step: whoever looks sees the old one or the new one."""
    _require_file(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
