"""Sums over all spanning trees of heads: the matrix-tree theorem without a subtraction.

Words are eliminated one at a time, from the last. Word k has the weights of its heads
``w[i, k]``, of sum D, and all trees sum to D times those of the other words, where
``w[i, j]`` has become ``w[i, j] + w[i, k] w[k, j] / D``: a sum of positive numbers,
however far they spread. That is Gaussian elimination of the Laplacian with its diagonal
taken from what is left of the columns.

``arcs`` are ``[B, n + 1, n + 1]``, head and modifier, computed in float64; of these
what no tree uses is never read. With ``single`` exactly one word has the root for its
head: the root's weights count as infinitely small, so that D is the sum over words, but
for the last word.

A room holds matrices with rows of whole vectors: by head and modifier the weights,
those that elimination works on, and the derivatives; by modifier and head the
derivatives again; then rows of D, of mixed derivatives, and of sums.
"""

import math

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import (
    aligned_span,
    fma,
    get,
    load,
    maximum,
    put,
    select_lt,
    span,
    splat,
    splat_at,
    store,
)
from smoothsp._kernels.vectors.simd_exp import exp, exponent, mantissa
from smoothsp._kernels.vectors.simd_masked import (
    load_masked,
    reduce_max,
    reduce_sum,
    store_masked,
)

# Below this chance that heads drawn one by one make a tree, exponents may run out.
LEAST = -600.0
# One over a smaller sum may leave float64.
SMALL = 1e-300
LANES = 8
NOTHING = -np.inf


@kernel
def matrix_tree(first, last, arcs, lengths, single, inwards, value, far, chances):
    """Fill value[B], the log-partition, and, if ``inwards``, chances[B, n + 1, n + 1].

    Rows whose weights spread beyond the exponents of float64 are marked in far[B], for
    ``matrix_tree_log_space`` to answer.
    """
    size = arcs.shape[1]
    room = scratch(size)
    for b in range(first, last):
        n = lengths[b]
        shift, product = weights(arcs, b, n, single, room)
        total = eliminate(n, single, room)
        value[b] = shift + total
        far[b] = not total - product > LEAST
        if not inwards:
            continue
        if not far[b]:
            adjoint(n, single, room)
        _write(n, far[b], size, b, room, chances)


@subroutine
def scratch(size):
    """The room for rows of ``size`` heads."""
    wide = width(size)
    return arrays.zeros((4, size * wide + LANES)), arrays.zeros((3, wide + LANES))


@subroutine(forceinline=True)
def width(size):
    """The length of a row of a matrix, in whole vectors."""
    return (size + LANES - 1) // LANES * LANES


@subroutine
def weights(arcs, b, n, single, room):
    """Fill the weights of a row, of which the largest of each word is 1.

    Returns the logarithm of what they were divided by, and that of the product of their
    sums, which bounds the sum over trees.
    """
    given, size = span(arcs), arcs.shape[1]
    at, wide = b * size * size, width(size)
    w, totals = aligned_span(room[0][0]), aligned_span(room[1][2])
    lowest = 1 if single else 0
    nothing, zero, one = splat(NOTHING), splat(0.0), splat(1.0)
    for i in range(n + 1):
        for v in range(0, wide, LANES):
            row = load_masked(given, at + i * size + v, max(n + 1 - v, 0), nothing)
            store(w, i * wide + v, row)
        # what no tree uses
        put(w, i * wide, NOTHING)
        put(w, i * wide + i, NOTHING)
    shift, root = 0.0, NOTHING
    for v in range(0, wide, LANES):
        top = nothing
        for i in range(lowest, n + 1):
            top = maximum(load(w, i * wide + v), top)
        scores = load(w, v)
        scores = select_lt(nothing, scores, scores, zero)
        top = select_lt(nothing, top, top, scores)
        shift += reduce_sum(top)
        total = zero
        for i in range(lowest, n + 1):
            part = exp(load(w, i * wide + v) - top)
            store(w, i * wide + v, part)
            total = total + part
        store(totals, v, maximum(total, one))
        if single:
            scores = load(w, v) - top
            store(w, v, scores)
            root = max(root, reduce_max(scores))
    product = _log_of_product(totals, wide, totals)
    if single and n > 0:
        shift += root
        product += math.log(n)
        top = splat(root if root > NOTHING else 0.0)
        for v in range(0, wide, LANES):
            store(w, v, exp(load(w, v) - top))
    return shift, product


@subroutine(forceinline=True)
def _log_of_product(factors, count, place):
    """The log of the product of ``count`` normal positive numbers, in whole vectors.

    Writes one vector at ``place``.
    """
    power, left = splat(0.0), splat(1.0)
    for v in range(0, count, LANES):
        x = load(factors, v)
        left = left * mantissa(x)
        power = power + exponent(x) + exponent(left)
        left = mantissa(left)
    store(place, 0, left)
    found = 1.0
    for lane in range(LANES):
        found *= get(place, lane)
    return reduce_sum(power) * math.log(2.0) + math.log(found)


@subroutine
def eliminate(n, single, room):
    """The logarithm of the sum over trees; -inf where a word has lost all heads.

    Right of the diagonal are the weights that arcs had when their modifier was
    eliminated; left of it those that arcs had when their head was, over its sum D.
    """
    wide = room[1].shape[1] - LANES
    w, left = aligned_span(room[0][0]), aligned_span(room[0][1])
    row_sums = aligned_span(room[1][0])
    zero = splat(0.0)
    for e in range(0, (n + 1) * wide, LANES):
        store(left, e, load(w, e))
    for v in range(0, wide, LANES):
        store(row_sums, v, splat(1.0))
    for k in range(n, 0, -1):
        mass = _sum_down(left, 1 if single and k > 1 else 0, k, k, wide)
        if not mass > SMALL:
            return NOTHING
        put(row_sums, k, mass)
        over = splat(1 / mass)
        # column k - 1 first, since the next sum waits for it
        for v in range((k - 1) // LANES * LANES, -1, -LANES):
            part = load_masked(left, k * wide + v, k - v, zero) * over
            store_masked(left, k * wide + v, k - v, part)
            for i in range(k):
                at = i * wide + v
                way = splat_at(left, i * wide + k)
                store(left, at, fma(way, part, load(left, at)))
    # word 0 is the root
    return _log_of_product(row_sums, wide, aligned_span(room[1][2]))


@subroutine(forceinline=True)
def _sum_down(rows, first, last, place, wide):
    """The sum over rows from first to last of the number at ``place``, four at a time.

    Each sum waits for its last term.
    """
    a = b = c = d = 0.0
    r = first
    while r + 3 < last:
        x = r * wide + place
        a += get(rows, x)
        b += get(rows, x + wide)
        c += get(rows, x + 2 * wide)
        d += get(rows, x + 3 * wide)
        r += 4
    while r < last:
        a += get(rows, r * wide + place)
        r += 1
    return (a + b) + (c + d)


@subroutine(forceinline=True)
def _mixed(factors, at, step, rows, first, last, place, wide):
    """The vector at ``place`` of rows from first to last, times ``factors[at + ...]``.

    Four sums at a time, as in ``_sum_down``.
    """
    a, b, c, d = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    r = first
    while r + 3 < last:
        f, x = at + r * step, r * wide + place
        a = fma(splat_at(factors, f), load(rows, x), a)
        b = fma(splat_at(factors, f + step), load(rows, x + wide), b)
        c = fma(splat_at(factors, f + 2 * step), load(rows, x + 2 * wide), c)
        d = fma(splat_at(factors, f + 3 * step), load(rows, x + 3 * wide), d)
        r += 4
    while r < last:
        f, x = at + r * step, r * wide + place
        a = fma(splat_at(factors, f), load(rows, x), a)
        r += 1
    return (a + b) + (c + d)


@subroutine
def adjoint(n, single, room):
    """Fill ``d log(sum) / d w``, from what ``eliminate`` left.

    In the sums below each term is a weight times a derivative: a chance.
    """
    wide = room[1].shape[1] - LANES
    left = aligned_span(room[0][1])
    down, across = aligned_span(room[0][2]), aligned_span(room[0][3])
    row_sums, along = aligned_span(room[1][0]), aligned_span(room[1][1])
    zero = splat(0.0)
    for e in range(0, (n + 1) * wide, LANES):
        store(down, e, zero)
        store(across, e, zero)
    for k in range(1, n + 1):
        own = k * wide
        over = 1 / get(row_sums, k)
        children = zero
        for v in range(0, k, LANES):
            # row k, by modifier: derivatives in the weights of arcs from k
            part = _mixed(left, k, wide, down, 0, k, v, wide)
            store_masked(down, own + v, k - v, part * splat(over))
            children = fma(load_masked(left, own + v, k - v, zero), part, children)
        rest = (1 - reduce_sum(children)) * over
        for v in range(0, k, LANES):
            part = _mixed(left, own, 1, across, 1, k, v, wide)
            store(along, v, part)
            store_masked(across, own + v, k - v, part + splat(rest))
        if single and k > 1:
            put(across, own, get(along, 0))
        for i in range(k):
            put(down, i * wide + k, get(across, own + i))
            put(across, i * wide + k, get(down, own + i))


@subroutine
def _write(n, far, size, b, room, chances):
    """Chances of a row: weights times derivatives, 0 where there is no arc."""
    wide, out = room[1].shape[1] - LANES, span(chances)
    w, down = aligned_span(room[0][0]), aligned_span(room[0][2])
    zero = splat(0.0)
    for i in range(size):
        for v in range(0, size, LANES):
            part = zero
            if i <= n and not far:
                part = load(w, i * wide + v) * load(down, i * wide + v)
                part = maximum(part, zero)
            store_masked(out, (b * size + i) * size + v, size - v, part)
