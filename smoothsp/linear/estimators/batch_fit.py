"""Fits of estimators by batch solvers: certificates, status and scaling."""

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

# Called as ``solve(tol=..., callback=..., progress=...)``.
Solve = Callable[..., Solution]


def run_batch_solver(
    estimator: Any,
    solve: Solve,
    scale: float,
    history: list[Certificate],
    max_epochs: int,
) -> tuple[NDArray[np.float64], Status]:
    """Run a solver whose objective times ``scale`` is the objective of the estimator.

    Fills ``history`` with scaled certificates and calls the estimator's callback with
    each. Stops by its ``tol`` and ``stopping``. Returns the weights and the status.
    """
    tolerance = classifier.make_tolerance(estimator)
    if tolerance.stopping == "gap":
        # an absolute gap is in units of the estimator's objective
        tolerance = replace(tolerance, tol=tolerance.tol / scale)
    callback = estimator.callback
    checks.require_callback(callback)
    stopped = False

    def record_certificate(certificate: Certificate) -> bool:
        nonlocal stopped
        # rebound in place: the estimator and the callback share the list
        history[:] = [*history, scale_certificate(certificate, scale)]
        if callback is not None:
            with history[-1].with_state(
                lambda: certificate.state, lambda: certificate.w
            ):
                stopped = bool(callback(history[-1]))
        return stopped

    solution = solve(
        tol=tolerance,
        callback=record_certificate,
        progress=checks.as_optional_bool("verbose", estimator.verbose),
    )
    history[:] = [
        scale_certificate(certificate, scale) for certificate in solution.history
    ]
    if not history or history[-1].passes < solution.passes:
        # interrupted before a certificate of the last passes: their gap is unknown
        counts = solution.passes, solution.oracle_calls, solution.seconds
        history.append(Certificate(*counts, *Bounds(math.nan)))
    if solution.converged:
        is_certified = not math.isnan(solution.gap)
        return solution.w, Status.CONVERGED if is_certified else Status.LEVELLED
    if solution.interrupted:
        return solution.w, Status.INTERRUPTED
    if stopped:
        return solution.w, Status.STOPPED
    is_out_of_passes = solution.passes >= max_epochs
    return solution.w, Status.OUT_OF_EPOCHS if is_out_of_passes else Status.ROUNDED


def scale_certificate(certificate: Certificate, scale: float) -> Certificate:
    """Return a certificate with primal, dual and gap multiplied by ``scale``."""
    values = [scale * x for x in certificate.bounds]
    # a missing bound is NaN, which is allowed; infinity is an overflow
    if np.isinf(values).any():
        raise ValueError(
            "C: expected a value for which objective and gap fit float64, got"
            f" {values[0]:.3g} and {values[2]:.3g}; lower C, or scale the features"
        )
    return Certificate(
        certificate.passes, certificate.oracle_calls, certificate.seconds, *values
    )


def require_valid_loss_weights(loss_weights: NDArray[Any]) -> None:
    """Raise ValueError if the sum or the mean of loss weights leaves float64."""
    weights = loss_weights.astype(np.float64)
    require_finite_sum(weights)
    largest = float(weights.max())
    if not largest / len(weights) >= np.finfo(np.float64).tiny:
        raise ValueError(
            "C: expected a value for which C times the sample weights is not denormal,"
            f" got {largest:.3g}; raise C, or the weights"
        )


def append_intercept_feature(X: Any, intercept_value: float) -> Any:
    """Append a constant feature to X, unless ``intercept_value`` is 0."""
    if not intercept_value:
        return X
    column = np.full((X.shape[0], 1), intercept_value)
    if sparse.issparse(X):
        return sparse.hstack([X, column], format="csr")
    return np.hstack([X, column])


def labels_to_signs(labels: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return 1 for class 1 and -1 for class 0."""
    return np.where(labels == 1, 1.0, -1.0)


def lambda_from_C(C: float, num_samples: float) -> float:
    """Return ``1 / (C num_samples)``; raise if it is not a positive finite number."""
    lam = 1 / (C * num_samples)
    if not 0 < lam < math.inf:
        raise ValueError(f"C: expected a value for which 1 / (C n) is finite, got {C}")
    return lam
