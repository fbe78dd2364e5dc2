"""A dual point of one problem that goes from one lambda to the next."""

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

# So large that scores are nothing beside costs: whole steps to the worst outputs.
_HUGE_LAMBDA = 2.0**100
# Times weights: costs are nothing beside scores.
_HUGE_SCALE = 2.0**20


@dataclasses.dataclass(frozen=True)
class StepSettings:
    """Settings of steps: parameters of BCFW that do not depend on lambda."""

    sampling: str
    steps: str
    cache: bool
    seed: int
    refresh_every: int
    # of the weights; arrays neither print nor compare well
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
        """Plan of a solver at one lambda."""
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
    """A dual point that moves at one lambda, and then from one lambda to the next.

    ``exact`` tells whether the estimates are the gaps themselves.
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
        # calls of the oracle that the engine does not count
        self.extra_oracle_calls = 0
        self.primal = self.gap = math.nan

    @property
    def lam(self) -> float:
        """The lambda of the dual point."""
        return float(self.engine.engine_settings.lam)

    @property
    def oracle_calls(self) -> int:
        """Oracle calls of this dual point so far, including certificates."""
        return int(self.engine.oracle_calls) + self.extra_oracle_calls

    def compute_certificate(self) -> float:
        """The exact gap of each example, and their sum."""
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
        """Steps until the gap is at most ``goal``; None if a budget ends before."""
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

        ``g_i <- g_i + (1 - rho) delta_i``
        """
        engine = self.engine
        engine.shrink_duals(rho)
        gaps = engine.gap_estimates + (1 - rho) * gap_slopes
        engine.gap_estimates[:] = np.maximum(gaps, 0)
        w = engine.w
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
        engine.engine_settings = dataclasses.replace(
            engine.engine_settings, lam=rho * self.lam
        )
        # a gap of 0 turns the global part of the cache's criterion off
        engine.last_gap = gap if self.has_exact_gaps else 0.0

    # saving

    def state(self) -> State:
        """All that changes, as arrays."""
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
        """Go on from a saved state."""
        lam, passes_since_certificate, has_exact_gaps, extra_oracle_calls = state[
            "walk"
        ]
        self.engine.engine_settings = dataclasses.replace(
            self.engine.engine_settings, lam=float(lam)
        )
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
    """Bounds of weights that may be multiplied by any positive number."""
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
    """A dual point whose gap is at most ``goal`` here and above, lambda^inf, alone.

    All weight on the outputs of largest cost, ``y~_i = argmax_y L_i(y)``, gives with
    ``psi~ = (1/n) sum_i psi_i(y~_i)`` the weights ``psi~ / lambda``, whose gap is at
    most

        (||psi~||^2 + (1/n) sum_i theta_i) / lambda,  theta_i = max_y -<psi~, psi_i(y)>.

    With bounds psi~ stands for what is left of it within them. If psi~ is 0, so is
    lambda^inf, and weights 0 are optimal everywhere. At the third each example would
    be fitted if it had no features in common with others.

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
    theta = engine.problem.hinges(_HUGE_SCALE * psi) / _HUGE_SCALE
    dual_point.extra_oracle_calls += n
    # of a vast goal no smaller one than has weights whose squares are numbers
    lam_infinity = max((norm + float(theta.mean())) / target_gap, norm / _HUGE_LAMBDA)
    dual_point.scale_weights(lam_infinity / _HUGE_LAMBDA)
    dual_point.compute_certificate()
    return dual_point, lam_infinity, separable_lambda


def _separable_lambda(dual_point: DualPoint) -> float:
    """The least ``|psi_i|^2 / (n L_i)`` for the outputs of largest cost."""
    n = dual_point.n
    costs, squared_norms = dual_point.engine.expected_costs_and_squared_norms()
    is_positive = (squared_norms > 0) & (costs > 0)
    return float(
        (squared_norms[is_positive] / (n * costs[is_positive])).min(initial=math.inf)
    )
