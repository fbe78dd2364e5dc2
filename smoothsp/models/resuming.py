"""States of a run, checked whole before any part of it is restored."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from smoothsp.optim import _states

__all__ = ["restore"]


def restore(
    state: Mapping[str, Any],
    parts: Mapping[str, Any],
    best: nn.Module,
    scores: Sequence[str],
    numbers: Mapping[str, Any] | None = None,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Restore the parts of a run; return its history and its best weights.

    Parameters
    ----------
    state
        ``state_dict()`` of each part, ``"history"`` and ``"best"``.
    parts
        Modules, optimizers and schedulers by name.
    best
        Module that the best weights fit.
    scores
        Numbers that each row of the history has.
    numbers
        Further entries, with values of the right types.

    Raises
    ------
    ValueError
        If an entry is missing or does not fit its part: names, shapes, dtypes, numbers
        that are not finite. No optimizer of ``torch.optim`` has read it then.
    """
    numbers = numbers or {}
    for name in (*parts, *numbers, "history", "best"):
        if name not in state:
            raise ValueError(
                f"state: expected one that such a run saved, got no {name}"
            )
    for name, value in numbers.items():
        _states.require_kinds(name, value, state[name])
    _states.require_history("history", state["history"], scores)
    known = best.state_dict() if state["history"] else {}
    _states.require_tensors("best", known, state["best"])
    saved: dict[Tensor, Tensor] = {}
    for name, part in parts.items():
        if isinstance(part, nn.Module):
            _states.require_tensors(name, part.state_dict(), state[name])
            saved |= {p: state[name][key] for key, p in part.named_parameters()}
        elif isinstance(part, LRScheduler):
            _states.require_kinds(name, part.state_dict(), state[name])
        elif type(part).__module__.startswith("torch.optim"):
            _states.require_optimizer(name, part, state[name], saved)
    for name, part in parts.items():
        part.load_state_dict(state[name])
    return state["history"], state["best"]
