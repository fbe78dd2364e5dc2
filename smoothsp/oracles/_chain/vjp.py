"""Vector-Jacobian products of a chain's log-partition: marginals times row weights."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import fused
from smoothsp._kernels.threads.ranges import WORK_PER_THREAD, run_rows
from smoothsp._kernels.vectors.whole_arrays import add_rows, scale_rows
from smoothsp.oracles._chain.chunks import VECTORS

# Ranges of the gradient for threads: fixed, so that bits do not depend on threads.
NUM_RANGES = 16
Gradients = tuple[Tensor, Tensor, Tensor, Tensor]
# Marginals for shared transitions: nodes, all others in one tensor, sizes with a vector
# of the dtype, and addresses of nodes, edges, heads and tails.
SavedMarginals = tuple[Tensor, Tensor, tuple[Any, ...], tuple[int, int, int, int]]


def unpack_marginals(saved: SavedMarginals) -> Gradients:
    """Return nodes, edges, heads and tails; the last three are views of one tensor."""
    nodes, others, (B, _, S, _), _ = saved
    edges, heads, tails = torch.split(others, [B * S * S, B * S, B * S])
    return nodes, edges.view(B, S, S), heads.view(B, S), tails.view(B, S)


def vjp(weights: Tensor, parts: Sequence[Tensor]) -> list[Tensor | None]:
    """Multiply marginals by the weights ``[B]``, for transitions of each step.

    Contiguous nodes and edges are overwritten and become the gradients.
    """
    nodes, edges, heads, tails = parts
    weights = weights.to(nodes.dtype)
    weight_args = weights.data_ptr(), weights.stride(0)
    for x in (nodes, edges):
        size = x.numel() // max(len(x), 1)
        at = x.data_ptr(), VECTORS[x.dtype]
        run_rows(scale_rows, len(x), x.numel() // 2, size, *weight_args, *at)
    ends = nodes.new_empty(2, heads.shape[1])
    for x, total in ((heads, ends[0]), (tails, ends[1])):
        data_ptrs = x.data_ptr(), total.data_ptr(), VECTORS[x.dtype]
        add_rows(len(x), len(total), *weight_args, *data_ptrs)
    return [nodes, edges, ends[0], ends[1]]


def vjp_overwriting(
    weights: Tensor, saved: SavedMarginals, needs_grad: Sequence[bool]
) -> list[Tensor | None]:
    """``vjp`` for shared transitions; the nodes are overwritten by their gradient.

    None for gradients that are not needed.
    """
    nodes, others, sizes, data_ptrs = saved
    B, T, S, _ = sizes
    if weights.dtype != others.dtype:
        weights = weights.to(others.dtype)
    first, second, third, fourth = needs_grad
    transitions = start = end = None
    transitions_ptr = start_ptr = end_ptr = 0
    if second:
        transitions = others.new_empty(S, S)
        transitions_ptr = transitions.data_ptr()
    if third:
        start = others.new_empty(S)
        start_ptr = start.data_ptr()
    if fourth:
        end = others.new_empty(S)
        end_ptr = end.data_ptr()
    nodes_ptr = data_ptrs[0] if first else 0
    out = (nodes_ptr, transitions_ptr, start_ptr, end_ptr)
    args = (sizes, weights.data_ptr(), weights.stride(0), data_ptrs, out)
    work = B * T * S // 2
    if work < WORK_PER_THREAD:
        fused.vjp(0, NUM_RANGES, NUM_RANGES, *args)
    else:
        run_rows(fused.vjp, NUM_RANGES, work, NUM_RANGES, *args)
    return [nodes if first else None, transitions, start, end]
