"""Log-partition, marginals, their covariances and the entropy of a chain.

The arguments of a chain are those of ``_chain.arrays``.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import covariance as cpu_covariance
from smoothsp._kernels.chain.cpu import (
    samples,
    sums_by_step,
    sums_in_lanes,
    sums_in_log_space,
    sums_over_states,
)
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp._kernels.vectors.lanes import lanes_pay
from smoothsp._kernels.vectors.state_products import ROWS
from smoothsp.oracles._chain import on_device
from smoothsp.oracles._chain.arrays import (
    as_edges,
    inner_steps,
    kernel_arrays,
    prove_positions,
)
from smoothsp.oracles._chain.weights import weigh
from smoothsp.oracles._questions.registration import is_plain, question


def _marginal_shapes(emissions: Tensor, transitions: Tensor) -> list[tuple[int, ...]]:
    """Shapes of nodes, edges, heads and tails."""
    B, T, S = emissions.shape
    Q = 1 if transitions.dim() == 2 else T - 1
    return [(B, T, S), (B, max(Q, 0), S, S), (B, S), (B, S)]


def _log_partition(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Log-partition ``[B]``, in float64, and marginals: nodes, edges, heads, tails.

    Edges are ``[B, 1, S, S]``, summed over time, when the transitions are shared, else
    ``[B, T - 1, S, S]``. Heads and tails are the first and the last node marginals.
    """
    new = emissions.new_empty
    value = new((len(emissions),), dtype=torch.float64)
    out = [value, *(new(x) for x in _marginal_shapes(emissions, transitions))]
    chain = kernel_arrays(emissions, transitions, start, end, steps, lengths)
    fill_marginals(chain, [x.numpy() for x in out])
    return out[0], out[1], out[2], out[3], out[4]


def empty_marginals(chain: tuple[Any, ...]) -> list[Any]:
    """Arrays for what ``fill_marginals`` fills."""
    emissions, transitions = chain[:2]
    B, T, S = emissions.shape
    dtype = emissions.dtype
    return [
        np.empty(B),
        np.empty((B, T, S), dtype),
        np.empty((B, *transitions.shape[1:]), dtype),
        np.empty((B, S), dtype),
        np.empty((B, S), dtype),
    ]


def fill_marginals(chain: tuple[Any, ...], out: list[Any]) -> None:
    """Fill log-partition, nodes, edges, heads and tails."""
    emissions = chain[0]
    B = len(emissions)
    pending = np.ones(B, np.bool_)
    # Scaled in the input's dtype, then in float64, then log space: a row is done by the
    # first that is safe for it.
    for dtype in dict.fromkeys((emissions.dtype.type, np.float64)):
        _scaled(chain, dtype, pending, out)
        if not pending.any():
            return
    work = 16 * emissions.size * emissions.shape[2]
    run_rows(sums_in_log_space.forward_backward, B, work, *chain, pending, *out)


def _scaled(
    chain: tuple[Any, ...], dtype: Any, pending: Any, arrays: list[Any]
) -> None:
    """Fill the pending rows that the scaled recursion can do in ``dtype``."""
    emissions, lengths, shared = chain[0], chain[5], chain[6]
    B, T, S = emissions.shape
    limits = np.finfo(dtype)
    floor = float(limits.tiny) / float(limits.eps) * max(T, 1) * S * S
    if not shared:
        zero = np.zeros(1, dtype)
        work = 2 * emissions.size * S
        kernel = sums_by_step.forward_backward
        run_rows(kernel, B, work, *chain, zero, floor, pending, *arrays)
        return
    rows = pending.nonzero()[0]
    order = rows[np.argsort(-lengths[rows], kind="stable")]
    zeros = np.zeros(64 // np.dtype(dtype).itemsize, dtype)
    if lanes_pay(len(rows), S, len(zeros)):
        kernel, together = sums_in_lanes.forward_backward, len(zeros)
    else:
        kernel, together = sums_over_states.forward_backward, ROWS
    groups = -(-len(rows) // together)
    # vectors: a position costs as much as a few steps and a tenth of S of plain loops
    work = len(rows) * T * S * (4 + S // 8) * zeros.itemsize // 4
    limit = (order, zeros, 1 / floor, pending)
    run_rows(kernel, groups, work, *chain, *limit, *arrays)


def fake_log_partition(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    new = emissions.new_empty
    nodes, edges, heads, tails = map(new, _marginal_shapes(emissions, transitions))
    value = new((emissions.shape[0],), dtype=torch.float64)
    return value, nodes, edges, heads, tails


def _covariance(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
    v_nodes: Tensor,
    v_edges: Tensor,
    v_heads: Tensor,
    v_tails: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Covariance of every part with the sum of weights v over an output's parts.

    The Hessian of the log-partition times v. Shapes as the marginals of
    ``log_partition``.
    """
    weights = (v_nodes, v_edges, v_heads, v_tails)
    nodes, edges, heads, tails = (
        torch.empty_like(v, memory_format=torch.contiguous_format) for v in weights
    )
    run_rows(
        cpu_covariance.covariance,
        len(lengths),
        32 * inner_steps(emissions),
        *kernel_arrays(emissions, transitions, start, end, steps, lengths),
        *(x.detach().contiguous().numpy() for x in weights),
        *(x.numpy() for x in (nodes, edges, heads, tails)),
    )
    return nodes, edges, heads, tails


def _fake_covariance(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
    v_nodes: Tensor,
    v_edges: Tensor,
    v_heads: Tensor,
    v_tails: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    nodes, edges, heads, tails = (
        torch.empty_like(v, memory_format=torch.contiguous_format)
        for v in (v_nodes, v_edges, v_heads, v_tails)
    )
    return nodes, edges, heads, tails


def _save_nothing(ctx: Any, inputs: Any, output: Any) -> None:
    pass


def _no_third_derivative(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "chain_covariance has no derivative: log_partition may be differentiated "
        "twice, marginals and entropy once"
    )


def _to_potentials(
    nodes: Tensor, edges: Tensor, heads: Tensor, tails: Tensor, shared: bool
) -> tuple[Tensor, ...]:
    """Gradients per row, added up to those of the potentials."""
    moves = edges.sum((0, 1)) if shared else edges
    return nodes, moves, heads.sum(0), tails.sum(0)


def save_log_partition(
    ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]
) -> None:
    ctx.save_for_backward(*inputs, *output[1:])
    ctx.set_materialize_grads(False)
    ctx.sign = 1


def log_partition_gradient(
    ctx: Any, grad: Tensor | None, *marginal_grads: Tensor | None
) -> tuple[Tensor | None, ...]:
    chain, marginals = ctx.saved_tensors[:6], ctx.saved_tensors[6:]
    shared = chain[1].dim() == 2
    first = all(g is None for g in marginal_grads) and not torch.is_grad_enabled()
    if grad is not None and first:
        for device, one_pass in (("cpu", weigh), ("cuda", on_device.weigh)):
            if is_plain(marginals[0], device):
                return (*one_pass(grad, marginals, shared), None, None)
    parts: list[Tensor] = []
    if grad is not None:
        # The gradient of the log-partition is the marginals (of a log-probability,
        # labels less marginals: it stands in their place, and ctx.sign is -1).
        grad = grad.to(marginals[0].dtype)
        parts = [grad.view(-1, *[1] * (m.dim() - 1)) * m for m in marginals]
    if any(g is not None for g in marginal_grads):
        # The derivative of the marginals is the covariances.
        v = [
            torch.zeros_like(m) if g is None else ctx.sign * g
            for m, g in zip(marginals, marginal_grads, strict=True)
        ]
        second = list(covariance(*chain, *v))
        parts = [a + b for a, b in zip(parts, second, strict=True)] if parts else second
    if not parts:
        return (None,) * 6
    nodes, edges, heads, tails = parts
    return (*_to_potentials(nodes, edges, heads, tails, shared), None, None)


def _entropy(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
) -> Tensor:
    """Entropy ``[B]`` of each row's law, in nats."""
    value = emissions.new_empty((len(lengths),))
    run_rows(
        samples.entropy,
        len(lengths),
        16 * inner_steps(emissions),
        *kernel_arrays(emissions, transitions, start, end, steps, lengths),
        value.numpy(),
    )
    return value


def _fake_entropy(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
) -> Tensor:
    return emissions.new_empty((emissions.shape[0],))


def _save_entropy(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _entropy_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    # H = A - <theta, grad A>, hence dH = -(Hessian of A) theta.
    emissions, transitions, start, end, _, lengths = ctx.saved_tensors
    B = len(lengths)
    edges = as_edges(transitions)
    weights = (
        emissions,
        edges.expand(B, *edges.shape[1:]),
        start.expand(B, -1),
        end.expand(B, -1),
    )
    # A forbidden part has no chance: its weight is never used, but must be finite.
    theta = [torch.where(w > -torch.inf, w, 0) for w in weights]
    parts = covariance(*ctx.saved_tensors, *theta)
    scaled = [-grad.view(-1, *[1] * (p.dim() - 1)) * p for p in parts]
    nodes, moves, heads, tails = scaled
    shared = transitions.dim() == 2
    return (*_to_potentials(nodes, moves, heads, tails, shared), None, None)


log_partition = question(
    "chain_log_partition",
    _log_partition,
    on_device.log_partition,
    fake_log_partition,
    save_log_partition,
    log_partition_gradient,
    prove=prove_positions,
)
covariance = question(
    "chain_covariance",
    _covariance,
    on_device.covariance,
    _fake_covariance,
    _save_nothing,
    _no_third_derivative,
    prove=prove_positions,
)
entropy = question(
    "chain_entropy",
    _entropy,
    on_device.entropy,
    _fake_entropy,
    _save_entropy,
    _entropy_gradient,
    prove=prove_positions,
)
