"""Questions to a circuit, and their derivatives.

Each question has one function and one derivative: the maximum has the leaves of a
maximiser, the log-partition the marginals, these the covariance of the leaves along a
direction. The function is that of the loops of the device where the leaves are.
"""

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from smoothsp.oracles._circuits import compiled
from smoothsp.oracles._circuits.loops import loops_for
from smoothsp.oracles._circuits.query import Leaves, Query
from smoothsp.oracles._questions.exact import Exact
from smoothsp.oracles._questions.of_rows import OfRows, wanted
from smoothsp.oracles._questions.registration import is_eager, is_eager_tensor

Self = TypeVar("Self", bound="OfCircuit")
# Two numbers for an answer, as ``Exact`` has them.
FLOAT64 = torch.float64


def log_partition(leaves: Leaves, query: Query, dtype: torch.dtype) -> Exact:
    """Logarithm of the sum over all outputs ``[B]``; differentiable twice.

    Of the dtype, or of float64 while something traces.
    """
    if not is_eager():
        return Exact(LogPartition(query, leaves, FLOAT64).call(*leaves.every))
    question = LogPartition(query, leaves, dtype)
    return Exact(question.call(*leaves.every), question.exact)


def marginals(leaves: Leaves, query: Query) -> list[Tensor]:
    """Chances of the leaves, arrays ``[B, ...]``; differentiable once."""
    return list(Marginals(query, leaves).call(*leaves.every))


def chosen(
    leaves: Leaves,
    query: Query,
    k: int | None,
    dtype: torch.dtype,
    precise: bool = False,
) -> tuple[Exact, Tensor]:
    """Values ``[B, K]`` and labels ``[B, K, N]`` of the best, or of the k best.

    -inf and -1 where there are fewer outputs. Of the dtype, or of float64 while
    something traces. The k best are found on the CPU. ``precise`` as of
    ``compiled.choose``.
    """
    device = leaves.own[0].device
    if k is not None:
        leaves = leaves.map(lambda x: x.cpu())
    if not is_eager():
        values, labels, _ = Chosen(query, leaves, k, FLOAT64).call(*leaves.every)
        return Exact(values.to(device)), labels.to(device)
    question = Chosen(query, leaves, k, dtype, precise)
    values, labels, _ = question.call(*leaves.every)
    if k is None or device.type == "cpu":
        return Exact(values, question.exact), labels
    return Exact(values.to(device), question.exact.to(device)), labels.to(device)


def samples(leaves: Leaves, query: Query, seeds: Tensor) -> Tensor:
    """Labels ``[B, n, N]`` of independent draws, from seeds ``[B, n]``; on the CPU."""
    leaves = leaves.map(lambda x: x.detach().cpu())
    found: Tensor = Samples(query, leaves).call(*leaves.every, seeds.cpu())
    return found.to(seeds.device)


def distinct_samples(
    leaves: Leaves, query: Query, n: int, seeds: Tensor
) -> tuple[Tensor, Tensor]:
    """Labels ``[B, n, N]`` of distinct draws, and which of them exist; on the CPU."""
    _require_plain("sample(replace=False)")
    leaves = leaves.map(lambda x: x.detach().cpu())
    found = compiled.distinct_samples(leaves, query, n, seeds.cpu())
    return found[0].to(seeds.device), found[1].to(seeds.device)


def max_marginals(leaves: Leaves, query: Query) -> list[Tensor]:
    """Highest scores of outputs with each leaf ``[B, ...]``, in float64; on the CPU."""
    _require_plain("max_marginals")
    device = leaves.own[0].device
    found = compiled.max_marginals(leaves.map(lambda x: x.detach().cpu()), query)
    return [x.to(device) for x in found]


def _require_plain(name: str) -> None:
    if not is_eager():
        raise TypeError(f"{name}: expected a call outside of torch.func and compile")


def entropy(leaves: Leaves, query: Query) -> Tensor:
    """Entropy ``[B]`` of the outputs in float64; differentiable once."""
    found: Tensor = Entropy(query, leaves).call(*leaves.every)
    return found


def score(leaves: Leaves, used: Tensor, dtype: torch.dtype) -> Exact:
    """Sums ``[B, K]`` of the leaves ``used`` ``[B, K, U]``, -1 none.

    Of the dtype, or of float64 while something traces.
    """
    if not is_eager():
        return Exact(Score(None, leaves, FLOAT64).call(*leaves.every, used))
    question = Score(None, leaves, dtype)
    return Exact(question.call(*leaves.every, used), question.exact)


class OfCircuit(OfRows):
    """A question whose first tensors are leaves: those of the rows, then shared ones.

    Any others have an entry for each row.
    """

    def __init__(self, query: Query | None, leaves: Leaves) -> None:
        self.query, self.loops = query, loops_for(leaves)
        self.n, self.m = len(leaves.own), len(leaves.own) + len(leaves.shared)

    def leaves(self, tensors: Sequence[Tensor]) -> Leaves:
        return Leaves(tuple(tensors[: self.n]), tuple(tensors[self.n : self.m]))

    def repeated(self: Self, size: int) -> Self:
        other = copy.copy(self)
        other.query = None if self.query is None else self.query.repeat(size)
        return other

    def by_row(self, axes: Sequence[int]) -> list[bool]:
        return [i < self.n or i >= self.m for i in range(len(axes))]

    def over_rows(self, moved: Sequence[Tensor]) -> list[Tensor]:
        """Arrays ``[B, ...]`` as gradients of leaves: shared ones summed over rows."""
        return [x if i < self.n else x.sum(0) for i, x in enumerate(moved)]

    def call_other(self, question: type["OfCircuit"], *tensors: Tensor) -> Any:
        """The answer to another question of the same leaves."""
        other = question(self.query, self.leaves(tensors))
        return other.call(*tensors)


class LogPartition(OfCircuit):
    """The log-partition ``[B]``; its gradient is the marginals."""

    exact: Tensor | None = None

    def __init__(self, query: Query, leaves: Leaves, dtype: torch.dtype) -> None:
        super().__init__(query, leaves)
        self.dtype = dtype

    def op(self, *tensors: Tensor) -> Tensor:
        return self._sums(tensors, [False] * self.m)[0]

    def _sums(
        self, tensors: Sequence[Tensor], wanted: Sequence[bool]
    ) -> tuple[Tensor, list[Tensor]]:
        given = self.leaves(tensors), self.query, wanted, self.dtype
        value, self.exact, found = self.loops.sums(*given)
        return value, found

    def begin(self, ctx: Any, buffers: None, tensors: tuple[Tensor, ...]) -> Tensor:
        value, ctx.marginals = self._sums(tensors, wanted(ctx, self.m))
        ctx.save_for_backward(*tensors)
        return value

    def gradient(self, ctx: Any, grad: Tensor) -> list[Tensor | None]:
        tensors, some = ctx.saved_tensors, wanted(ctx, self.m)
        # The first backward pass takes the marginals, in one step, so that no other
        # thread gets them too; a later one computes them again.
        known = vars(ctx).pop("marginals", None)
        again = torch.is_grad_enabled()
        if again:
            question = Marginals(self.query, self.leaves(tensors))
            question.known = known if known is not None and all(some) else None
            known = question.call(*tensors)
        elif known is None:
            known = self._sums(tensors, some)[1]
        in_place = not again and is_eager_tensor(grad)
        found: list[Tensor | None] = []
        for i, (x, want) in enumerate(zip(known, some, strict=True)):
            # loops of a device answer with views of one array
            here = in_place and x.is_contiguous()
            if not want:
                found.append(None)
            elif i >= self.n and here:
                found.append(compiled.add_weighted(grad, x))
            elif i >= self.n:
                found.append((x * by_row(grad, x)).sum(0))
            elif here:
                found.append(compiled.scale_in_place(grad, x))
            else:
                found.append(x * by_row(grad, x))
        return found

    def tangent(self, ctx: Any, *tangents: Tensor | None) -> Tensor:
        chances = self.call_other(Marginals, *ctx.saved_tensors)
        return _inner(chances, tangents).to(self.dtype)


class Marginals(OfCircuit):
    """Chances of the leaves, arrays ``[B, ...]``; ``known`` where they are."""

    known: Sequence[Tensor] | None = None

    def op(self, *tensors: Tensor) -> Any:
        if self.known is not None:
            return tuple(self.known)
        given = self.leaves(tensors), self.query, [True] * self.m, tensors[0].dtype
        return tuple(self.loops.sums(*given)[2])

    def repeated(self, size: int) -> "Marginals":
        other = super().repeated(size)
        other.known = None
        return other

    def save(self, ctx: Any, tensors: tuple[Tensor, ...], output: Any) -> None:
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)

    def gradient(self, ctx: Any, *grads: Tensor | None) -> Sequence[Tensor | None]:
        if all(x is None for x in grads):
            return grads
        tensors = ctx.saved_tensors
        along = self.directions(grads, tensors, rows=True)
        return self.over_rows(self.call_other(Covariance, *tensors, *along))

    def tangent(self, ctx: Any, *tangents: Tensor | None) -> Any:
        tensors = ctx.saved_tensors
        along = self.directions(tangents, tensors, rows=False)
        return self.call_other(Covariance, *tensors, *along)

    def directions(
        self, given: Sequence[Tensor | None], tensors: Sequence[Tensor], rows: bool
    ) -> list[Tensor]:
        return _of_rows(given, tensors, self.n, self.query.size, rows)  # type: ignore[union-attr]


class Covariance(OfCircuit):
    """``Cov(leaves, along)``: linear and symmetric in the direction."""

    def op(self, *tensors: Tensor) -> Any:
        leaves, along = self.leaves(tensors), Leaves(tuple(tensors[self.m :]), ())
        moved = self.loops.tangent(leaves, self.query, along, [True] * self.m)[2]
        return tuple(x.to(tensors[0].dtype) for x in moved)

    def save(self, ctx: Any, tensors: tuple[Tensor, ...], output: Any) -> None:
        ctx.save_for_backward(*tensors[: self.m])

    def gradient(self, ctx: Any, *grads: Tensor) -> Any:
        tensors = ctx.saved_tensors
        if any(wanted(ctx, 2 * self.m)[: self.m]):
            _refuse_third_derivatives()
        moved = self.call_other(Covariance, *tensors, *grads)
        return *[None] * self.m, *moved

    def tangent(self, ctx: Any, *tangents: Tensor | None) -> Any:
        tensors = ctx.saved_tensors
        if any(x is not None for x in tangents[: self.m]):
            _refuse_third_derivatives()
        given = tangents[self.m :], tensors, self.n, self.query.size  # type: ignore[union-attr]
        return self.call_other(Covariance, *tensors, *_of_rows(*given, rows=True))


class Entropy(OfCircuit):
    """``log Z - <marginals, scores>``, of which the gradient is ``-Cov scores``."""

    def op(self, *tensors: Tensor) -> Tensor:
        leaves = self.leaves(tensors)
        given = leaves, self.query, leaves.map(finite), [False] * self.m
        value, means, _ = self.loops.tangent(*given)
        found: Tensor = value - means
        return found.clamp(min=0)

    def gradient(self, ctx: Any, grad: Tensor) -> list[Tensor | None]:
        moved = [x * by_row(-grad, x) for x in self._slope(ctx)]
        pairs = zip(self.over_rows(moved), wanted(ctx, self.m), strict=True)
        return [x if some else None for x, some in pairs]

    def tangent(self, ctx: Any, *tangents: Tensor | None) -> Tensor:
        return -_inner(self._slope(ctx), tangents).double()

    def _slope(self, ctx: Any) -> Any:
        tensors = ctx.saved_tensors
        scores = [finite(x) for x in tensors]
        given = scores, tensors, self.n, self.query.size  # type: ignore[union-attr]
        return self.call_other(Covariance, *tensors, *_of_rows(*given, rows=False))


class Chosen(OfCircuit):
    """A maximum, or the k best: its gradient counts the leaves of a maximiser.

    (Danskin.) Values ``[B, K]``, labels and the leaves that are used.
    """

    exact: Any = None

    def __init__(
        self,
        query: Query,
        leaves: Leaves,
        k: int | None,
        dtype: torch.dtype,
        precise: bool = False,
    ) -> None:
        super().__init__(query, leaves)
        self.k, self.dtype, self.precise = k, dtype, precise

    def op(self, *tensors: Tensor) -> Any:
        given = self.leaves(tensors), self.query, self.k, self.dtype, self.precise
        values, self.exact, labels, parts = self.loops.choose(*given)
        return values, labels, parts

    def save(self, ctx: Any, tensors: tuple[Tensor, ...], output: Any) -> None:
        _, labels, parts = output
        ctx.mark_non_differentiable(labels, parts)
        ctx.save_for_backward(parts, *tensors)

    def gradient(self, ctx: Any, *grads: Any) -> list[Tensor | None]:
        parts, *tensors = ctx.saved_tensors
        some = wanted(ctx, self.m)
        return _count(grads[0], parts, self.leaves(tensors), some)

    def tangent(self, ctx: Any, *tangents: Tensor | None) -> Any:
        parts, *tensors = ctx.saved_tensors
        return _score_along(tangents, self.leaves(tensors), parts, self), None, None


class Score(OfCircuit):
    """Scores of the outputs that use leaves, the last tensor: linear in the leaves."""

    exact: Tensor | None = None

    def __init__(self, query: None, leaves: Leaves, dtype: torch.dtype) -> None:
        super().__init__(query, leaves)
        self.dtype = dtype

    def op(self, *tensors: Tensor) -> Tensor:
        found = self.loops.total(self.leaves(tensors), tensors[-1], self.dtype)
        value: Tensor = found[0]
        self.exact = found[1]
        return value

    def gradient(self, ctx: Any, grad: Tensor) -> list[Tensor | None]:
        *tensors, used = ctx.saved_tensors
        some = wanted(ctx, self.m + 1)[: self.m]
        return [*_count(grad, used, self.leaves(tensors), some), None]

    def tangent(self, ctx: Any, *tangents: Tensor | None) -> Tensor:
        *tensors, used = ctx.saved_tensors
        return _score_along(tangents[: self.m], self.leaves(tensors), used, self)


class Samples(OfCircuit):
    """Draws from seeds, the last tensor, of which no gradient is known."""

    def op(self, *tensors: Tensor) -> Tensor:
        *leaves, seeds = tensors
        return compiled.samples(self.leaves(leaves), self.query, seeds)  # type: ignore[arg-type]


def finite(scores: Tensor) -> Tensor:
    """Scores, 0 where they are infinite, or NaN in the padding."""
    return torch.where(scores.abs() < torch.inf, scores, 0)


def by_row(grad: Tensor, x: Tensor) -> Tensor:
    """A factor ``[B]`` for each row of x ``[B, ...]``."""
    return grad.to(x.dtype).reshape(-1, *[1] * (x.dim() - 1))


def _of_rows(
    given: Sequence[Tensor | None],
    tensors: Sequence[Tensor],
    n: int,
    B: int,
    rows: bool,
) -> list[Tensor]:
    """Directions ``[B, ...]``, 0 for None; without ``rows`` shared ones have no B."""
    found = []
    for i, (x, direction) in enumerate(zip(tensors, given, strict=True)):
        shape = x.shape if i < n else (B, *x.shape)
        if direction is None:
            found.append(x.new_zeros(shape))
        else:
            found.append(direction if rows or i < n else direction.expand(shape))
    return found


def _inner(chances: Sequence[Tensor], tangents: Sequence[Tensor | None]) -> Tensor:
    """``sum of chances * tangents`` of each row, ``[B]``."""
    products = [
        (p * t).flatten(1).sum(1, dtype=torch.float64)
        for p, t in zip(chances, tangents, strict=True)
        if t is not None
    ]
    return torch.stack(products).sum(0)


def _score_along(
    tangents: Sequence[Tensor | None],
    leaves: Leaves,
    used: Tensor,
    like: Chosen | Score,
) -> Tensor:
    pairs = zip(tangents, leaves.every, strict=True)
    along = [torch.zeros_like(x) if t is None else t for t, x in pairs]
    n = len(leaves.own)
    given = Leaves(tuple(along[:n]), tuple(along[n:]))
    found: Tensor = Score(None, given, like.dtype).call(*along, used)
    return found


def _refuse_third_derivatives() -> None:
    raise NotImplementedError(
        "circuits: third derivatives of the log-partition are not available; "
        "detach what needs no gradient, or differentiate twice at most"
    )


def _count(
    weights: Tensor, used: Tensor, leaves: Leaves, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """Weights ``[B, K]`` added up over leaves: the adjoint of ``score``."""
    weights = weights.to(leaves.own[0].dtype)
    if (
        not torch.is_grad_enabled()
        and is_eager_tensor(weights)
        and is_eager_tensor(used)
    ):
        return compiled.count(weights, used, leaves, wanted)
    widths = [x.shape[1:].numel() for x in leaves.own]
    widths += [x.numel() for x in leaves.shared]
    total = weights.new_zeros(len(used), 1 + sum(widths))
    spread = weights[..., None].expand(used.shape).flatten(1)
    counted = total.scatter_add(1, used.flatten(1).long() + 1, spread)[:, 1:]
    found = compiled.split(counted, leaves)
    n = len(leaves.own)
    found = [x if i < n else x.sum(0) for i, x in enumerate(found)]
    return [x if some else None for x, some in zip(found, wanted, strict=True)]
