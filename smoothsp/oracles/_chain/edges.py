"""Marginals of the edges of each step of a chain.

The arguments of a chain are those of ``_chain.buffers``.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import laws
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._chain import on_device
from smoothsp.oracles._chain.buffers import ChainBuffers, chain_question
from smoothsp.oracles._chain.forward_backward import (
    covariance,
    of_rows,
    save_chain,
    sums_of,
    to_potentials,
)


def _edges_of(chain: ChainBuffers) -> Tensor:
    """Marginals ``[B, T - 1, S, S]`` of the edges, though transitions are shared."""
    if not chain.shared:
        return sums_of(chain, False)[2]
    B, T, S = chain.sizes
    edges = chain.new(B, max(T - 1, 0), S, S)
    nodes, ends = chain.new(B, T, S), (chain.new(B, S), chain.new(B, S))
    out = tuple(x.numpy() for x in (nodes, edges, *ends))
    arrays = (np.arange(B), chain.in_float64.arrays, np.empty((B, 2)), out)
    run_rows(laws.sums, B, 4 * chain.inner_steps, *arrays)
    return edges


def _fake_edges(emissions: Tensor, *rest: Any) -> Tensor:
    B, T, S = emissions.shape
    return emissions.new_empty((B, T - 1 if T > 0 else 0, S, S))


def _edges_on_device(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
) -> Tensor:
    B, T, S = emissions.shape
    moves = transitions.expand(B, max(T - 1, 0), S, S)
    given = (start, end, steps, lengths)
    return on_device.log_partition(emissions, moves, *given, False)[2]


def _edges_gradient(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 6
    emissions, transitions, start, end, *positions = ctx.saved_tensors
    chain = (emissions, transitions.expand(grad.shape), start, end, *positions)
    B, S = len(emissions), len(start)
    ends = emissions.new_zeros((B, S))
    parts = covariance(*chain, torch.zeros_like(emissions), grad, ends, ends)
    return *to_potentials(list(parts), transitions.dim() == 2), None, None


def _edges_tangent(ctx: Any, *tangents: Tensor | None) -> Tensor:
    emissions, transitions, start, end, *positions = ctx.saved_tensors
    B, T, S = emissions.shape
    moves = transitions.expand(B, T - 1 if T > 0 else 0, S, S)
    ends = emissions.new_zeros((B, S))
    v = of_rows(tangents, (emissions, moves, ends, ends))
    edges: Tensor = covariance(emissions, moves, start, end, *positions, *v)[1]
    return edges


edge_marginals = chain_question(
    "edges",
    "",
    "Tensor",
    of_buffers=_edges_of,
    cuda=_edges_on_device,
    fake=_fake_edges,
    save=save_chain,
    gradient=_edges_gradient,
    tangent=_edges_tangent,
)
