"""Scores of given outputs of a chain, and the parts that these use, on the CPU."""

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import fused, validation
from smoothsp._kernels.chain.cpu import scores as scores_cpu
from smoothsp.oracles._chain.buffers import ChainBuffers
from smoothsp.oracles._inference.checks import label_range_message
from smoothsp.oracles._inference.to_numpy import to_numpy


def score_cpu(
    chain: ChainBuffers, labels: Tensor, two: bool
) -> tuple[Tensor, Tensor | None]:
    """Scores ``[B, K]``, in float64, of ``labels`` ``[B, K, T]``.

    With ``two`` also as sums of two numbers ``[B, K, 2]``.
    """
    value = chain.empty(*labels.shape[:2], dtype=torch.float64)
    if not two:
        _fill(chain, labels, value, None)
        return value, None
    rest = torch.empty_like(value)
    _fill(chain, labels, value, rest)
    return value, torch.stack((value, rest), -1)


def _fill(
    chain: ChainBuffers, labels: Tensor, value: Tensor, rest: Tensor | None
) -> None:
    B, K, T = labels.shape
    labels = labels.contiguous()
    if chain.shared_transitions:
        out = value.data_ptr(), 0 if rest is None else rest.data_ptr()
        place = fused.score_labels(chain.addresses, K, labels.data_ptr(), *out)
    else:
        lost = np.empty((0, 0)) if rest is None else rest.numpy()
        fault = np.empty(B, np.int64)
        paths = to_numpy(labels)
        scores_cpu.score(0, B, chain.arrays, paths, value.numpy(), lost, fault)
        row = int((fault >= 0).argmax()) if B else 0
        place = row * T + int(fault[row]) if B and fault[row] >= 0 else -1
    if place >= 0:
        row, step = divmod(place, T)
        found = labels[row, :, step].tolist()
        label = found[0] if K == 1 else found
        raise ValueError(label_range_message(chain.sizes[2], label, row, step))


def count_parts_cpu(
    chain: ChainBuffers, weights: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights ``[B, K]`` added up over the parts that ``labels`` ``[B, K, T]`` use.

    In the shapes of the potentials.
    """
    B, T, S = chain.sizes
    positions = chain.positions
    given = labels, positions.steps, positions.lengths
    paths, steps, lengths = (to_numpy(x) for x in given)
    place = validation.find_invalid_label(paths, steps, lengths, S)
    if place >= 0:
        row, step = place // (paths.shape[1] * T), place % T
        raise ValueError(label_range_message(S, paths.flat[place], row, step))
    _, moves, *ends = chain.shapes
    emissions = weights.new_zeros((B, T, S))
    sums = [weights.new_zeros(x, dtype=torch.float64) for x in (moves, *ends)]
    nodes, edges, heads, tails = (x.numpy() for x in (emissions, *sums))
    used = to_numpy(weights), paths, steps, lengths, chain.shared_transitions
    into = edges[None, None] if chain.shared_transitions else edges
    scores_cpu.add_part_counts(0, B, *used, (nodes, into, heads, tails))
    transitions, start, end = (x.to(weights.dtype) for x in sums)
    return emissions, transitions, start, end
