"""Viterbi algorithm on chains: the best output, and the K best.

All sums are float64 and run in time order, ``(a + transition) + emission``: the scores
equal those of the CPU to the last bit. One program computes a row, with the loop over
time inside. Backpointers are stored, and the labels are traced back from them: a label
takes one load, where an argmax would read S transitions.
"""

import torch
import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

from smoothsp._kernels.chain.cuda.blocks import (
    block_size,
    fill_constant,
    load_tile,
    max_registers,
    num_warps_for,
    state_mask,
    tile_rows,
    transition_ptr,
)
from smoothsp._kernels.compilation.launch import launch

# Largest number of states whose transitions stay in registers.
RESIDENT = 64


def viterbi(chain, labels):
    """Fill labels[B, T] with a maximiser; -1 where there is no real position.

    Ties go to the lower state, from the end backwards.
    """
    emissions, transitions, start, end, steps, lengths, shared = chain
    B, T, S = emissions.shape
    block = block_size(S)
    warps = num_warps_for(block * block, torch.float64)
    resident = block <= RESIDENT
    new = emissions.new_empty
    launch(
        _viterbi_kernel,
        B,
        emissions,
        emissions,
        transitions,
        start,
        end,
        steps,
        lengths,
        new((B, T, S), dtype=torch.int32),
        new((B, 2, S), dtype=torch.float64),
        labels,
        T,
        S,
        SHARED=shared,
        RESIDENT=resident,
        BLOCK=block,
        ROWS=block if resident else tile_rows(block, warps),
        num_warps=warps,
        enable_fp_fusion=False,
    )


def viterbi_topk(chain, labels, valid):
    """Fill labels[B, K, T] with the K best outputs, best first, and valid[B, K].

    Each cell (t, j) holds a sorted list of its at most K best prefixes, the merge of
    its predecessors' lists. Time O(T S^2 K). Ties go to the lower state, so the K best
    are a prefix of the K + 1 best. Outputs of score -inf are omitted.

    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
    algorithm 2 and eq. (19).
    """
    emissions, transitions, start, end, steps, lengths, shared = chain
    B, T, S = emissions.shape
    K = labels.shape[1]
    block = block_size(S)
    warps = num_warps_for(block * block, torch.float64)
    new = emissions.new_empty
    launch(
        _viterbi_topk_kernel,
        B,
        emissions,
        emissions,
        transitions,
        start,
        end,
        steps,
        lengths,
        new((B, T, S, K), dtype=torch.int32),
        new((B, 2, S, K), dtype=torch.float64),
        labels,
        valid,
        T,
        S,
        K,
        SHARED=shared,
        BLOCK=block,
        COLUMNS=tile_rows(block, warps, 8),
        BLOCK_K=max(16, triton.next_power_of_2(K)),
        num_warps=warps,
        maxnreg=max_registers(warps),
        enable_fp_fusion=False,
    )


# a_t(j) = max_i (a_{t-1}(i) + s(i, j)) + e_t(j), back_t(j) the lowest i that attains it
# y_N = the lowest argmax_j a_N(j) + end(j), then y_{t-1} = back_t(y_t)
@triton.jit(do_not_specialize=["T"])
def _viterbi_kernel(
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    backpointers,
    scratch,
    labels,
    T,
    S,
    SHARED: tl.constexpr,
    RESIDENT: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    b = tl.program_id(0).to(tl.int64)
    T = T.to(tl.int64)
    N = tl.load(lengths + b)
    o = tl.arange(0, BLOCK)
    m = o < S
    emissions += b * T * S
    steps += b * T
    labels += b * T
    backpointers += b * T * S
    scratch += b * 2 * S
    if N < T:
        fill_constant(labels, T, -1, 128)

    # t and b_e are loaded one step ahead
    t = tl.load(steps, mask=N > 0, other=0)
    real = state_mask(N > 0, S, BLOCK)
    b_e = tl.load(emissions + t * S + o, mask=real, other=float("-inf"))
    b_alpha = tl.load(start + o, mask=m, other=float("-inf")).to(tl.float64) + b_e
    t = tl.load(steps + 1, mask=N > 1, other=0)
    real = state_mask(N > 1, S, BLOCK)
    b_next = tl.load(emissions + t * S + o, mask=real, other=float("-inf"))  # [BLOCK]
    t_next = tl.load(steps + 2, mask=N > 2, other=0)
    if RESIDENT and SHARED:
        b_score = load_tile(transitions, o, S, BLOCK)  # [BLOCK, BLOCK]
    for n in range(1, N):
        b_e = b_next
        real = state_mask(n + 1 < N, S, BLOCK)
        b_next = tl.load(emissions + t_next * S + o, mask=real, other=float("-inf"))
        scores = transition_ptr(transitions, b, t, T, S, SHARED)
        t = t_next
        t_next = tl.load(steps + n + 2, mask=n + 2 < N, other=0)
        if RESIDENT:
            if not SHARED:
                b_score = load_tile(scores, o, S, BLOCK)
            b_score_in = b_alpha[:, None] + b_score
            b_best, b_back = tl.max(b_score_in, 0, return_indices=True)
        else:
            # alternating halves: no thread overwrites a message that is still read
            half = scratch + (n % 2) * S
            tl.store(half + o, b_alpha, mask=m)
            tl.debug_barrier()
            b_best = tl.full([BLOCK], float("-inf"), tl.float64)
            b_back = tl.zeros([BLOCK], tl.int32)
            for first in range(0, S, ROWS):
                i = first + tl.arange(0, ROWS)
                b_from = tl.load(half + i, mask=i < S, other=float("-inf"))
                b_score_in = b_from[:, None] + load_tile(scores, i, S, BLOCK)
                b_top, b_row = tl.max(b_score_in, 0, return_indices=True)
                b_back = tl.where(b_top > b_best, first + b_row, b_back)
                b_best = tl.maximum(b_top, b_best)
        tl.store(backpointers + n * S + o, b_back, mask=m)
        b_alpha = b_best + b_e

    b_alpha += tl.load(end + o, mask=m, other=float("-inf"))
    _, j = tl.max(b_alpha, 0, return_indices=True)
    tl.debug_barrier()
    for n in range(N - 1, 0, -1):
        tl.store(labels + tl.load(steps + n), j)
        j = tl.load(backpointers + n * S + j)
    tl.store(labels + tl.load(steps, mask=N > 0, other=0), j, mask=N > 0)


# list_t(j) = the K best of (a + s(i, j)) + e_t(j) over i and over a in list_{t-1}(i)
# by a merge: head(i, j) is the best a + s(i, j) of list i that is not merged yet;
# K times the largest head is moved to list_t(j), and the next of its list replaces it
@triton.jit(do_not_specialize=["T", "K"])
def _viterbi_topk_kernel(
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    backpointers,
    scratch,
    labels,
    valid,
    T,
    S,
    K,
    SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    b = tl.program_id(0).to(tl.int64)
    T = T.to(tl.int64)
    K = K.to(tl.int64)
    N = tl.load(lengths + b)
    o = tl.arange(0, BLOCK)
    m = o < S
    o_k = tl.arange(0, BLOCK_K)
    emissions += b * T * S
    steps += b * T
    labels += b * K * T
    # entry r of the list of state i is cell i K + r, of scratch (scores) and
    # backpointers (cells)
    backpointers += b * T * S * K
    scratch += b * 2 * S * K
    if N < T:
        fill_constant(labels, K * T, -1, 128)

    t = tl.load(steps, mask=N > 0, other=0)
    real = state_mask(N > 0, S, BLOCK)
    b_alpha = tl.load(start + o, mask=m, other=float("-inf")).to(tl.float64)  # [BLOCK]
    b_alpha += tl.load(emissions + t * S + o, mask=real, other=float("-inf"))
    tl.store(scratch + o * K, b_alpha, mask=m)
    for r in range(1, K):
        tl.store(scratch + o * K + r, float("-inf"), mask=m)
    for n in range(1, N):
        t = tl.load(steps + n)
        scores = transition_ptr(transitions, b, t, T, S, SHARED)
        old = scratch + (n - 1) % 2 * S * K
        new = scratch + n % 2 * S * K
        tl.debug_barrier()
        for first in range(0, S, COLUMNS):
            j = first + tl.arange(0, COLUMNS)
            inside = m[:, None] & (j[None, :] < S)
            b_head = tl.load(
                scores + o[:, None] * S + j[None, :], mask=inside, other=float("-inf")
            ).to(tl.float64)  # [BLOCK, COLUMNS]
            b_head += tl.load(old + o * K, mask=m, other=float("-inf"))[:, None]
            b_ranks = tl.zeros([BLOCK, COLUMNS], tl.int32)
            b_e = tl.load(emissions + t * S + j, mask=j < S, other=float("-inf"))
            for r in range(0, K):
                b_best, b_i = tl.max(b_head, 0, return_indices=True)  # [COLUMNS]
                b_is_picked = o[:, None] == b_i[None, :]
                b_rank = tl.sum(tl.where(b_is_picked, b_ranks, 0), 0)
                cell = b_i * K + b_rank
                tl.store(new + j * K + r, b_best + b_e, mask=j < S)
                tl.store(backpointers + (n * S + j) * K + r, cell, mask=j < S)
                more = (j < S) & (b_rank + 1 < K)
                b_head_next = tl.load(old + cell + 1, mask=more, other=float("-inf"))
                b_head_next += tl.load(scores + b_i * S + j, mask=j < S, other=0.0)
                b_head = tl.where(b_is_picked, b_head_next[None, :], b_head)
                b_ranks += b_is_picked.to(tl.int32)

    # the K best over all states, each a cell to trace back from; a row without
    # positions has one output, the empty one
    old = scratch + (N + 1) % 2 * S * K
    tl.debug_barrier()
    b_head = tl.load(old + o * K, mask=real, other=float("-inf"))
    b_head += tl.load(end + o, mask=m, other=float("-inf"))
    b_ranks = tl.zeros([BLOCK], tl.int32)
    b_cell = tl.zeros([BLOCK_K], tl.int64)
    b_best = tl.full([BLOCK_K], float("-inf"), tl.float64)
    b_best = tl.where(o_k + N == 0, 0.0, b_best)
    for r in range(0, tl.where(N > 0, K, 0)):
        best, i = tl.max(b_head, 0, return_indices=True)
        rank = tl.sum(tl.where(o == i, b_ranks, 0), 0)
        b_best = tl.where(o_k == r, best, b_best)
        b_cell = tl.where(o_k == r, i * K + rank, b_cell)
        head = tl.load(old + i * K + rank + 1, mask=rank + 1 < K, other=float("-inf"))
        head += tl.load(end + i)
        b_head = tl.where(o == i, head, b_head)
        b_ranks += (o == i).to(tl.int32)
    m_k = o_k < K
    b_valid = b_best > float("-inf")
    tl.store(valid + b * K + o_k, b_valid, mask=m_k)
    labels += o_k * T
    for n in range(N - 1, 0, -1):
        b_label = tl.where(b_valid, b_cell // K, -1)
        tl.store(labels + tl.load(steps + n), b_label, mask=m_k)
        b_cell = tl.load(backpointers + n * S * K + b_cell, mask=m_k, other=0).to(
            tl.int64
        )
    t = tl.load(steps, mask=N > 0, other=0)
    b_label = tl.where(b_valid, b_cell // K, -1)
    tl.store(labels + t, b_label, mask=o_k < tl.where(N > 0, K, 0))
