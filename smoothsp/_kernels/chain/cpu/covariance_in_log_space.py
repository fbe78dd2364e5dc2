"""Second order on chains: covariances of the parts with a sum over parts.

For ``V(y)``, the sum of given weights over the parts that y uses, the derivative of the
marginal of a part in the direction of the weights is

    Cov(part, V) = P(part) (E[V | part] - E[V])

With ``P(i | j)`` and ``P(j | i)`` the posterior moves backwards and forwards in time,

    past_t(j)   = v_t(j) + sum_i P(i | j) (past_{t-1}(i) + v(i, j))
    future_t(i) = sum_j P(j | i) (v(i, j) + v_{t+1}(j) + future_{t+1}(j))
    E[V | y_t = s] = past_t(s) + future_t(s)

All in log space and float64, for rows that ``covariance`` could not do.
"""

import math

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors import arrays


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
    """Fill nodes, edges, heads, tails of the pending rows with the covariances with V.

    The shapes of the weights v and of the outputs are those of the marginals in
    ``chain.cpu.forward_backward_by_step``; shared edges hold one weight for all steps
    of a row.
    """
    T, S = emissions.shape[1], emissions.shape[2]
    alphas = arrays.empty((T, S), np.float64)
    past = arrays.empty((T, S), np.float64)
    beta = arrays.empty(S, np.float64)
    grown = arrays.empty(S, np.float64)
    future = arrays.empty(S, np.float64)
    grown_future = arrays.empty(S, np.float64)
    pull = arrays.empty(S, np.float64)
    for b in range(first, last):
        if not pending[b]:
            continue
        N = lengths[b]
        nodes[b] = 0
        edges[b] = 0
        heads[b] = 0
        tails[b] = 0
        if N == 0:
            continue

        # forward: log messages normalised to a largest entry of 0, and past
        infeasible = False
        for n in range(N):
            t = steps[b, n]
            q = 0 if shared else t - 1
            p = 0 if shared else b
            top = -np.inf
            for j in range(S):
                past[n, j] = v_nodes[b, t, j]
                if n == 0:
                    alphas[n, j] = np.float64(start[j]) + emissions[b, t, j]
                    past[n, j] += v_heads[b, j]
                else:
                    peak = -np.inf
                    for i in range(S):
                        pull[i] = alphas[n - 1, i] + transitions[p, q, i, j]
                        peak = max(peak, pull[i])
                    alphas[n, j] = -np.inf
                    if peak > -np.inf:
                        c = 0.0
                        for i in range(S):
                            pull[i] = math.exp(pull[i] - peak)
                            c += pull[i]
                        mean = 0.0
                        for i in range(S):
                            v = v_edges[b, q, i, j]
                            mean += pull[i] / c * (past[n - 1, i] + v)
                        past[n, j] += mean
                        alphas[n, j] = peak + math.log(c) + emissions[b, t, j]
                top = max(top, alphas[n, j])
            if top == -np.inf:
                infeasible = True
                break
            for j in range(S):
                alphas[n, j] -= top
        if infeasible:
            continue
        peak = -np.inf
        for s in range(S):
            beta[s] = end[s]
            future[s] = v_tails[b, s]
            peak = max(peak, alphas[N - 1, s] + beta[s])
        if peak == -np.inf:
            continue
        z = 0.0
        expected = 0.0
        for s in range(S):
            weight = math.exp(alphas[N - 1, s] + beta[s] - peak)
            z += weight
            expected += weight * (past[N - 1, s] + future[s])
        expected /= z

        # backward: node and edge covariances, and future
        for n in range(N - 1, -1, -1):
            t = steps[b, n]
            peak = -np.inf
            for s in range(S):
                peak = max(peak, alphas[n, s] + beta[s])
            z = 0.0
            for s in range(S):
                z += math.exp(alphas[n, s] + beta[s] - peak)
            for s in range(S):
                chance = math.exp(alphas[n, s] + beta[s] - peak) / z
                nodes[b, t, s] = chance * (past[n, s] + future[s] - expected)
                if n == 0:
                    heads[b, s] = nodes[b, t, s]
                if n == N - 1:
                    tails[b, s] = nodes[b, t, s]
            if n == 0:
                break
            q = 0 if shared else t - 1
            p = 0 if shared else b
            log_z = -np.inf
            top = -np.inf
            for j in range(S):
                pull[j] = beta[j] + emissions[b, t, j]
            for i in range(S):
                peak = -np.inf
                for j in range(S):
                    peak = max(peak, transitions[p, q, i, j] + pull[j])
                grown[i] = -np.inf
                grown_future[i] = 0
                if peak > -np.inf:
                    c = 0.0
                    mean = 0.0
                    for j in range(S):
                        weight = math.exp(transitions[p, q, i, j] + pull[j] - peak)
                        c += weight
                        v = v_edges[b, q, i, j] + v_nodes[b, t, j]
                        mean += weight * (v + future[j])
                    grown[i] = peak + math.log(c)
                    grown_future[i] = mean / c
                top = max(top, grown[i])
                log_z = max(log_z, alphas[n - 1, i] + grown[i])
            z = 0.0
            for i in range(S):
                z += math.exp(alphas[n - 1, i] + grown[i] - log_z)
            log_z += math.log(z)
            for i in range(S):
                for j in range(S):
                    log_chance = alphas[n - 1, i] + transitions[p, q, i, j] + pull[j]
                    if log_chance == -np.inf:
                        continue
                    v = v_edges[b, q, i, j] + v_nodes[b, t, j]
                    mean = past[n - 1, i] + v + future[j]
                    cov = math.exp(log_chance - log_z) * (mean - expected)
                    edges[b, q, i, j] += cov
            for i in range(S):
                beta[i] = grown[i] - top
                future[i] = grown_future[i]
