"""Entropies of chains as differences: ``H = log Z - <marginals, potentials>``.

From the scaled recursion in float64. Where the difference is small beside its terms
their digits cancel: such a row is left to ``forward_backward_float64.entropy``, which
has no difference.
"""

import numpy as np

from smoothsp._kernels.chain.cpu.forward_backward import sums_in_range
from smoothsp._kernels.chain.cpu.records import Addresses, Marginals, chain_at
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays, double_double
from smoothsp._kernels.vectors.arrays import carray
from smoothsp._kernels.vectors.kahan import BLOCK
from smoothsp._kernels.vectors.simd import maximum, select_lt, span, splat
from smoothsp._kernels.vectors.simd_masked import load_masked, reduce_sum


@kernel
def entropy(where, in_lanes, over_states, least, value):
    """Fill value[B] with the entropy of each row, in nats, in float64.

    NaN for rows that are out of range, or whose entropy is below ``least`` times the
    sum of the absolute terms. Returns how many those are.
    """
    where = Addresses(*where)
    B, T, S, zeros = where.B, where.T, where.S, where.zeros
    chain = chain_at(where, True)
    log_z = arrays.empty((B, 2))
    nodes, edges, heads, tails = Marginals(
        arrays.empty((B, T, S), zeros.dtype),
        arrays.empty((B, 1, S, S), zeros.dtype),
        arrays.empty((B, S), zeros.dtype),
        arrays.empty((B, S), zeros.dtype),
    )
    marginals = nodes, edges, heads, tails
    pending = sums_in_range(chain, zeros, log_z, marginals, in_lanes, over_states)
    found, far = carray(value, (B,), np.float64), 0
    for b in range(B):
        # each step's factor of Z is rounded, too
        z = log_z[b, 0], log_z[b, 1], abs(log_z[b, 0]) + chain.lengths[b]
        z = _less(z, chain.emissions, nodes, b * T * S, b * T * S, T * S, zeros)
        z = _less(z, chain.transitions, edges, 0, b * S * S, S * S, zeros)
        z = _less(z, chain.start, heads, 0, b * S, S, zeros)
        total, rest, size = _less(z, chain.end, tails, 0, b * S, S, zeros)
        found[b] = total + rest
        if pending[b] or not found[b] >= least * size:
            found[b] = np.nan
            far += 1
    return far


@subroutine
def _less(z, scores, marginals, at_scores, at_marginals, count, zeros):
    """Take ``<marginals, scores>`` of ``count`` numbers from z.

    z is a sum of two numbers, and a bound of all that went into it. The score of a part
    without probability may be -inf or NaN.
    """
    total, rest, size = z
    V, zero = len(zeros), splat(zeros[0])
    p, x = span(marginals), span(scores)
    for first in range(0, count, BLOCK * V):
        some = sizes = zero
        for e in range(first, min(first + BLOCK * V, count), V):
            probability = load_masked(p, at_marginals + e, count - e, zero)
            term = probability * load_masked(x, at_scores + e, count - e, zero)
            term = select_lt(zero, probability, term, zero)
            some = some + term
            sizes = sizes + maximum(term, zero - term)
        total, rest = double_double.add(total, rest, -reduce_sum(some))
        size += reduce_sum(sizes)
    return total, rest, size
