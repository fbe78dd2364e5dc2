"""Settings of solvers and problems in words, to tell runs apart."""

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from smoothsp.linear.engines.run_monitor import RunLimits
from smoothsp.linear.inputs import arrays

# Deeper, objects are described by their type alone.
_DEEPEST = 4


def describe_settings(value: Any, depth: int = 0) -> str:
    """The type of a value and its attributes, without addresses in memory.

    Budgets, callbacks and progress bars of a solver have no part in it.
    """
    again = functools.partial(describe_settings, depth=depth + 1)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    if isinstance(value, np.ndarray):
        known = value.dtype.hasobject or arrays.checksum(value)
        return f"array({value.dtype}, {value.shape}, {known})"
    if isinstance(value, RunLimits):
        return f"tol={value.tol!r}"
    kind = type(value).__qualname__
    if isinstance(value, torch.Tensor):
        return again(value.detach().cpu().numpy())
    if isinstance(value, functools.partial):
        return again((value.func, value.args, value.keywords))
    if isinstance(value, type) or inspect.isroutine(value):
        return str(value.__qualname__)
    known = getattr(value, "checksum", None)
    if known is not None:
        return f"{kind}({known})"
    if depth > _DEEPEST:
        return kind
    if isinstance(value, Mapping):
        return f"{kind}({', '.join(f'{k}: {again(v)}' for k, v in value.items())})"
    if isinstance(value, list | tuple):
        return f"{kind}({', '.join(map(again, value))})"
    if isinstance(value, set | frozenset):
        return f"{kind}({', '.join(sorted(map(again, value)))})"
    if isinstance(value, np.random.Generator):
        return f"{kind}({value.bit_generator.state})"
    found = (
        {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if dataclasses.is_dataclass(value)
        else getattr(value, "__dict__", {})
    )
    return f"{kind}({', '.join(f'{k}={again(v)}' for k, v in sorted(found.items()))})"
