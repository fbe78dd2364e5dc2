"""Sum-product on chains in log space, for rows unsafe in the scaled recursion."""

import math

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors import arrays


@kernel
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
    pending,
    value,
    nodes,
    edges,
    heads,
    tails,
):
    """Fill the pending rows in log space and float64: any finite range, any -inf.

    The messages are normalised at every step, so they stay small on long chains. A row
    with no feasible output gets -inf and zero marginals.
    """
    T, S = emissions.shape[1], emissions.shape[2]
    alphas = arrays.empty((T, S), np.float64)
    beta = arrays.empty(S, np.float64)
    pull = arrays.empty(S, np.float64)
    pair = arrays.empty((S, S), np.float64)
    total = arrays.empty((S, S), np.float64)
    for b in range(first, last):
        if not pending[b]:
            continue
        N = lengths[b]
        nodes[b] = 0
        edges[b] = 0
        heads[b] = 0
        tails[b] = 0
        value[b] = 0
        pending[b] = False
        if N == 0:
            continue

        log_z = 0.0
        for n in range(N):
            t = steps[b, n]
            q = 0 if shared else t - 1
            p = 0 if shared else b
            for j in range(S):
                if n == 0:
                    alphas[0, j] = np.float64(start[j]) + emissions[b, t, j]
                    continue
                peak = -np.inf
                for i in range(S):
                    pull[i] = alphas[n - 1, i] + transitions[p, q, i, j]
                    peak = max(peak, pull[i])
                alphas[n, j] = -np.inf
                if peak > -np.inf:
                    c = 0.0
                    for i in range(S):
                        c += math.exp(pull[i] - peak)
                    alphas[n, j] = peak + math.log(c) + emissions[b, t, j]
            if n == N - 1:
                for s in range(S):
                    beta[s] = end[s]
            else:
                for s in range(S):
                    beta[s] = 0
            peak = -np.inf
            for s in range(S):
                peak = max(peak, alphas[n, s] + beta[s])
            log_z += peak
            if peak == -np.inf:
                break
            c = 0.0
            for s in range(S):
                c += math.exp(alphas[n, s] + beta[s] - peak)
            log_z += math.log(c)
            for s in range(S):
                alphas[n, s] -= peak + math.log(c)
        value[b, 0] = log_z
        if log_z == -np.inf:
            continue

        # alphas[N - 1] + end is normalised: beta already holds end
        t = steps[b, N - 1]
        for s in range(S):
            tails[b, s] = nodes[b, t, s] = math.exp(alphas[N - 1, s] + beta[s])
        total[:] = 0
        for n in range(N - 1, 0, -1):
            t = steps[b, n]
            q = 0 if shared else t - 1
            p = 0 if shared else b
            peak = -np.inf
            for j in range(S):
                pull[j] = beta[j] + emissions[b, t, j]
            for i in range(S):
                for j in range(S):
                    pair[i, j] = alphas[n - 1, i] + transitions[p, q, i, j] + pull[j]
                    peak = max(peak, pair[i, j])
            z = 0.0
            for i in range(S):
                for j in range(S):
                    pair[i, j] = math.exp(pair[i, j] - peak)
                    z += pair[i, j]
            peak = -np.inf
            for i in range(S):
                beta[i] = -np.inf
                for j in range(S):
                    beta[i] = max(beta[i], transitions[p, q, i, j] + pull[j])
                if beta[i] > -np.inf:
                    c = 0.0
                    for j in range(S):
                        c += math.exp(transitions[p, q, i, j] + pull[j] - beta[i])
                    beta[i] += math.log(c)
                peak = max(peak, beta[i])
            for i in range(S):
                beta[i] -= peak
                c = 0.0
                for j in range(S):
                    c += pair[i, j] / z
                    if shared:
                        total[i, j] += pair[i, j] / z
                    else:
                        edges[b, t - 1, i, j] = pair[i, j] / z
                nodes[b, steps[b, n - 1], i] = c
        if shared:
            for i in range(S):
                for j in range(S):
                    edges[b, 0, i, j] = total[i, j]
        for s in range(S):
            heads[b, s] = nodes[b, steps[b, 0], s]
