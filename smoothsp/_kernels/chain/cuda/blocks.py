"""Blocks of states, pointers and log-sum-exp steps for the Triton kernels of a chain.

A block holds ``BLOCK`` states, the power of two from S up; what lies beyond S is masked
with the zero of the semiring. Scores between states are read in tiles: ``ROWS`` states
to come from, ``BLOCK`` to go to. Names of blocks begin with b_; comments behind
them give their shapes. The threads of a program split each block among them. A barrier
stands where a thread reads numbers that others wrote to memory, or overwrites numbers
that others may still read.
"""

import torch
import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

LN2 = tl.constexpr(0.6931471805599453)


def block_size(S: int) -> int:
    """States in a block."""
    return max(16, triton.next_power_of_2(S))


def num_warps_for(num_cells: int, dtype: torch.dtype) -> int:
    """Warps that hold a tile in 32 registers a thread. One alone needs no barriers."""
    return min(16, max(1, num_cells * dtype.itemsize // 4096))


def tile_rows(block_states: int, num_warps: int, cells_per_thread: int = 16) -> int:
    """Rows of a tile with so many cells for each thread."""
    return min(block_states, max(1, 32 * num_warps * cells_per_thread // block_states))


def max_registers(num_warps: int) -> int:
    """Registers that a thread may use, of 65,536 for all.

    Where this is not said the assembler spills a few for the sake of more programs.
    """
    return min(255, 65536 // (32 * num_warps))


@triton.jit
def zero_if_neg_inf(x):
    """Return x, or 0 where x is -inf, so that -inf - x is not NaN."""
    return tl.where(x > float("-inf"), x, 0.0)


@triton.jit
def fill_constant(pointer, count, number, CELLS: tl.constexpr):
    """Write a number to ``count`` cells."""
    for first in range(0, count, CELLS):
        o = first + tl.arange(0, CELLS)
        tl.store(pointer + o, number, mask=o < count)


@triton.jit
def state_mask(is_real, S, BLOCK: tl.constexpr):
    """Return the mask of the states, none of them unless ``real``: [BLOCK]."""
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
    """Return ``m 2^e factor`` as a number of that kind: m from 1 to 2, e an integer.

    The factor is positive, at least ``tiny`` of its dtype; all are numbers or blocks.
    """
    bits = (m * factor.to(tl.float64)).to(tl.int64, bitcast=True)
    e += (bits >> 52) - 1023
    bits = (bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000
    return bits.to(tl.float64, bitcast=True), e


@triton.jit
def log_scaled(m, e):
    """Return the log of ``m 2^e``."""
    return tl.log(m) + e.to(tl.float64) * LN2


@triton.jit
def logsumexp(b_x):
    """Return the log of the sum of exp of a block; -inf if all of it is."""
    peak = tl.max(b_x, 0)
    total = tl.sum(tl.exp(b_x - zero_if_neg_inf(peak)), 0)
    return peak + tl.log(tl.where(peak > float("-inf"), total, 1.0))


@triton.jit
def log_forward_step(alpha_ptr, score_ptr, S, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Return ``log sum_i exp(alpha(i) + scores(i, j))`` in float64: [BLOCK].

    The sum runs over tiles of rows, and is scaled anew when its largest term grows.
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
    """Load exp(scores - top) of all states, and top: [BLOCK, BLOCK] and a number."""
    b_x = load_tile(scores, tl.arange(0, BLOCK), S, BLOCK)
    max_score = zero_if_neg_inf(tl.max(tl.max(b_x, 1), 0))
    return tl.exp(b_x - max_score), max_score


@triton.jit
def max_transition_score(scores, S, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Return the largest of scores[S, S], and 0 if all are -inf."""
    b_top = tl.full([BLOCK], float("-inf"), scores.dtype.element_ty)
    for first in range(0, S, ROWS):
        i = first + tl.arange(0, ROWS)
        b_top = tl.maximum(b_top, tl.max(load_tile(scores, i, S, BLOCK), 0))
    return zero_if_neg_inf(tl.max(b_top, 0))


@triton.jit
def load_exp_tile(
    score_ptr, exp_ptr, max_score, i, S, IS_EXP: tl.constexpr, BLOCK: tl.constexpr
):
    """Return exp(scores - top) of the rows i, 0 outside: [ROWS, BLOCK]."""
    if IS_EXP:
        return tl.maximum(load_tile(exp_ptr, i, S, BLOCK), 0.0)
    else:
        return tl.exp(load_tile(score_ptr, i, S, BLOCK) - max_score)
