"""Checks of saved states before anything reads them.

``torch.optim`` takes tensors of any shape, which its fused kernels read and write as if
they had that of the parameter.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

Fault = tuple[str, str]
# what an optimizer keeps of each parameter besides "step", by class
_KEPT = {
    "Adam": ("exp_avg", "exp_avg_sq"),
    "AdamW": ("exp_avg", "exp_avg_sq"),
    "Adagrad": ("sum",),
    "SGD": ("momentum_buffer",),
}


def require_optimizer(
    place: str, optimizer: Optimizer, state: Any, saved: Mapping[Tensor, Tensor]
) -> None:
    """Refuse what is no state of an optimizer of ``torch.optim`` as it is built.

    Learning rates and other numbers may differ; parameters, tensors and kinds of values
    may not. Parameters whose ``saved`` values differ from their first have moved, and
    so have a state.
    """
    for where, found in _optimizer_faults(optimizer, state, saved):
        raise _error(f"{place}.{where}", found)


def require_tensors(place: str, own: Mapping[str, Any], state: Any) -> None:
    """Refuse what is no ``state_dict()`` of a module whose own one is given."""
    for where, found in _same_names(own, state):
        raise _error(f"{place}{where}", found)
    for name, mine in own.items():
        for found in tensor_faults(state[name], mine.shape, mine.dtype):
            raise _error(f"{place}[{name!r}]", found)


def require_same_structure(place: str, own: Any, found: Any) -> None:
    """Refuse values of other names and types than one's own; lists are as long."""
    if isinstance(own, dict):
        for where, fault in _same_names(own, found):
            raise _error(f"{place}{where}", fault)
        for name, mine in own.items():
            require_same_structure(f"{place}[{name!r}]", mine, found[name])
    elif isinstance(own, list):
        if not isinstance(found, list) or len(found) != len(own):
            raise _error(place, kind_of(found))
        for number, mine in enumerate(own):
            require_same_structure(f"{place}[{number}]", mine, found[number])
    elif type(own) in (int, float):
        if not is_number(found) and (type(found) is not type(own) or found != own):
            raise _error(place, shown(found))
    elif type(found) is not type(own):
        raise _error(place, shown(found))


def require_history(place: str, history: Any, needed: Sequence[str]) -> None:
    """Refuse what is no list of rows of numbers with the same names.

    Among them are the ``needed`` ones, which are not None.
    """
    if not isinstance(history, list):
        raise _error(place, kind_of(history))
    for number, row in enumerate(history):
        where = f"{place}[{number}]"
        if not isinstance(row, dict):
            raise _error(where, kind_of(row))
        for name, found in _same_names(history[0], row):
            raise _error(f"{where}{name}", found)
        if not _equal(row.get("epoch", number + 1), number + 1):
            raise _error(f"{where}['epoch']", shown(row["epoch"]))
        for name in needed:
            if not is_number(row.get(name)):
                raise _error(f"{where}[{name!r}]", shown(row.get(name, "nothing")))
        for name, value in row.items():
            if value is not None and not is_number(value):
                raise _error(f"{where}[{name!r}]", shown(value))


def _error(place: str, found: str) -> ValueError:
    return ValueError(
        f"state: expected one that such a run saved, got {found} for {place}"
    )


def tensor_faults(
    value: Any, shape: Sequence[int], dtype: torch.dtype | None = None
) -> Iterator[str]:
    """Reasons why a value is no tensor of finite numbers of this shape."""
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        yield kind_of(value)
    elif value.is_meta:
        yield "a tensor without values, on the device meta"
    elif value.shape != torch.Size(shape):
        yield f"shape {tuple(value.shape)} in place of {tuple(shape)}"
    elif value.dtype != dtype if dtype else not value.is_floating_point():
        yield f"{value.dtype}"
    elif not bool(torch.isfinite(value).all()):
        yield "NaN or infinity"


def kept_faults(
    params: Sequence[Tensor], kept: Any, names: Sequence[str], step: bool = False
) -> Iterator[Fault]:
    """Places of what an optimizer keeps that do not fit its parameters."""
    if not isinstance(kept, dict):
        yield "state", kind_of(kept)
        return
    known = {*names, *("step",) * step}
    for number, one in kept.items():
        place = f"state[{number!r}]"
        if type(number) is not int or not 0 <= number < len(params):
            yield place, f"one parameter more than {len(params)}"
        elif not isinstance(one, dict) or not {*one} <= known:
            yield place, _surplus(one, known)
        elif step and {*one} != known:
            yield place, f"no {', '.join(sorted(known - {*one}))}"
        else:
            p = params[number]
            for name, value in one.items():
                scalar = name == "step"
                shape = () if scalar else p.shape
                where = f"{place}[{name!r}]"
                for found in tensor_faults(
                    value, shape, torch.float32 if scalar else None
                ):
                    yield where, found
                squares = name in ("step", "exp_avg_sq", "sum")
                if squares and isinstance(value, Tensor) and not (value >= 0).all():
                    yield where, "a negative number"


def _surplus(one: Any, known: set[str]) -> str:
    if not isinstance(one, dict):
        return kind_of(one)
    return f"also {', '.join(sorted(map(repr, {*one} - known)))}"


def _optimizer_faults(
    optimizer: Optimizer, state: Any, saved: Mapping[Tensor, Tensor]
) -> Iterator[Fault]:
    own = optimizer.state_dict()
    if not isinstance(state, dict) or {*state} != {*own}:
        yield "state_dict()", kind_of(state)
        return
    groups = state["param_groups"]
    if not isinstance(groups, list) or len(groups) != len(own["param_groups"]):
        yield "param_groups", kind_of(groups)
        return
    for number, (group, mine) in enumerate(
        zip(groups, own["param_groups"], strict=True)
    ):
        place = f"param_groups[{number}]"
        if not isinstance(group, dict) or not {*mine} <= {*group}:
            yield place, kind_of(group)
            return
        for name, value in mine.items():
            given = group[name]
            if isinstance(value, tuple):
                # betas
                fits = isinstance(given, tuple | list) and len(given) == len(value)
                fits = fits and all(is_number(x) and 0 <= x < 1 for x in given)
            elif is_number(value):
                fits = is_number(given) and given >= 0
            else:
                fits = _equal(given, value)
            if not fits:
                yield f"{place}[{name!r}]", shown(given)
    params = [p for group in optimizer.param_groups for p in group["params"]]
    kind = type(optimizer).__name__
    if kind not in _KEPT or any(g.get("amsgrad") for g in own["param_groups"]):
        # of further tensors for each parameter, whose names are not known here
        return
    names = _KEPT[kind]
    plain = kind == "SGD" and not any(g["momentum"] for g in own["param_groups"])
    step = kind != "SGD"
    for place, found in kept_faults(
        params, state["state"], () if plain else names, step
    ):
        yield place, found
        return
    for number, p in enumerate(params):
        if plain or number in state["state"] or p not in saved:
            continue
        if not torch.equal(saved[p].to(p), p):
            yield f"state[{number}]", "nothing"
    for number, one in state["state"].items():
        for name, value in one.items():
            like = torch.empty_like(params[number], device="meta")
            # kernels run over the memory of a parameter
            if name != "step" and value.stride() != like.stride():
                yield f"state[{number}][{name!r}]", f"strides {value.stride()}"


def _equal(found: Any, own: Any) -> bool:
    """Whether values of the same type are equal; lists item by item."""
    if type(found) is not type(own):
        return False
    if isinstance(own, list):
        return len(found) == len(own) and all(map(_equal, found, own))
    return bool(found == own)


def _same_names(own: Mapping[str, Any], state: Any) -> Iterator[Fault]:
    if not isinstance(state, Mapping):
        yield "", kind_of(state)
        return
    for name in own.keys() - state.keys():
        yield f"[{name!r}]", "nothing"
    for name in state.keys() - own.keys():
        yield f"[{name!r}]", f"a {kind_of(state[name])} that it does not have"


def is_number(value: Any) -> bool:
    """Whether it is a finite number of Python, no bool."""
    return type(value) in (int, float) and abs(value) < 2.0**63 and math.isfinite(value)


def kind_of(value: Any) -> str:
    """Type of a value, for messages."""
    return type(value).__name__


def shown(value: Any) -> str:
    """A plain value, or the type of another, for messages."""
    plain = value is None or isinstance(value, int | float | str)
    return f"{value!r:.60}" if plain else kind_of(value)
