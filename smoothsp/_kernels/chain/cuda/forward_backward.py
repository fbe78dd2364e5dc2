"""Sum-product on chains: scaled forward-backward, in log space where that is not safe.

The formulas are those of ``chain.cuda.scaled_recursion``. One program computes a row,
with the loop over time inside: forward, backward with the nodes, and then the edges if
they are summed over time. The moves between few states stay in registers; those between
more are read in tiles at every step.

A row is safe where every c_t and z_t is at least ``S^2 T tiny / eps``: ``S^2`` products
that lose ``tiny`` each are then ``eps / T`` of the sum. The program of a row that is
not safe computes it once more in log space, so no result goes to the host in between.
"""

import torch
import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

from smoothsp._kernels.chain.cuda.blocks import (
    block_of,
    fill,
    finite,
    registers_of,
    rows_of,
    states_if,
    warps_of,
)
from smoothsp._kernels.chain.cuda.log_space import forward_backward_row
from smoothsp._kernels.chain.cuda.scaled_recursion import (
    backward_row,
    forward_row,
    sum_edges,
)
from smoothsp._kernels.compilation.launch import launch

# Up to so many bytes, the moves between all states stay in registers.
RESIDENT = 64 * 1024


def forward_backward(chain, value, marginals):
    """Fill the log-partitions and the marginals of all rows in one launch.

    Outputs: value[B]; nodes[B, T, S]; edges[B, 1, S, S] summed over time when shared,
    else [B, T - 1, S, S]; heads[B, S] and tails[B, S], the first and last of the nodes.
    """
    emissions, transitions, start, end, steps, lengths, shared = chain
    nodes, edges, heads, tails = marginals
    B, T, S = emissions.shape
    dtype = emissions.dtype
    limits = torch.finfo(dtype)
    block = block_of(S)
    resident = block * block * dtype.itemsize <= RESIDENT
    warps = warps_of(block * block, dtype)
    moves, top = transitions, transitions
    if shared and not resident:
        # finite also if all scores are -inf, for -inf less -inf is NaN
        top = transitions.amax().clamp(min=limits.min)
        moves = (transitions - top).exp()
    room = torch.empty((B, 2 * T + 1, S), dtype=torch.float64, device=emissions.device)
    launch(
        _forward_backward_kernel,
        B,
        emissions,
        emissions,
        transitions,
        start,
        end,
        steps,
        lengths,
        moves,
        top,
        room.view(dtype),
        room,
        torch.empty(B, dtype=torch.int32, device=emissions.device),
        value,
        nodes,
        edges,
        heads,
        tails,
        T,
        S,
        SHARED=shared,
        RESIDENT=resident,
        LEAST=limits.tiny / limits.eps,
        BLOCK=block,
        ROWS=rows_of(block, warps),
        num_warps=warps,
        maxnreg=registers_of(warps),
        enable_fp_fusion=False,
    )


# value sum_t log c_t + log z_N, and the maxima that were subtracted
@triton.jit(do_not_specialize=["T"])
def _forward_backward_kernel(
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    moves,
    shared_top,
    room,
    wide_room,
    unsafe,
    value,
    nodes,
    edges,
    heads,
    tails,
    T,
    S,
    SHARED: tl.constexpr,
    RESIDENT: tl.constexpr,
    LEAST: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    dtype = emissions.dtype.element_ty
    b = tl.program_id(0).to(tl.int64)
    T = T.to(tl.int64)
    N = tl.load(lengths + b)
    o = tl.arange(0, BLOCK)
    m = o < S
    floor = tl.full([], LEAST, dtype) * S * S * tl.maximum(T, 1)
    # wide_room[B, 2 T + 1, S] in float64 and room, of the dtype of the scores, are
    # the same memory
    wide = wide_room + b * (2 * T + 1) * S
    alphas = room + b * (2 * T + 1) * S * (64 // dtype.primitive_bitwidth)
    pulls = alphas + T * S
    if N < T:
        fill(nodes + b * T * S, T * S, 0.0, 1024)
        if not SHARED:
            fill(edges + b * (T - 1) * S * S, (T - 1) * S * S, 0.0, 1024)

    t = tl.load(steps + b * T, mask=N > 0, other=0)
    b_e = tl.load(
        emissions + (b * T + t) * S + o,
        mask=states_if(N > 0, S, BLOCK),
        other=float("-inf"),
    )  # [BLOCK]
    b_e += tl.load(start + o, mask=m, other=float("-inf"))
    first_peak = finite(tl.max(b_e, 0))
    b_alpha = tl.exp(b_e - first_peak)
    c = tl.sum(b_alpha, 0)
    first_safe = c >= floor
    c = tl.where(first_safe, c, 1.0)
    b_alpha, log_scale, safe = forward_row(
        b, N, b_alpha / c, emissions, transitions, steps, moves, shared_top, floor,
        alphas, pulls, T, S, SHARED, RESIDENT, BLOCK, ROWS,
    )  # fmt: skip
    safe = safe & first_safe
    log_scale += first_peak.to(tl.float64) + tl.log(c.to(tl.float64))
    b_end = tl.load(end + o, mask=m, other=float("-inf"))
    peak = finite(tl.max(b_end, 0))
    b_beta = tl.exp(b_end - peak)  # [BLOCK]
    b_node = b_alpha * b_beta
    z = tl.sum(b_node, 0)
    safe = safe & (z >= floor)
    z = tl.where(z >= floor, z, 1.0)
    log_scale += peak.to(tl.float64) + tl.log(z.to(tl.float64))
    b_node = tl.where(N > 0, b_node / z, 0.0)
    tl.debug_barrier()
    tl.store(value + b, tl.where(N > 0, log_scale, 0.0))
    tl.store(tails + b * S + o, b_node, mask=m)
    t = tl.load(steps + b * T + N - 1, mask=N > 0, other=0)
    tl.store(nodes + (b * T + t) * S + o, b_node, mask=states_if(N > 0, S, BLOCK))
    b_node, safe = backward_row(
        b, N, transitions, steps, moves, shared_top, floor, alphas, pulls,
        b_beta, b_node, safe, nodes, edges, T, S, SHARED, RESIDENT, BLOCK, ROWS,
    )  # fmt: skip
    tl.store(heads + b * S + o, b_node, mask=m)
    if SHARED:
        tl.debug_barrier()
        sum_edges(
            b, N, transitions, moves, shared_top, alphas, pulls,
            edges, S, RESIDENT, BLOCK, ROWS,
        )  # fmt: skip
    # one value that all lanes read: none may wait at a barrier alone
    tl.store(unsafe + b, ((N > 0) & (safe == 0)).to(tl.int32))
    tl.debug_barrier()
    if tl.load(unsafe + b) != 0:
        forward_backward_row(
            b, N, emissions, transitions, start, end, steps,
            wide, wide + T * S, wide + 2 * T * S,
            value, nodes, edges, heads, tails, T, S, SHARED, BLOCK, (ROWS + 1) // 2,
        )  # fmt: skip
