"""Potentials, true labels, and the shapes at which all methods are timed."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Problem:
    """Potentials that require gradients, and true labels."""

    emissions: Tensor  # [B, T, S]
    transitions: Tensor  # [S, S] as [from, to]
    start: Tensor  # [S]
    end: Tensor  # [S]
    labels: Tensor  # [B, T], 0 in the padding
    lengths: Tensor | None = None  # [B], the longest is T; absent if all are T

    @property
    def potentials(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.emissions, self.transitions, self.start, self.end

    @cached_property
    def mask(self) -> Tensor:
        """[B, T], True where a position is real."""
        batch, time, _ = self.emissions.shape
        steps = torch.arange(time, device=self.emissions.device).expand(batch, time)
        return steps < (time if self.lengths is None else self.lengths[:, None])

    @property
    def positions(self) -> int:
        """How many positions are real."""
        return int(self.mask.sum())

    def to(self, *target: torch.dtype | torch.device | str) -> "Problem":
        """The same problem in another dtype, or on another device."""
        moved = [x.detach().to(*target).requires_grad_() for x in self.potentials]
        device = moved[0].device
        lengths = None if self.lengths is None else self.lengths.to(device)
        return Problem(*moved, self.labels.to(device), lengths)


@dataclass(frozen=True)
class Case:
    """A shape; ragged if ``shortest`` is given: lengths from there to ``time``."""

    batch: int
    time: int
    states: int
    shortest: int | None = None

    def __str__(self) -> str:
        time = f"{self.time}" if self.shortest is None else self._lengths()
        return f"({self.batch}, {time}, {self.states})"

    def _lengths(self) -> str:
        return f"{self.shortest} to {self.time}"

    def full(self) -> "Case":
        """Equally many rows, all of the mean length: as many positions, no padding."""
        if self.shortest is None:
            return self
        return replace(self, time=(self.shortest + self.time) // 2, shortest=None)

    def draw(self, dtype: torch.dtype, seed: int) -> Problem:
        generator = torch.Generator().manual_seed(seed)
        B, T, S = self.batch, self.time, self.states
        potentials = [
            torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()
            for shape in ((B, T, S), (S, S), (S,), (S,))
        ]
        labels = torch.randint(S, (B, T), generator=generator)
        if self.shortest is None:
            return Problem(*potentials, labels)
        spread = torch.linspace(self.shortest, T, B).round().long()  # mean: the middle
        lengths = spread[torch.randperm(B, generator=generator)]
        problem = Problem(*potentials, labels, lengths)
        return replace(problem, labels=labels.masked_fill(~problem.mask, 0))


SMALL = Case(32, 50, 9)
WIDE = Case(32, 50, 50)
WIDEST = Case(8, 100, 200)
SHORT = Case(128, 30, 9)
LONG = Case(1, 1000, 9)
RAGGED = (Case(64, 80, 9, shortest=5), Case(64, 80, 50, shortest=5))
CASES = (SMALL, WIDE, WIDEST, SHORT, LONG, *RAGGED)

# Only ours, for the work that two threads share: several milliseconds each.
LARGE = (Case(4096, 100, 9), Case(512, 100, 50), Case(64, 100, 200))

# The figure: against S at (32, 50), against T at (32, S = 9).
AGAINST_STATES = tuple(Case(32, 50, S) for S in (2, 5, 9, 20, 50, 100, 200))
AGAINST_TIME = tuple(Case(32, T, 9) for T in (10, 30, 100, 300, 1000, 3000))

DTYPES = {"float32": torch.float32, "float64": torch.float64}
