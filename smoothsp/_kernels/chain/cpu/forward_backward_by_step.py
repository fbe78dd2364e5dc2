"""Scaled forward-backward on chains, in probability space, transitions by step.

With ``m_t`` the largest emission at step t, ``w_t(j) = exp(e_t(j) - m_t)`` and
``E_t = exp(transitions_t - top_t)``, the scaled recursion is

    forward    a_t(j) = w_t(j) sum_i a_{t-1}(i) E_t(i, j) / c_t,   c_t: a_t sums to 1
    backward   b_{t-1}(i) = sum_j E_t(i, j) w_t(j) b_t(j) / r_t,   r_t: largest b is 1
    value      sum_t (log c_t + m_t + top_t) + log sum_s a_N(s) exp(end(s))
    edges      a_{t-1}(i) E_t(i, j) w_t(j) b_t(j) / z_t,           z_t: they sum to 1

A factor below the smallest normal number, ``tiny``, is lost. Every other factor of an
edge is at most 1, so step t loses at most ``S^2 tiny`` of ``z_t``: while every ``z_t``
is at least ``S^2 T tiny / eps``, all losses together stay below one rounding error. A
row that breaks this bound stays pending, for a wider dtype or for log space.
"""

import math

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays, exact_sums
from smoothsp._kernels.vectors.exponentials import exponentials
from smoothsp._kernels.vectors.simd import span
from smoothsp._kernels.vectors.subnormals import flush, restore


@kernel(fastmath={"contract", "reassoc"})
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
    zero,
    floor,
    pending,
    value,
    nodes,
    edges,
    heads,
    tails,
):
    """Fill the pending rows that are safe in the dtype of ``zero``; clear ``pending``.

    Outputs: value[B, 2], a sum of two numbers; nodes[B, T, S]; edges[B, T - 1, S, S]
    (other kernels, for shared transitions: [B, 1, S, S], summed over time); heads[B, S]
    and tails[B, S], the first and the last of the nodes.
    """
    T, S = emissions.shape[1], emissions.shape[2]
    control = flush()
    alphas = arrays.empty((T, S), zero.dtype)
    weights = arrays.empty((T, S), zero.dtype)
    # rows of whole vectors
    V = 64 // zero.itemsize
    P = -(-S // V) * V
    zeros = arrays.zeros(V, zero.dtype)
    move = arrays.empty((S, P), zero.dtype)
    beta = arrays.empty(S, zero.dtype)
    pull = arrays.empty(S, zero.dtype)
    into = arrays.empty(S, zero.dtype)
    last_top = -np.inf
    for s in range(S):
        last_top = max(last_top, end[s])

    for b in range(first, last):
        if not pending[b]:
            continue
        N = lengths[b]
        nodes[b] = 0
        edges[b] = 0
        heads[b] = 0
        tails[b] = 0
        value[b] = 0
        if N == 0:
            pending[b] = False
            continue
        if last_top == -np.inf:
            continue

        # forward
        log_scale = rest = 0.0
        scale = 1.0
        safe = True
        for n in range(N):
            t = steps[b, n]
            peak = -np.inf
            if n == 0:
                log_scale = _first_step(b, t, emissions, start, pull)
                for s in range(S):
                    peak = max(peak, pull[s])
                    into[s] = 1
            else:
                for s in range(S):
                    pull[s] = emissions[b, t, s]
                    peak = max(peak, pull[s])
                top = _exponentials(b, t, transitions, zeros, move)
                if top == -np.inf:
                    safe = False
                    break
                for j in range(S):
                    into[j] = 0
                for i in range(S):
                    a = alphas[n - 1, i]
                    for j in range(S):
                        into[j] += a * move[i, j]
                log_scale, rest = exact_sums.add(log_scale, rest, top)
            if peak == -np.inf:
                safe = False
                break
            c = zero[0]
            for s in range(S):
                w = zero.dtype.type(math.exp(pull[s] - peak))
                weights[n, s] = w
                into[s] *= w
                c += into[s]
            if not c >= floor:
                safe = False
                break
            for s in range(S):
                alphas[n, s] = into[s] / c
            log_scale, rest = exact_sums.add(log_scale, rest, np.float64(peak))
            # one log of several factors, so few that their product stays in range
            if c > 1e-100:
                scale *= c
            else:
                log_scale, rest = exact_sums.add(log_scale, rest, math.log(c))
            if scale < 1e-200 or scale > 1e200:
                log_scale, rest = exact_sums.add(log_scale, rest, math.log(scale))
                scale = 1.0
        if not safe:
            continue

        # backward
        z = zero[0]
        for s in range(S):
            beta[s] = math.exp(end[s] - last_top)
            z += alphas[N - 1, s] * beta[s]
        if not z >= floor:
            continue
        t = steps[b, N - 1]
        for s in range(S):
            tails[b, s] = nodes[b, t, s] = alphas[N - 1, s] * beta[s] / z
        log_scale, rest = exact_sums.add(log_scale, rest, np.float64(last_top))
        log_scale, rest = exact_sums.add(log_scale, rest, math.log(scale) + math.log(z))
        for n in range(N - 1, 0, -1):
            t = steps[b, n]
            _exponentials(b, t, transitions, zeros, move)
            for j in range(S):
                pull[j] = weights[n, j] * beta[j]
            z = zero[0]
            peak_beta = zero[0]
            for i in range(S):
                r = zero[0]
                for j in range(S):
                    r += move[i, j] * pull[j]
                beta[i] = r
                z += alphas[n - 1, i] * r
                peak_beta = max(peak_beta, r)
            if not z >= floor:
                safe = False
                break
            for i in range(S):
                a = alphas[n - 1, i] / z
                nodes[b, steps[b, n - 1], i] = a * beta[i]
                for j in range(S):
                    edges[b, t - 1, i, j] = a * move[i, j] * pull[j]
            for i in range(S):
                beta[i] /= peak_beta
        if not safe:
            continue
        for s in range(S):
            heads[b, s] = nodes[b, steps[b, 0], s]
        value[b, 0], value[b, 1] = exact_sums.settle(log_scale, rest)
        pending[b] = False
    restore(control)


@subroutine
def _first_step(b, t, emissions, start, pull):
    """Fill emissions plus ``start``, less the largest, which is returned.

    What rounding takes from a sum is added once the largest is taken out.
    """
    peak = -np.inf
    for s in range(len(pull)):
        peak = max(peak, np.float64(emissions[b, t, s]) + np.float64(start[s]))
    for s in range(len(pull)):
        x, lost = exact_sums.add(
            np.float64(emissions[b, t, s]), 0.0, np.float64(start[s])
        )
        pull[s] = x - peak + (lost if x > -np.inf else 0.0)
    return peak


@subroutine
def _exponentials(b, t, transitions, zeros, move):
    S, P = move.shape
    at = (b * transitions.shape[1] + t - 1) * S * S
    return exponentials(span(transitions), at, S * S, S, zeros, P, span(move))
