"""The loop of dual coordinate descent: sweeps, certificates, and when to stop."""

import math
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from enum import Enum
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.compilation import clock
from smoothsp._kernels.svm.shuffling import shuffle
from smoothsp.linear.descent.progress import Progress
from smoothsp.linear.engines.run_monitor import Tolerance
from smoothsp.linear.engines.solution import Certificate, State
from smoothsp.linear.inputs import states

# A violation of so many roundings of the margin counts as none.
STILL = 8
# How often the number of sweeps that skip an unmoved block may double.
PATIENCE = 5
# Numbers that are squared in float64 at a time.
_CHUNK = 1 << 16
# Inner-loop steps between two looks at the clock and at the keyboard.
_STEPS_PER_CALL = 200_000_000
# Sweeps after which weights are computed anew from the coefficients.
_REBUILD = 64
# With "auto", a certificate is due when the gap is expected within so many times the
# goal, or after so many times the blocks that one looks at,
_PROMISING, _AT_LEAST = 1.25, 16
# or when the gap among blocks that were chosen has become so much smaller, and
# as many were solved as a certificate looks at
_SOLVED = 0.3
# Blocks that are solved in one call of a kernel.
_AT_ONCE = 4096
# A certificate that looks at few blocks takes as long as one that looks at this share.
_FEW = 1 / 64
# A sweep meets larger gaps than it leaves: at least this share is left.
_LEFT = 0.3
# Certificates without a higher dual or a smaller gap, this near to what rounding hides:
# what moves is rounding.
_IDLE, _NEAR = 32, 32
# Of a run, in a state.
_NUMBERS = (
    *("epoch", "seconds", "wanted", "left", "moves", "visits", "since_rebuilt"),
    "calls",
    *("highest", "smallest", "idle"),
)
# A gap of fewer roundings of what the samples in it may cost is rounding.
_ROUNDINGS = 4
# A block may hold this share of its part of the goal before it is woken.
_NEGLIGIBLE = 0.25


class Status(Enum):
    """Reason why a fit ended."""

    CONVERGED = "the gap reached its goal"
    LEVELLED = "the objective falls by less than tol"
    ROUNDED = "rounding hides what is left of the gap"
    OUT_OF_EPOCHS = "max_epochs are used up"
    STOPPED = "the callback stopped the fit"
    INTERRUPTED = "the fit was interrupted; the weights are those reached"


@dataclass(frozen=True)
class Parts:
    """Parts of a certificate.

    Parameters
    ----------
    primal, dual
        The objective, and a bound below its minimum.
    gaps
        The part of the duality gap that each block has.
    at_stake
        What the blocks that have a coefficient or a loss cost at weights 0, summed.
    """

    primal: float
    dual: float
    gaps: NDArray[np.float64]
    loss_at_zero: float


class Problem(Protocol):
    """Interface of dual problems with blocks of variables."""

    waits: NDArray[np.uint8]
    calm: NDArray[np.uint8]
    # the gaps that blocks had when a sweep came to them, summed; how many moved, and
    # how many were not skipped
    met: NDArray[np.float64]
    # blocks that the last certificate had to look at
    num_checked: int

    @property
    def w(self) -> NDArray[Any] | None:
        """Weights of the features, a view; None if there are no features."""

    @property
    def blocks(self) -> NDArray[np.intp]:
        """The blocks that have something to decide."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the coefficients."""

    @property
    def work(self) -> int:
        """Inner-loop steps of a sweep, roughly."""

    def sweep(self, order: NDArray[np.intp], first: int, last: int) -> None:
        """Solve the blocks ``order[first:last]``."""

    def certify(self) -> Parts:
        """Primal, dual and gaps."""

    def rebuild(self) -> None:
        """Compute anew what the sweeps carry along: sums of very many updates."""

    @property
    def variables(self) -> State:
        """Arrays that sweeps change, by name; no copies."""

    @property
    def checksum(self) -> int:
        """Checksum of constants: samples, bounds, costs."""


@dataclass(frozen=True)
class DescentSettings:
    """Settings of the loop; as the parameters of the estimators."""

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
    problem: Problem,
    settings: DescentSettings,
    history: list[Certificate],
    resume: Mapping[str, NDArray[Any]] | None = None,
) -> Status:
    """Sweep over the blocks until the gap reaches its goal.

    Parameters
    ----------
    problem
        Changed in place.
    plan
        How to run.
    history
        Certificates are appended; the last one is that of the solution.
    resume
        The ``state`` of a certificate, as the callback of the same problem had it.

    Returns
    -------
    Status
        A KeyboardInterrupt does not leave this function: what was reached is certified.
        A second one, meanwhile, does.

    Raises
    ------
    ValueError
        If the objective leaves the range of the dtype, or on a state of another fit.
    """
    run = _Run(problem, settings, history)
    if resume is not None:
        with states.open_state(resume) as given:
            run.load(given)
    try:
        return run.to_the_end(resume is None)
    except KeyboardInterrupt:
        # a sweep is whole or not at all: coefficients keep their bounds
        run.certify_again()
        return Status.INTERRUPTED
    finally:
        run.progress.close()


@dataclass(frozen=True)
class _Measured:
    """A certificate, the gaps of the blocks, and two gaps to compare it with."""

    certificate: Certificate
    gaps: NDArray[np.float64]
    asked: float
    visible: float

    @property
    def wanted(self) -> float:
        """The gap at which to stop."""
        return max(self.asked, self.visible)


class _Run:
    def __init__(
        self, problem: Problem, plan: DescentSettings, history: list[Certificate]
    ) -> None:
        self.problem, self.plan, self.history = problem, plan, history
        self.progress = Progress(plan.name, plan.verbose)
        # counted from its first step on: a certificate of this number is that of the
        # present weights, but for rounding
        self.epoch = 0
        self.began = clock.seconds_without_compilation()
        # blocks that were solved, and those of certificates
        self.calls = 0
        self.order = problem.blocks.copy()
        self.decides = np.zeros(len(problem.waits), dtype=bool)
        self.decides[problem.blocks] = True
        self.state = np.array([plan.seed], dtype=np.uint64)
        self.wanted, self.left = math.inf, _LEFT
        # since the last certificate: blocks that moved, and that had their turn
        self.moves, self.visits = math.inf, 0
        self.since_rebuilt = 0
        self.highest, self.smallest, self.idle = -math.inf, math.inf, 0

    @property
    def seconds(self) -> float:
        """Seconds since the start, earlier runs included, without compilation."""
        return clock.seconds_without_compilation() - self.began

    @seconds.setter
    def seconds(self, before: float) -> None:
        self.began = clock.seconds_without_compilation() - before

    def to_the_end(self, fresh: bool) -> Status:
        """Sweep and certify in turns."""
        problem, plan = self.problem, self.plan
        if fresh:
            # the coefficients to begin with need not be 0
            problem.rebuild()
        elif self.history[-1].gap <= self.asked(self.history[-1]):
            return Status.CONVERGED
        while self.epoch < plan.max_epochs:
            self.sweep(self.sweeps_at_once())
            if self.since_rebuilt >= _REBUILD * len(problem.blocks):
                problem.rebuild()
                self.since_rebuilt = 0
            if self.epoch < plan.max_epochs and not self.is_due():
                continue
            found = self.measure()
            if self.epoch == plan.max_epochs or self.end(found) is not None:
                # the last one is that of weights that were computed anew
                problem.rebuild()
                found = self.measure()
            end, last = self.end(found), found.certificate
            self.history.append(last)
            self.compare(last)
            self.wanted = found.wanted
            self.progress.certify(last, self.wanted)
            share = max(float(problem.met[0]), self.wanted)
            # where nothing costs anything there is no gap either
            self.left = max(_LEFT, last.gap / share) if share else _LEFT
            self.moves, self.visits = 0.0, 0
            if plan.shrinking:
                self.choose(found.gaps)
            stops = self.tell(last)
            if end is not None:
                return end
            if stops:
                self.certify_again()
                return Status.STOPPED
        return Status.OUT_OF_EPOCHS

    def tell(self, last: Certificate) -> bool:
        """Call the callback; whether it ends the fit."""
        if self.plan.callback is None:
            return False
        w = self.problem.w
        with last.with_state(self.save, None if w is None else lambda: w):
            return bool(self.plan.callback(last))

    def choose(self, gaps: NDArray[np.float64]) -> None:
        """Sweep over blocks with a part in the gap until the next certificate."""
        problem = self.problem
        # whole arrays times 0 and 1: numpy takes longer to pick from them
        asleep = gaps <= _NEGLIGIBLE * self.wanted / len(gaps)
        problem.waits *= asleep
        problem.calm *= asleep
        # those that still move when they are solved count too
        self.order = np.flatnonzero(self.decides & (problem.calm == 0))

    def sweeps_at_once(self) -> int:
        """Sweeps until there may be something else to do."""
        plan, epoch = self.plan, self.epoch
        size = max(1, len(self.order))
        # of few blocks among many, up to half of what a certificate looks at
        most = max(_AT_LEAST, self.looks() // (2 * size))
        most = max(1, min(_AT_ONCE // size, most))
        if plan.certify_every != "auto":
            most = min(most, plan.certify_every - epoch % plan.certify_every)
        return 1 if epoch == 0 else min(most, plan.max_epochs - epoch)

    def certify_again(self) -> None:
        """Make the last certificate that of weights that are computed anew."""
        self.problem.rebuild()
        last = self.measure().certificate
        if self.history and self.history[-1].epoch == self.epoch:
            self.history[-1] = last
        else:
            self.history.append(last)

    def sweep(self, times: int) -> None:
        """Solve the chosen blocks so many times, except those that are skipped."""
        problem, n = self.problem, len(self.order)
        self.epoch += times
        problem.met[:] = 0
        if not n:
            return
        orders = np.empty(times * n, dtype=np.intp)
        if self.plan.shuffle:
            shuffle(self.state, self.order, orders)
        else:
            orders.reshape(times, n)[:] = self.order
        self.visits += len(orders)
        self.since_rebuilt += len(orders)
        size = max(1, _STEPS_PER_CALL * len(problem.blocks) // max(1, problem.work))
        last = len(orders) - n
        for first, end in ((0, last), (last, len(orders))):
            # of the gaps met, those of the last sweep are of interest
            problem.met[:] = 0
            for at in range(first, end, size):
                problem.sweep(orders, at, min(at + size, end))
                self.progress.tell(self.epoch, min(1.0, (at + size - first) / n))
            self.moves += float(problem.met[1])
            self.calls += int(problem.met[2])

    def is_due(self) -> bool:
        """Whether this epoch ends with a certificate."""
        plan, epoch = self.plan, self.epoch
        if plan.certify_every != "auto":
            return epoch == 1 or epoch % plan.certify_every == 0
        if not self.history:
            return True
        met, n = float(self.problem.met[0]), self.looks()
        solved = self.visits >= n and met <= _SOLVED * self.history[-1].gap
        late = self.visits >= _AT_LEAST * n
        return solved or late or self.left * met <= _PROMISING * self.wanted

    def looks(self) -> int:
        """Blocks that could be solved while a certificate is computed."""
        n = len(self.problem.blocks)
        return min(n, max(self.problem.num_checked, int(_FEW * n)))

    def measure(self) -> _Measured:
        """A certificate of the present weights."""
        with np.errstate(over="ignore", invalid="ignore"):
            parts = self.problem.certify()
            # of all samples, also those that are known to have no gap
            self.calls += len(self.problem.waits)
            gap = float(parts.gaps.sum())
        numbers = parts.primal, parts.dual, gap
        if not np.isfinite(numbers).all():
            raise ValueError(
                "X: expected features and C for which the objective and its gap fit "
                f"{self.problem.dtype}, got {parts.primal:.3g} and {gap:.3g} in epoch "
                f"{self.epoch}; scale the features, or lower C"
            )
        last = Certificate(self.epoch, self.calls, self.seconds, *numbers)
        epsilon = float(np.finfo(self.problem.dtype).eps)
        visible = _ROUNDINGS * epsilon * parts.loss_at_zero
        return _Measured(last, parts.gaps, self.asked(last), visible)

    def asked(self, last: Certificate) -> float:
        """The gap that ``tol`` asks for."""
        return self.plan.tolerance.goal([*self.history[:1], last])

    def compare(self, last: Certificate) -> None:
        """Count how long nothing has become better."""
        better = last.dual > self.highest or last.gap < self.smallest
        self.idle = 0 if better else self.idle + 1
        self.highest = max(self.highest, last.dual)
        self.smallest = min(self.smallest, last.gap)

    def end(self, found: _Measured) -> Status | None:
        """Return the reason to stop, if there is one."""
        if found.certificate.gap <= found.asked:
            return Status.CONVERGED
        near = found.certificate.gap <= _NEAR * found.visible
        # every block with a part in the gap was woken by the last certificate
        stuck = self.moves == 0 or (near and self.idle >= _IDLE)
        if found.certificate.gap <= found.visible or stuck:
            return Status.ROUNDED
        return None

    @property
    def settings(self) -> str:
        """Settings that a state must match; ``tol`` and ``max_epochs`` may change."""
        plan = self.plan
        return (
            f"{plan.name} stopping={plan.tolerance.stopping} shuffle={plan.shuffle}"
            f" shrinking={plan.shrinking} certify_every={plan.certify_every}"
        )

    def save(self) -> State:
        """All that changes, as arrays."""
        numbers = [getattr(self, name) for name in _NUMBERS]
        return {
            **{name: part.copy() for name, part in self.problem.variables.items()},
            "order": self.order.copy(),
            "stream": self.state.copy(),
            "numbers": np.array(numbers, dtype=np.float64),
            "history": np.array([astuple(one) for one in self.history]),
            "settings": np.array(self.settings),
            "examples": np.array(self.problem.checksum),
        }

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what ``save`` gave."""
        found = str(state.get("settings", "something else"))
        if found != self.settings:
            raise ValueError(
                f"resume: expected a state of {self.settings}, got one of {found}"
            )
        if int(state["examples"]) != self.problem.checksum:
            raise ValueError(
                "resume: expected a state of the same samples, labels, weights, costs"
                " and parameters. Was it another fit?"
            )
        for name, part in self.problem.variables.items():
            part[:] = state[name]
        self.order = np.array(state["order"], dtype=np.intp)
        self.state[:] = state["stream"]
        for name, value in zip(_NUMBERS, state["numbers"].tolist(), strict=True):
            # counts are ints; of moves there may be infinitely many
            setattr(self, name, type(getattr(self, name))(value))
        self.history += [
            Certificate(int(row[0]), int(row[1]), *row[2:])
            for row in state["history"].tolist()
        ]


def require_finite_sum(stakes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Losses at weights 0, if their sum is a number."""
    with np.errstate(over="ignore"):
        total = stakes.sum()
    if not np.isfinite(total):
        raise ValueError(
            "C: expected losses at weights 0 whose sum fits float64, got "
            f"{stakes.max():.3g} for one of {len(stakes)} samples; lower C, weights or "
            "cost"
        )
    return stakes


def squared_norm(x: NDArray[Any]) -> float:
    """Sum of squares, in float64."""
    if x.dtype == np.float64:
        return float(np.dot(x, x))
    return sum(float(np.square(part, dtype=np.float64).sum()) for (part,) in chunks(x))


def chunks(*arrays: NDArray[Any]) -> Any:
    """Pieces of arrays of one length, of at most ``_CHUNK`` numbers."""
    for first in range(0, len(arrays[0]), _CHUNK):
        yield tuple(x[first : first + _CHUNK] for x in arrays)
