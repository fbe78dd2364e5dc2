"""Second derivatives on chains: covariances of the parts with a sum over parts.

One program computes a row in log space, by the formulas of ``chain.cuda.log_space``.
"""

import torch
import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

from smoothsp._kernels.chain.cuda.blocks import block_of, fill, rows_of, warps_of
from smoothsp._kernels.chain.cuda.log_space import PAST, backward_row, forward_row
from smoothsp._kernels.compilation.launch import launch


def covariance(chain, weights, out):
    """Fill ``out`` with the covariances of each part with V.

    V is the sum of ``weights`` over the parts that an output uses. Their shapes and
    those of the outputs are those of the marginals in
    ``chain.cuda.forward_backward``.
    """
    emissions, transitions, start, end, steps, lengths, shared = chain
    v_nodes, v_edges, v_heads, v_tails = weights
    nodes, edges, heads, tails = out
    B, T, S = emissions.shape
    block = block_of(S)
    warps = min(8, warps_of(block * block, torch.float64))
    launch(
        _covariance_kernel,
        B,
        emissions,
        emissions,
        transitions,
        start,
        end,
        steps,
        lengths,
        v_nodes,
        v_edges,
        v_heads,
        v_tails,
        emissions.new_empty((B, 4 * T + 2, S), dtype=torch.float64),
        nodes,
        edges,
        heads,
        tails,
        T,
        S,
        SHARED=shared,
        BLOCK=block,
        ROWS=rows_of(block, warps, 8),
        num_warps=warps,
        enable_fp_fusion=False,
    )


@triton.jit(do_not_specialize=["T"])
def _covariance_kernel(
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    v_nodes,
    v_edges,
    v_heads,
    v_tails,
    room,
    nodes,
    edges,
    heads,
    tails,
    T,
    S,
    SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    b = tl.program_id(0).to(tl.int64)
    T = T.to(tl.int64)
    N = tl.load(lengths + b)
    alphas = room + b * (4 * T + 2) * S
    pasts = alphas + T * S
    pulls = pasts + T * S
    gains = pulls + T * S
    spare = gains + T * S
    if N < T:
        fill(nodes + b * T * S, T * S, 0.0, 1024)
        if not SHARED:
            fill(edges + b * (T - 1) * S * S, (T - 1) * S * S, 0.0, 1024)
    b_alpha, b_past, _ = forward_row(
        b, N, emissions, transitions, start, steps, v_nodes, v_edges, v_heads,
        alphas, pasts, T, S, PAST, SHARED, BLOCK, ROWS,
    )  # fmt: skip
    tl.debug_barrier()
    backward_row(
        b, N, b_alpha, b_past, emissions, transitions, end, steps,
        v_nodes, v_edges, v_tails, alphas, pasts, pulls, gains, spare,
        nodes, edges, heads, tails, T, S, True, SHARED, BLOCK, ROWS,
    )  # fmt: skip
