"""The loss of one sequence, and its slope as marginals less the gold labels.

Both are times the weight of the sequence.

    MAX          max_y z(y)                    z(y) = cost(y) + score(y) - score(gold)
    ENTROPY      mu log sum_y exp(z(y) / mu)   with no costs and mu = 1: the negative
                                               log-likelihood
    TOP_K        max_u <u, z> + mu / 2 (1 - |u|^2)  over the K best labellings

W lies apart from the other weights here: ``s.moves``, ``s.start`` and ``s.end`` count
from the beginning of ``tail``, which is empty where parts share weights. The slope by W
is ``X' D``, by A it is ``edges``, by start and end the first and the last row of D.
"""

from typing import NamedTuple

import numpy as np

from smoothsp._kernels.chain.cpu.k_best import candidates_size, make_scratch
from smoothsp._kernels.chain.cpu.viterbi_over_states import aligned_empty
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.linear.few_best import Ranking, few_best, ranking
from smoothsp._kernels.linear.forward_backward import sums
from smoothsp._kernels.linear.sequences import Scratch
from smoothsp._kernels.linear.sparse_scores import V, labelling_score
from smoothsp._kernels.linear.tied_weights import add_to_rest, room_of_rest, sharing
from smoothsp._kernels.linear.viterbi import add_costs, best_labels
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import load, maximum, splat, store
from smoothsp._kernels.vectors.simd_masked import reduce_max, reduce_sum
from smoothsp._kernels.vectors.smoothed_hinge import project_onto_simplex

MAX, ENTROPY, TOP_K = 0, 1, 2


class Slope(NamedTuple):
    """Scratch, with the slope in D (rows of P) and in ``edges`` (S rows)."""

    k: Scratch
    r: Ranking
    D: np.ndarray
    R: np.ndarray
    RT: np.ndarray
    edges: np.ndarray


@subroutine
def slope_scratch(s, K):
    """Room for the longest sequence; a cache line begins where a row does."""
    size, square = s.max_length * s.P, s.S * s.P
    room = arrays.zeros(4 * size + 3 * square + 8)
    past = -(room.ctypes.data // 8) % 8
    room = room[past:]
    k = Scratch(
        room[:size],
        room[size : 2 * size],
        room[2 * size : 3 * size],
        arrays.zeros(s.max_length, np.int32),
        room_of_rest(s),
    )
    D, room = room[3 * size : 4 * size], room[4 * size :]
    return Slope(
        k,
        ranking(s.max_length, s.S, s.P, K),
        D,
        room[:square],
        room[square : 2 * square],
        room[2 * square : 3 * square],
    )


@subroutine
def scratch_of_ranking(s, K):
    """What the lazy enumeration of K labellings needs, made once."""
    offers = aligned_empty(candidates_size(s.max_length, s.S, s.P, K))
    return make_scratch(s.max_length, s.S, K, offers)


@subroutine
def slope(s, i, tail, kind, mu, c, space):
    """Fill ``c.D`` and ``c.edges`` for sequence i from its scores ``c.k.E``.

    First U = E and costs, then the marginals by kind, less the gold labels, times the
    weight. Returns the loss.
    """
    k = c.k
    o = s.offsets[i]
    T = s.offsets[i + 1] - o
    P, S = s.P, s.S
    if T == 0:
        c.edges[:] = 0.0
        return 0.0
    add_costs(
        k.E,
        T,
        s.labels,
        o,
        s.costs,
        s.scales[i],
        tail,
        s.start_offset,
        s.end_offset,
        P,
        k.U,
    )
    if kind == ENTROPY:
        value = sums(
            T, S, P, tail, s.transition_offset, mu, k.U, k.M, c.R, c.RT, c.D, c.edges
        )
    else:
        c.D[: T * P] = 0.0
        c.edges[:] = 0.0
        if kind == MAX:
            value = best_labels(T, S, tail, s.transition_offset, P, k.U, k.M, k.y)
            _count(T, k.y, 1.0, P, c.D, c.edges)
        else:
            count = few_best(
                T, S, P, tail, s.transition_offset, k.U, k.M, k.y, c.r, space
            )
            value = project_onto_simplex(mu, count, c.r.z, c.r.u)
            for b in range(count):
                if c.r.u[b] > 0:
                    _count(T, c.r.labels[0, b], c.r.u[b], P, c.D, c.edges)
    _count(T, s.labels[o : o + T], -1.0, P, c.D, c.edges)
    weight = s.loss_scales[i]
    if weight != 1.0:
        scaled(weight, c.D[: T * P])
        scaled(weight, c.edges)
    gold = labelling_score(
        k.E, T, s.labels, o, tail, s.transition_offset, s.start_offset, s.end_offset, P
    )
    return weight * (value - gold)


@subroutine
def _count(T, y, a, P, D, edges):
    """Add a for each part of the labelling y."""
    for t in range(T):
        D[t * P + y[t]] += a
        if t > 0:
            edges[y[t - 1] * P + y[t]] += a


@subroutine
def add_to_tail(s, T, a, D, edges, W, tail):
    """``tail += a`` times the slope by A, start and end.

    Where parts share weights, these are in W.
    """
    if sharing(s):
        if s.transition_offset >= 0 and T > 1:
            add_to_rest(s, s.S, s.transition_offset, a, edges, 0, W)
        if s.start_offset >= 0 and T > 0:
            add_to_rest(s, 1, s.start_offset, a, D, 0, W)
            add_to_rest(s, 1, s.end_offset, a, D, (T - 1) * s.P, W)
        return
    scale = splat(a)
    if s.transition_offset >= 0 and T > 1:
        for e in range(0, s.S * s.P, V):
            t = s.transition_offset + e
            store(tail, t, load(tail, t) + scale * load(edges, e))
    if s.start_offset >= 0 and T > 0:
        o = (T - 1) * s.P
        for j in range(0, s.P, V):
            store(
                tail,
                s.start_offset + j,
                load(tail, s.start_offset + j) + scale * load(D, j),
            )
            store(
                tail,
                s.end_offset + j,
                load(tail, s.end_offset + j) + scale * load(D, o + j),
            )


@subroutine
def is_zero(D, o, P):
    """Whether a row is all zeros."""
    zero = splat(0.0)
    most = zero
    for j in range(0, P, V):
        x = load(D, o + j)
        most = maximum(maximum(x, zero - x), most)
    return reduce_max(most) == 0


@subroutine
def finite(x, size):
    """Whether ``x[:size]``, whole vectors, holds neither infinity nor NaN."""
    total, zero = splat(0.0), splat(0.0)
    for e in range(0, size, V):
        total = total + load(x, e) * zero
    return reduce_sum(total) == 0


@subroutine
def scaled(a, x):
    """``x *= a``, in place; x is whole vectors."""
    factor = splat(a)
    for e in range(0, len(x), V):
        store(x, e, load(x, e) * factor)
