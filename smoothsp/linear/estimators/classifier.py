"""Base class of classifiers: validation of arguments, and fitted attributes."""

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

# End of messages about memory.
_REMEDY = (
    "A fit keeps (features + samples) x classes numbers: float32 data take half, fewer "
    "features, samples or classes take less."
)


@dataclass(frozen=True)
class Samples:
    """Validated training data.

    ``bounds[i]`` multiplies the loss of sample i: C times its weights.
    """

    X: Any
    labels: NDArray[np.intp]
    classes: NDArray[Any]
    bounds: NDArray[Any]


@contextmanager
def restore_on_error(estimator: Any) -> Iterator[None]:
    """Context manager that restores the estimator's attributes if its body raises."""
    attributes = dict(vars(estimator))
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(attributes)
        raise


def make_descent_settings(
    estimator: Any, max_epochs: int | None = None
) -> DescentSettings:
    """Return the validated settings of dual coordinate descent.

    ``max_epochs`` overrides the parameter, for estimators whose default is None.
    """
    checks.require_callback(estimator.callback)
    checks.as_optional_bool("verbose", estimator.verbose)
    certify_every = estimator.certify_every
    if certify_every != "auto":
        certify_every = checks.as_positive_int("certify_every", certify_every)
    return DescentSettings(
        name=type(estimator).__name__,
        tolerance=make_tolerance(estimator),
        shuffle=checks.as_bool("shuffle", estimator.shuffle),
        shrinking=checks.as_bool("shrinking", estimator.shrinking),
        max_epochs=checks.as_positive_int(
            "max_epochs", max_epochs or estimator.max_epochs
        ),
        certify_every=certify_every,
        seed=int(checks.as_random_state(estimator.random_state).randint(2**31 - 1)),
        callback=estimator.callback,
        verbose=estimator.verbose,
    )


def make_tolerance(estimator: Any) -> Tolerance:
    """Return the validated parameters ``tol`` and ``stopping``."""
    stopping = getattr(estimator, "stopping", "objective")
    checks.require_choice("stopping", stopping, STOPPING_RULES)
    return Tolerance(checks.as_nonnegative("tol", estimator.tol), stopping)


def validate_training_data(
    estimator: Any, X: Any, y: Any, sample_weight: Any
) -> Samples:
    """Validate X, y and weights; return them with classes and loss weights."""
    C = checks.as_positive("C", estimator.C)
    precomputed = getattr(estimator, "kernel", "linear") == "precomputed"
    X, y = validate_X_y(estimator, X, y, accept_sparse=False if precomputed else "csr")
    classes, labels = np.unique(y, return_inverse=True)
    checks.require_two_classes(classes)
    class_weight = getattr(estimator, "class_weight", None)
    factors = checks.compute_class_weights(class_weight, classes, y)
    weights = checks.as_sample_weight(sample_weight, len(labels))
    # samples without weight do not count: two classes must remain
    weighted_classes = np.unique(labels[(factors[labels] > 0) & (weights > 0)])
    if len(weighted_classes) < 2:
        name = "class_weight" if (factors == 0).any() else "sample_weight"
        raise ValueError(
            f"{name}: expected positive weights in at least two classes, got"
            f" {len(weighted_classes)}"
        )
    with np.errstate(over="ignore"):
        loss_weights = C * factors[labels] * weights
    return Samples(X, labels, classes, checks.cast_loss_weights(loss_weights, X.dtype))


def validate_X_y(
    estimator: Any,
    X: Any,
    y: Any,
    accept_sparse: str | bool = "csr",
    reset: bool = True,
) -> tuple[Any, NDArray[Any]]:
    """Validate X and y; ``reset`` allows another number of features."""
    # scikit-learn sums all entries to find infinities, which may overflow
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
        # skipped for integers, since both calls sort y
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
    """Validate the samples of a prediction."""
    # an infinite product or a sum of infinities is reported, not warned about
    with np.errstate(over="ignore", invalid="ignore"):
        return validate_data(
            estimator,
            validate_sparse(X),
            accept_sparse=accept_sparse,
            dtype=[np.float64, np.float32],
            reset=False,
        )


def intercept_feature_value(estimator: Any) -> float:
    """Return the value of the constant feature of the intercept; 0 for none."""
    scaling = checks.as_positive("intercept_scaling", estimator.intercept_scaling)
    return scaling if checks.as_bool("fit_intercept", estimator.fit_intercept) else 0.0


def compute_squared_norms(
    rows: SparseRows | DenseRows, intercept_value: float
) -> NDArray[np.float64]:
    """Squared norms of rows that include the constant feature; raise on overflow."""
    squared_norms = rows.squared_norms
    require_finite_squared_norms(squared_norms, rows.data.dtype, intercept_value)
    return squared_norms


def require_finite_squared_norms(
    squared_norms: NDArray[np.float64], dtype: Any, intercept_value: float = 0.0
) -> None:
    """Raise ValueError for samples whose squared norm overflows ``dtype``."""
    dtype_max = float(np.finfo(dtype).max)
    if intercept_value and not intercept_value * intercept_value <= dtype_max:
        raise ValueError(
            f"intercept_scaling: expected a number whose square fits {np.dtype(dtype)},"
            f" got {intercept_value:.3g}"
        )
    overflows = ~(squared_norms <= dtype_max)
    if overflows.any():
        i = int(overflows.argmax())
        raise ValueError(
            f"X: expected samples whose squared norm fits {np.dtype(dtype)}, got "
            f"{squared_norms[i]:.3g} at sample {i}; scale the features, or lower C"
        )


def linear_model_bytes(
    samples: Samples, num_features: int, num_outputs: int
) -> dict[str, int]:
    """Return the bytes of weights and dual coefficients, by purpose."""
    dtype, num_samples = samples.X.dtype, len(samples.labels)
    row_bytes = round_up_to_lanes(num_outputs, dtype) * dtype.itemsize
    return {
        f"weights of {num_features:,} features x {num_outputs:,} classes": num_features
        * row_bytes,
        f"coefficients of {num_samples:,} samples x {num_outputs:,}"
        f" classes": num_samples * row_bytes,
    }


def require_memory(required_bytes: dict[str, int]) -> None:
    """Raise MemoryError if a fit needs more bytes than are available."""
    arrays.require_memory(required_bytes, _REMEDY)


@dataclass(frozen=True)
class _WarmStartData:
    """Labels, classes and dual coefficients of the last fit, for a warm start."""

    labels: NDArray[np.intp]
    classes: NDArray[Any]
    duals: NDArray[Any]


def load_warm_start(estimator: Any, samples: Samples) -> NDArray[Any] | None:
    """Return the dual coefficients of the previous fit, or None.

    Samples whose class has changed start at 0. None without ``warm_start`` and for the
    first fit.
    """
    warm_start = checks.as_bool("warm_start", estimator.warm_start)
    previous = getattr(estimator, "_warm_start_data", None)
    if not warm_start or previous is None:
        return None
    num_samples = len(samples.labels)
    if len(previous.labels) != num_samples or not np.array_equal(
        previous.classes, samples.classes
    ):
        raise ValueError(
            f"warm_start: expected the {len(previous.labels)} samples and "
            f"{len(previous.classes)} classes of the previous fit, got {num_samples}"
            f" and "
            f"{len(samples.classes)}, or other classes; set warm_start=False, or clone"
        )
    duals = np.array(previous.duals, dtype=samples.X.dtype)
    duals[previous.labels != samples.labels] = 0
    return duals


def store_warm_start(estimator: Any, samples: Samples, duals: NDArray[Any]) -> None:
    """Store dual coefficients ``(samples, outputs)`` if ``warm_start`` is True."""
    estimator.__dict__.pop("_warm_start_data", None)
    if estimator.warm_start:
        estimator._warm_start_data = _WarmStartData(
            samples.labels, samples.classes, duals.copy()
        )


def set_fit_results(
    estimator: Any, samples: Samples, status: Status, history: list[Certificate]
) -> None:
    """Set ``classes_``, ``history_``, ``status_``, ``n_iter_`` and ``gap_``."""
    estimator.classes_ = samples.classes
    estimator.history_ = history
    estimator.status_ = status
    estimator.n_iter_ = estimator.n_epochs_ = history[-1].epoch
    estimator.gap_ = history[-1].gap


_ADVICE_BY_STATUS = {
    Status.OUT_OF_EPOCHS: "Raise max_epochs or tol, or scale the features.",
    Status.ROUNDED: "Raise tol, lower C, or give X in float64.",
    Status.STOPPED: "With warm_start=True the next fit continues from here.",
    Status.INTERRUPTED: "With warm_start=True the next fit continues from here.",
}


def warn_if_not_converged(estimator: Any) -> None:
    """Issue a ConvergenceWarning if the fit stopped above its tolerance."""
    status, certificate = estimator.status_, estimator.history_[-1]
    is_exact_as_possible = status is Status.ROUNDED and estimator.tol == 0
    if status in (Status.CONVERGED, Status.LEVELLED) or is_exact_as_possible:
        return
    last_values = certificate.primal, certificate.gap, certificate.epoch
    warn_not_converged(estimator, status.value, last_values, _ADVICE_BY_STATUS[status])


def warn_not_converged(
    estimator: Any,
    status: str,
    last_values: tuple[float, float, int],
    advice: str,
    unit: str = "passes",
) -> None:
    """Issue a ConvergenceWarning; ``last_values`` are primal, gap and passes."""
    primal, gap, passes = last_values
    gap_text = f"{gap:.3g}" if math.isfinite(gap) else "not known"
    objective_text = "" if math.isnan(primal) else f" of an objective of {primal:.3g}"
    warnings.warn(
        f"{type(estimator).__name__}: {status}; the gap is {gap_text}{objective_text}"
        f" after"
        f" {passes} {unit}. {advice}",
        ConvergenceWarning,
        stacklevel=4,
    )


def set_coef(estimator: Any, weights: NDArray[Any], intercept_value: float) -> None:
    """Set ``coef_`` and ``intercept_`` from weights ``(features, outputs)``."""
    # only the difference of two classes matters
    if weights.shape[1] == 2:
        weights = weights[:, 1:] - weights[:, :1]
    if intercept_value:
        estimator.coef_ = weights[:-1].T
        # weights of the constant feature; the score adds its value times them
        estimator.intercept_ = intercept_value * weights[-1]
    else:
        estimator.coef_ = weights.T
        estimator.intercept_ = np.zeros(weights.shape[1], dtype=weights.dtype)


def set_dual_coef(estimator: Any, duals: NDArray[Any]) -> None:
    """Set ``support_`` and ``dual_coef_`` from coefficients ``(samples, outputs)``."""
    if duals.shape[1] == 2:
        duals = duals[:, 1:] - duals[:, :1]
    estimator.support_ = np.flatnonzero(duals.any(axis=1))
    estimator.dual_coef_ = duals[estimator.support_].T


def compute_linear_scores(estimator: Any, X: Any) -> NDArray[Any]:
    """``X @ coef_.T + intercept_``; ``(samples, 1)`` is flattened."""
    check_is_fitted(estimator)
    X = validate_X(estimator, X)
    with np.errstate(over="ignore", invalid="ignore"):
        scores = safe_sparse_dot(X, estimator.coef_.T, dense_output=True)
        scores = scores + estimator.intercept_
    return ravel_binary_scores(require_finite_scores(scores))


def require_finite_scores(scores: NDArray[Any]) -> NDArray[Any]:
    """Return scores; raise ValueError if any is infinite or NaN."""
    is_infinite = ~np.isfinite(scores)
    if is_infinite.any():
        raise ValueError(
            f"X: expected features whose scores fit {scores.dtype}, got "
            f"{scores[is_infinite][0]} for sample {np.argwhere(is_infinite)[0, 0]};"
            f" scale the "
            "features"
        )
    return scores


def ravel_binary_scores(scores: NDArray[Any]) -> NDArray[Any]:
    """Flatten ``(samples, 1)`` scores of two classes to ``(samples,)``."""
    return scores.ravel() if scores.shape[1] == 1 else scores


def scores_to_classes(estimator: Any, scores: NDArray[Any]) -> NDArray[Any]:
    """``(samples,)``: the class of largest score, or of its sign for two classes."""
    class_index = (
        scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(int)
    )
    return np.asarray(estimator.classes_[class_index])


# Fitted attributes that only some parameters set.
_FITTED_ATTRIBUTES = ("coef_", "dual_coef_", "gamma_", "support_", "support_vectors_")
_Fitted = TypeVar("_Fitted", bound="CertifiedClassifier")


class CertifiedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Linear classifier whose weights come with a certified duality gap."""

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
            ``(samples,)``, at least 0: a sample of weight 2 equals two samples, and a
            sample of weight 0 none. ``F1SVC`` requires whole numbers, because F1 is not
            a sum over samples.
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
            # remove attributes of an earlier fit that this fit may not set
            for name in _FITTED_ATTRIBUTES:
                self.__dict__.pop(name, None)
            self._fit(X, y, sample_weight, resume)
        warn_if_not_converged(self)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, resume: Any) -> None:
        raise NotImplementedError

    def decision_function(self, X: Any) -> NDArray[Any]:
        """``X @ coef_.T + intercept_``: ``(samples, classes)``, or ``(samples,)``.

        For two classes the score is one number, positive for the second class.
        """
        return compute_linear_scores(self, X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the largest score for each sample."""
        return scores_to_classes(self, self.decision_function(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
