"""Log-partition, marginals, their covariances and the entropy of a chain.

The arguments of a chain are those of ``_chain.buffers``.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import fused, laws
from smoothsp._kernels.threads.ranges import run_all, run_rows
from smoothsp.oracles._chain import on_device
from smoothsp.oracles._chain.addresses import (
    piece,
    rows_of_answers,
    way_of_one_call,
    way_of_sums,
)
from smoothsp.oracles._chain.buffers import EMPTY, ChainBuffers, chain_question
from smoothsp.oracles._chain.on_device import as_edges
from smoothsp.oracles._chain.vjp import Kept, vjp, vjp_in_place
from smoothsp.oracles._questions.arrays import array
from smoothsp.oracles._questions.registration import (
    EagerGradient,
    is_eager,
    is_eager_tensor,
)

Sums = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
Marginals = tuple[Tensor, Tensor, Tensor, Tensor]


def _marginal_shapes(sizes: torch.Size, shared: bool) -> list[tuple[int, ...]]:
    """Shapes of nodes, edges, heads and tails."""
    B, T, S = sizes
    Q = 1 if shared else T - 1
    return [(B, T, S), (B, max(Q, 0), S, S), (B, S), (B, S)]


def sums_of(chain: ChainBuffers, wide: bool, parts: Tensor | None = None) -> Sums:
    """Log-partition ``[B]`` and marginals: nodes, edges, heads, tails.

    Edges are ``[B, 1, S, S]``, summed over time, when the transitions are shared, else
    ``[B, T - 1, S, S]``. Heads and tails are the first and the last node marginals. The
    log-partition is in float64 if ``wide``, else of the dtype of the potentials; its
    value as a sum of two float64 numbers fills ``parts`` ``[B, 2]``.
    """
    B = chain.sizes[0]
    value = chain.new(B, dtype=torch.float64 if wide else None)
    shapes = _marginal_shapes(chain.sizes, chain.shared)
    nodes, edges, heads, tails = (chain.new(*shape) for shape in shapes)
    out = (value, nodes, edges, heads, tails)
    if not chain.shared:
        _fill_by_laws(chain, np.ones(B, np.bool_), out, parts)
    elif _fill(chain, wide, value.data_ptr(), _at(parts), _places(out[1:])):
        _fill_by_laws(chain, np.isnan(value.numpy()), out, parts)
    return out


def sums_at_once(chain: ChainBuffers, parts: Tensor | None) -> tuple[Tensor, Kept]:
    """Log-partitions for shared transitions, and the marginals; ``parts`` as above."""
    B, T, S = chain.sizes
    vector = chain.addresses[-1]
    new = EMPTY[chain.dtype].new_empty
    value, nodes, others = new(B), new(B, T, S), new(B * S * (S + 2))
    edges_at = others.data_ptr()
    heads_at = edges_at + B * S * S * vector.itemsize
    tails_at = heads_at + B * S * vector.itemsize
    places = nodes.data_ptr(), edges_at, heads_at, tails_at
    if _fill(chain, False, value.data_ptr(), _at(parts), places):
        edges, heads, tails = torch.split(others, [B * S * S, B * S, B * S])
        ends = heads.view(B, S), tails.view(B, S)
        out = (value, nodes, edges.view(B, 1, S, S), *ends)
        _fill_by_laws(chain, np.isnan(value.numpy()), out, parts)
    return value, (nodes, others, (B, T, S, vector), places)


def _at(parts: Tensor | None) -> int:
    return 0 if parts is None else parts.data_ptr()


def _places(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(x.data_ptr() for x in tensors)


def _fill(
    chain: ChainBuffers, wide: bool, value: int, pairs: int, places: tuple[int, ...]
) -> int:
    """Fill the outputs at these addresses; how many rows are not safe in the dtype."""
    where, (B, T, S) = chain.addresses, chain.sizes
    item = where[-1].itemsize
    way = way_of_one_call(B, T, S, item)
    rows = B if way else rows_of_answers(B, T, S, item)
    if rows >= B:
        way = way or way_of_sums(where)
        far: int = fused.sums(where, *way, wide, value, pairs, places)
        return far
    one, two = 8 if wide else item, 16 if pairs else 0
    sizes = [item * x for x in (T * S, S * S, S, S)]
    some = {b: piece(where, b, rows) for b in range(0, B, rows)}
    pieces = [
        partial(
            fused.sums,
            rows_at,
            *way_of_sums(rows_at),
            wide,
            value + b * one,
            pairs + b * two,
            tuple(x + b * size for x, size in zip(places, sizes, strict=True)),
        )
        for b, rows_at in some.items()
    ]
    return sum(run_all(pieces))


def _fill_by_laws(
    chain: ChainBuffers, pending: Any, out: Sums, pairs: Tensor | None
) -> None:
    """Fill the pending rows, of any range."""
    value, *parts = (x.numpy() for x in out)
    rows, exact = pending.nonzero()[0], np.empty((len(value), 2))
    arrays = (rows, chain.in_float64.arrays, exact, tuple(parts))
    run_rows(laws.sums, len(rows), 4 * chain.inner_steps, *arrays)
    value[rows] = exact[rows, 0]
    if pairs is not None:
        pairs.numpy()[rows] = exact[rows]


def fake_sums(*inputs: Any) -> Sums:
    emissions, transitions, wide = inputs[0], inputs[1], inputs[-1]
    new = emissions.new_empty
    nodes, edges, heads, tails = map(
        new, _marginal_shapes(emissions.shape, transitions.dim() == 2)
    )
    dtype = torch.float64 if wide else emissions.dtype
    return new((emissions.shape[0],), dtype=dtype), nodes, edges, heads, tails


def save_sums(ctx: Any, inputs: tuple[Any, ...], output: Sums) -> None:
    ctx.save_for_backward(*inputs[:6], *output[1:])
    ctx.set_materialize_grads(False)
    ctx.dtype = output[0].dtype


def _sums_gradient(
    ctx: Any, grad: Tensor | None, *marginal_grads: Tensor | None
) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    return *gradient_of_sums(saved[:6], saved[6:], grad, marginal_grads), *(None,) * 3


def gradient_of_sums(
    chain: tuple[Any, ...],
    marginals: tuple[Tensor, ...],
    grad: Tensor | None,
    marginal_grads: tuple[Tensor | None, ...],
) -> tuple[Tensor | None, ...]:
    """Gradients of the potentials from those of the log-partition and the marginals."""
    shared = chain[1].dim() == 2
    known = all(g is None for g in marginal_grads)
    if grad is not None and known and not torch.is_grad_enabled():
        for device, one_pass in (("cpu", vjp), ("cuda", on_device.vjp)):
            if is_eager_tensor(marginals[0], device) and is_eager_tensor(grad, device):
                return one_pass(grad, marginals, shared)
    parts: list[Tensor] = []
    if grad is not None:
        # the gradient of the log-partition is the marginals
        parts = [_times(grad, m) for m in marginals]
    if not known:
        # the derivative of the marginals is the covariances
        v = [
            torch.zeros_like(m) if g is None else g
            for m, g in zip(marginals, marginal_grads, strict=True)
        ]
        second = covariance(*chain, *v)
        pairs = zip(parts, second, strict=True)
        parts = [a + b for a, b in pairs] if parts else list(second)
    return to_potentials(parts, shared) if parts else (None,) * 4


def _times(weights: Tensor, part: Tensor) -> Tensor:
    """Parts of rows times the weight of the row."""
    weights = weights.to(part.dtype)
    return weights.reshape(-1, *[1] * (part.dim() - 1)) * part


def to_potentials(parts: list[Tensor], shared: bool) -> tuple[Tensor, ...]:
    """Gradients per row, added up to those of the potentials."""
    nodes, edges, heads, tails = parts
    moves = edges.sum((0, 1)) if shared else edges
    return nodes, moves, heads.sum(0), tails.sum(0)


def _sums_tangent(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, ...]:
    saved = ctx.saved_tensors
    value, *parts = tangent_of_sums(saved[:6], saved[6:], tangents)
    return value.to(ctx.dtype), *parts


def tangent_of_sums(
    chain: tuple[Any, ...],
    marginals: tuple[Tensor, ...],
    tangents: tuple[Tensor | None, ...],
) -> tuple[Tensor, ...]:
    """Tangents of log-partition and marginals."""
    v = of_rows(tangents, marginals)
    return _inner(marginals, v), *covariance(*chain, *v)


def of_rows(
    potentials: tuple[Tensor | None, ...], marginals: tuple[Tensor, ...]
) -> list[Tensor]:
    """Potentials as each row has them, in the shapes of the marginals."""
    emissions, transitions, start, end = potentials[:4]
    edges = None if transitions is None else as_edges(transitions)
    given = (emissions, edges, start, end)
    return [
        torch.zeros_like(m) if x is None else x.expand(m.shape)
        for x, m in zip(given, marginals, strict=True)
    ]


def _inner(parts: tuple[Tensor, ...], weights: list[Tensor]) -> Tensor:
    """Inner products ``[B]`` of parts of rows."""
    pairs = zip(parts, weights, strict=True)
    return torch.stack([(p * w).flatten(1).sum(1) for p, w in pairs]).sum(0)


def _covariance_of(chain: ChainBuffers, *v: Tensor) -> tuple[Tensor, ...]:
    """Covariance of every part with the sum of weights v over an output's parts.

    The Hessian of the log-partition times v. Shapes as the marginals of
    ``log_partition``.
    """
    found = [np.empty(x.shape) for x in v]
    weights = tuple(array(x.double()) for x in v)
    arrays = (chain.in_float64.arrays, weights, tuple(found))
    run_rows(laws.covariance, chain.sizes[0], 8 * chain.inner_steps, *arrays)
    return tuple(torch.from_numpy(x).to(chain.dtype) for x in found)


def _fake_covariance(*inputs: Any) -> tuple[Tensor, ...]:
    v = inputs[6:]
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in v)


def _save_nothing(ctx: Any, inputs: Any, output: Any) -> None:
    pass


def _no_third_derivative(ctx: Any, *grads: Any) -> None:
    raise RuntimeError(
        "chain_covariance has no derivative: log_partition may be differentiated "
        "twice, marginals and entropy once"
    )


def _entropy_of(chain: ChainBuffers) -> Tensor:
    """Entropy ``[B]`` of each row's law, in nats."""
    value = np.empty(chain.sizes[0])
    arrays = (chain.in_float64.arrays, value)
    run_rows(laws.entropy, len(value), 4 * chain.inner_steps, *arrays)
    return torch.from_numpy(value).to(chain.dtype)


def save_chain(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)
    ctx.set_materialize_grads(False)


def _fake_entropy(emissions: Tensor, *rest: Any) -> Tensor:
    return emissions.new_empty((emissions.shape[0],))


def _entropy_slope(chain: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Derivatives of the entropy in the parts of its row.

    H = A - <theta, grad A>, hence dH = -(Hessian of A) theta.
    """
    emissions, transitions, start, end, _, _ = chain
    B = len(emissions)
    edges = as_edges(transitions)
    weights = (
        emissions,
        edges.expand(B, *edges.shape[1:]),
        start.expand(B, -1),
        end.expand(B, -1),
    )
    # a forbidden part has no chance: its weight is never used, but must be finite
    theta = [torch.where(w > -torch.inf, w, 0) for w in weights]
    return tuple(-x for x in covariance(*chain, *theta))


def _entropy_gradient(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 6
    chain = ctx.saved_tensors
    slopes = [_times(grad, x) for x in _entropy_slope(chain)]
    return *to_potentials(slopes, chain[1].dim() == 2), None, None


def _entropy_tangent(ctx: Any, *tangents: Tensor | None) -> Tensor:
    slopes = _entropy_slope(ctx.saved_tensors)
    return _inner(slopes, of_rows(tangents, slopes))


class LogPartition:
    """The log-partition alone, as ``EagerGradient`` takes a question.

    Its marginals are no tensors of the graph: the first gradient overwrites them.
    """

    def call(self, chain: ChainBuffers) -> Tensor:
        """Log-partitions ``[B]``."""
        if not (chain.plain and chain.shared and is_eager()):
            value: Tensor = sums.call(chain, False)[0]
            return value
        if not chain.wants_gradient():
            return sums_at_once(chain, None)[0]
        known: Tensor = EagerGradient.apply(self, chain, *chain.potentials)
        return known

    def begin(
        self, ctx: Any, chain: ChainBuffers, potentials: tuple[Any, ...]
    ) -> Tensor:
        """The log-partitions; keeps the marginals for the first derivative."""
        return self._keep(ctx, chain, potentials, None)

    def _keep(
        self, ctx: Any, chain: ChainBuffers, potentials: Any, parts: Tensor | None
    ) -> Tensor:
        if chain.shared:
            value, ctx.marginals = sums_at_once(chain, parts)
        else:
            value, *marginals = sums_of(chain, False, parts)
            ctx.known = tuple(marginals)
        ctx.save_for_backward(*potentials)
        ctx.positions = chain.positions
        return value

    def gradient(self, ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The marginals, weighted, the first time in their own memory.

        They are found again for a second time, or where they are differentiated too.
        """
        # one step, so that no other thread gets them too
        known = vars(ctx).pop("marginals", None)
        if known and not torch.is_grad_enabled() and is_eager_tensor(grad):
            return vjp_in_place(grad, known, ctx.needs_input_grad[:6])
        potentials = ctx.saved_tensors
        chain = (*potentials, *ctx.positions.explicit())
        marginals = None if torch.is_grad_enabled() else vars(ctx).get("known")
        if marginals is None:
            marginals = sums(*chain, False)[1:]
        return gradient_of_sums(chain, marginals, grad, (None,) * 4)


class LogPartitionInTwo(LogPartition):
    """Log-partition of a plain chain; its values fill a tensor as two numbers."""

    def call(self, chain: ChainBuffers, parts: Tensor) -> Tensor:  # type: ignore[override]
        """Log-partitions ``[B]``; as sums of two float64 numbers in ``parts[B, 2]``."""
        if chain.wants_gradient():
            known: Tensor = EagerGradient.apply(self, chain, *chain.potentials, parts)
            return known
        if chain.shared:
            return sums_at_once(chain, parts)[0]
        return sums_of(chain, False, parts)[0]

    def begin(self, ctx: Any, chain: ChainBuffers, inputs: tuple[Any, ...]) -> Tensor:
        """Gradient as for the log-partition."""
        *potentials, parts = inputs
        return self._keep(ctx, chain, potentials, parts)

    def gradient(self, ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradient as for the log-partition."""
        return *super().gradient(ctx, grad), None


sums = chain_question(
    "log_partition",
    "bool wide",
    "(Tensor, Tensor, Tensor, Tensor, Tensor)",
    of_buffers=sums_of,
    cuda=on_device.log_partition,
    fake=fake_sums,
    save=save_sums,
    gradient=_sums_gradient,
    tangent=_sums_tangent,
    rest_by_row=(False,),
)
log_partition, log_partition_in_two = LogPartition(), LogPartitionInTwo()
covariance = chain_question(
    "covariance",
    "Tensor v_nodes, Tensor v_edges, Tensor v_heads, Tensor v_tails",
    "(Tensor, Tensor, Tensor, Tensor)",
    of_buffers=_covariance_of,
    cuda=on_device.covariance,
    fake=_fake_covariance,
    save=_save_nothing,
    gradient=_no_third_derivative,
    tangent=_no_third_derivative,
    rest_by_row=(True,) * 4,
)
entropy = chain_question(
    "entropy",
    "",
    "Tensor",
    of_buffers=_entropy_of,
    cuda=on_device.entropy,
    fake=_fake_entropy,
    save=save_chain,
    gradient=_entropy_gradient,
    tangent=_entropy_tangent,
)
