r"""Scaled forward-backward algorithm of a chain with shared transitions.

With ``w_t(j) = exp(e_t(j) - max_t)`` and ``E = exp(transitions - max_transition)``,

    forward    a_t(j) = sum_i a_{t-1}(i) E(i, j) / c_{t-1} w_t(j),   a_0 = w_0
    backward   b_{t-1}(i) = sum_j E(i, j) u_t(j) / c_{t-1},          u_t = w_t b_t
    nodes      a_t(s) b_t(s) / z_t
    edges      E(i, j) sum_t a_{t-1}(i) u_t(j) / (c_{t-1} z_{t-1})
    log_z      sum_{t<N} max_t + (N - 1) max_transition + max_end
               + sum_{t<N-1} log c_t + log z

with c_t the sum of a_t and z_t the sum of ``a_t b_t``, which is 1 but for rounding
since the end scores are divided by it at the last step: by z, the sum of
``a_{N-1}(j) exp(end(j) - max_end)``, which is called c_{N-1} below. max_t is the
largest potential of step t, with start in step 0. Step t + 1 divides by c_t, so no step
depends on a sum over its own states.

Underflow bound: a number below the smallest normal one, ``tiny``, becomes 0. No ``w``,
E or a exceeds 1, so the sum of b_t is at least 1. The probability mass lost at step t
is at most ``S tiny sum_j u_t(j) / c_{t-1}`` for the products with E and ``6 tiny sum_j
b_t(j)`` for the other numbers of the forward recursion, ``(3 S + 4) tiny sum_j b_t(j)``
for the backward one. While 16 S tiny times

    underflow_bound = sum over t and j of b_t(j) + u_t(j) / c_{t-1}

stays below eps, all losses together are below one rounding error. A row that exceeds
this bound stays pending, for float64 or for log space; so does an infeasible row, where
0 / 0 is NaN.

A block of rows is computed together, time being the outer loop, in units that share the
loads of E. Steps of a unit are ``[T, P]``, in vectors of V numbers:

    in lanes      one unit of V rows, one row per lane; P = S V
    over states   up to four units, each a row; P is S up to whole vectors, w = 0 past S

The arithmetic is the same but for sums and maxima over states, which cross the lanes of
a vector over states, and for idle lanes: past the length of its row 1 / c of a lane is
0. With few states much of a vector over states is padding. With a row per lane, a
number of E is loaded once for V rows. Rows are sorted by length, so few lanes are idle.
The bits of a row do not depend on the rows beside it. Edges are summed over time after
both passes, tile by tile, with the sums in registers.

Faster than ``chain.cpu.forward_backward_float64``: vectors are of the dtype of the
potentials, rows share E, and no step takes a logarithm.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from smoothsp._kernels.chain.cpu.records import Chain, Marginals, order_by_length
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import (
    arrays,
    double_double,
    lane_products,
    state_products,
)
from smoothsp._kernels.vectors.exponentials import fill_exp_minus_max, fill_transposed
from smoothsp._kernels.vectors.flush_to_zero import restore_fp_mode, set_flush_to_zero
from smoothsp._kernels.vectors.kahan import BLOCK
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
    put_number,
    select_lt,
    span,
    splat,
    splat_at,
    store,
    subspan,
)
from smoothsp._kernels.vectors.simd_exp import exp, exponent, mantissa
from smoothsp._kernels.vectors.simd_masked import (
    load_masked,
    reduce_max,
    reduce_sum,
    store_masked,
)
from smoothsp._kernels.vectors.state_products import ROWS_PER_PASS, Matrix

# Statistics of a unit, a vector each: the sum of the maxima as a triple-word number,
# exponent and mantissa of the product of 1 / c, the underflow bound.
MAX_SUM, EXPONENT, MANTISSA, UNDERFLOW_BOUND, NUM_STATS = 0, 3, 4, 5, 6
# eps / tiny of float32 and float64.
RANGE_32, RANGE_64 = (
    float(x.eps) / float(x.tiny) for x in map(np.finfo, (np.float32, np.float64))
)


class Scratch(NamedTuple):
    """Scratch of a block of rows and exponentials of the shared scores, as spans."""

    T: Any
    P: Any
    zeros: Any  # [V]
    exp_transitions: Any  # [S, S] in lanes, [S, P] over states: E
    exp_transitions_t: Any  # its transpose
    start: Any  # [P]
    exp_end: Any  # [P], exponentials of end
    lane_lengths: Any  # [V], lengths of lanes
    exp_emissions: Any  # [units, T, P], e, then w, then u
    alphas: Any  # [units, T, P], a, then a / (c z)
    message: Any  # [units, P]
    inverse_scales: Any  # [units, T, V], 1 / c
    nodes: Any  # [T, P] in lanes
    edge_sums: Any  # edges, or their sums over blocks of steps
    compensation: Any  # Kahan compensations of edge_sums
    stats: Any  # [units, FOUND, V]


@subroutine(optimise=False)
def forward_backward_in_range(chain, zeros, log_z, marginals, in_lanes, over_states):
    """Fill log_z[B, 2] and the marginals; return the pending rows, bool [B].

    Pending rows exceed the underflow bound of this dtype.
    """
    B, T, S = chain.emissions.shape
    saved_mode = set_flush_to_zero()
    order = order_by_length(chain.lengths, T)
    max_underflow_bound = (RANGE_32 if zeros.itemsize == 4 else RANGE_64) / (
        max(T, 1) * S * S
    )
    pending = arrays.empty(B, np.bool_)
    for b in range(B):
        pending[b] = True
    num_blocks = -(-B // len(zeros))
    if over_states is not None:
        num_blocks = -(-B // ROWS_PER_PASS)
    layout = (in_lanes, over_states)
    forward_backward(
        0,
        num_blocks,
        chain,
        order,
        zeros,
        max_underflow_bound,
        pending,
        log_z,
        marginals,
        *layout,
    )
    restore_fp_mode(saved_mode)
    return pending


@kernel(optimise=False)
def forward_backward(
    first,
    last,
    chain,
    order,
    zeros,
    max_underflow_bound,
    pending,
    value,
    out,
    in_lanes,
    over_states,
):
    """Fill the rows of blocks ``first`` to ``last``; clear ``pending`` where safe.

    ``zeros`` has V entries of the dtype to compute in. ``order`` lists the rows, in
    blocks of V or of four, the longest of a block first. max_underflow_bound is
    ``eps / (S^2 T tiny)``. Outputs as in ``forward_backward_float64``. Exactly one of
    ``in_lanes`` and ``over_states`` is None; numba compiles only the branches of the
    other.
    """
    chain, out = Chain(*chain), Marginals(*out)
    steps, lengths = chain.steps, chain.lengths
    nodes, edges, start_marginals, end_marginals = out
    T, S = chain.emissions.shape[1], chain.emissions.shape[2]
    V = len(zeros)
    rows_per_block, stats_stride = V, 1
    if over_states is not None:
        rows_per_block, stats_stride = ROWS_PER_PASS, NUM_STATS * V
    layout = (in_lanes, over_states)
    sizes = scratch_sizes(len(order), T, S, V, over_states)
    memory = arrays.empty(sizes[7], zeros.dtype)
    row = arrays.empty(T * S, chain.emissions.dtype)
    scratch = split_scratch(memory, T, zeros, sizes)
    max_transition, max_end = fill_shared_scores(chain, scratch, sizes[2], *layout)
    for block in range(first, last):
        rows = order[block * rows_per_block : (block + 1) * rows_per_block]
        # spans own no memory: this use keeps the array alive until the last block
        scratch = split_scratch(memory, T, zeros, sizes)
        forward_pass(rows, chain, scratch, row, *layout)
        backward_pass(rows, chain, scratch, nodes, *layout)
        for x in range(len(rows)):
            b, stats_offset = rows[x], x * stats_stride
            length = lengths[b]
            if length == 0:
                pending[b] = False
                value[b, 0] = value[b, 1] = 0
            elif (
                16 * get_number(scratch.stats, stats_offset + UNDERFLOW_BOUND * V)
                <= max_underflow_bound * T * S
            ):
                pending[b] = False
                hi, lo = double_double.add(
                    np.float64(get_number(scratch.stats, stats_offset)),
                    np.float64(get_number(scratch.stats, stats_offset + 2 * V)),
                    np.float64(get_number(scratch.stats, stats_offset + V)),
                )
                log_inverse_scales = math.log(
                    np.float64(get_number(scratch.stats, stats_offset + MANTISSA * V))
                )
                log_inverse_scales += get_number(
                    scratch.stats, stats_offset + EXPONENT * V
                ) * math.log(2.0)
                value[b, 0], value[b, 1] = log_partition_from_terms(
                    hi, lo, length, max_transition, max_end, -log_inverse_scales
                )
        _store_results(
            rows, steps, lengths, pending, scratch, row, nodes, edges, *layout
        )
        for x in range(len(rows)):
            b = rows[x]
            length = lengths[b]
            if length == 0:
                edges[b] = 0
                start_marginals[b] = 0
                end_marginals[b] = 0
                continue
            for s in range(S):
                start_marginals[b, s] = nodes[b, steps[b, 0], s]
                end_marginals[b, s] = nodes[b, steps[b, length - 1], s]


@subroutine(optimise=False)
def scratch_sizes(num_rows, T, S, V, over_states):
    """Return units, P, the sizes of the parts of the scratch, and the total size.

    Parts are whole vectors. In lanes, a matrix is padded by a vector, and steps by an
    L x L block.
    """
    is_single_block = T <= BLOCK + 1
    units, P, matrix = 1, S * V, (-(-S * S // V) + 1) * V
    steps, edge_sums = T * P + V * V, S * P + V * V
    nodes, compensation = steps, 0 if is_single_block else S * P
    if over_states is not None:
        # products of three rows are those of four; whole fours of rows of a matrix
        units, P = num_rows if num_rows < 3 else ROWS_PER_PASS, -(-S // V) * V
        matrix, steps, nodes = -(-S // 4) * 4 * P, units * T * P, 0
        edge_sums = compensation = 0 if is_single_block else matrix
    unit_size = units * (P + (T + NUM_STATS) * V)
    # a vector more, to begin at a cache line
    num_all = (
        2 * (matrix + P + V + steps)
        + unit_size
        + nodes
        + edge_sums
        + compensation
        + 2 * V
    )
    return units, P, matrix, steps, nodes, edge_sums, compensation, num_all


@subroutine(optimise=False)
def split_scratch(memory, T, zeros, sizes):
    """Return the parts of the scratch as spans of one array."""
    units, P, matrix, steps, nodes, edge_sums, compensation, _ = sizes
    V = len(zeros)
    row, numbers = P + V, aligned_span(memory)
    o = 2 * matrix + 2 * row + V
    p = o + units * (P + (T + NUM_STATS) * V)
    q = p + 2 * steps
    return Scratch(
        T,
        P,
        zeros,
        subspan(numbers, 0, matrix),
        subspan(numbers, matrix, matrix),
        subspan(numbers, 2 * matrix, row),
        subspan(numbers, 2 * matrix + row, row),
        subspan(numbers, o - V, V),
        subspan(numbers, p, steps),
        subspan(numbers, p + steps, steps),
        subspan(numbers, o, units * P),
        subspan(numbers, o + units * P, units * T * V),
        subspan(numbers, q, nodes),
        subspan(numbers, q + nodes, edge_sums),
        subspan(numbers, q + nodes + edge_sums, compensation),
        subspan(numbers, o + units * (P + T * V), units * NUM_STATS * V),
    )


@subroutine(optimise=False)
def fill_shared_scores(chain, scratch, matrix_size, in_lanes, over_states):
    """Fill E, its transpose, start and exponentials of end; return the largest scores.

    In lanes, each number of start and end fills a vector. Both matrices have ``matrix``
    numbers.
    """
    S, zeros, V = len(chain.end), scratch.zeros, len(scratch.zeros)
    zero, start, exp_end, P = splat(zeros[0]), scratch.start, scratch.exp_end, S
    if over_states is not None:
        P = scratch.P
        for e in range(0, matrix_size, V):
            store(scratch.exp_transitions, e, zero)
            store(scratch.exp_transitions_t, e, zero)
        for j in range(0, P, V):
            store(start, j, load_masked(span(chain.start), j, S - j, zero))
    max_transition = fill_exp_minus_max(
        span(chain.transitions), 0, S * S, S, zeros, P, scratch.exp_transitions
    )
    max_end = fill_exp_minus_max(span(chain.end), 0, S, S, zeros, P, exp_end)
    fill_transposed(scratch.exp_transitions, S, P, scratch.exp_transitions_t)
    if in_lanes is not None:
        for s in range(S - 1, -1, -1):
            store(start, s * V, splat(zeros.dtype.type(chain.start[s])))
            store(exp_end, s * V, splat_at(exp_end, s))
    return max_transition, max_end


@subroutine(optimise=False)
def log_partition_from_terms(max_sum_hi, lo, N, max_transition, max_end, log_scale):
    """Return log_z of N steps as a double-double, the sum of its terms.

    These are the sum of the maxima of emissions, ``(N - 1) max_transition``, max_end
    and the log of the product of scales.
    """
    hi, lo = double_double.add(max_sum_hi, lo, max_end)
    if N > 1:
        # the product of N and half the digits of top is exact
        max_transition_hi = np.float64(np.float32(max_transition))
        hi, lo = double_double.add(hi, lo, (N - 1) * max_transition_hi)
        hi, lo = double_double.add(
            hi, lo, (N - 1) * (max_transition - max_transition_hi)
        )
    hi, lo = double_double.add(hi, lo, log_scale)
    return double_double.normalise(hi, lo)


@subroutine(forceinline=True)
def two_sum(a, b):
    """Return ``fl(a + b)`` and its rounding error, lane by lane (Knuth's TwoSum)."""
    total = a + b
    b_rounded = total - a
    return total, (a - (total - b_rounded)) + (b - b_rounded)


@subroutine(forceinline=True)
def two_sum_or_neg_inf(a, b, neg_inf, zero):
    """Return ``two_sum(a, b)``, with error 0 where the sum is -inf."""
    total, error = two_sum(a, b)
    return total, select_lt(neg_inf, total, error, zero)


@subroutine(optimise=False)
def forward_pass(rows, chain, scratch, row, in_lanes, over_states):
    """Fill exp_emissions with w, alphas with a, inverse_scales with 1 / c.

    1 / c is 0 in idle lanes. First all w and the sums of maxima, then the recursion,
    with time as the outer loop: a product with E takes all units of a step.
    """
    T, S = chain.emissions.shape[1], chain.emissions.shape[2]
    steps, lengths = chain.steps, chain.lengths
    P, zeros, V = scratch.P, scratch.zeros, len(scratch.zeros)
    emissions, start, stats = span(chain.emissions), scratch.start, scratch.stats
    exp_emissions, alphas, message, inverse_scales = (
        scratch.exp_emissions,
        scratch.alphas,
        scratch.message,
        scratch.inverse_scales,
    )
    scalar_one, neg_inf = zeros.dtype.type(1), splat(zeros.dtype.type(-np.inf))
    zero, one = splat(zeros[0]), splat(scalar_one)
    units = len(rows)
    if in_lanes is not None:
        units = 1
        N = lengths[rows[0]]
        gather_lanes(
            chain.emissions, steps, lengths, rows, N, row, zeros, scratch.exp_emissions
        )
        for score in range(V):
            length_of_lane = lengths[rows[score]] if score < len(rows) else 0
            put_number(scratch.lane_lengths, score, zeros.dtype.type(length_of_lane))
    for u in range(units):
        length, o = lengths[rows[u]], u * T * P
        if over_states is not None:
            for n in range(length):
                e = (rows[u] * T + steps[rows[u], n]) * S
                for j in range(0, P, V):
                    score = load_masked(emissions, e + j, S - j, neg_inf)
                    store(exp_emissions, o + n * P + j, score)
        max_sum = max_sum_mid = max_sum_low = zero
        if length > 0:
            # subtract the maximum, then add the rounding error of emission + start
            max_sum = neg_inf
            for j in range(0, P, V):
                score = load(exp_emissions, o + j)
                score, error = two_sum_or_neg_inf(score, load(start, j), neg_inf, zero)
                store(exp_emissions, o + j, score)
                store(message, u * P + j, error)
                max_sum = maximum(score, max_sum)
            if over_states is not None:
                max_sum = splat(reduce_max(max_sum))
            for j in range(0, P, V):
                score = load(exp_emissions, o + j) - max_sum + load(message, u * P + j)
                store(exp_emissions, o + j, score)
                store(message, u * P + j, one)
        for o in range(u * T * P, (u * T + length) * P, P):
            max_score = load(exp_emissions, o)
            for j in range(V, P, V):
                max_score = maximum(load(exp_emissions, o + j), max_score)
            if over_states is not None:
                max_score = splat(reduce_max(max_score))
            # triple-word sum: differences of large log_z keep their last digits
            max_sum, error = two_sum(max_sum, max_score)
            max_sum_mid, error = two_sum(max_sum_mid, error)
            max_sum_low = max_sum_low + error
            for j in range(0, P, V):
                store(exp_emissions, o + j, exp(load(exp_emissions, o + j) - max_score))
        f = u * NUM_STATS * V
        store(stats, f + MAX_SUM * V, max_sum)
        store(stats, f + (MAX_SUM + 1) * V, max_sum_mid)
        store(stats, f + (MAX_SUM + 2) * V, max_sum_low)
        store(stats, f + UNDERFLOW_BOUND * V, zero)
    lane_lengths = load(scratch.lane_lengths, 0)
    for n in range(lengths[rows[0]]):
        if over_states is not None:
            while lengths[rows[units - 1]] <= n:
                units -= 1
        if n > 0 and over_states is not None:
            matrix = Matrix(scratch.exp_transitions, S, P, V, zero)
            state_products.multiply_rows(
                alphas, (n - 1) * P, T * P, units, matrix, message
            )
        if n > 0 and in_lanes is not None:
            lane_products.vector_matrix_product(
                alphas, (n - 1) * P, scratch.exp_transitions, S, message, 0, zero, V
            )
        for u in range(units):
            i = u * T + n
            inverse_scale = load(inverse_scales, (i - 1) * V) if n > 0 else one
            c = zero
            for j in range(0, P, V):
                a = (
                    load(message, u * P + j)
                    * inverse_scale
                    * load(exp_emissions, i * P + j)
                )
                store(alphas, i * P + j, a)
                c = c + a
            if over_states is not None:
                store(inverse_scales, i * V, splat(scalar_one / reduce_sum(c)))
            if in_lanes is not None:
                # without this, numbers of an idle lane would leave the range
                step = splat(zeros.dtype.type(n))
                store(
                    inverse_scales, i * V, select_lt(step, lane_lengths, one / c, zero)
                )


@subroutine(optimise=False)
def backward_pass(rows, chain, scratch, nodes, in_lanes, over_states):
    """Fill nodes, exp_emissions with u, alphas with ``a / (c z)`` and the statistics.

    Runs from the last step of the longest row to the first.
    """
    S, lengths, steps = chain.emissions.shape[2], chain.lengths, chain.steps
    T, P, zeros, V = scratch.T, scratch.P, scratch.zeros, len(scratch.zeros)
    scalar_one = zeros.dtype.type(1)
    zero, one = splat(zeros[0]), splat(scalar_one)
    exp_emissions, alphas = scratch.exp_emissions, scratch.alphas
    message, inverse_scales = scratch.message, scratch.inverse_scales
    stats, lane_nodes, exp_end, out = (
        scratch.stats,
        scratch.nodes,
        scratch.exp_end,
        span(nodes),
    )
    lane_lengths = load(scratch.lane_lengths, 0)
    if over_states is not None:
        for beta in rows:
            if lengths[beta] < T:
                nodes[beta] = 0
    num_begun = units = np.int64(0)
    for n in range(lengths[rows[0]] - 1, -1, -1):
        if num_begun > 0 and over_states is not None:
            matrix = Matrix(scratch.exp_transitions_t, S, P, V, zero)
            state_products.multiply_rows(
                exp_emissions, (n + 1) * P, T * P, num_begun, matrix, message
            )
        if num_begun > 0 and in_lanes is not None:
            lane_products.vector_matrix_product(
                exp_emissions,
                (n + 1) * P,
                scratch.exp_transitions_t,
                S,
                message,
                0,
                zero,
                V,
            )
        step, next_step = splat(zeros.dtype.type(n)), splat(zeros.dtype.type(n + 1))
        first_new = num_begun
        while num_begun < len(rows) and lengths[rows[num_begun]] > n:
            num_begun += 1
        units = num_begun
        if in_lanes is not None:
            units = np.int64(1)
            first_new = np.int64(first_new == num_begun)
        for unit in range(first_new, units):
            # a row starts at its last step, with the end scores
            i = unit * T + n
            z = zero
            for j in range(0, P, V):
                beta = load(exp_end, j)
                if in_lanes is not None:
                    beta = select_lt(next_step, lane_lengths, load(message, j), beta)
                store(message, unit * P + j, beta)
                z = fma(load(alphas, i * P + j), beta, z)
            if over_states is not None:
                store(inverse_scales, i * V, splat(scalar_one / reduce_sum(z)))
            if in_lanes is not None:
                inverse_scale = select_lt(
                    next_step, lane_lengths, load(inverse_scales, i * V), one / z
                )
                store(
                    inverse_scales,
                    i * V,
                    select_lt(step, lane_lengths, inverse_scale, zero),
                )
        for unit in range(units):
            i = unit * T + n
            o, stats_offset = i * P, (unit * NUM_STATS + UNDERFLOW_BOUND) * V
            inverse_scale = load(inverse_scales, i * V)
            previous_inverse_scale = (
                load(inverse_scales, (i - 1) * V) if n > 0 else zero
            )
            bound_terms = z = zero
            for j in range(0, P, V):
                beta = load(message, unit * P + j) * inverse_scale
                u = load(exp_emissions, o + j) * beta
                store(message, unit * P + j, beta)
                store(exp_emissions, o + j, u)
                z = fma(load(alphas, o + j), beta, z)
                bound_terms = fma(u, previous_inverse_scale, bound_terms) + beta
            store(stats, stats_offset, load(stats, stats_offset) + bound_terms)
            inverse_z = zero
            if over_states is not None:
                inverse_z = splat(scalar_one / reduce_sum(z))
            if in_lanes is not None:
                inverse_z = select_lt(step, lane_lengths, one / z, zero)
            e = (rows[unit] * T + steps[rows[unit], n]) * S
            for j in range(0, P, V):
                a = load(alphas, o + j) * inverse_z
                node = a * load(message, unit * P + j)
                if over_states is not None:
                    store_masked(out, e + j, S - j, node)
                if in_lanes is not None:
                    store(lane_nodes, o + j, node)
                store(alphas, o + j, a * inverse_scale)
    units = len(rows)
    if in_lanes is not None:
        units = 1
    for unit in range(units):
        # product of all 1 / c as exponent and mantissa, which cannot overflow
        exponents, mantissas = zero, one
        for n in range(lengths[rows[unit]]):
            inverse_scale = load(inverse_scales, (unit * T + n) * V)
            if in_lanes is not None:
                inverse_scale = select_lt(zero, inverse_scale, inverse_scale, one)
            mantissas = mantissas * inverse_scale
            exponents = exponents + exponent(mantissas)
            mantissas = mantissa(mantissas)
        stats_offset = unit * NUM_STATS * V
        store(stats, stats_offset + EXPONENT * V, exponents)
        store(stats, stats_offset + MANTISSA * V, mantissas)
        if over_states is not None:
            put_number(
                stats,
                stats_offset + UNDERFLOW_BOUND * V,
                reduce_sum(load(stats, stats_offset + UNDERFLOW_BOUND * V)),
            )


@subroutine(optimise=False)
def _store_results(
    rows, steps, lengths, pending, scratch, row, nodes, edges, in_lanes, over_states
):
    """Fill the edges of rows that are not pending, and their nodes from lanes.

    The edges are ``E(i, j) sum_t a_{t-1}(i) u_t(j)``. They are computed in a separate
    pass, in which a tile of sums stays in registers over many steps.
    """
    S, T, P, zeros = nodes.shape[2], scratch.T, scratch.P, scratch.zeros
    V, zero = len(zeros), splat(zeros[0])
    scaled_alphas, u = scratch.alphas, scratch.exp_emissions
    edge_sums, compensation = scratch.edge_sums, scratch.compensation
    if over_states is not None:
        matrix = Matrix(scratch.exp_transitions, S, P, V, zero)
        for unit in range(len(rows)):
            b = rows[unit]
            if pending[b]:
                continue
            if lengths[b] < 2:
                edges[b] = 0
                continue
            state_products.sum_outer_products(
                scaled_alphas, u, unit * T * P, lengths[b], matrix,
                (edge_sums, compensation), span(edges), b * S * S,
            )  # fmt: skip
    if in_lanes is not None:
        N, matrix = lengths[rows[0]], scratch.exp_transitions
        lane_products.sum_outer_products(
            scaled_alphas, u, N, S, zero, V, matrix, edge_sums, compensation
        )
        transpose_blocks(N * S, zeros, scratch.nodes)
        transpose_blocks(S * S, zeros, scratch.edge_sums)
        scatter_lanes(steps, lengths, rows, pending, row, zeros, scratch.nodes, nodes)
        scatter_flat_lanes(S * S, rows, pending, zeros, scratch.edge_sums, edges)
