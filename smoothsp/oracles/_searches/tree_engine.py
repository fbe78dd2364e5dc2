"""Sums over spanning trees, and their derivatives, of arcs ``[B, m, m]``.

Computed in float64 on the CPU; what no tree uses is not read, and has no derivative.
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
    """Scores of arcs ``[B, m, m]``; the words of each sentence, and its roots.

    Parameters
    ----------
    arcs
        ``[B, m, m]``.
    lengths
        ``[B]`` int64.
    single
        Whether exactly one word has the root for its head.
    """

    num_row_potentials = 1

    def __init__(self, arcs: Tensor, lengths: Tensor, single: bool) -> None:
        self.potentials, self.row_attributes = (arcs,), (lengths,)
        self.arcs, self.lengths, self.single = arcs, lengths, single

    def with_tensors(self, tensors: Sequence[Tensor]) -> "TreeEngine":
        lengths = tensors[1] if len(tensors) > 1 else self.lengths
        return TreeEngine(tensors[0], lengths, self.single)

    def log_partition_and_marginals(
        self, wanted: Sequence[bool], dtype: torch.dtype | None, two: bool = False
    ) -> tuple[Tensor, None, list[Tensor]]:
        value, chances = _sums(self.arcs, self.lengths, self.single, any(wanted))
        return to_dtype(value, dtype or value.dtype), None, [chances]

    def covariance(self, along: Sequence[Tensor]) -> list[Tensor]:
        given, way = to_numpy(self.arcs.cpu()), to_numpy(along[0].cpu())
        moved = _moves(given, self.lengths.cpu().numpy(), self.single, way)[2]
        return [torch.from_numpy(moved).to(self.arcs)]

    def sample(self, numbers: Tensor) -> Tensor:
        """Heads ``[B, draws, n]`` of drawn trees, from seeds ``[B, draws]``."""
        given = to_numpy(self.arcs.cpu())
        B, size = given.shape[:2]
        heads = np.empty((*numbers.shape, size - 1), np.int64)
        work = B * size**2 * (size + 10 * numbers.shape[1])
        trees = self.lengths.cpu().numpy(), self.single
        drawn = numbers.cpu().contiguous().numpy(), heads
        run_rows(wilson.sample_trees, B, work, given, *trees, *drawn)
        return torch.from_numpy(heads).to(self.arcs.device)

    def empty_outputs(self, k: int | None) -> tuple[Tensor, ...]:
        B, size = self.arcs.shape[:2]
        rows = (B,) if k is None else (B, k)
        return (self.arcs.new_empty((*rows, size - 1), dtype=torch.int64),)


def _sums(
    arcs: Tensor, lengths: Tensor, single: bool, inwards: bool
) -> tuple[Tensor, Tensor]:
    """Log-partitions ``[B]`` in float64 and, if ``inwards``, chances of the arcs."""
    given, words = to_numpy(arcs.cpu()), lengths.cpu().numpy()
    B, size = given.shape[:2]
    value, far = np.empty(B), np.empty(B, np.bool_)
    chances = np.empty((B, size, size) if inwards else (1, 1, 1), given.dtype)
    out = value, far, chances
    # eight numbers at a time
    work = B * size**2 * (1 + size // 8)
    run_rows(matrix_tree.matrix_tree, B, work, given, words, single, inwards, *out)
    if far.any():
        rows = np.flatnonzero(far)
        some = given[rows]
        again = _moves(some, words[rows], single, np.zeros_like(some))
        value[rows] = again[0]
        if inwards:
            chances[rows] = again[1]
    found = (torch.from_numpy(x).to(arcs.device) for x in (value, chances))
    return next(found), next(found)


def _moves(
    arcs: NDArray[Any],
    lengths: NDArray[np.int64],
    single: bool,
    along: NDArray[Any],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    B, size = arcs.shape[:2]
    found = np.empty(B), np.empty(arcs.shape), np.empty(arcs.shape)
    work = 40 * B * size**3
    run_rows(
        matrix_tree_log_space.matrix_tree_jvp,
        B,
        work,
        arcs,
        lengths,
        single,
        along,
        *found,
    )
    return found
