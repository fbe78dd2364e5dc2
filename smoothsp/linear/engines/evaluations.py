"""Looks at a solver between its passes, from outside."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class RunEvaluation(NamedTuple):
    """Costs of a run so far, and functions that compute weights and bound."""

    passes: int
    oracle_calls: int
    seconds: float
    weights: Callable[[], NDArray[np.float64]]
    bound: Callable[[], float]


# True stops the run.
Observer = Callable[[RunEvaluation], bool]
_observer: ContextVar[Observer | None] = ContextVar("_watch", default=None)
current_observer: Callable[[], Observer | None] = _observer.get


@contextmanager
def observe_runs(observer: Observer | None) -> Iterator[None]:
    """Around calls of ``solve``: ``watch`` is called between all passes.

    The run has no limits but those of ``watch``, and its clock stops meanwhile.
    """
    token: Any = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)
