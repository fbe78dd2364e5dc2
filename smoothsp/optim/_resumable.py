"""Resumable optimizers: progress, random numbers and mu in the state dict."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT, StateDict

from smoothsp.optim import _checks, _states
from smoothsp.optim._batches import check_generator
from smoothsp.optim._inspection import require_mu_read


def _list_state_entries(state: dict[int, dict[str, Any]]) -> list[str]:
    """Paths of all tensors in the state."""
    return [
        f"state[{n}][{name!r}]"
        for n, param_state in state.items()
        for name in param_state
    ]


class Resumable(Optimizer):
    """Base of optimizers that save progress, oracle calls and generator state.

    ``progress`` and ``oracle_calls`` change in place only: wrappers of the optimizer,
    such as that of Lightning, share the dicts.
    """

    # names of the tensors that may be stored for a parameter
    _state_names: ClassVar[tuple[str, ...]] = ()
    progress: dict[str, Any]
    oracle_calls: dict[str, float]
    generator: torch.Generator

    def __init__(
        self,
        params: ParamsT,
        defaults: dict[str, Any],
        progress: dict[str, Any],
        call_types: tuple[str, ...],
        generator: torch.Generator | None,
    ) -> None:
        self.progress = progress
        self.oracle_calls = dict.fromkeys(call_types, 0.0)
        self.generator = check_generator(generator)
        super().__init__(params, defaults)

    @property
    def _name(self) -> str:
        return type(self).__name__

    def state_dict(self) -> StateDict:
        """Return all that resuming needs besides the parameters, also in mid-epoch."""
        state = super().state_dict()
        return {
            **state,
            "names": _list_state_entries(state["state"]),
            "progress": dict(self.progress),
            "oracle_calls": dict(self.oracle_calls),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore a state from ``state_dict()``.

        Raises
        ------
        TypeError, ValueError
            If the state is not of such an optimizer; the optimizer is then unchanged.
        """
        if not isinstance(state_dict, dict):
            raise TypeError(
                f"state_dict: expected one that {self._name}.state_dict() returned, "
                f"got {type(state_dict).__name__}"
            )
        required_parts = {"state", "names", "param_groups"}
        required_parts |= {"progress", "oracle_calls", "generator"}
        missing = required_parts - set(state_dict)
        progress = state_dict.get("progress", {})
        progress = progress if isinstance(progress, dict) else {}
        saved_names = {*progress}
        if missing or not saved_names >= {*self.progress}:
            raise ValueError(
                f"state_dict: expected one that {self._name}.state_dict() returned, "
                f"got one without {sorted(missing or {*self.progress} - saved_names)}"
            )
        for path, value in self._invalid_entries(state_dict, progress):
            raise ValueError(
                f"state_dict: expected one that {self._name}.state_dict() returned, "
                f"got one with {_states.describe_value(value)} for {path}"
            )
        params = [p for group in self.param_groups for p in group["params"]]
        for path, fault in _states.param_state_faults(
            params, state_dict["state"], self._state_names
        ):
            raise ValueError(
                f"state_dict: expected one that {self._name}.state_dict() returned, "
                f"got one with {fault} for {path}. Was it another model?"
            )
        recorded_entries, param_state = (
            {*state_dict["names"]},
            {*_list_state_entries(state_dict["state"])},
        )
        # Exact comparisons of paths: a loaded state must not silently drop tensors.
        for path in sorted(recorded_entries ^ param_state):
            raise ValueError(
                f"state_dict: expected one that {self._name}.state_dict() returned, "
                f"got one {'without' if path in recorded_entries else 'with'} {path}"
            )
        generator = state_dict["generator"]
        try:
            torch.Generator().set_state(generator.cpu())
        except (AttributeError, RuntimeError, TypeError) as error:
            raise ValueError(
                "state_dict: expected the state of a generator of the cpu, got"
                f" {type(generator).__name__} ({error})"
            ) from error
        super().load_state_dict(state_dict)
        # Copies, not shared with the optimizer that saved them.
        for p, param_state in self.state.items():
            self.state[p] = {name: value.clone() for name, value in param_state.items()}
        self.progress.update(progress)
        self.oracle_calls.update(state_dict["oracle_calls"])
        self.generator.set_state(generator.cpu())

    def _invalid_entries(
        self, state_dict: StateDict, progress: dict[str, Any]
    ) -> Iterator[tuple[str, Any]]:
        """Invalid entries of a saved state: place and value."""
        yield from _find_invalid_values("progress", progress)
        calls = state_dict["oracle_calls"]
        if not isinstance(calls, dict) or calls.keys() != self.oracle_calls.keys():
            yield "oracle_calls", calls
        else:
            for name, value in calls.items():
                if not _is_finite(value):
                    yield f"oracle_calls[{name!r}]", value
        groups = state_dict["param_groups"]
        expected_groups = super().state_dict()["param_groups"]
        if not isinstance(groups, list) or len(groups) != len(expected_groups):
            yield "param_groups", groups
        else:
            for number, (group, expected) in enumerate(
                zip(groups, expected_groups, strict=True)
            ):
                if not isinstance(group, dict):
                    yield f"param_groups[{number}]", group
                    return
                # repr compares tensors and NaN, for which == fails.
                if repr(group.get("params")) != repr(expected["params"]):
                    yield f"param_groups[{number}]['params']", group.get("params")
                values = {**dict.fromkeys(self.defaults, "nothing"), **group}
                yield from _find_invalid_values(f"param_groups[{number}]", values)
        names = state_dict["names"]
        if not isinstance(names, list) or not all(isinstance(x, str) for x in names):
            yield "names", names

    def __getstate__(self) -> dict[str, Any]:
        # Hooks and the wrapped step of a scheduler are not pickled, as in torch.optim.
        return {
            name: value
            for name, value in self.__dict__.items()
            if not name.startswith("_optimizer_") and name != "step"
        }


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    is_int = isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, float) or (is_int and abs(value) < 2**63)


def _is_count(value: Any) -> bool:
    return _is_number(value) and isinstance(value, int) and value >= 0


def _is_nonnegative(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_finite(value: Any) -> bool:
    return _is_number(value) and 0 <= value < math.inf


def _is_positive(value: Any) -> bool:
    return _is_finite(value) and value > 0


def _is_optional_positive(value: Any) -> bool:
    return value is None or _is_positive(value)


_VALIDATORS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("open", "proved", "accepted"), _is_flag),
    **dict.fromkeys(("epoch", "step", "terms", "outer", "inner"), _is_count),
    **dict.fromkeys(("restarts", "epoch_steps", "epochs"), _is_count),
    **dict.fromkeys(("since", "halvings"), _is_count),
    "rises": lambda x: isinstance(x, list) and all(map(_is_number, x)),
    **dict.fromkeys(("full_loss", "first_loss", "first_objective"), _is_number),
    "alpha": lambda x: _is_positive(x) and x <= 1,
    **dict.fromkeys(("kappa", "mu_factor"), _is_positive),
    **dict.fromkeys(("mu", "start_mu", "weight_decay"), _is_finite),
    # NaN after an undone step.
    **dict.fromkeys(("beta", "start_objective", "objective", "candidate"), _is_number),
    "lr": _is_nonnegative,
    **dict.fromkeys(("first_lr", "derived_lr"), _is_optional_positive),
    "num_batches": lambda x: x is None or (_is_count(x) and x > 0),
    # Squares of the smoothness must not overflow.
    "smoothness": lambda x: x is None or (_is_positive(x) and x < 1e150),
}


def _find_invalid_values(
    path: str, values: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield path and value of saved values that are out of range."""
    for name, value in values.items():
        if name in _VALIDATORS and not _VALIDATORS[name](value):
            yield f"{path}[{name!r}]", value


class MuSchedule(Protocol):
    """Schedule with a mu for each iteration, k from 1."""

    def mu_at(self, k: int) -> float:
        """Strength of the smoothing of iteration k."""


def initial_mu(smoothing: Any, mu: float | None) -> float:
    """Initial mu: the argument, else that of the smoothing, else 0."""
    _checks.settable_mu(smoothing)
    if mu is None:
        return 0.0 if smoothing is None else float(smoothing.mu)
    if smoothing is not None:
        _checks.positive("mu", mu)
    return mu


class MuScheduleMixin(Resumable):
    """Mixin with a ``mu`` that scales the schedule and sets the smoothing."""

    smoothing: Any

    def _mu_schedule(self) -> MuSchedule:
        raise NotImplementedError

    @property
    def mu(self) -> float:
        """Smoothing of the current or next outer iteration, and of the bound loss.

        Setting it scales the rest of the schedule. Set it between epochs, because the
        full gradient of an epoch belongs to one mu.
        """
        planned = self._mu_schedule().mu_at(self.progress["outer"] + 1)
        return planned * float(self.progress["mu_factor"])

    @mu.setter
    def mu(self, value: float) -> None:
        _checks.positive("mu", value)
        planned = self._mu_schedule().mu_at(self.progress["outer"] + 1)
        if not planned:
            raise ValueError(
                "mu: expected an optimizer with the argument smoothing or mu, got "
                "one without smoothing"
            )
        self.progress["mu_factor"] = value / planned
        self._mu_changed()

    def _set_smoothing_mu(self) -> None:
        if self.smoothing is not None and self.mu:
            self.smoothing.mu = self.mu

    def _check_mu_read(self) -> AbstractContextManager[None]:
        """Context that raises if the closure does not read mu."""
        return require_mu_read(self._name, self.smoothing if self.mu else None)

    def _mu_changed(self) -> None:
        self._set_smoothing_mu()

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore a state from ``state_dict()``, including the mu of the bound loss."""
        super().load_state_dict(state_dict)
        self._set_smoothing_mu()
