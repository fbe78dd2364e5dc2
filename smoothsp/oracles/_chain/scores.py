"""Scores and part counts of outputs of a chain, on the CPU."""

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import fused, validation
from smoothsp._kernels.chain.cpu import scores as scores_cpu
from smoothsp.oracles._chain.buffers import ChainBuffers
from smoothsp.oracles._inference.checks import label_range_message
from smoothsp.oracles._inference.to_numpy import to_numpy


def score_cpu(
    chain: ChainBuffers, labels: Tensor, with_hi_lo: bool
) -> tuple[Tensor, Tensor | None]:
    """Scores ``[B, K]`` in float64 of ``labels`` ``[B, K, T]``.

    If ``with_hi_lo``, also as double-doubles ``[B, K, 2]``.
    """
    value = chain.empty(*labels.shape[:2], dtype=torch.float64)
    if not with_hi_lo:
        _fill_scores(chain, labels, value, None)
        return value, None
    lo = torch.empty_like(value)
    _fill_scores(chain, labels, value, lo)
    return value, torch.stack((value, lo), -1)


def _fill_scores(
    chain: ChainBuffers, labels: Tensor, value: Tensor, lo: Tensor | None
) -> None:
    B, K, T = labels.shape
    labels = labels.contiguous()
    if chain.shared_transitions:
        out = value.data_ptr(), 0 if lo is None else lo.data_ptr()
        bad_position = fused.score_labels(chain.addresses, K, labels.data_ptr(), *out)
    else:
        lo_array = np.empty((0, 0)) if lo is None else lo.numpy()
        bad_steps = np.empty(B, np.int64)
        paths = to_numpy(labels)
        scores_cpu.score(0, B, chain.arrays, paths, value.numpy(), lo_array, bad_steps)
        row = int((bad_steps >= 0).argmax()) if B else 0
        bad_position = (
            row * T + int(bad_steps[row]) if B and bad_steps[row] >= 0 else -1
        )
    if bad_position >= 0:
        row, step = divmod(bad_position, T)
        bad_labels = labels[row, :, step].tolist()
        label = bad_labels[0] if K == 1 else bad_labels
        raise ValueError(label_range_message(chain.sizes[2], label, row, step))


def count_parts_cpu(
    chain: ChainBuffers, weights: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sum the weights ``[B, K]`` of ``labels`` ``[B, K, T]`` over the parts they use.

    The result has the shapes of the potentials.
    """
    B, T, S = chain.sizes
    positions = chain.positions
    tensors = labels, positions.steps, positions.lengths
    paths, steps, lengths = (to_numpy(x) for x in tensors)
    bad_position = validation.first_invalid_label_offset(paths, steps, lengths, S)
    if bad_position >= 0:
        row, step = bad_position // (paths.shape[1] * T), bad_position % T
        raise ValueError(label_range_message(S, paths.flat[bad_position], row, step))
    _, transitions_shape, *ends = chain.shapes
    emissions = weights.new_zeros((B, T, S))
    # sums over rows and time: float32 would lose digits of long batches
    sums = [
        weights.new_zeros(x, dtype=torch.float64) for x in (transitions_shape, *ends)
    ]
    nodes, edges, heads, tails = (x.numpy() for x in (emissions, *sums))
    used = to_numpy(weights), paths, steps, lengths, chain.shared_transitions
    edge_array = edges[None, None] if chain.shared_transitions else edges
    scores_cpu.add_part_counts(0, B, *used, (nodes, edge_array, heads, tails))
    transitions, start, end = (x.to(weights.dtype) for x in sums)
    return emissions, transitions, start, end
