"""Dual coordinate descent: sweeps with shrinking, certificates, stopping rules.

A sweep minimises the dual over each block of variables in turn. Blocks that do not move
are skipped for a growing number of sweeps. Certificates compute the duality gap of all
blocks, and reactivate the skipped blocks whose gap is not negligible.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from enum import Enum
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.compilation import clock
from smoothsp._kernels.svm.shuffling import shuffle
from smoothsp.linear.descent.progress import ProgressLine
from smoothsp.linear.engines.run_monitor import Tolerance
from smoothsp.linear.engines.solution import Certificate, State
from smoothsp.linear.inputs import states

# Optimality violations below this many ulps of the margin count as zero.
ZERO_VIOLATION_ULPS = 8
# A block that did not move is skipped for 1, 3, 7, ... sweeps, 2^5 - 1 at most.
MAX_SKIP_DOUBLINGS = 5
# Numbers whose squares are summed in float64 at a time.
_SQUARE_CHUNK = 1 << 16
# Inner-loop steps of a kernel call: Ctrl-C takes effect at the end of a call.
_STEPS_PER_CALL = 200_000_000
# Sweeps after which w is recomputed from the coefficients.
_REBUILD_PERIOD = 64
# With certify_every="auto", certify when the predicted gap is below this multiple of
# the target,
_NEAR_TARGET_FACTOR = 1.25
# after block visits that cost this many certificates,
_MAX_SWEEPS_BETWEEN_CERTIFICATES = 16
# or when the gap of the active blocks fell to this fraction of the last gap.
_ACTIVE_GAP_DROP = 0.3
# Upper limit of blocks visited in one call of the compiled loop.
_MAX_BLOCKS_PER_CALL = 4096
# Lower bound of a certificate's cost, relative to an evaluation of all blocks.
_MIN_CERTIFICATE_FRACTION = 1 / 64
# Lower bound of (gap after a sweep) / (block gaps at their visits in the sweep).
_MIN_REMAINING_RATIO = 0.3
# Stop after 32 certificates without a higher dual or a smaller gap, if the gap is
# within 32 times its rounding error.
_MAX_STALLED, _NEAR_FLOOR_FACTOR = 32, 32
# Scalars of the loop in a saved state, in the order of its array "numbers".
_SAVED_SCALARS = (
    *("epoch", "seconds", "target_gap", "remaining_gap_ratio"),
    *("num_changed", "num_visited", "visits_since_rebuild", "num_block_visits"),
    *("best_dual", "best_gap", "num_stalled"),
)
# Gaps below this many ulps of the total loss at w = 0 are rounding error.
_GAP_FLOOR_ULPS = 4
# A skipped block is reactivated if its gap exceeds this fraction of
# target_gap / num_blocks.
_WAKE_FRACTION = 0.25


class Status(Enum):
    """Reason why a fit ended."""

    CONVERGED = "the gap is at most its threshold"
    LEVELLED = "the objective falls by less than tol"
    ROUNDED = "the remaining gap is below rounding error"
    OUT_OF_EPOCHS = "max_epochs are used up"
    STOPPED = "the callback stopped the fit"
    INTERRUPTED = "the fit was interrupted; the weights are the current ones"


@dataclass(frozen=True)
class CertificateTerms:
    """Terms of a certificate.

    Parameters
    ----------
    primal, dual
        The objective, and a bound below its minimum.
    gaps
        ``(n,)``: duality gap of each block.
    loss_at_zero
        Total loss at w = 0 of the blocks with a nonzero coefficient or loss: the scale
        of rounding errors.
    """

    primal: float
    dual: float
    gaps: NDArray[np.float64]
    loss_at_zero: float


class DualProblem(Protocol):
    """Interface of dual problems with blocks of variables."""

    skip_counts: NDArray[np.uint8]
    idle_sweeps: NDArray[np.uint8]
    # [sum of block gaps at their visits, blocks that moved, blocks visited] of a call
    sweep_stats: NDArray[np.float64]
    # blocks that the last certificate evaluated
    num_checked: int

    @property
    def w(self) -> NDArray[Any] | None:
        """Weights of the features, a view; None if there are no features."""

    @property
    def blocks(self) -> NDArray[np.intp]:
        """Indices of the blocks whose optimum depends on w."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the coefficients."""

    @property
    def work(self) -> int:
        """Approximate number of inner-loop steps of a sweep."""

    def sweep(self, order: NDArray[np.intp], first: int, last: int) -> None:
        """Minimise over each of the blocks ``order[first:last]``, in order."""

    def certify(self) -> CertificateTerms:
        """Compute primal, dual and the gap of each block."""

    def rebuild_from_duals(self) -> None:
        """Recompute w from the coefficients: increments accumulate rounding errors."""

    @property
    def variables(self) -> State:
        """Arrays that sweeps change, by their names in saved states; no copies."""

    @property
    def checksum(self) -> int:
        """Checksum of constants: samples, bounds, costs."""


@dataclass(frozen=True)
class DescentSettings:
    """Settings of the loop, named as the parameters of the estimators."""

    name: str
    tolerance: Tolerance
    shuffle: bool
    shrinking: bool
    max_epochs: int
    certify_every: int | Literal["auto"]
    seed: int
    callback: Callable[[Certificate], Any] | None
    verbose: bool | None


def descend(
    problem: DualProblem,
    settings: DescentSettings,
    history: list[Certificate],
    resume: Mapping[str, NDArray[Any]] | None = None,
) -> Status:
    """Run dual coordinate descent until the gap is at most its threshold.

    Parameters
    ----------
    problem
        Dual problem, changed in place.
    settings
        Settings of the loop.
    history
        List to which certificates are appended; the last is that of the solution.
    resume
        The ``state`` of a certificate of the same problem.

    Returns
    -------
    Status
        After a KeyboardInterrupt the current weights are certified. A second one during
        this certificate is raised.

    Raises
    ------
    ValueError
        If the objective leaves the range of the dtype, or on a state of another fit.
    """
    run = _DescentLoop(problem, settings, history)
    if resume is not None:
        with states.open_state(resume) as opened_state:
            run.load(opened_state)
    try:
        return run.run_until_stopped(resume is None)
    except KeyboardInterrupt:
        # Kernel calls are not interrupted, so the coefficients are within their bounds.
        run.recompute_last_certificate()
        return Status.INTERRUPTED
    finally:
        run.progress.close()


@dataclass(frozen=True)
class _Evaluation:
    """Certificate, block gaps ``(n,)``, gap tolerance and rounding floor."""

    certificate: Certificate
    gaps: NDArray[np.float64]
    gap_tolerance: float
    rounding_floor: float

    @property
    def target_gap(self) -> float:
        """Gap that sweeps aim at: the larger of gap tolerance and rounding floor."""
        return max(self.gap_tolerance, self.rounding_floor)


class _DescentLoop:
    def __init__(
        self,
        problem: DualProblem,
        settings: DescentSettings,
        history: list[Certificate],
    ) -> None:
        self.problem, self.settings, self.history = problem, settings, history
        self.progress = ProgressLine(settings.name, settings.verbose)
        # Incremented before the sweep, so that a certificate with this epoch is that of
        # the current weights up to rounding.
        self.epoch = 0
        self.start_time = clock.seconds_without_compilation()
        # blocks visited by sweeps, plus n for each certificate
        self.num_block_visits = 0
        self.order = problem.blocks.copy()
        self.in_problem_blocks = np.zeros(len(problem.skip_counts), dtype=bool)
        self.in_problem_blocks[problem.blocks] = True
        self.rng_state = np.array([settings.seed], dtype=np.uint64)
        self.target_gap, self.remaining_gap_ratio = math.inf, _MIN_REMAINING_RATIO
        # blocks that moved and blocks in the orders, since the last certificate
        self.num_changed, self.num_visited = math.inf, 0
        self.visits_since_rebuild = 0
        self.best_dual, self.best_gap, self.num_stalled = -math.inf, math.inf, 0

    @property
    def seconds(self) -> float:
        """Seconds since the start, earlier runs included, without compilation."""
        return clock.seconds_without_compilation() - self.start_time

    @seconds.setter
    def seconds(self, before: float) -> None:
        self.start_time = clock.seconds_without_compilation() - before

    def run_until_stopped(self, is_new_run: bool) -> Status:
        """Sweep and certify in turns until a stopping rule holds."""
        problem, settings = self.problem, self.settings
        if is_new_run:
            # The initial coefficients need not be 0.
            problem.rebuild_from_duals()
        elif self.history[-1].gap <= self.compute_gap_tolerance(self.history[-1]):
            return Status.CONVERGED
        while self.epoch < settings.max_epochs:
            self.sweep(self.count_sweeps_per_call())
            if self.visits_since_rebuild >= _REBUILD_PERIOD * len(problem.blocks):
                problem.rebuild_from_duals()
                self.visits_since_rebuild = 0
            if self.epoch < settings.max_epochs and not self.should_certify():
                continue
            evaluation = self.compute_certificate()
            if (
                self.epoch == settings.max_epochs
                or self.find_stop_reason(evaluation) is not None
            ):
                # Certify the weights recomputed from the coefficients, without the
                # rounding errors of increments.
                problem.rebuild_from_duals()
                evaluation = self.compute_certificate()
            stop_reason, certificate = (
                self.find_stop_reason(evaluation),
                evaluation.certificate,
            )
            self.history.append(certificate)
            self.update_stall_count(certificate)
            self.target_gap = evaluation.target_gap
            self.progress.set_certificate(certificate, self.target_gap)
            visited_gap = max(float(problem.sweep_stats[0]), self.target_gap)
            # With all costs 0 both gaps are 0: no division.
            self.remaining_gap_ratio = (
                max(_MIN_REMAINING_RATIO, certificate.gap / visited_gap)
                if visited_gap
                else _MIN_REMAINING_RATIO
            )
            self.num_changed, self.num_visited = 0.0, 0
            if settings.shrinking:
                self.update_active_blocks(evaluation.gaps)
            stops = self.call_callback(certificate)
            if stop_reason is not None:
                return stop_reason
            if stops:
                self.recompute_last_certificate()
                return Status.STOPPED
        return Status.OUT_OF_EPOCHS

    def call_callback(self, certificate: Certificate) -> bool:
        """Call the callback and return whether it ends the fit."""
        if self.settings.callback is None:
            return False
        w = self.problem.w
        with certificate.with_state(self.save, None if w is None else lambda: w):
            return bool(self.settings.callback(certificate))

    def update_active_blocks(self, gaps: NDArray[np.float64]) -> None:
        """Select the blocks that sweeps visit until the next certificate."""
        problem = self.problem
        # Multiplication by the mask is faster than boolean indexing.
        is_skippable = gaps <= _WAKE_FRACTION * self.target_gap / len(gaps)
        problem.skip_counts *= is_skippable
        problem.idle_sweeps *= is_skippable
        # Blocks that moved at their last visit stay active, too.
        self.order = np.flatnonzero(self.in_problem_blocks & (problem.idle_sweeps == 0))

    def count_sweeps_per_call(self) -> int:
        """Number of sweeps until the next check whether to certify."""
        settings, epoch = self.settings, self.epoch
        num_active = max(1, len(self.order))
        # With few active blocks, sweeps may cost up to half of a certificate.
        max_sweeps = max(
            _MAX_SWEEPS_BETWEEN_CERTIFICATES,
            self.certificate_cost() // (2 * num_active),
        )
        max_sweeps = max(1, min(_MAX_BLOCKS_PER_CALL // num_active, max_sweeps))
        if settings.certify_every != "auto":
            max_sweeps = min(
                max_sweeps, settings.certify_every - epoch % settings.certify_every
            )
        return 1 if epoch == 0 else min(max_sweeps, settings.max_epochs - epoch)

    def recompute_last_certificate(self) -> None:
        """Replace the last certificate by that of recomputed weights."""
        self.problem.rebuild_from_duals()
        certificate = self.compute_certificate().certificate
        if self.history and self.history[-1].epoch == self.epoch:
            self.history[-1] = certificate
        else:
            self.history.append(certificate)

    def sweep(self, num_sweeps: int) -> None:
        """Run sweeps over the active blocks, of which kernels skip some."""
        problem, n = self.problem, len(self.order)
        self.epoch += num_sweeps
        problem.sweep_stats[:] = 0
        if not n:
            return
        orders = np.empty(num_sweeps * n, dtype=np.intp)
        if self.settings.shuffle:
            shuffle(self.rng_state, self.order, orders)
        else:
            orders.reshape(num_sweeps, n)[:] = self.order
        self.num_visited += len(orders)
        self.visits_since_rebuild += len(orders)
        blocks_per_call = max(
            1, _STEPS_PER_CALL * len(problem.blocks) // max(1, problem.work)
        )
        last = len(orders) - n
        for first, end in ((0, last), (last, len(orders))):
            # Statistics are those of the last sweep alone.
            problem.sweep_stats[:] = 0
            for first_block in range(first, end, blocks_per_call):
                problem.sweep(
                    orders, first_block, min(first_block + blocks_per_call, end)
                )
                self.progress.update(
                    self.epoch, min(1.0, (first_block + blocks_per_call - first) / n)
                )
            self.num_changed += float(problem.sweep_stats[1])
            self.num_block_visits += int(problem.sweep_stats[2])

    def should_certify(self) -> bool:
        """Whether this epoch ends with a certificate."""
        settings, epoch = self.settings, self.epoch
        if settings.certify_every != "auto":
            return epoch == 1 or epoch % settings.certify_every == 0
        if not self.history:
            return True
        visited_gap, n = float(self.problem.sweep_stats[0]), self.certificate_cost()
        are_active_solved = (
            self.num_visited >= n
            and visited_gap <= _ACTIVE_GAP_DROP * self.history[-1].gap
        )
        is_overdue = self.num_visited >= _MAX_SWEEPS_BETWEEN_CERTIFICATES * n
        return (
            are_active_solved
            or is_overdue
            or self.remaining_gap_ratio * visited_gap
            <= _NEAR_TARGET_FACTOR * self.target_gap
        )

    def certificate_cost(self) -> int:
        """Cost of a certificate in block visits."""
        n = len(self.problem.blocks)
        return min(n, max(self.problem.num_checked, int(_MIN_CERTIFICATE_FRACTION * n)))

    def compute_certificate(self) -> _Evaluation:
        """Compute the certificate of the current weights."""
        with np.errstate(over="ignore", invalid="ignore"):
            terms = self.problem.certify()
            # A certificate counts n calls, although it skips samples without a gap.
            self.num_block_visits += len(self.problem.skip_counts)
            gap = float(terms.gaps.sum())
        values = terms.primal, terms.dual, gap
        if not np.isfinite(values).all():
            raise ValueError(
                "X: expected features and C for which the objective and its gap fit "
                f"{self.problem.dtype}, got {terms.primal:.3g} and {gap:.3g} in epoch "
                f"{self.epoch}; scale the features, or lower C"
            )
        certificate = Certificate(
            self.epoch, self.num_block_visits, self.seconds, *values
        )
        epsilon = float(np.finfo(self.problem.dtype).eps)
        rounding_floor = _GAP_FLOOR_ULPS * epsilon * terms.loss_at_zero
        return _Evaluation(
            certificate,
            terms.gaps,
            self.compute_gap_tolerance(certificate),
            rounding_floor,
        )

    def compute_gap_tolerance(self, certificate: Certificate) -> float:
        """Gap at which a run with this certificate has converged, from ``tol``."""
        return self.settings.tolerance.goal([*self.history[:1], certificate])

    def update_stall_count(self, certificate: Certificate) -> None:
        """Count the certificates without a higher dual or a smaller gap."""
        has_improved = (
            certificate.dual > self.best_dual or certificate.gap < self.best_gap
        )
        self.num_stalled = 0 if has_improved else self.num_stalled + 1
        self.best_dual = max(self.best_dual, certificate.dual)
        self.best_gap = min(self.best_gap, certificate.gap)

    def find_stop_reason(self, evaluation: _Evaluation) -> Status | None:
        """Return the reason to stop, or None to continue."""
        if evaluation.certificate.gap <= evaluation.gap_tolerance:
            return Status.CONVERGED
        is_near_floor = (
            evaluation.certificate.gap <= _NEAR_FLOOR_FACTOR * evaluation.rounding_floor
        )
        # The last certificate reactivated all blocks with a gap; if none moves, none
        # can.
        has_stalled = self.num_changed == 0 or (
            is_near_floor and self.num_stalled >= _MAX_STALLED
        )
        if evaluation.certificate.gap <= evaluation.rounding_floor or has_stalled:
            return Status.ROUNDED
        return None

    @property
    def settings_key(self) -> str:
        """Settings that a state must match; ``tol`` and ``max_epochs`` may change."""
        settings = self.settings
        return (
            f"{settings.name} stopping={settings.tolerance.stopping}"
            f" shuffle={settings.shuffle} shrinking={settings.shrinking}"
            f" certify_every={settings.certify_every}"
        )

    def save(self) -> State:
        """Arrays from which ``load`` continues the run."""
        scalars = [getattr(self, name) for name in _SAVED_SCALARS]
        return {
            **{name: array.copy() for name, array in self.problem.variables.items()},
            "order": self.order.copy(),
            "stream": self.rng_state.copy(),
            "numbers": np.array(scalars, dtype=np.float64),
            "history": np.array([astuple(certificate) for certificate in self.history]),
            "settings": np.array(self.settings_key),
            "examples": np.array(self.problem.checksum),
        }

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore the arrays of ``save``."""
        saved_settings = str(state.get("settings", "something else"))
        if saved_settings != self.settings_key:
            raise ValueError(
                f"resume: expected a state of {self.settings_key}, got one of"
                f" {saved_settings}"
            )
        if int(state["examples"]) != self.problem.checksum:
            raise ValueError(
                "resume: expected a state of the same samples, labels, weights, costs"
                " and parameters. Was it another fit?"
            )
        for name, array in self.problem.variables.items():
            array[:] = state[name]
        self.order = np.array(state["order"], dtype=np.intp)
        self.rng_state[:] = state["stream"]
        for name, value in zip(_SAVED_SCALARS, state["numbers"].tolist(), strict=True):
            # Saved scalars are floats: restore ints. num_changed may be inf.
            setattr(self, name, type(getattr(self, name))(value))
        self.history += [
            Certificate(int(row[0]), int(row[1]), *row[2:])
            for row in state["history"].tolist()
        ]


def require_finite_sum(losses_at_zero: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the losses at w = 0; raise if their sum overflows."""
    with np.errstate(over="ignore"):
        total = losses_at_zero.sum()
    if not np.isfinite(total):
        raise ValueError(
            "C: expected losses at weights 0 whose sum fits float64, got "
            f"{losses_at_zero.max():.3g} for one of {len(losses_at_zero)} samples; "
            "lower C, weights or cost"
        )
    return losses_at_zero


def squared_norm(x: NDArray[Any]) -> float:
    """Sum of squares, in float64."""
    if x.dtype == np.float64:
        return float(np.dot(x, x))
    return sum(
        float(np.square(chunk, dtype=np.float64).sum())
        for (chunk,) in split_into_chunks(x)
    )


def split_into_chunks(*arrays: NDArray[Any]) -> Any:
    """Yield tuples of views of equally long arrays, ``_SQUARE_CHUNK`` entries each."""
    for first in range(0, len(arrays[0]), _SQUARE_CHUNK):
        yield tuple(x[first : first + _SQUARE_CHUNK] for x in arrays)
