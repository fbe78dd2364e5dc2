"""Maximisers and samples of a chain: labels, without gradient.

The arguments of a chain are those of ``_chain_arrays``.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels import chain_max_cpu, chain_max_lanes_cpu, chain_sample_cpu
from smoothsp._kernels.threads import run_rows
from smoothsp.oracles._chain_arrays import (
    ROWS_FOR_LANES,
    inner_steps,
    kernel_arrays,
)
from smoothsp.oracles._question import question

# With fewer states it is faster to merge the lists of all prefixes.
STATES_FOR_LAZY = 12


def _in_lanes(transitions: Tensor, rows: int) -> bool:
    return transitions.dim() == 2 and rows >= ROWS_FOR_LANES


def _groups(lengths: Any) -> tuple[int, Any, Any]:
    """Number of groups of lanes; the rows, longest first; a vector of zeros."""
    order = np.argsort(-lengths, kind="stable")
    zeros = np.zeros(8)
    return -(-len(order) // len(zeros)), order, zeros


def _decode(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
) -> Tensor:
    """A maximiser of each row, ``[B, T]``, -1 where there is no real position."""
    labels = torch.empty_like(steps, memory_format=torch.contiguous_format)
    chain = kernel_arrays(emissions, transitions, start, end, steps, lengths)
    work = inner_steps(emissions)
    if _in_lanes(transitions, len(lengths)):
        groups, *options = _groups(chain[5])
        kernel = chain_max_lanes_cpu.viterbi
        run_rows(kernel, groups, work, *chain, *options, labels.numpy())
    else:
        run_rows(chain_max_cpu.viterbi, len(lengths), work, *chain, labels.numpy())
    return labels


def _fake_decode(*chain: Tensor) -> Tensor:
    return torch.empty_like(chain[4], memory_format=torch.contiguous_format)


def _decode_topk(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
    k: int,
) -> tuple[Tensor, Tensor]:
    """The k best outputs ``[B, k, T]``, and which of them exist ``[B, k]``."""
    B, T = steps.shape
    labels = steps.new_empty((B, k, T))
    valid = steps.new_empty((B, k), dtype=torch.bool)
    chain = kernel_arrays(emissions, transitions, start, end, steps, lengths)
    out = (labels.numpy(), valid.numpy())
    if _in_lanes(transitions, B) and emissions.shape[2] >= STATES_FOR_LAZY:
        groups, *options = _groups(chain[5])
        kernel = chain_max_lanes_cpu.viterbi_topk
        run_rows(kernel, groups, inner_steps(emissions), *chain, *options, *out)
    else:
        work = k * inner_steps(emissions)
        run_rows(chain_max_cpu.viterbi_topk, B, work, *chain, *out)
    return labels, valid


def _fake_decode_topk(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
    k: int,
) -> tuple[Tensor, Tensor]:
    B, T = steps.shape
    return steps.new_empty((B, k, T)), steps.new_empty((B, k), dtype=torch.bool)


def _sample(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
    uniforms: Tensor,
) -> Tensor:
    """Draws ``[B, n, T]`` made from ``uniforms`` of that shape."""
    labels = torch.empty_like(uniforms, dtype=torch.int64)
    chain = kernel_arrays(emissions, transitions, start, end, steps, lengths)
    work = 8 * inner_steps(emissions)
    arrays = (*chain, uniforms.contiguous().numpy(), labels.numpy())
    run_rows(chain_sample_cpu.sample, len(lengths), work, *arrays)
    return labels


def _fake_sample(*inputs: Tensor) -> Tensor:
    return torch.empty_like(inputs[-1], dtype=torch.int64)


decode = question("chain_decode", _decode, _fake_decode)
decode_topk = question("chain_topk", _decode_topk, _fake_decode_topk)
sample = question("chain_sample", _sample, _fake_sample)
