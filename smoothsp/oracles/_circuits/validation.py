"""Leaves that outputs of a circuit may use, and outputs that exist."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.circuits.cpu import validation
from smoothsp.oracles._circuits import cpu
from smoothsp.oracles._circuits.circuit_batch import CircuitBatch
from smoothsp.oracles._circuits.topology import Topology
from smoothsp.oracles._inference.tracing import is_eager


def usable_leaves(batch: CircuitBatch) -> Tensor:
    """Whether a row may use a leaf at all: ``[B, P + Q]``, ``[1, P + Q]`` if alike."""
    return leaf_and_label_masks(batch)[0]


def usable_labels(batch: CircuitBatch) -> Tensor:
    """Whether such a leaf sets a label, ``[B, N]``, or ``[1, N]`` if rows are alike."""
    return leaf_and_label_masks(batch)[1]


def leaf_and_label_masks(batch: CircuitBatch) -> tuple[Tensor, Tensor]:
    """Return the masks of ``usable_leaves`` and of ``usable_labels``."""
    if not batch.has_shared_root:
        if batch.usable_parts is None:
            batch.usable_parts = _compute_leaf_and_label_masks(
                batch.topology, batch.rows.roots
            )
        return batch.usable_parts
    cache = batch.topology.usable_parts
    root = int(batch.rows.roots[0]) if len(batch.roots) else 0
    if root not in cache:
        cache[root] = _compute_leaf_and_label_masks(batch.topology, np.array([root]))
    return cache[root]


def _compute_leaf_and_label_masks(
    topology: Topology, roots: NDArray[np.int64]
) -> tuple[Tensor, Tensor]:
    # of constants, also where a transform is under way
    with torch._C._DisableFuncTorch():
        read = np.empty((len(roots), topology.leaves), np.bool_)
        validation.reachable_leaves(topology.edges_address, roots, read)
        positions = torch.from_numpy(topology.edges.positions[1:]).long()
        is_reachable = torch.from_numpy(read)
        counts = is_reachable.new_zeros(
            (len(roots), topology.labels + 1), dtype=torch.int32
        )
        return is_reachable, counts.index_add(1, positions + 1, is_reachable.int())[
            :, 1:
        ] > 0


def first_invalid_output(batch: CircuitBatch, used: Tensor) -> int:
    """``b K + k`` of the first leaves ``[B, K, U]`` that make no output, or -1."""
    if not is_eager() or not used.numel():
        return -1
    return cpu.first_invalid_output(batch, used.cpu())
