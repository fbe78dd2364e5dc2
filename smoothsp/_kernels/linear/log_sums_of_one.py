"""The sums of ``linear.sums_of_one`` in logarithms: slow, and never out of range."""

import math

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine


@subroutine
def sums_of_logarithms(T, S, P, weights, moves, mu, U, X, R, N, edges):
    """As ``sums``: N holds ``log a``, then marginals; X ``log b``, R room for two rows.

    ``log a_t(j) = U(t, j) / mu + log sum_i exp(log a_{t-1}(i) + A(i, j) / mu)``, and
    ``log b_{t-1}(i) = log sum_j exp(A(i, j) / mu + U(t, j) / mu + log b_t(j))``.
    """
    for t in range(T):
        for j in range(S):
            here = U[t * P + j] / mu
            if t > 0:
                for i in range(S):
                    step = weights[moves + i * P + j] / mu
                    R[i] = N[(t - 1) * P + i] + step
                here += _log_sum(S, R)
            N[t * P + j] = here
    for i in range(S):
        X[(T - 1) * P + i] = 0.0
    for t in range(T - 1, 0, -1):
        for i in range(S):
            for j in range(S):
                step = weights[moves + i * P + j] / mu
                R[j] = step + U[t * P + j] / mu + X[t * P + j]
            X[(t - 1) * P + i] = _log_sum(S, R)
    for j in range(S):
        R[j] = N[(T - 1) * P + j]
    total = _log_sum(S, R)
    edges[:] = 0.0
    for t in range(1, T):
        for i in range(S):
            before = N[(t - 1) * P + i] - total
            for j in range(S):
                step = weights[moves + i * P + j] / mu
                after = U[t * P + j] / mu + X[t * P + j]
                edges[i * P + j] += math.exp(before + step + after)
    for t in range(T):
        for j in range(S):
            N[t * P + j] = math.exp(N[t * P + j] + X[t * P + j] - total)
        for j in range(S, P):
            N[t * P + j] = 0.0
    return mu * total


@subroutine
def _log_sum(S, x):
    top = -np.inf
    for j in range(S):
        top = max(top, x[j])
    if top == -np.inf:
        return top
    total = 0.0
    for j in range(S):
        total += math.exp(x[j] - top)
    return top + math.log(total)
