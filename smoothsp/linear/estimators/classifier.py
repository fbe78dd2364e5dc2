"""Base of the estimators: arguments to problems, solutions to attributes."""

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from smoothsp.linear.descent.coordinate_descent import DescentSettings, Status
from smoothsp.linear.engines.run_monitor import STOPPING_RULES, Tolerance
from smoothsp.linear.engines.solution import Certificate
from smoothsp.linear.inputs import arrays, checks
from smoothsp.linear.inputs.arrays import round_up_to_lanes
from smoothsp.linear.inputs.sparse_matrices import (
    DenseRows,
    SparseRows,
    validate_sparse,
)

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


@contextmanager
def restore_on_error(estimator: Any) -> Iterator[None]:
    """Give the estimator its attributes back when what happens inside fails."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise


def make_descent_settings(
    estimator: Any, max_epochs: int | None = None
) -> DescentSettings:
    """The parameters of the loop, checked; ``max_epochs`` where None is a default."""
    checks.require_callback(estimator.callback)
    checks.as_optional_bool("verbose", estimator.verbose)
    every = estimator.certify_every
    if every != "auto":
        every = checks.as_positive_int("certify_every", every)
    return DescentSettings(
        name=type(estimator).__name__,
        tolerance=make_tolerance(estimator),
        shuffle=checks.as_bool("shuffle", estimator.shuffle),
        shrinking=checks.as_bool("shrinking", estimator.shrinking),
        max_epochs=checks.as_positive_int(
            "max_epochs", max_epochs or estimator.max_epochs
        ),
        certify_every=every,
        seed=int(checks.as_random_state(estimator.random_state).randint(2**31 - 1)),
        callback=estimator.callback,
        verbose=estimator.verbose,
    )


def make_tolerance(estimator: Any) -> Tolerance:
    """The parameters ``tol`` and ``stopping``, checked."""
    stopping = getattr(estimator, "stopping", "objective")
    checks.require_choice("stopping", stopping, STOPPING_RULES)
    return Tolerance(checks.as_nonnegative("tol", estimator.tol), stopping)


def validate_training_data(
    estimator: Any, X: Any, y: Any, sample_weight: Any
) -> Samples:
    """Check the training data, and find out what they say."""
    C = checks.as_positive("C", estimator.C)
    precomputed = getattr(estimator, "kernel", "linear") == "precomputed"
    X, y = validate_X_y(estimator, X, y, accept_sparse=False if precomputed else "csr")
    classes, labels = np.unique(y, return_inverse=True)
    checks.require_two_classes(classes)
    asked = getattr(estimator, "class_weight", None)
    factors = checks.compute_class_weights(asked, classes, y)
    weights = checks.as_sample_weight(sample_weight, len(labels))
    counted = np.unique(labels[(factors[labels] > 0) & (weights > 0)])
    if len(counted) < 2:
        name = "class_weight" if (factors == 0).any() else "sample_weight"
        raise ValueError(
            f"{name}: expected positive weights in at least two classes, got"
            f" {len(counted)}"
        )
    with np.errstate(over="ignore"):
        limits = C * factors[labels] * weights
    return Samples(X, labels, classes, checks.cast_loss_weights(limits, X.dtype))


def validate_X_y(
    estimator: Any,
    X: Any,
    y: Any,
    accept_sparse: str | bool = "csr",
    reset: bool = True,
) -> tuple[Any, NDArray[Any]]:
    """Samples and what they are labelled, checked; of new features with ``reset``."""
    # scikit-learn adds all numbers up
    with np.errstate(over="ignore", invalid="ignore"):
        X, y = validate_data(
            estimator,
            validate_sparse(X),
            y,
            accept_sparse=accept_sparse,
            dtype=[np.float64, np.float32],
            order="C",
            reset=reset,
        )
    try:
        # both sort the labels; integers are classes, and numbers can be sorted
        if y.dtype.kind not in "biu":
            check_classification_targets(y)
        if y.dtype.kind not in "biuf":
            np.unique(y)
    except TypeError as error:
        raise TypeError(
            f"y: expected labels that can be sorted, of one kind, got {error}"
        ) from error
    return X, y


def validate_X(estimator: Any, X: Any, accept_sparse: str | bool = "csr") -> Any:
    """Samples to be classified, checked."""
    with np.errstate(over="ignore", invalid="ignore"):
        return validate_data(
            estimator,
            validate_sparse(X),
            accept_sparse=accept_sparse,
            dtype=[np.float64, np.float32],
            reset=False,
        )


def intercept_feature_value(estimator: Any) -> float:
    """The value of the feature that carries the intercept; 0 for none."""
    scaling = checks.as_positive("intercept_scaling", estimator.intercept_scaling)
    return scaling if checks.as_bool("fit_intercept", estimator.fit_intercept) else 0.0


def compute_squared_norms(
    rows: SparseRows | DenseRows, constant: float
) -> NDArray[np.float64]:
    """Squared norms of the samples, ``constant`` among their features."""
    squares = rows.squares
    require_finite_squared_norms(squares, rows.data.dtype, constant)
    return squares


def require_finite_squared_norms(
    squares: NDArray[np.float64], dtype: Any, constant: float = 0.0
) -> None:
    """Refuse samples whose squared norm the dtype cannot hold."""
    most = float(np.finfo(dtype).max)
    if constant and not constant * constant <= most:
        raise ValueError(
            f"intercept_scaling: expected a number whose square fits {np.dtype(dtype)},"
            f" got {constant:.3g}"
        )
    wrong = ~(squares <= most)
    if wrong.any():
        i = int(wrong.argmax())
        raise ValueError(
            f"X: expected samples whose squared norm fits {np.dtype(dtype)}, got "
            f"{squares[i]:.3g} at sample {i}; scale the features, or lower C"
        )


def linear_model_bytes(samples: Samples, features: int, outputs: int) -> dict[str, int]:
    """Bytes of the weights and of the coefficients of a linear model."""
    dtype, n = samples.X.dtype, len(samples.labels)
    width = round_up_to_lanes(outputs, dtype) * dtype.itemsize
    return {
        f"weights of {features:,} features x {outputs:,} classes": features * width,
        f"coefficients of {n:,} samples x {outputs:,} classes": n * width,
    }


def require_memory(needed: dict[str, int]) -> None:
    """Refuse a fit that needs more bytes than the machine has left."""
    arrays.require_memory(needed, _REMEDY)


@dataclass(frozen=True)
class _WarmStartData:
    """Result of a fit, for a warm start."""

    labels: NDArray[np.intp]
    classes: NDArray[Any]
    table: NDArray[Any]


def load_warm_start(estimator: Any, samples: Samples) -> NDArray[Any] | None:
    """Coefficients of the previous fit, 0 for samples whose class was another.

    None without ``warm_start``, and for the first fit.
    """
    wanted = checks.as_bool("warm_start", estimator.warm_start)
    kept = getattr(estimator, "_warm_start_data", None)
    if not wanted or kept is None:
        return None
    n = len(samples.labels)
    if len(kept.labels) != n or not np.array_equal(kept.classes, samples.classes):
        raise ValueError(
            f"warm_start: expected the {len(kept.labels)} samples and "
            f"{len(kept.classes)} classes of the previous fit, got {n} and "
            f"{len(samples.classes)}, or other classes; set warm_start=False, or clone"
        )
    table = np.array(kept.table, dtype=samples.X.dtype)
    table[kept.labels != samples.labels] = 0
    return table


def store_warm_start(estimator: Any, samples: Samples, table: NDArray[Any]) -> None:
    """Keep coefficients ``(samples, outputs)`` if the next fit is to begin there."""
    estimator.__dict__.pop("_warm_start_data", None)
    if estimator.warm_start:
        estimator._warm_start_data = _WarmStartData(
            samples.labels, samples.classes, table.copy()
        )


def set_fit_results(
    estimator: Any, samples: Samples, status: Status, history: list[Certificate]
) -> None:
    """Set what is known about the fit."""
    estimator.classes_ = samples.classes
    estimator.history_ = history
    estimator.status_ = status
    estimator.n_iter_ = estimator.n_epochs_ = history[-1].epoch
    estimator.gap_ = history[-1].gap


_ADVICE = {
    Status.OUT_OF_EPOCHS: "Raise max_epochs or tol, or scale the features.",
    Status.ROUNDED: "Raise tol, lower C, or give X in float64.",
    Status.STOPPED: "With warm_start=True the next fit goes on from there.",
    Status.INTERRUPTED: "With warm_start=True the next fit goes on from there.",
}


def warn_if_not_converged(estimator: Any) -> None:
    """Warn of a fit that ended before its goal; called by ``fit`` itself."""
    status, last = estimator.status_, estimator.history_[-1]
    asked_for_all = status is Status.ROUNDED and estimator.tol == 0
    if status in (Status.CONVERGED, Status.LEVELLED) or asked_for_all:
        return
    found = last.primal, last.gap, last.epoch
    warn_not_converged(estimator, status.value, found, _ADVICE[status])


def warn_not_converged(
    estimator: Any,
    status: str,
    found: tuple[float, float, int],
    advice: str,
    unit: str = "passes",
) -> None:
    """Warn of a fit that ended before its goal, at this objective, gap and pass."""
    primal, gap, passes = found
    known = f"{gap:.3g}" if math.isfinite(gap) else "not known"
    of = "" if math.isnan(primal) else f" of an objective of {primal:.3g}"
    warnings.warn(
        f"{type(estimator).__name__}: {status}; the gap is {known}{of} after"
        f" {passes} {unit}. {advice}",
        ConvergenceWarning,
        stacklevel=4,
    )


def set_coef(estimator: Any, weights: NDArray[Any], constant: float) -> None:
    """Set ``coef_`` and ``intercept_`` from weights ``(features, outputs)``."""
    if weights.shape[1] == 2:
        weights = weights[:, 1:] - weights[:, :1]
    if constant:
        estimator.coef_ = weights[:-1].T
        estimator.intercept_ = constant * weights[-1]
    else:
        estimator.coef_ = weights.T
        estimator.intercept_ = np.zeros(weights.shape[1], dtype=weights.dtype)


def set_dual_coef(estimator: Any, table: NDArray[Any]) -> None:
    """Set ``support_`` and ``dual_coef_`` from coefficients ``(samples, outputs)``."""
    if table.shape[1] == 2:
        table = table[:, 1:] - table[:, :1]
    estimator.support_ = np.flatnonzero(table.any(axis=1))
    estimator.dual_coef_ = table[estimator.support_].T


def compute_linear_scores(estimator: Any, X: Any) -> NDArray[Any]:
    """``X coef_' + intercept_``; one column is flat."""
    check_is_fitted(estimator)
    X = validate_X(estimator, X)
    with np.errstate(over="ignore", invalid="ignore"):
        scores = safe_sparse_dot(X, estimator.coef_.T, dense_output=True)
        scores = scores + estimator.intercept_
    return ravel_binary_scores(require_finite_scores(scores))


def require_finite_scores(scores: NDArray[Any]) -> NDArray[Any]:
    """Scores, unless they are out of range."""
    wrong = ~np.isfinite(scores)
    if wrong.any():
        raise ValueError(
            f"X: expected features whose scores fit {scores.dtype}, got "
            f"{scores[wrong][0]} for sample {np.argwhere(wrong)[0, 0]}; scale the "
            "features"
        )
    return scores


def ravel_binary_scores(scores: NDArray[Any]) -> NDArray[Any]:
    """Scores of two classes as one number a sample: above 0 for the second."""
    return scores.ravel() if scores.shape[1] == 1 else scores


def scores_to_classes(estimator: Any, scores: NDArray[Any]) -> NDArray[Any]:
    """The class with the best score."""
    chosen = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(int)
    return np.asarray(estimator.classes_[chosen])


_FITTED_ATTRIBUTES = ("coef_", "dual_coef_", "gamma_", "support_", "support_vectors_")
_Fitted = TypeVar("_Fitted", bound="CertifiedClassifier")


class CertifiedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classes with scores linear in the features, and weights with a certificate."""

    def fit(
        self: _Fitted,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        resume: Mapping[str, NDArray[Any]] | None = None,
    ) -> _Fitted:
        """Solve for the weights.

        Parameters
        ----------
        X
            ``(samples, features)``, dense or CSR, float32 or float64, in which the
            weights come back. With a precomputed kernel ``(samples, samples)``.
        y
            ``(samples,)``: labels of any kind that can be sorted.
        sample_weight
            ``(samples,)``, at least 0: a sample of weight 2 is the same as two samples,
            one of weight 0 as none. ``F1SVC`` takes whole numbers, for samples have no
            part of their own in F1.
        resume
            The ``state`` of a certificate, from the callback of an earlier fit. Data
            and parameters must be the same, except ``max_epochs`` and ``tol``. The
            result equals that of an uninterrupted fit bit for bit. ``numpy.savez(path,
            **state)`` and ``numpy.load(path)`` keep it.

        Returns
        -------
        self
            Ctrl-C during the solver stops the fit with a warning and keeps the current
            weights and their gap. A second Ctrl-C, or one before the first step,
            raises. After an error the estimator is unchanged.
        """
        with restore_on_error(self):
            # what this fit does not set would be another's
            for name in _FITTED_ATTRIBUTES:
                self.__dict__.pop(name, None)
            self._fit(X, y, sample_weight, resume)
        warn_if_not_converged(self)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, resume: Any) -> None:
        raise NotImplementedError

    def decision_function(self, X: Any) -> NDArray[Any]:
        """``X @ coef_.T + intercept_``: ``(samples, classes)``, or ``(samples,)``.

        Of two classes the score is one number, above 0 for the second.
        """
        return compute_linear_scores(self, X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the best score, for each sample."""
        return scores_to_classes(self, self.decision_function(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
