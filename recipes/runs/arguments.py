"""Checks of options of recipes: errors name the option and the expected values."""

import math
from collections.abc import Sequence
from typing import Any

from runs import checkpoint


def one_of(config: Any, **choices: Sequence[str]) -> None:
    for name, allowed in choices.items():
        value = getattr(config, name)
        if value not in allowed:
            expected = ", ".join(allowed)
            raise ValueError(f"{name}: expected one of {expected}, got {value!r}")


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


def of_run(config: Any) -> None:
    """Raise unless a run in ``--out`` goes on, is used, or may be replaced."""
    asked = {name: getattr(config, name, None) for name in ("evaluate", "predict")}
    asked |= {name: getattr(config, name) or None for name in ("resume", "overwrite")}
    given = [name for name, value in asked.items() if value is not None]
    for one, other in (
        ("evaluate", "predict"),
        ("resume", "evaluate"),
        ("resume", "predict"),
        ("resume", "overwrite"),
    ):
        if one in given and other in given:
            raise ValueError(f"{one}: expected --{one} or --{other}, got both")
    if config.resume:
        # before data are read or drawn, which may take minutes
        checkpoint.require_file(config.checkpoint)
    if given:
        return
    model = config.out / "model"
    if config.checkpoint.exists() or model.is_dir():
        found = config.checkpoint.name if config.checkpoint.exists() else model.name
        raise ValueError(
            f"--out: expected a folder without a run, got {config.out}, which has"
            f" {found}. Continue it with --resume, replace it with --overwrite, or give"
            " another --out"
        )
