"""Sums over spanning trees, and their derivatives, of float64 arcs ``[B, m, m]``."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from smoothsp._kernels.searches import tree_moves, tree_samples, tree_sums
from smoothsp._kernels.threads.ranges import run_rows


class Trees(NamedTuple):
    """What is summed over: words of each row, and whether one of them is the root's."""

    lengths: NDArray[np.int64]
    single: bool


def find_sums(arcs: Tensor, trees: Trees, inwards: bool) -> tuple[Tensor, Tensor]:
    """Log-partitions ``[B]`` and, if ``inwards``, chances as arcs."""
    given = arcs.detach().cpu().contiguous().numpy()
    B, size = given.shape[:2]
    value, far = np.empty(B), np.empty(B, np.bool_)
    chances = np.empty((B, size, size) if inwards else (1, 1, 1))
    out = value, far, chances
    run_rows(tree_sums.sums, B, B * size**3, given, *trees, inwards, *out)
    if far.any():
        rows = np.flatnonzero(far)
        some = trees._replace(lengths=trees.lengths[rows])
        again = _moves(given[rows], some, np.zeros_like(given[rows]))
        value[rows] = again[0]
        if inwards:
            chances[rows] = again[1]
    return _as(value, arcs), _as(chances, arcs)


def _moves(
    arcs: NDArray[np.float64], trees: Trees, along: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    B, size = arcs.shape[:2]
    found = np.empty(B), np.empty(arcs.shape), np.empty(arcs.shape)
    work = 40 * B * size**3
    run_rows(tree_moves.moves, B, work, arcs, *trees, along, *found)
    return found


def find_moves(arcs: Tensor, trees: Trees, along: Tensor) -> Tensor:
    """How chances ``[B, m, m]`` move along a direction."""
    given = [x.detach().cpu().contiguous().numpy() for x in (arcs, along)]
    return _as(_moves(given[0], trees, given[1])[2], arcs)


def find_samples(arcs: Tensor, trees: Trees, seeds: Tensor) -> Tensor:
    """Heads ``[B, draws, n]`` of independent trees, from seeds ``[B, draws]``."""
    given = arcs.detach().cpu().contiguous().numpy()
    B, size = given.shape[:2]
    heads = np.empty((*seeds.shape, size - 1), np.int64)
    work = B * size**2 * (size + 10 * seeds.shape[1])
    drawn = seeds.cpu().contiguous().numpy(), heads
    run_rows(tree_samples.samples, B, work, given, *trees, *drawn)
    return torch.from_numpy(heads).to(arcs.device)


def _as(found: NDArray[np.float64], like: Tensor) -> Tensor:
    return torch.from_numpy(found).to(like.device)


class LogPartition(torch.autograd.Function):
    """The log-partition ``[B]``; its gradient is the chances."""

    @staticmethod
    def forward(ctx: Any, arcs: Tensor, trees: Trees) -> Tensor:
        value, ctx.chances = find_sums(arcs, trees, ctx.needs_input_grad[0])
        ctx.trees = trees
        ctx.save_for_backward(arcs)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        chances = ctx.chances
        if torch.is_grad_enabled():
            chances = Chances.apply(ctx.saved_tensors[0], ctx.trees)
        return grads[0][:, None, None] * chances, None


class Chances(torch.autograd.Function):
    """Chances of arcs; they move with the covariance of the arcs."""

    @staticmethod
    def forward(ctx: Any, arcs: Tensor, trees: Trees) -> Tensor:
        ctx.trees = trees
        ctx.save_for_backward(arcs)
        return find_sums(arcs, trees, True)[1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        (arcs,) = ctx.saved_tensors
        return find_moves(arcs, ctx.trees, grads[0]), None
