"""Scaled forward-backward with transitions per step, lanes over states.

As ``forward_backward``, with ``E_t = exp(transitions_t - max)`` in each step, stored by
the forward pass for the backward pass. Underflow bound and pending rows are the same. A
vector of E may extend into the next row, where w is 0. Loads inside a step's matrix are
not masked: on some processors a masked load takes as long as ten vectors.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from smoothsp._kernels.chain.cpu.forward_backward import RANGE_32, RANGE_64
from smoothsp._kernels.chain.cpu.records import Chain
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays, double_double
from smoothsp._kernels.vectors.flush_to_zero import restore_fp_mode, set_flush_to_zero
from smoothsp._kernels.vectors.simd import (
    fma,
    get_number,
    load,
    maximum,
    put_number,
    span,
    splat,
    splat_at,
    store,
    subspan,
)
from smoothsp._kernels.vectors.simd_exp import exp
from smoothsp._kernels.vectors.simd_masked import (
    load_masked,
    reduce_max,
    reduce_sum,
    store_masked,
)

# The log of the product of scales is taken before the product leaves this range.
MIN_PRODUCT, MAX_PRODUCT = 1e-200, 1e200


class Scratch(NamedTuple):
    """Scratch of one row, filled by the forward pass."""

    exp_emissions: Any  # [T, P], w, then u
    alphas: Any  # [T, P], a
    inverse_scales: Any  # [T], 1 / c
    exp_transitions: Any  # [T - 1, M], E, padded by a vector
    exp_end: Any  # [P], exponentials of end
    message: Any  # [P]
    zeros: Any  # [V]


@kernel
def forward_backward(first, last, chain, zeros, pending, value, out):
    """Fill the log-partition ``value[B, 2]`` and the marginals of rows first to last.

    In the dtype of the chain, of which ``zeros`` is a vector; the value is a sum of two
    numbers. Rows out of range are left pending[B].
    """
    chain, (nodes, edges, start_marginals, end_marginals) = Chain(*chain), out
    T, S = chain.emissions.shape[1], chain.emissions.shape[2]
    V = len(zeros)
    P = -(-S // V) * V
    scratch = Scratch(
        arrays.empty((T, P), zeros.dtype),
        arrays.empty((T, P), zeros.dtype),
        arrays.empty(T, zeros.dtype),
        arrays.empty(max(T - 1, 0) * _padded_size(S * S, V), zeros.dtype),
        arrays.empty(_padded_size(S, V), zeros.dtype),
        arrays.empty(P, zeros.dtype),
        zeros,
    )
    max_underflow_bound = (RANGE_32 if zeros.itemsize == 4 else RANGE_64) / (16 * S)
    control = set_flush_to_zero()
    max_end = _fill_exp_scores(span(chain.end), S, span(scratch.exp_end), zeros)
    for b in range(first, last):
        length = chain.lengths[b]
        _zero_padding(b, chain, nodes, edges)
        underflow_bound = 0.0
        value[b, 0] = value[b, 1] = 0.0
        if length > 0:
            hi, lo = _forward_pass(b, chain, scratch)
            underflow_bound, log_z = _backward_pass(
                b, chain, scratch, span(nodes), span(edges)
            )
            hi, lo = double_double.add(hi, lo, max_end)
            hi, lo = double_double.add(hi, lo, log_z)
            value[b, 0], value[b, 1] = double_double.normalise(hi, lo)
        pending[b] = not underflow_bound <= max_underflow_bound
        for s in range(S):
            start_marginals[b, s] = nodes[b, chain.steps[b, 0], s] if length > 0 else 0
            end_marginals[b, s] = (
                nodes[b, chain.steps[b, length - 1], s] if length > 0 else 0
            )
    restore_fp_mode(control)


@subroutine
def _zero_padding(b, chain, nodes, edges):
    """Fill marginals of masked positions, and edges into the first real one, with 0.

    ``steps[b]`` are all positions, the real ones first.
    """
    for n in range(chain.emissions.shape[1]):
        t = chain.steps[b, n]
        if n >= chain.lengths[b]:
            nodes[b, t] = 0
        if t > 0 and (n == 0 or n >= chain.lengths[b]):
            edges[b, t - 1] = 0


@subroutine(forceinline=True)
def _padded_size(count, V):
    """Return the size of ``count`` numbers in whole vectors, plus one vector."""
    return (-(-count // V) + 1) * V


@subroutine
def _fill_exp_scores(scores, count, out, zeros):
    """Fill ``out = exp(scores - max_score)``, 0 in the padding.

    Returns max_score, the largest of the ``count`` scores, in float64.
    """
    V, neg_inf = len(zeros), splat(zeros.dtype.type(-np.inf))
    full_width = count // V * V
    tail = neg_inf
    if full_width < count:
        tail = load_masked(scores, full_width, count - full_width, neg_inf)
    maxima = tail
    for e in range(0, full_width, V):
        maxima = maximum(load(scores, e), maxima)
    max_score = reduce_max(maxima)
    for e in range(0, full_width, V):
        store(out, e, exp(load(scores, e) - splat(max_score)))
    if full_width < count:
        store(out, full_width, exp(tail - splat(max_score)))
        full_width += V
    store(out, full_width, splat(zeros[0]))
    return np.float64(max_score)


@subroutine
def _forward_pass(b, chain, scratch):
    """Fill exp_emissions with w, alphas with a, inverse_scales and exp_transitions.

    Returns the sum of the maxima and log scales as a double-double.
    """
    T, S, P = chain.emissions.shape[1], chain.emissions.shape[2], len(scratch.message)
    zeros, V, N = scratch.zeros, len(scratch.zeros), chain.lengths[b]
    one, neg_inf = zeros.dtype.type(1), splat(zeros.dtype.type(-np.inf))
    emissions, transitions = span(chain.emissions), span(chain.transitions)
    exp_emissions, alphas, message = (
        span(scratch.exp_emissions),
        span(scratch.alphas),
        span(scratch.message),
    )
    hi, lo = _first_weights(b, chain, scratch)
    scale_product, inverse_scale, size = 1.0, one, _padded_size(S * S, V)
    for n in range(N):
        o = n * P
        if n > 0:
            e = (b * T + chain.steps[b, n]) * S
            maxima = neg_inf
            for j in range(0, P, V):
                x = load_masked(emissions, e + j, S - j, neg_inf)
                store(exp_emissions, o + j, x)
                maxima = maximum(x, maxima)
            max_emission = reduce_max(maxima)
            for j in range(0, P, V):
                store(
                    exp_emissions,
                    o + j,
                    exp(load(exp_emissions, o + j) - splat(max_emission)),
                )
            e = (b * (T - 1) + chain.steps[b, n] - 1) * S * S
            scores = subspan(transitions, 0 if chain.shared else e, S * S)
            matrix = subspan(scratch.exp_transitions, (n - 1) * size, size)
            max_transition = _fill_exp_scores(scores, S * S, matrix, zeros)
            hi, lo = double_double.add(hi, lo, np.float64(max_emission))
            hi, lo = double_double.add(hi, lo, max_transition)
            _vector_matrix_product(alphas, o - P, matrix, S, message, zeros)
        else:
            for j in range(0, P, V):
                store(message, j, splat(one))
        c, scale_vector = splat(zeros[0]), splat(inverse_scale)
        for j in range(0, P, V):
            a = load(message, j) * scale_vector * load(exp_emissions, o + j)
            store(alphas, o + j, a)
            c = c + a
        scale = reduce_sum(c)
        inverse_scale = one / scale
        scratch.inverse_scales[n] = inverse_scale
        if n < N - 1:
            if not MIN_PRODUCT < scale_product * np.float64(scale) < MAX_PRODUCT:
                hi, lo = double_double.add(hi, lo, _log_or_nan(scale_product))
                scale_product = 1.0
            scale_product *= np.float64(scale)
    return double_double.add(hi, lo, _log_or_nan(scale_product))


@subroutine(forceinline=True)
def _log_or_nan(x):
    """Return log x, or NaN if x underflowed to 0: the row is out of range."""
    return math.log(x) if x > 0 else np.nan


@subroutine
def _first_weights(b, chain, scratch):
    """Fill the first w with exp(emission + start - max); return max, a double-double.

    The rounding error of emission + start is added after the subtraction.
    """
    S, t = len(chain.start), chain.steps[b, 0]
    dtype = scratch.zeros.dtype
    max_score = -np.inf
    for s in range(S):
        max_score = max(
            max_score, np.float64(chain.emissions[b, t, s]) + chain.start[s]
        )
    for s in range(len(scratch.message)):
        scratch.message[s] = -np.inf
    for s in range(S):
        score = np.float64(chain.emissions[b, t, s])
        hi, lo = double_double.add(score, 0.0, np.float64(chain.start[s]))
        if hi > -np.inf:
            scratch.message[s] = dtype.type(hi - max_score + lo)
    for j in range(0, len(scratch.message), len(scratch.zeros)):
        store(span(scratch.exp_emissions), j, exp(load(span(scratch.message), j)))
    return max_score, 0.0


@subroutine
def _vector_matrix_product(x, o, matrix, S, y, zeros):
    """Fill ``y(j) = sum_i x(i) matrix(i, j)``, x at offset o, matrix [S, S]."""
    V, zero = len(zeros), splat(zeros[0])
    tiled = S // 4 * 4
    for j in range(0, S, V):
        p = q = r = s = zero
        for i in range(0, tiled, 4):
            e = i * S + j
            p = fma(splat_at(x, o + i), load(matrix, e), p)
            q = fma(splat_at(x, o + i + 1), load(matrix, e + S), q)
            r = fma(splat_at(x, o + i + 2), load(matrix, e + 2 * S), r)
            s = fma(splat_at(x, o + i + 3), load(matrix, e + 3 * S), s)
        for i in range(tiled, S):
            p = fma(splat_at(x, o + i), load(matrix, i * S + j), p)
        store(y, j, (p + q) + (r + s))


@subroutine
def _backward_pass(b, chain, scratch, nodes, edges):
    """Fill exp_emissions with u, nodes and edges with their marginals.

    Returns the underflow bound and the log of the last z.
    """
    T, S, P = chain.emissions.shape[1], chain.emissions.shape[2], len(scratch.message)
    zeros, V, N = scratch.zeros, len(scratch.zeros), chain.lengths[b]
    one, zero = zeros.dtype.type(1), splat(zeros[0])
    exp_emissions, alphas, message = (
        span(scratch.exp_emissions),
        span(scratch.alphas),
        span(scratch.message),
    )
    exp_transitions, z = span(scratch.exp_transitions), zero
    for j in range(0, P, V):
        exp_end = load(span(scratch.exp_end), j)
        store(message, j, exp_end)
        z = fma(load(alphas, (N - 1) * P + j), exp_end, z)
    last_z = reduce_sum(z)
    inverse, underflow_bound = one / last_z, 0.0
    for n in range(N - 1, -1, -1):
        o, previous_inverse_scale = n * P, zeros[0]
        if n > 0:
            previous_inverse_scale = scratch.inverse_scales[n - 1]
        bound_terms = z = zero
        for j in range(0, P, V):
            beta = load(message, j) * splat(inverse)
            u = load(exp_emissions, o + j) * beta
            store(message, j, beta)
            store(exp_emissions, o + j, u)
            z = fma(load(alphas, o + j), beta, z)
            bound_terms = fma(u, splat(previous_inverse_scale), bound_terms) + beta
        underflow_bound += np.float64(reduce_sum(bound_terms))
        inverse_z = one / reduce_sum(z)
        e = (b * T + chain.steps[b, n]) * S
        for j in range(0, P, V):
            node = load(alphas, o + j) * splat(inverse_z) * load(message, j)
            store_masked(nodes, e + j, S - j, node)
        if n > 0:
            e = (b * (T - 1) + chain.steps[b, n] - 1) * S * S
            inverse_z, m = (
                inverse_z * previous_inverse_scale,
                (n - 1) * _padded_size(S * S, V),
            )
            for i in range(S):
                a, bound_terms = splat(get_number(alphas, o - P + i) * inverse_z), zero
                for j in range(0, P, V):
                    cell = i * S + j
                    x = load(exp_transitions, m + cell) * load(exp_emissions, o + j)
                    bound_terms = bound_terms + x
                    # lanes past the end of the row are overwritten by the next row
                    if cell + V <= S * S:
                        store(edges, e + cell, x * a)
                    else:
                        store_masked(edges, e + cell, S - j, x * a)
                put_number(message, i, reduce_sum(bound_terms))
            inverse = previous_inverse_scale
    return underflow_bound, _log_or_nan(np.float64(last_z))
