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
    add_one_label,
    add_position,
    score_positions,
)
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import fma, load, splat, store


@subroutine(optimise=False)
def sharing(s):
    """Whether parts share weights."""
    return len(s.tied_index) > 0


@subroutine(optimise=False)
def score_words(s, first, last, weights, E):
    """Fill ``E[(t - first) P + j]`` for the positions ``first`` to ``last``."""
    if not sharing(s):
        score_positions(first, last, s.indptr, s.indices, s.values, weights, s.P, E)
        return
    for t in range(first, last):
        o = (t - first) * s.P
        for j in range(s.P):
            E[o + j] = 0.0
        for e in range(s.indptr[t], s.indptr[t + 1]):
            f, x = s.indices[e] * s.P, np.float64(s.values[e])
            for j in range(s.S):
                E[o + j] += x * weights[s.tied_index[f + j]]


@subroutine(optimise=False)
def add_word(s, t, a, D, o, weights):
    """Add ``a x(t, f) D(j)`` to the weight of each f and j, with the row D at o."""
    if not sharing(s):
        add_position(t, s.indptr, s.indices, s.values, a, D, o, s.P, weights)
        return
    for e in range(s.indptr[t], s.indptr[t + 1]):
        f, x = s.indices[e] * s.P, a * np.float64(s.values[e])
        for j in range(s.S):
            weights[s.tied_index[f + j]] += x * D[o + j]


@subroutine(optimise=False)
def add_word_label(s, t, a, j, weights):
    """Add ``a x(t, f)`` to the weight of each f and one label j."""
    if not sharing(s):
        add_one_label(t, s.indptr, s.indices, s.values, a, j, s.P, weights)
        return
    for e in range(s.indptr[t], s.indptr[t + 1]):
        weights[s.tied_index[s.indices[e] * s.P + j]] += a * s.values[e]


@subroutine(optimise=False)
def room_of_rest(s):
    """Room for the rows of A, start and end, where they have to be collected."""
    rows = s.S if s.transition_offset >= 0 else 0
    rows += 2 if s.start_offset >= 0 else 0
    return arrays.zeros(rows * s.P if sharing(s) else 0)


@subroutine(optimise=False)
def _before(s):
    """Parts of features: those of A, start and end come after."""
    rows = s.S if s.transition_offset >= 0 else 0
    rows += 2 if s.start_offset >= 0 else 0
    return len(s.tied_index) - rows * s.P


@subroutine(optimise=False)
def rest(s, scale, weights, tail, room):
    """A, start and end: ``tail``, or room, filled with ``scale`` times the weights."""
    if not sharing(s):
        return tail
    first = _before(s)
    for o in range(0, len(room), s.P):
        for j in range(s.S):
            room[o + j] = scale * weights[s.tied_index[first + o + j]]
    return room


@subroutine(optimise=False)
def add_to_rest(s, rows, part, a, x, o, weights):
    """Add a times ``rows`` rows of x at o to A, start or end, from ``part`` on."""
    if sharing(s):
        first = _before(s) + part
        for r in range(0, rows * s.P, s.P):
            for j in range(s.S):
                weights[s.tied_index[first + r + j]] += a * x[o + r + j]
        return
    step = splat(a)
    for q in range(0, rows * s.P, V):
        p = part + q
        store(weights, p, fma(step, load(x, o + q), load(weights, p)))


@subroutine(optimise=False)
def add_one_to_rest(s, part, a, weights):
    """Add a to one weight of A, start or end."""
    if sharing(s):
        weights[s.tied_index[_before(s) + part]] += a
    else:
        weights[part] += a


@subroutine(optimise=False)
def sum_of_squares(s, first, moved, count, sums):
    """Of ``sums`` at the places of the words ``moved`` and of A, start and end.

    They are 0 afterwards, so that each counts once.
    """
    total = 0.0
    for m in range(count):
        t = first + moved[m]
        for e in range(s.indptr[t], s.indptr[t + 1]):
            f = s.indices[e] * s.P
            for j in range(s.S):
                place = s.tied_index[f + j]
                total += sums[place] * sums[place]
                sums[place] = 0.0
    for o in range(_before(s), len(s.tied_index), s.P):
        for j in range(s.S):
            place = s.tied_index[o + j]
            total += sums[place] * sums[place]
            sums[place] = 0.0
    return total
