r"""Stochastic subgradient steps on sparse sequences, with what is dense done lazily.

    w_t = (1 - gamma_t lambda) w_{t-1} - gamma_t g_t ,   m_t = m_{t-1} + rho_t w_t

with the slope g_t of one sequence. For W the step only touches the features of the
sequence: with r_t = prod (1 - gamma lambda),

    W_t = r_t V_t ,           V_t = V_{t-1} - (gamma_t / r_t) X' D
    m_t = C_t V_t - Q_t ,     Q_t = Q_{t-1} - C_{t-1} (gamma_t / r_t) X' D ,
                              C_t = C_{t-1} + rho_t r_t

The other weights are few, and every step writes them all; where they share weights with
features (see ``linear.parts``) they are in W and treated as it is.

Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
sections 4 and 7.2; the scaled representation is that of Shalev-Shwartz et al. (2011).
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.linear.sequence_loss import (
    add_to_tail,
    finite,
    is_zero,
    scaled,
    scratch_of_ranking,
    slope,
    slope_scratch,
)
from smoothsp._kernels.linear.sparse_scores import V
from smoothsp._kernels.linear.tied_weights import add_word, rest, score_words, sharing
from smoothsp._kernels.vectors.simd import fma, load, splat, store

# The scale r is folded into V when it falls below this: what m loses to cancellation is
# one over r roundings.
_SMALLEST = 1e-4


@kernel
def subgradient_steps(
    order, rates, shares, lam, s, kind, mu, K, W, Q, tail, tail_sum, scales, losses
):
    """Steps of size ``rates[t]`` on the sequences ``order[t]``.

    ``shares[t]`` is rho_t, ``scales`` are (r, C, the sum of rho, steps so far), ``W``
    holds V, ``tail`` the other weights (see ``linear.slopes``) and ``tail_sum``
    their m. ``losses[t]`` is the loss of the sequence before its step; NaN from where
    the weights overflow.
    """
    c = slope_scratch(s, K)
    space = scratch_of_ranking(s, K)
    E, D = c.k.E, c.D
    P = s.P
    r, C = scales[0], scales[1]
    for n in range(len(order)):
        i = order[n]
        first, last = s.offsets[i], s.offsets[i + 1]
        T = last - first
        score_words(s, first, last, W, E)
        scaled(r, E[: T * P])
        own = rest(s, r, W, tail, c.k.rest)
        if not (finite(E, T * P) and finite(own, len(own))):
            losses[n:] = np.nan
            break
        losses[n] = slope(s, i, own, kind, mu, c, space)
        keep = 1 - rates[n] * lam
        if keep == 0 or r * keep < _SMALLEST:
            # so that C V - Q stays
            for e in range(0, len(W), V):
                v = load(W, e)
                store(Q, e, load(Q, e) - splat(C) * v)
                store(W, e, v * splat(r * keep))
            C = 0.0
            r = 1.0
        else:
            r *= keep
        a = -rates[n] / r
        for t in range(T):
            if is_zero(D, t * P, P):
                continue
            add_word(s, first + t, a, D, t * P, W)
            if C != 0:
                add_word(s, first + t, a * C, D, t * P, Q)
        scaled(keep, tail)
        add_to_tail(s, T, a if sharing(s) else -rates[n], D, c.edges, W, tail)
        if sharing(s) and C != 0:
            add_to_tail(s, T, a * C, D, c.edges, Q, tail)
        if shares[n] > 0:
            C += shares[n] * r
            share = splat(shares[n])
            for e in range(0, len(tail), V):
                store(tail_sum, e, fma(share, load(tail, e), load(tail_sum, e)))
    scales[0], scales[1] = r, C
    scales[2] += shares.sum()
    # counted in compiled code: an interrupt comes before or after, not between
    scales[3] += len(order)
