"""One walk down the regularisation path, breakpoint by breakpoint."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from smoothsp.linear import _checks
from smoothsp.linear.solvers import _plan
from smoothsp.linear.solvers._first_piece import begin
from smoothsp.linear.solvers._walk import Manner, State, Walk
from smoothsp.linear.solvers.path_solution import PathPoint, PathSolution

# How much further down than with the same weights the same dual variables are tried, at
# first, after a success and after a failure: exponents of rho, down to 1.
_STRIDE, _LONGER, _SHORTER = 4.0, 1.2, 0.7


@dataclass(frozen=True)
class Rules:
    """The parameters of a path, checked."""

    eps: float
    kappa: float
    certified: bool
    smallest: float
    manner: Manner
    max_points: int
    max_passes: int
    max_seconds: float | None
    callback: Callable[[PathPoint], Any] | None
    progress: bool

    def __post_init__(self) -> None:
        _checks.positive("eps", self.eps)
        if _checks.positive("kappa", self.kappa) >= 1:
            raise ValueError(f"kappa: expected a number below 1, got {self.kappa}")
        _checks.flag("certified", self.certified)
        _checks.positive("smallest", self.smallest)
        _checks.count("max_points", self.max_points)
        _checks.count("max_passes", self.max_passes)
        _plan.seconds_of(self.max_seconds)
        _checks.flag("progress", self.progress)
        if self.callback is not None and not callable(self.callback):
            raise TypeError(
                f"callback: expected a callable or None, got {self.callback!r}"
            )

    @property
    def goal(self) -> float:
        """The gap to reach at a breakpoint."""
        return self.kappa * self.eps

    def __str__(self) -> str:
        return (
            f"eps={self.eps!r} kappa={self.kappa!r} certified={self.certified} "
            f"{self.manner}"
        )


class PathRun:
    """The breakpoints so far, and the walk that stands below the last one."""

    def __init__(self, rules: Rules, problem: Any, resume: State | None) -> None:
        self.rules, self.problem = rules, problem
        self._start, self._before = time.perf_counter(), 0.0
        self.points: list[PathPoint] = []
        self.stride = _STRIDE if rules.certified else 0.0
        self.status, self.complete = "", False
        if resume is None:
            self.walk, self.infinity = begin(problem, rules.manner, rules.goal)
            self._reach()
            if not self.infinity:
                self.complete = True
                self.status = "complete: weights 0 are optimal for every lambda"
        else:
            self.walk = Walk(problem, 1.0, rules.manner)
            self._load(resume)

    @property
    def seconds(self) -> float:
        """Since the beginning, earlier runs included."""
        return self._before + time.perf_counter() - self._start

    def follow(self) -> None:
        """To the end of the path, or of a budget."""
        rules, bar = self.rules, None
        try:
            if rules.progress:
                from tqdm import tqdm

                bar = tqdm(desc="path", unit=" breakpoints", initial=len(self.points))
            while not self.status and not self._spent():
                gap = self.walk.to_gap(rules.goal, rules.certified, self._spent)
                if gap is None:
                    break
                lam = self.walk.lam
                self._reach()
                if bar is not None:
                    bar.set_postfix_str(
                        f"lambda {lam:.3g}, gap {gap:.2e}, goal {rules.goal:.2e}",
                        refresh=False,
                    )
                    bar.update()
        except KeyboardInterrupt:
            self.status = f"interrupted at lambda = {self.walk.lam:.4g}"
        finally:
            if bar is not None:
                bar.close()

    def _spent(self) -> bool:
        rules = self.rules
        if len(self.points) >= rules.max_points:
            self.status = f"max_points = {rules.max_points} breakpoints are reached"
        elif self.walk.lam < rules.smallest:
            self.status = f"lambda is below smallest = {rules.smallest:.3g}"
        elif self.walk.oracle_calls >= rules.max_passes * self.walk.n:
            self.status = f"max_passes = {rules.max_passes} passes are used up"
        elif rules.max_seconds is not None and self.seconds >= rules.max_seconds:
            self.status = f"max_seconds = {rules.max_seconds:.3g} seconds are used up"
        return bool(self.status)

    def _reach(self) -> None:
        """A breakpoint: keep its weights, and go down as far as they are good."""
        walk = self.walk
        lam, w = walk.lam, walk.engine.w
        known = walk.primal, walk.gap, walk.oracle_calls, self.seconds
        grows = self._go_down()
        point = PathPoint(lam, w, *known, grows)
        self.points.append(point)
        if self.rules.callback is not None and self.rules.callback(point):
            self.status = self.status or "stopped by the callback"

    def _go_down(self) -> bool:
        """To the next lambda that needs work; whether weights grow on the way."""
        walk, eps = self.walk, self.rules.eps
        if self.rules.certified:
            # the gap of an example is its hinge over n less delta_i
            delta = walk.engine.hinges / walk.n - walk.engine.estimates
        else:
            delta = np.maximum(walk.expected_hinges(), 0)
        total, slack = float(delta.sum()), eps - walk.gap
        if total <= slack:
            self.complete = True
            self.status = "complete: the last weights are good for every smaller lambda"
            return False
        rho = 1 - slack / total
        if self.stride > 1:
            if walk.grow(rho**self.stride, eps):
                self.stride *= _LONGER
                return True
            self.stride *= _SHORTER
        walk.mix_with_gold(rho, delta)
        return False

    def solution(self) -> PathSolution:
        """The outcome."""
        return PathSolution(
            points=self.points,
            ends_at=0.0 if self.complete else self.walk.lam,
            eps=self.rules.eps,
            certified=self.rules.certified,
            lam_infinity=self.infinity,
            complete=self.complete,
            oracle_calls=self.walk.oracle_calls,
            seconds=self.seconds,
            status=self.status,
            state=self._state(),
        )

    def _state(self) -> State:
        numbers = [
            (p.lam, p.primal, p.gap, p.oracle_calls, p.seconds, p.grows)
            for p in self.points
        ]
        return {
            **self.walk.state(),
            "points": np.array(numbers),
            "points_w": np.array([p.w for p in self.points]),
            "infinity": np.array(self.infinity),
            "complete": np.array(self.complete),
            "stride": np.array(self.stride),
            "path_seconds": np.array(self.seconds),
            "path_rules": np.array(str(self.rules)),
        }

    def _load(self, state: State) -> None:
        found = str(state.get("path_rules", "no state of a path"))
        if found != str(self.rules):
            raise ValueError(
                f"resume: expected a state of {self.rules}, got one of {found}"
            )
        self.walk.load(state)
        self.points = [
            PathPoint(lam, w.copy(), primal, gap, int(calls), seconds, bool(grows))
            for (lam, primal, gap, calls, seconds, grows), w in zip(
                state["points"].tolist(), state["points_w"], strict=True
            )
        ]
        self.infinity = float(state["infinity"])
        self.stride = float(state["stride"])
        self._before = float(state["path_seconds"])
        if state["complete"]:
            self.complete, self.status = True, "complete: there is nothing left to do"
