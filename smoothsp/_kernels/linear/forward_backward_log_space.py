"""Forward-backward of one sequence in log space: slow, and never out of range.

Calling ``chain.cpu.forward_backward_float64`` would add seconds of compilation to the
first fit of each solver.
"""

import math

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine


@subroutine
def forward_backward_log_space(
    T,
    S,
    P,
    weights,
    transition_offset,
    mu,
    U,
    log_beta,
    terms_scratch,
    marginals,
    edges,
):
    """Fill ``marginals`` and ``edges`` as ``forward_backward``; return mu log Z.

    ``log_beta`` becomes ``log b``; ``terms_scratch`` holds the terms of one sum.
    Forward, backward, then marginals of pairs and of positions, with a and b not
    normalised:

        log a_t(j)     = U(t, j) / mu + log sum_i exp(log a_{t-1}(i) + A(i, j) / mu)
        log b_{t-1}(i) = log sum_j exp(A(i, j) / mu + U(t, j) / mu + log b_t(j))
        log Z          = log sum_j a_{T-1}(j)
        P(i, j at t)   = exp(log a_{t-1}(i) + (A(i, j) + U(t, j)) / mu + log b_t(j)
                             - log Z)
        P(y_t = j)     = exp(log a_t(j) + log b_t(j) - log Z)

    Few sequences need log space, so the loops are scalar.
    """
    total = fill_log_messages(
        T, S, P, weights, transition_offset, mu, U, log_beta, terms_scratch, marginals
    )
    edges[:] = 0.0
    for t in range(1, T):
        for i in range(S):
            before = marginals[(t - 1) * P + i] - total
            for j in range(S):
                step = weights[transition_offset + i * P + j] / mu
                after = U[t * P + j] / mu + log_beta[t * P + j]
                edges[i * P + j] += math.exp(before + step + after)
    for t in range(T):
        for j in range(S):
            marginals[t * P + j] = math.exp(
                marginals[t * P + j] + log_beta[t * P + j] - total
            )
        for j in range(S, P):
            marginals[t * P + j] = 0.0
    return mu * total


@subroutine
def fill_log_messages(
    T, S, P, weights, transition_offset, mu, U, log_beta, terms_scratch, log_alpha
):
    """Fill ``log_alpha`` with ``log a``, ``log_beta`` with ``log b``; return ``log Z``.

    ``terms_scratch`` holds the terms of one sum.
    """
    for t in range(T):
        for j in range(S):
            log_sum = U[t * P + j] / mu
            if t > 0:
                for i in range(S):
                    step = weights[transition_offset + i * P + j] / mu
                    # terms are collected first: the largest is subtracted before
                    # exponentials
                    terms_scratch[i] = log_alpha[(t - 1) * P + i] + step
                log_sum += _log_sum(S, terms_scratch)
            log_alpha[t * P + j] = log_sum
    for i in range(S):
        log_beta[(T - 1) * P + i] = 0.0
    for t in range(T - 1, 0, -1):
        for i in range(S):
            for j in range(S):
                step = weights[transition_offset + i * P + j] / mu
                terms_scratch[j] = step + U[t * P + j] / mu + log_beta[t * P + j]
            log_beta[(t - 1) * P + i] = _log_sum(S, terms_scratch)
    for j in range(S):
        terms_scratch[j] = log_alpha[(T - 1) * P + j]
    return _log_sum(S, terms_scratch)


@subroutine
def _log_sum(S, x):
    """``log sum_j exp(x_j)``; -inf if all terms are."""
    top = -np.inf
    for j in range(S):
        top = max(top, x[j])
    # -inf - (-inf) would be NaN
    if top == -np.inf:
        return top
    total = 0.0
    for j in range(S):
        total += math.exp(x[j] - top)
    return top + math.log(total)
