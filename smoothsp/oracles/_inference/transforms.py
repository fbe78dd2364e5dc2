"""Questions under ``torch.func``: its gradients, forward derivatives and ``vmap``."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils._pytree import tree_map


class TransformedOp(torch.autograd.Function):
    """A question, called with its arguments, at one level of transforms.

    Each transform calls its own rule, which calls the level below, until the op gets
    tensors that no transform has wrapped.
    """

    @staticmethod
    def forward(question: Any, *inputs: Any) -> Any:
        return question.op(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        question, *given = inputs
        ctx.question, ctx.given = question, len(given)
        if not question.is_differentiable:
            ctx.outputs = len(output) if isinstance(output, tuple) else 1
            return
        question.save(ctx, tuple(given), output)
        ctx.save_for_forward(*(ctx.to_save or ()))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if not ctx.question.is_differentiable:
            return (None,) * (1 + ctx.given)
        potentials, about = ctx.question.backward(ctx, *grads)
        between = (None,) * (ctx.given - len(potentials) - len(about))
        return None, *potentials, *between, *about

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        if not ctx.question.is_differentiable:
            return (None,) * ctx.outputs
        return ctx.question.jvp(ctx, *tangents[1:])

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], question: Any, *inputs: Any
    ) -> tuple[Any, Any]:
        """One call for a larger batch, or one each where inputs are of all rows."""
        size, dims = info.batch_size, in_dims[1:]
        if not size:
            return vmap_without_calls(
                partial(TransformedOp.apply, question), dims, inputs
            )
        by_row = question.is_batched(len(inputs))
        pairs = zip(dims, by_row, strict=True)
        if any(dim is not None and not row for dim, row in pairs):
            return vmap_by_loop(
                partial(TransformedOp.apply, question), size, dims, inputs
            )
        tensors = [
            fold_vmap_axis(x, dim, size) if row else x
            for x, dim, row in zip(inputs, dims, by_row, strict=True)
        ]
        found = TransformedOp.apply(question.with_repeated_rows(size), *tensors)
        if isinstance(found, tuple):
            return tuple(unfold_vmap_axis(x, size) for x in found), (0,) * len(found)
        return unfold_vmap_axis(found, size), 0


def fold_vmap_axis(x: Tensor, dim: int | None, size: int) -> Tensor:
    """``[B, ...]`` of each of ``size`` calls as ``[size B, ...]``."""
    stacked = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
    return stacked.reshape(size * stacked.shape[1], *stacked.shape[2:])


def unfold_vmap_axis(x: Tensor, size: int) -> Tensor:
    """The way back: of each call, ``[size, B, ...]``."""
    return x.reshape(size, len(x) // size, *x.shape[1:])


def vmap_without_calls(
    ask: Callable[..., Any], dims: tuple[Any, ...], inputs: tuple[Any, ...]
) -> tuple[Any, Any]:
    """Result of ``vmap`` over no calls: shapes and dtypes are those of one of zeros."""
    one = tuple(
        x if dim is None else pad(x, (0, 0) * (x.dim() - 1 - dim) + (0, 1))
        for x, dim in zip(inputs, dims, strict=True)
    )
    found, places = vmap_by_loop(ask, 1, dims, one)
    return tree_map(lambda x: x[:0], found), places


def vmap_by_loop(
    ask: Callable[..., Any], size: int, dims: tuple[Any, ...], inputs: tuple[Any, ...]
) -> tuple[Any, Any]:
    """Result of ``vmap`` from ``size`` calls of ``ask``."""
    found = []
    for place in range(size):
        alone = (
            x if dim is None else x.select(dim, place)
            for x, dim in zip(inputs, dims, strict=True)
        )
        found.append(ask(*alone))
    if isinstance(found[0], tuple):
        outputs = zip(*found, strict=True)
        return tuple(torch.stack(x) for x in outputs), (0,) * len(found[0])
    return torch.stack(found), 0


def loop_over_batched_grads(
    ask: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Answers to batches of ``torch.autograd.grad(is_grads_batched=True)``, one by one.

    PyTorch has wrapped the inputs, though not by ``torch.func``.
    """
    level = 1  # such calls are not nested
    wrapped = [torch._C._functorch.is_legacy_batchedtensor(x) for x in inputs]
    flat = [
        torch._remove_batch_dim(x, level, 0, 0) if w else x
        for x, w in zip(inputs, wrapped, strict=True)
    ]
    size = next(len(x) for x, w in zip(flat, wrapped, strict=True) if w)
    found = [
        ask(*(x[i] if w else x for x, w in zip(flat, wrapped, strict=True)))
        for i in range(size)
    ]
    stacked = (torch.stack(x) for x in zip(*found, strict=True))
    return tuple(torch._add_batch_dim(x, 0, level) for x in stacked)
