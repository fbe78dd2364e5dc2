"""Sum-product on chains in log space, for rows unsafe in the scaled recursion."""

import math

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays

# Below this an exponential is 0 in float64: most are, where potentials lie far apart.
LEAST = -746.0


@subroutine(forceinline=True)
def exp(x):
    """``exp(x)`` for x of at most 0, without a call where it is 0."""
    return 0.0 if x < LEAST else math.exp(x)


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

    The messages are normalised at every step, so they stay small on long chains. Edges
    are ``P(y_{t-1} = i) P(y_t = j | y_{t-1} = i)``. A row with no feasible output gets
    -inf and zero marginals.
    """
    T, S = emissions.shape[1], emissions.shape[2]
    alphas = arrays.empty((T, S), np.float64)
    beta = arrays.empty(S, np.float64)
    pull = arrays.empty(S, np.float64)
    chances = arrays.empty(S, np.float64)
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
                alphas[n, j] = -np.inf if n > 0 else np.float64(start[j])
                pull[j] = 0
            for i in range(S if n > 0 else 0):
                if alphas[n - 1, i] > -np.inf:
                    for j in range(S):
                        here = alphas[n - 1, i] + transitions[p, q, i, j]
                        alphas[n, j] = max(alphas[n, j], here)
            for i in range(S if n > 0 else 0):
                if alphas[n - 1, i] > -np.inf:
                    for j in range(S):
                        if alphas[n, j] > -np.inf:
                            here = alphas[n - 1, i] + transitions[p, q, i, j]
                            pull[j] += exp(here - alphas[n, j])
            for j in range(S):
                if n > 0 and alphas[n, j] > -np.inf:
                    alphas[n, j] += math.log(pull[j])
                alphas[n, j] += emissions[b, t, j]
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
                c += exp(alphas[n, s] + beta[s] - peak)
            log_z += math.log(c)
            for s in range(S):
                alphas[n, s] -= peak + math.log(c)
        value[b, 0] = log_z
        if log_z == -np.inf:
            continue

        # alphas[N - 1] + end is normalised: beta already holds end
        t = steps[b, N - 1]
        for s in range(S):
            tails[b, s] = nodes[b, t, s] = exp(alphas[N - 1, s] + beta[s])
        total[:] = 0
        for n in range(N - 1, 0, -1):
            t = steps[b, n]
            q = 0 if shared else t - 1
            p = 0 if shared else b
            for j in range(S):
                pull[j] = beta[j] + emissions[b, t, j]
            top = peak = -np.inf
            for i in range(S):
                beta[i] = -np.inf
                if alphas[n - 1, i] == -np.inf:
                    continue
                for j in range(S):
                    pair[i, j] = transitions[p, q, i, j] + pull[j]
                    beta[i] = max(beta[i], pair[i, j])
                if beta[i] == -np.inf:
                    continue
                c = 0.0
                for j in range(S):
                    pair[i, j] = exp(pair[i, j] - beta[i])
                    c += pair[i, j]
                for j in range(S):
                    pair[i, j] /= c
                beta[i] += math.log(c)
                peak = max(peak, beta[i])
                top = max(top, alphas[n - 1, i] + beta[i])
            z = 0.0
            for i in range(S):
                chances[i] = exp(alphas[n - 1, i] + beta[i] - top)
                z += chances[i]
                beta[i] -= peak
            for i in range(S):
                chance = chances[i] / z
                nodes[b, steps[b, n - 1], i] = chance
                for j in range(S):
                    edge = chance * pair[i, j] if chance > 0 else 0.0
                    if shared:
                        total[i, j] += edge
                    else:
                        edges[b, t - 1, i, j] = edge
        if shared:
            for i in range(S):
                for j in range(S):
                    edges[b, 0, i, j] = total[i, j]
        for s in range(S):
            heads[b, s] = nodes[b, steps[b, 0], s]
