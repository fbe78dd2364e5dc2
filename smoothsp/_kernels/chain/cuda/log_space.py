"""Sum-product on chains in log space and float64, for scores of any range.

The forward pass computes messages a, and optionally the conditional means of V over
the prefix, or the entropies H of the prefix, given the last state:

    a_t(j)        = e_t(j) + log sum_i exp(a_{t-1}(i) + s(i, j)) - log_norm_t
    prefix_t(j)   = v_t(j) + sum_i P(i | j) (prefix_{t-1}(i) + v(i, j))
    H_t(j)        = sum_i P(i | j) (H_{t-1}(i) - log P(i | j))

with ``P(i | j) ~ exp(a_{t-1}(i) + s(i, j))``, and log_norm_t the log-sum-exp of a_t. V
is the sum of the weights v over the parts that y uses. The backward pass computes, for
t from the last step on,

    b_{t-1}(i)    = log sum_j exp(s(i, j) + e_t(j) + b_t(j)) - max b_{t-1}
    nodes_t(j)    = exp(a_t(j) + b_t(j) - z_t)
    edges_t(i, j) = exp(a_{t-1}(i) + s(i, j) + e_t(j) + b_t(j) - z_t)

with z_t such that both sum to 1, and the covariances of the parts with V,

    suffix_t(i)   = sum_j P(j | i) (v(i, j) + v_{t+1}(j) + suffix_{t+1}(j))
    Cov(i, j)     = P(i, j) (prefix_{t-1}(i) + v(i, j) + v_t(j) + suffix_t(j) - E[V])
    Cov(j)        = P(j) (prefix_t(j) + suffix_t(j) - E[V])

Edges are computed last, tile by tile of the transitions, so that sums over time stay in
registers.

Used for rows out of range of the scaled recursion, and for results that training does
not need at every step: entropies, samples, second derivatives.
"""

import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

from smoothsp._kernels.chain.cuda.blocks import (
    edge_ptr,
    load_tile,
    log_backward_step,
    log_forward_step,
    logsumexp,
    state_mask,
    transition_ptr,
    zero_if_neg_inf,
)

# Mean that a forward pass carries along with the messages.
NOTHING, PREFIX_MEAN, ENTROPY = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def forward_row(
    b,
    N,
    emissions,
    transitions,
    start,
    steps,
    v_nodes,
    v_edges,
    v_start,
    alphas,
    means,
    T,
    S,
    CARRIED: tl.constexpr,
    SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Fill alphas[N, S], and means[N, S] with prefix_t or H_t as ``CARRIED`` states.

    Entropies need the previous step only: alphas and means are then [2, S], step n at
    ``n % 2``. Returns the last message, its mean, and the sum of all log_norm_t.
    """
    o = tl.arange(0, BLOCK)
    m = o < S
    real = state_mask(N > 0, S, BLOCK)
    emissions += b * T * S
    v_nodes += b * T * S
    steps += b * T
    t = tl.load(steps, mask=N > 0, other=0)
    b_alpha = tl.load(start + o, mask=m, other=float("-inf")).to(tl.float64)  # [BLOCK]
    b_alpha += tl.load(emissions + t * S + o, mask=real, other=float("-inf"))
    log_scale = logsumexp(b_alpha)
    b_alpha -= zero_if_neg_inf(log_scale)
    b_mean = tl.zeros([BLOCK], tl.float64)
    if CARRIED == PREFIX_MEAN:
        b_mean += tl.load(v_start + b * S + o, mask=real, other=0.0)
        b_mean += tl.load(v_nodes + t * S + o, mask=real, other=0.0)
    tl.store(alphas + o, b_alpha, mask=real)
    if CARRIED != NOTHING:
        tl.store(means + o, b_mean, mask=real)
    for n in range(1, N):
        t = tl.load(steps + n)
        scores = transition_ptr(transitions, b, t, T, S, SHARED)
        v = edge_ptr(v_edges, b, t, T, S, SHARED)
        before, now = (n - 1) * S, n * S
        if CARRIED == ENTROPY:
            # alternating halves: no thread overwrites a message that is still read
            before, now = (n - 1) % 2 * S, n % 2 * S
        tl.debug_barrier()
        if CARRIED == NOTHING:
            b_alpha = log_forward_step(alphas + before, scores, S, BLOCK, ROWS)
        else:
            b_alpha, b_mean = _log_forward_step_with_mean(
                alphas + before, means + before, scores, v, S, CARRIED, BLOCK, ROWS
            )
        b_alpha += tl.load(emissions + t * S + o, mask=m, other=float("-inf"))
        norm = logsumexp(b_alpha)
        log_scale += norm
        b_alpha -= zero_if_neg_inf(norm)
        tl.store(alphas + now + o, b_alpha, mask=m)
        if CARRIED == PREFIX_MEAN:
            b_mean += tl.load(v_nodes + t * S + o, mask=m, other=0.0)
        if CARRIED != NOTHING:
            tl.store(means + now + o, b_mean, mask=m)
    return b_alpha, b_mean, log_scale


@triton.jit
def _log_forward_step_with_mean(
    alpha,
    mean,
    scores,
    v,
    S,
    CARRIED: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Return ``log sum_i exp(alpha(i) + scores(i, j))``, and a mean: both [BLOCK].

    The mean is that of ``prefix(i) + v(i, j)`` or of ``H(i) - log P(i | j)`` under
    ``P(i | j)``. A separate pass computes the largest term, which scales both sums.
    """
    j = tl.arange(0, BLOCK)
    b_peak = tl.full([BLOCK], float("-inf"), tl.float64)
    for first in range(0, S, ROWS):
        i = first + tl.arange(0, ROWS)
        b_from = tl.load(alpha + i, mask=i < S, other=float("-inf"))
        b_x = b_from[:, None] + load_tile(scores, i, S, BLOCK)  # [ROWS, BLOCK]
        b_peak = tl.maximum(b_peak, tl.max(b_x, 0))
    b_shift = zero_if_neg_inf(b_peak)
    b_total = tl.zeros([BLOCK], tl.float64)
    b_sum = tl.zeros([BLOCK], tl.float64)
    for first in range(0, S, ROWS):
        i = first + tl.arange(0, ROWS)
        b_from = tl.load(alpha + i, mask=i < S, other=float("-inf"))
        b_mean = tl.load(mean + i, mask=i < S, other=0.0)
        b_x = b_from[:, None] + load_tile(scores, i, S, BLOCK) - b_shift[None, :]
        b_weight = tl.exp(b_x)
        b_total += tl.sum(b_weight, 0)
        if CARRIED == PREFIX_MEAN:
            inside = (i[:, None] < S) & (j[None, :] < S)
            b_v = tl.load(v + i[:, None] * S + j[None, :], mask=inside, other=0.0)
            b_sum += tl.sum(b_weight * (b_mean[:, None] + b_v), 0)
        else:
            # log P(i | j) = x - log(total); log(total) is added once, after the loop
            b_sum += tl.sum(b_weight * (b_mean[:, None] - zero_if_neg_inf(b_x)), 0)
    b_total = tl.where(b_peak > float("-inf"), b_total, 1.0)
    b_mean = b_sum / b_total
    if CARRIED == ENTROPY:
        b_mean += tl.log(b_total)
    return b_peak + tl.log(b_total), b_mean


@triton.jit
def forward_backward_row(
    b,
    N,
    emissions,
    transitions,
    start,
    end,
    steps,
    alphas,
    beta_emissions,
    beta,
    value,
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
    """Fill value[b] and the marginals of row b, of N > 0 positions, in float64.

    A row without a feasible output gets -inf and zero marginals. Scratch, in float64:
    alphas[T, S], beta_emissions[T, S] and beta[S].
    """
    b_alpha, b_mean, log_scale = forward_row(
        b, N, emissions, transitions, start, steps, emissions, transitions, start,
        alphas, alphas, T, S, NOTHING, SHARED, BLOCK, ROWS,
    )  # fmt: skip
    log_z = backward_row(
        b, N, b_alpha, b_mean, emissions, transitions, end, steps,
        emissions, transitions, end, alphas, alphas, beta_emissions, beta_emissions,
        beta,
        nodes, edges, start_marginals, end_marginals, T, S, False, SHARED, BLOCK, ROWS,
    )  # fmt: skip
    tl.store(value + b, log_scale + log_z)


@triton.jit
def backward_row(
    b,
    N,
    b_alpha,
    b_prefix_mean,
    emissions,
    transitions,
    end,
    steps,
    v_nodes,
    v_edges,
    v_end,
    alphas,
    prefix_means,
    beta_emissions,
    next_suffix_means,
    beta_scratch,
    nodes,
    edges,
    start_marginals,
    end_marginals,
    T,
    S,
    COVARIANCE: tl.constexpr,
    SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Fill the marginals, or their covariances with V, from a forward pass.

    Scratch: ``beta_emissions[N, S]``, where row n gets ``e_t(j) + b_t(j) - z_t`` of
    step n; for covariances also ``next_suffix_means[N, S]``, ``v_t(j) + suffix_t(j) -
    E[V]``; ``beta_scratch``, [2, S] for covariances, else [S]. Returns
    ``log sum_j exp(a(j) + b(j))`` at the last step.
    """
    o = tl.arange(0, BLOCK)
    m = o < S
    real = state_mask(N > 0, S, BLOCK)
    emissions += b * T * S
    nodes += b * T * S
    v_nodes += b * T * S
    steps += b * T
    b_beta = tl.load(end + o, mask=m, other=float("-inf")).to(tl.float64)  # [BLOCK]
    log_z = logsumexp(b_alpha + b_beta)
    b_value = tl.exp(b_alpha + b_beta - zero_if_neg_inf(log_z))
    if COVARIANCE:
        b_suffix_mean = tl.load(v_end + b * S + o, mask=real, other=0.0).to(tl.float64)
        mean = tl.sum(b_value * (b_prefix_mean + b_suffix_mean), 0)
        b_value *= b_prefix_mean + b_suffix_mean - mean
    t = tl.load(steps + N - 1, mask=N > 0, other=0)
    tl.store(nodes + t * S + o, b_value, mask=real)
    tl.store(end_marginals + b * S + o, b_value, mask=m)
    for n in range(N - 1, 0, -1):
        t = tl.load(steps + n)
        scores = transition_ptr(transitions, b, t, T, S, SHARED)
        b_beta_emission = b_beta + tl.load(
            emissions + t * S + o, mask=m, other=float("-inf")
        )
        if COVARIANCE:
            b_next_suffix_mean = b_suffix_mean + tl.load(
                v_nodes + t * S + o, mask=m, other=0.0
            )
        tl.debug_barrier()
        if COVARIANCE:
            v = edge_ptr(v_edges, b, t, T, S, SHARED)
            _log_backward_step_with_mean(
                scores,
                v,
                b_beta_emission,
                b_next_suffix_mean,
                beta_scratch,
                S,
                BLOCK,
                ROWS,
            )
        else:
            log_backward_step(scores, b_beta_emission, beta_scratch, S, BLOCK, ROWS)
        tl.debug_barrier()
        b_beta = tl.load(beta_scratch + o, mask=m, other=float("-inf"))
        b_x = b_beta + tl.load(alphas + (n - 1) * S + o, mask=m, other=float("-inf"))
        z = zero_if_neg_inf(logsumexp(b_x))
        b_value = tl.exp(b_x - z)
        tl.store(beta_emissions + n * S + o, b_beta_emission - z, mask=m)
        if COVARIANCE:
            b_suffix_mean = tl.load(beta_scratch + S + o, mask=m, other=0.0)
            b_prefix_mean = tl.load(prefix_means + (n - 1) * S + o, mask=m, other=0.0)
            b_value *= b_prefix_mean + b_suffix_mean - mean
            tl.store(next_suffix_means + n * S + o, b_next_suffix_mean - mean, mask=m)
        before = tl.load(steps + n - 1)
        tl.store(nodes + before * S + o, b_value, mask=m)
        b_beta -= zero_if_neg_inf(tl.max(b_beta, 0))
    tl.store(start_marginals + b * S + o, b_value, mask=m)

    # time is the inner loop: a tile of edges summed over time stays in registers
    tl.debug_barrier()
    for first in range(0, S, ROWS):
        i = first + tl.arange(0, ROWS)
        cells = i[:, None] * S + o[None, :]
        inside = (i[:, None] < S) & m[None, :]
        b_sum = tl.zeros([ROWS, BLOCK], tl.float64)
        for n in range(1, N):
            t = tl.load(steps + n)
            scores = transition_ptr(transitions, b, t, T, S, SHARED)
            b_from = tl.load(alphas + (n - 1) * S + i, mask=i < S, other=float("-inf"))
            b_to = tl.load(beta_emissions + n * S + o, mask=m, other=float("-inf"))
            b_edge = load_tile(scores, i, S, BLOCK) + b_from[:, None] + b_to[None, :]
            b_edge = tl.exp(b_edge)
            if COVARIANCE:
                b_from = tl.load(prefix_means + (n - 1) * S + i, mask=i < S, other=0.0)
                b_to = tl.load(next_suffix_means + n * S + o, mask=m, other=0.0)
                v = edge_ptr(v_edges, b, t, T, S, SHARED)
                b_v = tl.load(v + cells, mask=inside, other=0.0)
                b_edge *= b_from[:, None] + b_v + b_to[None, :]
            if SHARED:
                b_sum += b_edge
            else:
                out_ptr = edge_ptr(edges, b, t, T, S, SHARED)
                tl.store(out_ptr + cells, b_edge, mask=inside)
        if SHARED:
            tl.store(edges + b * S * S + cells, b_sum, mask=inside)
    return log_z


@triton.jit
def _log_backward_step_with_mean(
    scores,
    v,
    b_beta_emission,
    b_next_suffix_mean,
    out,
    S,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Fill out[2, S]: ``log sum_j exp(scores(i, j) + beta_emission(j))``, and a mean.

    The mean is that of ``v(i, j) + next_suffix_mean(j)`` under ``P(j | i)``.
    """
    j = tl.arange(0, BLOCK)
    for first in range(0, S, ROWS):
        i = first + tl.arange(0, ROWS)
        inside = (i[:, None] < S) & (j[None, :] < S)
        b_v = tl.load(v + i[:, None] * S + j[None, :], mask=inside, other=0.0)
        b_x = load_tile(scores, i, S, BLOCK) + b_beta_emission[None, :]  # [ROWS, BLOCK]
        b_peak = tl.max(b_x, 1)
        b_weight = tl.exp(b_x - zero_if_neg_inf(b_peak)[:, None])
        b_total = tl.where(b_peak > float("-inf"), tl.sum(b_weight, 1), 1.0)
        b_mean = tl.sum(b_weight * (b_v + b_next_suffix_mean[None, :]), 1) / b_total
        tl.store(out + i, b_peak + tl.log(b_total), mask=i < S)
        tl.store(out + S + i, b_mean, mask=i < S)
