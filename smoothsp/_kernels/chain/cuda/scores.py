"""Given outputs on chains: their scores, and counts of the parts they use.

The formulas stand above the two kernels. Positions are read 32 at a time, one for each
thread of a warp, so that their loads overlap. Terms are then summed in the order of
time, and what is added to the same number is added in turn, without atomic additions:
the bits of a result do not change from run to run.
"""

import torch
import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

from smoothsp._kernels.chain.cuda.blocks import (
    edge_scores,
    row_edges,
)
from smoothsp._kernels.compilation.launch import launch

# Rows that share parts are counted in at most so many groups, each by one program.
GROUPS = 128


def score(chain, labels, value, fault):
    """Fill value[B, K] with the scores of labels[B, K, T], summed in time order.

    fault[b] is the first position with a label outside [0, S), or -1. The values of a
    row with a fault mean nothing.
    """
    emissions, transitions, start, end, steps, lengths, shared = chain
    B, T, S = emissions.shape
    K = labels.shape[1]
    launch(
        _score_kernel,
        B,
        emissions,
        emissions,
        transitions,
        start,
        end,
        steps,
        lengths,
        labels,
        emissions.new_empty((B, 2, T, K), dtype=torch.float64),
        value,
        fault,
        T,
        S,
        K,
        SHARED=shared,
        BLOCK_K=min(32, triton.next_power_of_2(K)),
        num_warps=1,
        enable_fp_fusion=False,
    )


def count(
    weights,
    labels,
    steps,
    lengths,
    shared,
    emissions,
    transitions,
    start,
    end,
):
    """Add weights[B, K] to every part that labels[B, K, T] use.

    Parts shared by rows are added up by groups of rows, then over the groups, in an
    order that depends on B alone.
    """
    B, K, T = labels.shape
    S = emissions.shape[2]
    groups = min(B, GROUPS)
    # two tensors, not one: Triton compiles anew for addresses that are not aligned
    ends = [start.new_zeros((groups, S)) for _ in range(2)]
    moves = start.new_zeros((groups, S, S)) if shared else transitions
    launch(
        _count_kernel,
        groups,
        labels,
        weights,
        labels,
        steps,
        lengths,
        emissions,
        moves,
        *ends,
        B,
        T,
        S,
        K,
        SHARED=shared,
        num_warps=1,
        enable_fp_fusion=False,
    )
    start += ends[0].sum(0)
    end += ends[1].sum(0)
    if shared:
        transitions += moves.sum(0)


# score = ((start(y_1) + e_1(y_1)) + s(y_1, y_2)) + e_2(y_2) + ... + end(y_N)
@triton.jit(do_not_specialize=["T", "K"])
def _score_kernel(
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    labels,
    terms,
    value,
    fault,
    T,
    S,
    K,
    SHARED: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    b = tl.program_id(0).to(tl.int64)
    T = T.to(tl.int64)
    K = K.to(tl.int64)
    N = tl.load(lengths + b)
    emissions += b * T * S
    steps += b * T
    labels += b * K * T
    terms += b * 2 * T * K
    nowhere = K * T
    b_fault = tl.zeros([32], tl.int64) + nowhere
    for k in range(0, K):
        for first in range(0, N, 32):
            n = first + tl.arange(0, 32)
            t = tl.load(steps + n, mask=n < N, other=0)
            before = tl.load(steps + n - 1, mask=(n > 0) & (n < N), other=0)
            j = tl.load(labels + k * T + t, mask=n < N, other=0)  # [32]
            i = tl.load(labels + k * T + before, mask=(n > 0) & (n < N), other=0)
            bad = (j < 0) | (j >= S)
            b_fault = tl.minimum(b_fault, tl.where(bad, k * T + t, nowhere))
            real = (n < N) & (j >= 0) & (j < S)
            moved = real & (n > 0) & (i >= 0) & (i < S)
            b_e = tl.load(emissions + t * S + j, mask=real, other=0.0)
            scores = edge_scores(transitions, b, t, T, S, SHARED)
            b_move = tl.load(scores + i * S + j, mask=moved, other=0.0)
            b_start = tl.load(start + j, mask=real & (n == 0), other=0.0)
            tl.store(terms + n * K + k, tl.where(n > 0, b_move, b_start), mask=n < N)
            tl.store(terms + (T + n) * K + k, b_e, mask=n < N)
    where = tl.min(b_fault, 0)
    tl.store(fault + b, tl.where(where < nowhere, where % tl.maximum(T, 1), -1))
    tl.debug_barrier()
    for first in range(0, K, BLOCK_K):
        o_k = first + tl.arange(0, BLOCK_K)
        b_sum = tl.zeros([BLOCK_K], tl.float64)
        for n in range(0, N):
            b_sum += tl.load(terms + n * K + o_k, mask=o_k < K, other=0.0)
            b_sum += tl.load(terms + (T + n) * K + o_k, mask=o_k < K, other=0.0)
        last = tl.load(steps + N - 1, mask=N > 0, other=0)
        m_k = o_k < tl.where(N > 0, K, 0)
        b_last = tl.load(labels + o_k * T + last, mask=m_k, other=0)
        b_sum += tl.load(
            end + b_last, mask=m_k & (b_last >= 0) & (b_last < S), other=0.0
        )
        tl.store(value + b * K + o_k, b_sum, mask=o_k < K)


# emissions(t, y_t), transitions(y_{t-1}, y_t), start(y_1) and end(y_N) += w
@triton.jit(do_not_specialize=["B", "T", "K"])
def _count_kernel(
    weights,
    labels,
    steps,
    lengths,
    emissions,
    transitions,
    start,
    end,
    B,
    T,
    S,
    K,
    SHARED: tl.constexpr,
):
    g = tl.program_id(0).to(tl.int64)
    T = T.to(tl.int64)
    K = K.to(tl.int64)
    for b in range(g, B, tl.num_programs(0)):
        N = tl.load(lengths + b)
        for k in range(0, K):
            row = labels + (b * K + k) * T
            weight = tl.load(weights + b * K + k)
            for first in range(0, N, 32):
                n = first + tl.arange(0, 32)
                t = tl.load(steps + b * T + n, mask=n < N, other=0)
                before = tl.load(steps + b * T + n - 1, mask=(n > 0) & (n < N), other=0)
                j = tl.load(row + t, mask=n < N, other=-1)  # [32]
                i = tl.load(row + before, mask=(n > 0) & (n < N), other=-1)
                real = (j >= 0) & (j < S)
                moved = real & (i >= 0) & (i < S)
                # steps and outputs may add to the same number: one after the other
                tl.debug_barrier()
                _add(emissions + (b * T + t) * S + j, weight, real)
                _add(start + g * S + j, weight, real & (n == 0))
                _add(end + g * S + j, weight, real & (n == N - 1))
                if SHARED:
                    _add_all(transitions + g * S * S, i * S + j, weight, moved)
                else:
                    into = row_edges(transitions, b, t, T, S, SHARED)
                    _add(into + i * S + j, weight, moved)


@triton.jit
def _add(cells, weight, mask):
    """Add a weight to cells [32], no two of which are the same."""
    tl.store(cells, tl.load(cells, mask=mask, other=0.0) + weight, mask=mask)


@triton.jit
def _add_all(pointer, cell, weight, mask):
    """Add a weight to cells [32], as often as each is listed."""
    o = tl.arange(0, 32)
    b_same = (cell[:, None] == cell[None, :]) & mask[None, :]  # [32, 32]
    b_times = tl.sum(b_same.to(tl.int32), 1)
    # of the threads that list one cell, the first writes for all
    b_first = tl.min(tl.where(b_same, o[None, :], 32), 1)
    _add(pointer + cell, weight * b_times, mask & (b_first == o))
