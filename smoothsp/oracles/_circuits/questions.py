"""Questions to a circuit, and their gradients.

Each has one function and one gradient: the maximum has the leaves of a maximiser, the
log-partition the marginals, these the covariance of the leaves along a direction.
CPU tensors go to the compiled loops; any others are answered level by level in torch.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from smoothsp.oracles._circuits import compiled, levels
from smoothsp.oracles._circuits.asked import Asked, Leaves
from smoothsp.oracles._questions.registration import is_plain


def log_partition(leaves: Leaves, asked: Asked, dtype: torch.dtype) -> Tensor:
    """Logarithm of the sum over all outputs ``[B]``; differentiable twice."""
    if not _on_cpu(leaves):
        value = levels.log_partition(leaves.joined(), asked.topology, asked.roots)
        return value.to(dtype)
    tensors = (*leaves.own, *leaves.shared)
    if not _wants_gradient(tensors):
        none = [False] * len(tensors)
        return compiled.sums(leaves, asked, none)[0].to(dtype)
    ask = _EagerLogPartition if is_plain(tensors[0]) else _LogPartition
    found: Tensor = ask.apply(asked, len(leaves.own), dtype, *tensors)
    return found


def marginals(leaves: Leaves, asked: Asked) -> list[Tensor]:
    """Chances of the leaves, arrays ``[B, ...]``; differentiable once."""
    if not _on_cpu(leaves):
        graph = _wants_gradient((*leaves.own, *leaves.shared))
        joined = leaves.joined()
        found = levels.sums(joined, asked.topology, asked.roots, graph)[1]
        return compiled.split(found, leaves)
    tensors = (*leaves.own, *leaves.shared)
    return list(_Marginals.apply(asked, len(leaves.own), None, *tensors))


def best(leaves: Leaves, asked: Asked) -> tuple[Tensor, Tensor]:
    """Highest scores ``[B]`` in float64, and the labels ``[B, N]`` of an output."""
    if not _on_cpu(leaves):
        value, labels = levels.best(leaves.joined(), asked.topology, asked.roots)
        return value.double(), labels
    values, labels = _chosen(leaves, asked, None)
    return values.squeeze(1), labels.squeeze(1)


def k_best(leaves: Leaves, asked: Asked, k: int) -> tuple[Tensor, Tensor]:
    """The k highest scores ``[B, k]`` in float64, labels ``[B, k, N]``; on the CPU.

    -inf and -1 where there are fewer outputs.
    """
    device = leaves.own[0].device
    values, labels = _chosen(leaves.map(lambda x: x.cpu()), asked, k)
    return values.to(device), labels.to(device)


def samples(leaves: Leaves, asked: Asked, seeds: Tensor) -> Tensor:
    """Labels ``[B, n, N]`` of independent draws, from seeds ``[B, n]``; on the CPU."""
    found = compiled.samples(leaves.map(lambda x: x.detach().cpu()), asked, seeds.cpu())
    return found.to(seeds.device)


def entropy(leaves: Leaves, asked: Asked) -> Tensor:
    """Entropy ``[B]`` of the outputs in float64; differentiable once."""
    tensors = (*leaves.own, *leaves.shared)
    if _on_cpu(leaves):
        found: Tensor = _Entropy.apply(asked, len(leaves.own), *tensors)
        return found
    graph, joined = _wants_gradient(tensors), leaves.joined()
    value, chances = levels.sums(joined, asked.topology, asked.roots, graph)
    return (value - (chances * _finite(joined)).sum(1)).double().clamp(min=0)


def score(leaves: Leaves, used: Tensor) -> Tensor:
    """Sums ``[B, K]``, in float64, of the leaves ``used`` ``[B, K, U]``, -1 none."""
    if not _on_cpu(leaves):
        return _gathered(leaves.joined(), used)
    found: Tensor = _Score.apply(len(leaves.own), used, *leaves.own, *leaves.shared)
    return found


def _on_cpu(leaves: Leaves) -> bool:
    return leaves.own[0].device.type == "cpu"


def _wants_gradient(tensors: Sequence[Tensor]) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def _finite(scores: Tensor) -> Tensor:
    """Scores, 0 where they are infinite, or NaN in the padding."""
    return torch.where(scores.abs() < torch.inf, scores, 0)


def _by_row(grad: Tensor, x: Tensor) -> Tensor:
    """A factor ``[B]`` for each row of x ``[B, ...]``."""
    return grad.to(x.dtype).reshape(-1, *[1] * (x.dim() - 1))


class _LogPartition(torch.autograd.Function):
    """The log-partition, of which the gradient is the marginals."""

    @staticmethod
    def forward(asked: Asked, n: int, dtype: torch.dtype, *tensors: Tensor) -> Tensor:
        leaves = Leaves(tensors[:n], tensors[n:])
        return compiled.sums(leaves, asked, [False] * len(tensors))[0].to(dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.asked, ctx.n, _, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.chances = None

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        tensors, n = ctx.saved_tensors, ctx.n
        # The first backward gives the marginals away; a second computes them again.
        chances, ctx.chances = ctx.chances, None
        wanted = ctx.needs_input_grad[3:]
        again = torch.is_grad_enabled()
        if again:
            chances = _Marginals.apply(ctx.asked, n, chances, *tensors)
        elif chances is None:
            leaves = Leaves(tensors[:n], tensors[n:])
            chances = compiled.sums(leaves, ctx.asked, wanted)[1]
        found: list[Tensor | None] = []
        for i, (x, some) in enumerate(zip(chances, wanted, strict=True)):
            if not some:
                found.append(None)
            elif i >= n:
                found.append(torch.tensordot(grad.to(x.dtype), x, 1))
            else:
                factor = _by_row(grad, x)
                found.append(x * factor if again else x.mul_(factor))
        return None, None, None, *found


class _EagerLogPartition(torch.autograd.Function):
    """The same for tensors that nothing traces: marginals come with the value."""

    @staticmethod
    def forward(
        ctx: Any, asked: Asked, n: int, dtype: torch.dtype, *tensors: Tensor
    ) -> Tensor:
        leaves = Leaves(tensors[:n], tensors[n:])
        value, ctx.chances = compiled.sums(leaves, asked, ctx.needs_input_grad[3:])
        ctx.asked, ctx.n = asked, n
        ctx.save_for_backward(*tensors)
        return value.to(dtype)

    backward = _LogPartition.backward


class _Marginals(torch.autograd.Function):
    """The marginals, of which the gradient is the covariance with a direction."""

    @staticmethod
    def forward(asked: Asked, n: int, known: Any, *tensors: Tensor) -> Any:
        if known is not None and len({len(x) for x in known}) == 1:
            return tuple(known)
        leaves = Leaves(tensors[:n], tensors[n:])
        return tuple(compiled.sums(leaves, asked, [True] * len(tensors))[1])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.asked, ctx.n, _, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        tensors, n = ctx.saved_tensors, ctx.n
        if all(x is None for x in grads):
            return None, None, None, *grads
        B = len(ctx.asked.roots)
        along = [
            x.new_zeros((B, *x.shape[i < n :])) if grad is None else grad
            for i, (x, grad) in enumerate(zip(tensors, grads, strict=True))
        ]
        moved = _Covariance.apply(ctx.asked, n, *tensors, *along)
        return None, None, None, *_over_rows(moved, n)


class _Covariance(torch.autograd.Function):
    """``Cov(leaves, along)``: linear and symmetric in the direction."""

    @staticmethod
    def forward(asked: Asked, n: int, *tensors: Tensor) -> Any:
        half = len(tensors) // 2
        leaves = Leaves(tensors[:n], tensors[n:half])
        along = Leaves(tensors[half:], ())
        moved = compiled.tangent(leaves, asked, along, [True] * half)[2]
        return tuple(x.to(tensors[0].dtype) for x in moved)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.asked, ctx.n, *tensors = inputs
        ctx.save_for_backward(*tensors[: len(tensors) // 2])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        tensors = ctx.saved_tensors
        if any(ctx.needs_input_grad[2 : 2 + len(tensors)]):
            raise NotImplementedError(
                "circuits: third derivatives of the log-partition are not available; "
                "detach what needs no gradient, or differentiate twice at most"
            )
        moved = _Covariance.apply(ctx.asked, ctx.n, *tensors, *grads)
        return None, None, *[None] * len(tensors), *moved


def _over_rows(moved: Sequence[Tensor], n: int) -> list[Tensor]:
    """Arrays ``[B, ...]`` as gradients of leaves: shared ones summed over the rows."""
    return [x if i < n else x.sum(0) for i, x in enumerate(moved)]


class _Entropy(torch.autograd.Function):
    """``log Z - <marginals, scores>``, of which the gradient is ``-Cov scores``."""

    @staticmethod
    def forward(asked: Asked, n: int, *tensors: Tensor) -> Tensor:
        leaves = Leaves(tensors[:n], tensors[n:])
        none = [False] * len(tensors)
        value, means, _ = compiled.tangent(leaves, asked, leaves.map(_finite), none)
        return (value - means).clamp(min=0)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.asked, ctx.n, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        tensors, n = ctx.saved_tensors, ctx.n
        leaves, wanted = Leaves(tensors[:n], tensors[n:]), ctx.needs_input_grad[2:]
        moved = compiled.tangent(leaves, ctx.asked, leaves.map(_finite), wanted)[2]
        found = [
            (x * _by_row(-grad, x)).to(tensors[0].dtype) if some else None
            for x, some in zip(moved, wanted, strict=True)
        ]
        summed = [x if i < n or x is None else x.sum(0) for i, x in enumerate(found)]
        return None, None, *summed


def _chosen(leaves: Leaves, asked: Asked, k: int | None) -> tuple[Tensor, Tensor]:
    """Values ``[B, K]`` and labels ``[B, K, N]`` of the best, or of the k best."""
    tensors = (*leaves.own, *leaves.shared)
    if not _wants_gradient(tensors):
        return compiled.choose(leaves, asked, k)[:2]
    values, labels, _ = _Chosen.apply(asked, len(leaves.own), k, *tensors)
    return values, labels


class _Chosen(torch.autograd.Function):
    """A maximum: its gradient counts the leaves of a maximiser (Danskin)."""

    @staticmethod
    def forward(asked: Asked, n: int, k: int | None, *tensors: Tensor) -> Any:
        return compiled.choose(Leaves(tensors[:n], tensors[n:]), asked, k)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.n, _, *tensors = inputs
        _, labels, parts = output
        ctx.mark_non_differentiable(labels, parts)
        ctx.save_for_backward(parts, *tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        parts, *tensors = ctx.saved_tensors
        wanted = ctx.needs_input_grad[3:]
        return None, None, None, *_count(grads[0], parts, tensors, ctx.n, wanted)


class _Score(torch.autograd.Function):
    """Scores of given outputs: linear in the leaves."""

    @staticmethod
    def forward(n: int, used: Tensor, *tensors: Tensor) -> Tensor:
        return compiled.total(Leaves(tensors[:n], tensors[n:]), used)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.n, used, *tensors = inputs
        ctx.save_for_backward(used, *tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        used, *tensors = ctx.saved_tensors
        wanted = ctx.needs_input_grad[2:]
        return None, None, *_count(grads[0], used, tensors, ctx.n, wanted)


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
    if not torch.is_grad_enabled():
        return compiled.count(weights, used, leaves, wanted)
    widths = [x.shape[1:].numel() for x in leaves.own]
    widths += [x.numel() for x in leaves.shared]
    total = weights.new_zeros(len(used), 1 + sum(widths))
    spread = weights[..., None].expand(used.shape).flatten(1)
    counted = total.scatter_add(1, used.flatten(1).long() + 1, spread)[:, 1:]
    found = _over_rows(compiled.split(counted, leaves), n)
    return [x if some else None for x, some in zip(found, wanted, strict=True)]


def _gathered(scores: Tensor, used: Tensor) -> Tensor:
    """``score`` in torch, of leaves ``[B, P + Q]``."""
    flat = used.flatten(1)
    picked = scores.gather(1, flat.clamp(min=0)).masked_fill(flat < 0, 0)
    return picked.reshape(used.shape).sum(2, dtype=torch.float64)
