"""Maximisers and samples of a chain: labels, without gradient.

The arguments of a chain are those of ``_chain.arrays``.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import best, samples
from smoothsp._kernels.chain.cpu.best_over_states import ROWS
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._chain import on_device
from smoothsp.oracles._chain.arrays import inner_steps, kernel_arrays, prove_positions
from smoothsp.oracles._questions.registration import question


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
    run_rows(best.viterbi, len(labels), work, *arrays, together=ROWS)
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
    run_rows(best.viterbi_topk, B, work, *arrays, together=ROWS)
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
    run_rows(samples.sample, len(lengths), work, *arrays)
    return labels


def _fake_sample(*inputs: Tensor) -> Tensor:
    return torch.empty_like(inputs[-1], dtype=torch.int64)


decode = question(
    "chain_decode",
    _decode,
    on_device.decode,
    _fake_decode,
    prove=prove_positions,
)
decode_topk = question(
    "chain_topk",
    _decode_topk,
    on_device.decode_topk,
    _fake_decode_topk,
    prove=prove_positions,
)
sample = question(
    "chain_sample",
    _sample,
    on_device.sample,
    _fake_sample,
    prove=prove_positions,
)
