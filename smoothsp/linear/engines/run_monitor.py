"""Monitor of solver runs: limits, stopping rules, certificates, progress bar."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.compilation import clock
from smoothsp.linear.engines import evaluations
from smoothsp.linear.engines.solution import (
    Bounds,
    Callback,
    Certificate,
    Solution,
    State,
)
from smoothsp.linear.inputs import checks, states

SAMPLINGS = ("gap", "uniform", "permutation")
STEP_RULES = ("fw", "pairwise", "away", "safeguarded", "best")
# Cache size that is never reached: more outputs than an example stores.
NO_CACHE_LIMIT = 2**30
STOPPING_RULES = ("objective", "relative_gap", "gap")


@dataclass(frozen=True)
class Tolerance:
    """Tolerance relative to the objective, for ``tol`` of a solver.

    A number as ``tol`` of a solver is an absolute gap.

    Parameters
    ----------
    tol
        At least 0.
    stopping
        ``"objective"``: stop at a gap of ``tol`` times the dual. A positive objective
        is then at most ``1 + tol`` times its minimum. ``"relative_gap"``: stop at a gap
        of ``tol`` times the first gap. ``"gap"``: stop at a gap of ``tol``.

    Notes
    -----
    Source: Wang and Scott, "An Exact Solver for the Weston-Watkins SVM Subproblem",
    sections 5 and A.6.3, for ``"relative_gap"``.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import MulticlassProblem
    >>> from smoothsp.linear.solvers import BCFW, Tolerance
    >>> solver = BCFW(lam=0.1, tol=Tolerance(0.01))
    >>> solution = solver.solve(MulticlassProblem(np.eye(2), [0, 1]))
    >>> bool(solution.gap <= 0.01 * solution.dual)
    True
    """

    tol: float
    stopping: str = "objective"

    def goal(self, history: Sequence[Certificate]) -> float:
        """Return the gap at which to stop after these certificates; 0 without any."""
        if self.stopping == "gap":
            return self.tol
        if not history:
            return 0.0
        if self.stopping == "relative_gap":
            return self.tol * history[0].gap
        # The dual is NaN without a lower bound; max then returns 0.
        return self.tol * max(0.0, history[-1].dual)


@dataclass(frozen=True)
class RunLimits:
    """Budget, tolerance and callback of a run."""

    tol: float | Tolerance
    max_passes: int
    max_seconds: float
    callback: Callback | None
    progress: bool | None
    name: str


def check_limits(
    name: str,
    tol: float | Tolerance,
    max_passes: object,
    max_seconds: object,
    callback: Callback | None,
    progress: object,
) -> RunLimits:
    """Validate the limits of the solver ``name``."""
    checks.require_callback(callback)
    if not isinstance(tol, Tolerance):
        tol = checks.as_nonnegative("tol", tol)
    return RunLimits(
        tol=tol,
        max_passes=checks.as_positive_int("max_passes", max_passes),
        max_seconds=check_max_seconds(max_seconds),
        callback=callback,
        progress=checks.as_optional_bool("progress", progress),
        name=name,
    )


class RunMonitor:
    """Certificates, clock and stopping rules of one run."""

    def __init__(self, limits: RunLimits, problem: Any) -> None:
        self.observer = evaluations.current_observer()
        if self.observer is not None:
            # The limits are those of the observer: equal budgets of compared runs.
            limits = replace(limits, max_passes=sys.maxsize, max_seconds=math.inf)
        self.limits, self.problem = limits, problem
        self.passes = 0
        self.history: list[Certificate] = []
        self.has_stopped = self.interrupted = self.is_within_tolerance = False
        self.status = ""
        self._previous_seconds, self._start = 0.0, clock.seconds_without_compilation()
        # Whether the last certificate belongs to the current weights.
        self.is_certified = False
        self._bar: Any = None

    @property
    def seconds(self) -> float:
        """Seconds since the start, including earlier runs, without compilation."""
        return (
            self._previous_seconds + clock.seconds_without_compilation() - self._start
        )

    @property
    def gap_threshold(self) -> float:
        """Gap at which to stop; 0 for relative tolerances before a certificate."""
        tol = self.limits.tol
        return tol.goal(self.history) if isinstance(tol, Tolerance) else tol

    def is_exhausted(self) -> bool:
        """Whether passes or seconds have reached their limits."""
        limits = self.limits
        return self.passes >= limits.max_passes or self.seconds >= limits.max_seconds

    def invalidate_certificate(self) -> None:
        """Mark the last certificate as outdated before the weights change."""
        self.is_certified = False

    @contextmanager
    def guard_run(self) -> Iterator[None]:
        """Show the progress bar during the loop; turn Ctrl-C into a stop."""
        has_started = False
        try:
            self._bar = make_progress_bar(self.limits.progress, self.limits.name)
            # A resumed run may have met a stopping rule already.
            if self.is_certified:
                self._check_stopping(self.history[-1])
            # Overflow of a certificate raises an error in record_certificate.
            with np.errstate(over="ignore", invalid="ignore"):
                has_started = True
                yield
        except KeyboardInterrupt:
            if not has_started:
                raise
            self.has_stopped = self.interrupted = True
            self.status = (
                f"interrupted after {self.passes} passes; the weights are the current"
                " ones"
            )
        finally:
            if self._bar is not None:
                self._bar.close()

    def update_progress(self, estimate: float = math.nan) -> None:
        """Update the progress bar with objective, gap and estimated gap."""
        if self._bar is None:
            return
        certificate = self.history[-1] if self.history else None
        parts = []
        if certificate is not None and math.isfinite(certificate.primal):
            parts.append(f"objective {certificate.primal:.5g}")
        if certificate is not None and math.isfinite(certificate.gap):
            parts.append(f"gap {certificate.gap:.2e}")
        if not math.isnan(estimate):
            parts.append(f"estimated {estimate:.2e}")
        if parts and not parts[-1].startswith("objective"):
            parts.append(f"goal {self.gap_threshold:.2e}")
        self._bar.set_postfix_str(", ".join(parts), refresh=False)
        self._bar.update(self.passes - self._bar.n)

    def report_to_observer(
        self,
        calls: int,
        weights: Callable[[], NDArray[np.float64]],
        bound: Callable[[], float] = lambda: math.nan,
    ) -> None:
        """Call the observer of the run with the clock stopped; stop if it returns True.

        ``bound`` computes a lower bound of the minimum without calls of the oracle.
        """
        if self.observer is None:
            return
        pause_start = clock.seconds_without_compilation()

        def best_bound() -> float:
            # Duals of a smoothed objective do not bound the unsmoothed minimum.
            unsmoothed_bounds = [
                r.dual for r in self.history if math.isnan(r.smoothed_primal)
            ]
            bounds = np.array([*unsmoothed_bounds, bound()])
            return float(np.fmax.reduce(bounds))

        seconds = self.seconds
        try:
            with evaluations.observe_runs(None):
                evaluation = evaluations.RunEvaluation(
                    self.passes, calls, seconds, weights, best_bound
                )
                stop = self.observer(evaluation)
        finally:
            self._start += clock.seconds_without_compilation() - pause_start
        if stop and not self.has_stopped:
            self.has_stopped, self.status = True, "stopped by the observer"

    def stop(self, reason: str, is_certified: bool) -> None:
        """Stop for this reason; ``is_certified`` is the value before the last pass."""
        self.has_stopped, self.status, self.is_certified = True, reason, is_certified

    def record_certificate(
        self,
        calls: int,
        certificate: tuple[float, ...],
        state: Callable[[], State],
        weights: Callable[[], NDArray[np.float64]],
    ) -> None:
        """Append a certificate to the history, call the callback, check stopping rules.

        ``certificate`` has the fields of :class:`Bounds`. ``state`` and ``weights``
        are for the callback.
        """
        values = Bounds(*certificate)
        record = Certificate(self.passes, calls, self.seconds, *values)
        require_finite_certificate(
            self.problem, record.minimised, values.dual, values.gap
        )
        self.history.append(record)
        self.is_certified = True
        if self.interrupted:
            return
        is_stop_requested = False
        if self.limits.callback is not None:
            with record.with_state(state, weights):
                is_stop_requested = self.limits.callback(record)
        self._check_stopping(record)
        if is_stop_requested and not self.has_stopped:
            self.has_stopped = True
            self.status = f"stopped by the callback after {self.passes} passes"

    def _check_stopping(self, record: Certificate) -> None:
        limits = self.limits
        if record.gap <= self.gap_threshold:
            self.has_stopped = self.is_within_tolerance = True
            self.status = f"the gap is at most tol = {self._tol:.3g}"
        elif self._has_objective_stalled():
            self.has_stopped = self.is_within_tolerance = True
            self.status = f"the objective falls by less than tol = {self._tol:.3g}"
        elif self.passes >= limits.max_passes:
            self.has_stopped = True
            self.status = f"max_passes = {limits.max_passes} passes are used up"
        elif self.seconds >= limits.max_seconds:
            self.has_stopped = True
            self.status = f"max_seconds = {limits.max_seconds:.3g} seconds are used up"

    @property
    def _tol(self) -> float:
        tol = self.limits.tol
        return tol.tol if isinstance(tol, Tolerance) else tol

    def _has_objective_stalled(self) -> bool:
        """Whether the last two certificates lowered an objective by at most ``tol``.

        Only for objectives without gap. Two certificates, because the iterates of
        stochastic solvers are not monotone.
        """
        if len(self.history) < 3 or not math.isnan(self.history[-1].gap):
            return False
        values = [record.minimised for record in self.history]
        best_before, tol = min(values[:-2]), self._tol
        if isinstance(self.limits.tol, Tolerance):
            tol *= abs(best_before)
        return tol > 0 and best_before - min(values[-2:]) <= tol

    def solution(
        self, w: NDArray[np.float64], calls: int, state: dict[str, NDArray[Any]]
    ) -> Solution:
        """Solution with the current weights and the last certificate."""
        bounds = self.history[-1].bounds if self.is_certified else Bounds(math.nan)
        return Solution(
            w=w,
            **bounds._asdict(),
            passes=self.passes,
            oracle_calls=calls,
            seconds=self.seconds,
            status=self.status,
            converged=self.is_certified and self.is_within_tolerance,
            history=self.history,
            state=states.add_checksums(state),
            interrupted=self.interrupted,
        )

    def state(self, settings: str, exclude_last: bool = False) -> State:
        """Arrays from which ``load`` continues; optionally without the last pass."""
        num_excluded = int(exclude_last and self.is_certified)
        rows = [
            (r.passes, r.oracle_calls, r.seconds, *r.bounds)
            for r in self.history[: len(self.history) - num_excluded]
        ]
        return {
            "history": np.array(rows, dtype=np.float64).reshape(-1, 7),
            "passes": np.array(self.passes - num_excluded),
            "seconds": np.array(self.seconds),
            "settings": np.array(settings),
            **examples_fingerprint(self.problem),
        }

    def load(self, state: State, settings: str) -> None:
        """Restore the arrays of ``state``; raise for other settings or examples."""
        saved_settings = str(state.get("settings", "no state of this solver"))
        if saved_settings != settings:
            raise ValueError(
                f"resume: expected a state of {settings}, got one of {saved_settings}"
            )
        require_same_examples("resume", self.problem, state)
        self.history = [
            Certificate(int(row[0]), int(row[1]), *(float(x) for x in row[2:]))
            for row in state["history"]
        ]
        self.passes = int(state["passes"])
        self._previous_seconds = float(state["seconds"])
        self.is_certified = (
            bool(self.history) and self.passes == self.history[-1].passes
        )


def make_progress_bar(is_shown: bool | None, name: str, **tqdm_options: Any) -> Any:
    """Return a tqdm bar on stderr, or None to show none.

    With ``is_shown=None`` it appears on a terminal, after three seconds.
    """
    if not (sys.stderr.isatty() if is_shown is None else is_shown):
        return None
    from tqdm import tqdm

    options = {"desc": name, "unit": " passes", **tqdm_options}
    return tqdm(**options, delay=3.0 if is_shown is None else 0.0)


def examples_fingerprint(problem: Any) -> State:
    """Checksum of the examples for saved states; their number without a checksum."""
    if problem is None:
        return {}
    checksum = getattr(problem, "checksum", None)
    return {"examples": np.array(len(problem) if checksum is None else checksum)}


def require_same_examples(name: str, problem: Any, state: State) -> None:
    """Raise unless a state belongs to the examples of the problem."""
    fingerprint = examples_fingerprint(problem).get("examples")
    if state.get("examples") != fingerprint:
        raise ValueError(
            f"{name}: expected a state of the same features, labels and costs. Was it"
            " another problem?"
        )


def require_finite_certificate(
    problem: Any, primal: float, dual: float, gap: float
) -> None:
    """Raise unless primal, dual and gap are finite; dual and gap may be NaN."""
    if math.isfinite(primal) and not math.isinf(gap) and not math.isinf(dual):
        return
    argument_name = getattr(problem, "called", None)
    name = argument_name if isinstance(argument_name, str) else "psi"
    raise checks.Diverged(
        f"{name}: expected features for which objective and gap fit float64, got"
        f" {primal:.3g} and {gap:.3g}; scale the features, raise lambda (lower C), or"
        " shorten the steps"
    )


@dataclass(frozen=True)
class EngineSettings:
    """Settings of the compiled and of the callback engine.

    ``step_rule`` is an index into ``STEP_RULES``. ``cache_local`` and ``cache_global``
    are F and nu of the cache-hit criterion of Osokin et al., algorithm 5.
    """

    lam: float
    step_rule: int
    uses_cache: bool
    cache_local: float
    cache_global: float
    cache_size: int
    averages: bool
    lower: Any
    upper: Any
    # examples of one call of the batch oracle
    batch_size: int = 1

    @property
    def has_bounds(self) -> bool:
        """Whether weights have bounds."""
        return self.lower is not None or self.upper is not None

    @property
    def has_output_weights(self) -> bool:
        """Whether stored outputs have weights, as pairwise and away steps need."""
        return self.step_rule != 0


def expand_bounds(
    bounds: Any, num_weights: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Broadcast lower and upper bounds to ``(num_weights,)``; None is infinite."""
    ends = []
    for name, bound, default in zip(
        ("lower", "upper"), bounds, (-math.inf, math.inf), strict=True
    ):
        value = np.asarray(default if bound is None else bound, dtype=np.float64)
        if value.shape not in ((), (num_weights,)):
            raise ValueError(
                f"bounds: expected a number or ({num_weights},) numbers as {name} "
                f"bound, got {value.shape}"
            )
        ends.append(np.broadcast_to(value, (num_weights,)).copy())
    if not (ends[0] <= ends[1]).all():
        i = int((~(ends[0] <= ends[1])).argmax())
        raise ValueError(
            f"bounds: expected lower <= upper, got {ends[0][i]} and {ends[1][i]} at "
            f"weight {i}"
        )
    return ends[0], ends[1]


def check_bounds(bounds: Any) -> tuple[Any, Any]:
    """Validate ``bounds``; return ``(lower, upper)``, None for no bound."""
    if bounds is None:
        return None, None
    if not isinstance(bounds, tuple) or len(bounds) != 2:
        raise TypeError(f"bounds: expected (lower, upper) or None, got {bounds!r}")
    return bounds


def check_seed(seed: object, name: str = "seed") -> int:
    """Validate a seed, an int of at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise TypeError(f"{name}: expected an int of at least 0, got {seed!r}")
    return int(seed)


def check_max_seconds(value: object) -> float:
    """Validate ``max_seconds``; None is infinite."""
    return math.inf if value is None else checks.as_positive("max_seconds", value)


def save_rng(rng: np.random.Generator) -> NDArray[np.uint64]:
    """State of a PCG64 generator as six uint64: two 128-bit numbers, one buffer."""
    state: Any = rng.bit_generator.state
    words = []
    # numpy has no 128-bit integers, and states are stored without pickle.
    for number in (state["state"]["state"], state["state"]["inc"]):
        words += [number >> 64, number & (2**64 - 1)]
    return np.array([*words, state["has_uint32"], state["uinteger"]], dtype=np.uint64)


def load_rng(words: NDArray[np.uint64]) -> np.random.Generator:
    """Generator with the state of ``save_rng``."""
    rng = np.random.Generator(np.random.PCG64())
    high, low, inc_high, inc_low, has_uint32, uinteger = (int(x) for x in words)
    rng.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": (high << 64) | low, "inc": (inc_high << 64) | inc_low},
        "has_uint32": has_uint32,
        "uinteger": uinteger,
    }
    return rng
