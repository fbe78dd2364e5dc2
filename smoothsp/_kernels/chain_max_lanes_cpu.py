"""The best outputs of a chain, one sequence per lane, for shared transitions.

The sums are those of ``chain_max_cpu``, in float64 and in time order. Only the largest
sums are kept; which state they came from is asked again, on the way back, of the states
that the best output visits.
"""

import numpy as np
from numba import njit

from smoothsp._kernels.lanes import max_product
from smoothsp._kernels.ranking import k_best, workspace
from smoothsp._kernels.simd import load, store


@njit(cache=True, nogil=True, error_model="numpy")
def viterbi(
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
    labels,
):
    """Fill labels[B, T] for the rows ``order[first * L : last * L]``.

    ``zeros`` has L float64 entries, ``order`` sorts the rows by length. Labels as in
    ``chain_max_cpu.viterbi``.
    """
    T, S = emissions.shape[1], emissions.shape[2]
    L = len(zeros)
    maxima = np.empty(T * S * L, np.float64)
    weights = np.zeros(T * S * L, np.float64)
    move = _as_float64(transitions)
    for group in range(first, last):
        rows = order[group * L : (group + 1) * L]
        _maxima(emissions, start, steps, lengths, move, rows, L, weights, maxima)
        for x in range(len(rows)):
            b = rows[x]
            labels[b] = -1
            n = lengths[b] - 1
            if n < 0:
                continue
            j = 0
            best = -np.inf
            for s in range(S):
                reach = maxima[(n * S + s) * L + x] + end[s]
                if reach > best:
                    best = reach
                    j = s
            labels[b, steps[b, n]] = j
            for n in range(lengths[b] - 2, -1, -1):
                i = 0
                best = -np.inf
                for s in range(S):
                    reach = maxima[(n * S + s) * L + x] + move[s * S + j]
                    if reach > best:
                        best = reach
                        i = s
                j = i
                labels[b, steps[b, n]] = j


@njit(cache=True, nogil=True, error_model="numpy")
def viterbi_topk(
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
    labels,
    valid,
):
    """Fill labels[B, K, T], best first, and valid[B, K], for the rows of ``order``.

    As ``chain_max_cpu.viterbi_topk``, to the last bit.
    """
    T, S = emissions.shape[1], emissions.shape[2]
    L = len(zeros)
    maxima = np.empty(T * S * L, np.float64)
    weights = np.zeros(T * S * L, np.float64)
    move = _as_float64(transitions)
    space = workspace(T, S, labels.shape[1])
    parts = (emissions, transitions, end, steps, shared)
    for group in range(first, last):
        rows = order[group * L : (group + 1) * L]
        _maxima(emissions, start, steps, lengths, move, rows, L, weights, maxima)
        for x in range(len(rows)):
            b = rows[x]
            k_best(b, lengths[b], maxima, x, L, parts, space, labels, valid)


@njit(error_model="numpy")
def _as_float64(transitions):
    S = transitions.shape[2]
    move = np.empty(S * S, np.float64)
    for i in range(S):
        for j in range(S):
            move[i * S + j] = transitions[0, 0, i, j]
    return move


@njit(cache=True, nogil=True, error_model="numpy")
def _maxima(emissions, start, steps, lengths, move, rows, L, weights, maxima):
    """Fill maxima[n, s, lane], the score of the best prefix that ends in s."""
    S = emissions.shape[2]
    N = 0
    for x in range(len(rows)):
        b = rows[x]
        N = max(N, lengths[b])
        for n in range(lengths[b]):
            t = steps[b, n]
            for s in range(S):
                weights[(n * S + s) * L + x] = emissions[b, t, s]
        for s in range(S):
            if lengths[b] > 0:
                e = emissions[b, steps[b, 0], s]
                maxima[s * L + x] = np.float64(start[s]) + e
    # what idle lanes hold is never looked at
    for n in range(1, N):
        o = n * S * L
        max_product(maxima, o - S * L, move, S, maxima, o, L)
        for s in range(S):
            p = o + s * L
            store(maxima, p, load(maxima, p) + load(weights, p))
