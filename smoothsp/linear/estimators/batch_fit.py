"""Fits by solvers that take the whole set at a time, as estimators tell of them."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from smoothsp.linear.descent.coordinate_descent import Status, require_finite_sum
from smoothsp.linear.engines.solution import Bounds, Certificate, Solution
from smoothsp.linear.estimators import classifier
from smoothsp.linear.inputs import checks

# ``solve(tol=, callback=, progress=)``
Solve = Callable[..., Solution]


def run_batch_solver(
    estimator: Any,
    solve: Solve,
    scale: float,
    history: list[Certificate],
    max_epochs: int,
) -> tuple[NDArray[np.float64], Status]:
    """Run a solver whose objective, times ``scale``, is that of the estimator.

    Fills ``history``, and calls the callback of the estimator after each certificate.
    Stops at its ``tol``, by its ``stopping``.
    """
    tolerance = classifier.make_tolerance(estimator)
    if tolerance.stopping == "gap":
        tolerance = replace(tolerance, tol=tolerance.tol / scale)
    callback = estimator.callback
    checks.require_callback(callback)
    stopped = False

    def look(found: Certificate) -> bool:
        nonlocal stopped
        history[:] = [*history, scale_certificate(found, scale)]
        if callback is not None:
            with history[-1].with_state(lambda: found.state, lambda: found.w):
                stopped = bool(callback(history[-1]))
        return stopped

    solution = solve(
        tol=tolerance,
        callback=look,
        progress=checks.as_optional_bool("verbose", estimator.verbose),
    )
    history[:] = [scale_certificate(found, scale) for found in solution.history]
    if not history or history[-1].passes < solution.passes:
        # interrupted, with no time for another certificate
        counts = solution.passes, solution.oracle_calls, solution.seconds
        history.append(Certificate(*counts, *Bounds(math.nan)))
    if solution.converged:
        known = not math.isnan(solution.gap)
        return solution.w, Status.CONVERGED if known else Status.LEVELLED
    if solution.interrupted:
        return solution.w, Status.INTERRUPTED
    if stopped:
        return solution.w, Status.STOPPED
    short = solution.passes >= max_epochs
    return solution.w, Status.OUT_OF_EPOCHS if short else Status.ROUNDED


def scale_certificate(found: Certificate, scale: float) -> Certificate:
    """A certificate of an objective that is ``scale`` times as large."""
    values = [scale * x for x in found.bounds]
    # NaN where the solver knows no bound
    if np.isinf(values).any():
        raise ValueError(
            "C: expected one for which objective and gap fit float64, got"
            f" {values[0]:.3g} and {values[2]:.3g}; lower C, or scale the features"
        )
    return Certificate(found.passes, found.oracle_calls, found.seconds, *values)


def require_valid_loss_weights(bounds: NDArray[Any]) -> None:
    """Refuse C times weights whose sum, or whose share of a mean, is no number."""
    limits = bounds.astype(np.float64)
    require_finite_sum(limits)
    largest = float(limits.max())
    if not largest / len(limits) >= np.finfo(np.float64).tiny:
        raise ValueError(
            "C: expected one for which C times the weights of the samples is a number,"
            f" got {largest:.3g}; raise C, or the weights"
        )


def append_intercept_feature(X: Any, constant: float) -> Any:
    """X with one more feature, if it is not 0."""
    if not constant:
        return X
    column = np.full((X.shape[0], 1), constant)
    if sparse.issparse(X):
        return sparse.hstack([X, column], format="csr")
    return np.hstack([X, column])


def labels_to_signs(labels: NDArray[np.intp]) -> NDArray[np.float64]:
    """1 for the second class and -1 for the first."""
    return np.where(labels == 1, 1.0, -1.0)


def lambda_from_C(C: float, samples: float) -> float:
    """1 over C times samples, if that is a number."""
    lam = 1 / (C * samples)
    if not 0 < lam < math.inf:
        raise ValueError(f"C: expected one for which 1 / (C n) is a number, got {C}")
    return lam
