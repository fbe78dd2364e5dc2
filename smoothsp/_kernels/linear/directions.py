"""Directions of one block of the dual: line search terms, and the step.

The dual variable of sequence i is stored as the marginals of its parts: ``mu(t, j)`` of
label j at position t, ``edges(j, k)`` of the pair j, k, summed over steps, and ``ell``,
the expected cost times ``s_i``, the weight of the sequence divided by n. Its part of
the weights is

    w_i = (s_i / lambda) (phi(gold) - sum over parts of marginal times features)

A direction subtracts D from mu and DE from edges, and so adds ``s_i X'D / lambda`` to
W. A step consists, in this order, of

    D, DE             frank_wolfe_direction, pairwise_direction, negate_direction
    linear_term       sum_t <D_t, E_t> + <DE, A>
    quadratic_term    ||X'D||^2 + ||DE||^2
    step              mu -= gamma D,  w += gamma s_i X'D / lambda

with the first and the last label besides the pairs. Rows of D are 0 for words on which
mu and the corner agree. Therefore only rows listed in ``active`` are written and read.
"""

from typing import NamedTuple

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.linear.sparse_scores import V
from smoothsp._kernels.linear.squared_norm import squared_norm_of_features
from smoothsp._kernels.linear.tied_weights import (
    add_to_transition_rows,
    add_word_features,
    has_tied_weights,
    squared_norm_then_clear,
)
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import fma, load, maximum, minimum, splat, store
from smoothsp._kernels.vectors.simd_masked import reduce_sum


class Duals(NamedTuple):
    """The dual variables of all sequences, and estimates of their gaps.

    ``mu`` has P numbers per position, ``edges`` S rows of P per sequence, or none.
    """

    mu: np.ndarray
    edges: np.ndarray
    ell: np.ndarray
    gap_estimates: np.ndarray


class Primal(NamedTuple):
    """Weights w, v before clipping to the box, the box, and the lag of the average.

    Without a box v is w. ``lag`` is ``sum_k k (k - 1) / 2`` times step k, so that the
    average over k iterates, iterate j with weight j, is ``v - 2 lag / (k (k + 1))``.
    """

    w: np.ndarray
    v: np.ndarray
    low: np.ndarray
    high: np.ndarray
    lag: np.ndarray
    boxed: bool
    averaged: bool


class Direction(NamedTuple):
    """Change of the marginals; only rows ``active`` of D count, in ascending order.

    Other rows stand for 0 and hold numbers of earlier directions.
    """

    D: np.ndarray
    DE: np.ndarray
    active: np.ndarray


@subroutine(optimise=False)
def make_direction(sequences):
    """Allocate a direction for the longest sequence."""
    size = sequences.max_length * sequences.P
    edges_size = sequences.S * sequences.P if sequences.transition_offset >= 0 else 0
    buffer = arrays.zeros(size + edges_size + 8)
    # aligned to a cache line, so that no vector crosses two
    padding = -(buffer.ctypes.data // 8) % 8
    return Direction(
        buffer[padding : padding + size],
        buffer[padding + size : padding + size + edges_size],
        arrays.zeros(sequences.max_length, np.int64),
    )


@subroutine(optimise=False)
def frank_wolfe_direction(sequences, i, duals, y, labels_offset, direction):
    """Fill ``D = mu - e_y`` for the labels ``y[labels_offset:]``; return active rows.

    A word whose marginal of its label is 1 is not active.
    """
    first, P = sequences.offsets[i], sequences.P
    T = sequences.offsets[i + 1] - first
    num_active = 0
    for t in range(T):
        m = (first + t) * P
        # exact comparison: corners are rounded to 0 and 1 after whole steps
        if duals.mu[m + y[labels_offset + t]] == 1.0:
            continue
        for j in range(0, P, V):
            # a whole row: padding stays 0, since mu's is
            store(direction.D, t * P + j, load(duals.mu, m + j))
        direction.D[t * P + y[labels_offset + t]] -= 1.0
        direction.active[num_active] = t
        num_active += 1
    # a pair moves only if one of its words does
    if sequences.transition_offset >= 0 and num_active:
        e = i * sequences.S * P
        for q in range(0, sequences.S * P, V):
            store(direction.DE, q, load(duals.edges, e + q))
        for t in range(1, T):
            direction.DE[y[labels_offset + t - 1] * P + y[labels_offset + t]] -= 1.0
    return num_active


@subroutine(optimise=False)
def pairwise_direction(sequences, i, labels, away_offset, labels_offset, direction):
    """Fill ``D = e_a - e_y`` for the labels at two offsets; return active rows.

    a are ``labels[away_offset:]``, y are ``labels[labels_offset:]``.
    """
    P = sequences.P
    T = sequences.offsets[i + 1] - sequences.offsets[i]
    num_active = 0
    for t in range(T):
        if labels[away_offset + t] == labels[labels_offset + t]:
            continue
        for j in range(0, P, V):
            store(direction.D, t * P + j, splat(0.0))
        direction.D[t * P + labels[away_offset + t]] = 1.0
        direction.D[t * P + labels[labels_offset + t]] = -1.0
        direction.active[num_active] = t
        num_active += 1
    if sequences.transition_offset >= 0 and num_active:
        for q in range(0, sequences.S * P, V):
            store(direction.DE, q, splat(0.0))
        for t in range(1, T):
            direction.DE[labels[away_offset + t - 1] * P + labels[away_offset + t]] += (
                1.0
            )
            direction.DE[
                labels[labels_offset + t - 1] * P + labels[labels_offset + t]
            ] -= 1.0
    return num_active


@subroutine(optimise=False)
def negate_direction(sequences, num_active, direction):
    """``D = -D``: away from the corner."""
    minus = splat(-1.0)
    for m in range(num_active):
        for q in range(
            direction.active[m] * sequences.P,
            (direction.active[m] + 1) * sequences.P,
            V,
        ):
            store(direction.D, q, minus * load(direction.D, q))
    if sequences.transition_offset >= 0 and num_active:
        for q in range(0, sequences.S * sequences.P, V):
            store(direction.DE, q, minus * load(direction.DE, q))


@subroutine(forceinline=True)
def _inner_product_lanes(x, o, y, p, size):
    """Lanes of an inner product, as four independent sums."""
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
def linear_term(sequences, i, transition_weights, E, direction, num_active):
    """``sum_t <D_t, E_t> + <DE, A>`` plus ends: ``lambda <w_d, w> / s_i``.

    ``transition_weights`` holds A, start and end.
    """
    if num_active == 0:
        return 0.0
    total = splat(0.0)
    for m in range(num_active):
        q = direction.active[m] * sequences.P
        # lanes are added up once, at the end
        total = total + _inner_product_lanes(direction.D, q, E, q, sequences.P)
    if sequences.transition_offset >= 0:
        total = total + _inner_product_lanes(
            direction.DE,
            0,
            transition_weights,
            sequences.transition_offset,
            sequences.S * sequences.P,
        )
    if sequences.start_offset >= 0:
        last = sequences.offsets[i + 1] - sequences.offsets[i] - 1
        # start weights belong to the first word, end weights to the last one
        if direction.active[0] == 0:
            for j in range(0, sequences.P, V):
                total = fma(
                    load(direction.D, j),
                    load(transition_weights, sequences.start_offset + j),
                    total,
                )
        if direction.active[num_active - 1] == last:
            for j in range(0, sequences.P, V):
                total = fma(
                    load(direction.D, last * sequences.P + j),
                    load(transition_weights, sequences.end_offset + j),
                    total,
                )
    return reduce_sum(total)


@subroutine(optimise=False)
def quadratic_term(sequences, i, gram_cache, direction, num_active):
    """``||X'D||^2 + ||DE||^2`` plus ends: ``(lambda ||w_d|| / s_i)^2``."""
    if num_active == 0:
        return 0.0
    if has_tied_weights(sequences):
        # tied parts are added in their common weight before it is squared
        add_direction_features(
            sequences, i, direction, num_active, 1.0, gram_cache.rows
        )
        return squared_norm_then_clear(
            sequences,
            sequences.offsets[i],
            direction.active,
            num_active,
            gram_cache.rows,
        )
    total = splat(0.0)
    if sequences.transition_offset >= 0:
        total = _inner_product_lanes(
            direction.DE, 0, direction.DE, 0, sequences.S * sequences.P
        )
    if sequences.start_offset >= 0:
        last = sequences.offsets[i + 1] - sequences.offsets[i] - 1
        if direction.active[0] == 0:
            for q in range(0, sequences.P, V):
                total = fma(load(direction.D, q), load(direction.D, q), total)
        if direction.active[num_active - 1] == last:
            for q in range(last * sequences.P, (last + 1) * sequences.P, V):
                total = fma(load(direction.D, q), load(direction.D, q), total)
    return reduce_sum(total) + squared_norm_of_features(
        sequences, i, gram_cache, direction.D, direction.active, num_active
    )


@subroutine(optimise=False)
def clipped_step_size(linear, quadratic, max_step):
    """``linear / quadratic``, clipped to [0, max_step]."""
    if quadratic <= 0.0:
        # the objective is linear along the direction
        return max_step if linear > 0.0 else 0.0
    return min(max(linear / quadratic, 0.0), max_step)


@subroutine(optimise=False)
def subtract_from_marginals(sequences, i, duals, direction, num_active, gamma):
    """``mu -= gamma D``, ``edges -= gamma DE``."""
    step = splat(-gamma)
    first = sequences.offsets[i]
    for m in range(num_active):
        t = direction.active[m]
        for j in range(0, sequences.P, V):
            q = (first + t) * sequences.P + j
            store(
                duals.mu,
                q,
                fma(step, load(direction.D, t * sequences.P + j), load(duals.mu, q)),
            )
    if sequences.transition_offset >= 0:
        e = i * sequences.S * sequences.P
        for q in range(0, sequences.S * sequences.P, V):
            store(
                duals.edges,
                e + q,
                fma(step, load(direction.DE, q), load(duals.edges, e + q)),
            )


@subroutine(optimise=False)
def add_direction_features(sequences, i, direction, num_active, a, weights):
    """``weights += a`` times the features of D and DE."""
    first = sequences.offsets[i]
    for m in range(num_active):
        t = direction.active[m]
        add_word_features(
            sequences, first + t, a, direction.D, t * sequences.P, weights
        )
    if sequences.transition_offset >= 0:
        add_to_transition_rows(
            sequences,
            sequences.S,
            sequences.transition_offset,
            a,
            direction.DE,
            0,
            weights,
        )
    if sequences.start_offset >= 0:
        last = sequences.offsets[i + 1] - first - 1
        if direction.active[0] == 0:
            add_to_transition_rows(
                sequences, 1, sequences.start_offset, a, direction.D, 0, weights
            )
        if direction.active[num_active - 1] == last:
            add_to_transition_rows(
                sequences,
                1,
                sequences.end_offset,
                a,
                direction.D,
                last * sequences.P,
                weights,
            )


@subroutine(optimise=False)
def clip_to_box(sequences, i, direction, num_active, primal):
    """``w = clip(v, low, high)`` in the rows that the direction changed."""
    if has_tied_weights(sequences):
        # tied weights have no rows: all weights are clipped
        for o in range(0, len(primal.w), V):
            _clip_row(primal, o, V)
        return
    first = sequences.offsets[i]
    for m in range(num_active):
        t = first + direction.active[m]
        # a feature of two words is clipped twice, which changes nothing
        for e in range(sequences.indptr[t], sequences.indptr[t + 1]):
            _clip_row(primal, sequences.indices[e] * sequences.P, sequences.P)
    if sequences.transition_offset >= 0:
        for o in range(
            sequences.transition_offset,
            sequences.transition_offset + sequences.S * sequences.P,
            sequences.P,
        ):
            _clip_row(primal, o, sequences.P)
    if sequences.start_offset >= 0:
        _clip_row(primal, sequences.start_offset, sequences.P)
        _clip_row(primal, sequences.end_offset, sequences.P)


@subroutine(optimise=False)
def _clip_row(primal, o, P):
    """``w = clip(v, low, high)`` in one row of P weights."""
    for q in range(o, o + P, V):
        v = maximum(load(primal.v, q), load(primal.low, q))
        store(primal.w, q, minimum(v, load(primal.high, q)))
