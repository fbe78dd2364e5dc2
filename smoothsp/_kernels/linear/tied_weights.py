"""Scores of the parts of sequences, and parts added to the weights, by address.

A part is a number ``r P + j`` in rows as ``linear.sparse_scores`` has them: label j of
feature r, then of the rows of A, start and end. Without a ``s.table`` this is also the
place of its weight. With one, ``s.table`` has the place of each part, several may share
it, ``weights`` has no other rows, and A, start and end are collected into rows of their
own, where ``s.moves``, ``s.start`` and ``s.end`` point.
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
                E[o + j] += x * weights[sequences.tied_index[f + j]]


@subroutine(optimise=False)
def add_word_features(sequences, t, a, D, o, weights):
    """Add ``a x(t, f) D(j)`` to the weight of each f and j, with the row D at o."""
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
    """Room for the rows of A, start and end, where they have to be collected."""
    num_rows = sequences.S if sequences.transition_offset >= 0 else 0
    num_rows += 2 if sequences.start_offset >= 0 else 0
    return arrays.zeros(num_rows * sequences.P if has_tied_weights(sequences) else 0)


@subroutine(optimise=False)
def _num_feature_weights(sequences):
    """Parts of features: those of A, start and end come after."""
    num_rows = sequences.S if sequences.transition_offset >= 0 else 0
    num_rows += 2 if sequences.start_offset >= 0 else 0
    return len(sequences.tied_index) - num_rows * sequences.P


@subroutine(optimise=False)
def gather_transition_weights(sequences, scale, weights, transition_weights, buffer):
    """A, start and end: ``tail``, or room, filled with ``scale`` times the weights."""
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
    """Add a times ``rows`` rows of x at o to A, start or end, from ``part`` on."""
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
    """Add a to one weight of A, start or end."""
    if has_tied_weights(sequences):
        weights[sequences.tied_index[_num_feature_weights(sequences) + offset]] += a
    else:
        weights[offset] += a


@subroutine(optimise=False)
def squared_norm_then_clear(sequences, first, active, count, sums):
    """Of ``sums`` at the places of the words ``moved`` and of A, start and end.

    They are 0 afterwards, so that each counts once.
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
