r"""Covariances of the parts with a sum over parts, by the scaled recursion in float64.

What is computed stands in ``covariance_in_log_space``, here with a, E, w and b of
``forward_backward_by_step``, and u = w b:

    past_t(j)   = v_t(j) + sum_i a_{t-1}(i) E(i, j) (past_{t-1}(i) + v(i, j)) / n_t(j)
    n_t(j)      = sum_i a_{t-1}(i) E(i, j)
    future_t(i) = sum_j E(i, j) u_{t+1}(j) (v(i, j) + g_{t+1}(j)) / r_t(i)
    r_t(i)      = sum_j E(i, j) u_{t+1}(j),   g = v_t + future_t

A row that breaks the bound of ``forward_backward_by_step`` stays pending. Vectors go
over states; rows of scratch are P numbers long: S, and zeros up to whole vectors.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.exponentials import exponentials
from smoothsp._kernels.vectors.simd import (
    aligned,
    fma,
    larger,
    load,
    put,
    span,
    splat,
    splat_at,
    store,
    where_below,
)
from smoothsp._kernels.vectors.simd_exp import exp
from smoothsp._kernels.vectors.simd_parts import (
    load_some,
    max_of,
    store_some,
    sum_of,
)


@kernel
def covariance(
    first,
    last,
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    shared,
    floor,
    pending,
    v_nodes,
    v_edges,
    v_heads,
    v_tails,
    nodes,
    edges,
    heads,
    tails,
):
    """Fill nodes, edges, heads, tails with the covariances of each part with V.

    Of the rows that are safe, whose ``pending`` is cleared. Shapes as in
    ``covariance_in_log_space``; ``floor`` as in ``forward_backward_by_step``.
    """
    T, S = emissions.shape[1], emissions.shape[2]
    zeros = arrays.zeros(8, np.float64)
    V = len(zeros)
    P = -(-S // V) * V
    # one vector more, to begin at a cache line; E is written up to one past its end
    matrices = (
        arrays.zeros(S * P + 2 * V),  # E
        arrays.zeros(S * P + V),  # v of the edges
        arrays.zeros(S * P + V),  # sums of edges over time
    )
    rows = (
        arrays.zeros(T * P + V),  # a
        arrays.zeros(T * P + V),  # w
        arrays.zeros(T * P + V),  # past
    )
    tail = arrays.zeros(P + 2 * V)
    last_top = exponentials(span(end), 0, S, S, zeros, P, aligned(tail))
    top = -np.inf
    if shared:
        out = aligned(matrices[0])
        top = exponentials(span(transitions), 0, S * S, S, zeros, P, out)
    inverses = arrays.zeros(T)
    vectors = (
        arrays.zeros(P + V),
        arrays.zeros(P + V),
        arrays.zeros(P + V),
        arrays.zeros(P + V),
    )
    for b in range(first, last):
        nodes[b] = 0
        edges[b] = 0
        heads[b] = 0
        tails[b] = 0
        N = lengths[b]
        if N == 0:
            pending[b] = False
            continue
        if last_top == -np.inf or (shared and N > 1 and top == -np.inf):
            continue
        chain = (emissions, transitions, start, steps)
        v = (v_nodes, v_edges, v_heads, v_tails)
        if shared:
            _load_weights(v_edges, b * S * S, S, P, zeros, matrices[1])
        if not _forward(
            b, N, shared, chain, v, P, zeros, floor, matrices, rows, inverses
        ):
            continue
        if not _backward(
            b, N, shared, chain, v, P, zeros, floor, matrices, rows, inverses, tail,
            vectors, nodes, edges,
        ):  # fmt: skip
            nodes[b] = 0
            edges[b] = 0
            continue
        pending[b] = False
        for s in range(S):
            heads[b, s] = nodes[b, steps[b, 0], s]
            tails[b, s] = nodes[b, steps[b, N - 1], s]


@subroutine
def _load_weights(weights, o, S, P, zeros, out):
    """Fill out[S, P] with the S^2 weights from o on."""
    given = span(weights)
    room = aligned(out)
    for i in range(S):
        for j in range(0, P, len(zeros)):
            x = load_some(given, o + i * S + j, S - j, splat(zeros[0]))
            store(room, i * P + j, x)


@subroutine
def _load_step(b, t, chain, v, P, zeros, matrices):
    """E and v of the step into position t; False if all of it is forbidden."""
    transitions = chain[1]
    S = transitions.shape[3]
    o = (b * transitions.shape[1] + t - 1) * S * S
    _load_weights(v[1], o, S, P, zeros, matrices[1])
    out = aligned(matrices[0])
    top = exponentials(span(transitions), o, S * S, S, zeros, P, out)
    return top > -np.inf


@subroutine
def _forward(b, N, shared, chain, v, P, zeros, floor, matrices, rows, inverses):
    """Fill a, w, past and the inverses of the sums of a; False if not safe."""
    emissions, _, start, steps = chain
    T, S = emissions.shape[1], emissions.shape[2]
    V = len(zeros)
    zero = splat(zeros[0])
    least = splat(zeros.dtype.type(-np.inf))
    move, turn = aligned(matrices[0]), aligned(matrices[1])
    alphas, weights, past = aligned(rows[0]), aligned(rows[1]), aligned(rows[2])
    scores, first = span(emissions), span(start)
    wanted, heads = span(v[0]), span(v[2])
    for n in range(N):
        t = steps[b, n]
        e = (b * T + t) * S
        o = n * P
        # tested here: to call a function with so many arrays costs as much as a step
        needed = n > 0 and not shared
        if needed and not _load_step(b, t, chain, v, P, zeros, matrices):
            return False
        peaks = least
        for j in range(0, P, V):
            x = load_some(scores, e + j, S - j, least)
            if n == 0:
                x = x + load_some(first, j, S - j, zero)
            store(weights, o + j, x)
            peaks = larger(x, peaks)
        peak = max_of(peaks)
        if not peak > -np.inf:
            return False
        total = zero
        for j in range(0, P, V):
            w = exp(load(weights, o + j) - splat(peak))
            store(weights, o + j, w)
            grown = load_some(wanted, e + j, S - j, zero)
            if n == 0:
                grown = grown + load_some(heads, b * S + j, S - j, zero)
                store(alphas, j, w)
            else:
                into = mean = zero
                for i in range(S):
                    x = load(move, i * P + j)
                    a = splat_at(alphas, o - P + i)
                    far = splat_at(past, o - P + i) + load(turn, i * P + j)
                    a = a * x
                    into = into + a
                    mean = fma(a, far, mean)
                grown = grown + where_below(zero, into, mean / into, zero)
                w = into * w
                store(alphas, o + j, w)
            store(past, o + j, grown)
            total = total + w
        c = sum_of(total)
        if not c >= floor:
            return False
        inverses[n] = 1 / c
        for j in range(0, P, V):
            store(alphas, o + j, load(alphas, o + j) * splat(inverses[n]))
    return True


@subroutine
def _backward(
    b,
    N,
    shared,
    chain,
    v,
    P,
    zeros,
    floor,
    matrices,
    rows,
    inverses,
    tail,
    vectors,
    nodes,
    edges,
):
    """Fill nodes and edges; False if not safe."""
    emissions, _, _, steps = chain
    T, S = emissions.shape[1], emissions.shape[2]
    V = len(zeros)
    zero = splat(zeros[0])
    move, turn, sums = aligned(matrices[0]), aligned(matrices[1]), aligned(matrices[2])
    alphas, weights, past = aligned(rows[0]), aligned(rows[1]), aligned(rows[2])
    last = aligned(tail)
    beta, future = aligned(vectors[0]), aligned(vectors[1])
    pull, gain = aligned(vectors[2]), aligned(vectors[3])
    wanted, tails = span(v[0]), span(v[3])
    out, turns = span(nodes), span(edges)
    expected = 0.0
    for j in range(0, P, V):
        store(beta, j, load(last, j))
        store(future, j, load_some(tails, b * S + j, S - j, zero))
    for e in range(0, S * P, V):
        store(sums, e, zero)
    for n in range(N - 1, -1, -1):
        t = steps[b, n]
        e = (b * T + t) * S
        o = n * P
        total = mean = zero
        for j in range(0, P, V):
            chance = load(alphas, o + j) * load(beta, j)
            total = total + chance
            mean = fma(chance, load(past, o + j) + load(future, j), mean)
        z = sum_of(total)
        if not z >= floor:
            return False
        if n == N - 1:
            expected = sum_of(mean) / z
        share = splat(1 / z)
        for j in range(0, P, V):
            chance = load(alphas, o + j) * load(beta, j) * share
            far = load(past, o + j) + load(future, j) - splat(expected)
            store_some(out, e + j, S - j, chance * far)
        if n == 0:
            break
        if not shared and not _load_step(b, t, chain, v, P, zeros, matrices):
            return False
        for j in range(0, P, V):
            store(pull, j, load(weights, o + j) * load(beta, j))
            x = load_some(wanted, e + j, S - j, zero)
            store(gain, j, x + load(future, j))
        q = (b * edges.shape[1] + t - 1) * S * S
        scale = inverses[n] / z
        for i in range(S):
            a = splat_at(alphas, o - P + i) * splat(scale)
            far = splat_at(past, o - P + i) - splat(expected)
            total = mean = zero
            for j in range(0, P, V):
                y = load(move, i * P + j) * load(pull, j)
                g = load(turn, i * P + j) + load(gain, j)
                total = total + y
                mean = fma(y, g, mean)
                g = a * y * (far + g)
                if shared:
                    store(sums, i * P + j, load(sums, i * P + j) + g)
                else:
                    store_some(turns, q + i * S + j, S - j, g)
            r = sum_of(total)
            put(beta, i, r)
            put(future, i, sum_of(mean) / r if r > 0 else 0.0)
        peaks = zero
        for j in range(0, P, V):
            peaks = larger(load(beta, j), peaks)
        peak = max_of(peaks)
        if not peak > 0:
            return False
        for j in range(0, P, V):
            store(beta, j, load(beta, j) * splat(1 / peak))
    if shared:
        q = b * S * S
        for i in range(S):
            for j in range(0, P, V):
                store_some(turns, q + i * S + j, S - j, load(sums, i * P + j))
    return True
