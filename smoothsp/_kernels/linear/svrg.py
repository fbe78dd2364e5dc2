"""Variance-reduced steps (SVRG) on sparse sequences, with lazy dense updates.

    x_t = x_{t-1} - gamma (g_i(x) - g_i(snapshot) + gbar + lambda x + kappa (x - z))
        = k x_{t-1} + gamma c - gamma delta_t ,
    k = 1 - gamma (lambda + kappa) ,  c = kappa z - gbar

The gradient delta_t of a sequence at x, less that at the snapshot, is nonzero only for
its features. So for W

    x_t = r_t V_t + b_t c ,  r_t = k r_{t-1} ,  b_t = k b_{t-1} + gamma ,
    V_t = V_{t-1} - (gamma / r_t) X' (D - D_snapshot)
    sum of x_1 to x_t = C_t V_t - Q_t + B_t c ,  C_t = sum of r ,  B_t = sum of b

with Q as in ``sgd``. Gradients at the snapshot are stored as marginals, so that a step
calls the oracle once. It computes scores under V and under c, and combines them with r
and b. Unless r is folded into V, only rows of features of the sequence are written.

Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models" (2018),
sections 5 and 7.2.
"""

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
    make_transition_buffer,
)
from smoothsp._kernels.vectors.simd import fma, load, splat, store

# as in ``sgd``
_MIN_SCALE = 1e-4


@kernel
def svrg_epoch(
    order, rate, decay, sequences, kind, mu, K, snapshot_nodes, snapshot_edges, c_W,
    c_transitions, W, Q, transition_weights, transition_weights_sum, scales,
):  # fmt: skip
    """Make steps of size ``rate`` on sequences ``order``; whether all stayed finite.

    ``decay`` is lambda + kappa; ``snapshot_nodes`` and ``snapshot_edges`` are gradients
    at the snapshot; ``c_W`` and ``c_transitions`` are c. ``W`` holds V,
    ``transition_weights`` the other weights, ``transition_weights_sum`` the sum of
    their iterates; ``scales`` are (r, b, C, B).
    """
    gradient = make_gradient_scratch(sequences, K)
    shift_buffer = make_transition_buffer(sequences)
    k_best_scratch = make_k_best_scratch(sequences, K)
    E, D, M = gradient.scratch.E, gradient.D, gradient.scratch.M
    P = sequences.P
    shrinkage = 1 - rate * decay
    r, b, C, B = scales[0], scales[1], scales[2], scales[3]
    for n in range(len(order)):
        i = order[n]
        first, last = sequences.offsets[i], sequences.offsets[i + 1]
        T = last - first
        fill_position_scores(sequences, first, last, W, E)
        fill_position_scores(sequences, first, last, c_W, M)
        p, q = splat(r), splat(b)
        for e in range(0, T * P, V):
            # scores are linear in the weights: r V + b c is never formed
            store(E, e, fma(q, load(M, e), p * load(E, e)))
        gathered = gather_transition_weights(
            sequences, r, W, transition_weights, gradient.scratch.transition_weights
        )
        if has_tied_weights(sequences):
            gathered_shift = gather_transition_weights(
                sequences, b, c_W, transition_weights, shift_buffer
            )
            for e in range(len(gathered)):
                gathered[e] += gathered_shift[e]
        if not (all_finite(E, T * P) and all_finite(gathered, len(gathered))):
            return False
        loss_and_gradient(sequences, i, gathered, kind, mu, gradient, k_best_scratch)
        o = first * P
        for e in range(0, T * P, V):
            store(D, e, load(D, e) - load(snapshot_nodes, o + e))
        for e in range(sequences.S * P):
            # variance reduction: the difference to the snapshot's gradient
            gradient.edges[e] -= snapshot_edges[i, e]
        if r * shrinkage < _MIN_SCALE:
            # r is folded into V, and C into Q, so that C V - Q stays the same
            for e in range(0, len(W), V):
                v = load(W, e)
                store(Q, e, load(Q, e) - splat(C) * v)
                store(W, e, v * splat(r * shrinkage))
            C = 0.0
            r = 1.0
        else:
            r *= shrinkage
        # b is the factor of c, which is never added to W
        b = shrinkage * b + rate
        feature_step = -rate / r
        for t in range(T):
            if is_zero_row(D, t * P, P):
                continue
            add_word_features(sequences, first + t, feature_step, D, t * P, W)
            if C != 0:
                add_word_features(sequences, first + t, feature_step * C, D, t * P, Q)
        if has_tied_weights(sequences) and C != 0:
            add_transition_gradient(
                sequences, T, feature_step * C, D, gradient.edges, Q, transition_weights
            )
        C += r
        B += b
        scale_array(shrinkage, transition_weights)
        rate_lanes = splat(rate)
        for e in range(0, len(transition_weights), V):
            store(
                transition_weights,
                e,
                fma(rate_lanes, load(c_transitions, e), load(transition_weights, e)),
            )
        add_transition_gradient(
            sequences,
            T,
            feature_step if has_tied_weights(sequences) else -rate,
            D,
            gradient.edges,
            W,
            transition_weights,
        )
        for e in range(0, len(transition_weights), V):
            store(
                transition_weights_sum,
                e,
                load(transition_weights_sum, e) + load(transition_weights, e),
            )
    scales[0], scales[1], scales[2], scales[3] = r, b, C, B
    return True
