"""What the estimators share: arguments to problems, solutions to attributes."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from smoothsp.linear import checks, memory
from smoothsp.linear.arrays import padded
from smoothsp.linear.descent.certificates import Certificate
from smoothsp.linear.descent.coordinate_descent import Plan, Status

_STOPPING = ("relative_gap", "gap")
_REMEDY = (
    "A fit keeps (features + samples) x classes numbers: float32 data take half, fewer "
    "features, samples or classes take less."
)


@dataclass(frozen=True)
class Samples:
    """Checked training data.

    ``bounds[i]`` multiplies the loss of sample i: C times its weights.
    """

    X: Any
    labels: NDArray[np.intp]
    classes: NDArray[Any]
    bounds: NDArray[Any]


def plan_of(estimator: Any) -> Plan:
    """The parameters of the loop, checked."""
    checks.choice("stopping", estimator.stopping, _STOPPING)
    if estimator.callback is not None and not callable(estimator.callback):
        raise TypeError(
            f"callback: expected a callable or None, got {estimator.callback!r}"
        )
    if estimator.verbose is not None:
        checks.flag("verbose", estimator.verbose)
    every = estimator.certify_every
    if every != "auto":
        every = checks.count("certify_every", every)
    return Plan(
        name=type(estimator).__name__,
        tol=checks.at_least_zero("tol", estimator.tol),
        stopping=estimator.stopping,
        shuffle=checks.flag("shuffle", estimator.shuffle),
        shrinking=checks.flag("shrinking", estimator.shrinking),
        max_epochs=checks.count("max_epochs", estimator.max_epochs),
        certify_every=every,
        seed=int(check_random_state(estimator.random_state).randint(2**31 - 1)),
        callback=estimator.callback,
        verbose=estimator.verbose,
    )


def read_samples(estimator: Any, X: Any, y: Any, sample_weight: Any) -> Samples:
    """Check the training data, and find out what they say."""
    C = checks.positive("C", estimator.C)
    precomputed = getattr(estimator, "kernel", "linear") == "precomputed"
    X, y = validate_data(
        estimator,
        X,
        y,
        accept_sparse=False if precomputed else "csr",
        dtype=[np.float64, np.float32],
        order="C",
    )
    check_classification_targets(y)
    classes, labels = np.unique(y, return_inverse=True)
    checks.two_classes(classes)
    factors = checks.class_factors(estimator.class_weight, classes, y)
    limits = C * factors[labels] * checks.weights(sample_weight, len(labels))
    return Samples(X, labels, classes, checks.bounds(limits, X.dtype))


def constant_feature(estimator: Any) -> float:
    """The value of the feature that carries the intercept; 0 for none."""
    scaling = checks.positive("intercept_scaling", estimator.intercept_scaling)
    return scaling if checks.flag("fit_intercept", estimator.fit_intercept) else 0.0


def squares_in_range(squares: NDArray[np.float64], dtype: Any) -> None:
    """Refuse samples whose squared norm the dtype cannot hold."""
    wrong = ~(squares <= np.finfo(dtype).max)
    if wrong.any():
        i = int(wrong.argmax())
        raise ValueError(
            f"X: expected samples whose squared norm fits {np.dtype(dtype)}, got "
            f"{squares[i]:.3g} at sample {i}; scale the features"
        )


def needed_by_linear(samples: Samples, features: int, outputs: int) -> dict[str, int]:
    """Bytes of the weights and of the coefficients of a linear model."""
    dtype, n = samples.X.dtype, len(samples.labels)
    width = padded(outputs, dtype) * dtype.itemsize
    return {
        f"weights of {features:,} features x {outputs:,} classes": features * width,
        f"coefficients of {n:,} samples x {outputs:,} classes": n * width,
    }


def require_memory(needed: dict[str, int]) -> None:
    """Refuse a fit that needs more bytes than the machine has left."""
    memory.require(needed, _REMEDY)


def keep_outcome(
    estimator: Any, samples: Samples, status: Status, history: list[Certificate]
) -> None:
    """Set what is known about the fit; warn if it fell short."""
    estimator.classes_ = samples.classes
    estimator.history_ = history
    estimator.status_ = status
    estimator.n_epochs_ = history[-1].epoch if history else 0
    estimator.gap_ = history[-1].gap if history else float("inf")
    if status is Status.OUT_OF_EPOCHS:
        warnings.warn(
            f"{type(estimator).__name__}: {status.value}; the gap is "
            f"{estimator.gap_:.3g} of an objective of {history[-1].primal:.3g} after "
            f"{estimator.n_epochs_} epochs. Raise max_epochs or tol, or scale the "
            "features.",
            ConvergenceWarning,
            stacklevel=3,
        )


def keep_weights(estimator: Any, weights: NDArray[Any], constant: float) -> None:
    """Set ``coef_`` and ``intercept_`` from weights ``(features, outputs)``."""
    if weights.shape[1] == 2:
        weights = weights[:, 1:] - weights[:, :1]
    if constant:
        estimator.coef_ = weights[:-1].T
        estimator.intercept_ = constant * weights[-1]
    else:
        estimator.coef_ = weights.T
        estimator.intercept_ = np.zeros(weights.shape[1], dtype=weights.dtype)


def keep_dual(estimator: Any, table: NDArray[Any]) -> None:
    """Set ``support_`` and ``dual_coef_`` from coefficients ``(samples, outputs)``."""
    if table.shape[1] == 2:
        table = table[:, 1:] - table[:, :1]
    estimator.support_ = np.flatnonzero(table.any(axis=1))
    estimator.dual_coef_ = table[estimator.support_].T


def linear_scores(estimator: Any, X: Any) -> NDArray[Any]:
    """``X coef_' + intercept_``; one column is flat."""
    check_is_fitted(estimator)
    X = validate_data(
        estimator, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False
    )
    scores = safe_sparse_dot(X, estimator.coef_.T, dense_output=True)
    return flat_if_single(scores + estimator.intercept_)


def flat_if_single(scores: NDArray[Any]) -> NDArray[Any]:
    """Scores of two classes as one number a sample: above 0 for the second."""
    return scores.ravel() if scores.shape[1] == 1 else scores


def best_class(estimator: Any, scores: NDArray[Any]) -> NDArray[Any]:
    """The class with the best score."""
    chosen = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(int)
    return np.asarray(estimator.classes_[chosen])
