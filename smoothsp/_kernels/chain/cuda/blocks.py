"""Blocks of states, pointers and log-sum-exp steps for the Triton kernels of a chain.

A block holds ``BLOCK`` states, S rounded up to a power of two; states past S are masked
with the zero of the semiring. Transitions are read in tiles of ``ROWS`` previous states
by ``BLOCK`` next states. Names of blocks begin with b_; comments behind them give their
shapes. The threads of a program split each block among them. A barrier separates writes
to memory from reads by other threads, and reads from later overwrites.
"""

import torch
import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

LN2 = tl.constexpr(0.6931471805599453)


def block_size(S: int) -> int:
    """Return the number of states in a block: S up to a power of two, at least 16."""
    return max(16, triton.next_power_of_2(S))


def num_warps_for(num_cells: int, dtype: torch.dtype) -> int:
    """Return the number of warps that hold a tile in 32 registers a thread.

    A single warp needs no barriers.
    """
    return min(16, max(1, num_cells * dtype.itemsize // 4096))


def tile_rows(block_states: int, num_warps: int, cells_per_thread: int = 16) -> int:
    """Return the number of rows of a tile with ``cells_per_thread`` for each thread."""
    return min(block_states, max(1, 32 * num_warps * cells_per_thread // block_states))


def max_registers(num_warps: int) -> int:
    """Return the registers that a thread may use, of 65,536 for all threads.

    Without this limit the assembler spills registers to fit more programs.
    """
    return min(255, 65536 // (32 * num_warps))


@triton.jit
def zero_if_neg_inf(x):
    """Return x, or 0 where x is -inf, so that -inf - x is not NaN."""
    return tl.where(x > float("-inf"), x, 0.0)


@triton.jit
def fill_constant(pointer, count, number, CELLS: tl.constexpr):
    """Write ``number`` to ``count`` cells."""
    for first in range(0, count, CELLS):
        o = first + tl.arange(0, CELLS)
        tl.store(pointer + o, number, mask=o < count)


@triton.jit
def state_mask(is_real, S, BLOCK: tl.constexpr):
    """Return the mask of the S states, empty unless ``is_real``: [BLOCK]."""
    return tl.arange(0, BLOCK) < tl.where(is_real, S, 0)


@triton.jit
def transition_ptr(transitions, b, t, T, S, SHARED: tl.constexpr):
    """Return the pointer to the transitions [S, S] into position t."""
    if SHARED:
        return transitions
    else:
        return transitions + (b * (T - 1) + t - 1) * S * S


@triton.jit
def edge_ptr(edges, b, t, T, S, SHARED: tl.constexpr):
    """Return the pointer to the edge into t in [B, 1 if shared else T - 1, S, S]."""
    if SHARED:
        return edges + b * S * S
    else:
        return edges + (b * (T - 1) + t - 1) * S * S


@triton.jit
def load_tile(pointer, i, S, BLOCK: tl.constexpr):
    """Load the rows i of a matrix [S, S]: [ROWS, BLOCK]; -inf outside."""
    j = tl.arange(0, BLOCK)
    inside = (i[:, None] < S) & (j[None, :] < S)
    return tl.load(
        pointer + i[:, None] * S + j[None, :], mask=inside, other=float("-inf")
    )


@triton.jit
def multiply_scaled(m, e, factor):
    """Return ``m 2^e factor`` as a pair (m, e): m in [1, 2) float64, e an integer.

    The factor is positive, at least ``tiny`` of its dtype; all are numbers or blocks.
    """
    # exponent and mantissa of float64 are split by bits: no logarithm at each step
    bits = (m * factor.to(tl.float64)).to(tl.int64, bitcast=True)
    e += (bits >> 52) - 1023
    bits = (bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000
    return bits.to(tl.float64, bitcast=True), e


@triton.jit
def log_scaled(m, e):
    """Return ``log(m 2^e) = log m + e log 2``."""
    return tl.log(m) + e.to(tl.float64) * LN2


@triton.jit
def logsumexp(b_x):
    """Return the log-sum-exp of a block; -inf if all entries are."""
    peak = tl.max(b_x, 0)
    total = tl.sum(tl.exp(b_x - zero_if_neg_inf(peak)), 0)
    return peak + tl.log(tl.where(peak > float("-inf"), total, 1.0))


@triton.jit
def log_forward_step(alpha_ptr, score_ptr, S, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Return ``log sum_i exp(alpha(i) + scores(i, j))`` in float64: [BLOCK].

    The sum runs over tiles of rows, and is rescaled when its largest term grows.
    """
    b_peak = tl.full([BLOCK], float("-inf"), tl.float64)
    b_total = tl.zeros([BLOCK], tl.float64)
    for first in range(0, S, ROWS):
        i = first + tl.arange(0, ROWS)
        b_alpha = tl.load(alpha_ptr + i, mask=i < S, other=float("-inf"))
        b_x = b_alpha[:, None] + load_tile(score_ptr, i, S, BLOCK)  # [ROWS, BLOCK]
        b_new_peak = tl.maximum(b_peak, tl.max(b_x, 0))
        b_shift = zero_if_neg_inf(b_new_peak)
        b_total *= tl.exp(b_peak - b_shift)
        b_total += tl.sum(tl.exp(b_x - b_shift[None, :]), 0)
        b_peak = b_new_peak
    return b_peak + tl.log(tl.where(b_peak > float("-inf"), b_total, 1.0))


@triton.jit
def log_backward_step(
    scores, b_beta_emission, beta, S, BLOCK: tl.constexpr, ROWS: tl.constexpr
):
    """Fill beta[S] with ``log sum_j exp(scores(i, j) + beta_emission(j))``, float64."""
    for first in range(0, S, ROWS):
        i = first + tl.arange(0, ROWS)
        b_x = load_tile(scores, i, S, BLOCK) + b_beta_emission[None, :]  # [ROWS, BLOCK]
        b_peak = tl.max(b_x, 1)
        b_total = tl.sum(tl.exp(b_x - zero_if_neg_inf(b_peak)[:, None]), 1)
        b_total = tl.where(b_peak > float("-inf"), b_total, 1.0)
        tl.store(beta + i, b_peak + tl.log(b_total), mask=i < S)


@triton.jit
def load_exp_transitions(scores, S, BLOCK: tl.constexpr):
    """Return exp(scores - max_score), [BLOCK, BLOCK], and max_score."""
    b_x = load_tile(scores, tl.arange(0, BLOCK), S, BLOCK)
    max_score = zero_if_neg_inf(tl.max(tl.max(b_x, 1), 0))
    return tl.exp(b_x - max_score), max_score


@triton.jit
def max_transition_score(scores, S, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Return the maximum of scores[S, S], or 0 if all are -inf."""
    b_top = tl.full([BLOCK], float("-inf"), scores.dtype.element_ty)
    for first in range(0, S, ROWS):
        i = first + tl.arange(0, ROWS)
        b_top = tl.maximum(b_top, tl.max(load_tile(scores, i, S, BLOCK), 0))
    return zero_if_neg_inf(tl.max(b_top, 0))


@triton.jit
def load_exp_tile(
    score_ptr, exp_ptr, max_score, i, S, IS_EXP: tl.constexpr, BLOCK: tl.constexpr
):
    """Return exp(scores - max_score) of the rows i, 0 outside: [ROWS, BLOCK]."""
    if IS_EXP:
        # masked loads give -inf, and the zero of exponentials is 0
        return tl.maximum(load_tile(exp_ptr, i, S, BLOCK), 0.0)
    else:
        return tl.exp(load_tile(score_ptr, i, S, BLOCK) - max_score)
