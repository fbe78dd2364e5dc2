"""Log-partition, marginals, samples, entropy and covariances of a chain, in float64.

The labels of a row are a Markov chain backwards in time. The forward pass computes the
distribution of the last state, and of each state given the next,

    P_n(i | j) = a_{n-1}(i) E_n(i, j) / c_n(j),   c_n(j) = sum_i a_{n-1}(i) E_n(i, j),

where ``E = exp(transitions - max)``, and ``a_n(j)`` is ``c_n(j)`` times the exponential
of the emission, divided by the maximum over j. Each result is an expectation under that
Markov chain, a sum without cancellation. For V(y), the sum of weights v over the parts
that y uses,

    past_n(j)       = v_n(j) + sum_i P_n(i | j) (past_{n-1}(i) + v_n(i, j))
    P(y_n = i)      = sum_j P_{n+1}(i | j) P(y_{n+1} = j)
    Cov(part, V)    = P(part) (E[V | part] - E[V])
    H_n(j)          = sum_i P_n(i | j) (H_{n-1}(i) - log P_n(i | j))

The logarithms of a are stored, too. A column with ``c_n(j) < MIN_COLUMN_SUM`` may have
lost terms to underflow and is recomputed from them in log space. So results are
accurate for scores of any range, and in the normal range no exponential per transition
is needed. Vectors go over the states j. Rows of scratch are P numbers long: S, rounded
up to whole vectors.

Used for rows that exceed the range of ``chain.cpu.forward_backward`` and
``chain.cpu.steps``, and for results that need ``P_n(i | j)``.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from smoothsp._kernels.chain.cpu.records import Chain
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays, double_double
from smoothsp._kernels.vectors.exponentials import fill_exp_minus_max
from smoothsp._kernels.vectors.simd import (
    fma,
    get_number,
    load,
    maximum,
    put_number,
    select_lt,
    span,
    splat,
    splat_at,
    store,
)
from smoothsp._kernels.vectors.simd_exp import exp, log
from smoothsp._kernels.vectors.simd_masked import (
    load_masked,
    reduce_max,
    reduce_sum,
    store_masked,
)

# Column sums above this lose less than a rounding error to underflow.
MIN_COLUMN_SUM = np.float64(1e-280)
# If the maximum of a, before normalisation, is below this, the position is recomputed
# in log space: an exponential of an emission that underflowed may matter.
MIN_MAX_ALPHA = 1e-10
# Lanes of a vector of float64, and constants as float64 scalars.
V = 8
ZERO, HALF, ONE = np.float64(0), np.float64(0.5), np.float64(1)
NEG_INF = np.float64(-np.inf)
# Replaces -inf, since 0 times -inf is NaN.
LOWEST_FINITE = np.float64(-1e300)


class ForwardScratch(NamedTuple):
    """Scratch and results of the forward pass of one row."""

    exp_transitions: Any  # [S, P], E of one step
    max_transitions: Any  # [T], the maximum subtracted from it
    source_factors: Any  # [P]
    column_factors: Any  # [P]
    conditionals: Any  # [S, P], P of one step, if a column is computed in log space
    edge_scratch: Any  # [S, P], logs of E, or sums of edges over time
    padding: Any  # [P], 1 past S
    zeros: Any  # [V]
    alphas: Any  # [T, P], a
    logs: Any  # [T, P], log a
    column_sums: Any  # [T, P], c, or 0 if computed in log space
    log_column_sums: Any  # [T, P], log c
    last_distribution: Any  # [P], the distribution of the last state
    finite_logs: Any  # [P]


@kernel
def forward_backward(first, last, rows, chain, value, out):
    """Fill value[B, 2], the log-partition, and the marginals of rows[first:last].

    Those are nodes[B, T, S]; edges[B, T - 1, S, S] or, added up over time,
    [B, 1, S, S]; start and end marginals [B, S], the first and the last of the nodes. A
    row without an output has -inf and zeros.
    """
    chain = Chain(*chain)
    scratch = _make_scratch(chain)
    for b in rows[first:last]:
        value[b, 0], value[b, 1] = _forward_pass(b, chain, scratch)
        _fill_expectations(
            b, value[b, 0] > -np.inf, chain, scratch, None, None, None, out
        )


@kernel
def covariance(first, last, rows, chain, weights, out):
    """Fill ``out`` with the covariances of the parts with V, a sum of ``weights``.

    Of rows[first:last]. Both have the shapes of the marginals of ``sums``.
    """
    chain = Chain(*chain)
    scratch = _make_scratch(chain)
    prefix_mean, subtracted = (
        arrays.zeros(scratch.alphas.shape),
        arrays.zeros(len(scratch.max_transitions)),
    )
    for b in rows[first:last]:
        log_z, _ = _forward_pass(b, chain, scratch)
        if log_z > -np.inf:
            _fill_prefix_means(b, chain, scratch, weights, prefix_mean, subtracted)
        _fill_expectations(
            b, log_z > -np.inf, chain, scratch, weights, prefix_mean, subtracted, out
        )


@kernel
def entropy(first, last, rows, chain, value):
    """Fill value[B] with the entropy of rows[first:last], in nats.

    The term of the likeliest state is ``_entropy_term_of_max_prob``.
    """
    chain = Chain(*chain)
    scratch = _make_scratch(chain)
    S, P = chain.emissions.shape[2], len(scratch.last_distribution)
    entropies, previous = arrays.zeros(P), arrays.zeros(P)
    if chain.shared:
        _fill_log_transitions(
            0, scratch.max_transitions[0], chain, scratch.edge_scratch
        )
    for b in rows[first:last]:
        log_z, _ = _forward_pass(b, chain, scratch)
        N = chain.lengths[b]
        value[b] = 0
        if N == 0 or not log_z > -np.inf:
            continue
        for j in range(P):
            entropies[j] = 0
        for n in range(1, N):
            entropies, previous = previous, entropies
            _fill_conditional_entropies(b, n, chain, scratch, previous, entropies)
        rest_prob = max_prob = 0.0
        for j in range(S):
            p = scratch.last_distribution[j]
            value[b] += p * entropies[j]
            smaller_prob, max_prob = min(p, max_prob), max(p, max_prob)
            rest_prob += smaller_prob
            if smaller_prob > 0:
                value[b] -= smaller_prob * math.log(smaller_prob)
        max_prob_term = _entropy_term_of_max_prob(
            splat(rest_prob), splat(max_prob), splat(math.log(max_prob))
        )
        value[b] += reduce_max(max_prob_term)


@kernel
def sample(first, last, rows, chain, uniforms, labels):
    """Fill labels[B, K, T] with K independent samples each of rows[first:last].

    They are -1 where masked. Samples backward from the last position, inverting the
    cumulative distribution at uniforms[b, k, t] in [0, 1).
    """
    chain = Chain(*chain)
    scratch = _make_scratch(chain)
    S, K = len(chain.start), labels.shape[1]
    cumulative = arrays.empty(S)
    states = arrays.zeros(K, np.int64)
    for b in rows[first:last]:
        log_z, _ = _forward_pass(b, chain, scratch)
        labels[b] = -1
        if not log_z > -np.inf:
            continue
        for n in range(chain.lengths[b] - 1, -1, -1):
            t = chain.steps[b, n]
            conditionals = scratch.conditionals
            if n < chain.lengths[b] - 1:
                conditionals = _fill_conditionals(b, n + 1, chain, scratch)
            else:
                # as if state 0 followed
                for i in range(S):
                    scratch.source_factors[i], conditionals[i, 0] = (
                        1,
                        scratch.last_distribution[i],
                    )
                for k in range(K):
                    states[k] = 0
            for k in range(K):
                total, j = 0.0, states[k]
                for i in range(S):
                    total += scratch.source_factors[i] * conditionals[i, j]
                    cumulative[i] = total
                j = invert_cdf(cumulative, uniforms[b, k, t] * total)
                labels[b, k, t] = states[k] = j


@subroutine
def invert_cdf(cumulative, target):
    """Return the first state whose cumulative sum exceeds the target.

    Rounding may leave none: then the last state of positive probability.
    """
    j, S = 0, len(cumulative)
    for i in range(S):
        j += np.int64(cumulative[i] <= target)
    if j == S:
        j = 0
        while cumulative[j] < cumulative[S - 1]:
            j += 1
    return j


@subroutine
def _make_scratch(chain):
    """Allocate the scratch; fill E if transitions are shared."""
    T, S = chain.emissions.shape[1], chain.emissions.shape[2]
    P = -(-S // V) * V
    scratch = ForwardScratch(
        arrays.zeros((S, P)),
        arrays.zeros(T + 1),
        arrays.zeros(P),
        arrays.zeros(P),
        arrays.zeros((S, P)),
        arrays.zeros((S, P)),
        arrays.zeros(P),
        arrays.zeros(V),
        arrays.zeros((T, P)),
        arrays.zeros((T, P)),
        arrays.zeros((T, P)),
        arrays.zeros((T, P)),
        arrays.zeros(P),
        arrays.zeros(P),
    )
    for j in range(S, P):
        scratch.padding[j] = 1
    if chain.shared:
        max_transition = _fill_exp_transitions(0, chain, scratch)
        for n in range(T):
            scratch.max_transitions[n] = max_transition
    return scratch


@subroutine
def _fill_exp_transitions(step, chain, scratch):
    """Fill E from the transitions of a step; return the maximum that was subtracted."""
    S, P = scratch.exp_transitions.shape
    scores, out = span(chain.transitions), span(scratch.exp_transitions)
    max_transition = fill_exp_minus_max(
        scores, step * S * S, S * S, S, scratch.zeros, P, out
    )
    return max_transition if max_transition > -np.inf else 0.0


@subroutine
def _transition_index(b, n, chain):
    """Return the index of the transitions into the n-th position of row b."""
    if chain.shared:
        return 0
    return b * chain.transitions.shape[1] + chain.steps[b, n] - 1


@subroutine
def _log_transition(step, i, j, n, chain, scratch):
    """Return ``log E(i, j)`` of the step into the n-th position."""
    S = len(chain.start)
    score = span(chain.transitions)
    return get_number(score, (step * S + i) * S + j) - scratch.max_transitions[n]


@subroutine
def _forward_pass(b, chain, scratch):
    """Run the forward pass of row b into ``scratch``; return log_z, a double-double."""
    T, S = chain.emissions.shape[1], chain.emissions.shape[2]
    P, N = len(scratch.last_distribution), chain.lengths[b]
    hi = lo = 0.0
    if N == 0:
        return hi, lo
    zero, neg_inf, min_column_sum = splat(ZERO), splat(NEG_INF), splat(MIN_COLUMN_SUM)
    scores, exp_transitions = span(chain.emissions), span(scratch.exp_transitions)
    alphas, logs, column_sums = (
        span(scratch.alphas),
        span(scratch.logs),
        span(scratch.column_sums),
    )
    log_column_sums, padding, max_transitions = (
        span(scratch.log_column_sums),
        span(scratch.padding),
        span(scratch.max_transitions),
    )
    steps = span(chain.steps)
    hi = _fill_first_logs(b, chain, scratch)
    if hi == -np.inf:
        return hi, lo
    hi, lo = double_double.add(
        hi, lo, _subtract_max_log_and_fill_exp(logs, 0, P, alphas)
    )
    for n in range(1, N):
        e, o = (b * T + get_number(steps, b * T + n)) * S, n * P
        if not chain.shared:
            put_number(
                max_transitions,
                n,
                _fill_exp_transitions(_transition_index(b, n, chain), chain, scratch),
            )
        max_emissions = neg_inf
        for j in range(0, P, V):
            max_emissions = maximum(
                load_masked(scores, e + j, S - j, neg_inf), max_emissions
            )
        max_emission = reduce_max(max_emissions)
        if max_emission == -np.inf:
            return max_emission, 0.0
        is_low = max_alphas = zero
        for j in range(0, P, V):
            c = load(padding, j)
            for i in range(S):
                a = splat_at(alphas, o - P + i)
                c = fma(a, load(exp_transitions, i * P + j), c)
            is_low = select_lt(c, min_column_sum, splat(ONE), is_low)
            x = load_masked(scores, e + j, S - j, neg_inf) - splat(max_emission)
            log_c = log(maximum(c, min_column_sum))
            a = exp(x) * c
            max_alphas = maximum(a, max_alphas)
            store(column_sums, o + j, c)
            store(log_column_sums, o + j, log_c)
            store(logs, o + j, log_c + x)
            store(alphas, o + j, a)
        max_alpha = reduce_max(max_alphas)
        if reduce_max(is_low) > 0 or max_alpha < MIN_MAX_ALPHA:
            log_scale = _recompute_in_log_space(b, n, max_emission, chain, scratch)
            if log_scale == -np.inf:
                return log_scale, 0.0
        else:
            log_scale, inverse_max = math.log(max_alpha), splat(1 / max_alpha)
            for j in range(0, P, V):
                store(logs, o + j, load(logs, o + j) - splat(log_scale))
                store(alphas, o + j, load(alphas, o + j) * inverse_max)
        hi, lo = double_double.add(hi, lo, max_emission)
        hi, lo = double_double.add(hi, lo, get_number(max_transitions, n))
        hi, lo = double_double.add(hi, lo, log_scale)
    # after the last position, c of the end is the rest of the sum
    max_end = -np.inf
    for j in range(S):
        max_end = max(max_end, chain.end[j])
    c = 0.0
    max_log = -np.inf
    for j in range(S):
        scratch.last_distribution[j] = scratch.logs[N - 1, j] + (chain.end[j] - max_end)
        max_log = max(max_log, scratch.last_distribution[j])
    if not max_log > -np.inf:
        return -np.inf, 0.0
    for j in range(S):
        scratch.last_distribution[j] = _exp(scratch.last_distribution[j] - max_log)
        c += scratch.last_distribution[j]
    for j in range(S):
        scratch.last_distribution[j] /= c
    hi, lo = double_double.add(hi, lo, max_end)
    hi, lo = double_double.add(hi, lo, max_log + math.log(c))
    return double_double.normalise(hi, lo)


@subroutine(forceinline=True)
def _exp(x):
    """``exp(x)`` for x of at most 0, without a call where it is 0."""
    return 0.0 if x < -746 else math.exp(x)


@subroutine
def _fill_first_logs(b, chain, scratch):
    """Fill the first logs with emission + start - max; return the maximum.

    The rounding error of emission + start is added after the subtraction.
    """
    S, t = len(chain.start), chain.steps[b, 0]
    max_score = -np.inf
    for s in range(len(scratch.last_distribution)):
        scratch.logs[0, s] = -np.inf
    for s in range(S):
        max_score = max(max_score, chain.emissions[b, t, s] + chain.start[s])
    for s in range(S):
        hi, lo = double_double.add(chain.emissions[b, t, s], 0.0, chain.start[s])
        if hi > -np.inf:
            scratch.logs[0, s] = hi - max_score + lo
    return max_score


@subroutine
def _recompute_in_log_space(b, n, max_emission, chain, scratch):
    """Recompute columns with ``c < MIN_COLUMN_SUM`` at position n in log space.

    Fills logs and alphas; returns the maximum that was subtracted from the logs.
    """
    S, P = scratch.exp_transitions.shape
    t, step = chain.steps[b, n], _transition_index(b, n, chain)
    for j in range(S):
        if scratch.column_sums[n, j] < MIN_COLUMN_SUM:
            scratch.column_sums[n, j] = 0
            c = _log_column_sum(step, n, j, chain, scratch)
            scratch.log_column_sums[n, j] = c
            scratch.logs[n, j] = c + (chain.emissions[b, t, j] - max_emission)
    return _subtract_max_log_and_fill_exp(
        span(scratch.logs), n * P, P, span(scratch.alphas)
    )


@subroutine
def _log_column_sum(step, n, j, chain, scratch):
    """Return ``log c_n(j)``, by log-sum-exp."""
    max_term = -np.inf
    for i in range(len(chain.start)):
        x = scratch.logs[n - 1, i] + _log_transition(step, i, j, n, chain, scratch)
        max_term = max(max_term, x)
    if max_term == -np.inf:
        return max_term
    c = 0.0
    for i in range(len(chain.start)):
        x = scratch.logs[n - 1, i] + _log_transition(step, i, j, n, chain, scratch)
        c += _exp(x - max_term)
    return max_term + math.log(c)


@subroutine
def _subtract_max_log_and_fill_exp(logs, o, P, alphas):
    """Subtract the maximum from P logs, fill alphas with exp; return the maximum."""
    maxima = splat(NEG_INF)
    for j in range(0, P, V):
        maxima = maximum(load(logs, o + j), maxima)
    max_log = reduce_max(maxima)
    if max_log > -np.inf:
        for j in range(0, P, V):
            x = load(logs, o + j) - splat(max_log)
            store(logs, o + j, x)
            store(alphas, o + j, exp(x))
    return max_log


@subroutine
def _fill_conditionals(b, n, chain, scratch):
    """Return M with ``P_n(i | j) = source_factors(i) M(i, j) column_factors(j)``.

    Fills both factors. M is E, unless a column is computed in log space.
    """
    S, P = scratch.exp_transitions.shape
    zero, one, min_column_sum = splat(ZERO), splat(ONE), splat(MIN_COLUMN_SUM)
    alphas, column_sums = span(scratch.alphas), span(scratch.column_sums)
    before, column_factors = span(scratch.source_factors), span(scratch.column_factors)
    if not chain.shared:
        _fill_exp_transitions(_transition_index(b, n, chain), chain, scratch)
    is_low = zero
    for j in range(0, P, V):
        c = load(column_sums, n * P + j)
        is_low = select_lt(c, min_column_sum, one, is_low)
        store(
            column_factors,
            j,
            select_lt(c, min_column_sum, zero, one / maximum(c, min_column_sum)),
        )
        store(before, j, load(alphas, (n - 1) * P + j))
    if not reduce_max(is_low) > 0:
        return scratch.exp_transitions
    step = _transition_index(b, n, chain)
    for i in range(S):
        for j in range(S):
            p = (
                scratch.source_factors[i]
                * scratch.exp_transitions[i, j]
                * scratch.column_factors[j]
            )
            c = scratch.log_column_sums[n, j]
            if scratch.column_sums[n, j] == 0 and c > -np.inf:
                x = scratch.logs[n - 1, i] + _log_transition(
                    step, i, j, n, chain, scratch
                )
                p = _exp(x - c)
            scratch.conditionals[i, j] = p
    for j in range(S):
        scratch.source_factors[j] = scratch.column_factors[j] = 1
    return scratch.conditionals


@subroutine
def _fill_conditional_entropies(b, n, chain, scratch, previous_entropies, entropies):
    """Fill the conditional entropies H_n(j) from H_{n-1}."""
    S, P = scratch.exp_transitions.shape
    conditionals = span(_fill_conditionals(b, n, chain, scratch))
    zero, finite_floor = splat(ZERO), splat(LOWEST_FINITE)
    if not chain.shared:
        _fill_log_transitions(
            _transition_index(b, n, chain),
            scratch.max_transitions[n],
            chain,
            scratch.edge_scratch,
        )
    for j in range(0, P, V):
        x = maximum(load(span(scratch.logs), (n - 1) * P + j), finite_floor)
        store(span(scratch.finite_logs), j, x)
    logs, before, previous = (
        span(scratch.finite_logs),
        span(scratch.source_factors),
        span(previous_entropies),
    )
    scores, log_column_sums, column_factors = (
        span(scratch.edge_scratch),
        span(scratch.log_column_sums),
        span(scratch.column_factors),
    )
    for j in range(0, P, V):
        c, factor = (
            maximum(load(log_column_sums, n * P + j), finite_floor),
            load(column_factors, j),
        )
        rest_prob = total = smaller_terms = max_prob = log_max_prob = zero
        for i in range(S):
            e = i * P + j
            p = splat_at(before, i) * load(conditionals, e) * factor
            log_p = splat_at(logs, i) + load(scores, e) - c
            smaller_prob = select_lt(max_prob, p, max_prob, p)
            log_smaller_prob = select_lt(max_prob, p, log_max_prob, log_p)
            log_max_prob = select_lt(max_prob, p, log_p, log_max_prob)
            max_prob = maximum(p, max_prob)
            rest_prob = rest_prob + smaller_prob
            smaller_terms = fma(smaller_prob, log_smaller_prob, smaller_terms)
            total = fma(p, splat_at(previous, i), total)
        max_prob_term = _entropy_term_of_max_prob(rest_prob, max_prob, log_max_prob)
        store(span(entropies), j, total - smaller_terms + max_prob_term)


@subroutine
def _fill_log_transitions(step, max_transition, chain, out):
    """Fill out[S, P] with transitions - max_transition; LOWEST_FINITE for -inf."""
    S, P = out.shape
    scores = span(chain.transitions)
    for i in range(S):
        for j in range(0, P, V):
            x = load_masked(scores, (step * S + i) * S + j, S - j, splat(NEG_INF))
            store(
                span(out),
                i * P + j,
                maximum(x - splat(max_transition), splat(LOWEST_FINITE)),
            )


@subroutine
def _entropy_term_of_max_prob(rest_prob, max_prob, log_max_prob):
    """Return ``-p log p`` of the most probable state; rest_prob is 1 - p.

    If rest_prob is below a half, p = 1 - rest_prob, as log p would lose its digits.
    ``log(1 - r)`` by Kahan's log1p: the error of q cancels in ``log q / (1 - q)``.
    """
    zero, one, half = splat(ZERO), splat(ONE), splat(HALF)
    q = select_lt(rest_prob, half, one - rest_prob, one)
    complement = one - q
    minus_log = select_lt(
        zero, complement, rest_prob * (log(q) / complement), zero - rest_prob
    )
    return select_lt(
        rest_prob, half, zero - q * minus_log, zero - max_prob * log_max_prob
    )


@subroutine
def _edge_offset(b, n, chain, edges):
    """Return the offset in ``edges`` of the step into the n-th position."""
    num_edge_steps, S = edges.shape[1], edges.shape[2]
    return (
        (b * num_edge_steps + (chain.steps[b, n] - 1 if num_edge_steps > 1 else 0))
        * S
        * S
    )


@subroutine
def _fill_prefix_means(b, chain, scratch, weights, prefix_mean, subtracted):
    """Fill prefix_mean[T, P]: E[sum of v over parts up to position n | y_n = j].

    Subtracts from each step the v of its most probable state, ``subtracted[T]``. This
    changes no covariance, but keeps the digits of nearly certain rows.
    """
    v_nodes, v_edges, v_heads, _ = weights
    T, S, P = v_nodes.shape[1], v_nodes.shape[2], prefix_mean.shape[1]
    zero = splat(ZERO)
    nodes, edges, start_marginals = span(v_nodes), span(v_edges), span(v_heads)
    before, column_factors, prefix_means = (
        span(scratch.source_factors),
        span(scratch.column_factors),
        span(prefix_mean),
    )
    matrix = scratch.exp_transitions
    for n in range(chain.lengths[b]):
        node_offset, o = (b * T + chain.steps[b, n]) * S, n * P
        offset = 0
        if n > 0:
            offset = _edge_offset(b, n, chain, v_edges)
            matrix = _fill_conditionals(b, n, chain, scratch)
        conditionals = span(matrix)
        likeliest = 0.0
        for j in range(S):
            if scratch.alphas[n, j] > likeliest:
                likeliest, subtracted[n] = (
                    scratch.alphas[n, j],
                    v_nodes[b, chain.steps[b, n], j],
                )
        for j in range(0, P, V):
            mean = zero
            for i in range(S if n > 0 else 0):
                v = load_masked(edges, offset + i * S + j, S - j, zero)
                edge_value = splat_at(prefix_means, o - P + i) + v
                p = splat_at(before, i) * load(conditionals, i * P + j)
                mean = fma(p, edge_value, mean)
            node_value = load_masked(nodes, node_offset + j, S - j, zero) - splat(
                subtracted[n]
            )
            if n == 0:
                node_value = node_value + load_masked(
                    start_marginals, b * S + j, S - j, zero
                )
            store(prefix_means, o + j, fma(mean, load(column_factors, j), node_value))


@subroutine
def _fill_expectations(
    b, feasible, chain, scratch, weights, prefix_mean, subtracted, out
):
    """Fill the marginals of a row, or their covariances with the weights.

    For an edge, E[V | part] is ``prefix_mean(i) + v(i, j) + next_suffix_mean(j)``, the
    last being the v of state j plus its suffix mean, E[sum of v after it | y_n = j].
    """
    nodes, edges, start_marginals, end_marginals = out
    nodes[b] = 0
    edges[b] = 0
    start_marginals[b] = 0
    end_marginals[b] = 0
    N = chain.lengths[b]
    if N == 0 or not feasible:
        return
    S, P = scratch.exp_transitions.shape
    zero, is_time_summed = splat(ZERO), edges.shape[1] == 1
    edge_span, edge_sums = span(edges), span(scratch.edge_scratch)
    for e in range(0, S * P if is_time_summed else 0, V):
        store(edge_sums, e, zero)
    distribution, previous, next_suffix_mean = (
        arrays.zeros(P),
        arrays.zeros(P),
        arrays.zeros(P),
    )
    suffix_mean = arrays.zeros(P)
    expected = 0.0
    for s in range(S):
        distribution[s] = scratch.last_distribution[s]
        if weights is not None:
            suffix_mean[s] = weights[3][b, s]
            expected += distribution[s] * (prefix_mean[N - 1, s] + suffix_mean[s])
    for n in range(N - 1, -1, -1):
        t = chain.steps[b, n]
        for s in range(S):
            value = distribution[s]
            if weights is not None:
                value *= prefix_mean[n, s] + suffix_mean[s] - expected
                next_suffix_mean[s] = (
                    weights[0][b, t, s] - subtracted[n] + suffix_mean[s]
                )
            nodes[b, t, s] = value
            if n == 0:
                start_marginals[b, s] = value
            if n == N - 1:
                end_marginals[b, s] = value
        if n == 0:
            break
        conditionals = span(_fill_conditionals(b, n, chain, scratch))
        offset = _edge_offset(b, n, chain, edges)
        for j in range(S):
            distribution[j] *= scratch.column_factors[j]
        for i in range(S):
            a = splat_at(span(scratch.source_factors), i)
            total = mean = zero
            for j in range(0, P, V):
                e = i * S + j
                p = a * load(conditionals, i * P + j) * load(span(distribution), j)
                total = total + p
                if weights is not None:
                    edge_value = load_masked(span(weights[1]), offset + e, S - j, zero)
                    edge_value = edge_value + load(span(next_suffix_mean), j)
                    mean = fma(p, edge_value, mean)
                    p = p * (splat(prefix_mean[n - 1, i] - expected) + edge_value)
                if is_time_summed:
                    store(edge_sums, i * P + j, load(edge_sums, i * P + j) + p)
                else:
                    store_masked(edge_span, offset + e, S - j, p)
            previous[i] = reduce_sum(total)
            if weights is not None:
                suffix_mean[i] = (
                    reduce_sum(mean) / previous[i] if previous[i] > 0 else 0.0
                )
        distribution, previous = previous, distribution
    for i in range(S if is_time_summed else 0):
        for j in range(0, P, V):
            offset = (b * S + i) * S + j
            store_masked(edge_span, offset, S - j, load(edge_sums, i * P + j))
