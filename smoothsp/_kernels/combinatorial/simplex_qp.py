"""Active-set method for a concave quadratic over the simplex.

    max <b, a> - 1/2 |sum_i a_i g_i|^2    over a >= 0 of sum 1

``products`` are the inner products of the vectors g_i, by slot; ``slots`` lists the
slots in use. b and a follow the order of this list, so that results do not depend on
the assignment of slots. At the maximum no gradient exceeds the mean over the support:

    gradient(j) = b_j - <g_j, sum_i a_i g_i> <= sum_i a_i gradient(i)

A round maximises over the face of the support, and removes indices whose weights reach
0. Then it computes the gradient from the products, and adds the index of its largest
entry. Adding or removing an index updates the face's Cholesky factor in O(s^2).
"""

from typing import Any, NamedTuple

import numpy as np

from smoothsp._kernels.combinatorial import updatable_cholesky as faces
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import get_number, span

# Relative to the largest number of the problem, differences below this are rounding.
ROUNDING = 1e-13


class ScaledProblem(NamedTuple):
    """The quadratic, and the unit in which products have a mean diagonal of 1."""

    slots: Any
    products: Any
    b: Any
    top: Any  # the largest b
    unit: Any


class Support(NamedTuple):
    """The indices of positive weight, and scratch."""

    factor: Any  # Cholesky factor of the face, see ``updatable_cholesky``
    support_index: Any  # [t], the indices, in the factor's order
    in_support: Any  # [t], 1 at indices in the support
    p: Any  # [t], weights of those held
    column: Any  # [t]
    x: Any


@kernel
def maximise_over_simplex(slots, products, b, weights):
    """Update ``weights``, a point of the simplex, to the maximiser.

    Newton steps on the support, cut where a weight reaches 0. When the face is solved,
    the index of steepest ascent is added. A step costs O(s^2) for a support of s. If
    rounding prevents convergence, pairwise Frank-Wolfe steps follow. A start near the
    maximiser takes few steps.
    """
    t = len(slots)
    # the support may grow to all t indices
    width = faces.row_width(t)
    matrices, vectors = arrays.empty((2, t * width)), arrays.empty((4, width))
    if not _run_active_set_method(
        slots, products, b, weights, matrices, vectors, width
    ):
        pairwise_frank_wolfe(slots, products, b, weights)


@subroutine
def _run_active_set_method(slots, products, b, weights, matrices, vectors, width):
    """Run the active-set method; return whether it converged."""
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
    # The factor is of products / unit + 1: both terms should be of the same size.
    unit = unit / count if unit > 0 else 1.0
    problem = ScaledProblem(slots, products, b, top, unit)
    support = Support(factor, support_index, in_support, p, column, x)
    k = 0
    for j in range(t):
        if weights[j] > 0:
            k = _add_to_support(j, weights[j], problem, support, k)
    entered = -1
    # each round usually adds an index for good; the limit is for cycles by rounding
    for _ in range(5 * t + 50):
        faces.solve_equality(factor, k, x)
        leaving = faces.step_to_boundary(k, p, x)
        # the index just added leaves at once: its ascent was rounding
        if leaving >= 0 and support_index[leaving] == entered:
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
        for a in range(k):
            # iterative refinement of the solution, with the gradient at p as residual
            column[a] = gradient[support_index[a]] / unit
        faces.refine(factor, k, column, x)
        min_weight = 1.0
        for a in range(k):
            min_weight = min(min_weight, p[a] + get_number(x, a))
        if min_weight > 0:
            for a in range(k):
                p[a] += get_number(x, a)
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
    """Add index j with ``weight`` to the support of size k; return its new size.

    An index that the addition makes redundant is removed.
    """
    slots, products, b, top, unit = problem
    factor, support_index, in_support, p, column, x = support
    row = slots[j]
    for a in range(k):
        # plus 1 for the constraint 1'p = 1, see ``updatable_cholesky``
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
    """Fill gradient[t]: b minus the inner products with the mean of the support."""
    size = len(products)
    sums[:] = 0.0
    for a in range(k):
        row, weight = slots[support_index[a]], p[a]
        # along whole rows of products: contiguous, without an indirection
        for e in range(size):
            sums[e] += weight * products[row, e]
    for j in range(len(slots)):
        gradient[j] = b[j] - sums[slots[j]]


@subroutine
def _scatter_weights(support_index, k, p, weights):
    """Write the weights of the support, normalised to sum 1, and 0 elsewhere."""
    mass = 0.0
    for a in range(k):
        mass += p[a]
    weights[:] = 0.0
    for a in range(k):
        weights[support_index[a]] = p[a] / mass


@subroutine
def _min_ascent(slots, products, b):
    """Return the smallest ascent that exceeds rounding."""
    largest = 0.0
    for j in range(len(slots)):
        largest = max(largest, abs(b[j]), products[slots[j], slots[j]])
    return ROUNDING * largest


@kernel
def pairwise_frank_wolfe(slots, products, b, weights):
    """Move weight from the worst index of the support to the best of all.

    The step from j to i is ``min(a_j, (gradient_i - gradient_j) / |g_i - g_j|^2)``.
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
        # exactly 0 after a full step, so that the index leaves the support
        weights[worst] = weights[worst] - step if step < weights[worst] else 0.0
        for j in range(t):
            row = slots[j]
            gradient[j] -= step * (products[row, first] - products[row, second])
    mass = 0.0
    for j in range(t):
        mass += weights[j]
    for j in range(t):
        weights[j] /= mass
