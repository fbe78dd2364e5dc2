"""A dual point of one problem that goes from one lambda to the next."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.compilation.interrupts import defer_sigint
from smoothsp.linear.engines import run_monitor
from smoothsp.linear.engines.dual_passes import REBUILD_EVERY, STOP_SAMPLING_FRACTION
from smoothsp.linear.engines.run_monitor import require_finite_certificate
from smoothsp.linear.engines.runner import make_engine, run_block_pass
from smoothsp.linear.inputs import arrays, checks
from smoothsp.linear.problems import LinearProblem

Floats = NDArray[np.float64]
State = dict[str, NDArray[Any]]

# So large that scores are nothing beside costs: whole steps to the worst outputs.
_VAST = 2.0**100
# Times weights: costs are nothing beside scores.
_FAR = 2.0**20


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
        ends = zip(self.bounds, (-math.inf, math.inf), strict=True)
        known = [np.asarray(none if x is None else x, float) for x, none in ends]
        return f"{self!r} bounds={arrays.checksum(*known)}"

    def plan(self, lam: float) -> run_monitor.EngineSettings:
        """Plan of a solver at one lambda."""
        lower, upper = run_monitor.check_bounds(self.bounds)
        return run_monitor.EngineSettings(
            lam=lam,
            steps=run_monitor.STEP_RULES.index(self.steps),
            cached=self.cache,
            local=0.25,
            overall=0.01,
            most=50 if self.cache else run_monitor.NO_CACHE_LIMIT,
            averaging=False,
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
        self.engine: Any = make_engine(problem, step_settings.plan(lam))
        self.stream = np.random.Generator(np.random.PCG64(step_settings.seed))
        self.n = len(problem)
        self.engine.hinges = np.zeros(self.n)
        self.fresh, self.exact = 0, False
        # calls of the oracle that the engine does not count
        self.others = 0
        self.primal = self.gap = math.nan

    @property
    def lam(self) -> float:
        """The lambda of the dual point."""
        return float(self.engine.plan.lam)

    @property
    def oracle_calls(self) -> int:
        """Oracle calls of this dual point so far, including certificates."""
        return int(self.engine.oracle_calls) + self.others

    def compute_certificate(self) -> float:
        """The exact gap of each example, and their sum."""
        engine = self.engine
        if engine.num_certificates % REBUILD_EVERY == REBUILD_EVERY - 1:
            engine.rebuild_weights()
        found = engine.compute_certificate()
        require_finite_certificate(self.problem, *found)
        self.primal, _, self.gap = found
        self.fresh, self.exact = 0, True
        return self.gap

    def to_gap(self, goal: float, spent: Callable[[], bool]) -> float | None:
        """Steps until the gap is at most ``goal``; None if a budget ends before."""
        floor = STOP_SAMPLING_FRACTION * goal
        while True:
            hope = float(self.engine.gap_estimates.sum())
            if hope <= goal and self.exact:
                self.gap = hope
                return hope
            late = self.fresh >= self.step_settings.refresh_every
            if not self.exact and (late or hope <= floor):
                self.compute_certificate()
            elif spent():
                return None
            else:
                self.exact = False
                with defer_sigint(self.engine.compiled):
                    run_block_pass(
                        self.engine, self.stream, self.step_settings.sampling, floor
                    )
                    self.fresh += 1

    # another lambda

    def shrink_duals(self, rho: float, delta: Floats) -> None:
        """Move to ``rho lambda`` with equal weights; exact gaps stay exact.

        ``g_i <- g_i + (1 - rho) delta_i``
        """
        engine = self.engine
        engine.shrink_duals(rho)
        gaps = engine.gap_estimates + (1 - rho) * delta
        engine.gap_estimates[:] = np.maximum(gaps, 0)
        w = engine.w
        self.primal -= (1 - rho) * self.lam / 2 * float(np.dot(w, w))
        self.gap = float(engine.gap_estimates.sum())
        self._arrive(rho, self.gap)

    def scale_weights(self, rho: float) -> None:
        """Move to ``rho lambda`` with equal dual variables: ``w <- w / rho``."""
        self.engine.scale_weights(1 / rho)
        self.engine.gap_estimates[:] = math.inf
        self.exact = False
        self._arrive(rho, 0.0)

    def _arrive(self, rho: float, gap: float) -> None:
        engine = self.engine
        engine.plan = dataclasses.replace(engine.plan, lam=rho * self.lam)
        # a gap of 0 turns the global part of the cache's criterion off
        engine.last_gap = gap if self.exact else 0.0

    # saving

    def state(self) -> State:
        """All that changes, as arrays."""
        return {
            **self.engine.state(),
            "walk": np.array([self.lam, self.fresh, self.exact, self.others]),
            "measured_last": np.array([self.primal, self.gap]),
            "stream": run_monitor.save_rng(self.stream),
            "hinges": self.engine.hinges,
        }

    def load(self, state: State) -> None:
        """Go on from a saved state."""
        lam, fresh, exact, others = state["walk"]
        self.engine.plan = dataclasses.replace(self.engine.plan, lam=float(lam))
        self.engine.load(state)
        self.engine.hinges = np.array(state["hinges"])
        self.fresh, self.exact, self.others = int(fresh), bool(exact), int(others)
        self.primal, self.gap = np.asarray(state["measured_last"]).tolist()
        self.stream = run_monitor.load_rng(state["stream"])


def cone(bounds: Any) -> tuple[Any, Any] | None:
    """Bounds of weights that may be multiplied by any positive number."""
    for name, bound, none in zip(
        ("lower", "upper"),
        run_monitor.check_bounds(bounds),
        (-math.inf, math.inf),
        strict=True,
    ):
        given = np.asarray(none if bound is None else bound, dtype=np.float64)
        wrong = (given != 0) & (given != none)
        if wrong.any():
            raise ValueError(
                f"bounds: expected {none} or 0 as {name} bound of each weight, got"
                f" {given[wrong][0]}: on a path weights are multiplied by ratios of"
                " lambda; use BCFW or grid_search"
            )
    return bounds  # type: ignore[no-any-return]


def begin(
    problem: Any, step_settings: StepSettings, goal: float
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
    dual_point = DualPoint(problem, _VAST, step_settings)
    engine, n = dual_point.engine, dual_point.n
    engine.last_gap = 0.0
    engine.visit_in_order(np.arange(n))
    psi, alone = _VAST * engine.w, _alone(dual_point)
    norm = float(np.dot(psi, psi))
    if not norm:
        dual_point.scale_weights(1 / _VAST)
        dual_point.compute_certificate()
        return dual_point, 0.0, alone
    theta = engine.problem.hinges(_FAR * psi) / _FAR
    dual_point.others += n
    # of a vast goal no smaller one than has weights whose squares are numbers
    infinity = max((norm + float(theta.mean())) / goal, norm / _VAST)
    dual_point.scale_weights(infinity / _VAST)
    dual_point.compute_certificate()
    return dual_point, infinity, alone


def _alone(dual_point: DualPoint) -> float:
    """The least ``|psi_i|^2 / (n L_i)`` for the outputs of largest cost."""
    n = dual_point.n
    costs, squares = dual_point.engine.expected_costs_and_squared_norms()
    some = (squares > 0) & (costs > 0)
    return float((squares[some] / (n * costs[some])).min(initial=math.inf))
