"""The threshold that projects onto a simplex, or onto a simplex with a slack entry.

The point of ``b >= 0, sum(b) = total`` nearest to v is ``b = max(v - t, 0)``. In a
block of the Crammer-Singer dual the entry of the true class, the slack entry, is the
total minus the sum of all other entries. As ``total - s - t`` it would lose its
digits if the total is large, so it is eliminated: t solves

    sum_j max(v_j - t, 0) = min(s + t, total)

over the other entries j, where s is their current sum, ``free_sum``; the plain simplex
has s infinite. The left side minus the right is convex in t. Newton steps from the left
never pass the root, and end on its linear piece; after ``max_newton_steps`` the entries
are sorted instead.

Source: Duchi et al., "Efficient Projections onto the l1-Ball for Learning in High
Dimensions", section 3; Michelot, "A Finite Algorithm for Finding the Projection of a
Point onto the Canonical Simplex of R^n".
"""

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.simd import load, select_lt, splat
from smoothsp._kernels.vectors.simd_masked import reduce_sum

# Newton steps before entries are sorted; two or three are usual.
MAX_NEWTON_STEPS = 16


@subroutine
def simplex_threshold(v, free_sum, total, guess, max_newton_steps, P, zeros):
    """Return the threshold t, from a ``guess`` that is not above it."""
    V = len(zeros)
    number = zeros.dtype.type
    zero, ones = splat(zeros[0]), splat(number(1))
    guess = float(number(guess))
    previous_count = previous_slack = -1.0
    tolerance = 4 * (2.0**-23 if zeros.itemsize == 4 else 2.0**-52)  # roundings
    for _ in range(max_newton_steps):
        t_vector = splat(number(guess))
        inside = count = zero
        for j in range(0, P, V):
            u = load(v, j) - t_vector
            inside = inside + select_lt(zero, u, u, zero)
            count = count + select_lt(zero, u, ones, zero)
        n, slack = float(reduce_sum(count)), 1.0 if free_sum + guess < total else 0.0
        if n + slack == 0:
            break
        mass, right_side = float(reduce_sum(inside)), min(free_sum + guess, total)
        excess = mass - right_side
        guess = float(number(guess + excess / (n + slack)))
        # the guess was the root, as in a block whose support did not change
        if previous_count < 0 and abs(excess) <= tolerance * (mass + abs(right_side)):
            return guess
        # two points on one linear piece: the last Newton step was exact but for
        # rounding
        if n == previous_count and slack == previous_slack:
            return guess
        previous_count, previous_slack = n, slack
    return simplex_threshold_by_sorting(v, free_sum, total, P, zeros)


@subroutine
def simplex_threshold_by_sorting(v, free_sum, total, P, zeros):
    """Return the threshold of ``simplex_threshold`` by sorting, in O(P log P)."""
    values = np.sort(v[:P])
    # min(s + t, total): each of the two right sides gives a root, and the root of
    # the equation with their minimum is the larger one
    t = -np.inf
    if free_sum < np.inf:
        mass, size = 0.0, 0
        for j in range(P - 1, -1, -1):
            # v_j is in the support unless sum_{i above} (v_i - v_j) >= s + v_j
            if mass - size * float(values[j]) >= free_sum + float(values[j]):
                break
            mass += float(values[j])
            size += 1
        t = (mass - free_sum) / (size + 1)
    top = float(values[P - 1])
    if top > -np.inf:
        mass, size = 0.0, 0
        for j in range(P - 1, -1, -1):
            u = float(values[j]) - top
            if mass - size * u >= total:
                break
            mass += u
            size += 1
        t = max(t, top + (mass - total) / size)
    return float(zeros.dtype.type(t))
