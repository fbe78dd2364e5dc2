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


class ScaledProblem(NamedTuple):
    """The quadratic in units in which the products are as large as 1."""

    slots: Any
    products: Any
    b: Any
    top: Any  # the largest b
    unit: Any


class Support(NamedTuple):
    """The indices with weight, and scratch."""

    factor: Any  # as ``updatable_cholesky`` takes it
    support_index: Any  # [t], the indices
    in_support: Any  # [t], 1 where an index is held
    p: Any  # [t], weights of those held
    column: Any  # [t]
    x: Any


@kernel
def maximise_over_simplex(slots, products, b, weights):
    """Move the weights, which are in the simplex, to the maximum.

    Newton steps on those that are not 0, cut where one gets to 0; the index of steepest
    ascent joins when they are solved: O(s^2) each, for s such weights. Should rounding
    keep them from settling, pairwise Frank-Wolfe steps end it. The closer the weights
    are to the maximum, the fewer steps are made.
    """
    t = len(slots)
    width = faces.row_width(t)
    matrices, vectors = arrays.empty((2, t * width)), arrays.empty((4, width))
    if not _active_set(slots, products, b, weights, matrices, vectors, width):
        pairwise_frank_wolfe(slots, products, b, weights)


@subroutine
def _active_set(slots, products, b, weights, matrices, vectors, width):
    """Active sets, in room for a face of t outputs; whether they settle."""
    t = len(slots)
    factor = (
        span(matrices[0]), span(matrices[1]), span(vectors[0]), span(vectors[1]),
        span(vectors[2]), width,
    )  # fmt: skip
    x = span(vectors[3])
    support_index, in_support = arrays.empty(t, np.int64), arrays.zeros(t, np.int64)
    p, column, gradient = arrays.empty(t), arrays.empty(t), arrays.empty(t)
    sums = arrays.empty(len(products))
    min_ascent = _min_ascent(slots, products, b)
    top, unit, count = b[0], 0.0, 0
    for j in range(t):
        squared_norm = products[slots[j], slots[j]]
        top = max(top, b[j])
        if weights[j] > 0 or j == t - 1:
            unit += squared_norm
            count += 1
    # so that the products are as large as the 1 that the face adds to them
    unit = unit / count if unit > 0 else 1.0
    problem = ScaledProblem(slots, products, b, top, unit)
    support = Support(factor, support_index, in_support, p, column, x)
    k = 0
    for j in range(t):
        if weights[j] > 0:
            k = _add_to_support(j, weights[j], problem, support, k)
    entered = -1
    for _ in range(5 * t + 50):
        faces.solve_equality(factor, k, x)
        leaving = faces.step_to_boundary(k, p, x)
        if leaving >= 0 and support_index[leaving] == entered:
            # what was to rise falls: nothing but rounding is left
            break
        while leaving >= 0:
            in_support[support_index[leaving]] = 0
            faces.remove_column(factor, k, leaving)
            k -= 1
            for a in range(leaving, k):
                support_index[a], p[a] = support_index[a + 1], p[a + 1]
            faces.solve_equality(factor, k, x)
            leaving = faces.step_to_boundary(k, p, x)
        _fill_gradient(slots, products, b, support_index, k, p, sums, gradient)
        # once more for what rounding took
        for a in range(k):
            column[a] = gradient[support_index[a]] / unit
        faces.refine(factor, k, column, x)
        min_weight = 1.0
        for a in range(k):
            min_weight = min(min_weight, p[a] + get(x, a))
        if min_weight > 0:
            for a in range(k):
                p[a] += get(x, a)
            _fill_gradient(slots, products, b, support_index, k, p, sums, gradient)
        mean_gradient = mass = 0.0
        for a in range(k):
            mean_gradient += p[a] * gradient[support_index[a]]
            mass += p[a]
        best = -1
        for j in range(t):
            if in_support[j] == 0 and (best < 0 or gradient[j] > gradient[best]):
                best = j
        if best < 0 or gradient[best] <= mean_gradient / mass + min_ascent:
            _scatter_weights(support_index, k, p, weights)
            return True
        k = _add_to_support(best, 0.0, problem, support, k)
        entered = best
    _scatter_weights(support_index, k, p, weights)
    return False


@subroutine
def _add_to_support(j, weight, problem, support, k):
    """Take index j, of this weight, into the support of k; how many it has then."""
    slots, products, b, top, unit = problem
    factor, support_index, in_support, p, column, x = support
    row = slots[j]
    for a in range(k):
        column[a] = products[row, slots[support_index[a]]] / unit + 1
    squared_norm = products[row, row] / unit + 1
    k, leaving = faces.add_column(
        factor, k, p, column, squared_norm, (b[j] - top) / unit, x
    )
    if leaving >= 0:
        in_support[support_index[leaving]] = 0
        for a in range(leaving, k - 1):
            support_index[a] = support_index[a + 1]
    support_index[k - 1], in_support[j] = j, 1
    p[k - 1] += weight
    return k


@subroutine
def _fill_gradient(slots, products, b, support_index, k, p, sums, gradient):
    """Fill ``slopes`` with b less the products with the mean of the support."""
    size = len(products)
    sums[:] = 0.0
    for a in range(k):
        row, weight = slots[support_index[a]], p[a]
        for e in range(size):
            sums[e] += weight * products[row, e]
    for j in range(len(slots)):
        gradient[j] = b[j] - sums[slots[j]]


@subroutine
def _scatter_weights(support_index, k, p, weights):
    """Write the weights of the support, of sum 1, and 0 elsewhere."""
    mass = 0.0
    for a in range(k):
        mass += p[a]
    weights[:] = 0.0
    for a in range(k):
        weights[support_index[a]] = p[a] / mass


@subroutine
def _min_ascent(slots, products, b):
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
    min_ascent = _min_ascent(slots, products, b)
    gradient = arrays.empty(t)
    for j in range(t):
        gradient[j] = b[j]
        for i in range(t):
            gradient[j] -= weights[i] * products[slots[j], slots[i]]
    for _ in range(20 * t + 200):
        best, worst = 0, -1
        for j in range(t):
            if gradient[j] > gradient[best]:
                best = j
            if weights[j] > 0 and (worst < 0 or gradient[j] < gradient[worst]):
                worst = j
        ascent = gradient[best] - gradient[worst]
        if not ascent > min_ascent:
            break
        first, second = slots[best], slots[worst]
        curvature = products[first, first] + products[second, second]
        curvature -= 2 * products[first, second]
        step = weights[worst]
        if curvature > 0:
            step = min(step, ascent / curvature)
        weights[best] += step
        weights[worst] = weights[worst] - step if step < weights[worst] else 0.0
        for j in range(t):
            row = slots[j]
            gradient[j] -= step * (products[row, first] - products[row, second])
    mass = 0.0
    for j in range(t):
        mass += weights[j]
    for j in range(t):
        weights[j] /= mass
