"""Checks of options of recipes: errors name the option and the expected values."""

import math
from typing import Any


def require_at_least(config: Any, **minima: int) -> None:
    """Raise if a number, or one of several, is smaller; None is no number."""
    for name, minimum in minima.items():
        value = getattr(config, name)
        for number in value if isinstance(value, tuple) else (value,):
            if number is not None and number < minimum:
                raise ValueError(f"{name}: expected at least {minimum}, got {number}")


def require_positive(config: Any, *names: str) -> None:
    """Raise if a number, or one of several, is not finite and above 0."""
    for name in names:
        value = getattr(config, name)
        for number in value if isinstance(value, tuple) else (value,):
            if not 0 < number < math.inf:
                raise ValueError(f"{name}: expected a positive number, got {number}")


def require_distinct(config: Any, *names: str) -> None:
    """Raise if one of several values is there twice."""
    for name in names:
        values = list(getattr(config, name))
        for value in values:
            if values.count(value) > 1:
                raise ValueError(
                    f"{name}: expected different values, got {value} more than once;"
                    " give it once"
                )
