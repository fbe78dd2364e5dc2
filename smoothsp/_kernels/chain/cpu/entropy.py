"""Entropies of chains as differences: ``H = log Z - <marginals, potentials>``.

From the scaled recursion in float64. If H is small relative to these terms, digits
cancel: such a row is left to ``forward_backward_float64.entropy``, a sum of
nonnegative terms.
"""

import numpy as np

from smoothsp._kernels.chain.cpu.forward_backward import forward_backward_in_range
from smoothsp._kernels.chain.cpu.records import (
    Addresses,
    Marginals,
    chain_from_addresses,
)
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays, double_double
from smoothsp._kernels.vectors.arrays import carray
from smoothsp._kernels.vectors.kahan import BLOCK
from smoothsp._kernels.vectors.simd import maximum, select_lt, span, splat
from smoothsp._kernels.vectors.simd_masked import load_masked, reduce_sum


@kernel
def entropy(addresses, in_lanes, over_states, min_relative_entropy, value):
    """Fill value[B] with the entropy of each row, in nats, in float64.

    NaN for rows that are out of range, or whose entropy is below ``least`` times the
    sum of the absolute terms. Returns how many those are.
    """
    addresses = Addresses(*addresses)
    B, T, S, zeros = addresses.B, addresses.T, addresses.S, addresses.zeros
    chain = chain_from_addresses(addresses, True)
    log_z = arrays.empty((B, 2))
    nodes, edges, start_marginals, end_marginals = Marginals(
        arrays.empty((B, T, S), zeros.dtype),
        arrays.empty((B, 1, S, S), zeros.dtype),
        arrays.empty((B, S), zeros.dtype),
        arrays.empty((B, S), zeros.dtype),
    )
    marginals = nodes, edges, start_marginals, end_marginals
    pending = forward_backward_in_range(
        chain, zeros, log_z, marginals, in_lanes, over_states
    )
    entropies, num_out_of_range = carray(value, (B,), np.float64), 0
    for b in range(B):
        # the length is added as each step's factor of Z is rounded, too
        z = log_z[b, 0], log_z[b, 1], abs(log_z[b, 0]) + chain.lengths[b]
        z = _subtract_expectation(
            z, chain.emissions, nodes, b * T * S, b * T * S, T * S, zeros
        )
        z = _subtract_expectation(
            z, chain.transitions, edges, 0, b * S * S, S * S, zeros
        )
        z = _subtract_expectation(z, chain.start, start_marginals, 0, b * S, S, zeros)
        hi, lo, abs_sum = _subtract_expectation(
            z, chain.end, end_marginals, 0, b * S, S, zeros
        )
        entropies[b] = hi + lo
        if pending[b] or not entropies[b] >= min_relative_entropy * abs_sum:
            entropies[b] = np.nan
            num_out_of_range += 1
    return num_out_of_range


@subroutine
def _subtract_expectation(
    z, scores, marginals, scores_offset, marginals_offset, count, zeros
):
    """Return z minus the sum of ``count`` products of marginals and scores.

    z is a double-double and the sum of the absolute terms so far. A part of probability
    0 contributes 0: its score may be -inf or NaN.
    """
    hi, lo, abs_sum = z
    V, zero = len(zeros), splat(zeros[0])
    p, x = span(marginals), span(scores)
    for first in range(0, count, BLOCK * V):
        terms = abs_terms = zero
        for e in range(first, min(first + BLOCK * V, count), V):
            probability = load_masked(p, marginals_offset + e, count - e, zero)
            term = probability * load_masked(x, scores_offset + e, count - e, zero)
            term = select_lt(zero, probability, term, zero)
            terms = terms + term
            abs_terms = abs_terms + maximum(term, zero - term)
        hi, lo = double_double.add(hi, lo, -reduce_sum(terms))
        abs_sum += reduce_sum(abs_terms)
    return hi, lo, abs_sum
