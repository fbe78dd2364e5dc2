"""Scaled forward-backward of one sequence: free energy and marginals.

With scores U of positions, padded to P with -inf, transitions A, and temperature mu,

    a_t(j) = e^{U(t, j) / mu} sum_i a_{t-1}(i) e^{A(i, j) / mu} / c_t , sum_j a_t(j) = 1
    b_{t-1}(i) = sum_j e^{A(i, j) / mu} q_t(j) ,  q_t(j) = e^{U(t, j) / mu} b_t(j) / c_t
    P(y_t = j) = a_t(j) b_t(j) ,  P(y_{t-1} = i, y_t = j) = a_{t-1}(i) e^{A / mu} q_t(j)

The largest U of each position and the largest A are subtracted first. An entry of a_t
that underflows may count later, when all others become small. If a product of
successive c_t is below 1e-283, everything is recomputed in log space.

Chains have a separate kernel, ``chain.cpu.forward_backward``. There rows share the
exponentials of A; here a solver changes A after each sequence. Scaling is that of
Rabiner, "A Tutorial on Hidden Markov Models" (1989), section V.A.
"""

import math

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.linear.forward_backward_log_space import (
    forward_backward_log_space,
)
from smoothsp._kernels.linear.sparse_scores import V
from smoothsp._kernels.vectors.simd import fma, load, maximum, splat, splat_at, store
from smoothsp._kernels.vectors.simd_exp import exp
from smoothsp._kernels.vectors.simd_masked import reduce_max, reduce_sum

# a factor of 1e25 before the smallest normal number remains for one step
_MAX_INVERSE_SCALE = 1e283


@subroutine
def fill_exp_transitions(
    weights,
    transition_offset,
    mu,
    S,
    P,
    exp_transitions,
    exp_transitions_T,
):
    """Fill ``exp((A - max A) / mu)`` and its transpose; return max A."""
    max_transition = -np.inf
    for i in range(S):
        for j in range(S):
            max_transition = max(max_transition, weights[transition_offset + i * P + j])
    inverse_mu, zero = splat(1 / mu), splat(0.0)
    for i in range(S):
        for j in range(0, P, V):
            # padding is 0, and may exceed the largest transition
            difference = maximum(
                splat(max_transition) - load(weights, transition_offset + i * P + j),
                zero,
            )
            store(exp_transitions, i * P + j, exp(zero - difference * inverse_mu))
    for i in range(S):
        for j in range(S):
            # scalar: S^2 entries once a sequence
            exp_transitions_T[j * P + i] = exp_transitions[i * P + j]
    return max_transition


@subroutine
def forward_backward(
    T,
    S,
    P,
    weights,
    transition_offset,
    mu,
    U,
    emission_weights,
    exp_transitions,
    exp_transitions_T,
    marginals,
    edges,
):
    """Fill marginals of positions, and summed marginals of pairs; return mu log Z.

    ``marginals`` and the scratch ``emission_weights`` have the size of U;
    ``exp_transitions``, its transpose and ``edges`` have S rows.
    """
    edges[:] = 0.0
    max_transition = (
        fill_exp_transitions(
            weights,
            transition_offset,
            mu,
            S,
            P,
            exp_transitions,
            exp_transitions_T,
        )
        if T > 1
        else 0.0
    )
    value, max_inverse_scale = forward_pass(
        T, S, P, mu, U, emission_weights, exp_transitions, marginals, max_transition
    )
    if not max_inverse_scale < _MAX_INVERSE_SCALE:
        return forward_backward_log_space(
            T,
            S,
            P,
            weights,
            transition_offset,
            mu,
            U,
            emission_weights,
            exp_transitions,
            marginals,
            edges,
        )
    if T > 1:
        _backward_pass(
            T,
            S,
            P,
            emission_weights,
            exp_transitions,
            exp_transitions_T,
            marginals,
            edges,
        )
    return value


@subroutine
def forward_pass(
    T, S, P, mu, U, emission_weights, exp_transitions, marginals, max_transition
):
    """Fill ``marginals`` with a_t and ``emission_weights`` with ``exp(U / mu) / c_t``.

    Return ``mu log Z`` and 1, or infinity in second place if log space is needed.
    Logarithms of products of c_t are taken only when these leave [1e-100, 1e100].
    """
    inverse_mu, zero = splat(1 / mu), splat(0.0)
    value, product, max_inverse_scale, inverse = 0.0, 1.0, 1.0, 1.0
    for t in range(T):
        o = t * P
        best = load(U, o)
        for j in range(V, P, V):
            best = maximum(load(U, o + j), best)
        max_score = reduce_max(best)
        value += max_score
        max_score_lanes = splat(max_score)
        total = zero
        for j in range(0, P, V):
            x = exp((load(U, o + j) - max_score_lanes) * inverse_mu)
            store(emission_weights, o + j, x)
            if t > 0:
                p = o - P
                a = b = zero
                # two independent sums: fused products of one sum depend on each other
                for i in range(0, S - 1, 2):
                    a = fma(
                        splat_at(marginals, p + i),
                        load(exp_transitions, i * P + j),
                        a,
                    )
                    b = fma(
                        splat_at(marginals, p + i + 1),
                        load(exp_transitions, i * P + P + j),
                        b,
                    )
                if S % 2 == 1:
                    a = fma(
                        splat_at(marginals, p + S - 1),
                        load(exp_transitions, (S - 1) * P + j),
                        a,
                    )
                x = x * (a + b)
            store(marginals, o + j, x)
            total = total + x
        c = reduce_sum(total)
        inverse = 1 / c
        # largest product of 1 / c over all runs of positions that end here
        max_inverse_scale = max(max_inverse_scale, 1.0) * inverse if t > 0 else 1.0
        if not max_inverse_scale < _MAX_INVERSE_SCALE:
            return value, np.inf
        product *= c
        # a logarithm costs more than a position of few labels
        if product < 1e-100 or product > 1e100:
            value += mu * math.log(product)
            product = 1.0
        scale = splat(inverse)
        for j in range(0, P, V):
            store(marginals, o + j, load(marginals, o + j) * scale)
            store(emission_weights, o + j, load(emission_weights, o + j) * scale)
    return value + mu * math.log(product) + (T - 1) * max_transition, 1.0


@subroutine
def _backward_pass(
    T,
    S,
    P,
    emission_weights,
    exp_transitions,
    exp_transitions_T,
    marginals,
    edges,
):
    """Turn a_t into marginals of positions, and fill ``edges`` with those of pairs.

    ``edges`` sums ``a_{t-1}(i) q_t(j)`` over t. ``e^{A / mu}`` is the same at each step
    and multiplied in at the end. The recursion of b has vectors over i, and reads the
    transpose.
    """
    zero = splat(0.0)
    # ``emission_weights`` becomes q, from the last position to the first;
    # b of the last position is 1
    for t in range(T - 1, 0, -1):
        o, p = t * P, t * P - P
        for i in range(S):
            a = splat_at(marginals, p + i)
            for j in range(0, P, V):
                e = i * P + j
                store(edges, e, fma(a, load(emission_weights, o + j), load(edges, e)))
        for i in range(0, P, V):
            a = b = zero
            for j in range(0, S - 1, 2):
                a = fma(
                    splat_at(emission_weights, o + j),
                    load(exp_transitions_T, j * P + i),
                    a,
                )
                b = fma(
                    splat_at(emission_weights, o + j + 1),
                    load(exp_transitions_T, j * P + P + i),
                    b,
                )
            if S % 2 == 1:
                a = fma(
                    splat_at(emission_weights, o + S - 1),
                    load(exp_transitions_T, (S - 1) * P + i),
                    a,
                )
            a = a + b
            store(marginals, p + i, load(marginals, p + i) * a)
            store(emission_weights, p + i, load(emission_weights, p + i) * a)
    for e in range(0, S * P, V):
        # e^(A / mu) is common to all steps
        store(edges, e, load(edges, e) * load(exp_transitions, e))
