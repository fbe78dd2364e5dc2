"""Scores and counts of given outputs of a chain.

The arguments of a chain are those of ``_chain.arrays``.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import faults, given_outputs
from smoothsp.oracles._chain import on_device
from smoothsp.oracles._chain.arrays import (
    array,
    kernel_arrays,
    prove_positions,
    prove_within,
)
from smoothsp.oracles._questions.checks import label_out_of_range
from smoothsp.oracles._questions.registration import question


def score_labels(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
    labels: Tensor,
) -> Tensor:
    """Scores ``[B, K]``, in float64, of ``labels`` ``[B, K, T]``."""
    chain = kernel_arrays(emissions, transitions, start, end, steps, lengths)
    return torch.from_numpy(fill_score(chain, array(labels)))


def fill_score(chain: tuple[Any, ...], labels: Any) -> Any:
    """The same, of arrays to an array."""
    B, K, _ = labels.shape
    value = np.empty((B, K))
    fault = np.empty(B, np.int64)
    given_outputs.score(0, B, *chain, labels, value, fault)
    if B and fault.max() >= 0:
        row = int(fault.argmax())
        step = int(fault[row])
        found = labels[row, :, step].tolist()
        label = found[0] if K == 1 else found
        raise ValueError(label_out_of_range(chain[0].shape[2], label, row, step))
    return value


def _fake_score(emissions: Tensor, *rest: Tensor) -> Tensor:
    return emissions.new_empty(rest[-1].shape[:2], dtype=torch.float64)


def _save_score(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    emissions, transitions, _, _, steps, lengths, labels = inputs
    ctx.save_for_backward(steps, lengths, labels)
    ctx.S = emissions.shape[2]
    ctx.shared = transitions.dim() == 2
    ctx.dtype = emissions.dtype


def _score_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    steps, lengths, labels = ctx.saved_tensors
    grad = grad.to(ctx.dtype)
    return (*count(grad, labels, steps, lengths, ctx.S, ctx.shared), None, None, None)


def _count(
    weights: Tensor,
    labels: Tensor,
    steps: Tensor,
    lengths: Tensor,
    S: int,
    shared: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights ``[B, K]`` added up over the parts that ``labels`` ``[B, K, T]`` use."""
    B, _, T = labels.shape
    emissions = weights.new_zeros((B, T, S))
    edges = (1, 1, S, S) if shared else (B, max(T - 1, 0), S, S)
    new = weights.new_zeros
    sums = [new(shape, dtype=torch.float64) for shape in (edges, (S,), (S,))]
    given_outputs.count(
        0,
        B,
        *(x.detach().contiguous().numpy() for x in (weights, labels, steps, lengths)),
        shared,
        emissions.numpy(),
        *(x.numpy() for x in sums),
    )
    transitions, start, end = (x.to(weights.dtype) for x in sums)
    return emissions, transitions.reshape(S, S) if shared else transitions, start, end


def _prove_count(
    weights: Tensor,
    labels: Tensor,
    steps: Tensor,
    lengths: Tensor,
    S: int,
    shared: bool,
) -> None:
    """Refuse positions outside of the time axis, and labels that are no state."""
    prove_within(steps, lengths, labels.shape[2])
    paths = array(labels)
    place = faults.find_bad_label(paths, array(steps), array(lengths), S)
    if place >= 0:
        _, K, T = paths.shape
        row, step = place // (K * T), place % T
        raise ValueError(label_out_of_range(S, paths.flat[place], row, step))


def _fake_count(
    weights: Tensor,
    labels: Tensor,
    steps: Tensor,
    lengths: Tensor,
    S: int,
    shared: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    B, _, T = labels.shape
    edges = (S, S) if shared else (B, max(T - 1, 0), S, S)
    new = weights.new_empty
    return new((B, T, S)), new(edges), new((S,)), new((S,))


def _save_count(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, labels, steps, lengths, _, _ = inputs
    ctx.save_for_backward(labels, steps, lengths)


def _count_gradient(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    # count is linear in the weights, and score is its adjoint
    labels, steps, lengths = ctx.saved_tensors
    weights = score(*grads, steps, lengths, labels).to(grads[0].dtype)
    return weights, None, None, None, None, None


score = question(
    "chain_score",
    score_labels,
    on_device.score,
    _fake_score,
    _save_score,
    _score_gradient,
    prove=prove_positions,
)
count = question(
    "chain_count",
    _count,
    on_device.count,
    _fake_count,
    _save_count,
    _count_gradient,
    prove=_prove_count,
)
