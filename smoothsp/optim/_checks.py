"""Validation of arguments."""

import math
from collections.abc import Sequence

from torch import Tensor


def number(name: str, value: object) -> float:
    """Return a number; raise for other types and for bool."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}")
    try:
        float(value)
    except OverflowError as error:
        raise ValueError(
            f"{name}: expected a number that fits float64, got an int of"
            f" {int(value).bit_length()} bits"
        ) from error
    return value


def positive(name: str, value: object, infinite: bool = False) -> None:
    """Raise unless value > 0; infinity is allowed only with ``infinite``."""
    checked = number(name, value)
    if not checked > 0 or (checked == math.inf and not infinite):
        raise ValueError(f"{name}: expected a positive number, got {value}")


def nonnegative(name: str, value: object) -> None:
    """Raise unless value is finite and >= 0."""
    if not 0 <= number(name, value) < math.inf:
        raise ValueError(f"{name}: expected a number of at least 0, got {value}")


def count(name: str, value: object) -> None:
    """Raise unless value is an int >= 1."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: expected an int, got {value!r}")
    if value < 1:
        raise ValueError(f"{name}: expected at least 1, got {value}")


def function(name: str, value: object) -> None:
    """Raise unless value is callable."""
    if not callable(value):
        raise TypeError(f"{name}: expected a function, got {type(value).__name__}")


def choice(name: str, value: object, allowed: Sequence[str]) -> None:
    """Raise unless value is one of the allowed strings."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name}: expected one of {tuple(allowed)}, got {value!r}")


def settable_mu(smoothing: object) -> None:
    """Raise unless smoothing is None or has an attribute ``mu``."""
    if smoothing is not None and not hasattr(smoothing, "mu"):
        raise TypeError(
            "smoothing: expected an object with an attribute mu, such as "
            f"losses.L2(mu, k), got {type(smoothing).__name__}"
        )


def dense(optimizer: str, param: Tensor) -> None:
    """Raise if the gradient of a parameter is sparse."""
    if param.grad is not None and param.grad.layout != param.layout:
        raise RuntimeError(
            f"{optimizer}: expected dense gradients, got a sparse one for a parameter "
            f"of shape {tuple(param.shape)}; build its embedding with sparse=False"
        )
