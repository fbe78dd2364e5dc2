"""Random outputs of a chain, and the entropy of their law. Log space, float64.

For rows that ``sample_entropy`` could not do.
"""

import math

import numpy as np

from smoothsp._kernels.chain.cpu.forward_backward_in_log_space import exp
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors import arrays


@kernel
def sample(
    first,
    last,
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    shared,
    uniforms,
    pending,
    labels,
):
    """Fill labels[B, K, T] of the pending rows with K independent draws each.

    -1 where there is no position.

    Forward messages, then backward draws by inverting the distribution function at
    uniforms[B, K, T] in [0, 1).
    """
    T, S = emissions.shape[1], emissions.shape[2]
    K = labels.shape[1]
    alphas = arrays.empty((T, S), np.float64)
    pull = arrays.empty(S, np.float64)
    for b in range(first, last):
        if not pending[b]:
            continue
        N = lengths[b]
        labels[b] = -1
        for n in range(N):
            t = steps[b, n]
            q = 0 if shared else t - 1
            p = 0 if shared else b
            top = -np.inf
            for j in range(S):
                if n == 0:
                    alphas[n, j] = np.float64(start[j]) + emissions[b, t, j]
                else:
                    peak = -np.inf
                    for i in range(S):
                        pull[i] = alphas[n - 1, i] + transitions[p, q, i, j]
                        peak = max(peak, pull[i])
                    alphas[n, j] = -np.inf
                    if peak > -np.inf:
                        c = 0.0
                        for i in range(S):
                            c += exp(pull[i] - peak)
                        alphas[n, j] = peak + math.log(c) + emissions[b, t, j]
                top = max(top, alphas[n, j])
            if top > -np.inf:
                for j in range(S):
                    alphas[n, j] -= top
        for k in range(K):
            j = 0
            for n in range(N - 1, -1, -1):
                peak = -np.inf
                for i in range(S):
                    if n == N - 1:
                        move = float(end[i])
                    else:
                        # the edge into the position drawn just before
                        q = 0 if shared else steps[b, n + 1] - 1
                        p = 0 if shared else b
                        move = float(transitions[p, q, i, j])
                    pull[i] = alphas[n, i] + move
                    peak = max(peak, pull[i])
                c = 0.0
                for i in range(S):
                    pull[i] = exp(pull[i] - peak)
                    c += pull[i]
                t = steps[b, n]
                target = uniforms[b, k, t] * c
                # where rounding leaves the sum too small: the last feasible state
                reached = 0.0
                for i in range(S):
                    if pull[i] > 0:
                        j = i
                        reached += pull[i]
                        if reached > target:
                            break
                labels[b, k, t] = j


@kernel
def entropy(
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
):
    """Fill value[B] with the entropies of the pending rows, in nats.

    The chain rule backwards in time, with ``P(i | j)`` the law of the state before j:
    ``H_t(j) = sum_i P(i | j) (H_{t-1}(i) - log P(i | j))``. Every term is at least 0,
    so nothing cancels however large the potentials.
    """
    S = emissions.shape[2]
    alpha = arrays.empty(S, np.float64)
    grown = arrays.empty(S, np.float64)
    h = arrays.empty(S, np.float64)
    grown_h = arrays.empty(S, np.float64)
    pull = arrays.empty(S, np.float64)
    for b in range(first, last):
        if not pending[b]:
            continue
        N = lengths[b]
        value[b] = 0
        h[:] = 0
        for n in range(N):
            t = steps[b, n]
            q = 0 if shared else t - 1
            p = 0 if shared else b
            top = -np.inf
            for j in range(S):
                grown_h[j] = 0
                if n == 0:
                    grown[j] = np.float64(start[j]) + emissions[b, t, j]
                else:
                    peak = grown[j] = -np.inf
                    if emissions[b, t, j] == -np.inf:
                        continue
                    for i in range(S):
                        pull[i] = alpha[i] + transitions[p, q, i, j]
                        peak = max(peak, pull[i])
                    if peak > -np.inf:
                        c = 0.0
                        for i in range(S):
                            c += exp(pull[i] - peak)
                        log_c = math.log(c)
                        for i in range(S):
                            log_chance = pull[i] - peak - log_c
                            chance = exp(log_chance)
                            if chance > 0:
                                grown_h[j] += chance * (h[i] - log_chance)
                        grown[j] = peak + log_c + emissions[b, t, j]
                top = max(top, grown[j])
            for j in range(S):
                alpha[j] = grown[j] - top if top > -np.inf else -np.inf
                h[j] = grown_h[j]
        if N == 0:
            continue
        peak = -np.inf
        for s in range(S):
            alpha[s] += end[s]
            peak = max(peak, alpha[s])
        if peak == -np.inf:
            continue
        c = 0.0
        for s in range(S):
            c += exp(alpha[s] - peak)
        for s in range(S):
            log_chance = alpha[s] - peak - math.log(c)
            chance = exp(log_chance)
            if chance > 0:
                value[b] += chance * (h[s] - log_chance)
