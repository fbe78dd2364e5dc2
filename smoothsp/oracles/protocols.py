"""Protocols of structures: the methods that losses call."""

from typing import Protocol, TypeVar, runtime_checkable

from torch import Tensor

Self = TypeVar("Self")


@runtime_checkable
class Structure(Protocol):
    """One batch of potentials, with exact maximisation.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import Chain, Structure
    >>> structure: Structure = Chain(torch.zeros(1, 2, 3), torch.zeros(3, 3))
    >>> structure.decode()[1].shape
    torch.Size([1, 2])
    """

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
        """Number of times y uses each label, ``(batch, label)``."""
        ...

    def augment(self: Self, cost: Tensor) -> Self:
        """Return the structure with a cost added to its potentials."""
        ...

    def select(self: Self, rows: Tensor) -> Self:
        """Return the structure of the selected rows."""
        ...

    def decode(self) -> tuple[Tensor, Tensor]:
        """Highest score of each row, and an output that attains it."""
        ...


@runtime_checkable
class TopKStructure(Structure, Protocol):
    """A structure that lists its K best outputs.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import Multiclass, TopKStructure
    >>> structure: TopKStructure = Multiclass(torch.tensor([[1.0, 3.0, 2.0]]))
    >>> structure.decode_topk(2)[1].tolist()
    [[1, 2]]
    """

    def decode_topk(self, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """The k highest scores, their outputs, and which of them exist."""
        ...


@runtime_checkable
class SumStructure(Structure, Protocol):
    """A structure that sums over all its outputs.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import Multiclass, SumStructure
    >>> structure: SumStructure = Multiclass(torch.zeros(1, 4))
    >>> structure.log_partition().exp()
    tensor([4.])
    """

    def scale(self: Self, factor: float) -> Self:
        """Return the structure with all potentials multiplied by ``factor``."""
        ...

    def log_partition(self) -> Tensor:
        """Logarithm of the sum of exp(score) over all outputs, ``(batch,)``."""
        ...

    def log_prob(self, y: Tensor) -> Tensor:
        """Score of y less the log-partition, ``(batch,)``, at most 0."""
        ...


@runtime_checkable
class PartialStructure(Structure, Protocol):
    """A structure whose outputs can be restricted to allowed parts: partial labels.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import Multiclass, PartialStructure
    >>> structure: PartialStructure = Multiclass(torch.zeros(1, 4))
    >>> structure.log_prob_within(torch.tensor([[True, True, False, False]])).exp()
    tensor([0.5000])
    """

    def restrict(self: Self, allowed: Tensor) -> Self:
        """Return the structure in which only parts that are True may be used.

        ``allowed`` is bool, of the shape that a cost has.
        """
        ...

    def log_prob_within(self, allowed: Tensor) -> Tensor:
        """Log-probability that only allowed parts are used, ``(batch,)``, at most 0."""
        ...


class Summed:
    """Base class of structures that compute losses summed over their rows.

    Losses call these methods only on classes that inherit from ``Summed``. Other
    classes may use these names freely. Results equal the sums of the rows of
    ``losses.functional``, computed in fewer steps.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import Chain, Summed
    >>> chain = Chain(torch.zeros(1, 2, 2), torch.zeros(2, 2))
    >>> isinstance(chain, Summed), chain.log_likelihood(torch.tensor([[0, 1]])).exp()
    (True, tensor(0.2500))
    """

    def violation(
        self, y: Tensor, weight: Tensor | float = 1.0, cost_scale: float = 1.0
    ) -> Tensor:
        """Sum of ``weight (max_{y'} [s(y') + cost_scale hamming(y', y)] - s(y))``.

        Parameters
        ----------
        y
            One output per row; any value where masked.
        weight
            ``(batch,)``, or a number for all rows; of any sign. Rows of weight 0 add 0,
            even if their output is forbidden.
        cost_scale
            Factor of the cost, >= 0; 0 gives the perceptron loss.

        Returns
        -------
        Tensor
            A scalar, differentiable in the potentials.
        """
        raise NotImplementedError

    def log_likelihood(self, y: Tensor, weight: Tensor | float = 1.0) -> Tensor:
        """Sum of ``weight log_prob(y)``, with arguments as for ``violation``."""
        raise NotImplementedError
