"""Engines: sums and maxima over the outputs of a batch, without gradients."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

Self = TypeVar("Self", bound="Engine")


class BestOutputs(NamedTuple):
    """Best outputs: one of each row, or k.

    Attributes
    ----------
    values, labels
        ``[B]`` and ``[B, ...]``. Of k ``[B, k]`` and ``[B, k, ...]``: -inf and -1 where
        there are fewer.
    used
        What ``Engine.score`` takes for these outputs, if not their labels.
    two_numbers
        The values as two numbers, where known.
    exist
        Which of k there are, where known.
    """

    values: Tensor
    labels: Tensor
    used: Tensor | None = None
    hi_lo: Tensor | None = None
    valid: Tensor | None = None


class Engine:
    """Potentials of a batch, and answers of kernels for them.

    ``rules`` differentiates the answers: a kernel has no derivative. The potentials of
    a circuit are its leaves, which a structure may compute from its own potentials.

    Attributes
    ----------
    potentials
        Tensors: first those with an entry for each row, ``[B, ...]``, then those that
        all rows share, ``[...]``.
    own
        How many of them have an entry for each row.
    row_attributes
        Further tensors ``[B, ...]``, which tell what outputs a row has: lengths.
    direct
        Whether kernels may read the tensors, as long as nothing traces.
    name
        Of the class, where questions may be nodes of a graph: ``question.ENGINES``.
    """

    potentials: tuple[Tensor, ...]
    num_row_potentials: int
    row_attributes: tuple[Tensor, ...] = ()
    runs_kernels: bool = True
    name: str | None = None

    def with_tensors(self: Self, tensors: Sequence[Tensor]) -> Self:
        """The engine of other potentials, and perhaps other ``row_attributes``."""
        raise NotImplementedError

    def with_repeated_rows(self: Self, times: int) -> Self:
        """The engine whose ``of`` takes batches of so many times as many rows."""
        return self

    def log_partition_and_marginals(
        self,
        needs_grad: Sequence[bool],
        dtype: torch.dtype | None,
        with_hi_lo: bool = False,
    ) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        """Log-partition ``[B]``, and marginals ``[B, ...]`` of wanted potentials.

        The log-partition in the dtype, if it is given; with ``two``, second, as two
        numbers of float64, ``[B, 2]``.
        """
        raise NotImplementedError

    def log_partition(
        self, needs_grad: Sequence[bool], dtype: torch.dtype, with_hi_lo: bool = False
    ) -> tuple[Tensor, Tensor | None, Any]:
        """Return the results of ``log_partition_and_marginals``.

        The last result is an argument of ``vjp``, which may overwrite it.
        """
        return self.log_partition_and_marginals(needs_grad, dtype, with_hi_lo)

    def saved_marginals(
        self, saved: Any, needs_grad: Sequence[bool]
    ) -> list[Tensor] | None:
        """All marginals in the last answer of ``log_partition``, None if not there."""
        return saved if all(needs_grad) else None

    def vjp(
        self, weights: Tensor, marginals: Any, needs_grad: Sequence[bool]
    ) -> list[Tensor | None]:
        """Marginals times the weights ``[B]`` of their rows, in potentials' shapes."""
        return weight_rows(weights, marginals, self.num_row_potentials, needs_grad)

    def covariance(self, directions: Sequence[Tensor]) -> list[Tensor]:
        """Covariance ``[B, ...]`` of each part with the total of ``directions``.

        ``directions`` are numbers of parts, ``[B, ...]`` for each of the potentials.
        """
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """Entropy ``[B]`` of the outputs."""
        raise NotImplementedError

    def best(
        self, k: int | None, dtype: torch.dtype, recheck_in_float64: bool = False
    ) -> BestOutputs:
        """Return the best outputs, or the k best.

        With ``recheck_in_float64`` again in float64 where float32 may change the best.
        """
        raise NotImplementedError

    def empty_outputs(self, k: int | None) -> tuple[Tensor, ...]:
        """Empty tensors of the shapes of the labels of ``best``, and of what is used.

        The latter not where it is the labels.
        """
        raise NotImplementedError

    def score(
        self, used_parts: Tensor, dtype: torch.dtype, with_hi_lo: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Scores ``[B, k]`` of outputs; with ``two``, second, as two numbers."""
        raise NotImplementedError

    def count_parts(
        self, weights: Tensor, used_parts: Tensor, needs_grad: Sequence[bool]
    ) -> list[Tensor | None]:
        """Weights ``[B, k]`` added up over the parts that outputs use.

        The adjoint of ``score``, in the shapes of the potentials.
        """
        return scatter_counts(self, weights, used_parts, needs_grad)

    def score_best(self, used_parts: Tensor, best: BestOutputs) -> Tensor:
        """Scores ``[B, k, 2]`` of the best outputs, two numbers each, -inf for none."""
        valid = best.valid
        if valid is None or bool(valid.all()):
            return cast(Tensor, self.score(used_parts, torch.float64, True)[1])
        none = ~valid.reshape(*valid.shape, *[1] * (used_parts.dim() - 2))
        first_used = self.score(
            torch.where(none, used_parts[:, :1], used_parts), torch.float64, True
        )[1]
        with_hi_lo = cast(Tensor, first_used)
        return torch.where(
            valid.unsqueeze(2), with_hi_lo, with_hi_lo.new_tensor([-torch.inf, 0.0])
        )

    def part_entries(self, used_parts: Tensor) -> Tensor:
        """Entries ``[B, k, U]`` of the potentials that outputs use, -1 for none.

        Counted through the potentials of a row, and on through the shared ones.
        """
        return used_parts

    def sample(self, random_numbers: Tensor) -> Tensor:
        """Labels ``[B, n, ...]`` drawn by random numbers ``[B, n, ...]``."""
        raise NotImplementedError


def as_row_factor(weights: Tensor, x: Tensor) -> Tensor:
    """A factor ``[B]`` for each row of x ``[B, ...]``."""
    return weights.to(x.dtype).reshape(-1, *[1] * (x.dim() - 1))


def weight_rows(
    weights: Tensor,
    parts: Sequence[Tensor],
    num_row_potentials: int,
    needs_grad: Sequence[bool],
) -> list[Tensor | None]:
    """Parts ``[B, ...]`` times the weights ``[B]`` of their rows, differentiable."""
    pairs = zip(parts, needs_grad, strict=True)
    scaled = [
        x * as_row_factor(weights, x) if is_needed else None for x, is_needed in pairs
    ]
    return sum_shared(scaled, num_row_potentials)


def sum_shared(
    parts: Sequence[Tensor | None], num_row_potentials: int
) -> list[Tensor | None]:
    """Parts ``[B, ...]`` in the shapes of potentials: shared ones added up."""
    return [
        x if i < num_row_potentials or x is None else x.sum(0)
        for i, x in enumerate(parts)
    ]


def scatter_counts(
    engine: Engine, weights: Tensor, used_parts: Tensor, needs_grad: Sequence[bool]
) -> list[Tensor | None]:
    """``Engine.count`` by steps of PyTorch, differentiable in the weights."""
    potentials, num_row_potentials = engine.potentials, engine.num_row_potentials
    shapes = [
        x.shape[1:] if i < num_row_potentials else x.shape
        for i, x in enumerate(potentials)
    ]
    sizes = [shape.numel() for shape in shapes]
    entries = engine.part_entries(used_parts)
    # what is used of none goes to one entry before all others
    total = weights.new_zeros(len(entries), 1 + sum(sizes))
    B, k, U = entries.shape
    indices = entries.reshape(B, k * U).long() + 1
    spread = weights.unsqueeze(2).expand(B, k, U).reshape(B, k * U)
    total = total.scatter_add(1, indices, spread)[:, 1:]
    split = torch.split(total, sizes, 1)
    parts = [
        x.reshape(B, *shape).to(like.dtype) if is_needed else None
        for x, shape, like, is_needed in zip(
            split, shapes, potentials, needs_grad, strict=True
        )
    ]
    return sum_shared(parts, num_row_potentials)
