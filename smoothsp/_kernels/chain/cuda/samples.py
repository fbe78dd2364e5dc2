"""Samples of a chain, and its entropy: in log space and float64.

Messages and entropies of states are those of ``chain.cuda.log_space``. One program
computes a row, with the loop over time inside. Samples of a row share its forward
messages; several go backward together, as rows of one block.
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
    transition_ptr,
    zero_if_neg_inf,
)
from smoothsp._kernels.chain.cuda.log_space import ENTROPY, NOTHING, forward_row
from smoothsp._kernels.compilation.launch import launch


def sample(chain, uniforms, labels):
    """Fill labels[B, K, T] with K independent samples; -1 where there is no position.

    Forward filtering, backward sampling: after the forward messages, each label is
    sampled by inverting its distribution function at uniforms[B, K, T] in [0, 1).
    """
    emissions, transitions, start, end, steps, lengths, shared = chain
    B, T, S = emissions.shape
    K = labels.shape[1]
    block = block_size(S)
    warps = min(8, num_warps_for(block * block, torch.float64))
    rows = tile_rows(block, warps, 8)
    launch(
        _sample_kernel,
        B,
        emissions,
        emissions,
        transitions,
        start,
        end,
        steps,
        lengths,
        uniforms,
        emissions.new_empty((B, T, S), dtype=torch.float64),
        labels,
        T,
        S,
        K,
        SHARED=shared,
        BLOCK=block,
        ROWS=rows,
        SAMPLES_PER_BLOCK=min(rows, triton.next_power_of_2(K)),
        num_warps=warps,
        maxnreg=max_registers(warps),
        enable_fp_fusion=False,
    )


def entropy(chain, value):
    """Fill value[B] with the entropies of the rows, in nats.

    The sum of conditional entropies has no negative term, so nothing cancels.
    """
    emissions, transitions, start, end, steps, lengths, shared = chain
    B, T, S = emissions.shape
    block = block_size(S)
    warps = min(8, num_warps_for(block * block, torch.float64))
    launch(
        _entropy_kernel,
        B,
        emissions,
        emissions,
        transitions,
        start,
        end,
        steps,
        lengths,
        emissions.new_empty((B, 2, 2, S), dtype=torch.float64),
        value,
        T,
        S,
        SHARED=shared,
        BLOCK=block,
        ROWS=tile_rows(block, warps, 8),
        num_warps=warps,
        enable_fp_fusion=False,
    )


# from the end P(y_t = i) ~ exp(a_t(i) + s(i, y_{t+1})), and the first i whose
# cumulative sum exceeds u
@triton.jit(do_not_specialize=["T", "K"])
def _sample_kernel(
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    uniforms,
    alphas,
    labels,
    T,
    S,
    K,
    SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    SAMPLES_PER_BLOCK: tl.constexpr,
):
    b = tl.program_id(0).to(tl.int64)
    T = T.to(tl.int64)
    K = K.to(tl.int64)
    N = tl.load(lengths + b)
    o = tl.arange(0, BLOCK)
    m = o < S
    row = steps + b * T
    uniforms += b * K * T
    labels += b * K * T
    alphas += b * T * S
    if N < T:
        fill_constant(labels, K * T, -1, 128)

    forward_row(
        b, N, emissions, transitions, start, steps, emissions, transitions, start,
        alphas, alphas, T, S, NOTHING, SHARED, BLOCK, ROWS,
    )  # fmt: skip
    b_end = tl.load(end + o, mask=m, other=float("-inf")).to(tl.float64)
    tl.debug_barrier()
    for first in range(0, K, SAMPLES_PER_BLOCK):
        k = first + tl.arange(0, SAMPLES_PER_BLOCK)
        m_k = k < K
        b_exp_transitions = (
            tl.zeros([SAMPLES_PER_BLOCK, BLOCK], tl.float64) + b_end[None, :]
        )
        for n in range(N - 1, -1, -1):
            t = tl.load(row + n)
            b_x = tl.load(alphas + n * S + o, mask=m, other=float("-inf"))
            b_prob = b_x[None, :] + b_exp_transitions
            b_prob = tl.exp(b_prob - zero_if_neg_inf(tl.max(b_prob, 1))[:, None])
            b_u = tl.load(uniforms + k * T + t, mask=m_k, other=0.0)
            b_u *= tl.sum(b_prob, 1)
            b_exceeds = (b_prob > 0) & (tl.cumsum(b_prob, 1) > b_u[:, None])
            b_first = tl.min(tl.where(b_exceeds, o[None, :], BLOCK), 1)
            # if rounding leaves the sum at most u: the last feasible state
            b_last = tl.max(tl.where(b_prob > 0, o[None, :], 0), 1)
            b_label = tl.minimum(b_first, b_last)
            tl.store(labels + k * T + t, b_label, mask=m_k)
            scores = transition_ptr(transitions, b, t, T, S, SHARED)
            before = state_mask(n > 0, S, BLOCK)
            b_exp_transitions = tl.load(
                scores + o[None, :] * S + b_label[:, None],
                mask=before[None, :] & m_k[:, None],
                other=float("-inf"),
            ).to(tl.float64)


# the last state and the end are one step more, into a state that all enter
@triton.jit(do_not_specialize=["T"])
def _entropy_kernel(
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    scratch,
    value,
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
    scratch += b * 4 * S
    b_alpha, b_h, _ = forward_row(
        b, N, emissions, transitions, start, steps, emissions, transitions, start,
        scratch, scratch + 2 * S, T, S, ENTROPY, SHARED, BLOCK, ROWS,
    )  # fmt: skip
    b_x = b_alpha + tl.load(end + o, mask=m, other=float("-inf"))
    peak = tl.max(b_x, 0)
    b_x -= zero_if_neg_inf(peak)
    b_weight = tl.exp(b_x)
    total = tl.where(peak > float("-inf"), tl.sum(b_weight, 0), 1.0)
    h = tl.sum(b_weight * (b_h - zero_if_neg_inf(b_x)), 0) / total + tl.log(total)
    tl.store(value + b, h)
