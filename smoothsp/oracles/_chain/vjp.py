"""Parts of a chain times weights: the last step of a gradient, compiled."""

from typing import Any

import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import fused
from smoothsp._kernels.chain.cpu import vjp as vjp_cpu
from smoothsp._kernels.threads.ranges import WORK_PER_THREAD, run_rows
from smoothsp.oracles._chain.addresses import VECTORS
from smoothsp.oracles._questions.arrays import array

# Into how many ranges the gradient is cut, for threads.
PIECES = 16
Gradients = tuple[Tensor, Tensor, Tensor, Tensor]
# Marginals where rows share the transitions: nodes, all others in one tensor, their
# sizes with a vector of the dtype, and where nodes, edges, heads and tails lie.
Kept = tuple[Tensor, Tensor, tuple[Any, ...], tuple[int, int, int, int]]


def vjp(weights: Tensor, parts: tuple[Tensor, ...], shared: bool) -> Gradients:
    """Weights ``[B]`` times the parts of their rows, added up to potentials' shapes.

    In one compiled pass and without a derivative; parts are contiguous.
    """
    nodes = parts[0]
    weights = weights.to(nodes.dtype).resolve_neg()
    out = _empty_gradients(parts, shared)
    if not shared:
        return _run(vjp_cpu.vjp, parts, shared, out, array(weights))
    sizes = (*nodes.shape, VECTORS[nodes.dtype])
    places = (tuple(x.data_ptr() for x in four) for four in (parts, out))
    given = (sizes, weights.data_ptr(), weights.stride(0), *places)
    run_rows(fused.vjp, PIECES, _work(parts), PIECES, *given)
    return out


def vjp_in_place(
    weights: Tensor, kept: Kept, wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """``vjp`` for shared transitions; the nodes become a gradient themselves.

    None for a gradient that is not wanted, as the last four of ``wanted`` say.
    """
    nodes, others, sizes, places = kept
    B, T, S, _ = sizes
    if weights.dtype != others.dtype:
        weights = weights.to(others.dtype)
    _, _, first, second, third, fourth = wanted
    moves = start = end = None
    moves_at = start_at = end_at = 0
    if second:
        moves = others.new_empty(S, S)
        moves_at = moves.data_ptr()
    if third:
        start = others.new_empty(S)
        start_at = start.data_ptr()
    if fourth:
        end = others.new_empty(S)
        end_at = end.data_ptr()
    nodes_at = places[0] if first else 0
    out = (nodes_at, moves_at, start_at, end_at)
    given = (sizes, weights.data_ptr(), weights.stride(0), places, out)
    work = B * T * S // 2
    if work < WORK_PER_THREAD:
        fused.vjp(0, PIECES, PIECES, *given)
    else:
        run_rows(fused.vjp, PIECES, work, PIECES, *given)
    return nodes if first else None, moves, start, end


def _empty_gradients(parts: tuple[Tensor, ...], shared: bool) -> Gradients:
    nodes, edges, heads, _ = parts
    S = heads.shape[1]
    new = nodes.new_empty
    moves = new((S, S)) if shared else torch.empty_like(edges)
    return torch.empty_like(nodes), moves, new(S), new(S)


def _work(parts: tuple[Tensor, ...]) -> int:
    return (parts[0].numel() + parts[1].numel()) // 2


def _run(
    kernel: Any, parts: tuple[Tensor, ...], shared: bool, out: Gradients, *inputs: Any
) -> Gradients:
    nodes, moves, start, end = (x.numpy() for x in out)
    given = (PIECES, *inputs, tuple(array(x) for x in parts), shared)
    flat = nodes, moves.reshape(-1), start, end
    run_rows(kernel, PIECES, _work(parts), *given, flat)
    return out
