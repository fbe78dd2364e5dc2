"""The scaled recursion with one sequence per lane of a vector, for shared transitions.

As many rows as a vector has lanes go through time together. With the letters of
``chain_scaled_cpu``,

    forward    a_t(j) = w_t(j) sum_i a_{t-1}(i) E(i, j) / c_t,     c_t: a_t sums to 1
    backward   b_t(i) = sum_j E(i, j) w_{t+1}(j) b_{t+1}(j) / z_t,  z_t: sum a_t b_t = 1
    nodes      a_t(s) b_t(s)
    edges      E(i, j) sum_t a_{t-1}(i) w_t(j) b_t(j) / z_{t-1}

What underflows at step t, a factor below ``tiny``, is multiplied by at most
``b_t / z_{t-1}``: while these stay below ``eps / (S^2 T tiny)``, all losses together
are below one rounding error. A row that breaks this bound stays pending.

Lanes never mix: the bits of a row do not depend on the rows beside it. Arrays of a
group are flat, ``[T, S, L]``; L lanes.
"""

import math

import numpy as np
from numba import njit

from smoothsp._kernels.lanes import outer_sums, product
from smoothsp._kernels.simd import exp, fma, larger, load, splat, store, where_below


@njit(cache=True, nogil=True, error_model="numpy")
def forward_backward(
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
    value,
    nodes,
    edges,
    heads,
    tails,
):
    """Fill the rows ``order[first * L : last * L]``; clear ``pending`` where safe.

    ``zeros`` has L entries of the dtype to compute in, ``order`` sorts the wanted rows
    by length, so that few lanes idle. Outputs as in ``chain_scaled_cpu``.
    """
    T, S = emissions.shape[1], emissions.shape[2]
    L = len(zeros)
    weights = np.empty(T * S * L, zeros.dtype)
    alphas = np.empty(T * S * L, zeros.dtype)
    pulls = np.empty(T * S * L, zeros.dtype)
    total = np.empty(S * S * L, np.float64)
    ends = np.empty(L, zeros.dtype)
    safe = np.empty(L, np.bool_)
    log_z = np.empty(L, np.float64)
    move, top, tail, last_top = _exponentials(transitions, end, zeros)
    for group in range(first, last):
        rows = order[group * L : (group + 1) * L]
        N = _gather(emissions, start, steps, lengths, rows, weights, ends)
        _forward(N, S, move, top, zeros, ends, weights, alphas, log_z)
        _backward(
            N, S, move.T.copy(), tail, last_top, zeros, ceiling, ends, weights, alphas,
            pulls, log_z, safe,
        )  # fmt: skip
        outer_sums(N, S, zeros, alphas, pulls, total)
        for x in range(len(rows)):
            b = rows[x]
            if not safe[x]:
                continue
            pending[b] = False
            value[b] = log_z[x]
            if lengths[b] < T:
                nodes[b] = 0
            for n in range(lengths[b]):
                t = steps[b, n]
                for s in range(S):
                    nodes[b, t, s] = weights[(n * S + s) * L + x]
            for i in range(S):
                heads[b, i] = 0
                tails[b, i] = 0
                if lengths[b] > 0:
                    heads[b, i] = nodes[b, steps[b, 0], i]
                    tails[b, i] = nodes[b, steps[b, lengths[b] - 1], i]
                for j in range(S):
                    edges[b, 0, i, j] = total[(i * S + j) * L + x] * move[i, j]


@njit(cache=True, nogil=True, error_model="numpy")
def _exponentials(transitions, end, zeros):
    """E and the exponentials of end, each with the largest score taken out."""
    S = len(end)
    move = np.zeros((S, S), zeros.dtype)
    tail = np.zeros(S, zeros.dtype)
    top = -np.inf
    last_top = -np.inf
    for i in range(S):
        last_top = max(last_top, end[i])
        for j in range(S):
            top = max(top, transitions[0, 0, i, j])
    for i in range(S):
        if last_top > -np.inf:
            tail[i] = math.exp(end[i] - last_top)
        for j in range(S):
            if top > -np.inf:
                move[i, j] = math.exp(transitions[0, 0, i, j] - top)
    return move, top, tail, last_top


@njit(cache=True, nogil=True, error_model="numpy")
def _gather(emissions, start, steps, lengths, rows, weights, ends):
    """Potentials of a group, idle lanes 0; returns the length of the longest row."""
    S = emissions.shape[2]
    L = len(ends)
    N = 0
    for x in range(L):
        ends[x] = 0
        if x < len(rows):
            ends[x] = lengths[rows[x]]
            N = max(N, lengths[rows[x]])
    for x in range(L):
        own = int(ends[x])
        for n in range(own):
            b = rows[x]
            t = steps[b, n]
            for s in range(S):
                weights[(n * S + s) * L + x] = emissions[b, t, s]
        for s in range(S):
            if own > 0:
                weights[s * L + x] += start[s]
            for n in range(own, N):
                weights[(n * S + s) * L + x] = 0
    return N


@njit(cache=True, nogil=True, error_model="numpy")
def _forward(N, S, move, top, zeros, ends, weights, alphas, log_z):
    """Weights from potentials, in place; alphas; log_z up to the end scores."""
    L = len(zeros)
    flat = move.reshape(-1)
    peaks = np.empty(L, zeros.dtype)
    norms = np.empty(L, zeros.dtype)
    scale = np.ones(L, np.float64)
    zero = splat(zeros[0])
    one = splat(zeros.dtype.type(1))
    ends_v = load(ends, 0)
    log_z[:] = 0
    for n in range(N):
        o = n * S * L
        peak = load(weights, o)
        for s in range(1, S):
            peak = larger(load(weights, o + s * L), peak)
        if n > 0:
            product(alphas, o - S * L, flat, S, alphas, o, zero, L)
        c = zero
        for s in range(S):
            w = exp(load(weights, o + s * L) - peak)
            a = w
            if n > 0:
                a = load(alphas, o + s * L) * w
            store(weights, o + s * L, w)
            store(alphas, o + s * L, a)
            c = c + a
        # an idle lane holds 0: left to itself it would grow, or die out, to NaN
        here = splat(zeros.dtype.type(n))
        inverse = where_below(here, ends_v, one / c, zero)
        for s in range(S):
            store(alphas, o + s * L, load(alphas, o + s * L) * inverse)
        store(norms, 0, c)
        store(peaks, 0, peak)
        for x in range(L):
            if n < ends[x]:
                log_z[x] += peaks[x]
                if n > 0:
                    log_z[x] += top
                # few logs, and no product that leaves the range
                if norms[x] > 1e-100:
                    scale[x] *= norms[x]
                else:
                    log_z[x] += math.log(norms[x])
                if scale[x] < 1e-200 or scale[x] > 1e200:
                    log_z[x] += math.log(scale[x])
                    scale[x] = 1
    for x in range(L):
        log_z[x] += math.log(scale[x])


@njit(cache=True, nogil=True, error_model="numpy")
def _backward(
    N,
    S,
    back,
    tail,
    last_top,
    zeros,
    ceiling,
    ends,
    weights,
    alphas,
    pulls,
    log_z,
    safe,
):
    """Nodes in place of weights; pulls ``w_t(j) b_t(j) / z_{t-1}``; log_z; safe."""
    L = len(zeros)
    flat = back.reshape(-1)
    beta = np.zeros(S * L, zeros.dtype)
    norms = np.empty(L, zeros.dtype)
    zero = splat(zeros[0])
    one = splat(zeros.dtype.type(1))
    ends_v = load(ends, 0)
    reach = one
    highest = zero
    poison = zero
    for n in range(N - 1, -1, -1):
        o = n * S * L
        # a row begins where it ends, with the end scores; lanes beyond theirs hold 0
        here = splat(zeros.dtype.type(n))
        after = splat(zeros.dtype.type(n + 1))
        z = zero
        for s in range(S):
            begins = where_below(here, ends_v, splat(tail[s]), zero)
            b = where_below(after, ends_v, load(beta, s * L), begins)
            store(beta, s * L, b)
            z = fma(load(alphas, o + s * L), b, z)
        z = where_below(here, ends_v, z, one)
        inverse = one / z
        poison = fma(inverse, zero, poison)
        highest = larger(reach * inverse, highest)
        reach = one
        for s in range(S):
            p = o + s * L
            b = load(beta, s * L) * inverse
            reach = larger(b, reach)
            if n < N - 1:
                store(pulls, p + S * L, load(pulls, p + S * L) * inverse)
            store(pulls, p, load(weights, p) * b)
            store(weights, p, load(alphas, p) * b)
        store(norms, 0, z)
        for x in range(L):
            if n == ends[x] - 1:
                log_z[x] += math.log(norms[x]) + last_top
        if n == 0:
            break
        product(pulls, o, flat, S, beta, 0, zero, L)
    store(norms, 0, highest)
    store(beta, 0, poison)
    for x in range(L):
        safe[x] = norms[x] <= ceiling and beta[x] == 0
