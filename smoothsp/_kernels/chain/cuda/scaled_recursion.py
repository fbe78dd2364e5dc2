"""Scaled forward-backward recursion on chains, of a row or of a chunk of its steps.

With ``E = exp(s - max s)`` and ``w_t(j) = exp(e_t(j) - max e_t)``, the forward pass is

    a_t(j)           = w_t(j) sum_i a_{t-1}(i) E(i, j) / c_t

with c_t such that a_t sums to 1. The backward pass is, for t from the last step on,

    b_{t-1}(i)       = sum_j E(i, j) w_t(j) b_t(j)
    nodes_{t-1}(i)   = a_{t-1}(i) b_{t-1}(i) / z_t,   z_t = sum_i a_{t-1}(i) b_{t-1}(i)
    edges_t(i, j)    = a_{t-1}(i) E(i, j) w_t(j) b_t(j) / z_t

and b_{t-1} is then divided by its largest entry. Edges of each step are written at that
step. Edges summed over time are ``E(i, j) sum_t a_{t-1}(i) w_t(j) b_t(j) / z_t``, which
``sum_edges`` computes in a second pass: a tile of sums then stays in registers for all
steps.

One program of many threads computes a row. A recursion in log space spends most of its
time on exponentials of transitions; here they are computed once.
"""

import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

from smoothsp._kernels.chain.cuda.blocks import (
    edge_ptr,
    load_exp_tile,
    load_exp_transitions,
    log_scaled,
    max_transition_score,
    multiply_scaled,
    state_mask,
    transition_ptr,
    zero_if_neg_inf,
)

# Steps of a partial sum of edges, in the dtype; partial sums are added in float64.
FLUSH_STEPS = tl.constexpr(64)


@triton.jit
def forward_row(
    b,
    N,
    b_alpha,
    emissions,
    transitions,
    steps,
    exp_transitions,
    shared_max,
    min_scale,
    alphas,
    weights,
    T,
    S,
    SHARED: tl.constexpr,
    RESIDENT: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Fill alphas[N - 1, S] and weights[1:N, S], w_t, from the first alpha on.

    Returns the last alpha, which is not stored; the log-scale, ``sum_t (log c_t +
    max e_t + max s)``; and whether all c_t are at least ``min_scale``. The position of
    a step is loaded two steps ahead and its scores one step ahead, so that loads and
    arithmetic overlap.
    """
    dtype = emissions.dtype.element_ty
    o = tl.arange(0, BLOCK)
    m = o < S
    row = emissions + b * T * S
    steps += b * T
    tl.store(alphas + o, b_alpha, mask=state_mask(N > 1, S, BLOCK))
    t = tl.load(steps + 1, mask=N > 1, other=0)
    b_next = tl.load(
        row + t * S + o, mask=state_mask(N > 1, S, BLOCK), other=float("-inf")
    )  # [BLOCK]
    t_next = tl.load(steps + 2, mask=N > 2, other=0)
    if SHARED:
        if RESIDENT:
            b_exp_transitions, max_score = load_exp_transitions(
                transitions, S, BLOCK
            )  # [BLOCK, BLOCK]
        else:
            max_score = tl.load(shared_max)
    is_safe = N >= 0
    log_scale = tl.full([], 0.0, tl.float64)
    # the product of all c_t, as m 2^e: one logarithm a row instead of one a step
    m_c, e_c = tl.full([], 1.0, tl.float64), tl.full([], 0, tl.int64)
    for n in range(1, N):
        b_e = b_next
        more = state_mask(n + 1 < N, S, BLOCK)
        b_next = tl.load(row + t_next * S + o, mask=more, other=float("-inf"))
        scores = transition_ptr(transitions, b, t, T, S, SHARED)
        t = t_next
        t_next = tl.load(steps + n + 2, mask=n + 2 < N, other=0)
        if RESIDENT:
            if not SHARED:
                b_exp_transitions, max_score = load_exp_transitions(scores, S, BLOCK)
            b_into = tl.sum(b_alpha[:, None] * b_exp_transitions, 0)
        else:
            if not SHARED:
                max_score = max_transition_score(scores, S, BLOCK, ROWS)
            tl.debug_barrier()
            b_into = tl.zeros([BLOCK], dtype)
            for first in range(0, S, ROWS):
                i = first + tl.arange(0, ROWS)
                b_a = tl.load(alphas + (n - 1) * S + i, mask=i < S, other=0.0)
                b_tile = load_exp_tile(
                    scores, exp_transitions, max_score, i, S, SHARED, BLOCK
                )
                b_into += tl.sum(b_a[:, None] * b_tile, 0)
        peak = zero_if_neg_inf(tl.max(b_e, 0))
        b_weight = tl.exp(b_e - peak)
        b_into *= b_weight
        c = tl.sum(b_into, 0)
        is_safe = is_safe & (c >= min_scale)
        # an unsafe row is computed again in log space: no division by 0 meanwhile
        c = tl.where(c >= min_scale, c, 1.0)
        b_alpha = b_into / c
        tl.store(alphas + n * S + o, b_alpha, mask=more)
        tl.store(weights + n * S + o, b_weight, mask=m)
        log_scale += peak.to(tl.float64) + max_score.to(tl.float64)
        m_c, e_c = multiply_scaled(m_c, e_c, c)
    return b_alpha, log_scale + log_scaled(m_c, e_c), is_safe


@triton.jit
def backward_row(
    b,
    N,
    transitions,
    steps,
    exp_transitions,
    shared_max,
    min_scale,
    alphas,
    beta_emissions,
    b_beta,
    b_node,
    is_safe,
    nodes,
    edges,
    T,
    S,
    SHARED: tl.constexpr,
    RESIDENT: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Fill the nodes before the last, and the edges of each step.

    ``beta_emissions[1:N, S]`` holds w_t on entry. With shared transitions it gets
    ``w_t b_t / z_t``, from which ``sum_edges`` computes the edges. Row T of it is
    scratch. Returns the first node, and whether all z_t are at least ``min_scale``.
    """
    o = tl.arange(0, BLOCK)
    m = o < S
    steps += b * T
    beta_scratch = beta_emissions + T * S
    t = tl.load(steps + N - 1, mask=N > 0, other=0)
    b_weight = tl.load(
        beta_emissions + (N - 1) * S + o, mask=state_mask(N > 1, S, BLOCK), other=0.0
    )  # [BLOCK]
    b_a = tl.load(alphas + (N - 2) * S + o, mask=state_mask(N > 1, S, BLOCK), other=0.0)
    if SHARED:
        if RESIDENT:
            b_exp_transitions, max_score = load_exp_transitions(
                transitions, S, BLOCK
            )  # [BLOCK, BLOCK]
        else:
            max_score = tl.load(shared_max)
    # weights and alphas are loaded one step ahead
    for n in range(N - 1, 0, -1):
        b_beta_emission = b_weight * b_beta
        b_before = b_a
        b_weight = tl.load(
            beta_emissions + (n - 1) * S + o,
            mask=state_mask(n > 1, S, BLOCK),
            other=0.0,
        )
        b_a = tl.load(
            alphas + (n - 2) * S + o, mask=state_mask(n > 1, S, BLOCK), other=0.0
        )
        scores = transition_ptr(transitions, b, t, T, S, SHARED)
        out_ptr = edge_ptr(edges, b, t, T, S, SHARED)
        t = tl.load(steps + n - 1)
        if RESIDENT:
            if not SHARED:
                b_exp_transitions, max_score = load_exp_transitions(scores, S, BLOCK)
            b_beta = tl.sum(b_exp_transitions * b_beta_emission[None, :], 1)
        else:
            if not SHARED:
                max_score = max_transition_score(scores, S, BLOCK, ROWS)
            tl.debug_barrier()
            for first in range(0, S, ROWS):
                i = first + tl.arange(0, ROWS)
                b_tile = load_exp_tile(
                    scores, exp_transitions, max_score, i, S, SHARED, BLOCK
                )
                tl.store(
                    beta_scratch + i,
                    tl.sum(b_tile * b_beta_emission[None, :], 1),
                    mask=i < S,
                )
            tl.debug_barrier()
            b_beta = tl.load(beta_scratch + o, mask=m, other=0.0)
        b_node = b_before * b_beta
        z = tl.sum(b_node, 0)
        is_safe = is_safe & (z >= min_scale)
        z = tl.where(z >= min_scale, z, 1.0)
        b_node = b_node / z
        tl.store(nodes + (b * T + t) * S + o, b_node, mask=m)
        if SHARED:
            # overwrites w_t, once every thread has read it
            tl.debug_barrier()
            tl.store(beta_emissions + n * S + o, b_beta_emission / z, mask=m)
        else:
            for first in range(0, S, ROWS):
                i = first + tl.arange(0, ROWS)
                b_from = tl.load(alphas + (n - 1) * S + i, mask=i < S, other=0.0) / z
                b_tile = load_exp_tile(
                    scores, exp_transitions, max_score, i, S, SHARED, BLOCK
                )
                b_tile = b_from[:, None] * b_tile * b_beta_emission[None, :]
                inside = (i[:, None] < S) & m[None, :]
                tl.store(out_ptr + i[:, None] * S + o[None, :], b_tile, mask=inside)
        peak = tl.max(b_beta, 0)
        b_beta = b_beta / tl.where(peak > 0, peak, 1.0)
    return b_node, is_safe


@triton.jit
def sum_edges(
    b,
    N,
    transitions,
    exp_transitions,
    shared_max,
    alphas,
    beta_emissions,
    edges,
    S,
    RESIDENT: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Fill edges of a row: ``E(i, j) sum_t a_{t-1}(i) beta_emissions_t(j)``, [S, S]."""
    dtype = alphas.dtype.element_ty
    o = tl.arange(0, BLOCK)
    m = o < S
    max_score = (
        max_transition_score(transitions, S, BLOCK, ROWS)
        if RESIDENT
        else tl.load(shared_max)
    )
    for first in range(0, S, ROWS):
        i = first + tl.arange(0, ROWS)
        b_total = tl.zeros([ROWS, BLOCK], tl.float64)
        for begin in range(1, N, FLUSH_STEPS):
            b_sum = tl.zeros([ROWS, BLOCK], dtype)
            for n in range(begin, tl.minimum(begin + FLUSH_STEPS, N)):
                b_a = tl.load(alphas + (n - 1) * S + i, mask=i < S, other=0.0)
                b_beta_emission = tl.load(beta_emissions + n * S + o, mask=m, other=0.0)
                b_sum += b_a[:, None] * b_beta_emission[None, :]
            b_total += b_sum
        b_total *= load_exp_tile(
            transitions, exp_transitions, max_score, i, S, not RESIDENT, BLOCK
        )
        inside = (i[:, None] < S) & m[None, :]
        cells = i[:, None] * S + o[None, :]
        tl.store(edges + b * S * S + cells, b_total, mask=inside)
