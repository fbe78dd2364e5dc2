"""Matrix-tree theorem by elimination without subtractions: sums over dependency trees.

Words are eliminated one at a time, from the last. Word k has weights of heads
``w[i, k]``, of sum D. The sum over all trees is D times that of the remaining words,
where ``w[i, j]`` has become ``w[i, j] + w[i, k] w[k, j] / D``. This is Gaussian
elimination of the Laplacian whose diagonal is recomputed as the sum of the remaining
columns (Grassmann, Taksar and Heyman, 1985). All terms are positive, so that no digits
cancel, however far the weights spread.

``arcs`` are scores ``[B, n + 1, n + 1]``, head and modifier, computed in float64. The
diagonal and column 0 are not read. With ``single_root`` exactly one word has the root
as its head: the root's weights count as infinitely small, so that D is the sum over
words, except for the last word to be eliminated.

Scratch has four matrices with rows of whole vectors: weights, reduced weights and the
gradient, each by head and modifier, then the gradient by modifier and head. Then there
are three rows: D, mixed derivatives, and sums.
"""

import math

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import (
    aligned_span,
    fma,
    get_number,
    load,
    maximum,
    put_number,
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

# Log-probability that independently drawn heads form a tree. Below it, exponents may
# leave the range of float64.
MIN_LOG_RATIO = -600.0
# The reciprocal of a smaller sum may overflow.
MIN_SUM = 1e-300
LANES = 8
NEG_INF = -np.inf


@kernel
def matrix_tree(
    first,
    last,
    arcs,
    lengths,
    single_root,
    with_marginals,
    value,
    out_of_range,
    marginals,
):
    """Fill value[B], the log-partition, and, with ``with_marginals``, marginals.

    ``marginals`` are ``[B, n + 1, n + 1]``. Rows whose weights exceed the exponent
    range of float64 are flagged in out_of_range[B], for ``matrix_tree_log_space``.
    """
    size = arcs.shape[1]
    scratch = make_scratch(size)
    for b in range(first, last):
        n = lengths[b]
        shift, product = fill_weights(arcs, b, n, single_root, scratch)
        total = eliminate(n, single_root, scratch)
        value[b] = shift + total
        out_of_range[b] = not total - product > MIN_LOG_RATIO
        if not with_marginals:
            continue
        if not out_of_range[b]:
            fill_gradient(n, single_root, scratch)
        _store_marginals(n, out_of_range[b], size, b, scratch, marginals)


@subroutine
def make_scratch(size):
    """Scratch for rows of ``size`` heads: four matrices and three rows."""
    row_width = round_up_to_lanes(size)
    return arrays.zeros((4, size * row_width + LANES)), arrays.zeros(
        (3, row_width + LANES)
    )


@subroutine(forceinline=True)
def round_up_to_lanes(size):
    """Length of a matrix row in whole vectors."""
    return (size + LANES - 1) // LANES * LANES


@subroutine
def fill_weights(arcs, b, n, single_root, scratch):
    """Fill the weights of a row, scaled so that the largest of each word is 1.

    Return the logarithm of the scales' product, and the logarithm of the product of the
    words' sums, which bounds the sum over trees.
    """
    scores_span, size = span(arcs), arcs.shape[1]
    row_offset, row_width = b * size * size, round_up_to_lanes(size)
    w, totals = aligned_span(scratch[0][0]), aligned_span(scratch[1][2])
    lowest = 1 if single_root else 0
    neg_inf_lanes, zero, ones = splat(NEG_INF), splat(0.0), splat(1.0)
    for i in range(n + 1):
        for v in range(0, row_width, LANES):
            row = load_masked(
                scores_span, row_offset + i * size + v, max(n + 1 - v, 0), neg_inf_lanes
            )
            store(w, i * row_width + v, row)
        # column 0 and the diagonal are no arcs
        put_number(w, i * row_width, NEG_INF)
        put_number(w, i * row_width + i, NEG_INF)
    shift, root = 0.0, NEG_INF
    # one vector of modifiers at a time: sums over heads need no reduction
    for v in range(0, row_width, LANES):
        top = neg_inf_lanes
        for i in range(lowest, n + 1):
            top = maximum(load(w, i * row_width + v), top)
        scores = load(w, v)
        scores = select_lt(neg_inf_lanes, scores, scores, zero)
        top = select_lt(neg_inf_lanes, top, top, scores)
        shift += reduce_sum(top)
        total = zero
        for i in range(lowest, n + 1):
            part = exp(load(w, i * row_width + v) - top)
            store(w, i * row_width + v, part)
            total = total + part
        # padding has sum 0, and its logarithm would be -inf
        store(totals, v, maximum(total, ones))
        if single_root:
            scores = load(w, v) - top
            store(w, v, scores)
            root = max(root, reduce_max(scores))
    log_product = _log_of_product(totals, row_width, totals)
    if single_root and n > 0:
        shift += root
        # each of the n words may have the root, with a weight of at most 1
        log_product += math.log(n)
        top = splat(root if root > NEG_INF else 0.0)
        for v in range(0, row_width, LANES):
            store(w, v, exp(load(w, v) - top))
    return shift, log_product


@subroutine(forceinline=True)
def _log_of_product(factors, count, offset):
    """Logarithm of the product of ``count`` normal positive numbers, in whole vectors.

    One vector is written at ``offset`` as scratch.
    """
    power, mantissas = splat(0.0), splat(1.0)
    for v in range(0, count, LANES):
        x = load(factors, v)
        # exponents are split off: one logarithm for all factors, and no overflow
        mantissas = mantissas * mantissa(x)
        power = power + exponent(x) + exponent(mantissas)
        mantissas = mantissa(mantissas)
    store(offset, 0, mantissas)
    product = 1.0
    for lane in range(LANES):
        product *= get_number(offset, lane)
    return reduce_sum(power) * math.log(2.0) + math.log(product)


@subroutine
def eliminate(n, single_root, scratch):
    """Return the logarithm of the sum over trees, -inf if a word has no head left.

    Entries right of the diagonal keep the weight of the arc when its modifier was
    eliminated. Entries left of it keep the weight when its head was, divided by D.
    """
    row_width = scratch[1].shape[1] - LANES
    w, reduced = aligned_span(scratch[0][0]), aligned_span(scratch[0][1])
    row_sums = aligned_span(scratch[1][0])
    zero = splat(0.0)
    for e in range(0, (n + 1) * row_width, LANES):
        store(reduced, e, load(w, e))
    for v in range(0, row_width, LANES):
        store(row_sums, v, splat(1.0))
    for k in range(n, 0, -1):
        mass = _column_sum(reduced, 1 if single_root and k > 1 else 0, k, k, row_width)
        if not mass > MIN_SUM:
            return NEG_INF
        put_number(row_sums, k, mass)
        inverse_sum = splat(1 / mass)
        # the vector of column k - 1 first: the next sum depends on it
        for v in range((k - 1) // LANES * LANES, -1, -LANES):
            part = load_masked(reduced, k * row_width + v, k - v, zero) * inverse_sum
            store_masked(reduced, k * row_width + v, k - v, part)
            for i in range(k):
                target = i * row_width + v
                factor = splat_at(reduced, i * row_width + k)
                store(reduced, target, fma(factor, part, load(reduced, target)))
    # word 0 is the root
    return _log_of_product(row_sums, row_width, aligned_span(scratch[1][2]))


@subroutine(forceinline=True)
def _column_sum(rows, first, last, offset, row_width):
    """Sum of the entries at ``offset`` of rows ``first`` to ``last``.

    Four partial sums, since each addition depends on the previous one of its sum.
    """
    a = b = c = d = 0.0
    r = first
    while r + 3 < last:
        x = r * row_width + offset
        a += get_number(rows, x)
        b += get_number(rows, x + row_width)
        c += get_number(rows, x + 2 * row_width)
        d += get_number(rows, x + 3 * row_width)
        r += 4
    while r < last:
        a += get_number(rows, r * row_width + offset)
        r += 1
    return (a + b) + (c + d)


@subroutine(forceinline=True)
def _weighted_row_sum(
    factors, factors_offset, step, rows, first, last, offset, row_width
):
    """Weighted sum of the vectors at ``offset`` of rows ``first`` to ``last``.

    The weight of row r is ``factors[factors_offset + r step]``. Four partial sums, as
    in ``_column_sum``.
    """
    a, b, c, d = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    r = first
    while r + 3 < last:
        f, x = factors_offset + r * step, r * row_width + offset
        a = fma(splat_at(factors, f), load(rows, x), a)
        b = fma(splat_at(factors, f + step), load(rows, x + row_width), b)
        c = fma(splat_at(factors, f + 2 * step), load(rows, x + 2 * row_width), c)
        d = fma(splat_at(factors, f + 3 * step), load(rows, x + 3 * row_width), d)
        r += 4
    while r < last:
        f, x = factors_offset + r * step, r * row_width + offset
        a = fma(splat_at(factors, f), load(rows, x), a)
        r += 1
    return (a + b) + (c + d)


@subroutine
def fill_gradient(n, single_root, scratch):
    """Fill ``d log(sum) / d w`` from the arrays that ``eliminate`` filled.

    This is reverse-mode differentiation of the elimination, from the first word to the
    last. In each sum the terms are products of a weight and a derivative, which are
    probabilities.
    """
    row_width = scratch[1].shape[1] - LANES
    reduced = aligned_span(scratch[0][1])
    gradient, gradient_t = aligned_span(scratch[0][2]), aligned_span(scratch[0][3])
    row_sums, mixed = aligned_span(scratch[1][0]), aligned_span(scratch[1][1])
    zero = splat(0.0)
    for e in range(0, (n + 1) * row_width, LANES):
        store(gradient, e, zero)
        store(gradient_t, e, zero)
    for k in range(1, n + 1):
        row_offset = k * row_width
        inverse_sum = 1 / get_number(row_sums, k)
        # probability that k has a child among the words below it
        children = zero
        for v in range(0, k, LANES):
            # row k, by modifier: derivatives in the weights of arcs from k
            part = _weighted_row_sum(
                reduced, k, row_width, gradient, 0, k, v, row_width
            )
            store_masked(gradient, row_offset + v, k - v, part * splat(inverse_sum))
            children = fma(
                load_masked(reduced, row_offset + v, k - v, zero), part, children
            )
        root_term = (1 - reduce_sum(children)) * inverse_sum
        for v in range(0, k, LANES):
            part = _weighted_row_sum(
                reduced, row_offset, 1, gradient_t, 1, k, v, row_width
            )
            store(mixed, v, part)
            store_masked(gradient_t, row_offset + v, k - v, part + splat(root_term))
        if single_root and k > 1:
            put_number(gradient_t, row_offset, get_number(mixed, 0))
        for i in range(k):
            # both layouts: sums over heads and sums over modifiers each read along rows
            put_number(
                gradient, i * row_width + k, get_number(gradient_t, row_offset + i)
            )
            put_number(
                gradient_t, i * row_width + k, get_number(gradient, row_offset + i)
            )


@subroutine
def _store_marginals(n, out_of_range, size, b, scratch, marginals):
    """Store a row's marginals, weights times derivatives; 0 where there is no arc."""
    row_width, out = scratch[1].shape[1] - LANES, span(marginals)
    w, gradient = aligned_span(scratch[0][0]), aligned_span(scratch[0][2])
    zero = splat(0.0)
    for i in range(size):
        for v in range(0, size, LANES):
            part = zero
            if i <= n and not out_of_range:
                part = load(w, i * row_width + v) * load(gradient, i * row_width + v)
                # differences in the gradient may be negative by rounding
                part = maximum(part, zero)
            store_masked(out, (b * size + i) * size + v, size - v, part)
