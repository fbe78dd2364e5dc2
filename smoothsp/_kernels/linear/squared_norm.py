"""``||X'D||^2``, the squared length of what a change of one sequence does to W.

X has a row of features x_t for each word t, D a row of S numbers. A sequence is treated
in one of two ways:

    with G(t, u) = <x_t, x_u>, computed once and kept:
        sum_t <D_t, 2 sum_{u<t} G(t, u) D_u + G(t, t) D_t>
    without:
        r_f = sum_t x(t, f) D_t for each feature f,   then sum_f <r_f, r_f>

The first costs T^2 / 2 rows of D, the second a row for each entry of X: sequences with
few words for their entries have products. Only rows ``moved`` of D are visited. G is
symmetric, so only its lower triangle is kept, row after row.
"""

from typing import NamedTuple

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.linear.sparse_scores import V, entry
from smoothsp._kernels.vectors.simd import fma, get, load, splat, splat_at, store
from smoothsp._kernels.vectors.simd_masked import reduce_sum


class GramCache(NamedTuple):
    """Inner products of the words of each sequence, and places for features.

    Those of sequence i are ``gram[at[i] + t (t + 1) / 2 + u]`` for u up to t, and
    ``at[i]`` is -1 where a sequence has none. ``place`` is -1 for every feature and
    ``rows`` is room for those of one sequence. Where parts share weights, ``rows`` has
    a number for every weight instead, all 0 (see ``directions.length``).
    """

    gram: np.ndarray
    at: np.ndarray
    place: np.ndarray
    rows: np.ndarray


@kernel
def fill_gram(first, last, s, at, gram):
    """Fill ``gram`` with ``<x_t, x_u>``, u up to t, where sequences have products."""
    for i in range(first, last):
        if at[i] < 0:
            continue
        o = s.offsets[i]
        g = at[i]
        for t in range(o, s.offsets[i + 1]):
            for u in range(o, t + 1):
                gram[g] = _product(s, t, u)
                g += 1


@subroutine(optimise=False)
def _product(s, t, u):
    """``<x_t, x_u>``: indices of both rows ascend, so one pass merges them."""
    a, b = s.indptr[t], s.indptr[u]
    total = 0.0
    while a < s.indptr[t + 1] and b < s.indptr[u + 1]:
        f, g = s.indices[a], s.indices[b]
        if f == g:
            total += np.float64(s.values[a]) * np.float64(s.values[b])
        a += f <= g
        b += g <= f
    return total


@subroutine(optimise=False)
def squared_length(s, i, x, D, moved, count):
    """``||X'D||^2`` for sequence i, of whose rows D only ``moved[:count]`` count."""
    if x.at[i] >= 0:
        return _by_products(x.gram, x.at[i], D, moved, count, s.P)
    return _by_features(s, s.offsets[i], x.place, x.rows, D, moved, count)


@subroutine(optimise=False)
def _by_products(gram, at, D, moved, count, P):
    """Sum the first formula; the loop over labels is outside.

    So the inner sums over u stay in registers, four vectors of labels at a time.
    """
    zero, two = splat(0.0), splat(2.0)
    total = zero
    for m in range(count):
        t = moved[m]
        g = at + t * (t + 1) // 2
        j = 0
        while j + 4 * V <= P:
            a = b = c = d = zero
            for k in range(m):
                o = moved[k] * P + j
                x = splat_at(gram, g + moved[k])
                a = fma(x, load(D, o), a)
                b = fma(x, load(D, o + V), b)
                c = fma(x, load(D, o + 2 * V), c)
                d = fma(x, load(D, o + 3 * V), d)
            x, o = splat_at(gram, g + t), t * P + j
            p, q = load(D, o), load(D, o + V)
            r, u = load(D, o + 2 * V), load(D, o + 3 * V)
            p = p * fma(two, a, x * p)
            q = q * fma(two, b, x * q)
            r = r * fma(two, c, x * r)
            u = u * fma(two, d, x * u)
            total = total + ((p + q) + (r + u))
            j += 4 * V
        while j < P:
            a = zero
            for k in range(m):
                a = fma(splat_at(gram, g + moved[k]), load(D, moved[k] * P + j), a)
            p = load(D, t * P + j)
            total = fma(p, fma(two, a, splat_at(gram, g + t) * p), total)
            j += V
    return reduce_sum(total)


@subroutine(optimise=False)
def _by_features(s, first, place, rows, D, moved, count):
    """Sum the second formula; ``place[f]`` is the row of r_f, in order of appearance.

    The rows of one sequence are contiguous, and the first write to a row replaces it.
    So nothing is cleared but the places of its own features.
    """
    zero = splat(0.0)
    used = 0
    for m in range(count):
        t = first + moved[m]
        for e in range(s.indptr[t], s.indptr[t + 1]):
            f = s.indices[e]
            fresh = place[f] < 0
            if fresh:
                place[f] = used
                used += 1
            o, p = place[f] * s.P, moved[m] * s.P
            x = entry(s.values, e)
            for j in range(0, s.P, V):
                before = zero if fresh else load(rows, o + j)
                store(rows, o + j, fma(x, load(D, p + j), before))
    total = zero
    for o in range(0, used * s.P, V):
        total = fma(load(rows, o), load(rows, o), total)
    for m in range(count):
        t = first + moved[m]
        for e in range(s.indptr[t], s.indptr[t + 1]):
            place[get(s.indices, e)] = -1
    return reduce_sum(total)
