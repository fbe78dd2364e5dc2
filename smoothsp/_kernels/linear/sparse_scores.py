"""Scores of a sequence under a linear model, and updates by its features.

``E(t, j) = sum_f x(t, f) W(f, j)``, and a labelling y has the score
``sum_t E(t, y_t) + A(y_{t-1}, y_t) + start(y_1) + end(y_T)``.

All weights are in one flat array of rows of P numbers, S labels and zeros up to whole
vectors: a row per feature, then from ``transition_offset`` the S rows of A, then the
rows at ``start_offset`` and ``end_offset``. Offsets are -1 where there are no such
rows. Positions of all sequences are numbered consecutively. The entries of position t,
sorted by feature, are ``indptr[t]`` to ``indptr[t + 1]`` of ``indices`` and ``values``.

Vectors run over the labels j, which are contiguous in a row of W: an entry of X is read
once for a block of up to four vectors. The loop over entries is inside, so that the
sums of E, or the numbers of D, stay in registers.
"""

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.simd import fma, get_number, load, splat, store

# lanes of a vector of float64
V = 8


@subroutine(forceinline=True)
def splat_entry(values, e):
    """The value of an entry in every lane, as float64."""
    return splat(np.float64(get_number(values, e)))


@subroutine(optimise=False)
def score_positions(first, last, indptr, indices, values, weights, P, E):
    """Fill ``E[(t - first) P + j]`` for the positions ``first`` to ``last``."""
    zero = splat(0.0)
    for t in range(first, last):
        low, high = indptr[t], indptr[t + 1]
        o = (t - first) * P
        j = 0
        # four independent sums hide the latency of fused products
        while j + 4 * V <= P:
            a = b = c = d = zero
            for e in range(low, high):
                f = get_number(indices, e) * P + j
                x = splat_entry(values, e)
                a = fma(x, load(weights, f), a)
                b = fma(x, load(weights, f + V), b)
                c = fma(x, load(weights, f + 2 * V), c)
                d = fma(x, load(weights, f + 3 * V), d)
            store(E, o + j, a)
            store(E, o + j + V, b)
            store(E, o + j + 2 * V, c)
            store(E, o + j + 3 * V, d)
            j += 4 * V
        while j + 2 * V <= P:
            # two features at a time: additions to one sum run in sequence
            a = b = c = d = zero
            # two features at a time: fused products of one sum depend on each other
            for e in range(low, high - 1, 2):
                f, g = (
                    get_number(indices, e) * P + j,
                    get_number(indices, e + 1) * P + j,
                )
                x, y = splat_entry(values, e), splat_entry(values, e + 1)
                a = fma(x, load(weights, f), a)
                b = fma(x, load(weights, f + V), b)
                c = fma(y, load(weights, g), c)
                d = fma(y, load(weights, g + V), d)
            if (high - low) % 2 == 1:
                f = get_number(indices, high - 1) * P + j
                x = splat_entry(values, high - 1)
                a = fma(x, load(weights, f), a)
                b = fma(x, load(weights, f + V), b)
            store(E, o + j, a + c)
            store(E, o + j + V, b + d)
            j += 2 * V
        if j < P:
            a = b = zero
            for e in range(low, high - 1, 2):
                f, g = (
                    get_number(indices, e) * P + j,
                    get_number(indices, e + 1) * P + j,
                )
                a = fma(splat_entry(values, e), load(weights, f), a)
                b = fma(splat_entry(values, e + 1), load(weights, g), b)
            if (high - low) % 2 == 1:
                f = get_number(indices, high - 1) * P + j
                a = fma(splat_entry(values, high - 1), load(weights, f), a)
            store(E, o + j, a + b)


@subroutine(optimise=False)
def add_position_features(t, indptr, indices, values, a, D, o, P, weights):
    """``W(f, j) += a x(t, f) D(j)`` with the row D at o, a rank-one term of ``X'D``."""
    scale = splat(a)
    low, high = indptr[t], indptr[t + 1]
    j = 0
    while j + 4 * V <= P:
        p, q = scale * load(D, o + j), scale * load(D, o + j + V)
        r, s = scale * load(D, o + j + 2 * V), scale * load(D, o + j + 3 * V)
        for e in range(low, high):
            f = get_number(indices, e) * P + j
            x = splat_entry(values, e)
            store(weights, f, fma(x, p, load(weights, f)))
            store(weights, f + V, fma(x, q, load(weights, f + V)))
            store(weights, f + 2 * V, fma(x, r, load(weights, f + 2 * V)))
            store(weights, f + 3 * V, fma(x, s, load(weights, f + 3 * V)))
        j += 4 * V
    while j < P:
        p = scale * load(D, o + j)
        for e in range(low, high):
            f = get_number(indices, e) * P + j
            store(weights, f, fma(splat_entry(values, e), p, load(weights, f)))
        j += V


@subroutine(optimise=False)
def add_position_features_for_label(t, indptr, indices, values, a, j, P, weights):
    """``W(f, j) += a x(t, f)`` for one label j."""
    for e in range(indptr[t], indptr[t + 1]):
        # one label: a strided write, without vectors
        weights[indices[e] * P + j] += a * values[e]


@subroutine(optimise=False)
def labelling_score(
    E, T, y, o, weights, transition_offset, start_offset, end_offset, P
):
    """``<w, phi(x, y)>`` for the labels ``y[o:o + T]`` of a sequence with scores E."""
    score = 0.0
    for t in range(T):
        score += E[t * P + y[o + t]]
    if transition_offset >= 0:
        for t in range(1, T):
            score += weights[transition_offset + y[o + t - 1] * P + y[o + t]]
    if start_offset >= 0 and T > 0:
        score += weights[start_offset + y[o]] + weights[end_offset + y[o + T - 1]]
    return score
