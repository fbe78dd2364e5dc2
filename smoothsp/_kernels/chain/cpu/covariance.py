"""Covariances of the parts of chains with V: derivatives of the marginals.

V(y) is the sum of weights v over the parts that y uses. Of ``forward_backward``, in
lanes, remain ``s = a / (c z)``, u and the marginals P. With F / P what is expected of V
up to a state, and G / P what is expected after it,

    F_t(j) = u_t(j) sum_i (F_{t-1}(i) / P_{t-1}(i) + v(i, j)) s_{t-1}(i) E(i, j)
             + v_t(j) P_t(j)
    G_t(i) = s_t(i) sum_j E(i, j) (u'_{t+1}(j) + v(i, j) u_{t+1}(j))
    u'     = u (v + G / P)
    m_t    = sum_j F_t(j) + G_t(j)                               the mean of V

the covariances with V are

    nodes    F_t + G_t - m_t P_t
    edges    E(i, j) sum_t (x_{t-1}(i) u_t(j) + s_{t-1}(i) (u'_t(j) + v(i, j) u_t(j)))
             with x = s (F / P - m)
"""

from typing import Any, NamedTuple

import numpy as np

from smoothsp._kernels.chain.cpu.forward_backward import (
    RANGE_64,
    REACH,
    backward,
    cut_scratch,
    forward,
    sizes_of_scratch,
    take_exponentials,
)
from smoothsp._kernels.chain.cpu.records import Addresses, chain_at, longest_first
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays, lane_products
from smoothsp._kernels.vectors.arrays import carray
from smoothsp._kernels.vectors.flush_to_zero import restore_fp_mode, set_flush_to_zero
from smoothsp._kernels.vectors.lane_rows import (
    gather,
    scatter,
    scatter_whole,
    transpose_blocks,
)
from smoothsp._kernels.vectors.simd import (
    aligned_span,
    fma,
    get,
    load,
    maximum,
    part,
    select_lt,
    splat,
    splat_at,
    store,
)


class Directions(NamedTuple):
    """What a block of rows needs beside ``Scratch``, in lanes: spans."""

    nodes: Any  # [T, P], v
    alphas: Any  # [T, P], s F / P, then x
    weights: Any  # [T, P], F, then u'
    edges: Any  # [S, S, V], v, then covariances
    moves: Any  # [S, S, V], E v
    first: Any  # [S, S, V], sums over time
    second: Any  # [S, S, V]
    heads: Any  # [P], v
    tails: Any  # [P], v
    now: Any  # [P]


@kernel
def covariance(where, weights, out, pending):
    """Fill ``out`` like ``forward_backward_float64.covariance``, in float64.

    ``weights`` and ``out`` are addresses of nodes[B, T, S], edges[B, 1, S, S], summed
    over time, heads[B, S] and tails[B, S]. Rows out of range are marked in pending[B].
    Returns how many.
    """
    where = Addresses(*where)
    B, T, S, zeros = where.B, where.T, where.S, where.zeros
    chain, V = chain_at(where, True), len(zeros)
    left, far = carray(pending, (B,), np.bool_), 0
    nodes, edges = carray(out[0], (B, T, S), zeros), carray(out[1], (B, S, S), zeros)
    heads, tails = carray(out[2], (B, S), zeros), carray(out[3], (B, S), zeros)
    order = longest_first(chain.lengths, T)
    sizes = sizes_of_scratch(B, T, S, V, None)
    room = arrays.empty(sizes[7], zeros.dtype)
    more = arrays.empty(_size(T, S, V), zeros.dtype)
    row = arrays.empty(T * S, zeros.dtype)
    control = set_flush_to_zero()
    kept = cut_scratch(room, T, zeros, sizes)
    take_exponentials(chain, kept, sizes[2], 1, None)
    for first in range(0, B, V):
        rows = order[first : first + V]
        # spans do not keep an array: used here, both last until the last block
        kept = cut_scratch(room, T, zeros, sizes)
        moved = _cut(more, T, S, V)
        forward(rows, chain, kept, row, 1, None)
        backward(rows, chain, kept, nodes, 1, None)
        _gather(rows, chain, weights, kept, moved, row, B)
        _look_back(chain.lengths[rows[0]], S, kept, moved)
        _look_ahead(chain.lengths[rows[0]], S, kept, moved)
        for x in range(len(rows)):
            reach = get(kept.found, x + REACH * V)
            safe = chain.lengths[rows[x]] == 0 or 16 * S * reach <= RANGE_64
            left[rows[x]] = not safe
            far += not safe
        _store(rows, chain, left, kept, moved, row, nodes, edges)
        for b in rows:
            own = chain.lengths[b]
            for s in range(S):
                heads[b, s] = nodes[b, chain.steps[b, 0], s] if own > 0 else 0.0
                tails[b, s] = nodes[b, chain.steps[b, own - 1], s] if own > 0 else 0.0
    restore_fp_mode(control)
    return far


@subroutine(optimise=False)
def _size(T, S, V):
    """Numbers of all directions, with room to begin at a cache line."""
    return 3 * T * S * V + 4 * S * S * V + 3 * S * V + 10 * V * V + V


@subroutine(optimise=False)
def _cut(room, T, S, V):
    """Cut them out of one array, each followed by room for a square of vectors."""
    numbers, P = aligned_span(room), S * V
    steps, square, vector = T * P + V * V, S * P + V * V, P + V * V
    o = 3 * steps
    p = o + 4 * square
    return Directions(
        part(numbers, 0, steps),
        part(numbers, steps, steps),
        part(numbers, 2 * steps, steps),
        part(numbers, o, square),
        part(numbers, o + square, square),
        part(numbers, o + 2 * square, square),
        part(numbers, o + 3 * square, square),
        part(numbers, p, vector),
        part(numbers, p + vector, vector),
        part(numbers, p + 2 * vector, vector),
    )


@subroutine
def _gather(rows, chain, weights, kept, moved, row, B):
    """Fill nodes, edges, heads and tails with v, and moves with E v."""
    T, zeros, V = kept.T, kept.zeros, len(kept.zeros)
    S = kept.P // V
    longest = chain.lengths[rows[0]]
    nodes = carray(weights[0], (B, T, S), zeros)
    gather(nodes, chain.steps, chain.lengths, rows, longest, row, zeros, moved.nodes)
    # of each row one step, the first
    steps, lengths = arrays.zeros((B, 1), np.int64), arrays.empty(B, np.int64)
    for b in range(B):
        lengths[b] = 1
    edges = carray(weights[1], (B, 1, S * S), zeros)
    gather(edges, steps, lengths, rows, 1, row, zeros, moved.edges)
    heads = carray(weights[2], (B, 1, S), zeros)
    gather(heads, steps, lengths, rows, 1, row, zeros, moved.heads)
    tails = carray(weights[3], (B, 1, S), zeros)
    gather(tails, steps, lengths, rows, 1, row, zeros, moved.tails)
    for e in range(S * S):
        v = load(moved.edges, e * V)
        store(moved.moves, e * V, v * splat_at(kept.move, e))


@subroutine
def _look_back(N, S, kept, moved):
    """Fill weights with F, alphas with ``s F / P``; v of heads is added to nodes.

    Of the v of a step that of its likeliest state is taken out, which changes no
    covariance: so those of nearly certain rows keep their digits.
    """
    zeros, V = kept.zeros, len(kept.zeros)
    P, zero = S * V, splat(zeros[0])
    for j in range(0, P if N > 0 else 0, V):
        store(moved.nodes, j, load(moved.nodes, j) + load(moved.heads, j))
    for n in range(N):
        o, before = n * P, (n - 1) * P
        for j in range(0, P, V):
            store(moved.now, j, zero)
        if n > 0:
            lane_products.product(
                moved.alphas, before, kept.move, S, moved.now, 0, zero, V
            )
            _add_product(kept.alphas, before, moved.moves, S, V, S, 1, moved.now)
        likeliest = taken = zero
        for j in range(o, o + P, V):
            p = load(kept.nodes, j)
            taken = select_lt(likeliest, p, load(moved.nodes, j), taken)
            likeliest = maximum(p, likeliest)
        for j in range(0, P, V):
            p, s = load(kept.nodes, o + j), load(kept.alphas, o + j)
            v = load(moved.nodes, o + j) - taken
            past = fma(load(kept.weights, o + j), load(moved.now, j), v * p)
            store(moved.nodes, o + j, v)
            store(moved.weights, o + j, past)
            store(moved.alphas, o + j, select_lt(zero, p, s * (past / p), zero))


@subroutine(forceinline=True)
def _add_product(x, o, matrix, S, V, down, along, y):
    """``y(j) += sum_i x(i) matrix(i, j)``, each lane a matrix of its own.

    ``down`` and ``along``: how far rows and columns of the matrix are apart.
    """
    for j in range(S):
        total = load(y, j * V)
        for i in range(S):
            e = (i * down + j * along) * V
            total = fma(load(x, o + i * V), load(matrix, e), total)
        store(y, j * V, total)


@subroutine
def _look_ahead(N, S, kept, moved):
    """Fill weights with u', alphas with x, and nodes with their covariances."""
    zeros, V = kept.zeros, len(kept.zeros)
    P, zero = S * V, splat(zeros[0])
    ends, now = load(kept.ends, 0), moved.now
    for n in range(N - 1, -1, -1):
        o, after = n * P, (n + 1) * P
        next_step = splat(zeros.dtype.type(n + 1))
        for j in range(0, P, V):
            store(now, j, zero)
        if n < N - 1:
            lane_products.product(moved.weights, after, kept.back, S, now, 0, zero, V)
            _add_product(kept.weights, after, moved.moves, S, V, 1, S, now)
        mean = zero
        for j in range(0, P, V):
            # rows begin where they end
            future = load(kept.nodes, o + j) * load(moved.tails, j)
            inner = load(kept.alphas, o + j) * load(now, j)
            future = select_lt(next_step, ends, inner, future)
            store(now, j, future)
            mean = mean + (load(moved.weights, o + j) + future)
        for j in range(0, P, V):
            p, s, future = (
                load(kept.nodes, o + j),
                load(kept.alphas, o + j),
                load(now, j),
            )
            total = load(moved.weights, o + j) + future
            store(kept.nodes, o + j, total - mean * p)
            store(moved.alphas, o + j, load(moved.alphas, o + j) - mean * s)
            v = load(moved.nodes, o + j) + select_lt(zero, p, future / p, zero)
            store(moved.weights, o + j, load(kept.weights, o + j) * v)


@subroutine(optimise=False)
def _store(rows, chain, pending, kept, moved, row, nodes, edges):
    """Put covariances of nodes and edges where they belong, but for pending rows."""
    zeros, steps, lengths = kept.zeros, chain.steps, chain.lengths
    S, V, N = nodes.shape[2], len(zeros), lengths[rows[0]]
    zero, move, lost = splat(zeros[0]), kept.move, kept.lost
    s, u, first, second = kept.alphas, kept.weights, moved.first, moved.second
    lane_products.outer_sums(moved.alphas, u, N, S, zero, V, move, kept.total, lost)
    lane_products.outer_sums(s, moved.weights, N, S, zero, V, move, first, lost)
    lane_products.outer_sums(s, u, N, S, zero, V, move, second, lost)
    for e in range(0, S * S * V, V):
        total = load(kept.total, e) + load(first, e)
        total = fma(load(moved.edges, e), load(second, e), total)
        store(moved.edges, e, total)
    transpose_blocks(N * S, zeros, kept.nodes)
    transpose_blocks(S * S, zeros, moved.edges)
    scatter(steps, lengths, rows, pending, row, zeros, kept.nodes, nodes)
    scatter_whole(S * S, rows, pending, zeros, moved.edges, edges)
