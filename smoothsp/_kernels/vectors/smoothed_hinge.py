r"""Structural hinge over the K best outputs, smoothed by the squared l2 norm.

With z_1 >= ... >= z_K the best scores and k the largest number for which
``sum_{i<k} (z_i - z_k) < mu``,

    tau = (z_1 + ... + z_k - mu) / k ,   u_i = max(0, (z_i - tau) / mu)
    h = sum_i u_i z_i + mu / 2 (1 - sum_i u_i^2)

u is the projection of z / mu onto the simplex. The loss is ``h - s(y)``. It equals that
over all outputs if ``mu <= sum_{i <= K} (z_i - z_{K+1})``.

Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
proposition 3, algorithm 6, with the 1/mu that the projection needs, and eq. (12).
"""

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine


@subroutine
def project_onto_simplex(mu, count, z, u):
    """Fill u with the projection of ``z / mu`` onto the simplex; return h.

    ``z[:count]`` is sorted in decreasing order.
    """
    total, k = z[0], 1
    while k < count and total - k * z[k] < mu:
        total += z[k]
        k += 1
    # u adds up to 1 over the support: (total - k tau) / mu = 1
    tau = (total - mu) / k
    h, squared_norm = 0.0, 0.0
    for i in range(count):
        u[i] = max(0.0, (z[i] - tau) / mu) if i < k else 0.0
        h += u[i] * z[i]
        squared_norm += u[i] * u[i]
    return h + mu / 2 * (1 - squared_norm)


@subroutine
def smoothed_hinge(best_scores, gold_hi, gold_lo, mu, K, clip_at_zero, z, u):
    """Return the loss of one row, and whether it equals that over all outputs.

    ``best_scores[M, 2]`` are the M best scores as double-doubles, in decreasing order,
    -inf if there are fewer; ``gold_hi + gold_lo`` is the score of y. Fills u[M] with
    the derivative by the best scores. The first K are smoothed over; mu = 0 means no
    smoothing. ``z[M]`` is scratch.
    """
    M, best_hi, best_lo = len(best_scores), best_scores[0, 0], best_scores[0, 1]
    u[:] = 0.0
    # high parts first: their difference is exact where the scores are close
    loss, is_exact = (best_hi - gold_hi) + (best_lo - gold_lo), True
    if mu > 0:
        count = 0
        while count < M and best_scores[count, 0] > -np.inf:
            z[count] = (best_scores[count, 0] - best_hi) + (
                best_scores[count, 1] - best_lo
            )
            count += 1
        loss += project_onto_simplex(mu, min(count, K), z, u)
        if count > K:
            gap_sum = 0.0
            for i in range(K):
                gap_sum += z[i] - z[K]
            is_exact = mu <= gap_sum
    else:
        u[0] = 1.0
    if clip_at_zero and loss < 0:
        loss = 0.0
    return loss, is_exact
