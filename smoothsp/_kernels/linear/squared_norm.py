"""``||X'D||^2``, the squared norm of the change of W by one sequence's direction.

X has a row of features x_t for each word t, D a row of S numbers. There are two
formulas:

    with the Gram matrix G(t, u) = <x_t, x_u>, computed once and stored:
        sum_t <D_t, 2 sum_{u<t} G(t, u) D_u + G(t, t) D_t>
    without:
        r_f = sum_t x(t, f) D_t for each feature f,   then sum_f <r_f, r_f>

The first costs T^2 / 2 rows of D, the second a row per entry of X. Sequences with few
words relative to their entries have a Gram matrix. Only the ``active`` rows of D are
visited. G is symmetric: its lower triangle is stored, row after row.
"""

from typing import NamedTuple

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.linear.sparse_scores import V, splat_entry
from smoothsp._kernels.vectors.simd import fma, get_number, load, splat, splat_at, store
from smoothsp._kernels.vectors.simd_masked import reduce_sum


class GramCache(NamedTuple):
    """Gram matrices of the words of sequences, and scratch of features.

    G(t, u) of sequence i is ``gram[gram_offsets[i] + t (t + 1) / 2 + u]`` for u up to
    t; ``gram_offsets[i]`` is -1 if it has none. ``feature_slot`` is -1 for each
    feature, and ``rows`` is scratch for those of one sequence. If parts share weights,
    ``rows`` has a zero for each weight instead (see ``directions.quadratic_term``).
    """

    gram: np.ndarray
    gram_offsets: np.ndarray
    feature_slot: np.ndarray
    rows: np.ndarray


@kernel
def fill_gram(first, last, sequences, gram_offsets, gram):
    """Fill ``gram`` with ``<x_t, x_u>``, u up to t, for sequences with an offset."""
    for i in range(first, last):
        if gram_offsets[i] < 0:
            continue
        o = sequences.offsets[i]
        g = gram_offsets[i]
        for t in range(o, sequences.offsets[i + 1]):
            for u in range(o, t + 1):
                gram[g] = _word_inner_product(sequences, t, u)
                g += 1


@subroutine(optimise=False)
def _word_inner_product(sequences, t, u):
    """``<x_t, x_u>``: indices of both rows ascend, so that one pass merges them."""
    a, b = sequences.indptr[t], sequences.indptr[u]
    total = 0.0
    while a < sequences.indptr[t + 1] and b < sequences.indptr[u + 1]:
        f, g = sequences.indices[a], sequences.indices[b]
        if f == g:
            total += np.float64(sequences.values[a]) * np.float64(sequences.values[b])
        # branchless merge: equal features advance both
        a += f <= g
        b += g <= f
    return total


@subroutine(optimise=False)
def squared_norm_of_features(sequences, i, gram_cache, D, active, num_active):
    """``||X'D||^2`` for the first ``num_active`` rows ``active`` of sequence i."""
    if gram_cache.gram_offsets[i] >= 0:
        return _squared_norm_from_gram(
            gram_cache.gram,
            gram_cache.gram_offsets[i],
            D,
            active,
            num_active,
            sequences.P,
        )
    return _squared_norm_from_rows(
        sequences,
        sequences.offsets[i],
        gram_cache.feature_slot,
        gram_cache.rows,
        D,
        active,
        num_active,
    )


@subroutine(optimise=False)
def _squared_norm_from_gram(gram, gram_offset, D, active, num_active, P):
    """Evaluate the first formula, with the loop over labels outside.

    Inner sums over u thus stay in registers, four vectors of labels at a time.
    """
    zero, double = splat(0.0), splat(2.0)
    total = zero
    for m in range(num_active):
        t = active[m]
        # row t of the lower triangle
        g = gram_offset + t * (t + 1) // 2
        j = 0
        while j + 4 * V <= P:
            a = b = c = d = zero
            for k in range(m):
                o = active[k] * P + j
                x = splat_at(gram, g + active[k])
                a = fma(x, load(D, o), a)
                b = fma(x, load(D, o + V), b)
                c = fma(x, load(D, o + 2 * V), c)
                d = fma(x, load(D, o + 3 * V), d)
            x, o = splat_at(gram, g + t), t * P + j
            p, q = load(D, o), load(D, o + V)
            r, u = load(D, o + 2 * V), load(D, o + 3 * V)
            p = p * fma(double, a, x * p)
            q = q * fma(double, b, x * q)
            r = r * fma(double, c, x * r)
            u = u * fma(double, d, x * u)
            total = total + ((p + q) + (r + u))
            j += 4 * V
        while j < P:
            a = zero
            for k in range(m):
                a = fma(splat_at(gram, g + active[k]), load(D, active[k] * P + j), a)
            p = load(D, t * P + j)
            total = fma(p, fma(double, a, splat_at(gram, g + t) * p), total)
            j += V
    return reduce_sum(total)


@subroutine(optimise=False)
def _squared_norm_from_rows(
    sequences, first, feature_slot, rows, D, active, num_active
):
    """Evaluate the second formula; feature_slot[f] is the row of r_f.

    Rows are in order of appearance and contiguous, and the first write to a row
    replaces it. Only the slots of the sequence's features are reset.
    """
    zero = splat(0.0)
    used = 0
    for m in range(num_active):
        t = first + active[m]
        for e in range(sequences.indptr[t], sequences.indptr[t + 1]):
            f = sequences.indices[e]
            is_new = feature_slot[f] < 0
            if is_new:
                feature_slot[f] = used
                used += 1
            # rows r_f are contiguous, however far apart the features are
            o, p = feature_slot[f] * sequences.P, active[m] * sequences.P
            x = splat_entry(sequences.values, e)
            for j in range(0, sequences.P, V):
                before = zero if is_new else load(rows, o + j)
                store(rows, o + j, fma(x, load(D, p + j), before))
    total = zero
    for o in range(0, used * sequences.P, V):
        total = fma(load(rows, o), load(rows, o), total)
    for m in range(num_active):
        t = first + active[m]
        for e in range(sequences.indptr[t], sequences.indptr[t + 1]):
            feature_slot[get_number(sequences.indices, e)] = -1
    return reduce_sum(total)
