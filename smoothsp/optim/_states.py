"""Validation of saved states before they are loaded.

``torch.optim`` accepts tensors of any shape, and its fused kernels then read and write
out of bounds.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

Fault = tuple[str, str]
# Tensors that an optimizer stores for each parameter besides "step", by class.
_STATE_TENSORS = {
    "Adam": ("exp_avg", "exp_avg_sq"),
    "AdamW": ("exp_avg", "exp_avg_sq"),
    "Adagrad": ("sum",),
    "SGD": ("momentum_buffer",),
}


def require_optimizer(
    path: str, optimizer: Optimizer, state: Any, saved: Mapping[Tensor, Tensor]
) -> None:
    """Raise unless a state fits an optimizer of ``torch.optim``.

    Learning rates and other numbers may differ; parameters, tensors and types must not.
    Parameters that differ from their ``saved`` values have changed, so need a state.
    """
    for subpath, fault in _optimizer_faults(optimizer, state, saved):
        raise _state_error(f"{path}.{subpath}", fault)


def require_tensors(path: str, expected: Mapping[str, Any], state: Any) -> None:
    """Raise unless a state has the names, shapes and dtypes of ``expected``."""
    for subpath, fault in _name_faults(expected, state):
        raise _state_error(f"{path}{subpath}", fault)
    for name, tensor in expected.items():
        for fault in tensor_faults(state[name], tensor.shape, tensor.dtype):
            raise _state_error(f"{path}[{name!r}]", fault)


def require_same_structure(path: str, expected: Any, value: Any) -> None:
    """Raise unless nested values have the names, types and lengths of ``expected``."""
    if isinstance(expected, dict):
        for subpath, fault in _name_faults(expected, value):
            raise _state_error(f"{path}{subpath}", fault)
        for name, expected_value in expected.items():
            require_same_structure(f"{path}[{name!r}]", expected_value, value[name])
    elif isinstance(expected, list):
        if not isinstance(value, list) or len(value) != len(expected):
            raise _state_error(path, type_name(value))
        for number, expected_value in enumerate(expected):
            require_same_structure(f"{path}[{number}]", expected_value, value[number])
    # ``bool`` is a subclass of int: compare types, not isinstance.
    elif type(expected) in (int, float):
        if not is_number(value) and (
            type(value) is not type(expected) or value != expected
        ):
            raise _state_error(path, describe_value(value))
    elif type(value) is not type(expected):
        raise _state_error(path, describe_value(value))


def require_history(path: str, history: Any, needed: Sequence[str]) -> None:
    """Raise unless history is a list of dicts of numbers with equal names.

    Values of ``needed`` names must not be None.
    """
    if not isinstance(history, list):
        raise _state_error(path, type_name(history))
    for number, row in enumerate(history):
        row_path = f"{path}[{number}]"
        if not isinstance(row, dict):
            raise _state_error(row_path, type_name(row))
        for name, fault in _name_faults(history[0], row):
            raise _state_error(f"{row_path}{name}", fault)
        if not _are_equal(row.get("epoch", number + 1), number + 1):
            raise _state_error(f"{row_path}['epoch']", describe_value(row["epoch"]))
        for name in needed:
            if not is_number(row.get(name)):
                raise _state_error(
                    f"{row_path}[{name!r}]", describe_value(row.get(name, "nothing"))
                )
        for name, value in row.items():
            if value is not None and not is_number(value):
                raise _state_error(f"{row_path}[{name!r}]", describe_value(value))


def _state_error(path: str, fault: str) -> ValueError:
    return ValueError(
        f"state: expected one that such a run saved, got {fault} for {path}"
    )


def tensor_faults(
    value: Any, shape: Sequence[int], dtype: torch.dtype | None = None
) -> Iterator[str]:
    """Yield a description unless a value is a finite tensor of this shape."""
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        yield type_name(value)
    elif value.is_meta:
        yield "a tensor without values, on the device meta"
    elif value.shape != torch.Size(shape):
        yield f"shape {tuple(value.shape)} in place of {tuple(shape)}"
    elif value.dtype != dtype if dtype else not value.is_floating_point():
        yield f"{value.dtype}"
    elif not bool(torch.isfinite(value).all()):
        yield "NaN or infinity"


def param_state_faults(
    params: Sequence[Tensor], state: Any, names: Sequence[str], has_step: bool = False
) -> Iterator[Fault]:
    """Yield path and description of state entries that do not fit the parameters."""
    if not isinstance(state, dict):
        yield "state", type_name(state)
        return
    names_allowed = {*names, *("step",) * has_step}
    for number, param_state in state.items():
        path = f"state[{number!r}]"
        if type(number) is not int or not 0 <= number < len(params):
            yield path, f"one parameter more than {len(params)}"
        elif not isinstance(param_state, dict) or not {*param_state} <= names_allowed:
            yield path, _describe_surplus(param_state, names_allowed)
        elif has_step and {*param_state} != names_allowed:
            yield path, f"no {', '.join(sorted(names_allowed - {*param_state}))}"
        else:
            p = params[number]
            for name, value in param_state.items():
                is_scalar = name == "step"
                shape = () if is_scalar else p.shape
                entry_path = f"{path}[{name!r}]"
                for fault in tensor_faults(
                    value, shape, torch.float32 if is_scalar else None
                ):
                    yield entry_path, fault
                is_nonnegative = name in ("step", "exp_avg_sq", "sum")
                if (
                    is_nonnegative
                    and isinstance(value, Tensor)
                    and not (value >= 0).all()
                ):
                    yield entry_path, "a negative number"


def _describe_surplus(param_state: Any, names_allowed: set[str]) -> str:
    if not isinstance(param_state, dict):
        return type_name(param_state)
    return f"also {', '.join(sorted(map(repr, {*param_state} - names_allowed)))}"


def _optimizer_faults(
    optimizer: Optimizer, state: Any, saved: Mapping[Tensor, Tensor]
) -> Iterator[Fault]:
    expected = optimizer.state_dict()
    if not isinstance(state, dict) or {*state} != {*expected}:
        yield "state_dict()", type_name(state)
        return
    groups = state["param_groups"]
    if not isinstance(groups, list) or len(groups) != len(expected["param_groups"]):
        yield "param_groups", type_name(groups)
        return
    for number, (group, expected_group) in enumerate(
        zip(groups, expected["param_groups"], strict=True)
    ):
        path = f"param_groups[{number}]"
        if not isinstance(group, dict) or not {*expected_group} <= {*group}:
            yield path, type_name(group)
            return
        for name, expected_value in expected_group.items():
            value = group[name]
            if isinstance(expected_value, tuple):
                # betas
                fits = isinstance(value, tuple | list)
                fits = fits and len(value) == len(expected_value)
                fits = fits and all(is_number(x) and 0 <= x < 1 for x in value)
            elif is_number(expected_value):
                fits = is_number(value) and value >= 0
            else:
                fits = _are_equal(value, expected_value)
            if not fits:
                yield f"{path}[{name!r}]", describe_value(value)
    params = [p for group in optimizer.param_groups for p in group["params"]]
    kind = type(optimizer).__name__
    if kind not in _STATE_TENSORS or any(
        g.get("amsgrad") for g in expected["param_groups"]
    ):
        # Other optimizers: names of their tensors are unknown.
        return
    names = _STATE_TENSORS[kind]
    is_plain_sgd = kind == "SGD" and not any(
        g["momentum"] for g in expected["param_groups"]
    )
    has_step = kind != "SGD"
    for path, fault in param_state_faults(
        params, state["state"], () if is_plain_sgd else names, has_step
    ):
        yield path, fault
        return
    for number, p in enumerate(params):
        if is_plain_sgd or number in state["state"] or p not in saved:
            continue
        if not torch.equal(saved[p].to(p), p):
            yield f"state[{number}]", "nothing"
    for number, param_state in state["state"].items():
        for name, value in param_state.items():
            reference = torch.empty_like(params[number], device="meta")
            # Fused kernels assume the memory layout of the parameter.
            if name != "step" and value.stride() != reference.stride():
                yield f"state[{number}][{name!r}]", f"strides {value.stride()}"


def _are_equal(value: Any, expected: Any) -> bool:
    """Whether values of the same type are equal; lists item by item."""
    if type(value) is not type(expected):
        return False
    if isinstance(expected, list):
        return len(value) == len(expected) and all(map(_are_equal, value, expected))
    return bool(value == expected)


def _name_faults(expected: Mapping[str, Any], state: Any) -> Iterator[Fault]:
    if not isinstance(state, Mapping):
        yield "", type_name(state)
        return
    for name in expected.keys() - state.keys():
        yield f"[{name!r}]", "nothing"
    for name in state.keys() - expected.keys():
        yield f"[{name!r}]", f"a {type_name(state[name])} that it does not have"


def is_number(value: Any) -> bool:
    """Whether a value is a finite int or float, not a bool."""
    return type(value) in (int, float) and abs(value) < 2.0**63 and math.isfinite(value)


def type_name(value: Any) -> str:
    """Type of a value, for messages."""
    return type(value).__name__


def describe_value(value: Any) -> str:
    """Value of plain types, type name of others, for messages."""
    is_plain = value is None or isinstance(value, int | float | str)
    return f"{value!r:.60}" if is_plain else type_name(value)
