"""Maximisers and samples of a chain: labels, without gradient.

The arguments of a chain are those of ``_chain_arrays``.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels import chain_max_cpu, chain_sample_cpu
from smoothsp._kernels.max_rows import ROWS
from smoothsp._kernels.threads import run_rows
from smoothsp.oracles import _chain_cuda
from smoothsp.oracles._chain_arrays import inner_steps, kernel_arrays
from smoothsp.oracles._question import question


def _longest_first(lengths: Any) -> Any:
    return np.argsort(-lengths, kind="stable")


def _work(emissions: Tensor, k: int = 0) -> int:
    """Work of max-product and of k more outputs, as ``run_rows`` reckons.

    Measured: a step of the innermost loop takes a quarter of what it takes elsewhere, a
    label of one more output as long as 40.
    """
    B, T, _ = emissions.shape
    return inner_steps(emissions) // 4 + 40 * k * B * T


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
    found, value = labels.numpy(), np.empty(len(labels))
    arrays = (*chain, _longest_first(chain[5]), found, 0.0, found, value)
    work = _work(emissions)
    run_rows(chain_max_cpu.viterbi, len(labels), work, *arrays, together=ROWS)
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
    arrays = (*chain, _longest_first(chain[5]), labels.numpy(), valid.numpy())
    work = _work(emissions, k)
    run_rows(chain_max_cpu.viterbi_topk, B, work, *arrays, together=ROWS)
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


decode = question("chain_decode", _decode, _chain_cuda.decode, _fake_decode)
decode_topk = question(
    "chain_topk", _decode_topk, _chain_cuda.decode_topk, _fake_decode_topk
)
sample = question("chain_sample", _sample, _chain_cuda.sample, _fake_sample)
