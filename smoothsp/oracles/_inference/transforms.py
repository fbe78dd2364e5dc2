"""Ops under ``torch.func``: gradients, forward derivatives and ``vmap``."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils._pytree import tree_map


class TransformedOp(torch.autograd.Function):
    """Call of an op at one level of nested transforms.

    Each transform calls its rule, which calls the level below, until the op gets
    tensors that no transform has wrapped.
    """

    @staticmethod
    def forward(op: Any, *inputs: Any) -> Any:
        return op.op(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        op, *tensors = inputs
        ctx.op, ctx.num_inputs = op, len(tensors)
        if not op.is_differentiable:
            ctx.outputs = len(output) if isinstance(output, tuple) else 1
            return
        op.save(ctx, tuple(tensors), output)
        ctx.save_for_forward(*(ctx.to_save or ()))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if not ctx.op.is_differentiable:
            return (None,) * (1 + ctx.num_inputs)
        potentials, extra_grads = ctx.op.backward(ctx, *grads)
        between = (None,) * (ctx.num_inputs - len(potentials) - len(extra_grads))
        return None, *potentials, *between, *extra_grads

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        if not ctx.op.is_differentiable:
            return (None,) * ctx.outputs
        return ctx.op.jvp(ctx, *tangents[1:])

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], op: Any, *inputs: Any
    ) -> tuple[Any, Any]:
        """One call for ``size`` batches of rows; a loop if shared potentials vary."""
        size, dims = info.batch_size, in_dims[1:]
        if not size:
            return vmap_without_calls(partial(TransformedOp.apply, op), dims, inputs)
        is_batched = op.is_batched(len(inputs))
        pairs = zip(dims, is_batched, strict=True)
        if any(dim is not None and not row for dim, row in pairs):
            return vmap_by_loop(partial(TransformedOp.apply, op), size, dims, inputs)
        tensors = [
            fold_vmap_axis(x, dim, size) if row else x
            for x, dim, row in zip(inputs, dims, is_batched, strict=True)
        ]
        result = TransformedOp.apply(op.with_repeated_rows(size), *tensors)
        if isinstance(result, tuple):
            return tuple(unfold_vmap_axis(x, size) for x in result), (0,) * len(result)
        return unfold_vmap_axis(result, size), 0


def fold_vmap_axis(x: Tensor, dim: int | None, size: int) -> Tensor:
    """Concatenate ``[B, ...]`` of ``size`` mapped calls to ``[size B, ...]``."""
    stacked = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
    return stacked.reshape(size * stacked.shape[1], *stacked.shape[2:])


def unfold_vmap_axis(x: Tensor, size: int) -> Tensor:
    """Split ``[size B, ...]`` into the mapped calls, ``[size, B, ...]``."""
    return x.reshape(size, len(x) // size, *x.shape[1:])


def vmap_without_calls(
    call: Callable[..., Any], dims: tuple[Any, ...], inputs: tuple[Any, ...]
) -> tuple[Any, Any]:
    """Result of ``vmap`` over an axis of length 0.

    One call on zeros gives the shapes and dtypes.
    """
    padded = tuple(
        x if dim is None else pad(x, (0, 0) * (x.dim() - 1 - dim) + (0, 1))
        for x, dim in zip(inputs, dims, strict=True)
    )
    result, out_dims = vmap_by_loop(call, 1, dims, padded)
    return tree_map(lambda x: x[:0], result), out_dims


def vmap_by_loop(
    call: Callable[..., Any], size: int, dims: tuple[Any, ...], inputs: tuple[Any, ...]
) -> tuple[Any, Any]:
    """Result of ``vmap`` by ``size`` calls of ``call``."""
    results = []
    for index in range(size):
        call_inputs = (
            x if dim is None else x.select(dim, index)
            for x, dim in zip(inputs, dims, strict=True)
        )
        results.append(call(*call_inputs))
    if isinstance(results[0], tuple):
        outputs = zip(*results, strict=True)
        return tuple(torch.stack(x) for x in outputs), (0,) * len(results[0])
    return torch.stack(results), 0


def loop_over_batched_grads(
    call: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Call a backward rule for each gradient of ``grad(is_grads_batched=True)``.

    PyTorch wraps these inputs by an older ``vmap``, which ignores the rules here.
    """
    level = 1  # such calls are not nested
    wrapped = [torch._C._functorch.is_legacy_batchedtensor(x) for x in inputs]
    flat = [
        torch._remove_batch_dim(x, level, 0, 0) if w else x
        for x, w in zip(inputs, wrapped, strict=True)
    ]
    size = next(len(x) for x, w in zip(flat, wrapped, strict=True) if w)
    results = [
        call(*(x[i] if w else x for x, w in zip(flat, wrapped, strict=True)))
        for i in range(size)
    ]
    stacked = (torch.stack(x) for x in zip(*results, strict=True))
    return tuple(torch._add_batch_dim(x, 0, level) for x in stacked)
