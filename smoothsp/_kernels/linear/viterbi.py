"""Viterbi for one sequence, with or without the costs of wrong labels.

``a_t(j) = U(t, j) + max_i a_{t-1}(i) + A(i, j)``, where U holds the scores of the
positions, plus costs ``c(gold_t, j)``, plus start and end weights. The forward pass is
in place: U becomes a, and M stores the maxima over i. Backwards, the label before j is
the first i with ``a_{t-1}(i) + A(i, j) = M(t, j)``. This repeats S sums per position,
whereas storing the argmax would add a selection to each of S^2.

Weights are laid out as in ``sparse_scores``. In U the lanes past the last label are
-inf, so that no maximum is there. Vectors run over j, and rows of A are contiguous.
"""

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.linear.sparse_scores import V
from smoothsp._kernels.vectors.simd import fma, load, maximum, splat, splat_at, store


@subroutine(optimise=False)
def fill_loss_augmented_scores(
    E, T, gold, o, costs, scale, weights, start_offset, end_offset, P, U
):
    """Fill U with scores plus costs, for the gold labels ``gold[o:o + T]``.

    ``costs`` are rows of P numbers, one per gold label, -inf past the last label.
    """
    cost_scale = splat(scale)
    for t in range(T):
        c, p = gold[o + t] * P, t * P
        for j in range(0, P, V):
            store(U, p + j, fma(cost_scale, load(costs, c + j), load(E, p + j)))
    if start_offset >= 0:
        _add_boundaries(T, weights, start_offset, end_offset, P, U)


@subroutine(optimise=False)
def fill_scores(E, T, S, weights, start_offset, end_offset, P, U):
    """Fill U with scores, -inf past the last label."""
    for p in range(0, T * P, V):
        store(U, p, load(E, p))
    for t in range(T):
        # padding must not win a maximum
        for j in range(S, P):
            U[t * P + j] = -np.inf
    if start_offset >= 0:
        _add_boundaries(T, weights, start_offset, end_offset, P, U)


@subroutine(optimise=False)
def _add_boundaries(T, weights, start_offset, end_offset, P, U):
    """Add the start weights to the first row and the end weights to the last row."""
    if T == 0:
        return
    last = (T - 1) * P
    for j in range(0, P, V):
        store(U, j, load(U, j) + load(weights, start_offset + j))
    for j in range(0, P, V):
        store(U, last + j, load(U, last + j) + load(weights, end_offset + j))


@subroutine(optimise=False)
def viterbi(T, S, weights, transition_offset, P, U, M, y):
    """Fill ``y[:T]`` with the best labelling, and return its score.

    U becomes the scores of the best prefixes; M, of the same size, receives the maxima.
    Ties go to the lower label, from the end backwards. The empty sequence has score 0.
    """
    if T == 0:
        return 0.0
    for t in range(1, T):
        _viterbi_step(U, (t - 1) * P, weights, transition_offset, S, P, M, t * P)
    o = (T - 1) * P
    j, best = 0, U[o]
    for i in range(1, S):
        # strict: ties go to the lower label
        if U[o + i] > best:
            j, best = i, U[o + i]
    y[T - 1] = j
    for t in range(T - 1, 0, -1):
        o = t * P
        j = _backtrack_label(U, o - P, weights, transition_offset + j, S, P, M[o + j])
        y[t - 1] = j
    return best


@subroutine(optimise=False)
def _viterbi_step(U, o, weights, transition_offset, S, P, M, p):
    """``M(p + j) = max_i U(o + i) + A(i, j)``, which is added to U(p + j).

    The loop over i is inside: the maxima of up to four vectors stay in registers.
    """
    j = 0
    while j + 4 * V <= P:
        v = splat_at(U, o)
        f = transition_offset + j
        a, b = v + load(weights, f), v + load(weights, f + V)
        c, d = v + load(weights, f + 2 * V), v + load(weights, f + 3 * V)
        for i in range(1, S):
            v = splat_at(U, o + i)
            f = transition_offset + i * P + j
            a = maximum(v + load(weights, f), a)
            b = maximum(v + load(weights, f + V), b)
            c = maximum(v + load(weights, f + 2 * V), c)
            d = maximum(v + load(weights, f + 3 * V), d)
        _store_max_and_prefix_score(U, M, p + j, a)
        _store_max_and_prefix_score(U, M, p + j + V, b)
        _store_max_and_prefix_score(U, M, p + j + 2 * V, c)
        _store_max_and_prefix_score(U, M, p + j + 3 * V, d)
        j += 4 * V
    while j < P:
        # four independent chains of comparisons: one alone runs in sequence
        a = b = c = d = splat_at(U, o) + load(weights, transition_offset + j)
        i = 1
        while i + 4 <= S:
            f = transition_offset + i * P + j
            a = maximum(splat_at(U, o + i) + load(weights, f), a)
            b = maximum(splat_at(U, o + i + 1) + load(weights, f + P), b)
            c = maximum(splat_at(U, o + i + 2) + load(weights, f + 2 * P), c)
            d = maximum(splat_at(U, o + i + 3) + load(weights, f + 3 * P), d)
            i += 4
        while i < S:
            a = maximum(
                splat_at(U, o + i) + load(weights, transition_offset + i * P + j), a
            )
            i += 1
        _store_max_and_prefix_score(U, M, p + j, maximum(maximum(a, b), maximum(c, d)))
        j += V


@subroutine(forceinline=True)
def _store_max_and_prefix_score(U, M, offset, max_sum):
    """Store a vector of maxima in M, and add it to U."""
    store(M, offset, max_sum)
    store(U, offset, max_sum + load(U, offset))


@subroutine(optimise=False)
def _backtrack_label(U, o, weights, column_offset, S, P, max_sum):
    """Return the lowest i that attains ``max_i U(i) + A(i, j)``.

    The same sums have the same bits, so that equality is exact.
    """
    for i in range(S):
        if U[o + i] + weights[column_offset + i * P] == max_sum:
            return i
    return 0
