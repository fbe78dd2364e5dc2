r"""Marginals of positions and of pairs of neighbours of one sequence, and logarithms.

With a_t, q_t and b_t of ``linear.forward_backward``, at mu = 1,

    P(y_t = j)                = a_t(j) b_t(j)
    P(y_{t-1} = i, y_t = j)   = a_{t-1}(i) e^{A(i, j) - max A} q_t(j)

Logarithms of pairs are sums of those of the three factors: a row of S^2 pairs takes 2 S
logarithms. Where a factor is below 1e-300, everything is computed again in logarithms:
``log b`` decides how large a gap is, however small b.

Pairs are dense, S^2 numbers a step, as every visit of ``linear.dual_ascent`` reads all
of them: padded rows would be up to twice as long.
"""

import math
from typing import NamedTuple

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.linear.forward_backward import exponentials, forward
from smoothsp._kernels.linear.forward_backward_log_space import log_messages
from smoothsp._kernels.linear.sparse_scores import V
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import fma, load, maximum, splat, splat_at, store
from smoothsp._kernels.vectors.simd_exp import log

# Smaller numbers have the logarithm of this one, where it hardly counts: that of
# padding, and of marginals a and m, which it is multiplied with.
TINY = 1e-300


class Marginals(NamedTuple):
    """Room for one sequence: rows of P for positions, and dense squares for pairs.

    ``node`` and ``edge`` take the marginals, ``log_node`` and ``log_edge`` their
    logarithms. ``prefix`` holds a, ``suffix`` q, R, RT and ``logs`` exponentials of A,
    their transpose, and logarithms of one row of each.
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
def room_of_marginals(s):
    """Room for the longest sequence; a cache line begins where each array does."""
    size = s.max_length * s.P
    pairs = rounded_up(max(s.max_length - 1, 0) * s.S * s.S) + s.P
    square = s.S * s.P if s.max_length > 1 else 0
    room = arrays.zeros(4 * size + 2 * pairs + 2 * square + 2 * s.P + 8)
    room = room[-(room.ctypes.data // 8) % 8 :]
    squares = room[4 * size + 2 * pairs :]
    return Marginals(
        room[:size],
        room[size : 2 * size],
        room[2 * size : 3 * size],
        room[3 * size : 4 * size],
        room[4 * size : 4 * size + pairs],
        room[4 * size + pairs : 4 * size + 2 * pairs],
        squares[:square],
        squares[square : 2 * square],
        squares[2 * square : 2 * square + 2 * s.P],
    )


@subroutine(forceinline=True)
def rounded_up(count):
    """``count``, up to whole vectors."""
    return (count + V - 1) // V * V


@subroutine
def marginals_of_one(T, S, P, tail, moves, U, m):
    """Fill the marginals and their logarithms from the scores U; return log Z.

    Of positions, only logarithms that ``linear.dual_ascent`` needs: of those with two
    neighbours, or of the only one. Pairs are followed by zeros up to whole vectors.
    """
    top = exponentials(tail, moves, 1.0, S, P, m.R, m.RT) if T > 1 else 0.0
    value, worst = forward(T, S, P, 1.0, U, m.suffix, m.R, m.prefix, top)
    if worst < np.inf:
        _nodes(T, S, P, m)
    if worst < np.inf and _least(T, S, P, m) >= TINY:
        _edges(T, S, P, tail, moves, top, m)
        tiny = splat(TINY)
        last = (T - 1) * P if T > 1 else P
        for q in range(P if T > 1 else 0, last, V):
            store(m.log_node, q, log(maximum(load(m.node, q), tiny)))
    else:
        value = _by_logarithms(T, S, P, tail, moves, U, m)
    store(m.edge, (T - 1) * S * S, splat(0.0))
    return value


@subroutine
def _nodes(T, S, P, m):
    """Fill the marginals of positions; ``suffix`` becomes q."""
    zero = splat(0.0)
    for j in range((T - 1) * P, T * P, V):
        store(m.node, j, load(m.prefix, j))
    for t in range(T - 1, 0, -1):
        o, p = t * P, t * P - P
        for i in range(0, P, V):
            a = b = zero
            for j in range(0, S - 1, 2):
                a = fma(splat_at(m.suffix, o + j), load(m.RT, j * P + i), a)
                b = fma(splat_at(m.suffix, o + j + 1), load(m.RT, j * P + P + i), b)
            if S % 2 == 1:
                last = splat_at(m.suffix, o + S - 1)
                a = fma(last, load(m.RT, (S - 1) * P + i), a)
            a = a + b
            store(m.node, p + i, load(m.prefix, p + i) * a)
            store(m.suffix, p + i, load(m.suffix, p + i) * a)


@subroutine
def _least(T, S, P, m):
    """The least of a, q and the marginals of positions."""
    least = np.inf
    for t in range(T):
        for q in range(t * P, t * P + S):
            least = min(least, m.prefix[q], m.suffix[q], m.node[q])
    return least


@subroutine
def _edges(T, S, P, tail, moves, top, m):
    """Fill the marginals of pairs and their logarithms.

    A row writes past its end, which the next row overwrites: steps and rows ascend.
    """
    tiny, height = splat(TINY), splat(top)
    for t in range(1, T):
        o, p, e = t * P, (t - 1) * P, (t - 1) * S * S
        for j in range(0, P, V):
            store(m.logs, j, log(maximum(load(m.prefix, p + j), tiny)))
            before = log(maximum(load(m.suffix, o + j), tiny)) - height
            store(m.logs, P + j, before)
        for i in range(S):
            a, log_a = splat_at(m.prefix, p + i), splat_at(m.logs, i)
            for j in range(0, P, V):
                r = i * P + j
                both = load(m.R, r) * load(m.suffix, o + j)
                store(m.edge, e + i * S + j, a * both)
                both = load(tail, moves + r) + load(m.logs, P + j)
                store(m.log_edge, e + i * S + j, log_a + both)


@subroutine
def _by_logarithms(T, S, P, tail, moves, U, m):
    """The same from messages in logarithms, where those above leave float64.

    Backwards, with each distribution divided by its sum:

        P(y_{T-1} = j)       = a_{T-1}(j) / Z
        P(i, j at t)         = P(y_t = j) a_{t-1}(i) e^{A(i, j)} / sum_i of the same
        P(y_{t-1} = i)       = sum_j P(i, j at t)

    So the marginals are those of one distribution, even if logarithms are so large that
    their rounding counts.
    """
    a, b, log_node, log_edge = m.prefix, m.suffix, m.log_node, m.log_edge
    log_messages(T, S, P, tail, moves, 1.0, U, b, m.logs, a)
    last = (T - 1) * P
    total = _log_sum(a, last, S, 1)
    for j in range(S):
        log_node[last + j] = a[last + j] - total
    value = total
    total = _log_sum(log_node, last, S, 1)
    for j in range(S):
        log_node[last + j] -= total
    for t in range(T - 1, 0, -1):
        o, p, e = t * P, (t - 1) * P, (t - 1) * S * S
        for j in range(S):
            for i in range(S):
                log_edge[e + i * S + j] = a[p + i] + tail[moves + i * P + j]
            total = _log_sum(log_edge, e + j, S, S)
            for i in range(S):
                log_edge[e + i * S + j] -= total
            # once more: the first sum is as rough as its terms
            total = _log_sum(log_edge, e + j, S, S) - log_node[o + j]
            for i in range(S):
                log_edge[e + i * S + j] -= total
        for i in range(S):
            log_node[p + i] = _log_sum(log_edge, e + i * S, S, 1)
    for q in range((T - 1) * S * S):
        m.edge[q] = math.exp(log_edge[q])
    for t in range(T):
        for j in range(S):
            m.node[t * P + j] = math.exp(log_node[t * P + j])
        for j in range(S, P):
            m.node[t * P + j] = 0.0
    return value


@subroutine
def _log_sum(x, first, count, step):
    """``log sum exp`` of ``count`` numbers from ``x[first]`` on, a step apart."""
    top = -np.inf
    for k in range(count):
        top = max(top, x[first + k * step])
    if top == -np.inf:
        return top
    total = 0.0
    for k in range(count):
        total += math.exp(x[first + k * step] - top)
    return top + math.log(total)
