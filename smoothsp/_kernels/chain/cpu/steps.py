"""The scaled recursion of a chain with edges of each step, vectors over states.

As ``forward_backward``, with ``E_t = exp(transitions_t - top_t)`` of its own in each
step, kept from the forward pass for the backward one. The bound of what may be lost is
the same, and so is the treatment of rows that break it. A vector of
E may reach into the next row, where w is 0. Where a vector does not leave a
step's matrix no lane is masked: on some processors that takes as long as ten vectors.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from smoothsp._kernels.chain.cpu.forward_backward import RANGE_32, RANGE_64
from smoothsp._kernels.chain.cpu.records import Chain
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays, double_double
from smoothsp._kernels.vectors.flush_to_zero import restore_fp_mode, set_flush_to_zero
from smoothsp._kernels.vectors.simd import (
    fma,
    get,
    load,
    maximum,
    part,
    put,
    span,
    splat,
    splat_at,
    store,
)
from smoothsp._kernels.vectors.simd_exp import exp
from smoothsp._kernels.vectors.simd_masked import (
    load_masked,
    reduce_max,
    reduce_sum,
    store_masked,
)

# The logarithm of a product is taken before it may leave this range.
LEAST, MOST = 1e-200, 1e200


class Pass(NamedTuple):
    """What the forward pass of a row leaves behind."""

    weights: Any  # [T, P], w, then u
    alphas: Any  # [T, P], a
    inverses: Any  # [T], 1 / c
    moves: Any  # [T - 1, M], E and room for a vector
    tail: Any  # [P], exponentials of end
    now: Any  # [P]
    zeros: Any  # [V]


@kernel
def forward_backward(first, last, chain, zeros, pending, value, out):
    """Fill the log-partition ``value[B, 2]`` and the marginals of rows first to last.

    In the dtype of the chain, of which ``zeros`` is a vector; the value is a sum of two
    numbers. Rows out of range are left pending[B].
    """
    chain, (nodes, edges, heads, tails) = Chain(*chain), out
    T, S = chain.emissions.shape[1], chain.emissions.shape[2]
    V = len(zeros)
    P = -(-S // V) * V
    kept = Pass(
        arrays.empty((T, P), zeros.dtype),
        arrays.empty((T, P), zeros.dtype),
        arrays.empty(T, zeros.dtype),
        arrays.empty(max(T - 1, 0) * _room(S * S, V), zeros.dtype),
        arrays.empty(_room(S, V), zeros.dtype),
        arrays.empty(P, zeros.dtype),
        zeros,
    )
    limit = (RANGE_32 if zeros.itemsize == 4 else RANGE_64) / (16 * S)
    control = set_flush_to_zero()
    top = _exponentials(span(chain.end), S, span(kept.tail), zeros)
    for b in range(first, last):
        own = chain.lengths[b]
        _clear(b, chain, nodes, edges)
        reach = 0.0
        value[b, 0] = value[b, 1] = 0.0
        if own > 0:
            total, rest = _forward(b, chain, kept)
            reach, log_z = _backward(b, chain, kept, span(nodes), span(edges))
            total, rest = double_double.add(total, rest, top)
            total, rest = double_double.add(total, rest, log_z)
            value[b, 0], value[b, 1] = double_double.normalise(total, rest)
        pending[b] = not reach <= limit
        for s in range(S):
            heads[b, s] = nodes[b, chain.steps[b, 0], s] if own > 0 else 0
            tails[b, s] = nodes[b, chain.steps[b, own - 1], s] if own > 0 else 0
    restore_fp_mode(control)


@subroutine
def _clear(b, chain, nodes, edges):
    """Fill marginals of positions that are not real, and edges into the first, with 0.

    ``steps[b]`` are all positions, the real ones first.
    """
    for n in range(chain.emissions.shape[1]):
        t = chain.steps[b, n]
        if n >= chain.lengths[b]:
            nodes[b, t] = 0
        if t > 0 and (n == 0 or n >= chain.lengths[b]):
            edges[b, t - 1] = 0


@subroutine(forceinline=True)
def _room(count, V):
    """Room for numbers in whole vectors, and a vector more."""
    return (-(-count // V) + 1) * V


@subroutine
def _exponentials(scores, count, out, zeros):
    """Fill ``out = exp(scores - top)``, 0 in what is left of the room.

    Returns top, the largest of the ``count`` scores, in float64.
    """
    V, least = len(zeros), splat(zeros.dtype.type(-np.inf))
    whole = count // V * V
    rest = least
    if whole < count:
        rest = load_masked(scores, whole, count - whole, least)
    tops = rest
    for e in range(0, whole, V):
        tops = maximum(load(scores, e), tops)
    top = reduce_max(tops)
    for e in range(0, whole, V):
        store(out, e, exp(load(scores, e) - splat(top)))
    if whole < count:
        store(out, whole, exp(rest - splat(top)))
        whole += V
    store(out, whole, splat(zeros[0]))
    return np.float64(top)


@subroutine
def _forward(b, chain, kept):
    """Fill weights with w, alphas with a, inverses and moves.

    Returns what was taken out of the exponentials and of a, as two numbers.
    """
    T, S, P = chain.emissions.shape[1], chain.emissions.shape[2], len(kept.now)
    zeros, V, N = kept.zeros, len(kept.zeros), chain.lengths[b]
    unit, least = zeros.dtype.type(1), splat(zeros.dtype.type(-np.inf))
    given, moves = span(chain.emissions), span(chain.transitions)
    weights, alphas, now = span(kept.weights), span(kept.alphas), span(kept.now)
    total, rest = _first_step(b, chain, kept)
    product, inverse, size = 1.0, unit, _room(S * S, V)
    for n in range(N):
        o = n * P
        if n > 0:
            e = (b * T + chain.steps[b, n]) * S
            peaks = least
            for j in range(0, P, V):
                x = load_masked(given, e + j, S - j, least)
                store(weights, o + j, x)
                peaks = maximum(x, peaks)
            peak = reduce_max(peaks)
            for j in range(0, P, V):
                store(weights, o + j, exp(load(weights, o + j) - splat(peak)))
            e = (b * (T - 1) + chain.steps[b, n] - 1) * S * S
            scores = part(moves, 0 if chain.shared else e, S * S)
            matrix = part(kept.moves, (n - 1) * size, size)
            top = _exponentials(scores, S * S, matrix, zeros)
            total, rest = double_double.add(total, rest, np.float64(peak))
            total, rest = double_double.add(total, rest, top)
            _product(alphas, o - P, matrix, S, now, zeros)
        else:
            for j in range(0, P, V):
                store(now, j, splat(unit))
        c, share = splat(zeros[0]), splat(inverse)
        for j in range(0, P, V):
            a = load(now, j) * share * load(weights, o + j)
            store(alphas, o + j, a)
            c = c + a
        scale = reduce_sum(c)
        inverse = unit / scale
        kept.inverses[n] = inverse
        if n < N - 1:
            if not LEAST < product * np.float64(scale) < MOST:
                total, rest = double_double.add(total, rest, _log(product))
                product = 1.0
            product *= np.float64(scale)
    return double_double.add(total, rest, _log(product))


@subroutine(forceinline=True)
def _log(x):
    """Logarithm of a sum; NaN for one that is lost, whose row is out of range."""
    return math.log(x) if x > 0 else np.nan


@subroutine
def _first_step(b, chain, kept):
    """Fill the first w; returns what was taken out, as two numbers.

    What rounding takes from a sum of emission and start is added after the largest is
    taken out.
    """
    S, t = len(chain.start), chain.steps[b, 0]
    dtype = kept.zeros.dtype
    peak = -np.inf
    for s in range(S):
        peak = max(peak, np.float64(chain.emissions[b, t, s]) + chain.start[s])
    for s in range(len(kept.now)):
        kept.now[s] = -np.inf
    for s in range(S):
        score = np.float64(chain.emissions[b, t, s])
        x, lost = double_double.add(score, 0.0, np.float64(chain.start[s]))
        if x > -np.inf:
            kept.now[s] = dtype.type(x - peak + lost)
    for j in range(0, len(kept.now), len(kept.zeros)):
        store(span(kept.weights), j, exp(load(span(kept.now), j)))
    return peak, 0.0


@subroutine
def _product(x, o, matrix, S, y, zeros):
    """``y(j) = sum_i x(i) matrix(i, j)``, x at offset o, the matrix [S, S]."""
    V, zero = len(zeros), splat(zeros[0])
    whole = S // 4 * 4
    for j in range(0, S, V):
        p = q = r = s = zero
        for i in range(0, whole, 4):
            e = i * S + j
            p = fma(splat_at(x, o + i), load(matrix, e), p)
            q = fma(splat_at(x, o + i + 1), load(matrix, e + S), q)
            r = fma(splat_at(x, o + i + 2), load(matrix, e + 2 * S), r)
            s = fma(splat_at(x, o + i + 3), load(matrix, e + 3 * S), s)
        for i in range(whole, S):
            p = fma(splat_at(x, o + i), load(matrix, i * S + j), p)
        store(y, j, (p + q) + (r + s))


@subroutine
def _backward(b, chain, kept, nodes, edges):
    """Fill weights with u, and nodes and edges with their marginals.

    Returns the reach, and the logarithm of the last sum.
    """
    T, S, P = chain.emissions.shape[1], chain.emissions.shape[2], len(kept.now)
    zeros, V, N = kept.zeros, len(kept.zeros), chain.lengths[b]
    unit, zero = zeros.dtype.type(1), splat(zeros[0])
    weights, alphas, now = span(kept.weights), span(kept.alphas), span(kept.now)
    moves, z = span(kept.moves), zero
    for j in range(0, P, V):
        tail = load(span(kept.tail), j)
        store(now, j, tail)
        z = fma(load(alphas, (N - 1) * P + j), tail, z)
    last = reduce_sum(z)
    inverse, reach = unit / last, 0.0
    for n in range(N - 1, -1, -1):
        o, before = n * P, zeros[0]
        if n > 0:
            before = kept.inverses[n - 1]
        total = z = zero
        for j in range(0, P, V):
            back = load(now, j) * splat(inverse)
            pull = load(weights, o + j) * back
            store(now, j, back)
            store(weights, o + j, pull)
            z = fma(load(alphas, o + j), back, z)
            total = fma(pull, splat(before), total) + back
        reach += np.float64(reduce_sum(total))
        share = unit / reduce_sum(z)
        e = (b * T + chain.steps[b, n]) * S
        for j in range(0, P, V):
            node = load(alphas, o + j) * splat(share) * load(now, j)
            store_masked(nodes, e + j, S - j, node)
        if n > 0:
            e = (b * (T - 1) + chain.steps[b, n] - 1) * S * S
            share, m = share * before, (n - 1) * _room(S * S, V)
            for i in range(S):
                a, total = splat(get(alphas, o - P + i) * share), zero
                for j in range(0, P, V):
                    at = i * S + j
                    x = load(moves, m + at) * load(weights, o + j)
                    total = total + x
                    # the next row overwrites what is past the end of this one
                    if at + V <= S * S:
                        store(edges, e + at, x * a)
                    else:
                        store_masked(edges, e + at, S - j, x * a)
                put(now, i, reduce_sum(total))
            inverse = before
    return reach, _log(np.float64(last))
