"""Engines: sums and maxima over the outputs of a batch, without gradients."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

Self = TypeVar("Self", bound="Engine")


class BestOutputs(NamedTuple):
    """The best output of each row, or its k best outputs in descending order.

    Attributes
    ----------
    values, labels
        ``[B]`` and ``[B, ...]``; with k, ``[B, k]`` and ``[B, k, ...]``, padded with
        -inf and -1 for rows with fewer than k outputs.
    used
        Argument ``used_parts`` of ``Engine.score`` for these outputs; None if it is
        ``labels``.
    hi_lo
        The values as unevaluated sums of two float64 numbers, or None.
    valid
        Bool ``[B, k]``: False for padding; None if it was not computed.
    """

    values: Tensor
    labels: Tensor
    used: Tensor | None = None
    hi_lo: Tensor | None = None
    valid: Tensor | None = None


class Engine:
    """Potentials of a batch, and the kernel calls that compute sums and maxima of them.

    Kernels have no derivatives: ``rules`` differentiates the results. The potentials of
    a circuit are its leaves, which a structure may compute from its own potentials.

    Attributes
    ----------
    potentials
        First the potentials of rows, ``[B, ...]``, then the shared ones, ``[...]``.
    num_row_potentials
        Number of potentials of rows.
    row_attributes
        Further tensors ``[B, ...]`` that define the outputs of a row, such as lengths.
    runs_kernels
        Whether kernels may read the memory of the tensors, as long as nothing traces.
    name
        Key in ``op.ENGINE_BUILDERS``; None if ops cannot be nodes of a graph.
    """

    potentials: tuple[Tensor, ...]
    num_row_potentials: int
    row_attributes: tuple[Tensor, ...] = ()
    runs_kernels: bool = True
    name: str | None = None

    def with_tensors(self: Self, tensors: Sequence[Tensor]) -> Self:
        """Return an engine with other potentials, optionally with row attributes."""
        raise NotImplementedError

    def with_repeated_rows(self: Self, times: int) -> Self:
        """Return an engine whose ``with_tensors`` takes ``times`` batches of rows."""
        return self

    def log_partition_and_marginals(
        self,
        needs_grad: Sequence[bool],
        dtype: torch.dtype | None,
        with_hi_lo: bool = False,
    ) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        """Log-partition ``[B]`` and marginals ``[B, ...]`` where ``needs_grad``.

        ``dtype`` is that of the log-partition; None if only marginals are needed. The
        second result is the log-partition as two float64 numbers, ``[B, 2]``, if
        ``with_hi_lo``.
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
        """Marginals in the last result of ``log_partition``; None unless complete."""
        return saved if all(needs_grad) else None

    def vjp(
        self, weights: Tensor, marginals: Any, needs_grad: Sequence[bool]
    ) -> list[Tensor | None]:
        """Vector-Jacobian product of the log-partition with the weights ``[B]``.

        Marginals of each row times its weight, in the shapes of the potentials.
        """
        return weight_rows(weights, marginals, self.num_row_potentials, needs_grad)

    def covariance(self, directions: Sequence[Tensor]) -> list[Tensor]:
        """Covariance ``[B, ...]`` of each part with the score under ``directions``.

        The Hessian of the log-partition times ``directions``, ``[B, ...]`` for each of
        the potentials.
        """
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """Entropy ``[B]`` of the distribution over outputs, in nats."""
        raise NotImplementedError

    def best(
        self, k: int | None, dtype: torch.dtype, recheck_in_float64: bool = False
    ) -> BestOutputs:
        """Return the best output of each row, or the k best.

        With ``recheck_in_float64``, decode rows again in float64 where rounding to
        float32 may change the maximiser.
        """
        raise NotImplementedError

    def empty_outputs(self, k: int | None) -> tuple[Tensor, ...]:
        """Empty tensors like ``labels`` of ``best`` and, if not None, ``used``."""
        raise NotImplementedError

    def score(
        self, used_parts: Tensor, dtype: torch.dtype, with_hi_lo: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Scores ``[B, k]`` of outputs; if ``with_hi_lo`` also as ``[B, k, 2]``."""
        raise NotImplementedError

    def count_parts(
        self, weights: Tensor, used_parts: Tensor, needs_grad: Sequence[bool]
    ) -> list[Tensor | None]:
        """Sum of the weights ``[B, k]`` of all outputs that use a part, for each part.

        The adjoint of ``score``, in the shapes of the potentials.
        """
        return scatter_counts(self, weights, used_parts, needs_grad)

    def score_best(self, used_parts: Tensor, best: BestOutputs) -> Tensor:
        """Scores ``[B, k, 2]`` of the best outputs as two numbers; -inf for padding."""
        valid = best.valid
        # padding has labels -1, which no kernel may index: score the first output there
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
        """Indices ``[B, k, U]`` of the potentials that outputs use, padded with -1.

        Indices run through the potentials of a row, then through the shared ones.
        """
        return used_parts

    def sample(self, random_numbers: Tensor) -> Tensor:
        """Sample labels ``[B, n, ...]`` from random numbers ``[B, n, ...]``."""
        raise NotImplementedError


def as_row_factor(weights: Tensor, x: Tensor) -> Tensor:
    """Reshape weights ``[B]`` to multiply the rows of x, ``[B, 1, ...]``."""
    return weights.to(x.dtype).reshape(-1, *[1] * (x.dim() - 1))


def weight_rows(
    weights: Tensor,
    parts: Sequence[Tensor],
    num_row_potentials: int,
    needs_grad: Sequence[bool],
) -> list[Tensor | None]:
    """Multiply parts ``[B, ...]`` by weights ``[B]`` of their rows; differentiable.

    Rows of shared potentials are added up.
    """
    pairs = zip(parts, needs_grad, strict=True)
    scaled = [
        x * as_row_factor(weights, x) if is_needed else None for x, is_needed in pairs
    ]
    return sum_shared(scaled, num_row_potentials)


def sum_shared(
    parts: Sequence[Tensor | None], num_row_potentials: int
) -> list[Tensor | None]:
    """Reduce parts ``[B, ...]`` to the shapes of the potentials.

    Shared potentials get the sum over rows.
    """
    return [
        x if i < num_row_potentials or x is None else x.sum(0)
        for i, x in enumerate(parts)
    ]


def scatter_counts(
    engine: Engine, weights: Tensor, used_parts: Tensor, needs_grad: Sequence[bool]
) -> list[Tensor | None]:
    """``Engine.count_parts`` by PyTorch functions, differentiable in the weights."""
    potentials, num_row_potentials = engine.potentials, engine.num_row_potentials
    shapes = [
        x.shape[1:] if i < num_row_potentials else x.shape
        for i, x in enumerate(potentials)
    ]
    sizes = [shape.numel() for shape in shapes]
    entries = engine.part_entries(used_parts)
    # column 0 collects the padding -1 of part_entries and is dropped
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
