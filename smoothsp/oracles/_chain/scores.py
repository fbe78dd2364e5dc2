"""Scores and counts of given outputs of a chain.

The arguments of a chain are those of ``_chain.buffers``.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import fused, validation
from smoothsp._kernels.chain.cpu import scores as scores_cpu
from smoothsp.oracles._chain import on_device
from smoothsp.oracles._chain.buffers import ChainBuffers, chain_question, prove_within
from smoothsp.oracles._questions.arrays import array
from smoothsp.oracles._questions.checks import label_out_of_range
from smoothsp.oracles._questions.positions import Positions
from smoothsp.oracles._questions.registration import Op


def score_of(chain: ChainBuffers, labels: Tensor) -> Tensor:
    """Scores ``[B, K]``, in float64, of ``labels`` ``[B, K, T]``."""
    value = chain.new(*labels.shape[:2], dtype=torch.float64)
    _fill(chain, labels, value, None)
    return value


def parts_of(chain: ChainBuffers, labels: Tensor) -> Tensor:
    """Scores as sums of two float64 numbers ``[B, K, 2]``."""
    value = chain.new(*labels.shape[:2], dtype=torch.float64)
    rest = torch.empty_like(value)
    _fill(chain, labels, value, rest)
    return torch.stack((value, rest), -1)


def _fill(
    chain: ChainBuffers, labels: Tensor, value: Tensor, rest: Tensor | None
) -> None:
    B, K, T = labels.shape
    labels = labels.contiguous()
    if chain.shared:
        out = value.data_ptr(), 0 if rest is None else rest.data_ptr()
        place = fused.score_of(chain.addresses, K, labels.data_ptr(), *out)
    else:
        lost = np.empty((0, 0)) if rest is None else rest.numpy()
        fault = np.empty(B, np.int64)
        paths = array(labels)
        scores_cpu.score(0, B, chain.arrays, paths, value.numpy(), lost, fault)
        row = int(fault.argmax()) if B else 0
        place = row * T + int(fault[row]) if B and fault[row] >= 0 else -1
    if place >= 0:
        row, step = divmod(place, T)
        found = labels[row, :, step].tolist()
        label = found[0] if K == 1 else found
        raise ValueError(label_out_of_range(chain.sizes[2], label, row, step))


def _fake_score(*inputs: Tensor) -> Tensor:
    return inputs[0].new_empty(inputs[-1].shape[:2], dtype=torch.float64)


def _save_score(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    emissions, transitions, _, _, steps, lengths, labels = inputs
    ctx.save_for_backward(steps, lengths, labels)
    ctx.set_materialize_grads(False)
    ctx.S = emissions.shape[2]
    ctx.shared = transitions.dim() == 2
    ctx.dtype = emissions.dtype


def _score_gradient(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 7
    steps, lengths, labels = ctx.saved_tensors
    given = (labels, steps, lengths, ctx.S, ctx.shared)
    return (*counted(grad.to(ctx.dtype), *given), None, None, None)


def _score_tangent(ctx: Any, *tangents: Tensor | None) -> Tensor:
    steps, lengths, labels = ctx.saved_tensors
    return score_along(tangents, labels, steps, lengths, ctx.S, ctx.shared)


def score_along(
    tangents: tuple[Tensor | None, ...],
    labels: Tensor,
    steps: Tensor | None,
    lengths: Tensor | None,
    S: int,
    shared: bool,
) -> Tensor:
    """Tangents of scores: scores are linear, so they are scores of tangents."""
    B, _, T = labels.shape
    edges = (S, S) if shared else (B, max(T - 1, 0), S, S)
    moved = _or_zeros(tangents[:4], ((B, T, S), edges, (S,), (S,)))
    value: Tensor = score(*moved, steps, lengths, labels)
    return value


def _or_zeros(
    parts: tuple[Tensor | None, ...], shapes: tuple[Any, ...]
) -> list[Tensor]:
    one = next(x for x in parts if x is not None)
    return [
        torch.zeros(shape, dtype=one.dtype, device=one.device) if x is None else x
        for x, shape in zip(parts, shapes, strict=True)
    ]


def counted(
    weights: Tensor,
    labels: Tensor,
    steps: Tensor | None,
    lengths: Tensor | None,
    S: int,
    shared: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights ``[B, K]`` added up over the parts that ``labels`` ``[B, K, T]`` use.

    In the shapes of the potentials, and differentiable in the weights.
    """
    nodes, edges, start, end = count(weights, labels, steps, lengths, S, shared, 1)
    return nodes, edges[0] if shared else edges, start[0], end[0]


def _count(
    weights: Tensor,
    labels: Tensor,
    steps: Tensor | None,
    lengths: Tensor | None,
    S: int,
    shared: bool,
    groups: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights ``[B, K]`` added up over the parts that ``labels`` ``[B, K, T]`` use.

    What rows share is added up over each of the ``groups`` of as many rows, for itself:
    ``[groups, S, S]``, ``[groups, S]`` and ``[groups, S]``.
    """
    B, _, T = labels.shape
    paths, steps, lengths = _prove(labels, steps, lengths, S)
    emissions = weights.new_zeros((B, T, S))
    edges = (groups, 1, S, S) if shared else (B, max(T - 1, 0), S, S)
    new = weights.new_zeros
    shapes = (edges, (groups, S), (groups, S))
    sums = [new(shape, dtype=torch.float64) for shape in shapes]
    nodes, moves, heads, tails = (x.numpy() for x in (emissions, *sums))
    given = (array(weights), paths, array(steps), array(lengths), shared)
    for g in range(groups):
        into = moves[g : g + 1] if shared else moves
        rows = B * g // groups, B * (g + 1) // groups
        scores_cpu.count(*rows, *given, (nodes, into, heads[g], tails[g]))
    transitions, start, end = (x.to(weights.dtype) for x in sums)
    return emissions, transitions[:, 0] if shared else transitions, start, end


def _prove(
    labels: Tensor, steps: Tensor | None, lengths: Tensor | None, S: int
) -> tuple[Any, Tensor, Tensor]:
    """The labels as an array, and the positions; both can be trusted from now on."""
    B, _, T = labels.shape
    if lengths is not None and steps is not None:
        prove_within(steps, lengths, T)
    else:
        positions = Positions(B, T, labels.device)
        steps, lengths = positions.steps, positions.lengths
    paths = array(labels)
    place = validation.find_bad_label(paths, array(steps), array(lengths), S)
    if place >= 0:
        _, K, T = paths.shape
        row, step = place // (K * T), place % T
        raise ValueError(label_out_of_range(S, paths.flat[place], row, step))
    return paths, steps, lengths


def _fake_count(
    weights: Tensor,
    labels: Tensor,
    steps: Tensor | None,
    lengths: Tensor | None,
    S: int,
    shared: bool,
    groups: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    B, _, T = labels.shape
    edges = (groups, S, S) if shared else (B, max(T - 1, 0), S, S)
    new = weights.new_empty
    return new((B, T, S)), new(edges), new((groups, S)), new((groups, S))


def _save_count(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    weights, labels, steps, lengths, *ctx.sizes = inputs
    ctx.save_for_backward(labels, steps, lengths)
    ctx.set_materialize_grads(False)
    ctx.dtype = weights.dtype


def _count_gradient(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    # linear in the weights, and score is its adjoint
    labels, steps, lengths = ctx.saved_tensors
    if all(x is None for x in grads):
        return (None,) * 7
    S, shared, groups = ctx.sizes
    B, _, T = labels.shape
    edges = (groups, S, S) if shared else (B, max(T - 1, 0), S, S)
    shapes = ((B, T, S), edges, (groups, S), (groups, S))
    nodes, moves, start, end = _or_zeros(grads, shapes)
    found = []
    for g in range(groups):
        rows = slice(B * g // groups, B * (g + 1) // groups)
        chain = (nodes[rows], moves[g] if shared else moves[rows], start[g], end[g])
        places = (None if x is None else x[rows] for x in (steps, lengths))
        found.append(score(*chain, *places, labels[rows]))
    return torch.cat(found).to(ctx.dtype), *(None,) * 6


def _count_tangent(
    ctx: Any, weights: Tensor | None, *rest: None
) -> tuple[Tensor | None, ...]:
    if weights is None:
        return (None,) * 4
    labels, steps, lengths = ctx.saved_tensors
    found: tuple[Tensor, ...] = count(weights, labels, steps, lengths, *ctx.sizes)
    return found


def _fold_count(inputs: list[Any], size: int) -> list[Any]:
    *rest, groups = inputs
    return [*rest, groups * size]


score = chain_question(
    "score",
    "Tensor labels",
    "Tensor",
    of_buffers=score_of,
    cuda=on_device.score,
    fake=_fake_score,
    save=_save_score,
    gradient=_score_gradient,
    tangent=_score_tangent,
    rest_by_row=(True,),
)
count = Op(
    "chain_count",
    "(Tensor weights, Tensor labels, Tensor? steps, Tensor? lengths, SymInt S, "
    "bool shared, SymInt groups) -> (Tensor, Tensor, Tensor, Tensor)",
    function=_count,
    cuda=on_device.count,
    fake=_fake_count,
    save=_save_count,
    gradient=_count_gradient,
    tangent=_count_tangent,
    by_row=lambda axes: [True, True, True, True, False, False, False],
    fold=_fold_count,
)
