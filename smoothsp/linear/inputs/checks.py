"""Checks of what the estimators are given, and their messages."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight

_MOST_LETTERS = 60


class Diverged(ValueError, FloatingPointError):
    """Weights, or an objective, that leave float64."""


def as_number(name: str, value: object) -> float:
    """Refuse what is no number; bool is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}")
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError(
            f"{name}: expected a number that fits float64, got an int of"
            f" {int(value).bit_length()} bits"
        ) from error


def as_positive(name: str, value: object) -> float:
    """``value`` as a number above 0."""
    given = as_number(name, value)
    if not 0 < given < math.inf:
        raise ValueError(f"{name}: expected a positive number, got {value}")
    return given


def as_nonnegative(name: str, value: object) -> float:
    """``value`` as a number of at least 0."""
    given = as_number(name, value)
    if not 0 <= given < math.inf:
        raise ValueError(f"{name}: expected a number of at least 0, got {value}")
    return given


def as_positive_int(name: str, value: object) -> int:
    """``value`` as an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected an int, got {short_repr(value)}")
    if value < 1:
        raise ValueError(f"{name}: expected at least 1, got {value}")
    return int(value)


def require_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    """Refuse what is not in a list."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(
            f"{name}: expected one of {tuple(allowed)}, got {short_repr(value)}"
        )


def require_callback(value: object) -> None:
    """Refuse what cannot be called; None is no callback."""
    if value is not None and not callable(value):
        raise TypeError(
            f"callback: expected a callable or None, got {short_repr(value)}"
        )


def as_random_state(random_state: Any) -> np.random.RandomState:
    """The random numbers of ``random_state``, as scikit-learn takes it."""
    try:
        found: np.random.RandomState = check_random_state(random_state)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "random_state: expected None, an int from 0 to 2**32 - 1 or a RandomState,"
            f" got {short_repr(random_state)}"
        ) from error
    return found


def fill_from_state(
    state: Mapping[str, Any], **arrays: NDArray[Any]
) -> list[NDArray[Any]]:
    """Fill arrays with those of a state that have their names and shapes."""
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
    """Short description of a value, for messages."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 3]}..."


def as_bool(name: str, value: object) -> bool:
    """``value`` as a bool."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: expected a bool, got {short_repr(value)}")
    return bool(value)


def as_optional_bool(name: str, value: object) -> bool | None:
    """Whether progress is shown; None: on a terminal, after three seconds.

    Levels of scikit-learn, 0, 1, 2, ..., are off and on.
    """
    if value is None:
        return None
    if not isinstance(value, bool | np.bool_ | int | np.integer):
        raise TypeError(f"{name}: expected 0, 1, 2, True, False or None, got {value!r}")
    if value < 0:
        raise ValueError(f"{name}: expected 0, 1 or 2, got {value}")
    return bool(value)


def as_sample_weight(value: Any, samples: int) -> NDArray[np.float64]:
    """``value`` as one weight of at least 0 a sample; 1 where there is none."""
    if value is None:
        return np.ones(samples)
    if isinstance(value, int | float):
        value = np.full(samples, value)
    try:
        given = as_real_float64(np.asarray(value))
    except (TypeError, ValueError) as error:
        raise TypeError(f"sample_weight: expected numbers, got {error}") from error
    if given.shape != (samples,):
        raise ValueError(
            f"sample_weight: expected (samples,) = ({samples},), got {given.shape}"
        )
    wrong = ~((given >= 0) & (given < math.inf))
    if wrong.any():
        i = int(wrong.argmax())
        raise ValueError(
            f"sample_weight: expected finite numbers of at least 0, got {given[i]} at "
            f"sample {i}"
        )
    if samples and not given.any():
        raise ValueError("sample_weight: expected a positive weight, got only zeros")
    return given


def as_real_float64(values: NDArray[Any]) -> NDArray[np.float64]:
    """Numbers as float64, unless they are complex, of which numpy drops a part."""
    if values.dtype.kind == "c":
        raise TypeError("complex numbers")
    return values.astype(np.float64)


def compute_class_weights(
    value: Any, classes: NDArray[Any], y: NDArray[Any]
) -> NDArray[np.float64]:
    """One weight of at least 0 a class, from None, ``"balanced"`` or a dict."""
    if value is None:
        return np.ones(len(classes))
    balanced = isinstance(value, str) and value == "balanced"
    if not balanced and not isinstance(value, dict):
        raise ValueError(
            'class_weight: expected None, "balanced" or a dict from classes to numbers,'
            f" got {short_repr(value)}"
        )
    try:
        found = as_real_float64(
            np.asarray(compute_class_weight(value, classes=classes, y=y))
        )
    except (TypeError, ValueError) as error:
        known = ", ".join(map(str, classes[:20].tolist()))
        raise ValueError(
            f"class_weight: expected numbers for classes of y ({known}), got"
            f" {short_repr(value)}"
        ) from error
    for name, factor in zip(classes, found, strict=True):
        as_nonnegative(f"class_weight of class {name}", factor)
    return found


def as_cost_matrix(
    value: Any, classes: int, dtype: Any = np.float64
) -> NDArray[np.float64] | None:
    """``value`` as margins ``(class, class)`` with zeros on the diagonal, or None."""
    if value is None:
        return None
    try:
        given = as_real_float64(np.asarray(value))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"cost: expected a matrix of numbers, got {short_repr(value)}"
        ) from error
    if given.shape != (classes, classes):
        raise ValueError(
            f"cost: expected (class, class) = ({classes}, {classes}) in the order of "
            f"classes_, got {given.shape}"
        )
    if not ((given >= 0) & (given < math.inf)).all():
        raise ValueError("cost: expected finite numbers of at least 0")
    if given.max() > np.finfo(dtype).max:
        raise ValueError(
            f"cost: expected numbers that fit {np.dtype(dtype)}, got {given.max():.3g}"
        )
    if np.diagonal(given).any():
        raise ValueError(
            "cost: expected zeros on the diagonal, the cost of a correct prediction"
        )
    return given


def require_two_classes(classes: NDArray[Any]) -> None:
    """Refuse labels of a single class."""
    if len(classes) < 2:
        raise ValueError(
            f"y: expected at least two classes, got only one class, {classes[0]}"
        )


def require_binary(classes: NDArray[Any]) -> None:
    """Refuse labels of more than two classes."""
    if len(classes) > 2:
        # scikit-learn asks for the first two sentences
        raise ValueError(
            "Only binary classification is supported. The type of the target is "
            f"multiclass. y: expected two classes, got {len(classes)}; "
            "WestonWatkinsSVC and CrammerSingerSVC take any number"
        )


def cast_loss_weights(limits: NDArray[np.float64], dtype: Any) -> NDArray[Any]:
    """C times the weights of the samples, in the dtype of X."""
    with np.errstate(over="ignore"):
        found = limits.astype(dtype)
    if not np.isfinite(found).all():
        raise ValueError(
            f"C: expected C times the weights of a sample to fit {np.dtype(dtype)}, "
            f"got {limits.max()}"
        )
    return found
