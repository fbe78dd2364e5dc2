"""Solutions of solvers, and records for callbacks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.inputs import states

State = states.State


class Resumable:
    """Record for callbacks, with the state of the solver during the call."""

    @property
    def state(self) -> State:
        """Arrays by name, copies, from which ``solve(problem, resume=state)`` goes on.

        Or ``fit(X, y, resume=state)``. Bit for bit as if it had never stopped. Only
        while the callback runs.
        """
        take = self.__dict__.get("_take")
        if take is None:
            raise ValueError(
                "state: expected access within the callback of a solver that can "
                "resume; store record.state there"
            )
        return states.sealed(take())

    @contextmanager
    def with_state(self, take: Callable[[], State]) -> Iterator[None]:
        """Around the call of the callback."""
        # not a field: what is kept and compared are the numbers
        object.__setattr__(self, "_take", take)
        try:
            yield
        finally:
            object.__delattr__(self, "_take")


@dataclass(frozen=True)
class Certificate(Resumable):
    """Certificate of a solver: the optimum lies between dual and primal.

    In a callback it has the ``state`` of the run, from which another goes on.

    Parameters
    ----------
    passes
        Passes over the examples, whichever oracle answered; one that was interrupted
        counts.
    oracle_calls
        Calls of the max oracle; those for certificates are counted, those that a cache
        spared are not. 0 where a solver asks none.
    seconds
        Since the beginning, earlier runs included. Those spent on certificates count,
        except in ``HingeSVC``, ``WestonWatkinsSVC`` and ``CrammerSingerSVC``.
    primal, dual, gap
        The objective, a bound below its minimum, and their difference, computed as a
        sum of terms that are never negative; NaN where the solver knows none.

    Examples
    --------
    A checkpoint at each certificate:

    >>> def save(certificate):
    ...     np.savez("run.npz", **certificate.state)
    """

    passes: int
    oracle_calls: int
    seconds: float
    primal: float
    dual: float
    gap: float

    @property
    def epoch(self) -> int:
        """``passes``, in the words of the estimators that count ``max_epochs``."""
        return self.passes


# Called with each certificate; what is true stops the solver.
Callback = Callable[[Certificate], Any]


@dataclass(frozen=True)
class Solution:
    """Weights with their certificate.

    Parameters
    ----------
    w
        ``(num_weights,)``, float64.
    primal, dual, gap
        At ``w``. Dual and gap are NaN if the solver has no certificate. All three are
        NaN after an interrupt that left no time to compute them.
    passes, oracle_calls, seconds
        As in :class:`Certificate`, at the end.
    status
        Reason why the solver stopped, as a sentence.
    converged
        Whether the gap is at most the tolerance.
    history
        Records at the certificates.
    state
        Arrays by name; ``solve(problem, resume=state)`` continues the run.
        ``numpy.savez`` stores them without pickle.
    interrupted
        True if Ctrl-C ended the run.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import MulticlassProblem
    >>> from smoothsp.linear.solvers import BCFW
    >>> solution = BCFW(lam=0.1).solve(MulticlassProblem(np.eye(2), [0, 1]))
    >>> solution.w.shape, solution.converged
    ((4,), True)
    """

    w: NDArray[np.float64]
    primal: float
    dual: float
    gap: float
    passes: int
    oracle_calls: int
    seconds: float
    status: str
    converged: bool
    history: list[Certificate] = field(repr=False)
    state: State = field(repr=False)
    interrupted: bool = False


def weights_of(start: Solution | NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights to start from: those of anything that has a ``w``, or weights."""
    weights: NDArray[np.float64] = getattr(start, "w", start)  # type: ignore[arg-type]
    return weights
