"""Stochastic subgradient steps on sparse sequences, with lazy dense updates.

    w_t = (1 - gamma_t lambda) w_{t-1} - gamma_t g_t ,   m_t = m_{t-1} + rho_t w_t

with the subgradient g_t of one sequence. The step reads and writes only rows of W for
features of the sequence: with r_t = prod (1 - gamma lambda),

    W_t = r_t V_t ,           V_t = V_{t-1} - (gamma_t / r_t) X' D
    m_t = C_t V_t - Q_t ,     Q_t = Q_{t-1} - C_{t-1} (gamma_t / r_t) X' D ,
                              C_t = C_{t-1} + rho_t r_t

The other weights are few, and each step writes them all. If they share weights with
features (see ``tied_weights``), they are in W and updated lazily, too.

Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models" (2018),
sections 4 and 7.2; the scaled representation is that of Shalev-Shwartz et al.,
"Pegasos" (2011).
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.linear.sequence_loss import (
    add_transition_gradient,
    all_finite,
    is_zero_row,
    loss_and_gradient,
    make_gradient_scratch,
    make_k_best_scratch,
    scale_array,
)
from smoothsp._kernels.linear.sparse_scores import V
from smoothsp._kernels.linear.tied_weights import (
    add_word_features,
    fill_position_scores,
    gather_transition_weights,
    has_tied_weights,
)
from smoothsp._kernels.vectors.simd import fma, load, splat, store

# The scale r is folded into V below this: cancellation in m is 1 / r rounding errors.
_MIN_SCALE = 1e-4


@kernel
def subgradient_steps(
    order,
    rates,
    averaging_weights,
    lam,
    sequences,
    kind,
    mu,
    K,
    W,
    Q,
    transition_weights,
    transition_weights_sum,
    scales,
    losses,
):
    """Make steps of size ``rates[t]`` on the sequences ``order[t]``.

    ``averaging_weights[t]`` is rho_t, ``scales`` are (r, C, the sum of rho, steps so
    far). ``W`` holds V, ``transition_weights`` the other weights (see
    ``sequence_loss``), and ``transition_weights_sum`` their m. ``losses[t]`` is the
    loss of the sequence before its step, NaN from the step at which the weights
    overflow.
    """
    gradient = make_gradient_scratch(sequences, K)
    k_best_scratch = make_k_best_scratch(sequences, K)
    E, D = gradient.scratch.E, gradient.D
    P = sequences.P
    r, C = scales[0], scales[1]
    for n in range(len(order)):
        i = order[n]
        first, last = sequences.offsets[i], sequences.offsets[i + 1]
        T = last - first
        fill_position_scores(sequences, first, last, W, E)
        # scores are linear: r W is never formed
        scale_array(r, E[: T * P])
        gathered = gather_transition_weights(
            sequences, r, W, transition_weights, gradient.scratch.transition_weights
        )
        if not (all_finite(E, T * P) and all_finite(gathered, len(gathered))):
            losses[n:] = np.nan
            break
        losses[n] = loss_and_gradient(
            sequences, i, gathered, kind, mu, gradient, k_best_scratch
        )
        shrinkage = 1 - rates[n] * lam
        if shrinkage == 0 or r * shrinkage < _MIN_SCALE:
            # r is folded into V, and C into Q, so that C V - Q stays the same
            for e in range(0, len(W), V):
                old = load(W, e)
                store(Q, e, load(Q, e) - splat(C) * old)
                store(W, e, old * splat(r * shrinkage))
            C = 0.0
            r = 1.0
        else:
            r *= shrinkage
        a = -rates[n] / r
        for t in range(T):
            if is_zero_row(D, t * P, P):
                continue
            add_word_features(sequences, first + t, a, D, t * P, W)
            # Q needs no update before averaging begins
            if C != 0:
                add_word_features(sequences, first + t, a * C, D, t * P, Q)
        # the other weights have no scale: they are shrunk at once
        scale_array(shrinkage, transition_weights)
        add_transition_gradient(
            sequences,
            T,
            a if has_tied_weights(sequences) else -rates[n],
            D,
            gradient.edges,
            W,
            transition_weights,
        )
        if has_tied_weights(sequences) and C != 0:
            add_transition_gradient(
                sequences, T, a * C, D, gradient.edges, Q, transition_weights
            )
        # rho is 0 for iterates outside the average
        if averaging_weights[n] > 0:
            C += averaging_weights[n] * r
            averaging_weight = splat(averaging_weights[n])
            for e in range(0, len(transition_weights), V):
                store(
                    transition_weights_sum,
                    e,
                    fma(
                        averaging_weight,
                        load(transition_weights, e),
                        load(transition_weights_sum, e),
                    ),
                )
    scales[0], scales[1] = r, C
    scales[2] += averaging_weights.sum()
    # counted in compiled code: interrupts come before or after it, not in between
    scales[3] += len(order)
