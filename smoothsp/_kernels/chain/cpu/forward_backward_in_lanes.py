"""The scaled recursion with one sequence per lane of a vector, for shared transitions.

The recursion and the bound on what may be lost are those of
``forward_backward_over_states``. A group of L rows, one per lane, goes through time
together, in three passes:

    forward    w_t(j) = exp(e_t(j) - max e_t)                  in place of e
               a_t(j) = w_t(j) sum_i a_{t-1}(i) E(i, j) / c_{t-1}
    backward   b_t(i) = sum_j E(i, j) u_{t+1}(j) / c_t,  u_t = w_t b_t in place of w
               nodes a_t b_t / z_t, and a_t / (c_t z_t) in place of a
    edges      E(i, j) sum_t a_{t-1}(i) u_t(j), with the a of the second pass

Here ``e_0`` includes start and ``a_0 = w_0``. The last ``b`` is the exponential of end,
over the z that this gives. The log-partition is the sum of the maxima that were taken
out, of ``log c_t`` for all but the last step, and of that ``log z``.

With few states much of a vector over states is padding. With one row per lane, sums
over states need no sum over lanes, and a number of E is loaded once for L rows.
Lanes never mix: the bits of a row do not depend on the rows beside it. Arrays of a
group are flat, ``[T, S, L]``. A lane is idle past the length of its row, with ``b = 0``
there. Rows are sorted by length, so few lanes are idle.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from smoothsp._kernels.chain.cpu.forward_backward_over_states import (
    total_of,
    two_sum,
    two_sum_or_none,
)
from smoothsp._kernels.chain.cpu.records import Chain, Marginals
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays, exact_sums
from smoothsp._kernels.vectors.exponentials import exponentials, transposed
from smoothsp._kernels.vectors.lane_rows import gather, scatter, scatter_whole, turn
from smoothsp._kernels.vectors.lanes import outer_sums, product
from smoothsp._kernels.vectors.long_sums import BLOCK
from smoothsp._kernels.vectors.simd import (
    aligned,
    fma,
    larger,
    load,
    span,
    splat,
    splat_at,
    store,
    where_below,
)
from smoothsp._kernels.vectors.simd_exp import exp, exponent, mantissa


class Scratch(NamedTuple):
    """What a group of L rows needs, and the exponentials of what rows share."""

    zeros: Any  # [L]
    move: Any  # [S, S], E
    back: Any  # [S, S], its transpose
    tail: Any  # [S], exponentials of end
    ends: Any  # [L], lengths
    weights: Any  # [T, S, L], e, then w, then u
    alphas: Any  # [T, S, L], a, then a / (c z)
    now: Any  # [S, L]
    inverses: Any  # [T, L], 1 / c
    nodes: Any  # [T, S, L]
    total: Any  # [S, S, L], edges
    lost: Any  # [S, S, L], what rounding took from them
    # exponents and mantissas of inverses; reach; last z; what was taken out, in three
    found: Any  # [7, L]


@kernel(loops=False)
def forward_backward(first, last, chain, order, zeros, ceiling, pending, value, out):
    """Fill the rows ``order[first * L : last * L]``; clear ``pending`` where safe.

    ``zeros`` has L entries of the dtype to compute in, ``order`` lists the wanted rows,
    in a group the longest first, ceiling is ``eps / (S^2 T tiny)``. Outputs as in
    ``chain.cpu.laws.sums``.
    """
    chain, out = Chain(*chain), Marginals(*out)
    emissions, steps, lengths = chain.emissions, chain.steps, chain.lengths
    nodes, edges, heads, tails = out
    T, S = emissions.shape[1], emissions.shape[2]
    L = len(zeros)
    kept = _scratch(T, S, zeros)
    row = arrays.empty(T * S, emissions.dtype)
    ends, found = kept.ends, kept.found
    top, last_top = _take_exponentials(chain, kept)
    for group in range(first, last):
        rows = order[group * L : (group + 1) * L]
        N = lengths[rows[0]]
        for x in range(L):
            ends[x] = lengths[rows[x]] if x < len(rows) else 0
        gather(emissions, steps, lengths, rows, N, row, zeros, kept.weights)
        _forward(N, chain.start, kept)
        _backward(N, S, rows, lengths, kept)
        _sum_edges(N, S, kept)
        turn(N * S, zeros, kept.nodes)
        turn(S * S, zeros, kept.total)
        for x in range(len(rows)):
            b = rows[x]
            own = lengths[b]
            if own == 0:
                pending[b] = False
                value[b, 0] = value[b, 1] = 0
            elif 16 * found[2, x] <= ceiling * T * S:
                pending[b] = False
                taken, rest = exact_sums.add(
                    np.float64(found[4, x]),
                    np.float64(found[6, x]),
                    np.float64(found[5, x]),
                )
                scale = math.log(found[1, x]) + found[0, x] * math.log(2.0)
                value[b, 0], value[b, 1] = total_of(
                    taken, rest, own, top, last_top, math.log(found[3, x]) - scale
                )
        scatter(steps, lengths, rows, pending, row, zeros, kept.nodes, nodes)
        scatter_whole(S * S, rows, pending, zeros, kept.total, edges)
        for x in range(len(rows)):
            b = rows[x]
            own = lengths[b]
            if own == 0:
                edges[b] = 0
                heads[b] = 0
                tails[b] = 0
                continue
            for s in range(S):
                heads[b, s] = nodes[b, steps[b, 0], s]
                tails[b, s] = nodes[b, steps[b, own - 1], s]


@subroutine(loops=False)
def _scratch(T, S, zeros):
    """Room for L rows of T steps.

    One square of lanes more, or one vector, to begin at a cache line.
    """
    L = len(zeros)
    return Scratch(
        zeros,
        arrays.empty(S * S + L, zeros.dtype),
        arrays.empty(S * S, zeros.dtype),
        arrays.empty(S + L, zeros.dtype),
        arrays.empty(L, zeros.dtype),
        arrays.empty((T * S + L + 1) * L, zeros.dtype),
        arrays.empty((T * S + 1) * L, zeros.dtype),
        arrays.empty((S + 1) * L, zeros.dtype),
        arrays.empty((T + 1) * L, zeros.dtype),
        arrays.empty((T * S + L + 1) * L, zeros.dtype),
        arrays.empty((S * S + L + 1) * L, zeros.dtype),
        arrays.empty((S * S if T > BLOCK + 1 else 1) * L + L, zeros.dtype),
        arrays.empty((7, L), zeros.dtype),
    )


@subroutine(loops=False)
def _take_exponentials(chain, kept):
    """Fill E, its transpose and the exponentials of end; return the largest scores."""
    S, zeros, move = len(chain.end), kept.zeros, span(kept.move)
    top = exponentials(span(chain.transitions), 0, S * S, S, zeros, S, move)
    last_top = exponentials(span(chain.end), 0, S, S, zeros, S, span(kept.tail))
    transposed(move, S, S, span(kept.back))
    return top, last_top


@subroutine
def _forward(N, start, kept):
    """Fill weights w in place of potentials, alphas, and inverses 1 / c, 0 if idle.

    The product of the inverses is kept as exponent and mantissa: it stays in range, and
    no step needs a logarithm.
    """
    S, zeros = len(start), kept.zeros
    L = len(zeros)
    zero = splat(zeros[0])
    one = splat(zeros.dtype.type(1))
    move = span(kept.move)
    weights = aligned(kept.weights)
    alphas = aligned(kept.alphas)
    now = aligned(kept.now)
    inverses = aligned(kept.inverses)
    found = span(kept.found)
    ends = load(kept.ends, 0)
    least = splat(zeros.dtype.type(-np.inf))
    peaks = least
    for s in range(S if N > 0 else 0):
        head = splat(zeros.dtype.type(start[s]))
        first, lost = two_sum_or_none(load(weights, s * L), head, least, zero)
        store(weights, s * L, first)
        store(now, s * L, lost)
        peaks = larger(first, peaks)
    for s in range(S if N > 0 else 0):
        # the largest is taken out before what rounding took is added
        store(weights, s * L, load(weights, s * L) - peaks + load(now, s * L))
        store(now, s * L, one)
    inverse = one
    more = most = exponents = zero
    mantissas = one
    for n in range(N):
        o = n * S * L
        peak = load(weights, o)
        for s in range(1, S):
            peak = larger(load(weights, o + s * L), peak)
        # in three numbers, as one more digit of a large sum may be one of a difference
        peaks, lost = two_sum(peaks, peak)
        more, lost = two_sum(more, lost)
        most = most + lost
        if n > 0:
            product(alphas, o - S * L, move, S, now, 0, zero, L)
        c = zero
        for s in range(S):
            w = exp(load(weights, o + s * L) - peak)
            a = load(now, s * L) * inverse * w
            store(weights, o + s * L, w)
            store(alphas, o + s * L, a)
            c = c + a
        # without this, numbers of an idle lane would leave the range and give NaN
        inverse = where_below(splat(zeros.dtype.type(n)), ends, one / c, zero)
        store(inverses, n * L, inverse)
        # the last step of a row is divided by its z instead
        after = splat(zeros.dtype.type(n + 1))
        mantissas = mantissas * where_below(after, ends, inverse, one)
        exponents = exponents + exponent(mantissas)
        mantissas = mantissa(mantissas)
    store(found, 0, exponents)
    store(found, L, mantissas)
    store(found, 4 * L, peaks)
    store(found, 5 * L, more)
    store(found, 6 * L, most)


@subroutine
def _backward(N, S, rows, lengths, kept):
    """Fill the nodes, weights with u, and alphas with ``a / (c z)``.

    From the last step of the longest row. ``found`` gets the reach and the last z.
    """
    zeros = kept.zeros
    L = len(zeros)
    zero = splat(zeros[0])
    one = splat(zeros.dtype.type(1))
    back = span(kept.back)
    tail = span(kept.tail)
    weights = aligned(kept.weights)
    alphas = aligned(kept.alphas)
    nodes = aligned(kept.nodes)
    now = aligned(kept.now)
    inverses = aligned(kept.inverses)
    found = span(kept.found)
    ends = load(kept.ends, 0)
    reach = zero
    last_z = one
    begun = 0
    for s in range(S):
        store(now, s * L, zero)
    for n in range(N - 1, -1, -1):
        o = n * S * L
        here = splat(zeros.dtype.type(n))
        after = splat(zeros.dtype.type(n + 1))
        if n < N - 1:
            product(weights, o + S * L, back, S, now, 0, zero, L)
        inverse = load(inverses, n * L)
        before = load(inverses, (n - 1) * L) if n > 0 else zero
        if begun < len(rows) and lengths[rows[begun]] > n:
            # rows begin where they end, with the end scores
            while begun < len(rows) and lengths[rows[begun]] > n:
                begun += 1
            z = zero
            for s in range(S):
                b = where_below(after, ends, load(now, s * L), splat_at(tail, s))
                store(now, s * L, b)
                z = fma(load(alphas, o + s * L), b, z)
            last_z = where_below(after, ends, last_z, z)
            inverse = where_below(after, ends, inverse, one / z)
            inverse = where_below(here, ends, inverse, zero)
        z = zero
        for s in range(S):
            p = o + s * L
            b = load(now, s * L) * inverse
            pull = load(weights, p) * b
            store(now, s * L, b)
            store(weights, p, pull)
            z = fma(load(alphas, p), b, z)
            reach = fma(pull, before, reach) + b
        share = where_below(here, ends, one / z, zero)
        for s in range(S):
            p = o + s * L
            a = load(alphas, p) * share
            store(nodes, p, a * load(now, s * L))
            store(alphas, p, a * inverse)
    store(found, 2 * L, reach)
    store(found, 3 * L, last_z)


@subroutine(loops=False)
def _sum_edges(N, S, kept):
    """Fill total with ``E(i, j) sum_t a_{t-1}(i) u_t(j)``.

    In a pass of its own: a tile of sums then stays in registers over many steps.
    """
    zeros = kept.zeros
    outer_sums(
        aligned(kept.alphas), aligned(kept.weights), N, S, splat(zeros[0]), len(zeros),
        span(kept.move), aligned(kept.total), aligned(kept.lost),
    )  # fmt: skip
