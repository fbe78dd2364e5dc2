"""The questions that losses ask, as protocols."""

from typing import Protocol, TypeVar, runtime_checkable

from torch import Tensor

Self = TypeVar("Self")


@runtime_checkable
class Structure(Protocol):
    """One batch of potentials, with exact maximisation."""

    @property
    def lengths(self) -> Tensor:
        """``(batch,)``: the number of labels of each row."""
        ...

    def score(self, y: Tensor) -> Tensor:
        """Scores of the outputs y, ``(batch,)``."""
        ...

    def hamming(self, y: Tensor) -> Tensor:
        """Cost 1 for every label that differs from y."""
        ...

    def label_counts(self, y: Tensor) -> Tensor:
        """How often y uses each label, ``(batch, label)``."""
        ...

    def augment(self: Self, cost: Tensor) -> Self:
        """The structure with a cost added to its potentials."""
        ...

    def select(self: Self, rows: Tensor) -> Self:
        """The structure of some rows."""
        ...

    def decode(self) -> tuple[Tensor, Tensor]:
        """Highest score of each row, and an output that attains it."""
        ...


@runtime_checkable
class TopKStructure(Structure, Protocol):
    """A structure that lists its K best outputs."""

    def decode_topk(self, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """The k highest scores, their outputs, and which of them exist."""
        ...


@runtime_checkable
class SumStructure(Structure, Protocol):
    """A structure that sums over all its outputs."""

    def scale(self: Self, factor: float) -> Self:
        """The structure with all potentials multiplied."""
        ...

    def log_partition(self) -> Tensor:
        """Logarithm of the sum of exp(score) over all outputs, ``(batch,)``."""
        ...

    def log_prob(self, y: Tensor) -> Tensor:
        """Score of y less the log-partition, ``(batch,)``, at most 0."""
        ...
