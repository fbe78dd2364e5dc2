"""Second derivatives on chains: covariances of the parts with a sum over parts.

One program computes a row in log space, by the formulas of ``chain.cuda.log_space``.
"""

import torch
import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

from smoothsp._kernels.chain.cuda.blocks import (
    block_size,
    fill_constant,
    num_warps_for,
    tile_rows,
)
from smoothsp._kernels.chain.cuda.log_space import (
    PREFIX_MEAN,
    backward_row,
    forward_row,
)
from smoothsp._kernels.compilation.launch import launch


def covariance(chain, weights, out):
    """Fill ``out`` with the covariances of each part with V.

    V is the sum of ``weights`` over the parts that an output uses. Weights and
    covariances have the shapes of the marginals in ``chain.cuda.forward_backward``.
    """
    emissions, transitions, start, end, steps, lengths, shared = chain
    v_nodes, v_edges, v_start, v_end = weights
    nodes, edges, start_marginals, end_marginals = out
    B, T, S = emissions.shape
    block = block_size(S)
    warps = min(8, num_warps_for(block * block, torch.float64))
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
        v_start,
        v_end,
        emissions.new_empty((B, 4 * T + 2, S), dtype=torch.float64),
        nodes,
        edges,
        start_marginals,
        end_marginals,
        T,
        S,
        SHARED=shared,
        BLOCK=block,
        ROWS=tile_rows(block, warps, 8),
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
    v_start,
    v_end,
    scratch,
    nodes,
    edges,
    start_marginals,
    end_marginals,
    T,
    S,
    SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    b = tl.program_id(0).to(tl.int64)
    T = T.to(tl.int64)
    N = tl.load(lengths + b)
    alphas = scratch + b * (4 * T + 2) * S
    prefix_means = alphas + T * S
    beta_emissions = prefix_means + T * S
    next_suffix_means = beta_emissions + T * S
    beta_scratch = next_suffix_means + T * S
    if N < T:
        fill_constant(nodes + b * T * S, T * S, 0.0, 1024)
        if not SHARED:
            fill_constant(edges + b * (T - 1) * S * S, (T - 1) * S * S, 0.0, 1024)
    b_alpha, b_prefix_mean, _ = forward_row(
        b, N, emissions, transitions, start, steps, v_nodes, v_edges, v_start,
        alphas, prefix_means, T, S, PREFIX_MEAN, SHARED, BLOCK, ROWS,
    )  # fmt: skip
    tl.debug_barrier()
    backward_row(
        b, N, b_alpha, b_prefix_mean, emissions, transitions, end, steps,
        v_nodes, v_edges, v_end, alphas, prefix_means, beta_emissions,
        next_suffix_means, beta_scratch,
        nodes, edges, start_marginals, end_marginals, T, S, True, SHARED, BLOCK, ROWS,
    )  # fmt: skip
