"""Descriptions of solvers and problems as text, to identify stored runs."""

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from smoothsp.linear.engines.run_monitor import RunLimits
from smoothsp.linear.inputs import arrays

# Objects nested deeper are described by their type alone.
_MAX_DEPTH = 4


def describe_settings(value: Any, depth: int = 0) -> str:
    """Describe a value by its type and attributes, without memory addresses.

    Of the limits of a solver only the tolerance is included.
    """
    describe_nested = functools.partial(describe_settings, depth=depth + 1)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    if isinstance(value, np.ndarray):
        checksum = value.dtype.hasobject or arrays.checksum(value)
        return f"array({value.dtype}, {value.shape}, {checksum})"
    # Budgets and callbacks do not change the iterates.
    if isinstance(value, RunLimits):
        return f"tol={value.tol!r}"
    type_name = type(value).__qualname__
    if isinstance(value, torch.Tensor):
        return describe_nested(value.detach().cpu().numpy())
    if isinstance(value, functools.partial):
        return describe_nested((value.func, value.args, value.keywords))
    if isinstance(value, type) or inspect.isroutine(value):
        return str(value.__qualname__)
    # Dataset objects identify themselves by their checksum.
    checksum = getattr(value, "checksum", None)
    if checksum is not None:
        return f"{type_name}({checksum})"
    if depth > _MAX_DEPTH:
        return type_name
    if isinstance(value, Mapping):
        items = ", ".join(f"{k}: {describe_nested(v)}" for k, v in value.items())
        return f"{type_name}({items})"
    if isinstance(value, list | tuple):
        return f"{type_name}({', '.join(map(describe_nested, value))})"
    if isinstance(value, set | frozenset):
        return f"{type_name}({', '.join(sorted(map(describe_nested, value)))})"
    if isinstance(value, np.random.Generator):
        return f"{type_name}({value.bit_generator.state})"
    attributes = (
        {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if dataclasses.is_dataclass(value)
        else getattr(value, "__dict__", {})
    )
    items = ", ".join(
        f"{k}={describe_nested(v)}" for k, v in sorted(attributes.items())
    )
    return f"{type_name}({items})"
