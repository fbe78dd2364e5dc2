"""One way down the regularisation path, breakpoint by breakpoint."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from smoothsp.linear.inputs import checks, states
from smoothsp.linear.solvers.path.dual_point import (
    DualPoint,
    Floats,
    State,
    StepSettings,
    begin,
)
from smoothsp.linear.solvers.path.points import PointLimits, PointRun
from smoothsp.linear.solvers.path.solution import PathPoint, PathSolution

# Logarithm of the ratio of neighbouring lambda: at first, at most, and by how much it
# may change at once.
_STRIDE, _LONGEST, _CHANGE = 2.0, 2.5, 2.0
# How far lambda has to fall without an effect on the minimum.
_FLAT = 10.0
# What the bound between two breakpoints should come to, and what their gaps do, over
# eps and the goal.
_AIM, _REACHED = 0.95, 0.95


@dataclass(frozen=True)
class Rules:
    """The parameters of a path, checked."""

    eps: float
    kappa: float
    smallest: float
    stop_when_flat: bool
    step_settings: StepSettings
    max_points: int
    limits: PointLimits

    def __post_init__(self) -> None:
        checks.as_positive("eps", self.eps)
        if checks.as_positive("kappa", self.kappa) >= 1:
            raise ValueError(f"kappa: expected a number below 1, got {self.kappa}")
        checks.as_positive("smallest", self.smallest)
        checks.as_bool("stop_when_flat", self.stop_when_flat)
        checks.as_positive_int("max_points", self.max_points)

    @property
    def goal(self) -> float:
        """The gap to reach at a breakpoint."""
        return self.kappa * self.eps

    def __str__(self) -> str:
        return f"eps={self.eps!r} kappa={self.kappa!r} {self.step_settings}"


class PathRun(PointRun):
    """The breakpoints so far, and the dual point below the last one."""

    name, unit = "path", " breakpoints"

    def __init__(self, rules: Rules, problem: Any, resume: State | None) -> None:
        super().__init__(problem, rules.limits, str(rules))
        self.rules, self.stride = rules, _STRIDE
        self.complete, self.flat = False, False
        if resume is None:
            with np.errstate(over="ignore", invalid="ignore"):
                found = begin(problem, rules.step_settings, rules.goal)
            self.dual_point, self.infinity, self.alone = found
            self._reach()
            if not self.infinity:
                self.complete = True
                self.status = "complete: weights 0 are optimal for every lambda"
        else:
            self.dual_point = DualPoint(problem, 1.0, rules.step_settings)
            with states.open_state(resume) as given:
                self.load(given)

    def _spent(self) -> bool:
        rules = self.rules
        if len(self.points) >= rules.max_points:
            self.status = f"max_points = {rules.max_points} breakpoints are reached"
        elif self._end() < rules.smallest:
            self.status = f"lambda is below smallest = {rules.smallest:.3g}"
        return bool(self.status) or super()._spent()

    def _add(self) -> PathPoint | None:
        dual_point = self.dual_point
        lam, w = dual_point.lam, dual_point.engine.w
        known = dual_point.primal, dual_point.gap, dual_point.oracle_calls, self.seconds
        point = PathPoint(lam, w, *known, begins=lam)
        if not self.points:
            point = dataclasses.replace(point, begins=math.inf)
        else:
            begins, bound = crossing_lambda(self.points[-1], point)
            self._learn(point, bound)
            if bound > self.rules.eps:
                last = self.points[-1].lam
                nearer = last * math.exp(-self.stride)
                if nearer < last:
                    dual_point.scale_weights(nearer / lam)
                else:
                    self.status = self._rounded()
                return None
            point = dataclasses.replace(point, begins=begins)
        self._decrease_lambda(w)
        self.points.append(point)
        return point

    def _rounded(self) -> str:
        dual_point = self.dual_point
        return (
            f"rounding hides eps = {self.rules.eps:.3g} of an objective of"
            f" {dual_point.primal:.3g} at lambda = {dual_point.lam:.3g}"
        )

    def _learn(self, point: PathPoint, bound: float) -> None:
        """Update the distance to the next breakpoint.

        What the bound exceeds the two gaps by is about quadratic in the stride.
        """
        before, rules = self.points[-1], self.rules
        taken = math.log(before.lam / point.lam)
        excess = max(bound - (before.gap + point.gap) / 2, 1e-9 * rules.eps)
        wanted = max(_AIM * rules.eps - _REACHED * rules.goal, 0.0)
        change = min(max(math.sqrt(wanted / excess), 1 / _CHANGE), _CHANGE)
        if bound > rules.eps:
            change = min(change, 0.8)
        self.stride = min(change * taken, _LONGEST)

    def _is_flat(self, w: Floats) -> bool:
        """Whether a tenth of lambda changed the minimum by eps at most.

        It cannot be more at 10 lambda than these weights have there. Where lambda is so
        large that examples need not be fitted yet, that says nothing.
        """
        dual_point, norm = self.dual_point, float(np.dot(w, w))
        change = dual_point.gap + (_FLAT - 1) * dual_point.lam / 2 * norm
        small = dual_point.lam <= min(self.infinity / dual_point.n, self.alone)
        return small and change <= self.rules.eps

    def _decrease_lambda(self, w: Floats) -> None:
        """Move to the next lambda with equal weights."""
        dual_point, rules = self.dual_point, self.rules
        # the gap of an example is its hinge over n less delta_i
        delta = (
            dual_point.engine.hinges / dual_point.n - dual_point.engine.gap_estimates
        )
        total, slack = float(delta.sum()), rules.eps - dual_point.gap
        if total <= slack:
            self.complete = True
            self.status = "complete: the last weights are good for every smaller lambda"
            return
        if rules.stop_when_flat and self._is_flat(w):
            self.flat = True
            self.status = (
                f"flat: no weights fit these data. The mean hinge is still"
                f" {total + dual_point.gap:.3g}, above eps = {rules.eps:.3g}, and the"
                f" minimum at lambda = {_FLAT * dual_point.lam:.3g} is within eps of"
                f" that at {dual_point.lam:.3g}"
            )
        rho = 1 - slack / total
        rho = min(rho, max(math.exp(-self.stride), rules.smallest / dual_point.lam))
        if not rho * dual_point.lam < dual_point.lam:
            self.status = self.status or self._rounded()
            return
        dual_point.shrink_duals(rho, delta)

    def _end(self) -> float:
        """Down to where the last weights are good."""
        if self.complete:
            return 0.0
        last = self.points[-1]
        rho = 1 - (self.rules.eps - last.gap) / (hinge_of(last) - last.gap)
        return rho * last.lam

    def solution(self) -> PathSolution:
        """The outcome."""
        return PathSolution(
            points=self.points,
            ends_at=self._end(),
            eps=self.rules.eps,
            lam_infinity=self.infinity,
            complete=self.complete,
            flat=self.flat,
            oracle_calls=self.calls,
            seconds=self.seconds,
            status=self.status,
            state=states.add_checksums(self.state()),
        )

    def state(self) -> State:
        """All that changes, as arrays."""
        return {
            **super().state(),
            "infinity": np.array(self.infinity),
            "alone": np.array(self.alone),
            "complete": np.array(self.complete),
            "stride": np.array(self.stride),
        }

    def load(self, state: State) -> None:
        """Go on from a state, of the same rules and examples."""
        super().load(state)
        self.infinity, self.alone = float(state["infinity"]), float(state["alone"])
        self.stride = float(state["stride"])
        if state["complete"]:
            self.complete, self.status = True, "complete: there is nothing left to do"


def hinge_of(point: PathPoint) -> float:
    """The mean hinge at the weights of a breakpoint."""
    return point.primal - point.lam / 2 * float(np.dot(point.w, point.w))


def dual_chord(above: PathPoint, below: PathPoint, lam: float) -> float:
    """A bound below the least objective, for lambda between two breakpoints."""
    share = (lam - below.lam) / (above.lam - below.lam)
    low, high = below.primal - below.gap, above.primal - above.gap
    return low + share * (high - low)


def crossing_lambda(above: PathPoint, below: PathPoint) -> tuple[float, float]:
    r"""Lambda at which the second breakpoint's weights take over, and the bound.

    Where both have the same objective, or at an end of the interval if one has the
    smaller one everywhere. The bound is that on the excess of either; elsewhere between
    the two breakpoints it is at most this or one of their gaps.

    Notes
    -----
    For fixed weights ``P_lambda(w) = lambda/2 ||w||^2 + H(w)`` is linear in lambda, H
    the mean hinge. With ``u = (1/n) sum_i sum_y alpha_i(y) psi_i(y)`` the dual
    objective is

        D_lambda(alpha) = ell(alpha) - ||u(alpha)||^2 / (2 lambda),

    jointly concave in alpha and lambda, since ``||u||^2 / lambda`` is jointly convex.
    So between dual points alpha at lambda and beta at kappa the mixed ones keep D above
    the chord, and ``P_lambda(w)`` less the chord, linear, bounds the excess of w.
    """
    hinges = hinge_of(below) - hinge_of(above)
    squares = float(np.dot(above.w, above.w) - np.dot(below.w, below.w)) / 2
    lams = [above.lam, below.lam]
    if squares and below.lam < hinges / squares < above.lam:
        lams.append(hinges / squares)
    return min(
        ((lam, _excess(above, below, lam)) for lam in lams), key=lambda found: found[1]
    )


def _excess(above: PathPoint, below: PathPoint, lam: float) -> float:
    objectives = [
        point.primal + (lam - point.lam) / 2 * float(np.dot(point.w, point.w))
        for point in (above, below)
    ]
    return max(objectives) - dual_chord(above, below, lam)
