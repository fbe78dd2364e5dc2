"""Sums over spanning trees, and their derivatives, of arcs ``[B, m, m]``.

Computed in float64 on the CPU; what no tree uses is not read, and has no derivative.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.searches import tree_moves, tree_samples, tree_sums
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._questions.arrays import array
from smoothsp.oracles._questions.of_rows import OfRows


class OfTrees(OfRows):
    """A question of arcs and lengths ``[B]``, and perhaps more that has B rows.

    ``single``: exactly one word has the root for its head.
    """

    def __init__(self, single: bool) -> None:
        self.single = single

    def call(self, *tensors: Tensor) -> Tensor:
        found: Tensor = super().call(*tensors)
        return found


class LogPartition(OfTrees):
    """The log-partition ``[B]`` in float64; its gradient is the chances."""

    def op(self, arcs: Tensor, lengths: Tensor) -> Tensor:
        return _sums(arcs, lengths, self.single, False)[0]

    def begin(self, ctx: Any, buffers: None, inputs: tuple[Tensor, ...]) -> Tensor:
        arcs, lengths = inputs
        value, chances = _sums(arcs, lengths, self.single, True)
        ctx.save_for_backward(arcs, lengths, chances)
        return value

    def gradient(self, ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        arcs, lengths, *known = ctx.saved_tensors
        if known and not torch.is_grad_enabled():
            chances = known[0]
        else:
            chances = Chances(self.single).call(arcs, lengths)
        return grad.to(chances.dtype)[:, None, None] * chances, None

    def tangent(self, ctx: Any, *tangents: Any) -> Tensor:
        chances = Chances(self.single).call(*ctx.saved_tensors)
        found: Tensor = (chances * tangents[0]).sum((1, 2), dtype=torch.float64)
        return found


class Chances(OfTrees):
    """Chances of arcs; they move with the covariance of the arcs."""

    def op(self, arcs: Tensor, lengths: Tensor) -> Tensor:
        return _sums(arcs, lengths, self.single, True)[1]

    def gradient(self, ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return Moves(self.single).call(*ctx.saved_tensors, grad), None

    def tangent(self, ctx: Any, *tangents: Any) -> Tensor:
        return Moves(self.single).call(*ctx.saved_tensors, tangents[0])


class Moves(OfTrees):
    """Tangents of probabilities along a direction of the arcs."""

    def op(self, arcs: Tensor, lengths: Tensor, along: Tensor) -> Tensor:
        given, way = array(arcs.cpu()), array(along.cpu())
        found = _moves(given, lengths.cpu().numpy(), self.single, way)[2]
        return torch.from_numpy(found).to(arcs)

    def gradient(self, ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError(
            "arcs: log_partition can be differentiated twice, marginals and entropy "
            "once"
        )

    tangent = gradient


class Samples(OfTrees):
    """Heads ``[B, draws, n]`` of drawn trees, from seeds ``[B, draws]``."""

    def op(self, arcs: Tensor, lengths: Tensor, seeds: Tensor) -> Tensor:
        given = array(arcs.cpu())
        B, size = given.shape[:2]
        heads = np.empty((*seeds.shape, size - 1), np.int64)
        work = B * size**2 * (size + 10 * seeds.shape[1])
        trees = lengths.cpu().numpy(), self.single
        drawn = seeds.cpu().contiguous().numpy(), heads
        run_rows(tree_samples.samples, B, work, given, *trees, *drawn)
        return torch.from_numpy(heads).to(arcs.device)


def _sums(
    arcs: Tensor, lengths: Tensor, single: bool, inwards: bool
) -> tuple[Tensor, Tensor]:
    """Log-partitions ``[B]`` in float64 and, if ``inwards``, chances of the arcs."""
    given, words = array(arcs.cpu()), lengths.cpu().numpy()
    B, size = given.shape[:2]
    value, far = np.empty(B), np.empty(B, np.bool_)
    chances = np.empty((B, size, size) if inwards else (1, 1, 1), given.dtype)
    out = value, far, chances
    # eight numbers at a time
    work = B * size**2 * (1 + size // 8)
    run_rows(tree_sums.sums, B, work, given, words, single, inwards, *out)
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
    run_rows(tree_moves.moves, B, work, arcs, lengths, single, along, *found)
    return found
