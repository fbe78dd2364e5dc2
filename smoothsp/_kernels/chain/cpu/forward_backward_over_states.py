r"""The scaled recursion with vectors over states, for shared transitions.

With ``w_t(j)`` the exponential of potential j at step t, the largest taken out, and
``E = exp(transitions - top)``,

    forward    a_t(j) = sum_i a_{t-1}(i) E(i, j) / c_{t-1} w_t(j),   a_0 = w_0
    backward   b_{t-1}(i) = sum_j E(i, j) u_t(j) / c_{t-1},          u_t = w_t b_t
    nodes      a_t(s) b_t(s) / z_t
    edges      E(i, j) sum_t a_{t-1}(i) u_t(j) / (c_{t-1} z_{t-1})
    value      sum_{t<N} max_t + (N - 1) top + max_end + sum_{t<N-1} log c_t + log z

with c_t the sum of a_t and z_t the sum of ``a_t b_t``, which is 1 but for rounding
since the end scores are divided by it at the last step: by z, the sum of
``a_{N-1}(j) exp(end(j) - max_end)``. max_t is the largest potential of step t, with
start in step 0. No step waits for a sum over the states of the same step: the next one
divides by it.

A number below the smallest normal one, ``tiny``, may be lost. No ``w``, E or a exceeds
1, so the sum of b_t is at least 1. Of all outputs' chances, those lost at step t are at
most ``S tiny sum_j u_t(j) / c_{t-1}`` for the products with E and ``6 tiny sum_j
b_t(j)`` for the other numbers of the forward recursion, ``(3 S + 4) tiny sum_j b_t(j)``
for the backward one. While 16 S tiny times

    reach = sum over t and j of b_t(j) + u_t(j) / c_{t-1}

stays below eps, all losses together are below one rounding error. A row that breaks
this bound stays pending, for a wider dtype or for log space; so does a row that is
impossible, where 0 / 0 is NaN.

Four rows go through time together and share what is read of E. Scratch of a row is
``[T, P]``: P is S up to whole vectors of V states, those past S with w = 0. The
backward product reads the transpose of E, so that both products load whole rows. Edges
are summed over time after both passes, tile by tile, with the sums in registers.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from smoothsp._kernels.chain.cpu.records import Chain, Marginals
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays, exact_sums
from smoothsp._kernels.vectors.exponentials import exponentials, transposed
from smoothsp._kernels.vectors.long_sums import BLOCK
from smoothsp._kernels.vectors.simd import (
    aligned,
    fma,
    larger,
    load,
    put,
    span,
    splat,
    store,
    where_below,
)
from smoothsp._kernels.vectors.simd_exp import exp
from smoothsp._kernels.vectors.simd_parts import load_some, max_of, store_some, sum_of
from smoothsp._kernels.vectors.state_products import (
    ROWS,
    Matrix,
    outer_sums,
    products,
)


class Scratch(NamedTuple):
    """What four rows need, and the exponentials of what rows share."""

    P: Any
    zeros: Any  # [V]
    move: Any  # [S, P], E
    back: Any  # [S, P], its transpose
    tail: Any  # [P], exponentials of end
    total: Any  # [S, P], sums of edges over many steps
    lost: Any  # [S, P], what rounding took from them
    weights: Any  # [4, T, P], w, then u
    alphas: Any  # [4, T, P], a, then a / (c z)
    now: Any  # [4, P]
    inverses: Any  # [4, T], 1 / c
    reach: Any  # [4, V]


@kernel
def forward_backward(first, last, chain, order, zeros, ceiling, pending, value, out):
    """Fill the rows ``order[4 first : 4 last]``; clear ``pending`` where safe.

    ``zeros`` has V entries of the dtype to compute in, ``order`` lists the wanted rows,
    in a group the longest first, ceiling is ``eps / (S^2 T tiny)``. Outputs as in
    ``chain.cpu.laws.sums``.
    """
    chain, out = Chain(*chain), Marginals(*out)
    T, S = chain.emissions.shape[1], chain.emissions.shape[2]
    nodes, edges, heads, tails = out
    steps, lengths = chain.steps, chain.lengths
    kept = _scratch(T, S, zeros)
    R, V = T * kept.P, len(zeros)
    peaks = arrays.empty((ROWS, 2), np.float64)
    top, last_top = _take_exponentials(chain, kept)
    for group in range(first, last):
        rows = order[group * ROWS : (group + 1) * ROWS]
        for q in range(len(rows)):
            peaks[q, 0], peaks[q, 1] = _weigh(rows[q], q * R, chain, kept)
        _forward(rows, chain, kept)
        _backward(rows, chain, kept, nodes)
        for q in range(len(rows)):
            b = rows[q]
            N = lengths[b]
            if N > 0 and not 16 * kept.reach[q * V] <= ceiling * T * S:
                continue
            pending[b] = False
            if N == 0:
                value[b, 0] = value[b, 1] = 0
                nodes[b] = 0
                edges[b] = 0
                heads[b] = 0
                tails[b] = 0
                continue
            scale = log_product(kept.inverses[q * T : q * T + N])
            value[b, 0], value[b, 1] = total_of(
                peaks[q, 0], peaks[q, 1], N, top, last_top, -scale
            )
            if N == 1:
                edges[b] = 0
            else:
                _sum_edges(q * R, N, S, kept, edges, b)
            for s in range(S):
                heads[b, s] = nodes[b, steps[b, 0], s]
                tails[b, s] = nodes[b, steps[b, N - 1], s]


@subroutine
def _scratch(T, S, zeros):
    """Room for four rows of T steps, and one vector more, to begin at a cache line."""
    V = len(zeros)
    P = -(-S // V) * V
    R = T * P
    # whole fours of rows of a matrix
    size = -(-S // 4) * 4 * P + V
    more = size if T > BLOCK + 1 else V
    return Scratch(
        P,
        zeros,
        arrays.zeros(size, zeros.dtype),
        arrays.zeros(size, zeros.dtype),
        arrays.zeros(P + V, zeros.dtype),
        arrays.empty(more, zeros.dtype),
        arrays.empty(more, zeros.dtype),
        arrays.empty(ROWS * R + V, zeros.dtype),
        arrays.empty(ROWS * R + V, zeros.dtype),
        arrays.empty(ROWS * P + V, zeros.dtype),
        arrays.empty(ROWS * T, zeros.dtype),
        arrays.empty(ROWS * V, zeros.dtype),
    )


@subroutine
def _take_exponentials(chain, kept):
    """Fill E, its transpose and the exponentials of end; return the largest scores."""
    S, P, zeros = len(chain.end), kept.P, kept.zeros
    move = aligned(kept.move)
    top = exponentials(span(chain.transitions), 0, S * S, S, zeros, P, move)
    last_top = exponentials(span(chain.end), 0, S, S, zeros, P, aligned(kept.tail))
    transposed(move, S, P, aligned(kept.back))
    return top, last_top


@subroutine(loops=False)
def total_of(peaks, rest, N, top, last_top, log_rest):
    """The log-partition of N steps as two numbers: what was taken out, and the rest."""
    total, rest = exact_sums.add(peaks, rest, last_top)
    if N > 1:
        # the product of N and half the digits of top is exact
        high = np.float64(np.float32(top))
        total, rest = exact_sums.add(total, rest, (N - 1) * high)
        total, rest = exact_sums.add(total, rest, (N - 1) * (top - high))
    total, rest = exact_sums.add(total, rest, log_rest)
    return exact_sums.settle(total, rest)


@subroutine(forceinline=True)
def two_sum(a, b):
    """The sum of vectors, and what rounding took from it."""
    x = a + b
    part = x - a
    return x, (a - (x - part)) + (b - part)


@subroutine(forceinline=True)
def two_sum_or_none(a, b, least, zero):
    """As ``two_sum``; rounding took 0 from -inf."""
    x, lost = two_sum(a, b)
    return x, where_below(least, x, lost, zero)


@subroutine
def _weigh(b, o, chain, kept):
    """Fill w of row b, at offset o; the sum of what was taken out, as two numbers."""
    T, S = chain.emissions.shape[1], chain.emissions.shape[2]
    steps, lengths = chain.steps, chain.lengths
    P, zeros = kept.P, kept.zeros
    V = len(zeros)
    given = span(chain.emissions)
    start = span(chain.start)
    weights = aligned(kept.weights)
    least = splat(zeros.dtype.type(-np.inf))
    total = rest = 0.0
    for n in range(lengths[b]):
        e = (b * T + steps[b, n]) * S
        r = o + n * P
        peaks = least
        if n == 0:
            total = _first_step(given, start, e, o, S, P, zeros, weights)
        else:
            for j in range(0, P, V):
                store(weights, r + j, load_some(given, e + j, S - j, least))
        for j in range(0, P, V):
            peaks = larger(load(weights, r + j), peaks)
        peak = max_of(peaks)
        total, rest = exact_sums.add(total, rest, np.float64(peak))
        for j in range(0, P, V):
            store(weights, r + j, exp(load(weights, r + j) - splat(peak)))
    return total, rest


@subroutine
def _first_step(given, start, e, o, S, P, zeros, weights):
    """Fill emissions plus ``start``, less the largest, which is returned.

    What rounding takes from a sum is added once the largest is taken out.
    """
    V = len(zeros)
    least, zero = splat(zeros.dtype.type(-np.inf)), splat(zeros[0])
    peaks = least
    for j in range(0, P, V):
        x = load_some(given, e + j, S - j, least)
        s = load_some(start, j, S - j, zero)
        x, lost = two_sum_or_none(x, s, least, zero)
        peaks = larger(x, peaks)
    peak = max_of(peaks)
    for j in range(0, P, V):
        x = load_some(given, e + j, S - j, least)
        s = load_some(start, j, S - j, zero)
        x, lost = two_sum_or_none(x, s, least, zero)
        store(weights, o + j, x - splat(peak) + lost)
    return np.float64(peak)


@subroutine
def _forward(rows, chain, kept):
    """Fill ``a_t(j) = sum_i a_{t-1}(i) E(i, j) / c_{t-1} w_t(j)``, and ``1 / c_t``.

    Time is the outer loop: the product takes all rows that reach a step.
    """
    T, S = chain.emissions.shape[1], chain.emissions.shape[2]
    lengths = chain.lengths
    P, zeros, inverses = kept.P, kept.zeros, kept.inverses
    V = len(zeros)
    R = T * P
    one = zeros.dtype.type(1)
    zero = splat(zeros[0])
    move = Matrix(aligned(kept.move), S, P, V, zero)
    weights = aligned(kept.weights)
    alphas = aligned(kept.alphas)
    now = aligned(kept.now)
    here = len(rows)
    for n in range(lengths[rows[0]]):
        while lengths[rows[here - 1]] <= n:
            here -= 1
        if n > 0:
            products(alphas, (n - 1) * P, R, here, move, now)
        for q in range(here):
            o = q * R + n * P
            total = zero
            for j in range(0, P, V):
                a = load(weights, o + j)
                if n > 0:
                    inverse = splat(inverses[q * T + n - 1])
                    a = load(now, q * P + j) * inverse * a
                store(alphas, o + j, a)
                total = total + a
            inverses[q * T + n] = one / sum_of(total)


@subroutine
def _backward(rows, chain, kept, nodes):
    """Fill nodes; u replaces w, ``a / (c z)`` replaces a, 1 / z the last 1 / c.

    At each step: the product with the transpose, b, u, z and reach, then the nodes.
    """
    T, S = nodes.shape[1], nodes.shape[2]
    steps, lengths = chain.steps, chain.lengths
    P, zeros, inverses = kept.P, kept.zeros, kept.inverses
    V = len(zeros)
    R = T * P
    one = zeros.dtype.type(1)
    zero = splat(zeros[0])
    back = Matrix(aligned(kept.back), S, P, V, zero)
    tail = aligned(kept.tail)
    weights = aligned(kept.weights)
    alphas = aligned(kept.alphas)
    now = aligned(kept.now)
    reach = span(kept.reach)
    out = span(nodes)
    for q in range(len(rows)):
        store(reach, q * V, zero)
        if lengths[rows[q]] < T:
            nodes[rows[q]] = 0
    here = np.int64(0)
    for n in range(lengths[rows[0]] - 1, -1, -1):
        if here > 0:
            products(weights, (n + 1) * P, R, here, back, now)
        while here < len(rows) and lengths[rows[here]] > n:
            # a row begins where it ends, with the end scores
            z = zero
            o = here * R + n * P
            for j in range(0, P, V):
                b = load(tail, j)
                store(now, here * P + j, b)
                z = fma(load(alphas, o + j), b, z)
            inverses[here * T + n] = one / sum_of(z)
            here += 1
        for q in range(here):
            o = q * R + n * P
            inverse = splat(inverses[q * T + n])
            before = splat(inverses[q * T + n - 1]) if n > 0 else zero
            total = load(reach, q * V)
            z = zero
            for j in range(0, P, V):
                b = load(now, q * P + j) * inverse
                pull = load(weights, o + j) * b
                store(now, q * P + j, b)
                store(weights, o + j, pull)
                z = fma(load(alphas, o + j), b, z)
                total = fma(pull, before, total) + b
            store(reach, q * V, total)
            share = splat(one / sum_of(z))
            e = (rows[q] * T + steps[rows[q], n]) * S
            for j in range(0, P, V):
                a = load(alphas, o + j) * share
                store_some(out, e + j, S - j, a * load(now, q * P + j))
                store(alphas, o + j, a * inverse)
    for q in range(len(rows)):
        put(reach, q * V, sum_of(load(reach, q * V)))


@subroutine
def log_product(numbers):
    """The sum of logs: one log of several factors, so few that they stay in range."""
    total = 0.0
    product = 1.0
    for x in numbers:
        if x < 1e100:
            product *= x
        else:
            total += math.log(x)
        if not 1e-200 < product < 1e200:
            total += math.log(product)
            product = 1.0
    return total + math.log(product)


@subroutine
def _sum_edges(o, N, S, kept, edges, b):
    """Fill the edges of row b from ``a / (c z)`` and u, at offset o."""
    zeros = kept.zeros
    move = Matrix(aligned(kept.move), S, kept.P, len(zeros), splat(zeros[0]))
    sums = aligned(kept.total), aligned(kept.lost)
    shares, pulls = aligned(kept.alphas), aligned(kept.weights)
    outer_sums(shares, pulls, o, N, move, sums, span(edges), b * S * S)
