"""Run over a sequence of lambdas: base of the regularisation path and of grids."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from smoothsp._kernels.compilation import clock
from smoothsp._kernels.compilation.interrupts import defer_sigint
from smoothsp.linear.engines import run_monitor
from smoothsp.linear.engines.run_monitor import (
    examples_fingerprint,
    make_progress_bar,
    require_same_examples,
)
from smoothsp.linear.inputs import checks
from smoothsp.linear.solvers.path.dual_point import DualPoint, State
from smoothsp.linear.solvers.path.solution import PathPoint


@dataclass(frozen=True)
class PointLimits:
    """Limits and callback of a run over lambdas, validated."""

    max_passes: int
    max_seconds: float | None
    callback: Callable[[PathPoint], Any] | None
    progress: bool | None

    def __post_init__(self) -> None:
        checks.as_positive_int("max_passes", self.max_passes)
        run_monitor.check_max_seconds(self.max_seconds)
        checks.as_optional_bool("progress", self.progress)
        checks.require_callback(self.callback)


class PointRun:
    """Run with its points so far, and the dual point at the next lambda.

    Handles limits, Ctrl-C, the progress bar, the callback and saved states. Subclasses
    choose the next lambda in ``_accept_point`` and ``_move_to_next``.

    Parameters
    ----------
    settings
        Parameters as text; a state of other settings raises an error.
    """

    name, unit = "", ""
    dual_point: DualPoint

    def __init__(self, problem: Any, limits: PointLimits, settings: str) -> None:
        self.problem, self.limits, self.settings = problem, limits, settings
        self._start, self._previous_seconds = clock.seconds_without_compilation(), 0.0
        self.points: list[PathPoint] = []
        self.status = ""
        # oracle calls of earlier dual points
        self.previous_oracle_calls = 0

    @property
    def seconds(self) -> float:
        """Seconds since the start, including earlier runs."""
        return (
            self._previous_seconds + clock.seconds_without_compilation() - self._start
        )

    @property
    def calls(self) -> int:
        """Oracle calls since the beginning, those for certificates included."""
        return self.previous_oracle_calls + self.dual_point.oracle_calls

    def run_loop(self, target_gap: float, total: int | None = None) -> None:
        """Make points with gaps of at most ``target_gap`` until a limit or the end."""
        bar = None
        try:
            bar_options = {"total": total, "initial": len(self.points)}
            bar = make_progress_bar(
                self.limits.progress, self.name, unit=self.unit, **bar_options
            )
            while not self.status and self._move_to_next():
                # require_finite_certificate raises for overflow.
                with np.errstate(over="ignore", invalid="ignore"):
                    gap = self.dual_point.run_to_gap(target_gap, self._check_limits)
                if gap is None:
                    break
                lam = self.dual_point.lam
                self._record_and_report_point()
                if bar is not None:
                    postfix = f"lambda {lam:.3g}, gap {gap:.2e}, goal {target_gap:.2e}"
                    bar.set_postfix_str(postfix, refresh=False)
                    bar.update(len(self.points) - bar.n)
        except KeyboardInterrupt:
            self.status = f"interrupted at lambda = {self.dual_point.lam:.4g}"
        finally:
            if bar is not None:
                bar.close()

    def _check_limits(self) -> bool:
        limits = self.limits
        if self.calls >= limits.max_passes * self.dual_point.n:
            self.status = f"max_passes = {limits.max_passes} passes are used up"
        elif limits.max_seconds is not None and self.seconds >= limits.max_seconds:
            self.status = f"max_seconds = {limits.max_seconds:.3g} seconds are used up"
        return bool(self.status)

    def _move_to_next(self) -> bool:
        """Move to the next lambda; return False to end the run."""
        return not self._check_limits()

    def _accept_point(self) -> PathPoint | None:
        """Make the point of the current lambda; None to retry at another lambda."""
        raise NotImplementedError

    def _record_and_report_point(self) -> None:
        # The list of points and the dual point must change together.
        with defer_sigint():
            point = self._accept_point()
        callback = self.limits.callback
        if point is None or callback is None:
            return
        with point.with_state(self.state):
            if callback(point):
                self.status = self.status or "stopped by the callback"

    def state(self) -> State:
        """Arrays from which ``load`` continues the run."""
        values = [
            (p.lam, p.primal, p.gap, p.oracle_calls, p.seconds, p.begins)
            for p in self.points
        ]
        return {
            **self.dual_point.state(),
            "points": np.array(values),
            "points_w": np.array([p.w for p in self.points]),
            "earlier": np.array(self.previous_oracle_calls),
            "path_seconds": np.array(self.seconds),
            "path_rules": np.array(self.settings),
            **examples_fingerprint(self.problem),
        }

    def load(self, state: State) -> None:
        """Restore the arrays of ``state``; raise for other settings or examples."""
        saved_settings = str(state.get("path_rules", f"no state of a {self.name}"))
        if saved_settings != self.settings:
            raise ValueError(
                f"resume: expected a state of {self.settings}, got one of"
                f" {saved_settings}"
            )
        require_same_examples("resume", self.problem, state)
        self.dual_point.load(state)
        self.points = [
            PathPoint(lam, w.copy(), primal, gap, int(calls), seconds, begins)
            for (lam, primal, gap, calls, seconds, begins), w in zip(
                state["points"].tolist(), state["points_w"], strict=True
            )
        ]
        self.previous_oracle_calls = int(state["earlier"])
        self._previous_seconds = float(state["path_seconds"])
