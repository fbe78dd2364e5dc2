"""Draws, edge marginals, entropies by the scaled recursion, for shared transitions.

All need what ``forward_backward_over_states`` has between its passes and its sums: a, u
and E of each step, in its notation.

    draws    P(y_{t-1} = i | y_t = j) is a_{t-1}(i) E(i, j), over its sum
    edges    P(y_{t-1} = i, y_t = j) = a_{t-1}(i) E(i, j) u_t(j) / (c_{t-1} z_{t-1})

Rows that break its bound stay pending. An entropy is the log-partition less the
expected score: an error of some ``eps`` of what is added up. Where it is not far above
that, its row stays pending too, for the chain rule of ``samples``.
"""

import numpy as np

from smoothsp._kernels.chain.cpu import forward_backward_in_lanes
from smoothsp._kernels.chain.cpu.forward_backward_over_states import (
    backward,
    forward,
    log_product,
    sum_edges,
    take_exponentials,
    total_of,
    weigh,
)
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.lane_rows import gather
from smoothsp._kernels.vectors.simd import aligned, get, load, span, splat_at
from smoothsp._kernels.vectors.simd_parts import store_some
from smoothsp._kernels.vectors.state_products import ROWS

# An entropy is off by less than this times eps of the sum of the sizes of its terms.
ROUNDINGS = 64
_EPS = float(np.finfo(np.float64).eps)


@kernel
def sample(
    first,
    last,
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    shared,
    order,
    zeros,
    ceiling,
    uniforms,
    pending,
    labels,
):
    """Fill labels[B, K, T] of the rows ``order[4 first : 4 last]`` with draws.

    As ``chain.cpu.samples``: the states in order share [0, 1) by their chances, and the
    one that has uniforms[b, k, t] is drawn. Other arguments as
    ``forward_backward_over_states``.
    """
    T, S = emissions.shape[1], emissions.shape[2]
    P, matrices, scratch = _room(T, S, zeros)
    nodes = arrays.empty(emissions.shape, zeros.dtype)
    peaks = arrays.empty((ROWS, 2), np.float64)
    take_exponentials(transitions, end, P, zeros, *matrices)
    reached = arrays.empty(S, zeros.dtype)
    states = arrays.empty(ROWS, np.int64)
    for group in range(first, last):
        rows = order[group * ROWS : (group + 1) * ROWS]
        _pass(
            rows, emissions, start, steps, lengths, P, zeros, matrices, scratch, nodes,
            peaks,
        )  # fmt: skip
        for q in range(len(rows)):
            b = rows[q]
            labels[b] = -1
            pending[b] = not _is_safe(b, q, T, S, lengths, zeros, ceiling, scratch)
        for k in range(labels.shape[1]):
            _draw(
                rows, k, aligned(scratch[1]), T * P, P, 1, aligned(matrices[1]),
                aligned(matrices[2]), P, steps, lengths, uniforms, reached, states,
                pending, labels,
            )  # fmt: skip


@kernel
def sample_in_lanes(
    first,
    last,
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    shared,
    order,
    zeros,
    ceiling,
    uniforms,
    pending,
    labels,
):
    """As ``sample``, of the rows ``order[L first : L last]``, in lanes."""
    T, S = emissions.shape[1], emissions.shape[2]
    L = len(zeros)
    weights = arrays.empty((T * S + L + 1) * L, zeros.dtype)
    chances = arrays.empty((T * S + L + 1) * L, zeros.dtype)
    alphas = arrays.empty((T * S + 1) * L, zeros.dtype)
    inverses = arrays.empty((T + 1) * L, zeros.dtype)
    now = arrays.empty((S + 1) * L, zeros.dtype)
    row = arrays.empty(T * S, emissions.dtype)
    ends = arrays.empty(L, zeros.dtype)
    found = arrays.empty((7, L), zeros.dtype)
    move = arrays.empty(S * S + L, zeros.dtype)
    back = arrays.empty(S * S, zeros.dtype)
    tail = arrays.empty(S + L, zeros.dtype)
    reached = arrays.empty(S, zeros.dtype)
    states = arrays.empty(L, np.int64)
    forward_backward_in_lanes.take_exponentials(
        transitions, end, zeros, move, back, tail
    )
    for group in range(first, last):
        rows = order[group * L : (group + 1) * L]
        N = lengths[rows[0]]
        for x in range(L):
            ends[x] = lengths[rows[x]] if x < len(rows) else 0
        gather(emissions, steps, lengths, rows, N, row, zeros, weights)
        forward_backward_in_lanes.forward(
            N, S, start, move, zeros, ends, weights, alphas, now, inverses, found
        )
        forward_backward_in_lanes.backward(
            N, S, rows, lengths, back, tail, zeros, ends, weights, alphas, now,
            inverses, chances, found,
        )  # fmt: skip
        for x in range(len(rows)):
            b = rows[x]
            labels[b] = -1
            pending[b] = lengths[b] > 0 and not 16 * found[2, x] <= ceiling * T * S
        for k in range(labels.shape[1]):
            _draw(
                rows, k, aligned(alphas), 1, S * L, L, span(back), span(tail), S, steps,
                lengths, uniforms, reached, states, pending, labels,
            )  # fmt: skip


@kernel
def edge_marginals(
    first,
    last,
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    shared,
    order,
    zeros,
    ceiling,
    pending,
    edges,
):
    """Fill edges[B, T - 1, S, S] of the rows ``order[4 first : 4 last]``.

    0 where a step is masked or the first. Other arguments as
    ``forward_backward_over_states``.
    """
    T, S = emissions.shape[1], emissions.shape[2]
    P, matrices, scratch = _room(T, S, zeros)
    nodes = arrays.empty(emissions.shape, zeros.dtype)
    peaks = arrays.empty((ROWS, 2), np.float64)
    take_exponentials(transitions, end, P, zeros, *matrices)
    for group in range(first, last):
        rows = order[group * ROWS : (group + 1) * ROWS]
        _pass(
            rows, emissions, start, steps, lengths, P, zeros, matrices, scratch, nodes,
            peaks,
        )  # fmt: skip
        for q in range(len(rows)):
            b = rows[q]
            if _is_safe(b, q, T, S, lengths, zeros, ceiling, scratch):
                pending[b] = False
                if lengths[b] < T:
                    edges[b] = 0
                _fill_edges(
                    b, q * T * P, S, P, steps, lengths, zeros, matrices, scratch, edges
                )


@kernel
def entropy(
    first,
    last,
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    shared,
    order,
    zeros,
    ceiling,
    tolerance,
    pending,
    value,
):
    """Fill value[B] of the rows ``order[4 first : 4 last]``.

    Or set ``pending``, as ``entropy_of_marginals``. Other arguments as
    ``forward_backward_over_states``.
    """
    T, S = emissions.shape[1], emissions.shape[2]
    P, matrices, scratch = _room(T, S, zeros)
    weights, alphas, _, inverses, _ = scratch
    nodes = arrays.empty(emissions.shape, zeros.dtype)
    top, last_top = take_exponentials(transitions, end, P, zeros, *matrices)
    edges = arrays.empty((1, 1, S, S), zeros.dtype)
    total = arrays.empty(len(matrices[0]), zeros.dtype)
    lost = arrays.empty(len(matrices[0]), zeros.dtype)
    peaks = arrays.empty((ROWS, 2), np.float64)
    for group in range(first, last):
        rows = order[group * ROWS : (group + 1) * ROWS]
        _pass(
            rows, emissions, start, steps, lengths, P, zeros, matrices, scratch, nodes,
            peaks,
        )  # fmt: skip
        for q in range(len(rows)):
            b = rows[q]
            N = lengths[b]
            if N == 0:
                value[b] = 0
                pending[b] = False
                continue
            if not _is_safe(b, q, T, S, lengths, zeros, ceiling, scratch):
                continue
            scale = log_product(inverses[q * T : q * T + N])
            log_z, _ = total_of(peaks[q, 0], peaks[q, 1], N, top, last_top, -scale)
            edges[:] = 0
            if N > 1:
                sum_edges(
                    0, q * T * P, N, S, P, zeros, alphas, weights, matrices[0], total,
                    lost, edges,
                )  # fmt: skip
            found, size = _subtract(
                b, steps, N, emissions, start, end, nodes, log_z, abs(log_z)
            )
            found, size = _subtract_moves(transitions, 0, edges, 0, found, size)
            pending[b] = _is_lost(found, size, tolerance)
            if pending[b] and _is_certain(b, steps, N, nodes):
                pending[b], found = False, 0.0
            value[b] = found


@kernel
def entropy_of_marginals(
    first,
    last,
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    shared,
    log_z,
    nodes,
    edges,
    heads,
    tails,
    tolerance,
    pending,
    value,
):
    """Fill value[B] of the rows that are not pending, or set ``pending``.

    Log-partitions and marginals are float64, edges as in
    ``chain.cpu.forward_backward_by_step``; ``tolerance`` is the relative error that an
    entropy may have.
    """
    for b in range(first, last):
        if pending[b]:
            continue
        N = lengths[b]
        value[b] = 0
        if N == 0:
            continue
        found, size = _subtract(
            b, steps, N, emissions, start, end, nodes, log_z[b, 0], abs(log_z[b, 0])
        )
        if shared:
            found, size = _subtract_moves(transitions, 0, edges, b, found, size)
        else:
            Q = edges.shape[1]
            moves = transitions.reshape(-1, 1, *transitions.shape[2:])
            turns = edges.reshape(-1, 1, *edges.shape[2:])
            for n in range(1, N):
                q = b * Q + steps[b, n] - 1
                found, size = _subtract_moves(moves, q, turns, q, found, size)
        pending[b] = _is_lost(found, size, tolerance)
        if pending[b] and _is_certain(b, steps, N, nodes):
            pending[b], found = False, 0.0
        value[b] = found


@subroutine
def _is_lost(found, size, tolerance):
    """Whether an entropy may be off by more than the tolerance."""
    error = ROUNDINGS * _EPS * size
    return not error <= tolerance * found


@subroutine
def _is_certain(b, steps, N, nodes):
    """Whether no position has two states with a probability: one output has it all."""
    S = nodes.shape[2]
    for n in range(N):
        some = 0
        for i in range(S):
            some += np.int64(nodes[b, steps[b, n], i] > 0)
        if some > 1:
            return False
    return True


@subroutine
def _subtract(b, steps, N, emissions, start, end, nodes, found, size):
    """The rest of ``found`` less the expected scores of states, and all sizes added."""
    for n in range(N):
        t = steps[b, n]
        total, more = _expected(nodes[b, t], emissions[b, t])
        found, size = found - total, size + more
    total, more = _expected(nodes[b, steps[b, 0]], start)
    found, size = found - total, size + more
    total, more = _expected(nodes[b, steps[b, N - 1]], end)
    return found - total, size + more


@subroutine
def _subtract_moves(transitions, p, edges, b, found, size):
    """The same for the moves p of transitions[:, 0] and the edges[b, 0]."""
    for i in range(edges.shape[2]):
        total, more = _expected(edges[b, 0, i], transitions[p, 0, i])
        found, size = found - total, size + more
    return found, size


@subroutine(fastmath={"contract", "reassoc"})
def _expected(chances, scores):
    """Sum of chances times scores, and of its terms' sizes."""
    total = 0.0
    size = 0.0
    for e in range(len(chances)):
        # what is forbidden has no chance
        score = np.float64(scores[e])
        term = chances[e] * (score if score > -np.inf else 0.0)
        total += term
        size += abs(term)
    return total, size


@subroutine
def _room(T, S, zeros):
    """P; room for E, its transpose and the exponentials of end; and for four rows."""
    V = len(zeros)
    P = -(-S // V) * V
    # whole fours of rows, and one vector more, to begin at a cache line
    size = -(-S // 4) * 4 * P + V
    matrices = (
        arrays.zeros(size, zeros.dtype),
        arrays.zeros(size, zeros.dtype),
        arrays.zeros(P + V, zeros.dtype),
    )
    scratch = (
        arrays.empty(ROWS * T * P + V, zeros.dtype),  # w, then u
        arrays.empty(ROWS * T * P + V, zeros.dtype),  # a
        arrays.empty(ROWS * P + V, zeros.dtype),
        arrays.empty(ROWS * T, zeros.dtype),
        arrays.empty(ROWS * V, zeros.dtype),  # reach
    )
    return P, matrices, scratch


@subroutine
def _pass(
    rows, emissions, start, steps, lengths, P, zeros, matrices, scratch, nodes, peaks
):
    """Forward and backward through time; peaks of rows are what was taken out of w."""
    T, S = emissions.shape[1], emissions.shape[2]
    move, back, tail = matrices
    weights, alphas, now, inverses, reach = scratch
    for q in range(len(rows)):
        o = q * T * P
        peaks[q, 0], peaks[q, 1] = weigh(
            rows[q], o, emissions, start, steps, lengths, P, zeros, weights
        )
    forward(rows, lengths, T, S, P, zeros, move, weights, alphas, now, inverses)
    backward(
        rows, steps, lengths, P, zeros, back, tail, alphas, now, inverses, weights,
        reach, nodes,
    )  # fmt: skip


@subroutine
def _is_safe(b, q, T, S, lengths, zeros, ceiling, scratch):
    reach = scratch[4]
    return lengths[b] == 0 or 16 * reach[q * len(zeros)] <= ceiling * T * S


@subroutine
def _draw(
    rows, k, alphas, row, step, state, back, tail, P, steps, lengths, uniforms, reached,
    states, pending, labels,
):  # fmt: skip
    """The k-th draws of the rows that are not pending; a sum out of range sets it.

    ``a_n(i)`` of the q-th row is at ``q row + n step + i state`` of alphas, the
    transpose of E has rows of P numbers. The loop over rows is the inner one, so that
    loads of different rows overlap.
    """
    S = len(reached)
    for n in range(lengths[rows[0]] - 1, -1, -1):
        for q in range(len(rows)):
            b = rows[q]
            if pending[b] or lengths[b] <= n:
                continue
            a = q * row + n * step
            total = reached.dtype.type(0)
            if n == lengths[b] - 1:
                for i in range(S):
                    total += get(alphas, a + i * state) * get(tail, i)
                    reached[i] = total
            else:
                e = states[q] * P
                for i in range(S):
                    total += get(alphas, a + i * state) * get(back, e + i)
                    reached[i] = total
            if not total > 0:
                pending[b] = True
                continue
            t = steps[b, n]
            target = uniforms[b, k, t] * total
            j = 0
            for i in range(S):
                j += np.int64(reached[i] <= target)
            if j == S:  # by rounding: the last state that has a chance
                j = 0
                while reached[j] < total:
                    j += 1
            states[q] = j
            labels[b, k, t] = j


@subroutine
def _fill_edges(b, o, S, P, steps, lengths, zeros, matrices, scratch, edges):
    move = aligned(matrices[0])
    pulls, alphas = aligned(scratch[0]), aligned(scratch[1])
    out = span(edges)
    for n in range(1, lengths[b]):
        e = (b * edges.shape[1] + steps[b, n] - 1) * S * S
        for i in range(S):
            a = splat_at(alphas, o + (n - 1) * P + i)
            for j in range(0, P, len(zeros)):
                chance = a * load(move, i * P + j) * load(pulls, o + n * P + j)
                store_some(out, e + i * S + j, S - j, chance)
