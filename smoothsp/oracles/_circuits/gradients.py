"""Gradients of the questions to a circuit, forward and backward, and under ``vmap``.

Each question has one function and one derivative: the maximum has the leaves of a
maximiser, the log-partition the marginals, these the covariance of the leaves along a
direction. For devices that have compiled loops.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from smoothsp.oracles._circuits import compiled
from smoothsp.oracles._circuits.asked import Asked, Leaves
from smoothsp.oracles._circuits.loops import loops_for
from smoothsp.oracles._questions.registration import is_plain
from smoothsp.oracles._questions.transforms import fold, one_by_one, unfold

Tangents = tuple[Tensor | None, ...]


class Differentiable(torch.autograd.Function):
    """A question with arguments ``asked, n, extra, *tensors``, of leaves the first n.

    The leaves are ``n`` arrays of the rows ``[B, ...]``, then those that rows share.
    """

    # whether as many directions follow the leaves, all of them ``[B, ...]``
    directed = False

    @classmethod
    def vmap(cls, info: Any, in_dims: Any, *args: Any) -> Any:
        """One call for a larger batch, or one each where shared leaves differ."""
        (asked, n, extra, *tensors), size = args, info.batch_size
        leaves = len(tensors) // 2 if cls.directed else len(tensors)
        by_row = [i < n or i >= leaves for i in range(len(tensors))]
        dims = in_dims[3:]
        pairs = zip(dims, by_row, strict=True)
        if any(dim is not None and not row for dim, row in pairs):
            return one_by_one(cls.apply, size, in_dims, args)
        if isinstance(extra, Tensor):
            extra = fold(extra, in_dims[2], size)
        folded = [
            fold(x, dim, size) if row else x
            for x, dim, row in zip(tensors, dims, by_row, strict=True)
        ]
        many = None if asked is None else asked.repeat(size)
        found = cls.apply(many, n, extra, *folded)
        if isinstance(found, tuple):
            return tuple(unfold(x, size) for x in found), (0,) * len(found)
        return unfold(found, size), 0


class LogPartition(Differentiable):
    """The log-partition ``[B]`` of dtype ``extra``."""

    @staticmethod
    def forward(asked: Asked, n: int, dtype: torch.dtype, *tensors: Tensor) -> Tensor:
        leaves = Leaves(tensors[:n], tensors[n:])
        value: Tensor = loops_for(leaves).sums(leaves, asked, [False] * len(tensors))[0]
        return value.to(dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.asked, ctx.n, ctx.dtype, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        return None, None, None, *LogPartition.slopes(ctx, grad, 3)

    @staticmethod
    def slopes(ctx: Any, grad: Tensor, first: int) -> list[Tensor | None]:
        """The gradients of the leaves, which are the inputs from ``first`` on."""
        n, wanted = ctx.n, ctx.needs_input_grad[first:]
        # The first backward pass takes the marginals, in one step, so that no other
        # thread gets them too; a later one computes them again.
        chances = vars(ctx).pop("chances", None)
        again = torch.is_grad_enabled()
        if again:
            chances = Marginals.apply(ctx.asked, n, chances, *ctx.saved_tensors)
        elif chances is None:
            tensors = ctx.saved_tensors
            leaves = Leaves(tensors[:n], tensors[n:])
            chances = loops_for(leaves).sums(leaves, ctx.asked, wanted)[1]
        in_place = not again and is_plain(grad)
        found: list[Tensor | None] = []
        for i, (x, some) in enumerate(zip(chances, wanted, strict=True)):
            # loops of a device, and those by levels, answer with views of one array
            here = in_place and x.is_contiguous()
            if not some:
                found.append(None)
            elif i >= n and here:
                found.append(compiled.add_weighted(grad, x))
            elif i >= n:
                found.append(torch.tensordot(grad.to(x.dtype), x, 1))
            elif here:
                found.append(compiled.scale_in_place(grad, x))
            else:
                found.append(x * by_row(grad, x))
        return found

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        chances = Marginals.apply(ctx.asked, ctx.n, None, *ctx.saved_tensors)
        return _inner(chances, tangents[3:]).to(ctx.dtype)


class Eager:
    """One question for a log-partition ``[B]``, to tensors that nothing traces."""

    __slots__ = ("asked", "dtype", "finite", "n")

    def __init__(self, asked: Asked, n: int, dtype: torch.dtype) -> None:
        self.asked, self.n, self.dtype = asked, n, dtype
        # whether the answer is known to be
        self.finite = False

    def sums(
        self, tensors: tuple[Tensor, ...], wanted: Sequence[bool]
    ) -> tuple[Tensor, list[Tensor]]:
        """The answer, and the marginals that are wanted."""
        leaves = Leaves(tensors[: self.n], tensors[self.n :])
        if tensors[0].is_cpu:
            value, chances, self.finite = compiled.rounded_sums(
                leaves, self.asked, wanted, self.dtype
            )
            return value, chances
        value, chances = loops_for(leaves).sums(leaves, self.asked, wanted)
        return value.to(self.dtype), chances


class EagerLogPartition(torch.autograd.Function):
    """``LogPartition`` of a question: marginals come with the value."""

    @staticmethod
    def forward(ctx: Any, question: Eager, *tensors: Tensor) -> Tensor:
        value, ctx.chances = question.sums(tensors, ctx.needs_input_grad[1:])
        ctx.asked, ctx.n = question.asked, question.n
        ctx.save_for_backward(*tensors)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        return None, *LogPartition.slopes(ctx, grad, 1)


class Marginals(Differentiable):
    """Chances of the leaves, arrays ``[B, ...]``; ``extra``, if not None, are they."""

    @staticmethod
    def forward(asked: Asked, n: int, known: Any, *tensors: Tensor) -> Any:
        if known is not None and len({len(x) for x in known}) == 1:
            return tuple(known)
        leaves = Leaves(tensors[:n], tensors[n:])
        return tuple(loops_for(leaves).sums(leaves, asked, [True] * len(tensors))[1])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.asked, ctx.n, _, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        tensors, n = ctx.saved_tensors, ctx.n
        if all(x is None for x in grads):
            return None, None, None, *grads
        along = _of_rows(grads, tensors, n, len(ctx.asked.roots), rows=True)
        moved = Covariance.apply(ctx.asked, n, None, *tensors, *along)
        return None, None, None, *over_rows(moved, n)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
        tensors, n = ctx.saved_tensors, ctx.n
        along = _of_rows(tangents[3:], tensors, n, len(ctx.asked.roots), rows=False)
        return Covariance.apply(ctx.asked, n, None, *tensors, *along)


class Covariance(Differentiable):
    """``Cov(leaves, along)``: linear and symmetric in the direction."""

    directed = True

    @staticmethod
    def forward(asked: Asked, n: int, extra: None, *tensors: Tensor) -> Any:
        half = len(tensors) // 2
        leaves = Leaves(tensors[:n], tensors[n:half])
        along = Leaves(tensors[half:], ())
        moved = loops_for(leaves).tangent(leaves, asked, along, [True] * half)[2]
        return tuple(x.to(tensors[0].dtype) for x in moved)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.asked, ctx.n, _, *tensors = inputs
        ctx.save_for_backward(*tensors[: len(tensors) // 2])
        ctx.save_for_forward(*tensors[: len(tensors) // 2])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        tensors = ctx.saved_tensors
        if any(ctx.needs_input_grad[3 : 3 + len(tensors)]):
            _refuse_third_derivatives()
        moved = Covariance.apply(ctx.asked, ctx.n, None, *tensors, *grads)
        return None, None, None, *[None] * len(tensors), *moved

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
        tensors = ctx.saved_tensors
        given = tangents[3:]
        if any(x is not None for x in given[: len(tensors)]):
            _refuse_third_derivatives()
        along = _of_rows(
            given[len(tensors) :], tensors, ctx.n, len(ctx.asked.roots), rows=True
        )
        return Covariance.apply(ctx.asked, ctx.n, None, *tensors, *along)


class Entropy(Differentiable):
    """``log Z - <marginals, scores>``, of which the gradient is ``-Cov scores``."""

    @staticmethod
    def forward(asked: Asked, n: int, extra: None, *tensors: Tensor) -> Tensor:
        leaves = Leaves(tensors[:n], tensors[n:])
        none = [False] * len(tensors)
        ways = leaves.map(finite)
        value, means, _ = loops_for(leaves).tangent(leaves, asked, ways, none)
        found: Tensor = value - means
        return found.clamp(min=0)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.asked, ctx.n, _, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        moved = Entropy._slope(ctx)
        wanted = ctx.needs_input_grad[3:]
        found = over_rows([x * by_row(-grad, x) for x in moved], ctx.n)
        pairs = zip(found, wanted, strict=True)
        return None, None, None, *(x if some else None for x, some in pairs)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        return -_inner(Entropy._slope(ctx), tangents[3:]).double()

    @staticmethod
    def _slope(ctx: Any) -> Any:
        tensors, n = ctx.saved_tensors, ctx.n
        scores = [finite(x) for x in tensors]
        along = _of_rows(scores, tensors, n, len(ctx.asked.roots), rows=False)
        return Covariance.apply(ctx.asked, n, None, *tensors, *along)


class Chosen(Differentiable):
    """A maximum: its gradient counts the leaves of a maximiser (Danskin).

    ``extra`` is k, or None for the best alone.
    """

    @staticmethod
    def forward(asked: Asked, n: int, k: int | None, *tensors: Tensor) -> Any:
        leaves = Leaves(tensors[:n], tensors[n:])
        return loops_for(leaves).choose(leaves, asked, k)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.n, _, *tensors = inputs
        _, labels, parts = output
        ctx.mark_non_differentiable(labels, parts)
        ctx.save_for_backward(parts, *tensors)
        ctx.save_for_forward(parts, *tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        parts, *tensors = ctx.saved_tensors
        wanted = ctx.needs_input_grad[3:]
        return None, None, None, *_count(grads[0], parts, tensors, ctx.n, wanted)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
        parts, *tensors = ctx.saved_tensors
        return _score_of(tangents[3:], tensors, ctx.n, parts), None, None


class Score(Differentiable):
    """Scores of the outputs that use the leaves ``extra``: linear in the leaves."""

    @staticmethod
    def forward(asked: None, n: int, used: Tensor, *tensors: Tensor) -> Tensor:
        leaves = Leaves(tensors[:n], tensors[n:])
        value: Tensor = loops_for(leaves).total(leaves, used)
        return value

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.n, used, *tensors = inputs
        ctx.save_for_backward(used, *tensors)
        ctx.save_for_forward(used, *tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        used, *tensors = ctx.saved_tensors
        wanted = ctx.needs_input_grad[3:]
        return None, None, None, *_count(grads[0], used, tensors, ctx.n, wanted)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        used, *tensors = ctx.saved_tensors
        return _score_of(tangents[3:], tensors, ctx.n, used)


class Samples(Differentiable):
    """Draws from seeds ``extra``, of which no gradient is known."""

    @staticmethod
    def forward(asked: Asked, n: int, seeds: Tensor, *tensors: Tensor) -> Tensor:
        return compiled.samples(Leaves(tensors[:n], tensors[n:]), asked, seeds)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output)
        ctx.given = len(inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None,) * ctx.given

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> None:
        return None


def finite(scores: Tensor) -> Tensor:
    """Scores, 0 where they are infinite, or NaN in the padding."""
    return torch.where(scores.abs() < torch.inf, scores, 0)


def by_row(grad: Tensor, x: Tensor) -> Tensor:
    """A factor ``[B]`` for each row of x ``[B, ...]``."""
    return grad.to(x.dtype).reshape(-1, *[1] * (x.dim() - 1))


def over_rows(moved: Sequence[Tensor], n: int) -> list[Tensor]:
    """Arrays ``[B, ...]`` as gradients of leaves: shared ones summed over the rows."""
    return [x if i < n else x.sum(0) for i, x in enumerate(moved)]


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


def _score_of(
    tangents: Sequence[Tensor | None], tensors: Sequence[Tensor], n: int, used: Tensor
) -> Tensor:
    pairs = zip(tangents, tensors, strict=True)
    given = [torch.zeros_like(x) if t is None else t for t, x in pairs]
    found: Tensor = Score.apply(None, n, used, *given)
    return found


def _refuse_third_derivatives() -> None:
    raise NotImplementedError(
        "circuits: third derivatives of the log-partition are not available; "
        "detach what needs no gradient, or differentiate twice at most"
    )


def _count(
    weights: Tensor,
    used: Tensor,
    tensors: Sequence[Tensor],
    n: int,
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """Weights ``[B, K]`` added up over leaves: the adjoint of ``score``."""
    leaves = Leaves(tuple(tensors[:n]), tuple(tensors[n:]))
    weights = weights.to(tensors[0].dtype)
    if not torch.is_grad_enabled() and is_plain(weights) and is_plain(used):
        return compiled.count(weights, used, leaves, wanted)
    widths = [x.shape[1:].numel() for x in leaves.own]
    widths += [x.numel() for x in leaves.shared]
    total = weights.new_zeros(len(used), 1 + sum(widths))
    spread = weights[..., None].expand(used.shape).flatten(1)
    counted = total.scatter_add(1, used.flatten(1).long() + 1, spread)[:, 1:]
    found = over_rows(compiled.split(counted, leaves), n)
    return [x if some else None for x, some in zip(found, wanted, strict=True)]
