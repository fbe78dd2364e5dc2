"""The strength of the smoothing, and the object of the loss that follows it."""

from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch.optim.optimizer import StateDict

from smoothsp.optim import _checks
from smoothsp.optim._inspection import mu_is_read
from smoothsp.optim._resumable import Resumable


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
