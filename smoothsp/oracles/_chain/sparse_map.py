"""SparseMAP of chains: an active-set search per row, in compiled code."""

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels.combinatorial import sparsemap_chains
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._chain.buffers import ChainBuffers
from smoothsp.oracles._chain.engine import ChainEngine
from smoothsp.oracles._inference import rules

# Initial slots for active outputs; rows that overflow run again with four times more.
_SLOTS = 64
# Strengths that keep scaled scores and costs in range of float64.
_MIN_STRENGTH, _MAX_STRENGTH = 1e-100, 1e100


def solve_sparse_map(
    chain: ChainBuffers, strength: float, max_decodes: int, rounding: float
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Outputs ``[B, k, T]`` and weights ``[B, k]``, heaviest first, and gaps ``[B]``.

    Rows with fewer than k outputs repeat their first one with weight 0. None if the
    chain is not on the CPU, or the strength is out of range.
    """
    if not chain.kernel_ready or not _MIN_STRENGTH < strength < _MAX_STRENGTH:
        return None
    B, T, _ = chain.sizes
    arrays = chain.as_float64.arrays
    rows, C = np.argsort(-arrays[5], kind="stable"), _SLOTS
    outputs, weights = np.empty((B, C, T), np.int64), np.empty((B, C))
    gap, strengths = np.empty(B), np.full(B, strength)
    counts, decodes = np.zeros((2, B), np.int64)
    while True:
        args = (arrays, rows, strengths, max_decodes, False, rounding)
        work = C * (chain.inner_steps + len(rows) * C * C) // 4
        counts[rows] = 0
        buffers = outputs, weights, gap, counts, decodes
        run_rows(sparsemap_chains.sparsemap, len(rows), work, *args, buffers)
        rows = rows[counts[rows] < 0]
        if len(rows) == 0:
            return *_heaviest_first(outputs, weights), torch.from_numpy(gap)
        outputs = np.pad(outputs, ((0, 0), (0, 3 * C), (0, 0)))
        weights = np.pad(weights, ((0, 0), (0, 3 * C)))
        C *= 4


def _heaviest_first(outputs: Any, weights: Any) -> tuple[Tensor, Tensor]:
    k = max(int((weights > 0).sum(1).max(initial=0)), 1)
    order = np.argsort(-weights, axis=1, kind="stable")[:, :k]
    rows = np.arange(len(order))[:, None]
    weights = weights[rows, order]
    order = np.where(weights > 0, order, order[:, :1])
    return torch.from_numpy(outputs[rows, order]), torch.from_numpy(weights)


def agreement_counts(outputs: Tensor) -> Tensor:
    """Number of positions where outputs ``[B, k, T]`` agree pairwise: ``[B, k, k]``."""
    B, k, T = outputs.shape
    counts = np.empty((B, k, k))
    arrays = outputs.numpy(), counts
    run_rows(sparsemap_chains.inner_products, B, B * k * k * T // 8, *arrays)
    return torch.from_numpy(counts)


def mixture_marginals(chain: ChainEngine, weights: Tensor, outputs: Tensor) -> Tensor:
    """Marginals ``[B, T, S]`` of mixtures: total weight of each label at each step.

    Differentiable in the weights.
    """
    counts = rules.count_parts(chain, outputs, weights, (True, False, False, False))
    return cast(Tensor, counts[0])
