"""Dual variables that are continued from one lambda to the next."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.compilation.interrupts import defer_sigint
from smoothsp.linear.engines import run_monitor
from smoothsp.linear.engines.dual_passes import REBUILD_PERIOD, STOP_SAMPLING_FRACTION
from smoothsp.linear.engines.run_monitor import require_finite_certificate
from smoothsp.linear.engines.runner import make_engine, run_block_pass
from smoothsp.linear.inputs import arrays, checks
from smoothsp.linear.problems import LinearProblem

Floats = NDArray[np.float64]
State = dict[str, NDArray[Any]]

# Lambda at which scores are negligible beside costs: the oracle returns the costliest
# outputs, and steps have length 1. A power of two, so that multiplication is exact.
_HUGE_LAMBDA = 2.0**100
# Factor of weights at which costs are negligible beside scores.
_HUGE_SCALE = 2.0**20


@dataclasses.dataclass(frozen=True)
class StepSettings:
    """Settings of steps: parameters of BCFW that do not depend on lambda."""

    sampling: str
    steps: str
    cache: bool
    seed: int
    refresh_every: int
    # Excluded from repr and ==, which are ambiguous for arrays.
    bounds: tuple[Any, Any] | None = dataclasses.field(
        default=None, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        run_monitor.check_bounds(self.bounds)
        checks.require_choice("sampling", self.sampling, run_monitor.SAMPLINGS)
        checks.require_choice("steps", self.steps, run_monitor.STEP_RULES)
        checks.as_bool("cache", self.cache)
        run_monitor.check_seed(self.seed)
        checks.as_positive_int("refresh_every", self.refresh_every)

    def __str__(self) -> str:
        if self.bounds is None:
            return repr(self)
        pairs = zip(self.bounds, (-math.inf, math.inf), strict=True)
        bounds = [
            np.asarray(default if x is None else x, float) for x, default in pairs
        ]
        return f"{self!r} bounds={arrays.checksum(*bounds)}"

    def engine_settings(self, lam: float) -> run_monitor.EngineSettings:
        """Settings of the engine at one lambda."""
        lower, upper = run_monitor.check_bounds(self.bounds)
        return run_monitor.EngineSettings(
            lam=lam,
            step_rule=run_monitor.STEP_RULES.index(self.steps),
            uses_cache=self.cache,
            cache_local=0.25,
            cache_global=0.01,
            cache_size=50 if self.cache else run_monitor.NO_CACHE_LIMIT,
            averages=False,
            lower=lower,
            upper=upper,
        )


class DualPoint:
    """Dual variables that improve at one lambda and move to the next.

    ``has_exact_gaps``: whether the gap estimates are exact.
    """

    def __init__(
        self, problem: LinearProblem, lam: float, step_settings: StepSettings
    ) -> None:
        self.problem, self.step_settings = problem, step_settings
        self.engine: Any = make_engine(problem, step_settings.engine_settings(lam))
        self.rng = np.random.Generator(np.random.PCG64(step_settings.seed))
        self.n = len(problem)
        self.engine.hinges = np.zeros(self.n)
        self.passes_since_certificate, self.has_exact_gaps = 0, False
        # oracle calls outside the engine
        self.extra_oracle_calls = 0
        self.primal = self.gap = math.nan

    @property
    def lam(self) -> float:
        """The lambda of the dual point."""
        return float(self.engine.settings.lam)

    @property
    def oracle_calls(self) -> int:
        """Oracle calls of this dual point so far, including certificates."""
        return int(self.engine.oracle_calls) + self.extra_oracle_calls

    def compute_certificate(self) -> float:
        """Compute the exact gap of each example; return their sum."""
        engine = self.engine
        if engine.num_certificates % REBUILD_PERIOD == REBUILD_PERIOD - 1:
            engine.rebuild_weights()
        certificate = engine.compute_certificate()
        require_finite_certificate(self.problem, *certificate)
        self.primal, _, self.gap = certificate
        self.passes_since_certificate, self.has_exact_gaps = 0, True
        return self.gap

    def run_to_gap(
        self, target_gap: float, is_exhausted: Callable[[], bool]
    ) -> float | None:
        """Make passes until the gap is <= ``target_gap``; None if a limit ends them."""
        gap_floor = STOP_SAMPLING_FRACTION * target_gap
        while True:
            estimated_gap = float(self.engine.gap_estimates.sum())
            if estimated_gap <= target_gap and self.has_exact_gaps:
                self.gap = estimated_gap
                return estimated_gap
            is_overdue = (
                self.passes_since_certificate >= self.step_settings.refresh_every
            )
            if not self.has_exact_gaps and (is_overdue or estimated_gap <= gap_floor):
                self.compute_certificate()
            elif is_exhausted():
                return None
            else:
                self.has_exact_gaps = False
                with defer_sigint(self.engine.compiled):
                    run_block_pass(
                        self.engine, self.rng, self.step_settings.sampling, gap_floor
                    )
                    self.passes_since_certificate += 1

    # another lambda

    def shrink_duals(self, rho: float, gap_slopes: Floats) -> None:
        """Move to ``rho lambda`` with equal weights; exact gaps stay exact.

        ``g_i <- g_i + (1 - rho) delta_i`` with ``delta_i = ell_i - lambda <w_i, w>``
        (proposition 1).
        """
        engine = self.engine
        engine.shrink_duals(rho)
        gaps = engine.gap_estimates + (1 - rho) * gap_slopes
        engine.gap_estimates[:] = np.maximum(gaps, 0)
        w = engine.w
        # Only the regulariser of the primal changes, by (1 - rho) lambda / 2 |w|^2.
        self.primal -= (1 - rho) * self.lam / 2 * float(np.dot(w, w))
        self.gap = float(engine.gap_estimates.sum())
        self._set_lambda(rho, self.gap)

    def scale_weights(self, rho: float) -> None:
        """Move to ``rho lambda`` with equal dual variables: ``w <- w / rho``."""
        self.engine.scale_weights(1 / rho)
        self.engine.gap_estimates[:] = math.inf
        self.has_exact_gaps = False
        self._set_lambda(rho, 0.0)

    def _set_lambda(self, rho: float, gap: float) -> None:
        engine = self.engine
        engine.settings = dataclasses.replace(engine.settings, lam=rho * self.lam)
        # Gap 0 disables the global term of the cache rule.
        engine.last_gap = gap if self.has_exact_gaps else 0.0

    # saving

    def state(self) -> State:
        """Arrays from which ``load`` continues the run."""
        return {
            **self.engine.state(),
            "walk": np.array(
                [
                    self.lam,
                    self.passes_since_certificate,
                    self.has_exact_gaps,
                    self.extra_oracle_calls,
                ]
            ),
            "measured_last": np.array([self.primal, self.gap]),
            "stream": run_monitor.save_rng(self.rng),
            "hinges": self.engine.hinges,
        }

    def load(self, state: State) -> None:
        """Restore the arrays of ``state``."""
        lam, passes_since_certificate, has_exact_gaps, extra_oracle_calls = state[
            "walk"
        ]
        self.engine.settings = dataclasses.replace(self.engine.settings, lam=float(lam))
        self.engine.load(state)
        self.engine.hinges = np.array(state["hinges"])
        self.passes_since_certificate, self.has_exact_gaps, self.extra_oracle_calls = (
            int(passes_since_certificate),
            bool(has_exact_gaps),
            int(extra_oracle_calls),
        )
        self.primal, self.gap = np.asarray(state["measured_last"]).tolist()
        self.rng = run_monitor.load_rng(state["stream"])


def check_cone_bounds(bounds: Any) -> tuple[Any, Any] | None:
    """Validate bounds of a cone: 0 or None, kept by positive multiples."""
    for name, bound, default in zip(
        ("lower", "upper"),
        run_monitor.check_bounds(bounds),
        (-math.inf, math.inf),
        strict=True,
    ):
        bound_array = np.asarray(default if bound is None else bound, dtype=np.float64)
        wrong = (bound_array != 0) & (bound_array != default)
        if wrong.any():
            raise ValueError(
                f"bounds: expected {default} or 0 as {name} bound of each weight, got"
                f" {bound_array[wrong][0]}: on a path weights are multiplied by ratios"
                " of lambda; use BCFW or grid_search"
            )
    return bounds  # type: ignore[no-any-return]


def initial_dual_point(
    problem: Any, step_settings: StepSettings, target_gap: float
) -> tuple[DualPoint, float, float]:
    """Return a dual point optimal up to ``target_gap`` at lambda^inf and above.

    Also returns lambda^inf, and the lambda below which single examples are separated.

    Dual variables with all weight on the costliest outputs ``y~_i = argmax_y L_i(y)``
    have the weights ``psi~ / lambda`` for ``psi~ = (1/n) sum_i psi_i(y~_i)``. Their gap
    is at most

        (||psi~||^2 + (1/n) sum_i theta_i) / lambda,  theta_i = max_y -<psi~, psi_i(y)>.

    With bounds psi~ is clipped to them. If psi~ is 0, so is lambda^inf, and weights 0
    are optimal for all lambda. At the last lambda returned, each example would have
    hinge 0 if it shared no features with other examples.

    Notes
    -----
    Source: Osokin et al., "Minding the Gaps", section 4 and algorithm 6.
    """
    dual_point = DualPoint(problem, _HUGE_LAMBDA, step_settings)
    engine, n = dual_point.engine, dual_point.n
    engine.last_gap = 0.0
    engine.visit_in_order(np.arange(n))
    psi, separable_lambda = _HUGE_LAMBDA * engine.w, _separable_lambda(dual_point)
    norm = float(np.dot(psi, psi))
    if not norm:
        dual_point.scale_weights(1 / _HUGE_LAMBDA)
        dual_point.compute_certificate()
        return dual_point, 0.0, separable_lambda
    # The oracle without costs, by a scale at which costs are negligible.
    theta = engine.problem.hinges(_HUGE_SCALE * psi) / _HUGE_SCALE
    dual_point.extra_oracle_calls += n
    # A huge target gap must not give weights whose squares overflow.
    lam_infinity = max((norm + float(theta.mean())) / target_gap, norm / _HUGE_LAMBDA)
    dual_point.scale_weights(lam_infinity / _HUGE_LAMBDA)
    dual_point.compute_certificate()
    return dual_point, lam_infinity, separable_lambda


def _separable_lambda(dual_point: DualPoint) -> float:
    """Smallest ``|psi_i|^2 / (n L_i)`` over examples, for the costliest outputs."""
    n = dual_point.n
    costs, squared_norms = dual_point.engine.expected_costs_and_squared_norms()
    is_positive = (squared_norms > 0) & (costs > 0)
    return float(
        (squared_norms[is_positive] / (n * costs[is_positive])).min(initial=math.inf)
    )
