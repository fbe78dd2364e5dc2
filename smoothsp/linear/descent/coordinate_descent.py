"""The loop of dual coordinate descent: sweeps, certificates, and when to stop."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.multiclass.shuffling import shuffle
from smoothsp.linear.descent.certificates import Certificate, goal
from smoothsp.linear.descent.progress import Progress

# Inner-loop steps between two looks at the clock and at the keyboard.
_STEPS_PER_CALL = 200_000_000
# Sweeps after which weights are computed anew from the coefficients.
_REBUILD = 64
# With "auto", a certificate is due when the gap is expected within so many times the
# goal, or after so many epochs.
_PROMISING, _AT_LEAST = 1.25, 16
# A sweep meets larger gaps than it leaves: at least this share is left.
_LEFT = 0.3
# A block may hold this share of its part of the goal before it is woken.
_NEGLIGIBLE = 0.25


class Status(Enum):
    """How a fit ended."""

    CONVERGED = "the gap reached its goal"
    OUT_OF_EPOCHS = "max_epochs passed before the gap reached its goal"
    INTERRUPTED = "the fit was interrupted; the solution so far is kept"


class Problem(Protocol):
    """What the loop asks of a dual problem whose variables come in blocks."""

    waits: NDArray[np.uint8]
    calm: NDArray[np.uint8]
    # the gaps that blocks had when a sweep came to them, summed
    met: NDArray[np.float64]

    @property
    def blocks(self) -> NDArray[np.intp]:
        """The blocks that have something to decide."""

    @property
    def epsilon(self) -> float:
        """Rounding of the dtype."""

    @property
    def scale(self) -> float:
        """The objective where all weights are 0."""

    @property
    def work(self) -> int:
        """Inner-loop steps of a sweep, roughly."""

    def sweep(self, order: NDArray[np.intp], first: int, last: int) -> None:
        """Solve the blocks ``order[first:last]``."""

    def certify(self) -> tuple[float, float, NDArray[np.float64]]:
        """Primal, dual, and the part of the gap that each block has."""

    def rebuild(self) -> None:
        """Compute anew what the sweeps carry along: sums of very many updates."""


@dataclass(frozen=True)
class Plan:
    """How to run the loop; as the parameters of the estimators."""

    name: str
    tol: float
    stopping: str
    shuffle: bool
    shrinking: bool
    max_epochs: int
    certify_every: int | Literal["auto"]
    seed: int
    callback: Callable[[Certificate], Any] | None
    verbose: bool | None


def descend(problem: Problem, plan: Plan, history: list[Certificate]) -> Status:
    """Sweep over the blocks until the gap reaches its goal.

    Parameters
    ----------
    problem
        Changed in place: after this, whatever happens, it holds the best solution.
    plan
        How to run.
    history
        Certificates are appended.

    Returns
    -------
    Status
        ``INTERRUPTED`` after a KeyboardInterrupt, which is not raised again here.
    """
    progress = Progress(plan.name, plan.verbose)
    try:
        return _run(problem, plan, history, progress)
    except KeyboardInterrupt:
        return Status.INTERRUPTED
    finally:
        progress.close()


def _run(
    problem: Problem, plan: Plan, history: list[Certificate], progress: Progress
) -> Status:
    order = problem.blocks.copy()
    state = np.array([plan.seed], dtype=np.uint64)
    size = max(1, _STEPS_PER_CALL * len(order) // max(1, problem.work))
    seconds, wanted, left = 0.0, math.inf, _LEFT
    for epoch in range(1, plan.max_epochs + 1):
        start = time.perf_counter()
        if plan.shuffle:
            shuffle(state, order)
        problem.met[0] = 0
        for first in range(0, len(order), size):
            problem.sweep(order, first, min(first + size, len(order)))
            progress.tell(epoch, min(1.0, (first + size) / len(order)))
        seconds += time.perf_counter() - start
        if epoch % _REBUILD == 0:
            problem.rebuild()
        expected = left * float(problem.met[0])
        if epoch < plan.max_epochs and not _is_due(plan, epoch, expected, wanted):
            continue
        wanted = _certify(problem, plan, epoch, seconds, history, progress)
        if history[-1].gap <= wanted:
            return Status.CONVERGED
        left = max(_LEFT, history[-1].gap / max(float(problem.met[0]), wanted))
    return Status.OUT_OF_EPOCHS


def _is_due(plan: Plan, epoch: int, expected: float, wanted: float) -> bool:
    """Whether this epoch ends with a certificate; its gap may be as ``expected``."""
    if plan.certify_every != "auto":
        return epoch == 1 or epoch % plan.certify_every == 0
    return epoch % _AT_LEAST == 0 or expected <= _PROMISING * wanted


def _certify(
    problem: Problem,
    plan: Plan,
    epoch: int,
    seconds: float,
    history: list[Certificate],
    progress: Progress,
) -> float:
    """Append a certificate; the gap that is wanted of it.

    The last one of a run is that of weights that were computed anew.
    """
    for rebuilt in (False, True):
        if rebuilt:
            problem.rebuild()
        primal, dual, gaps = problem.certify()
        last = Certificate(epoch, seconds, primal, dual, float(gaps.sum()))
        first = history[0] if history else last
        wanted = goal(plan.stopping, plan.tol, first, problem.scale, problem.epsilon)
        if last.gap > wanted and epoch < plan.max_epochs:
            break
    history.append(last)
    progress.certify(last, wanted)
    if plan.callback is not None:
        plan.callback(last)
    if plan.shrinking:
        awake = gaps > _NEGLIGIBLE * wanted / len(gaps)
        problem.waits[awake] = 0
        problem.calm[awake] = 0
    return wanted
