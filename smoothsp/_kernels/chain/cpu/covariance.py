"""Covariances of the parts of chains with V: derivatives of the marginals.

V(y) is the sum of weights v over the parts that y uses. ``forward_backward``, in lanes,
leaves ``s = a / (c z)``, u and the marginals P. With F / P = E[V up to a position |
state] and G / P = E[V after it | state],

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
    UNDERFLOW_BOUND,
    backward_pass,
    fill_shared_scores,
    forward_pass,
    scratch_sizes,
    split_scratch,
)
from smoothsp._kernels.chain.cpu.records import (
    Addresses,
    chain_from_addresses,
    order_by_length,
)
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays, lane_products
from smoothsp._kernels.vectors.arrays import carray
from smoothsp._kernels.vectors.flush_to_zero import restore_fp_mode, set_flush_to_zero
from smoothsp._kernels.vectors.lane_rows import (
    gather_lanes,
    scatter_flat_lanes,
    scatter_lanes,
    transpose_blocks,
)
from smoothsp._kernels.vectors.simd import (
    aligned_span,
    fma,
    get_number,
    load,
    maximum,
    select_lt,
    splat,
    splat_at,
    store,
    subspan,
)


class Directions(NamedTuple):
    """Scratch for tangents of a block of rows, in lanes, beside ``Scratch``: spans."""

    nodes: Any  # [T, P], v
    alphas: Any  # [T, P], s F / P, then x
    weights: Any  # [T, P], F, then u'
    edges: Any  # [S, S, V], v, then covariances
    weighted_transitions: Any  # [S, S, V], E v
    first: Any  # [S, S, V], sums over time
    second: Any  # [S, S, V]
    start_marginals: Any  # [P], v
    end_marginals: Any  # [P], v
    message: Any  # [P]


@kernel
def covariance(addresses, weights, out, pending):
    """Fill ``out`` like ``forward_backward_float64.covariance``, in float64.

    ``weights`` and ``out`` are addresses of nodes[B, T, S], edges[B, 1, S, S], summed
    over time, start and end marginals [B, S]. Rows out of range are marked in
    pending[B]. Returns how many.
    """
    addresses = Addresses(*addresses)
    B, T, S, zeros = addresses.B, addresses.T, addresses.S, addresses.zeros
    chain, V = chain_from_addresses(addresses, True), len(zeros)
    is_pending, num_out_of_range = carray(pending, (B,), np.bool_), 0
    nodes, edges = carray(out[0], (B, T, S), zeros), carray(out[1], (B, S, S), zeros)
    start_marginals, end_marginals = (
        carray(out[2], (B, S), zeros),
        carray(out[3], (B, S), zeros),
    )
    order = order_by_length(chain.lengths, T)
    sizes = scratch_sizes(B, T, S, V, None)
    memory = arrays.empty(sizes[7], zeros.dtype)
    directions_memory = arrays.empty(_directions_size(T, S, V), zeros.dtype)
    row = arrays.empty(T * S, zeros.dtype)
    saved_mode = set_flush_to_zero()
    scratch = split_scratch(memory, T, zeros, sizes)
    fill_shared_scores(chain, scratch, sizes[2], 1, None)
    for first in range(0, B, V):
        rows = order[first : first + V]
        # spans own no memory: this use keeps both arrays alive until the last block
        scratch = split_scratch(memory, T, zeros, sizes)
        directions = _split_directions(directions_memory, T, S, V)
        forward_pass(rows, chain, scratch, row, 1, None)
        backward_pass(rows, chain, scratch, nodes, 1, None)
        _gather_weights(rows, chain, weights, scratch, directions, row, B)
        _forward_tangent(chain.lengths[rows[0]], S, scratch, directions)
        _backward_tangent(chain.lengths[rows[0]], S, scratch, directions)
        for lane in range(len(rows)):
            underflow_bound = get_number(scratch.stats, lane + UNDERFLOW_BOUND * V)
            is_safe = (
                chain.lengths[rows[lane]] == 0 or 16 * S * underflow_bound <= RANGE_64
            )
            is_pending[rows[lane]] = not is_safe
            num_out_of_range += not is_safe
        _store_covariances(
            rows, chain, is_pending, scratch, directions, row, nodes, edges
        )
        for b in rows:
            length = chain.lengths[b]
            for s in range(S):
                start_marginals[b, s] = (
                    nodes[b, chain.steps[b, 0], s] if length > 0 else 0.0
                )
                end_marginals[b, s] = (
                    nodes[b, chain.steps[b, length - 1], s] if length > 0 else 0.0
                )
    restore_fp_mode(saved_mode)
    return num_out_of_range


@subroutine(optimise=False)
def _directions_size(T, S, V):
    """Return the size of ``Directions``, with padding for alignment."""
    return 3 * T * S * V + 4 * S * S * V + 3 * S * V + 10 * V * V + V


@subroutine(optimise=False)
def _split_directions(memory, T, S, V):
    """Return the directions as spans of one array, each padded by an L x L block."""
    numbers, P = aligned_span(memory), S * V
    steps, square, vector = T * P + V * V, S * P + V * V, P + V * V
    o = 3 * steps
    p = o + 4 * square
    return Directions(
        subspan(numbers, 0, steps),
        subspan(numbers, steps, steps),
        subspan(numbers, 2 * steps, steps),
        subspan(numbers, o, square),
        subspan(numbers, o + square, square),
        subspan(numbers, o + 2 * square, square),
        subspan(numbers, o + 3 * square, square),
        subspan(numbers, p, vector),
        subspan(numbers, p + vector, vector),
        subspan(numbers, p + 2 * vector, vector),
    )


@subroutine
def _gather_weights(rows, chain, weights, scratch, directions, row, B):
    """Fill nodes, edges, start and end of the directions with v, and E v."""
    T, zeros, V = scratch.T, scratch.zeros, len(scratch.zeros)
    S = scratch.P // V
    max_length = chain.lengths[rows[0]]
    nodes = carray(weights[0], (B, T, S), zeros)
    gather_lanes(
        nodes,
        chain.steps,
        chain.lengths,
        rows,
        max_length,
        row,
        zeros,
        directions.nodes,
    )
    # of each row one step, the first
    steps, lengths = arrays.zeros((B, 1), np.int64), arrays.empty(B, np.int64)
    for b in range(B):
        lengths[b] = 1
    edges = carray(weights[1], (B, 1, S * S), zeros)
    gather_lanes(edges, steps, lengths, rows, 1, row, zeros, directions.edges)
    start_marginals = carray(weights[2], (B, 1, S), zeros)
    gather_lanes(
        start_marginals, steps, lengths, rows, 1, row, zeros, directions.start_marginals
    )
    end_marginals = carray(weights[3], (B, 1, S), zeros)
    gather_lanes(
        end_marginals, steps, lengths, rows, 1, row, zeros, directions.end_marginals
    )
    for e in range(S * S):
        v = load(directions.edges, e * V)
        store(
            directions.weighted_transitions,
            e * V,
            v * splat_at(scratch.exp_transitions, e),
        )


@subroutine
def _forward_tangent(N, S, scratch, directions):
    """Fill weights with F and alphas with ``s F / P``; v of start is added to nodes.

    Subtracts from each step the v of its most probable state. This changes no
    covariance, but keeps the digits of nearly certain rows.
    """
    zeros, V = scratch.zeros, len(scratch.zeros)
    P, zero = S * V, splat(zeros[0])
    for j in range(0, P if N > 0 else 0, V):
        store(
            directions.nodes,
            j,
            load(directions.nodes, j) + load(directions.start_marginals, j),
        )
    for n in range(N):
        o, previous = n * P, (n - 1) * P
        for j in range(0, P, V):
            store(directions.message, j, zero)
        if n > 0:
            lane_products.vector_matrix_product(
                directions.alphas,
                previous,
                scratch.exp_transitions,
                S,
                directions.message,
                0,
                zero,
                V,
            )
            _add_lane_products(
                scratch.alphas,
                previous,
                directions.weighted_transitions,
                S,
                V,
                S,
                1,
                directions.message,
            )
        max_prob = subtracted = zero
        for j in range(o, o + P, V):
            p = load(scratch.nodes, j)
            subtracted = select_lt(max_prob, p, load(directions.nodes, j), subtracted)
            max_prob = maximum(p, max_prob)
        for j in range(0, P, V):
            p, s = load(scratch.nodes, o + j), load(scratch.alphas, o + j)
            v = load(directions.nodes, o + j) - subtracted
            prefix_sum = fma(
                load(scratch.exp_emissions, o + j), load(directions.message, j), v * p
            )
            store(directions.nodes, o + j, v)
            store(directions.weights, o + j, prefix_sum)
            store(
                directions.alphas, o + j, select_lt(zero, p, s * (prefix_sum / p), zero)
            )


@subroutine(forceinline=True)
def _add_lane_products(x, o, matrix, S, V, row_stride, column_stride, y):
    """Add ``sum_i x(i) matrix(i, j)`` to y(j); each lane has another matrix.

    The strides are the distances of rows and of columns of the matrix, in vectors.
    """
    for j in range(S):
        total = load(y, j * V)
        for i in range(S):
            e = (i * row_stride + j * column_stride) * V
            total = fma(load(x, o + i * V), load(matrix, e), total)
        store(y, j * V, total)


@subroutine
def _backward_tangent(N, S, scratch, directions):
    """Fill weights with u', alphas with x, and nodes with their covariances."""
    zeros, V = scratch.zeros, len(scratch.zeros)
    P, zero = S * V, splat(zeros[0])
    lane_lengths, message = load(scratch.lane_lengths, 0), directions.message
    for n in range(N - 1, -1, -1):
        o, next_offset = n * P, (n + 1) * P
        next_step = splat(zeros.dtype.type(n + 1))
        for j in range(0, P, V):
            store(message, j, zero)
        if n < N - 1:
            lane_products.vector_matrix_product(
                directions.weights,
                next_offset,
                scratch.exp_transitions_t,
                S,
                message,
                0,
                zero,
                V,
            )
            _add_lane_products(
                scratch.exp_emissions,
                next_offset,
                directions.weighted_transitions,
                S,
                V,
                1,
                S,
                message,
            )
        mean = zero
        for j in range(0, P, V):
            # a row starts at its last step, with v of end
            suffix_sum = load(scratch.nodes, o + j) * load(directions.end_marginals, j)
            inner = load(scratch.alphas, o + j) * load(message, j)
            suffix_sum = select_lt(next_step, lane_lengths, inner, suffix_sum)
            store(message, j, suffix_sum)
            mean = mean + (load(directions.weights, o + j) + suffix_sum)
        for j in range(0, P, V):
            p, s, suffix_sum = (
                load(scratch.nodes, o + j),
                load(scratch.alphas, o + j),
                load(message, j),
            )
            total = load(directions.weights, o + j) + suffix_sum
            store(scratch.nodes, o + j, total - mean * p)
            store(directions.alphas, o + j, load(directions.alphas, o + j) - mean * s)
            v = load(directions.nodes, o + j) + select_lt(zero, p, suffix_sum / p, zero)
            store(directions.weights, o + j, load(scratch.exp_emissions, o + j) * v)


@subroutine(optimise=False)
def _store_covariances(rows, chain, pending, scratch, directions, row, nodes, edges):
    """Write covariances of nodes and edges of all rows that are not pending."""
    zeros, steps, lengths = scratch.zeros, chain.steps, chain.lengths
    S, V, N = nodes.shape[2], len(zeros), lengths[rows[0]]
    zero, exp_transitions, compensation = (
        splat(zeros[0]),
        scratch.exp_transitions,
        scratch.compensation,
    )
    s, u, first_sums, second_sums = (
        scratch.alphas,
        scratch.exp_emissions,
        directions.first,
        directions.second,
    )
    lane_products.sum_outer_products(
        directions.alphas,
        u,
        N,
        S,
        zero,
        V,
        exp_transitions,
        scratch.edge_sums,
        compensation,
    )
    lane_products.sum_outer_products(
        s, directions.weights, N, S, zero, V, exp_transitions, first_sums, compensation
    )
    lane_products.sum_outer_products(
        s, u, N, S, zero, V, exp_transitions, second_sums, compensation
    )
    for e in range(0, S * S * V, V):
        covariances = load(scratch.edge_sums, e) + load(first_sums, e)
        covariances = fma(load(directions.edges, e), load(second_sums, e), covariances)
        store(directions.edges, e, covariances)
    transpose_blocks(N * S, zeros, scratch.nodes)
    transpose_blocks(S * S, zeros, directions.edges)
    scatter_lanes(steps, lengths, rows, pending, row, zeros, scratch.nodes, nodes)
    scatter_flat_lanes(S * S, rows, pending, zeros, directions.edges, edges)
