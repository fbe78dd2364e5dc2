"""Scores and feature updates of sequences whose parts may share weights.

A part is a number ``r P + j`` in the rows of ``sparse_scores``: label j of feature r,
then of the rows of A, start and end. Without ``tied_index`` it is also the index of its
weight. Otherwise ``tied_index`` has the weight of each part, and several parts may have
the same. ``weights`` then has no other rows; A, start and end are gathered into rows at
``transition_offset``, ``start_offset`` and ``end_offset``.
"""

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.linear.sparse_scores import (
    V,
    add_position_features,
    add_position_features_for_label,
    score_positions,
)
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import fma, load, splat, store


@subroutine(optimise=False)
def has_tied_weights(sequences):
    """Whether parts share weights."""
    return len(sequences.tied_index) > 0


@subroutine(optimise=False)
def fill_position_scores(sequences, first, last, weights, E):
    """Fill ``E[(t - first) P + j]`` for the positions ``first`` to ``last``."""
    if not has_tied_weights(sequences):
        score_positions(
            first,
            last,
            sequences.indptr,
            sequences.indices,
            sequences.values,
            weights,
            sequences.P,
            E,
        )
        return
    for t in range(first, last):
        o = (t - first) * sequences.P
        for j in range(sequences.P):
            E[o + j] = 0.0
        for e in range(sequences.indptr[t], sequences.indptr[t + 1]):
            f, x = sequences.indices[e] * sequences.P, np.float64(sequences.values[e])
            for j in range(sequences.S):
                # gathers: tied weights are not contiguous in j
                E[o + j] += x * weights[sequences.tied_index[f + j]]


@subroutine(optimise=False)
def add_word_features(sequences, t, a, D, o, weights):
    """Add ``a x(t, f) D(j)`` to the weight of each f and j, with the row D at ``o``."""
    if not has_tied_weights(sequences):
        add_position_features(
            t,
            sequences.indptr,
            sequences.indices,
            sequences.values,
            a,
            D,
            o,
            sequences.P,
            weights,
        )
        return
    for e in range(sequences.indptr[t], sequences.indptr[t + 1]):
        f, x = sequences.indices[e] * sequences.P, a * np.float64(sequences.values[e])
        for j in range(sequences.S):
            # scalar: two parts of a vector may share a weight
            weights[sequences.tied_index[f + j]] += x * D[o + j]


@subroutine(optimise=False)
def add_word_features_for_label(sequences, t, a, j, weights):
    """Add ``a x(t, f)`` to the weight of each f and one label j."""
    if not has_tied_weights(sequences):
        add_position_features_for_label(
            t,
            sequences.indptr,
            sequences.indices,
            sequences.values,
            a,
            j,
            sequences.P,
            weights,
        )
        return
    for e in range(sequences.indptr[t], sequences.indptr[t + 1]):
        weights[sequences.tied_index[sequences.indices[e] * sequences.P + j]] += (
            a * sequences.values[e]
        )


@subroutine(optimise=False)
def make_transition_buffer(sequences):
    """Allocate rows for A, start and end, if they have to be gathered."""
    num_rows = sequences.S if sequences.transition_offset >= 0 else 0
    num_rows += 2 if sequences.start_offset >= 0 else 0
    return arrays.zeros(num_rows * sequences.P if has_tied_weights(sequences) else 0)


@subroutine(optimise=False)
def _num_feature_weights(sequences):
    """Number of parts of features, which precede those of A, start and end."""
    num_rows = sequences.S if sequences.transition_offset >= 0 else 0
    num_rows += 2 if sequences.start_offset >= 0 else 0
    return len(sequences.tied_index) - num_rows * sequences.P


@subroutine(optimise=False)
def gather_transition_weights(sequences, scale, weights, transition_weights, buffer):
    """Return A, start and end: the array itself, or the gathered, scaled rows.

    Without tied weights, ``scale`` is not applied: these weights have none.
    """
    if not has_tied_weights(sequences):
        return transition_weights
    first = _num_feature_weights(sequences)
    for row in range(0, len(buffer), sequences.P):
        for j in range(sequences.S):
            buffer[row + j] = scale * weights[sequences.tied_index[first + row + j]]
    return buffer


@subroutine(optimise=False)
def add_to_transition_rows(
    sequences, num_rows, offset, a, values, values_offset, weights
):
    """Add ``a`` times ``num_rows`` rows of ``values`` to A, start or end.

    Rows begin at ``values_offset``, those of the weights at ``offset``.
    """
    if has_tied_weights(sequences):
        first = _num_feature_weights(sequences) + offset
        for row in range(0, num_rows * sequences.P, sequences.P):
            for j in range(sequences.S):
                weights[sequences.tied_index[first + row + j]] += (
                    a * values[values_offset + row + j]
                )
        return
    step = splat(a)
    for q in range(0, num_rows * sequences.P, V):
        target = offset + q
        store(
            weights,
            target,
            fma(step, load(values, values_offset + q), load(weights, target)),
        )


@subroutine(optimise=False)
def add_to_transition_entry(sequences, offset, a, weights):
    """Add ``a`` to one weight of A, start or end."""
    if has_tied_weights(sequences):
        weights[sequences.tied_index[_num_feature_weights(sequences) + offset]] += a
    else:
        weights[offset] += a


@subroutine(optimise=False)
def squared_norm_then_clear(sequences, first, active, count, sums):
    """Squared norm of ``sums`` at the weights of active words, A, start and end.

    Each sum is set to 0 when it is counted, so that a shared weight counts once.
    """
    total = 0.0
    for m in range(count):
        t = first + active[m]
        for e in range(sequences.indptr[t], sequences.indptr[t + 1]):
            f = sequences.indices[e] * sequences.P
            for j in range(sequences.S):
                weight_index = sequences.tied_index[f + j]
                total += sums[weight_index] * sums[weight_index]
                sums[weight_index] = 0.0
    for o in range(
        _num_feature_weights(sequences), len(sequences.tied_index), sequences.P
    ):
        for j in range(sequences.S):
            weight_index = sequences.tied_index[o + j]
            total += sums[weight_index] * sums[weight_index]
            sums[weight_index] = 0.0
    return total
