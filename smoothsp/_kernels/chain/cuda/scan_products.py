"""Products of transitions over chunks of time, and the messages between chunks.

Chunk c of a row holds the steps ``c L + 1`` to ``(c + 1) L``. Its product maps the
forward message at ``c L`` to that at ``(c + 1) L``. With E and w of
``chain.cuda.scaled_recursion``,

    product     P_c(i, j) = (prod_n E_n diag(w_n))(i, j) = exp(l(i)) p(i, j)
    forward     a_{c+1}(j) ~ sum_i a_c(i) exp(l(i)) p(i, j)
    backward    b_c(i) ~ exp(l(i)) sum_j p(i, j) b_{c+1}(j)

with l(i) such that row i of p sums to 1. Each a sums to 1, and the largest b is 1.

Row i of a product is a forward message from state i, scaled at every step. Let
``pi_i`` be the fraction of the forward mass that passes through state i; these
fractions sum to 1. A factor below ``tiny`` that is flushed in row i costs at most
``pi_i tiny``. So the products lose no more of a ``z_t`` than the recursion does: both
are safe where every ``z_t`` is at least the bound of the recursion.
"""

import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

from smoothsp._kernels.chain.cuda.blocks import (
    load_exp_transitions,
    log_scaled,
    multiply_scaled,
    state_mask,
    transition_ptr,
    zero_if_neg_inf,
)


@triton.jit(do_not_specialize=["T", "L", "chunks"])
def chunk_products_kernel(
    emissions,
    transitions,
    steps,
    lengths,
    products,
    scales,
    T,
    S,
    L,
    chunks,
    num_row_groups,
    SHARED: tl.constexpr,
    TINY: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Fill products p[B, C, S, S] and their scales l[B, C, S], ROWS rows a program.

    From p = I and l = 0, step by step: ``p <- p E_n diag(w_n)``, then each row is
    divided by its sum c, and ``l <- l + log c``; a row with c below ``tiny`` becomes 0.
    Rows of p are independent, so several programs compute a chunk. l omits ``max s``
    and ``max e_n``, the factors of E and w: they are equal in all rows, and messages
    are normalised afterwards.
    """
    dtype = emissions.dtype.element_ty
    p = tl.program_id(0).to(tl.int64)
    T = T.to(tl.int64)
    c = p // num_row_groups % chunks
    b = p // num_row_groups // chunks
    N = tl.load(lengths + b)
    first = c * L
    last = tl.minimum(first + L, N - 1)
    o = tl.arange(0, BLOCK)
    m = o < S
    i = p % num_row_groups * ROWS + tl.arange(0, ROWS)
    row_ptr = emissions + b * T * S
    steps += b * T
    b_p = (i[:, None] == o[None, :]).to(dtype)  # [ROWS, BLOCK]
    b_log = tl.zeros([ROWS], tl.float64)
    # the product of all b_c, as m 2^e
    b_m, b_e_c = tl.full([ROWS], 1.0, tl.float64), tl.zeros([ROWS], tl.int64)
    if SHARED:
        b_exp_transitions, _ = load_exp_transitions(
            transitions, S, BLOCK
        )  # [BLOCK, BLOCK]
    # t and b_e are loaded one step ahead
    t = tl.load(steps + first + 1, mask=first + 1 <= last, other=0)
    mask_real = state_mask(first + 1 <= last, S, BLOCK)
    b_next = tl.load(row_ptr + t * S + o, mask=mask_real, other=float("-inf"))
    t_next = tl.load(steps + first + 2, mask=first + 2 <= last, other=0)
    for n in range(first + 1, last + 1):
        b_e = b_next
        mask_real = state_mask(n < last, S, BLOCK)
        b_next = tl.load(row_ptr + t_next * S + o, mask=mask_real, other=float("-inf"))
        if not SHARED:
            scores = transition_ptr(transitions, b, t, T, S, SHARED)
            b_exp_transitions, _ = load_exp_transitions(scores, S, BLOCK)
        t = t_next
        t_next = tl.load(steps + n + 2, mask=n + 2 <= last, other=0)
        b_weight = tl.exp(b_e - zero_if_neg_inf(tl.max(b_e, 0)))
        b_p = tl.dot(b_p, b_exp_transitions, input_precision="ieee", out_dtype=dtype)
        b_p *= b_weight[None, :]
        b_c = tl.sum(b_p, 1)
        b_nonzero = b_c >= TINY
        b_c = tl.where(b_nonzero, b_c, 1.0)
        b_p = tl.where(b_nonzero[:, None], b_p / b_c[:, None], 0.0)
        b_log = tl.where(b_nonzero, b_log, float("-inf"))
        b_m, b_e_c = multiply_scaled(b_m, b_e_c, b_c)
    row_index = (b * chunks + c) * S + i
    tl.store(scales + row_index, b_log + log_scaled(b_m, b_e_c), mask=i < S)
    inside = (i[:, None] < S) & m[None, :]
    tl.store(products + row_index[:, None] * S + o[None, :], b_p, mask=inside)


@triton.jit(do_not_specialize=["T", "L", "chunks"])
def chunk_messages_kernel(
    emissions,
    start,
    end,
    steps,
    lengths,
    products,
    scales,
    forward_messages,
    backward_messages,
    log_z_terms,
    T,
    S,
    L,
    chunks,
    BLOCK: tl.constexpr,
):
    """Fill forward_messages[B, C, S] and backward_messages[B, C, S].

    One program computes a row, chunk after chunk, in float64. ``exp(l)`` may be out of
    range, so it multiplies a message in log space. ``log_z_terms[b, C]`` gets the log
    of the scale of the first forward message.
    """
    b = tl.program_id(0).to(tl.int64)
    T = T.to(tl.int64)
    N = tl.load(lengths + b)
    o = tl.arange(0, BLOCK)
    m = o < S
    mask_real = state_mask(N > 0, S, BLOCK)
    products += b * chunks * S * S
    scales += b * chunks * S
    forward_messages += b * chunks * S
    backward_messages += b * chunks * S
    cells = o[:, None] * S + o[None, :]
    inside = m[:, None] & m[None, :]
    last = tl.maximum((N - 2) // L, 0)

    t = tl.load(steps + b * T, mask=N > 0, other=0)
    b_e = tl.load(emissions + (b * T + t) * S + o, mask=mask_real, other=float("-inf"))
    b_e += tl.load(start + o, mask=m, other=float("-inf"))
    peak = zero_if_neg_inf(tl.max(b_e, 0)).to(tl.float64)
    b_a = tl.exp(b_e.to(tl.float64) - peak)  # [BLOCK]
    total = tl.sum(b_a, 0)
    total = tl.where(total > 0, total, 1.0)
    b_a = b_a / total
    scale = tl.where(N > 0, peak + tl.log(total), 0.0)
    tl.store(log_z_terms + b * (chunks + 1) + chunks, scale)
    tl.store(forward_messages + o, b_a, mask=m)
    for c in range(0, last):
        b_scale = tl.load(scales + c * S + o, mask=m, other=float("-inf"))
        b_p = tl.load(products + c * S * S + cells, mask=inside, other=0.0)
        b_log_message = log_or_neg_inf(b_a) + b_scale
        b_log_message = tl.exp(
            b_log_message - zero_if_neg_inf(tl.max(b_log_message, 0))
        )
        b_a = tl.sum(b_log_message[:, None] * b_p, 0)
        total = tl.sum(b_a, 0)
        b_a = b_a / tl.where(total > 0, total, 1.0)
        tl.store(forward_messages + (c + 1) * S + o, b_a, mask=m)

    b_end = tl.load(end + o, mask=m, other=float("-inf")).to(tl.float64)
    b_b = tl.exp(b_end - zero_if_neg_inf(tl.max(b_end, 0)))
    tl.store(backward_messages + last * S + o, b_b, mask=m)
    for reverse_index in range(0, last):
        c = last - reverse_index
        b_scale = tl.load(scales + c * S + o, mask=m, other=float("-inf"))
        b_p = tl.load(products + c * S * S + cells, mask=inside, other=0.0)
        b_log_message = log_or_neg_inf(tl.sum(b_p * b_b[None, :], 1)) + b_scale
        b_b = tl.exp(b_log_message - zero_if_neg_inf(tl.max(b_log_message, 0)))
        tl.store(backward_messages + (c - 1) * S + o, b_b, mask=m)


@triton.jit
def log_or_neg_inf(b_x):
    """Return ``log x``, -inf where x is 0, for x >= 0."""
    mask_real = b_x > 0
    return tl.where(mask_real, tl.log(tl.where(mask_real, b_x, 1.0)), float("-inf"))
