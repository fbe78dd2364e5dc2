"""The estimators of ``smoothsp.linear``: a whole ``fit``, checks and gaps included."""

from collections.abc import Callable
from typing import Any

import numpy as np

from smoothsp.linear import CrammerSingerSVC, HingeSVC, WestonWatkinsSVC
from training import svm_objectives
from training.races import Answer, Racer

DTYPES = ("float64", "float32")
NAME = "smoothsp"
EPOCHS = 10_000
Objective = Callable[[Any], float]


def to_objective(
    kind: type, X: Any, y: np.ndarray, C: float, highest: float, dtype: str
) -> Racer:
    """A fit that stops at the gap at which an objective was reached.

    Which gap that is comes out of fits that are not timed. The duality gap is computed
    when it is worth it, as ``certify_every="auto"`` decides.
    """
    narrow = X.astype(dtype)
    model = kind(
        C=C,
        stopping="gap",
        tol=gap_at(kind, narrow, y, C, highest),
        fit_intercept=False,
        certify_every="auto",
        random_state=0,
        max_epochs=EPOCHS,
        verbose=False,
    )

    def read(fitted: Any) -> Answer:
        return Answer(objective(fitted, X, y, C), epochs=fitted.n_epochs_)

    # fewer gaps wake other samples: it may take a little more
    while read(model.fit(narrow, y)).objective > highest:
        model.set_params(tol=0.9 * model.tol)
    return Racer(NAME, lambda: model.fit(narrow, y), read, dtype, highest=highest)


class Reached(Exception):
    """The objective is low enough."""


def gap_at(kind: type, narrow: Any, y: np.ndarray, C: float, highest: float) -> float:
    """The gap of the first epoch at which the objective is low enough."""

    def look(certificate: Any) -> None:
        if certificate.primal <= highest:
            raise Reached(certificate.gap)

    model = kind(
        C=C,
        tol=0,
        fit_intercept=False,
        certify_every=8,
        random_state=0,
        max_epochs=EPOCHS,
        callback=look,
    )
    try:
        model.fit(narrow, y)
    except Reached as found:
        return float(found.args[0])
    raise ValueError(f"expected an objective of {highest}, got {model.history_[-1]}")


def objective(fitted: Any, X: Any, y: np.ndarray, C: float) -> float:
    W = fitted.coef_
    if isinstance(fitted, HingeSVC):
        return svm_objectives.binary(W[0], X, y, C)
    if len(W) == 1:
        W = np.concatenate([-W, W]) / 2
    return svm_objectives.crammer_singer(W, X, y, C)


def weston_watkins(X: Any, y: np.ndarray, solver: str, dtype: str, tol: float) -> Racer:
    """The time of its sweeps: gaps are not counted, as in the paper."""
    narrow = X.astype(dtype)
    model = WestonWatkinsSVC(
        tol=tol,
        stopping="relative_gap",
        fit_intercept=False,
        certify_every=1,
        solver=solver,
        random_state=0,
        max_epochs=EPOCHS,
        verbose=False,
    )

    def read(fitted: Any) -> Answer:
        last = fitted.history_[-1]
        return Answer(last.primal, last.seconds, fitted.n_epochs_)

    return Racer(solver, lambda: model.fit(narrow, y), read, dtype)


def threaded(X: Any, y: np.ndarray, threads: int) -> Racer:
    """A fit with a gap after each epoch; threads share the gaps, not the sweeps."""
    model = CrammerSingerSVC(
        stopping="relative_gap",
        fit_intercept=False,
        certify_every=1,
        random_state=0,
        verbose=False,
    )
    return Racer(
        f"{threads} thread{'s' if threads > 1 else ''}",
        lambda: model.fit(X, y),
        lambda fitted: Answer(epochs=fitted.n_epochs_),
        threads=threads,
    )
