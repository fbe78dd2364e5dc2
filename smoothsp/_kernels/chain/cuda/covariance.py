"""Second derivatives on chains: covariances of the parts with a sum over parts.

The recursions for ``past`` and ``future`` are those of the CPU twin, in log space and
float64; the formulas stand above the kernel. One program computes a row: forward the
messages and ``past``, then backward ``future`` and the nodes, then the edges. Edges
come last, a tile of moves at a time, so that sums over time stay in registers.
"""

import torch
import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

from smoothsp._kernels.chain.cuda.blocks import (
    block_of,
    edge_scores,
    fill,
    finite,
    load_tile,
    log_total,
    row_edges,
    rows_of,
    states_if,
    warps_of,
)
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


# past_t(j) = v_t(j) + sum_i P(i | j) (past_{t-1}(i) + v(i, j))
# future_t(i) = sum_j P(j | i) (v(i, j) + v_{t+1}(j) + future_{t+1}(j))
# Cov(i, j) = P(i, j) (past_{t-1}(i) + v(i, j) + v_t(j) + future_t(j) - E[V])
# Cov(j) = P(j) (past_t(j) + future_t(j) - E[V])
# E[V] = sum_j P(j) (past_N(j) + future_N(j)), j the state of the last position N
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
    o = tl.arange(0, BLOCK)
    m = o < S
    emissions += b * T * S
    v_nodes += b * T * S
    nodes += b * T * S
    steps += b * T
    alphas = room + b * (4 * T + 2) * S
    pasts = alphas + T * S
    pulls = pasts + T * S
    gains = pulls + T * S
    spare = gains + T * S
    if N < T:
        fill(nodes, T * S, 0.0, 1024)
        if not SHARED:
            fill(edges + b * (T - 1) * S * S, (T - 1) * S * S, 0.0, 1024)

    # forward: messages, whose largest entry is 0, and past
    t = tl.load(steps, mask=N > 0, other=0)
    real = states_if(N > 0, S, BLOCK)
    b_alpha = tl.load(start + o, mask=m, other=float("-inf")).to(tl.float64)  # [BLOCK]
    b_alpha += tl.load(emissions + t * S + o, mask=real, other=float("-inf"))
    b_past = tl.load(v_heads + b * S + o, mask=real, other=0.0).to(tl.float64)
    b_past += tl.load(v_nodes + t * S + o, mask=real, other=0.0)
    tl.store(alphas + o, b_alpha, mask=real)
    tl.store(pasts + o, b_past, mask=real)
    for n in range(1, N):
        t = tl.load(steps + n)
        tl.debug_barrier()
        b_alpha, b_past = _push(
            alphas + (n - 1) * S,
            pasts + (n - 1) * S,
            edge_scores(transitions, b, t, T, S, SHARED),
            row_edges(v_edges, b, t, T, S, SHARED),
            S,
            BLOCK,
            ROWS,
        )
        b_alpha += tl.load(emissions + t * S + o, mask=m, other=float("-inf"))
        b_alpha -= finite(tl.max(b_alpha, 0))
        b_past += tl.load(v_nodes + t * S + o, mask=m, other=0.0)
        tl.store(alphas + n * S + o, b_alpha, mask=m)
        tl.store(pasts + n * S + o, b_past, mask=m)
    b_beta = tl.load(end + o, mask=m, other=float("-inf")).to(tl.float64)
    b_future = tl.load(v_tails + b * S + o, mask=real, other=0.0).to(tl.float64)
    b_x = b_alpha + b_beta
    b_chance = tl.exp(b_x - finite(log_total(b_x)))
    mean = tl.sum(b_chance * (b_past + b_future), 0)

    # backward: nodes, and for the edges pulls and gains
    b_cov = b_chance * (b_past + b_future - mean)
    t = tl.load(steps + N - 1, mask=N > 0, other=0)
    tl.debug_barrier()
    tl.store(nodes + t * S + o, b_cov, mask=real)
    tl.store(tails + b * S + o, b_cov, mask=m)
    for n in range(N - 1, 0, -1):
        t = tl.load(steps + n)
        b_pull = b_beta + tl.load(emissions + t * S + o, mask=m, other=float("-inf"))
        b_gain = b_future + tl.load(v_nodes + t * S + o, mask=m, other=0.0)
        tl.debug_barrier()
        _pull(
            edge_scores(transitions, b, t, T, S, SHARED),
            row_edges(v_edges, b, t, T, S, SHARED),
            b_pull,
            b_gain,
            spare,
            S,
            BLOCK,
            ROWS,
        )
        tl.debug_barrier()
        b_beta = tl.load(spare + o, mask=m, other=float("-inf"))
        b_future = tl.load(spare + S + o, mask=m, other=0.0)
        b_past = tl.load(pasts + (n - 1) * S + o, mask=m, other=0.0)
        b_x = tl.load(alphas + (n - 1) * S + o, mask=m, other=float("-inf"))
        b_x += b_beta
        z = finite(log_total(b_x))
        b_cov = tl.exp(b_x - z) * (b_past + b_future - mean)
        before = tl.load(steps + n - 1)
        tl.store(nodes + before * S + o, b_cov, mask=m)
        tl.store(pulls + n * S + o, b_pull - z, mask=m)
        tl.store(gains + n * S + o, b_gain - mean, mask=m)
        b_beta -= finite(tl.max(b_beta, 0))
    tl.store(heads + b * S + o, b_cov, mask=m)

    tl.debug_barrier()
    for first in range(0, S, ROWS):
        i = first + tl.arange(0, ROWS)
        cells = i[:, None] * S + o[None, :]
        inside = (i[:, None] < S) & m[None, :]
        b_sum = tl.zeros([ROWS, BLOCK], tl.float64)
        for n in range(1, N):
            t = tl.load(steps + n)
            scores = edge_scores(transitions, b, t, T, S, SHARED)
            b_from = tl.load(alphas + (n - 1) * S + i, mask=i < S, other=float("-inf"))
            b_to = tl.load(pulls + n * S + o, mask=m, other=float("-inf"))
            b_edge = load_tile(scores, i, S, BLOCK) + b_from[:, None] + b_to[None, :]
            b_from = tl.load(pasts + (n - 1) * S + i, mask=i < S, other=0.0)
            b_to = tl.load(gains + n * S + o, mask=m, other=0.0)
            v = row_edges(v_edges, b, t, T, S, SHARED)
            b_v = tl.load(v + cells, mask=inside, other=0.0)
            b_edge = tl.exp(b_edge) * (b_from[:, None] + b_v + b_to[None, :])
            if SHARED:
                b_sum += b_edge
            else:
                into = row_edges(edges, b, t, T, S, SHARED)
                tl.store(into + cells, b_edge, mask=inside)
        if SHARED:
            tl.store(edges + b * S * S + cells, b_sum, mask=inside)


@triton.jit
def _push(alpha, past, scores, v, S, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Return ``log sum_i exp(alpha(i) + scores(i, j))``, and a mean: both [BLOCK].

    The mean is that of ``past(i) + v(i, j)`` under the distribution of i given j. The
    largest is found in a pass of its own: both sums are scaled by it.
    """
    j = tl.arange(0, BLOCK)
    b_peak = tl.full([BLOCK], float("-inf"), tl.float64)
    for first in range(0, S, ROWS):
        i = first + tl.arange(0, ROWS)
        b_from = tl.load(alpha + i, mask=i < S, other=float("-inf"))
        b_x = b_from[:, None] + load_tile(scores, i, S, BLOCK)  # [ROWS, BLOCK]
        b_peak = tl.maximum(b_peak, tl.max(b_x, 0))
    b_shift = finite(b_peak)
    b_total = tl.zeros([BLOCK], tl.float64)
    b_mean = tl.zeros([BLOCK], tl.float64)
    for first in range(0, S, ROWS):
        i = first + tl.arange(0, ROWS)
        inside = (i[:, None] < S) & (j[None, :] < S)
        b_v = tl.load(v + i[:, None] * S + j[None, :], mask=inside, other=0.0)
        b_from = tl.load(alpha + i, mask=i < S, other=float("-inf"))
        b_past = tl.load(past + i, mask=i < S, other=0.0)
        b_x = b_from[:, None] + load_tile(scores, i, S, BLOCK)
        b_weight = tl.exp(b_x - b_shift[None, :])
        b_total += tl.sum(b_weight, 0)
        b_mean += tl.sum(b_weight * (b_past[:, None] + b_v), 0)
    b_total = tl.where(b_peak > float("-inf"), b_total, 1.0)
    return b_peak + tl.log(b_total), b_mean / b_total


@triton.jit
def _pull(scores, v, b_pull, b_gain, out, S, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Write ``log sum_j exp(scores(i, j) + pull(j))``, and a mean, to out[2, S].

    The mean is that of ``v(i, j) + gain(j)`` under the distribution of j given i.
    """
    j = tl.arange(0, BLOCK)
    for first in range(0, S, ROWS):
        i = first + tl.arange(0, ROWS)
        inside = (i[:, None] < S) & (j[None, :] < S)
        b_v = tl.load(v + i[:, None] * S + j[None, :], mask=inside, other=0.0)
        b_x = load_tile(scores, i, S, BLOCK) + b_pull[None, :]  # [ROWS, BLOCK]
        b_peak = tl.max(b_x, 1)
        b_weight = tl.exp(b_x - finite(b_peak)[:, None])
        b_total = tl.where(b_peak > float("-inf"), tl.sum(b_weight, 1), 1.0)
        b_mean = tl.sum(b_weight * (b_v + b_gain[None, :]), 1) / b_total
        tl.store(out + i, b_peak + tl.log(b_total), mask=i < S)
        tl.store(out + S + i, b_mean, mask=i < S)
