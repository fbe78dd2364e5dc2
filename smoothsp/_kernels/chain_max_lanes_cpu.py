"""The best output of a chain, one sequence per lane, for shared transitions.

The sums are those of ``chain_max_cpu``, in float64 and in time order. Only the largest
sums are kept; which state they came from is asked again, on the way back, of the states
that the best output visits.
"""

import numpy as np
from numba import njit

from smoothsp._kernels.lanes import max_product
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
    alphas = np.empty(T * S * L, np.float64)
    weights = np.zeros(T * S * L, np.float64)
    move = np.empty(S * S, np.float64)
    for i in range(S):
        for j in range(S):
            move[i * S + j] = transitions[0, 0, i, j]
    for group in range(first, last):
        rows = order[group * L : (group + 1) * L]
        N = 0
        for x in range(len(rows)):
            b = rows[x]
            N = max(N, lengths[b])
            for n in range(lengths[b]):
                t = steps[b, n]
                for s in range(S):
                    weights[(n * S + s) * L + x] = emissions[b, t, s]
            if lengths[b] > 0:
                for s in range(S):
                    alphas[s * L + x] = (
                        np.float64(start[s]) + emissions[b, steps[b, 0], s]
                    )
        # what idle lanes hold is never looked at
        for n in range(1, N):
            o = n * S * L
            max_product(alphas, o - S * L, move, S, alphas, o, L)
            for s in range(S):
                p = o + s * L
                store(alphas, p, load(alphas, p) + load(weights, p))

        for x in range(len(rows)):
            b = rows[x]
            labels[b] = -1
            n = lengths[b] - 1
            if n < 0:
                continue
            j = 0
            best = -np.inf
            for s in range(S):
                reach = alphas[(n * S + s) * L + x] + end[s]
                if reach > best:
                    best = reach
                    j = s
            labels[b, steps[b, n]] = j
            for n in range(lengths[b] - 2, -1, -1):
                i = 0
                best = -np.inf
                for s in range(S):
                    reach = alphas[(n * S + s) * L + x] + move[s * S + j]
                    if reach > best:
                        best = reach
                        i = s
                j = i
                labels[b, steps[b, n]] = j
