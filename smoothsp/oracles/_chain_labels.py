"""Maximisers and samples of a chain, as registered ops: labels, without gradient.

The arguments of a chain are those of ``_chain_arrays``.
"""

import torch
from torch import Tensor

from smoothsp._kernels import chain_max_cpu, chain_sample_cpu
from smoothsp._kernels.threads import run_rows
from smoothsp.oracles._chain_arrays import inner_steps, kernel_arrays


@torch.library.custom_op("smoothsp::chain_decode", mutates_args=(), device_types="cpu")
def decode(
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
    run_rows(
        chain_max_cpu.viterbi,
        len(lengths),
        inner_steps(emissions),
        *chain,
        labels.numpy(),
    )
    return labels


@decode.register_fake
def _(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
) -> Tensor:
    return torch.empty_like(steps, memory_format=torch.contiguous_format)


@torch.library.custom_op("smoothsp::chain_topk", mutates_args=(), device_types="cpu")
def decode_topk(
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
    run_rows(
        chain_max_cpu.viterbi_topk,
        B,
        k * inner_steps(emissions),
        *chain,
        labels.numpy(),
        valid.numpy(),
    )
    return labels, valid


@decode_topk.register_fake
def _(
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


@torch.library.custom_op("smoothsp::chain_sample", mutates_args=(), device_types="cpu")
def sample(
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
    run_rows(
        chain_sample_cpu.sample,
        len(lengths),
        8 * inner_steps(emissions),
        *chain,
        uniforms.contiguous().numpy(),
        labels.numpy(),
    )
    return labels


@sample.register_fake
def _(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
    uniforms: Tensor,
) -> Tensor:
    return torch.empty_like(uniforms, dtype=torch.int64)
