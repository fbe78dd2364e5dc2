r"""Variance-reduced steps on sparse sequences, with what is dense done lazily.

    x_t = x_{t-1} - gamma (g_i(x) - g_i(snapshot) + gbar + lambda x + kappa (x - z))
        = k x_{t-1} + gamma c - gamma delta_t ,
    k = 1 - gamma (lambda + kappa) ,  c = kappa z - gbar

The slope delta_t of a sequence at x, less that at the snapshot, touches its features
only. So for W

    x_t = r_t V_t + b_t c ,  r_t = k r_{t-1} ,  b_t = k b_{t-1} + gamma ,
    V_t = V_{t-1} - (gamma / r_t) X' (D - D_snapshot)
    sum of x_1 to x_t = C_t V_t - Q_t + B_t c ,  C_t = sum of r ,  B_t = sum of b

with Q as in ``linear.sgd``. The slopes of the snapshot were kept as marginals, so a
step calls the oracle once. It scores the words under V and under c, and combines the
scores with r and b. Unless r is folded into V, only rows of features of the sequence
are written.

Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
sections 5 and 7.2.
"""

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
from smoothsp._kernels.linear.tied_weights import (
    add_word,
    rest,
    room_of_rest,
    score_words,
    sharing,
)
from smoothsp._kernels.vectors.simd import fma, load, splat, store

# As in linear.sgd.
_SMALLEST = 1e-4


@kernel
def svrg_epoch(
    order, rate, pull, s, kind, mu, K, nodes, pairs, c_W, c_tail, W, Q, tail, tail_sum,
    scales,
):  # fmt: skip
    """Steps of size ``rate`` on the sequences ``order``; whether all stayed finite.

    ``pull`` is lambda + kappa; ``nodes`` and ``pairs`` are the slopes of the snapshot;
    ``c_W`` and ``c_tail`` are c. ``W`` holds V, ``tail`` the other weights,
    ``tail_sum`` the sum of those so far; ``scales`` are (r, b, C, B).
    """
    a = slope_scratch(s, K)
    more = room_of_rest(s)
    space = scratch_of_ranking(s, K)
    E, D, M = a.k.E, a.D, a.k.M
    P = s.P
    keep = 1 - rate * pull
    r, b, C, B = scales[0], scales[1], scales[2], scales[3]
    for n in range(len(order)):
        i = order[n]
        first, last = s.offsets[i], s.offsets[i + 1]
        T = last - first
        score_words(s, first, last, W, E)
        score_words(s, first, last, c_W, M)
        p, q = splat(r), splat(b)
        for e in range(0, T * P, V):
            store(E, e, fma(q, load(M, e), p * load(E, e)))
        own = rest(s, r, W, tail, a.k.rest)
        if sharing(s):
            forward = rest(s, b, c_W, tail, more)
            for e in range(len(own)):
                own[e] += forward[e]
        if not (finite(E, T * P) and finite(own, len(own))):
            return False
        slope(s, i, own, kind, mu, a, space)
        o = first * P
        for e in range(0, T * P, V):
            store(D, e, load(D, e) - load(nodes, o + e))
        for e in range(s.S * P):
            a.edges[e] -= pairs[i, e]
        if r * keep < _SMALLEST:
            # so that C V - Q stays
            for e in range(0, len(W), V):
                v = load(W, e)
                store(Q, e, load(Q, e) - splat(C) * v)
                store(W, e, v * splat(r * keep))
            C = 0.0
            r = 1.0
        else:
            r *= keep
        b = keep * b + rate
        step = -rate / r
        for t in range(T):
            if is_zero(D, t * P, P):
                continue
            add_word(s, first + t, step, D, t * P, W)
            if C != 0:
                add_word(s, first + t, step * C, D, t * P, Q)
        if sharing(s) and C != 0:
            add_to_tail(s, T, step * C, D, a.edges, Q, tail)
        C += r
        B += b
        scaled(keep, tail)
        ahead = splat(rate)
        for e in range(0, len(tail), V):
            store(tail, e, fma(ahead, load(c_tail, e), load(tail, e)))
        add_to_tail(s, T, step if sharing(s) else -rate, D, a.edges, W, tail)
        for e in range(0, len(tail), V):
            store(tail_sum, e, load(tail_sum, e) + load(tail, e))
    scales[0], scales[1], scales[2], scales[3] = r, b, C, B
    return True
