"""Run along the regularisation path, from breakpoint to breakpoint."""

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
    initial_dual_point,
)
from smoothsp.linear.solvers.path.points import PointLimits, PointRun
from smoothsp.linear.solvers.path.solution import PathPoint, PathSolution

# Log-ratio of neighbouring lambdas: initial value, maximum, largest factor of change.
_INITIAL_LOG_STEP, _MAX_LOG_STEP, _MAX_STEP_CHANGE = 2.0, 2.5, 2.0
# The path is flat if lambda decreases by this factor without effect on the minimum.
_FLAT_RATIO = 10.0
# Targeted bound between breakpoints over eps; expected gap of a breakpoint over its
# target.
_BOUND_TARGET, _EXPECTED_GAP = 0.95, 0.95


@dataclass(frozen=True)
class PathSettings:
    """Parameters of a path, validated."""

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
    def target_gap(self) -> float:
        """Largest gap of a breakpoint."""
        return self.kappa * self.eps

    def __str__(self) -> str:
        return f"eps={self.eps!r} kappa={self.kappa!r} {self.step_settings}"


class PathRun(PointRun):
    """Breakpoints so far, and the dual point at a smaller lambda."""

    name, unit = "path", " breakpoints"

    def __init__(
        self, settings: PathSettings, problem: Any, resume: State | None
    ) -> None:
        super().__init__(problem, settings.limits, str(settings))
        self.path_settings, self.log_step = settings, _INITIAL_LOG_STEP
        self.complete, self.flat = False, False
        if resume is None:
            with np.errstate(over="ignore", invalid="ignore"):
                initial = initial_dual_point(
                    problem, settings.step_settings, settings.target_gap
                )
            self.dual_point, self.lam_infinity, self.separable_lambda = initial
            self._record_and_report_point()
            if not self.lam_infinity:
                self.complete = True
                self.status = "complete: weights 0 are optimal for every lambda"
        else:
            self.dual_point = DualPoint(problem, 1.0, settings.step_settings)
            with states.open_state(resume) as opened:
                self.load(opened)

    def _check_limits(self) -> bool:
        settings = self.path_settings
        if len(self.points) >= settings.max_points:
            self.status = f"max_points = {settings.max_points} breakpoints are reached"
        elif self._lowest_covered_lambda() < settings.smallest:
            self.status = f"lambda is below smallest = {settings.smallest:.3g}"
        return bool(self.status) or super()._check_limits()

    def _accept_point(self) -> PathPoint | None:
        dual_point = self.dual_point
        lam, w = dual_point.lam, dual_point.engine.w
        certificate = (
            dual_point.primal,
            dual_point.gap,
            dual_point.oracle_calls,
            self.seconds,
        )
        point = PathPoint(lam, w, *certificate, begins=lam)
        if not self.points:
            point = dataclasses.replace(point, begins=math.inf)
        else:
            begins, bound = crossing_lambda(self.points[-1], point)
            self._update_log_step(point, bound)
            # Too far if above eps: solve at a lambda nearer to the last breakpoint.
            if bound > self.path_settings.eps:
                previous_lambda = self.points[-1].lam
                nearer_lambda = previous_lambda * math.exp(-self.log_step)
                if nearer_lambda < previous_lambda:
                    dual_point.scale_weights(nearer_lambda / lam)
                else:
                    self.status = self._precision_message()
                return None
            point = dataclasses.replace(point, begins=begins)
        self._decrease_lambda(w)
        self.points.append(point)
        return point

    def _precision_message(self) -> str:
        dual_point = self.dual_point
        return (
            f"rounding exceeds eps = {self.path_settings.eps:.3g} at an objective of"
            f" {dual_point.primal:.3g} at lambda = {dual_point.lam:.3g}"
        )

    def _update_log_step(self, point: PathPoint, bound: float) -> None:
        """Update the log-ratio to the next lambda.

        The bound minus the mean gap is about quadratic in the log-ratio.
        """
        previous, settings = self.points[-1], self.path_settings
        log_ratio = math.log(previous.lam / point.lam)
        excess = max(bound - (previous.gap + point.gap) / 2, 1e-9 * settings.eps)
        allowed_excess = max(
            _BOUND_TARGET * settings.eps - _EXPECTED_GAP * settings.target_gap, 0.0
        )
        change = min(
            max(math.sqrt(allowed_excess / excess), 1 / _MAX_STEP_CHANGE),
            _MAX_STEP_CHANGE,
        )
        # A rejected breakpoint must be followed by a smaller step.
        if bound > settings.eps:
            change = min(change, 0.8)
        self.log_step = min(change * log_ratio, _MAX_LOG_STEP)

    def _is_flat(self, w: Floats) -> bool:
        """Whether the minimum at 10 lambda exceeds that at lambda by at most eps.

        The minimum at 10 lambda is at most the objective of these weights there. The
        test holds only for lambdas at which separable examples would be fitted.
        """
        dual_point, norm = self.dual_point, float(np.dot(w, w))
        change = dual_point.gap + (_FLAT_RATIO - 1) * dual_point.lam / 2 * norm
        is_small = dual_point.lam <= min(
            self.lam_infinity / dual_point.n, self.separable_lambda
        )
        return is_small and change <= self.path_settings.eps

    def _decrease_lambda(self, w: Floats) -> None:
        """Move to the next lambda with equal weights."""
        dual_point, settings = self.dual_point, self.path_settings
        # gap_i = hinge_i / n - delta_i; at rho lambda it grows by (1 - rho) delta_i.
        gap_slopes = (
            dual_point.engine.hinges / dual_point.n - dual_point.engine.gap_estimates
        )
        slope, slack = float(gap_slopes.sum()), settings.eps - dual_point.gap
        if slope <= slack:
            self.complete = True
            self.status = (
                "complete: the last weights are within eps for every smaller lambda"
            )
            return
        if settings.stop_when_flat and self._is_flat(w):
            self.flat = True
            self.status = (
                f"flat: no weights fit these data. The mean hinge is still"
                f" {slope + dual_point.gap:.3g}, above eps = {settings.eps:.3g}, and"
                f" the minimum at lambda = {_FLAT_RATIO * dual_point.lam:.3g} is within"
                f" eps of that at {dual_point.lam:.3g}"
            )
        # Eq. (13): rho at which the gap of the current weights is eps.
        rho = 1 - slack / slope
        rho = min(
            rho, max(math.exp(-self.log_step), settings.smallest / dual_point.lam)
        )
        if not rho * dual_point.lam < dual_point.lam:
            self.status = self.status or self._precision_message()
            return
        dual_point.shrink_duals(rho, gap_slopes)

    def _lowest_covered_lambda(self) -> float:
        """Smallest lambda at which the last weights are within eps of the minimum."""
        if self.complete:
            return 0.0
        last_point = self.points[-1]
        rho = 1 - (self.path_settings.eps - last_point.gap) / (
            mean_hinge(last_point) - last_point.gap
        )
        return rho * last_point.lam

    def solution(self) -> PathSolution:
        """Solution with the current weights and the last certificate."""
        return PathSolution(
            points=self.points,
            ends_at=self._lowest_covered_lambda(),
            eps=self.path_settings.eps,
            lam_infinity=self.lam_infinity,
            complete=self.complete,
            flat=self.flat,
            oracle_calls=self.calls,
            seconds=self.seconds,
            status=self.status,
            state=states.add_checksums(self.state()),
        )

    def state(self) -> State:
        """Arrays from which ``load`` continues the run."""
        return {
            **super().state(),
            "infinity": np.array(self.lam_infinity),
            "alone": np.array(self.separable_lambda),
            "complete": np.array(self.complete),
            "stride": np.array(self.log_step),
        }

    def load(self, state: State) -> None:
        """Restore the arrays of ``state``; raise for other settings or examples."""
        super().load(state)
        self.lam_infinity, self.separable_lambda = (
            float(state["infinity"]),
            float(state["alone"]),
        )
        self.log_step = float(state["stride"])
        if state["complete"]:
            self.complete, self.status = True, "complete: the path was finished before"


def mean_hinge(point: PathPoint) -> float:
    """Mean hinge loss at the weights of a breakpoint."""
    return point.primal - point.lam / 2 * float(np.dot(point.w, point.w))


def dual_chord(above: PathPoint, below: PathPoint, lam: float) -> float:
    """Lower bound of the minimum between two breakpoints, linear in lambda."""
    weight = (lam - below.lam) / (above.lam - below.lam)
    low, high = below.primal - below.gap, above.primal - above.gap
    return low + weight * (high - low)


def crossing_lambda(above: PathPoint, below: PathPoint) -> tuple[float, float]:
    r"""Lambda at which the path switches to the second breakpoint, and the bound.

    At this lambda both weights have equal objectives. It is an end of the interval if
    the objective of one of them is smaller everywhere. The bound holds for the excess
    of either there. Elsewhere between the breakpoints the excess is at most this bound
    or one of the two gaps.

    Notes
    -----
    For fixed weights ``P_lambda(w) = lambda/2 ||w||^2 + H(w)`` is linear in lambda, H
    the mean hinge. With ``u = (1/n) sum_i sum_y alpha_i(y) psi_i(y)`` the dual
    objective is

        D_lambda(alpha) = ell(alpha) - ||u(alpha)||^2 / (2 lambda),

    jointly concave in alpha and lambda, since ``||u||^2 / lambda`` is jointly convex.
    Between dual points alpha at lambda and beta at kappa, mixtures therefore have a
    dual objective above the chord. ``P_lambda(w)`` minus the chord, which is linear in
    lambda, bounds the excess of w.
    """
    hinges = mean_hinge(below) - mean_hinge(above)
    half_squared_norms = float(np.dot(above.w, above.w) - np.dot(below.w, below.w)) / 2
    # The largest of both objectives is smallest where they cross.
    lams = [above.lam, below.lam]
    if half_squared_norms and below.lam < hinges / half_squared_norms < above.lam:
        lams.append(hinges / half_squared_norms)
    return min(
        ((lam, _gap_bound_between(above, below, lam)) for lam in lams),
        key=lambda candidate: candidate[1],
    )


def _gap_bound_between(above: PathPoint, below: PathPoint, lam: float) -> float:
    objectives = [
        point.primal + (lam - point.lam) / 2 * float(np.dot(point.w, point.w))
        for point in (above, below)
    ]
    return max(objectives) - dual_chord(above, below, lam)
