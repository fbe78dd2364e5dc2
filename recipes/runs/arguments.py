"""Checks of options of recipes: errors name the option and the expected values."""

import math
from typing import Any


def at_least(config: Any, **least: int) -> None:
    """Raise if a number, or one of several, is smaller; None is no number."""
    for name, smallest in least.items():
        value = getattr(config, name)
        for one in value if isinstance(value, tuple) else (value,):
            if one is not None and one < smallest:
                raise ValueError(f"{name}: expected at least {smallest}, got {one}")


def positive(config: Any, *names: str) -> None:
    """Raise if a number, or one of several, is not finite and above 0."""
    for name in names:
        value = getattr(config, name)
        for one in value if isinstance(value, tuple) else (value,):
            if not 0 < one < math.inf:
                raise ValueError(f"{name}: expected a positive number, got {one}")


def different(config: Any, *names: str) -> None:
    """Raise if one of several values is there twice."""
    for name in names:
        values = list(getattr(config, name))
        for value in values:
            if values.count(value) > 1:
                raise ValueError(
                    f"{name}: expected different values, got {value} more than once;"
                    " give it once"
                )
