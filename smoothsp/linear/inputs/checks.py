"""Validation of parameters: convert a value or raise an error that names it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight

_MAX_REPR_LENGTH = 60


class Diverged(ValueError, FloatingPointError):
    """Weights or an objective that overflow float64."""


def as_number(name: str, value: object) -> float:
    """Return ``value`` as a float; raise TypeError if it is no number, or a bool."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}")
    # Python integers have no upper limit
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError(
            f"{name}: expected a number that fits float64, got an int of"
            f" {int(value).bit_length()} bits"
        ) from error


def as_positive(name: str, value: object) -> float:
    """Return ``value`` as a finite float above 0, or raise."""
    number = as_number(name, value)
    if not 0 < number < math.inf:
        raise ValueError(f"{name}: expected a positive number, got {value}")
    return number


def as_nonnegative(name: str, value: object) -> float:
    """Return ``value`` as a finite float of at least 0, or raise."""
    number = as_number(name, value)
    if not 0 <= number < math.inf:
        raise ValueError(f"{name}: expected a number of at least 0, got {value}")
    return number


def as_positive_int(name: str, value: object) -> int:
    """Return ``value`` as an int of at least 1, or raise."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected an int, got {short_repr(value)}")
    if value < 1:
        raise ValueError(f"{name}: expected at least 1, got {value}")
    return int(value)


def require_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    """Raise ValueError unless ``value`` is one of the strings ``allowed``."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(
            f"{name}: expected one of {tuple(allowed)}, got {short_repr(value)}"
        )


def require_callback(value: object) -> None:
    """Raise TypeError unless ``value`` is callable or None."""
    if value is not None and not callable(value):
        raise TypeError(
            f"callback: expected a callable or None, got {short_repr(value)}"
        )


def as_random_state(random_state: Any) -> np.random.RandomState:
    """Return the generator of ``random_state``: None, a seed or a RandomState."""
    try:
        rng: np.random.RandomState = check_random_state(random_state)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "random_state: expected None, an int from 0 to 2**32 - 1 or a RandomState,"
            f" got {short_repr(random_state)}"
        ) from error
    return rng


def fill_from_state(
    state: Mapping[str, Any], **arrays: NDArray[Any]
) -> list[NDArray[Any]]:
    """Copy the arrays of a state into ``arrays`` in place, by name; check shapes."""
    for name, array in arrays.items():
        shape = np.shape(state[name])
        if shape != array.shape:
            raise ValueError(
                f"resume: expected {name} of {array.shape}, got {shape}. Was it another"
                " problem?"
            )
        array[...] = state[name]
    return list(arrays.values())


def short_repr(value: object) -> str:
    """Return ``repr(value)`` on one line, cut to 60 characters."""
    text = " ".join(repr(value).split())
    return (
        text if len(text) <= _MAX_REPR_LENGTH else f"{text[: _MAX_REPR_LENGTH - 3]}..."
    )


def as_bool(name: str, value: object) -> bool:
    """Return ``value`` as a bool; raise TypeError for any other type."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: expected a bool, got {short_repr(value)}")
    return bool(value)


def as_optional_bool(name: str, value: object) -> bool | None:
    """Return a verbosity as True, False or None (decide by the terminal).

    Integers are the levels of scikit-learn: 0 is False, all others are True.
    """
    if value is None:
        return None
    if not isinstance(value, bool | np.bool_ | int | np.integer):
        raise TypeError(f"{name}: expected 0, 1, 2, True, False or None, got {value!r}")
    if value < 0:
        raise ValueError(f"{name}: expected 0, 1 or 2, got {value}")
    return bool(value)


def as_sample_weight(value: Any, num_samples: int) -> NDArray[np.float64]:
    """Return sample weights ``(num_samples,)`` of at least 0; None is 1 for all."""
    if value is None:
        return np.ones(num_samples)
    if isinstance(value, int | float):
        value = np.full(num_samples, value)
    try:
        weights = as_real_float64(np.asarray(value))
    except (TypeError, ValueError) as error:
        raise TypeError(f"sample_weight: expected numbers, got {error}") from error
    if weights.shape != (num_samples,):
        raise ValueError(
            f"sample_weight: expected (samples,) = ({num_samples},), got"
            f" {weights.shape}"
        )
    invalid = ~((weights >= 0) & (weights < math.inf))
    if invalid.any():
        i = int(invalid.argmax())
        raise ValueError(
            f"sample_weight: expected finite numbers of at least 0, got {weights[i]}"
            f" at "
            f"sample {i}"
        )
    if num_samples and not weights.any():
        raise ValueError("sample_weight: expected a positive weight, got only zeros")
    return weights


def as_real_float64(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return values as float64; raise TypeError for complex ones."""
    # astype would drop imaginary parts with only a warning
    if values.dtype.kind == "c":
        raise TypeError("complex numbers")
    return values.astype(np.float64)


def compute_class_weights(
    value: Any, classes: NDArray[Any], y: NDArray[Any]
) -> NDArray[np.float64]:
    """Return ``(class,)`` weights of at least 0 from None, ``"balanced"`` or a dict."""
    if value is None:
        return np.ones(len(classes))
    balanced = isinstance(value, str) and value == "balanced"
    if not balanced and not isinstance(value, dict):
        raise ValueError(
            'class_weight: expected None, "balanced" or a dict from classes to numbers,'
            f" got {short_repr(value)}"
        )
    try:
        class_weights = as_real_float64(
            np.asarray(compute_class_weight(value, classes=classes, y=y))
        )
    except (TypeError, ValueError) as error:
        class_names = ", ".join(map(str, classes[:20].tolist()))
        raise ValueError(
            f"class_weight: expected numbers for classes of y ({class_names}), got"
            f" {short_repr(value)}"
        ) from error
    for name, factor in zip(classes, class_weights, strict=True):
        as_nonnegative(f"class_weight of class {name}", factor)
    return class_weights


def as_cost_matrix(
    value: Any, num_classes: int, dtype: Any = np.float64
) -> NDArray[np.float64] | None:
    """Return costs ``(class, class)`` with zeros on the diagonal, or None."""
    if value is None:
        return None
    try:
        cost = as_real_float64(np.asarray(value))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"cost: expected a matrix of numbers, got {short_repr(value)}"
        ) from error
    if cost.shape != (num_classes, num_classes):
        raise ValueError(
            f"cost: expected (class, class) = ({num_classes}, {num_classes}) in the"
            f" order of "
            f"classes_, got {cost.shape}"
        )
    if not ((cost >= 0) & (cost < math.inf)).all():
        raise ValueError("cost: expected finite numbers of at least 0")
    if cost.max() > np.finfo(dtype).max:
        raise ValueError(
            f"cost: expected numbers that fit {np.dtype(dtype)}, got {cost.max():.3g}"
        )
    if np.diagonal(cost).any():
        raise ValueError(
            "cost: expected zeros on the diagonal, the cost of a correct prediction"
        )
    return cost


def require_two_classes(classes: NDArray[Any]) -> None:
    """Raise ValueError for labels of a single class."""
    if len(classes) < 2:
        raise ValueError(
            f"y: expected at least two classes, got only one class, {classes[0]}"
        )


def require_binary(classes: NDArray[Any]) -> None:
    """Raise ValueError for labels of more than two classes."""
    if len(classes) > 2:
        # scikit-learn's check_estimator requires the first two sentences verbatim
        raise ValueError(
            "Only binary classification is supported. The type of the target is "
            f"multiclass. y: expected two classes, got {len(classes)}; "
            "WestonWatkinsSVC and CrammerSingerSVC take any number"
        )


def cast_loss_weights(loss_weights: NDArray[np.float64], dtype: Any) -> NDArray[Any]:
    """Cast loss weights (C times sample weights) to ``dtype``; raise on overflow."""
    with np.errstate(over="ignore"):
        cast = loss_weights.astype(dtype)
    if not np.isfinite(cast).all():
        raise ValueError(
            f"C: expected C times the weights of a sample to fit {np.dtype(dtype)}, "
            f"got {loss_weights.max()}"
        )
    return cast
