"""What a run keeps besides the parameters: progress, random numbers, and mu."""

from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT, StateDict

from smoothsp.optim import _checks
from smoothsp.optim._batches import own_generator
from smoothsp.optim._inspection import mu_is_read


class Resumable(Optimizer):
    """Saves where the run is, what it has cost, and its random numbers.

    ``progress`` and ``oracle_calls`` are changed in place only: a wrapper around an
    optimizer, as Lightning makes one, shares them.
    """

    progress: dict[str, Any]
    oracle_calls: dict[str, float]
    generator: torch.Generator

    def __init__(
        self,
        params: ParamsT,
        defaults: dict[str, Any],
        progress: dict[str, Any],
        kinds_of_calls: tuple[str, ...],
        generator: torch.Generator | None,
    ) -> None:
        self.progress = progress
        self.oracle_calls = dict.fromkeys(kinds_of_calls, 0.0)
        self.generator = own_generator(generator)
        super().__init__(params, defaults)

    @property
    def _name(self) -> str:
        return type(self).__name__

    def state_dict(self) -> StateDict:
        """All that a resumed run needs besides the parameters, mid-epoch included."""
        return {
            **super().state_dict(),
            "progress": dict(self.progress),
            "oracle_calls": dict(self.oracle_calls),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on where ``state_dict()`` was called."""
        if not isinstance(state_dict, dict):
            raise TypeError(
                f"state_dict: expected one that {self._name}.state_dict() returned, "
                f"got {type(state_dict).__name__}"
            )
        missing = {"progress", "oracle_calls", "generator"} - set(state_dict)
        progress = self._completed(state_dict.get("progress", {}))
        found = {*progress}
        if missing or not found >= {*self.progress}:
            raise ValueError(
                f"state_dict: expected one that {self._name}.state_dict() returned, "
                f"got one without {sorted(missing or {*self.progress} - found)}"
            )
        self._require_same_parameters(state_dict)
        generator = state_dict["generator"]
        try:
            torch.Generator().set_state(generator.cpu())
        except (AttributeError, RuntimeError, TypeError) as error:
            raise ValueError(
                "state_dict: expected the state of a generator of the cpu, got"
                f" {type(generator).__name__} ({error})"
            ) from error
        super().load_state_dict(state_dict)
        # not shared with the optimizer that wrote them
        for p, kept in self.state.items():
            self.state[p] = {name: value.clone() for name, value in kept.items()}
        self.progress.update(progress)
        self.oracle_calls.update(state_dict["oracle_calls"])
        self.generator.set_state(generator.cpu())

    def _require_same_parameters(self, state_dict: StateDict) -> None:
        """Refuse what was kept for parameters of other shapes."""
        groups = zip(self.param_groups, state_dict["param_groups"], strict=False)
        for own, saved in groups:
            for p, number in zip(own["params"], saved["params"], strict=False):
                for name, value in state_dict["state"].get(number, {}).items():
                    if value.shape != p.shape:
                        raise ValueError(
                            f"state_dict: expected a state of these parameters, got"
                            f" {name} of shape {tuple(value.shape)} for a parameter of"
                            f" shape {tuple(p.shape)}. Was it another model?"
                        )

    def _completed(self, progress: dict[str, Any]) -> dict[str, Any]:
        """With what states of earlier versions lack."""
        return progress

    def __getstate__(self) -> dict[str, Any]:
        # hooks stay behind, as in torch.optim, and so does a scheduler's wrapped step
        return {
            name: value
            for name, value in self.__dict__.items()
            if not name.startswith("_optimizer_") and name != "step"
        }


class MuSchedule(Protocol):
    """What has a mu for each iteration, k from 1."""

    def mu_at(self, k: int) -> float:
        """Strength of the smoothing of iteration k."""


def starting_mu(smoothing: Any, mu: float | None) -> float:
    """The mu given, or that of the smoothing; 0 without either."""
    _checks.settable_mu(smoothing)
    if mu is None:
        return 0.0 if smoothing is None else float(smoothing.mu)
    if smoothing is not None:
        _checks.positive("mu", mu)
    return mu


class BoundMu(Resumable):
    """Has a ``mu`` that scales its schedule's, and passes it on to its smoothing."""

    smoothing: Any

    def _mu_schedule(self) -> MuSchedule:
        raise NotImplementedError

    @property
    def mu(self) -> float:
        """Smoothing of the outer iteration in progress, or next; the bound loss's too.

        Setting it scales what is left of the schedule. Set it between epochs: the full
        gradient of an epoch belongs to one mu.
        """
        planned = self._mu_schedule().mu_at(self.progress["outer"] + 1)
        return planned * float(self.progress["mu_factor"])

    @mu.setter
    def mu(self, value: float) -> None:
        _checks.positive("mu", value)
        planned = self._mu_schedule().mu_at(self.progress["outer"] + 1)
        if not planned:
            raise ValueError(
                "mu: expected an optimizer built with smoothing= or mu=, got one "
                "without smoothing"
            )
        self.progress["mu_factor"] = value / planned
        self._mu_changed()

    def _pass_mu_on(self) -> None:
        if self.smoothing is not None and self.mu:
            self.smoothing.mu = self.mu

    def _watch(self) -> AbstractContextManager[None]:
        """Whether a closure follows the mu that it is given."""
        return mu_is_read(self._name, self.smoothing if self.mu else None)

    def _mu_changed(self) -> None:
        self._pass_mu_on()

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on where ``state_dict()`` was called; the bound loss gets its mu."""
        super().load_state_dict(state_dict)
        self._pass_mu_on()
