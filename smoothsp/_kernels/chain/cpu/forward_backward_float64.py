"""Sums, samples, entropies and covariances of a chain, from a forward pass in float64.

The outputs of a row are a Markov chain backwards in time: the forward pass finds the
distribution of its last state, and of each state given the one after it,

    P_n(i | j) = a_{n-1}(i) E_n(i, j) / c_n(j),   c_n(j) = sum_i a_{n-1}(i) E_n(i, j),

where ``E = exp(transitions - top)``, and ``a_n(j)`` is ``c_n(j)`` times the exponential
of the emission, divided by the largest. Each question is an expectation over that
Markov chain, in which nothing cancels. For V(y), the sum of given weights v over the
parts that y uses,

    past_n(j)       = v_n(j) + sum_i P_n(i | j) (past_{n-1}(i) + v_n(i, j))
    P(y_n = i)      = sum_j P_{n+1}(i | j) P(y_{n+1} = j)
    Cov(part, V)    = P(part) (E[V | part] - E[V])
    H_n(j)          = sum_i P_n(i | j) (H_{n-1}(i) - log P_n(i | j))

Logarithms of a stand beside it. A column of P with ``c_n(j) < LEAST`` may have lost a
part of its sum, and is computed from those logarithms, in log space. So rows of any
range are right, and ordinary ones cost no exponential for a move. Vectors go over the
states j. Rows of scratch are P numbers long: S, up to whole vectors.

The pass stands beside ``chain.cpu.forward_backward`` and ``chain.cpu.steps`` for rows
of any range, and for questions about ``P_n(i | j)``.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from smoothsp._kernels.chain.cpu.records import Chain
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays, double_double
from smoothsp._kernels.vectors.exponentials import exp_minus_max
from smoothsp._kernels.vectors.simd import (
    fma,
    get,
    load,
    maximum,
    put,
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

# Sums down to here have lost less than a rounding error to what underflows.
LEAST = np.float64(1e-280)
# A position with less as its largest a, before all are divided by that, is found in log
# space: the exponential of an emission that underflowed may matter there.
FAR = 1e-10
# Lanes of a vector, and what they are filled with.
V = 8
ZERO, HALF, ONE = np.float64(0), np.float64(0.5), np.float64(1)
LOWEST = np.float64(-np.inf)
# In place of -inf, as 0 times that is no number.
FINITE = np.float64(-1e300)


class Pass(NamedTuple):
    """What the forward pass of a row leaves behind."""

    moves: Any  # [S, P], E of one step
    tops: Any  # [T], what was taken out of it
    before: Any  # [P]
    shares: Any  # [P]
    conditionals: Any  # [S, P], P of one step, where a column is found in log space
    edges: Any  # [S, P], logs of E, or sums of edges over time
    padding: Any  # [P], 1 past S
    zeros: Any  # [V]
    alphas: Any  # [T, P], a
    logs: Any  # [T, P], log a
    column_sums: Any  # [T, P], c, or 0 where it is found in log space
    log_sums: Any  # [T, P], log c
    last: Any  # [P], the distribution of the last state
    finite: Any  # [P]


@kernel
def forward_backward(first, last, rows, chain, value, out):
    """Fill value[B, 2], the log-partition, and the marginals of rows[first:last].

    Those are nodes[B, T, S]; edges[B, T - 1, S, S] or, added up over time,
    [B, 1, S, S]; heads[B, S] and tails[B, S], the first and the last of the nodes. A
    row without an output has -inf and zeros.
    """
    chain = Chain(*chain)
    kept = _room(chain)
    for b in rows[first:last]:
        value[b, 0], value[b, 1] = _forward(b, chain, kept)
        _backward(b, value[b, 0] > -np.inf, chain, kept, None, None, None, out)


@kernel
def covariance(first, last, rows, chain, weights, out):
    """Fill ``out`` with the covariances of the parts with V, a sum of ``weights``.

    Of rows[first:last]. Both have the shapes of the marginals of ``sums``.
    """
    chain = Chain(*chain)
    kept = _room(chain)
    past, taken = arrays.zeros(kept.alphas.shape), arrays.zeros(len(kept.tops))
    for b in rows[first:last]:
        log_z, _ = _forward(b, chain, kept)
        if log_z > -np.inf:
            _look_back(b, chain, kept, weights, past, taken)
        _backward(b, log_z > -np.inf, chain, kept, weights, past, taken, out)


@kernel
def entropy(first, last, rows, chain, value):
    """Fill value[B] with the entropy of rows[first:last], in nats.

    The term of the likeliest state is `_likeliest_term`.
    """
    chain = Chain(*chain)
    kept = _room(chain)
    S, P = chain.emissions.shape[2], len(kept.last)
    found, before = arrays.zeros(P), arrays.zeros(P)
    if chain.shared:
        _fill_scores(0, kept.tops[0], chain, kept.edges)
    for b in rows[first:last]:
        log_z, _ = _forward(b, chain, kept)
        N = chain.lengths[b]
        value[b] = 0
        if N == 0 or not log_z > -np.inf:
            continue
        for j in range(P):
            found[j] = 0
        for n in range(1, N):
            found, before = before, found
            _uncertainties(b, n, chain, kept, before, found)
        rest = likeliest = 0.0
        for j in range(S):
            p = kept.last[j]
            value[b] += p * found[j]
            less, likeliest = min(p, likeliest), max(p, likeliest)
            rest += less
            if less > 0:
                value[b] -= less * math.log(less)
        likeliest_term = _likeliest_term(
            splat(rest), splat(likeliest), splat(math.log(likeliest))
        )
        value[b] += reduce_max(likeliest_term)


@kernel
def sample(first, last, rows, chain, uniforms, labels):
    """Fill labels[B, K, T] with K independent samples each of rows[first:last].

    They are -1 where nothing is real.

    From the last position backwards: states in order share [0, 1) by probability, and
    the one that has uniforms[b, k, t] is drawn.
    """
    chain = Chain(*chain)
    kept = _room(chain)
    S, K = len(chain.start), labels.shape[1]
    reached = arrays.empty(S)
    states = arrays.zeros(K, np.int64)
    for b in rows[first:last]:
        log_z, _ = _forward(b, chain, kept)
        labels[b] = -1
        if not log_z > -np.inf:
            continue
        for n in range(chain.lengths[b] - 1, -1, -1):
            t = chain.steps[b, n]
            conditionals = kept.conditionals
            if n < chain.lengths[b] - 1:
                conditionals = _conditionals(b, n + 1, chain, kept)
            else:
                # as if state 0 followed
                for i in range(S):
                    kept.before[i], conditionals[i, 0] = 1, kept.last[i]
                for k in range(K):
                    states[k] = 0
            for k in range(K):
                total, j = 0.0, states[k]
                for i in range(S):
                    total += kept.before[i] * conditionals[i, j]
                    reached[i] = total
                j = drawn(reached, uniforms[b, k, t] * total)
                labels[b, k, t] = states[k] = j


@subroutine
def drawn(reached, target):
    """The first state whose sum exceeds the target.

    By rounding there may be none: then the last state of positive probability.
    """
    j, S = 0, len(reached)
    for i in range(S):
        j += np.int64(reached[i] <= target)
    if j == S:
        j = 0
        while reached[j] < reached[S - 1]:
            j += 1
    return j


@subroutine
def _room(chain):
    """Room for a pass; shared moves."""
    T, S = chain.emissions.shape[1], chain.emissions.shape[2]
    P = -(-S // V) * V
    kept = Pass(
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
        kept.padding[j] = 1
    if chain.shared:
        top = _exponentials(0, chain, kept)
        for n in range(T):
            kept.tops[n] = top
    return kept


@subroutine
def _exponentials(step, chain, kept):
    """Fill E with the step-th of all transitions; what is taken out, a number."""
    S, P = kept.moves.shape
    scores, out = span(chain.transitions), span(kept.moves)
    top = exp_minus_max(scores, step * S * S, S * S, S, kept.zeros, P, out)
    return top if top > -np.inf else 0.0


@subroutine
def _step_of(b, n, chain):
    """Which of all transitions lead to the n-th position of a row."""
    if chain.shared:
        return 0
    return b * chain.transitions.shape[1] + chain.steps[b, n] - 1


@subroutine
def _score(step, i, j, n, chain, kept):
    """The log of E(i, j) of the step that leads to the n-th position."""
    S = len(chain.start)
    score = span(chain.transitions)
    return get(score, (step * S + i) * S + j) - kept.tops[n]


@subroutine
def _forward(b, chain, kept):
    """Fill what is kept; the log-partition as the sum of two numbers."""
    T, S = chain.emissions.shape[1], chain.emissions.shape[2]
    P, N = len(kept.last), chain.lengths[b]
    total = rest = 0.0
    if N == 0:
        return total, rest
    zero, least, lost = splat(ZERO), splat(LOWEST), splat(LEAST)
    scores, moves = span(chain.emissions), span(kept.moves)
    alphas, logs, column_sums = (
        span(kept.alphas),
        span(kept.logs),
        span(kept.column_sums),
    )
    log_sums, padding, tops = span(kept.log_sums), span(kept.padding), span(kept.tops)
    steps = span(chain.steps)
    total = _first_step(b, chain, kept)
    if total == -np.inf:
        return total, rest
    total, rest = double_double.add(total, rest, _normalise(logs, 0, P, alphas))
    for n in range(1, N):
        e, o = (b * T + get(steps, b * T + n)) * S, n * P
        if not chain.shared:
            put(tops, n, _exponentials(_step_of(b, n, chain), chain, kept))
        peaks = least
        for j in range(0, P, V):
            peaks = maximum(load_masked(scores, e + j, S - j, least), peaks)
        peak = reduce_max(peaks)
        if peak == -np.inf:
            return peak, 0.0
        far = largest = zero
        for j in range(0, P, V):
            c = load(padding, j)
            for i in range(S):
                a = splat_at(alphas, o - P + i)
                c = fma(a, load(moves, i * P + j), c)
            far = select_lt(c, lost, splat(ONE), far)
            x = load_masked(scores, e + j, S - j, least) - splat(peak)
            log_c = log(maximum(c, lost))
            a = exp(x) * c
            largest = maximum(a, largest)
            store(column_sums, o + j, c)
            store(log_sums, o + j, log_c)
            store(logs, o + j, log_c + x)
            store(alphas, o + j, a)
        top = reduce_max(largest)
        if reduce_max(far) > 0 or top < FAR:
            taken = _in_log_space(b, n, peak, chain, kept)
            if taken == -np.inf:
                return taken, 0.0
        else:
            taken, share = math.log(top), splat(1 / top)
            for j in range(0, P, V):
                store(logs, o + j, load(logs, o + j) - splat(taken))
                store(alphas, o + j, load(alphas, o + j) * share)
        total, rest = double_double.add(total, rest, peak)
        total, rest = double_double.add(total, rest, get(tops, n))
        total, rest = double_double.add(total, rest, taken)
    # after the last position, c of the end is the rest of the sum
    top = -np.inf
    for j in range(S):
        top = max(top, chain.end[j])
    c = 0.0
    peak = -np.inf
    for j in range(S):
        kept.last[j] = kept.logs[N - 1, j] + (chain.end[j] - top)
        peak = max(peak, kept.last[j])
    if not peak > -np.inf:
        return -np.inf, 0.0
    for j in range(S):
        kept.last[j] = _exp(kept.last[j] - peak)
        c += kept.last[j]
    for j in range(S):
        kept.last[j] /= c
    total, rest = double_double.add(total, rest, top)
    total, rest = double_double.add(total, rest, peak + math.log(c))
    return double_double.normalise(total, rest)


@subroutine(forceinline=True)
def _exp(x):
    """``exp(x)`` for x of at most 0, without a call where it is 0."""
    return 0.0 if x < -746 else math.exp(x)


@subroutine
def _first_step(b, chain, kept):
    """Fill the first logs: emissions plus start, less the largest, which is returned.

    What rounding takes from a sum is added once the largest is taken out.
    """
    S, t = len(chain.start), chain.steps[b, 0]
    peak = -np.inf
    for s in range(len(kept.last)):
        kept.logs[0, s] = -np.inf
    for s in range(S):
        peak = max(peak, chain.emissions[b, t, s] + chain.start[s])
    for s in range(S):
        x, lost = double_double.add(chain.emissions[b, t, s], 0.0, chain.start[s])
        if x > -np.inf:
            kept.logs[0, s] = x - peak + lost
    return peak


@subroutine
def _in_log_space(b, n, peak, chain, kept):
    """Find columns of P that lose too much, and their states, in log space.

    Fills logs and alphas of the n-th position, where ``peak`` is the largest emission,
    and returns what is taken out of them.
    """
    S, P = kept.moves.shape
    t, step = chain.steps[b, n], _step_of(b, n, chain)
    for j in range(S):
        if kept.column_sums[n, j] < LEAST:
            kept.column_sums[n, j] = 0
            c = _log_sum(step, n, j, chain, kept)
            kept.log_sums[n, j] = c
            kept.logs[n, j] = c + (chain.emissions[b, t, j] - peak)
    return _normalise(span(kept.logs), n * P, P, span(kept.alphas))


@subroutine
def _log_sum(step, n, j, chain, kept):
    """``log c_n(j)``, in log space."""
    peak = -np.inf
    for i in range(len(chain.start)):
        x = kept.logs[n - 1, i] + _score(step, i, j, n, chain, kept)
        peak = max(peak, x)
    if peak == -np.inf:
        return peak
    c = 0.0
    for i in range(len(chain.start)):
        x = kept.logs[n - 1, i] + _score(step, i, j, n, chain, kept)
        c += _exp(x - peak)
    return peak + math.log(c)


@subroutine
def _normalise(logs, o, P, alphas):
    """Take the largest of P logs out of them, and fill alphas; returns it."""
    tops = splat(LOWEST)
    for j in range(0, P, V):
        tops = maximum(load(logs, o + j), tops)
    top = reduce_max(tops)
    if top > -np.inf:
        for j in range(0, P, V):
            x = load(logs, o + j) - splat(top)
            store(logs, o + j, x)
            store(alphas, o + j, exp(x))
    return top


@subroutine
def _conditionals(b, n, chain, kept):
    """A matrix M for which ``P_n(i | j) = before(i) M(i, j) shares(j)``; fills these.

    It is E, unless a column is found in log space.
    """
    S, P = kept.moves.shape
    zero, one, lost = splat(ZERO), splat(ONE), splat(LEAST)
    alphas, column_sums = span(kept.alphas), span(kept.column_sums)
    before, shares = span(kept.before), span(kept.shares)
    if not chain.shared:
        _exponentials(_step_of(b, n, chain), chain, kept)
    far = zero
    for j in range(0, P, V):
        c = load(column_sums, n * P + j)
        far = select_lt(c, lost, one, far)
        store(shares, j, select_lt(c, lost, zero, one / maximum(c, lost)))
        store(before, j, load(alphas, (n - 1) * P + j))
    if not reduce_max(far) > 0:
        return kept.moves
    step = _step_of(b, n, chain)
    for i in range(S):
        for j in range(S):
            p = kept.before[i] * kept.moves[i, j] * kept.shares[j]
            c = kept.log_sums[n, j]
            if kept.column_sums[n, j] == 0 and c > -np.inf:
                x = kept.logs[n - 1, i] + _score(step, i, j, n, chain, kept)
                p = _exp(x - c)
            kept.conditionals[i, j] = p
    for j in range(S):
        kept.before[j] = kept.shares[j] = 1
    return kept.conditionals


@subroutine
def _uncertainties(b, n, chain, kept, earlier, found):
    """Fill H_n from ``earlier``, that is H_{n-1}."""
    S, P = kept.moves.shape
    conditionals = span(_conditionals(b, n, chain, kept))
    zero, least = splat(ZERO), splat(FINITE)
    if not chain.shared:
        _fill_scores(_step_of(b, n, chain), kept.tops[n], chain, kept.edges)
    for j in range(0, P, V):
        x = maximum(load(span(kept.logs), (n - 1) * P + j), least)
        store(span(kept.finite), j, x)
    logs, before, past = span(kept.finite), span(kept.before), span(earlier)
    scores, log_sums, shares = span(kept.edges), span(kept.log_sums), span(kept.shares)
    for j in range(0, P, V):
        c, share = maximum(load(log_sums, n * P + j), least), load(shares, j)
        rest = total = lost = likeliest = log_likeliest = zero
        for i in range(S):
            e = i * P + j
            p = splat_at(before, i) * load(conditionals, e) * share
            log_p = splat_at(logs, i) + load(scores, e) - c
            less = select_lt(likeliest, p, likeliest, p)
            log_less = select_lt(likeliest, p, log_likeliest, log_p)
            log_likeliest = select_lt(likeliest, p, log_p, log_likeliest)
            likeliest = maximum(p, likeliest)
            rest = rest + less
            lost = fma(less, log_less, lost)
            total = fma(p, splat_at(past, i), total)
        likeliest_term = _likeliest_term(rest, likeliest, log_likeliest)
        store(span(found), j, total - lost + likeliest_term)


@subroutine
def _fill_scores(step, top, chain, out):
    """Fill out[S, P] with the transitions less ``top``; finite numbers for -inf."""
    S, P = out.shape
    scores = span(chain.transitions)
    for i in range(S):
        for j in range(0, P, V):
            x = load_masked(scores, (step * S + i) * S + j, S - j, splat(LOWEST))
            store(span(out), i * P + j, maximum(x - splat(top), splat(FINITE)))


@subroutine
def _likeliest_term(rest, p, log_p):
    """``-p log p`` of the likeliest state; ``rest`` is the sum of the others.

    If rest is below a half, p is 1 - rest: log p loses the digits of a small rest.
    ``log(1 - rest)`` as Kahan has it: the error of p cancels in ``log p / (1 - p)``.
    """
    zero, one, half = splat(ZERO), splat(ONE), splat(HALF)
    q = select_lt(rest, half, one - rest, one)
    held = one - q
    minus_log = select_lt(zero, held, rest * (log(q) / held), zero - rest)
    return select_lt(rest, half, zero - q * minus_log, zero - p * log_p)


@subroutine
def _edges_at(b, n, chain, edges):
    """Where edges of the step that leads to the n-th position begin."""
    Q, S = edges.shape[1], edges.shape[2]
    return (b * Q + (chain.steps[b, n] - 1 if Q > 1 else 0)) * S * S


@subroutine
def _look_back(b, chain, kept, weights, past, taken):
    """Fill past[T, P], and taken[T]: the v of the likeliest state of each step.

    That is taken out of the v of its step, which changes no covariance: so those of
    nearly certain rows keep their digits.
    """
    v_nodes, v_edges, v_heads, _ = weights
    T, S, P = v_nodes.shape[1], v_nodes.shape[2], past.shape[1]
    zero = splat(ZERO)
    nodes, edges, heads = span(v_nodes), span(v_edges), span(v_heads)
    before, shares, past_values = span(kept.before), span(kept.shares), span(past)
    matrix = kept.moves
    for n in range(chain.lengths[b]):
        e, o = (b * T + chain.steps[b, n]) * S, n * P
        at = 0
        if n > 0:
            at = _edges_at(b, n, chain, v_edges)
            matrix = _conditionals(b, n, chain, kept)
        conditionals = span(matrix)
        likeliest = 0.0
        for j in range(S):
            if kept.alphas[n, j] > likeliest:
                likeliest, taken[n] = (
                    kept.alphas[n, j],
                    v_nodes[b, chain.steps[b, n], j],
                )
        for j in range(0, P, V):
            mean = zero
            for i in range(S if n > 0 else 0):
                v = load_masked(edges, at + i * S + j, S - j, zero)
                far = splat_at(past_values, o - P + i) + v
                p = splat_at(before, i) * load(conditionals, i * P + j)
                mean = fma(p, far, mean)
            here = load_masked(nodes, e + j, S - j, zero) - splat(taken[n])
            if n == 0:
                here = here + load_masked(heads, b * S + j, S - j, zero)
            store(past_values, o + j, fma(mean, load(shares, j), here))


@subroutine
def _backward(b, feasible, chain, kept, weights, past, taken, out):
    """Fill the marginals of a row, or their covariances with the weights.

    For an edge E[V | part] is ``past + v + gain``, where gain is the v of the state
    that it leads to and what is expected after that, the future.
    """
    nodes, edges, heads, tails = out
    nodes[b] = 0
    edges[b] = 0
    heads[b] = 0
    tails[b] = 0
    N = chain.lengths[b]
    if N == 0 or not feasible:
        return
    S, P = kept.moves.shape
    zero, summed = splat(ZERO), edges.shape[1] == 1
    to, scratch = span(edges), span(kept.edges)
    for e in range(0, S * P if summed else 0, V):
        store(scratch, e, zero)
    distribution, earlier, gain = arrays.zeros(P), arrays.zeros(P), arrays.zeros(P)
    future = arrays.zeros(P)
    expected = 0.0
    for s in range(S):
        distribution[s] = kept.last[s]
        if weights is not None:
            future[s] = weights[3][b, s]
            expected += distribution[s] * (past[N - 1, s] + future[s])
    for n in range(N - 1, -1, -1):
        t = chain.steps[b, n]
        for s in range(S):
            part = distribution[s]
            if weights is not None:
                part *= past[n, s] + future[s] - expected
                gain[s] = weights[0][b, t, s] - taken[n] + future[s]
            nodes[b, t, s] = part
            if n == 0:
                heads[b, s] = part
            if n == N - 1:
                tails[b, s] = part
        if n == 0:
            break
        conditionals = span(_conditionals(b, n, chain, kept))
        at = _edges_at(b, n, chain, edges)
        for j in range(S):
            distribution[j] *= kept.shares[j]
        for i in range(S):
            a = splat_at(span(kept.before), i)
            total = mean = zero
            for j in range(0, P, V):
                e = i * S + j
                p = a * load(conditionals, i * P + j) * load(span(distribution), j)
                total = total + p
                if weights is not None:
                    far = load_masked(span(weights[1]), at + e, S - j, zero)
                    far = far + load(span(gain), j)
                    mean = fma(p, far, mean)
                    p = p * (splat(past[n - 1, i] - expected) + far)
                if summed:
                    store(scratch, i * P + j, load(scratch, i * P + j) + p)
                else:
                    store_masked(to, at + e, S - j, p)
            earlier[i] = reduce_sum(total)
            if weights is not None:
                future[i] = reduce_sum(mean) / earlier[i] if earlier[i] > 0 else 0.0
        distribution, earlier = earlier, distribution
    for i in range(S if summed else 0):
        for j in range(0, P, V):
            at = (b * S + i) * S + j
            store_masked(to, at, S - j, load(scratch, i * P + j))
