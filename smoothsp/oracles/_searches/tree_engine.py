"""Sums over spanning trees by the matrix-tree theorem, and their derivatives.

Computed in float64 on the CPU. Entries that no tree uses are never read; their
derivative is 0.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.combinatorial import matrix_tree, matrix_tree_log_space, wilson
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._inference.double_double import to_dtype
from smoothsp.oracles._inference.engine import Engine
from smoothsp.oracles._inference.to_numpy import to_numpy


class TreeEngine(Engine):
    """Ops of distributions over spanning trees.

    Parameters
    ----------
    arcs
        ``[B, m, m]``: score of head h and modifier m.
    lengths
        ``[B]`` int64: number of words.
    single_root
        Whether exactly one word has the root as its head.
    """

    num_row_potentials = 1

    def __init__(self, arcs: Tensor, lengths: Tensor, single_root: bool) -> None:
        self.potentials, self.row_attributes = (arcs,), (lengths,)
        self.arcs, self.lengths, self.single_root = arcs, lengths, single_root

    def with_tensors(self, tensors: Sequence[Tensor]) -> "TreeEngine":
        lengths = tensors[1] if len(tensors) > 1 else self.lengths
        return TreeEngine(tensors[0], lengths, self.single_root)

    def log_partition_and_marginals(
        self,
        needs_grad: Sequence[bool],
        dtype: torch.dtype | None,
        with_hi_lo: bool = False,
    ) -> tuple[Tensor, None, list[Tensor]]:
        value, marginals = _log_partition_and_marginals(
            self.arcs, self.lengths, self.single_root, any(needs_grad)
        )
        return to_dtype(value, dtype or value.dtype), None, [marginals]

    def covariance(self, directions: Sequence[Tensor]) -> list[Tensor]:
        arcs, direction = to_numpy(self.arcs.cpu()), to_numpy(directions[0].cpu())
        covariance = _log_space_sums_and_covariance(
            arcs, self.lengths.cpu().numpy(), self.single_root, direction
        )[2]
        return [torch.from_numpy(covariance).to(self.arcs)]

    def sample(self, seeds: Tensor) -> Tensor:
        """Sample trees by Wilson's algorithm: heads ``[B, n, words]``.

        ``seeds [B, n]``: one for each tree, so threads do not change the samples.
        """
        arcs = to_numpy(self.arcs.cpu())
        B, size = arcs.shape[:2]
        heads = np.empty((*seeds.shape, size - 1), np.int64)
        # estimated: elimination once per row, then 10 m^2 steps for each tree
        work = B * size**2 * (size + 10 * seeds.shape[1])
        settings = self.lengths.cpu().numpy(), self.single_root
        seeds_and_heads = seeds.cpu().contiguous().numpy(), heads
        run_rows(wilson.sample_trees, B, work, arcs, *settings, *seeds_and_heads)
        return torch.from_numpy(heads).to(self.arcs.device)

    def empty_outputs(self, k: int | None) -> tuple[Tensor, ...]:
        """Empty int64 heads ``[B, n]`` or ``[B, k, n]``."""
        B, size = self.arcs.shape[:2]
        rows = (B,) if k is None else (B, k)
        return (self.arcs.new_empty((*rows, size - 1), dtype=torch.int64),)


def _log_partition_and_marginals(
    arcs: Tensor, lengths: Tensor, single_root: bool, with_marginals: bool
) -> tuple[Tensor, Tensor]:
    """Log-partitions ``[B]`` in float64 and, if ``with_marginals``, arc marginals.

    Rows whose determinant leaves the range of float64 are recomputed in log space.
    """
    scores, num_words = to_numpy(arcs.cpu()), lengths.cpu().numpy()
    B, size = scores.shape[:2]
    value, out_of_range = np.empty(B), np.empty(B, np.bool_)
    marginals = np.empty((B, size, size) if with_marginals else (1, 1, 1), scores.dtype)
    outputs = value, out_of_range, marginals
    # SIMD: eight entries of a row of the Laplacian at a time
    work = B * size**2 * (1 + size // 8)
    run_rows(
        matrix_tree.matrix_tree,
        B,
        work,
        scores,
        num_words,
        single_root,
        with_marginals,
        *outputs,
    )
    if out_of_range.any():
        rows = np.flatnonzero(out_of_range)
        row_scores = scores[rows]
        recomputed = _log_space_sums_and_covariance(
            row_scores, num_words[rows], single_root, np.zeros_like(row_scores)
        )
        value[rows] = recomputed[0]
        if with_marginals:
            marginals[rows] = recomputed[1]
    tensors = (torch.from_numpy(x).to(arcs.device) for x in (value, marginals))
    return next(tensors), next(tensors)


def _log_space_sums_and_covariance(
    arcs: NDArray[Any],
    lengths: NDArray[np.int64],
    single_root: bool,
    direction: NDArray[Any],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Log-partitions, marginals, and their derivative along ``direction``.

    In log space: slower, but any scores are in range.
    """
    B, size = arcs.shape[:2]
    outputs = np.empty(B), np.empty(arcs.shape), np.empty(arcs.shape)
    work = 40 * B * size**3
    run_rows(
        matrix_tree_log_space.matrix_tree_jvp,
        B,
        work,
        arcs,
        lengths,
        single_root,
        direction,
        *outputs,
    )
    return outputs
