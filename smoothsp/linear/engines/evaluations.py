"""Observers of solver runs: functions called between passes, outside the solver."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class RunEvaluation(NamedTuple):
    """Costs of a run so far, and functions that compute its weights and lower bound."""

    passes: int
    oracle_calls: int
    seconds: float
    weights: Callable[[], NDArray[np.float64]]
    bound: Callable[[], float]


# Called between passes; a true return value stops the run.
Observer = Callable[[RunEvaluation], bool]
_observer: ContextVar[Observer | None] = ContextVar("_watch", default=None)
current_observer: Callable[[], Observer | None] = _observer.get


@contextmanager
def observe_runs(observer: Observer | None) -> Iterator[None]:
    """Call ``observer`` between all passes of solvers that run in this context.

    Limits of the solvers are ignored; their clock stops during the call.
    """
    token: Any = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)
