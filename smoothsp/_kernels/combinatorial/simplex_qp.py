"""A concave quadratic maximised over the simplex, by active sets.

    max <b, a> - 1/2 |sum_i a_i g_i|^2    over a >= 0 of sum 1

``products`` are those of the vectors g_i, in slots: ``slots`` lists those in use, and b
and a are in the order of that list, so that nothing depends on who has which slot.
At the maximum no slope exceeds the mean slope of the support:

    slope(j) = b_j - <g_j, sum_i a_i g_i> <= sum_i a_i slope(i)

A round solves the face of the support, and removes indices whose weights get to 0. Then
it fills all slopes from the products, and adds the index of largest slope. The factor
of the face is updated in O(s^2) as an index joins or leaves.
"""

from typing import Any, NamedTuple

import numpy as np

from smoothsp._kernels.combinatorial import updatable_cholesky as faces
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import get, span

# Of the largest number in the problem: what counts as rounding.
ROUNDING = 1e-13


class Problem(NamedTuple):
    """The quadratic in units in which the products are as large as 1."""

    slots: Any
    products: Any
    b: Any
    top: Any  # the largest b
    unit: Any


class Support(NamedTuple):
    """The indices with weight, and scratch."""

    face: Any  # as ``updatable_cholesky`` takes it
    held: Any  # [t], the indices
    inside: Any  # [t], 1 where an index is held
    p: Any  # [t], weights of those held
    column: Any  # [t]
    x: Any


@kernel
def maximise(slots, products, b, weights):
    """Move the weights, which are in the simplex, to the maximum.

    Newton steps on those that are not 0, cut where one gets to 0; the index of steepest
    ascent joins when they are solved: O(s^2) each, for s such weights. Should rounding
    keep them from settling, pairwise Frank-Wolfe steps end it. The closer the weights
    are to the maximum, the fewer steps are made.
    """
    t = len(slots)
    width = faces.row_of(t)
    matrices, vectors = arrays.empty((2, t * width)), arrays.empty((4, width))
    if not _settle(slots, products, b, weights, matrices, vectors, width):
        pairwise_frank_wolfe(slots, products, b, weights)


@subroutine
def _settle(slots, products, b, weights, matrices, vectors, width):
    """Active sets, in room for a face of t outputs; whether they settle."""
    t = len(slots)
    face = (
        span(matrices[0]), span(matrices[1]), span(vectors[0]), span(vectors[1]),
        span(vectors[2]), width,
    )  # fmt: skip
    x = span(vectors[3])
    held, inside = arrays.empty(t, np.int64), arrays.zeros(t, np.int64)
    p, column, slopes = arrays.empty(t), arrays.empty(t), arrays.empty(t)
    sums = arrays.empty(len(products))
    least_ascent = _rounding(slots, products, b)
    top, unit, count = b[0], 0.0, 0
    for j in range(t):
        square = products[slots[j], slots[j]]
        top = max(top, b[j])
        if weights[j] > 0 or j == t - 1:
            unit += square
            count += 1
    # so that the products are as large as the 1 that the face adds to them
    unit = unit / count if unit > 0 else 1.0
    problem = Problem(slots, products, b, top, unit)
    support = Support(face, held, inside, p, column, x)
    k = 0
    for j in range(t):
        if weights[j] > 0:
            k = _join(j, weights[j], problem, support, k)
    entered = -1
    for _ in range(5 * t + 50):
        faces.maximum(face, k, x)
        out = faces.walk(k, p, x)
        if out >= 0 and held[out] == entered:
            # what was to rise falls: nothing but rounding is left
            break
        while out >= 0:
            inside[held[out]] = 0
            faces.remove(face, k, out)
            k -= 1
            for a in range(out, k):
                held[a], p[a] = held[a + 1], p[a + 1]
            faces.maximum(face, k, x)
            out = faces.walk(k, p, x)
        _slopes(slots, products, b, held, k, p, sums, slopes)
        # once more for what rounding took
        for a in range(k):
            column[a] = slopes[held[a]] / unit
        faces.correction(face, k, column, x)
        least = 1.0
        for a in range(k):
            least = min(least, p[a] + get(x, a))
        if least > 0:
            for a in range(k):
                p[a] += get(x, a)
            _slopes(slots, products, b, held, k, p, sums, slopes)
        level = mass = 0.0
        for a in range(k):
            level += p[a] * slopes[held[a]]
            mass += p[a]
        best = -1
        for j in range(t):
            if inside[j] == 0 and (best < 0 or slopes[j] > slopes[best]):
                best = j
        if best < 0 or slopes[best] <= level / mass + least_ascent:
            _spread(held, k, p, weights)
            return True
        k = _join(best, 0.0, problem, support, k)
        entered = best
    _spread(held, k, p, weights)
    return False


@subroutine
def _join(j, weight, problem, support, k):
    """Take index j, of this weight, into the support of k; how many it has then."""
    slots, products, b, top, unit = problem
    face, held, inside, p, column, x = support
    row = slots[j]
    for a in range(k):
        column[a] = products[row, slots[held[a]]] / unit + 1
    whole = products[row, row] / unit + 1
    k, out = faces.add(face, k, p, column, whole, (b[j] - top) / unit, x)
    if out >= 0:
        inside[held[out]] = 0
        for a in range(out, k - 1):
            held[a] = held[a + 1]
    held[k - 1], inside[j] = j, 1
    p[k - 1] += weight
    return k


@subroutine
def _slopes(slots, products, b, held, k, p, sums, slopes):
    """Fill ``slopes`` with b less the products with the mean of the support."""
    size = len(products)
    sums[:] = 0.0
    for a in range(k):
        row, share = slots[held[a]], p[a]
        for e in range(size):
            sums[e] += share * products[row, e]
    for j in range(len(slots)):
        slopes[j] = b[j] - sums[slots[j]]


@subroutine
def _spread(held, k, p, weights):
    """Write the weights of the support, of sum 1, and 0 elsewhere."""
    mass = 0.0
    for a in range(k):
        mass += p[a]
    weights[:] = 0.0
    for a in range(k):
        weights[held[a]] = p[a] / mass


@subroutine
def _rounding(slots, products, b):
    """What counts as no ascent."""
    largest = 0.0
    for j in range(len(slots)):
        largest = max(largest, abs(b[j]), products[slots[j], slots[j]])
    return ROUNDING * largest


@kernel
def pairwise_frank_wolfe(slots, products, b, weights):
    """Move weight from the worst index of the support to the best of all.

    The step from index j to i is ``min(a_j, (slope_i - slope_j) / |g_i - g_j|^2)``.
    """
    t = len(slots)
    least_ascent = _rounding(slots, products, b)
    slopes = arrays.empty(t)
    for j in range(t):
        slopes[j] = b[j]
        for i in range(t):
            slopes[j] -= weights[i] * products[slots[j], slots[i]]
    for _ in range(20 * t + 200):
        into, out = 0, -1
        for j in range(t):
            if slopes[j] > slopes[into]:
                into = j
            if weights[j] > 0 and (out < 0 or slopes[j] < slopes[out]):
                out = j
        ascent = slopes[into] - slopes[out]
        if not ascent > least_ascent:
            break
        first, second = slots[into], slots[out]
        bend = products[first, first] + products[second, second]
        bend -= 2 * products[first, second]
        step = weights[out]
        if bend > 0:
            step = min(step, ascent / bend)
        weights[into] += step
        weights[out] = weights[out] - step if step < weights[out] else 0.0
        for j in range(t):
            row = slots[j]
            slopes[j] -= step * (products[row, first] - products[row, second])
    mass = 0.0
    for j in range(t):
        mass += weights[j]
    for j in range(t):
        weights[j] /= mass
