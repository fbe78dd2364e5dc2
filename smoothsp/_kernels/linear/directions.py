r"""Directions of one example in the dual, the best step along one, and the step itself.

The dual variable of sequence i is kept as the marginals of its parts: ``mu(t, j)``, how
much weight label j has at position t, ``edges(j, k)``, how much the pair j, k has over
all steps, and ``ell``, the expected cost times ``s_i``, which is the weight of the
sequence over n. Its part of the weights is

    w_i = (s_i / lambda) (phi(gold) - sum over parts of marginal times features).

A direction takes D from mu and DE from edges, and so adds ``s_i X'D / lambda`` to W.
A step consists, in this order, of

    D, DE          towards, between, turn_round    which direction
    slope(D)       sum_t <D_t, E_t> + <DE, A>      the linear term of the dual
    length(D)      ||X'D||^2 + ||DE||^2            the quadratic term
    mu -= gamma D, w += gamma s_i X'D / lambda     take_marginals, add_direction

with the first and the last label beside the pairs. Words on which mu and the corner
agree do not move. So D has room for all words, but only the rows listed in ``moved``
are written and read.
"""

from typing import NamedTuple

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.linear.sparse_scores import V
from smoothsp._kernels.linear.squared_norm import squared_length
from smoothsp._kernels.linear.tied_weights import (
    add_to_rest,
    add_word,
    sharing,
    sum_of_squares,
)
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import fma, load, maximum, minimum, splat, store
from smoothsp._kernels.vectors.simd_masked import reduce_sum


class Duals(NamedTuple):
    """The dual variables of all sequences, and estimates of their gaps.

    ``mu`` has P numbers a position, ``edges`` S rows of P a sequence, or nothing.
    """

    mu: np.ndarray
    edges: np.ndarray
    ell: np.ndarray
    gap_estimates: np.ndarray


class Primal(NamedTuple):
    """Weights w, before the box v, the box, and what the average lacks from v.

    Without a box v is w. ``lag`` is ``sum_k k (k - 1) / 2`` times step k, so that the
    average of weight k for iterate k is ``v - 2 lag / (k (k + 1))``.
    """

    w: np.ndarray
    v: np.ndarray
    low: np.ndarray
    high: np.ndarray
    lag: np.ndarray
    boxed: bool
    averaged: bool


class Direction(NamedTuple):
    """What is taken from the marginals; only rows ``moved`` of D count, ascending.

    The others stand for 0 and hold numbers of earlier directions.
    """

    D: np.ndarray
    DE: np.ndarray
    moved: np.ndarray


@subroutine(optimise=False)
def no_direction(s):
    """Room for one."""
    size = s.max_length * s.P
    pairs = s.S * s.P if s.transition_offset >= 0 else 0
    room = arrays.zeros(size + pairs + 8)
    past = -(room.ctypes.data // 8) % 8
    return Direction(
        room[past : past + size],
        room[past + size : past + size + pairs],
        arrays.zeros(s.max_length, np.int64),
    )


@subroutine(optimise=False)
def towards(s, i, d, y, o, r):
    """``D = mu - e_y``: to the corner of the labels ``y[o:]``. Returns rows moved.

    A word whose marginal of its label is 1 does not move.
    """
    first, P = s.offsets[i], s.P
    T = s.offsets[i + 1] - first
    count = 0
    for t in range(T):
        m = (first + t) * P
        if d.mu[m + y[o + t]] == 1.0:
            continue
        for j in range(0, P, V):
            store(r.D, t * P + j, load(d.mu, m + j))
        r.D[t * P + y[o + t]] -= 1.0
        r.moved[count] = t
        count += 1
    if s.transition_offset >= 0 and count:
        e = i * s.S * P
        for q in range(0, s.S * P, V):
            store(r.DE, q, load(d.edges, e + q))
        for t in range(1, T):
            r.DE[y[o + t - 1] * P + y[o + t]] -= 1.0
    return count


@subroutine(optimise=False)
def between(s, i, labels, a, o, r):
    """``D = e_a - e_y``: from the labels ``labels[a:]`` to ``labels[o:]``."""
    P = s.P
    T = s.offsets[i + 1] - s.offsets[i]
    count = 0
    for t in range(T):
        if labels[a + t] == labels[o + t]:
            continue
        for j in range(0, P, V):
            store(r.D, t * P + j, splat(0.0))
        r.D[t * P + labels[a + t]] = 1.0
        r.D[t * P + labels[o + t]] = -1.0
        r.moved[count] = t
        count += 1
    if s.transition_offset >= 0 and count:
        for q in range(0, s.S * P, V):
            store(r.DE, q, splat(0.0))
        for t in range(1, T):
            r.DE[labels[a + t - 1] * P + labels[a + t]] += 1.0
            r.DE[labels[o + t - 1] * P + labels[o + t]] -= 1.0
    return count


@subroutine(optimise=False)
def turn_round(s, count, r):
    """``D = -D``: away from the corner."""
    minus = splat(-1.0)
    for m in range(count):
        for q in range(r.moved[m] * s.P, (r.moved[m] + 1) * s.P, V):
            store(r.D, q, minus * load(r.D, q))
    if s.transition_offset >= 0 and count:
        for q in range(0, s.S * s.P, V):
            store(r.DE, q, minus * load(r.DE, q))


@subroutine(forceinline=True)
def _dot(x, o, y, p, size):
    """The lanes of an inner product, in four sums that do not depend on each other."""
    a = b = c = d = splat(0.0)
    j = 0
    while j + 4 * V <= size:
        a = fma(load(x, o + j), load(y, p + j), a)
        b = fma(load(x, o + j + V), load(y, p + j + V), b)
        c = fma(load(x, o + j + 2 * V), load(y, p + j + 2 * V), c)
        d = fma(load(x, o + j + 3 * V), load(y, p + j + 3 * V), d)
        j += 4 * V
    while j < size:
        a = fma(load(x, o + j), load(y, p + j), a)
        j += V
    return (a + b) + (c + d)


@subroutine(optimise=False)
def slope(s, i, tail, E, r, count):
    """``sum_t <D_t, E_t> + <DE, A>`` and the ends: ``lambda <w_d, w> / s_i``.

    ``tail`` is where A, start and end are.
    """
    if count == 0:
        return 0.0
    total = splat(0.0)
    for m in range(count):
        q = r.moved[m] * s.P
        total = total + _dot(r.D, q, E, q, s.P)
    if s.transition_offset >= 0:
        total = total + _dot(r.DE, 0, tail, s.transition_offset, s.S * s.P)
    if s.start_offset >= 0:
        last = s.offsets[i + 1] - s.offsets[i] - 1
        if r.moved[0] == 0:
            for j in range(0, s.P, V):
                total = fma(load(r.D, j), load(tail, s.start_offset + j), total)
        if r.moved[count - 1] == last:
            for j in range(0, s.P, V):
                total = fma(
                    load(r.D, last * s.P + j), load(tail, s.end_offset + j), total
                )
    return reduce_sum(total)


@subroutine(optimise=False)
def length(s, i, x, r, count):
    """``||X'D||^2 + ||DE||^2`` and the ends: ``(lambda ||w_d|| / s_i)^2``."""
    if count == 0:
        return 0.0
    if sharing(s):
        # what meets in one weight is added before it is squared
        add_direction(s, i, r, count, 1.0, x.rows)
        return sum_of_squares(s, s.offsets[i], r.moved, count, x.rows)
    total = splat(0.0)
    if s.transition_offset >= 0:
        total = _dot(r.DE, 0, r.DE, 0, s.S * s.P)
    if s.start_offset >= 0:
        last = s.offsets[i + 1] - s.offsets[i] - 1
        if r.moved[0] == 0:
            for q in range(0, s.P, V):
                total = fma(load(r.D, q), load(r.D, q), total)
        if r.moved[count - 1] == last:
            for q in range(last * s.P, (last + 1) * s.P, V):
                total = fma(load(r.D, q), load(r.D, q), total)
    return reduce_sum(total) + squared_length(s, i, x, r.D, r.moved, count)


@subroutine(optimise=False)
def step_size(num, den, largest):
    """``num / den`` within 0 and ``largest``."""
    if den <= 0.0:
        return largest if num > 0.0 else 0.0
    return min(max(num / den, 0.0), largest)


@subroutine(optimise=False)
def take_marginals(s, i, d, r, count, gamma):
    """``mu -= gamma D``, ``edges -= gamma DE``."""
    step = splat(-gamma)
    first = s.offsets[i]
    for m in range(count):
        t = r.moved[m]
        for j in range(0, s.P, V):
            q = (first + t) * s.P + j
            store(d.mu, q, fma(step, load(r.D, t * s.P + j), load(d.mu, q)))
    if s.transition_offset >= 0:
        e = i * s.S * s.P
        for q in range(0, s.S * s.P, V):
            store(d.edges, e + q, fma(step, load(r.DE, q), load(d.edges, e + q)))


@subroutine(optimise=False)
def add_direction(s, i, r, count, a, weights):
    """``weights += a`` times the features of D and DE."""
    first = s.offsets[i]
    for m in range(count):
        t = r.moved[m]
        add_word(s, first + t, a, r.D, t * s.P, weights)
    if s.transition_offset >= 0:
        add_to_rest(s, s.S, s.transition_offset, a, r.DE, 0, weights)
    if s.start_offset >= 0:
        last = s.offsets[i + 1] - first - 1
        if r.moved[0] == 0:
            add_to_rest(s, 1, s.start_offset, a, r.D, 0, weights)
        if r.moved[count - 1] == last:
            add_to_rest(s, 1, s.end_offset, a, r.D, last * s.P, weights)


@subroutine(optimise=False)
def back_into_box(s, i, r, count, p):
    """``w = clip(v, low, high)`` in the rows that the direction changed."""
    if sharing(s):
        for o in range(0, len(p.w), V):
            _clip_row(p, o, V)
        return
    first = s.offsets[i]
    for m in range(count):
        t = first + r.moved[m]
        for e in range(s.indptr[t], s.indptr[t + 1]):
            _clip_row(p, s.indices[e] * s.P, s.P)
    if s.transition_offset >= 0:
        for o in range(s.transition_offset, s.transition_offset + s.S * s.P, s.P):
            _clip_row(p, o, s.P)
    if s.start_offset >= 0:
        _clip_row(p, s.start_offset, s.P)
        _clip_row(p, s.end_offset, s.P)


@subroutine(optimise=False)
def _clip_row(p, o, P):
    for q in range(o, o + P, V):
        v = maximum(load(p.v, q), load(p.low, q))
        store(p.w, q, minimum(v, load(p.high, q)))
