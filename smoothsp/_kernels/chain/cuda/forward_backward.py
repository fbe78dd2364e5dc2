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
    block_size,
    fill_constant,
    max_registers,
    num_warps_for,
    state_mask,
    tile_rows,
    zero_if_neg_inf,
)
from smoothsp._kernels.chain.cuda.log_space import forward_backward_row
from smoothsp._kernels.chain.cuda.scaled_recursion import (
    backward_row,
    forward_row,
    sum_edges,
)
from smoothsp._kernels.compilation.launch import launch

# Largest size in bytes of a matrix of transitions that stays in registers.
RESIDENT = 64 * 1024


def forward_backward(chain, value, marginals):
    """Fill the log-partitions and the marginals of all rows in one launch.

    Outputs: value[B]; nodes[B, T, S]; edges[B, 1, S, S] summed over time when shared,
    else [B, T - 1, S, S]; start and end marginals [B, S], the first and last of the
    nodes.
    """
    emissions, transitions, start, end, steps, lengths, shared = chain
    nodes, edges, start_marginals, end_marginals = marginals
    B, T, S = emissions.shape
    dtype = emissions.dtype
    limits = torch.finfo(dtype)
    block = block_size(S)
    resident = block * block * dtype.itemsize <= RESIDENT
    warps = num_warps_for(block * block, dtype)
    exp_transitions, max_score = transitions, transitions
    if shared and not resident:
        # finite even if all scores are -inf, since -inf - (-inf) is NaN
        max_score = transitions.amax().clamp(min=limits.min)
        exp_transitions = (transitions - max_score).exp()
    scratch = torch.empty(
        (B, 2 * T + 1, S), dtype=torch.float64, device=emissions.device
    )
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
        exp_transitions,
        max_score,
        scratch.view(dtype),
        scratch,
        torch.empty(B, dtype=torch.int32, device=emissions.device),
        value,
        nodes,
        edges,
        start_marginals,
        end_marginals,
        T,
        S,
        SHARED=shared,
        RESIDENT=resident,
        MIN_SCALE=limits.tiny / limits.eps,
        BLOCK=block,
        ROWS=tile_rows(block, warps),
        num_warps=warps,
        maxnreg=max_registers(warps),
        enable_fp_fusion=False,
    )


# log_z = sum_t log c_t + log z_N + the maxima that were subtracted
@triton.jit(do_not_specialize=["T"])
def _forward_backward_kernel(
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    exp_transitions,
    shared_max,
    scratch,
    scratch_float64,
    unsafe,
    value,
    nodes,
    edges,
    start_marginals,
    end_marginals,
    T,
    S,
    SHARED: tl.constexpr,
    RESIDENT: tl.constexpr,
    MIN_SCALE: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    dtype = emissions.dtype.element_ty
    b = tl.program_id(0).to(tl.int64)
    T = T.to(tl.int64)
    N = tl.load(lengths + b)
    o = tl.arange(0, BLOCK)
    m = o < S
    min_scale = tl.full([], MIN_SCALE, dtype) * S * S * tl.maximum(T, 1)
    # scratch_float64[B, 2 T + 1, S] and scratch, in the dtype of the scores, share
    # memory; the log-space pass overwrites the messages of an unsafe row
    row_scratch = scratch_float64 + b * (2 * T + 1) * S
    alphas = scratch + b * (2 * T + 1) * S * (64 // dtype.primitive_bitwidth)
    beta_emissions = alphas + T * S
    if N < T:
        fill_constant(nodes + b * T * S, T * S, 0.0, 1024)
        if not SHARED:
            fill_constant(edges + b * (T - 1) * S * S, (T - 1) * S * S, 0.0, 1024)

    t = tl.load(steps + b * T, mask=N > 0, other=0)
    b_e = tl.load(
        emissions + (b * T + t) * S + o,
        mask=state_mask(N > 0, S, BLOCK),
        other=float("-inf"),
    )  # [BLOCK]
    b_e += tl.load(start + o, mask=m, other=float("-inf"))
    first_peak = zero_if_neg_inf(tl.max(b_e, 0))
    b_alpha = tl.exp(b_e - first_peak)
    c = tl.sum(b_alpha, 0)
    is_first_safe = c >= min_scale
    c = tl.where(is_first_safe, c, 1.0)
    b_alpha, log_scale, is_safe = forward_row(
        b, N, b_alpha / c, emissions, transitions, steps, exp_transitions, shared_max,
        min_scale,
        alphas, beta_emissions, T, S, SHARED, RESIDENT, BLOCK, ROWS,
    )  # fmt: skip
    is_safe = is_safe & is_first_safe
    log_scale += first_peak.to(tl.float64) + tl.log(c.to(tl.float64))
    b_end = tl.load(end + o, mask=m, other=float("-inf"))
    peak = zero_if_neg_inf(tl.max(b_end, 0))
    b_beta = tl.exp(b_end - peak)  # [BLOCK]
    b_node = b_alpha * b_beta
    z = tl.sum(b_node, 0)
    is_safe = is_safe & (z >= min_scale)
    z = tl.where(z >= min_scale, z, 1.0)
    log_scale += peak.to(tl.float64) + tl.log(z.to(tl.float64))
    b_node = tl.where(N > 0, b_node / z, 0.0)
    tl.debug_barrier()
    tl.store(value + b, tl.where(N > 0, log_scale, 0.0))
    tl.store(end_marginals + b * S + o, b_node, mask=m)
    t = tl.load(steps + b * T + N - 1, mask=N > 0, other=0)
    tl.store(nodes + (b * T + t) * S + o, b_node, mask=state_mask(N > 0, S, BLOCK))
    b_node, is_safe = backward_row(
        b, N, transitions, steps, exp_transitions, shared_max, min_scale, alphas,
        beta_emissions,
        b_beta, b_node, is_safe, nodes, edges, T, S, SHARED, RESIDENT, BLOCK, ROWS,
    )  # fmt: skip
    tl.store(start_marginals + b * S + o, b_node, mask=m)
    if SHARED:
        tl.debug_barrier()
        sum_edges(
            b, N, transitions, exp_transitions, shared_max, alphas, beta_emissions,
            edges, S, RESIDENT, BLOCK, ROWS,
        )  # fmt: skip
    # Broadcast the flag through memory: all threads must take the same branch, which
    # contains barriers.
    tl.store(unsafe + b, ((N > 0) & (is_safe == 0)).to(tl.int32))
    tl.debug_barrier()
    if tl.load(unsafe + b) != 0:
        forward_backward_row(
            b, N, emissions, transitions, start, end, steps,
            row_scratch, row_scratch + T * S, row_scratch + 2 * T * S,
            value, nodes, edges, start_marginals, end_marginals, T, S,
            SHARED, BLOCK, (ROWS + 1) // 2,
        )  # fmt: skip
