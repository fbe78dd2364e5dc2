"""Marginals of positions and of pairs of one sequence, and their logarithms.

With a_t, q_t and b_t of ``forward_backward``, at mu = 1,

    P(y_t = j)                = a_t(j) b_t(j)
    P(y_{t-1} = i, y_t = j)   = a_{t-1}(i) e^{A(i, j) - max A} q_t(j)

The logarithm of a pair is a sum of logarithms of its three factors: S^2 pairs take 2 S
logarithms. If a factor is below 1e-300, everything is recomputed in log space, since
``log b`` determines the gap, however small b is.

Pairs are dense, S^2 numbers per step: each visit of ``dual_ascent`` reads all of them,
and padded rows would be up to twice as long.
"""

import math
from typing import NamedTuple

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.linear.forward_backward import fill_exp_transitions, forward_pass
from smoothsp._kernels.linear.forward_backward_log_space import fill_log_messages
from smoothsp._kernels.linear.sparse_scores import V
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import fma, load, maximum, splat, splat_at, store
from smoothsp._kernels.vectors.simd_exp import log

# Smaller numbers have the logarithm of this one. They are padding, or marginals a and m
# by which it is multiplied.
TINY = 1e-300


class Marginals(NamedTuple):
    """Scratch of one sequence: rows of P for positions, and dense squares for pairs.

    ``node`` and ``edge`` receive the marginals, ``log_node`` and ``log_edge`` their
    logarithms. ``prefix`` holds a, ``suffix`` q; R, RT and ``logs`` hold exponentials
    of A, their transpose, and logarithms of one row of each.
    """

    prefix: np.ndarray
    suffix: np.ndarray
    node: np.ndarray
    log_node: np.ndarray
    edge: np.ndarray
    log_edge: np.ndarray
    R: np.ndarray
    RT: np.ndarray
    logs: np.ndarray


@subroutine
def make_marginals(sequences):
    """Allocate scratch for the longest sequence, aligned to cache lines."""
    size = sequences.max_length * sequences.P
    pairs = (
        # the last row of pairs writes up to P numbers past its end
        round_up_to_lanes(max(sequences.max_length - 1, 0) * sequences.S * sequences.S)
        + sequences.P
    )
    square = sequences.S * sequences.P if sequences.max_length > 1 else 0
    buffer = arrays.zeros(4 * size + 2 * pairs + 2 * square + 2 * sequences.P + 8)
    buffer = buffer[-(buffer.ctypes.data // 8) % 8 :]
    squares = buffer[4 * size + 2 * pairs :]
    return Marginals(
        buffer[:size],
        buffer[size : 2 * size],
        buffer[2 * size : 3 * size],
        buffer[3 * size : 4 * size],
        buffer[4 * size : 4 * size + pairs],
        buffer[4 * size + pairs : 4 * size + 2 * pairs],
        squares[:square],
        squares[square : 2 * square],
        squares[2 * square : 2 * square + 2 * sequences.P],
    )


@subroutine(forceinline=True)
def round_up_to_lanes(count):
    """``count``, rounded up to whole vectors."""
    return (count + V - 1) // V * V


@subroutine
def chain_marginals(T, S, P, transition_weights, transition_offset, U, marginals):
    """Fill the marginals and their logarithms from the scores U; return log Z.

    Of positions, only logarithms that ``dual_ascent`` needs: of positions with two
    neighbours, or of the only one. Pairs are followed by zeros up to whole vectors.
    """
    max_term = (
        fill_exp_transitions(
            transition_weights, transition_offset, 1.0, S, P, marginals.R, marginals.RT
        )
        if T > 1
        else 0.0
    )
    value, max_inverse_scale = forward_pass(
        T, S, P, 1.0, U, marginals.suffix, marginals.R, marginals.prefix, max_term
    )
    if max_inverse_scale < np.inf:
        _fill_node_marginals(T, S, P, marginals)
    # a product with a smaller factor has no accurate logarithm
    if max_inverse_scale < np.inf and _min_factor(T, S, P, marginals) >= TINY:
        _fill_edge_marginals(
            T, S, P, transition_weights, transition_offset, max_term, marginals
        )
        tiny = splat(TINY)
        last = (T - 1) * P if T > 1 else P
        for q in range(P if T > 1 else 0, last, V):
            store(marginals.log_node, q, log(maximum(load(marginals.node, q), tiny)))
    else:
        value = _fill_marginals_log_space(
            T, S, P, transition_weights, transition_offset, U, marginals
        )
    # readers use whole vectors
    store(marginals.edge, (T - 1) * S * S, splat(0.0))
    return value


@subroutine
def _fill_node_marginals(T, S, P, marginals):
    """Fill the marginals of positions; ``suffix`` becomes q."""
    zero = splat(0.0)
    for j in range((T - 1) * P, T * P, V):
        store(marginals.node, j, load(marginals.prefix, j))
    for t in range(T - 1, 0, -1):
        o, p = t * P, t * P - P
        for i in range(0, P, V):
            a = b = zero
            for j in range(0, S - 1, 2):
                a = fma(
                    splat_at(marginals.suffix, o + j), load(marginals.RT, j * P + i), a
                )
                b = fma(
                    splat_at(marginals.suffix, o + j + 1),
                    load(marginals.RT, j * P + P + i),
                    b,
                )
            if S % 2 == 1:
                last = splat_at(marginals.suffix, o + S - 1)
                a = fma(last, load(marginals.RT, (S - 1) * P + i), a)
            a = a + b
            store(marginals.node, p + i, load(marginals.prefix, p + i) * a)
            store(marginals.suffix, p + i, load(marginals.suffix, p + i) * a)


@subroutine
def _min_factor(T, S, P, marginals):
    """Return the smallest of a, q and the marginals of positions."""
    min_factor = np.inf
    for t in range(T):
        for q in range(t * P, t * P + S):
            min_factor = min(
                min_factor, marginals.prefix[q], marginals.suffix[q], marginals.node[q]
            )
    return min_factor


@subroutine
def _fill_edge_marginals(
    T, S, P, transition_weights, transition_offset, max_term, marginals
):
    """Fill the marginals of pairs and their logarithms.

    A row writes past its end; the next row overwrites this, since steps and rows
    ascend.
    """
    tiny, max_transition_lanes = splat(TINY), splat(max_term)
    for t in range(1, T):
        o, p, e = t * P, (t - 1) * P, (t - 1) * S * S
        for j in range(0, P, V):
            store(marginals.logs, j, log(maximum(load(marginals.prefix, p + j), tiny)))
            before = (
                log(maximum(load(marginals.suffix, o + j), tiny)) - max_transition_lanes
            )
            store(marginals.logs, P + j, before)
        for i in range(S):
            a, log_a = splat_at(marginals.prefix, p + i), splat_at(marginals.logs, i)
            for j in range(0, P, V):
                r = i * P + j
                both = load(marginals.R, r) * load(marginals.suffix, o + j)
                store(marginals.edge, e + i * S + j, a * both)
                both = load(transition_weights, transition_offset + r) + load(
                    marginals.logs, P + j
                )
                store(marginals.log_edge, e + i * S + j, log_a + both)


@subroutine
def _fill_marginals_log_space(
    T, S, P, transition_weights, transition_offset, U, marginals
):
    """Fill the marginals from messages in log space, if they would leave float64.

    Backwards, with each distribution normalised:

        P(y_{T-1} = j)       = a_{T-1}(j) / Z
        P(i, j at t)         = P(y_t = j) a_{t-1}(i) e^{A(i, j)} / (its sum over i)
        P(y_{t-1} = i)       = sum_j P(i, j at t)

    The marginals are thus consistent, even if the logarithms are so large that their
    rounding counts.
    """
    a, b, log_node, log_edge = (
        marginals.prefix,
        marginals.suffix,
        marginals.log_node,
        marginals.log_edge,
    )
    fill_log_messages(
        T, S, P, transition_weights, transition_offset, 1.0, U, b, marginals.logs, a
    )
    last = (T - 1) * P
    total = _log_sum_exp(a, last, S, 1)
    for j in range(S):
        log_node[last + j] = a[last + j] - total
    value = total
    total = _log_sum_exp(log_node, last, S, 1)
    for j in range(S):
        log_node[last + j] -= total
    for t in range(T - 1, 0, -1):
        o, p, e = t * P, (t - 1) * P, (t - 1) * S * S
        for j in range(S):
            for i in range(S):
                log_edge[e + i * S + j] = (
                    a[p + i] + transition_weights[transition_offset + i * P + j]
                )
            total = _log_sum_exp(log_edge, e + j, S, S)
            for i in range(S):
                log_edge[e + i * S + j] -= total
            # normalised twice: the first sum has the rounding of its large terms
            total = _log_sum_exp(log_edge, e + j, S, S) - log_node[o + j]
            for i in range(S):
                log_edge[e + i * S + j] -= total
        for i in range(S):
            log_node[p + i] = _log_sum_exp(log_edge, e + i * S, S, 1)
    for q in range((T - 1) * S * S):
        marginals.edge[q] = math.exp(log_edge[q])
    for t in range(T):
        for j in range(S):
            marginals.node[t * P + j] = math.exp(log_node[t * P + j])
        for j in range(S, P):
            marginals.node[t * P + j] = 0.0
    return value


@subroutine
def _log_sum_exp(x, first, count, step):
    """``log sum exp`` of ``count`` numbers from ``x[first]`` on, ``step`` apart."""
    # the largest term is subtracted before exponentials
    max_term = -np.inf
    for k in range(count):
        max_term = max(max_term, x[first + k * step])
    if max_term == -np.inf:
        return max_term
    total = 0.0
    for k in range(count):
        total += math.exp(x[first + k * step] - max_term)
    return max_term + math.log(total)
