r"""The root that solves a block of the Weston-Watkins dual.

The minimiser of ``1/2 b'(I + 11')b - v'b`` over ``0 <= b <= c`` is

    b = clip(v - g, 0, c),    g = sum_i b_i,

so the only unknown is the root of ``h(g) = sum_i clip(v_i - g, 0, c_i) - g``. h is
piecewise linear with slope ``-(1 + n)``, n the number of entries strictly between their
bounds. ``box_sum_root`` takes Newton steps within a bracket, and a secant step where
Newton's leaves it. If two iterates have the same free and full entries, the second is
exact. After ``max_newton_steps``, ``box_sum_root_by_sorting`` sorts the breakpoints
``v_i`` and ``v_i - c_i`` and sweeps them in decreasing order, in O(P log P).

Arrays are padded to whole vectors of V by entries with bound 0. Both functions move the
origin of g to ``base``.

Source: Wang and Scott, "An Exact Solver for the Weston-Watkins SVM Subproblem",
lemma A.9 and algorithm 2, with one comparison a step.
"""

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import load, maximum, minimum, select_lt, splat
from smoothsp._kernels.vectors.simd_masked import reduce_sum

# Points tried before breakpoints are sorted; two to four are usual.
MAX_NEWTON_STEPS = 16


@subroutine(forceinline=True)
def clip(u, bound, zero):
    """Return ``clip(u, 0, bound)``."""
    return minimum(maximum(u, zero), bound)


@subroutine
def box_sum_root(v, bounds, base, guess, max_root, max_newton_steps, P, zeros):
    """Return the root g of ``sum_i clip(v_i - g, 0, c_i) = base + g``.

    ``bounds`` are the c_i, and ``max_root`` is a finite upper bound of the root.
    """
    V = len(zeros)
    number = zeros.dtype.type
    zero, ones = splat(zeros[0]), splat(number(1))
    if max_root <= -base:
        return -base
    low, high = -np.inf, max_root
    over, under = 0.0, -base - max_root
    best, error = max_root, base + max_root
    guess = float(number(min(max(guess, -base), max_root)))
    above = free = -1.0
    for _ in range(max_newton_steps):
        g_vector = splat(number(guess))
        total = positive = inside = zero
        for j in range(0, P, V):
            u = load(v, j) - g_vector
            bound = load(bounds, j)
            total = total + clip(u, bound, zero)
            positive = positive + select_lt(zero, u, ones, zero)
            below = select_lt(u, bound, ones, zero)
            inside = inside + select_lt(zero, u, below, zero)
        n, m = float(reduce_sum(positive)), float(reduce_sum(inside))
        excess = float(reduce_sum(total)) - base - guess
        # both counts decrease in g: equal counts mean equal entries, so the last Newton
        # step was exact but for rounding
        if excess == 0 or (n == above and m == free):
            return float(number(guess + excess / (1 + m)))
        above, free = n, m
        if abs(excess) < error:
            best, error = guess, abs(excess)
        if excess > 0:
            low, over = guess, excess
        else:
            high, under = guess, excess
        guess = float(number(guess + excess / (1 + m)))
        if not low < guess < high:
            # a secant step; its counts are not compared with those of a Newton step
            above = -1.0
            guess = float(number(low + (high - low) * (over / (over - under))))
            # Illinois rule: halve the value at the end that stays, or the secant may
            # converge from one side only
            if excess > 0:
                under *= 0.5
            else:
                over *= 0.5
            if not low < guess < high:
                # the ends are neighbours in floating point
                return best
    return box_sum_root_by_sorting(v, bounds, base, P, zeros)


@subroutine
def box_sum_root_by_sorting(v, c, base, P, zeros):
    """Return the root by a sweep over sorted breakpoints, in O(P log P)."""
    total = 0.0
    for j in range(P):
        total += c[j]
    values = arrays.empty(P, np.float64)
    bounds = arrays.empty(P, np.float64)
    size = 0
    has_equal_bounds = True
    for j in range(P):
        if c[j] > 0 and v[j] + base > 0:
            bounds[size] = c[j]
            # g is at most the sum of bounds, so a larger v_i is full anyway; clipped,
            # it does not swamp the running sums
            values[size] = min(float(v[j]), total + c[j] - base)
            has_equal_bounds = has_equal_bounds and c[j] == bounds[0]
            size += 1
    if size == 0:
        return -base
    # with equal bounds the entries become full in the order in which they become free
    enter = np.argsort(values[:size])[::-1]
    fill = (
        enter if has_equal_bounds else np.argsort(values[:size] - bounds[:size])[::-1]
    )
    i = j = free = 0
    inside = full = g = 0.0
    while True:
        enters_at = values[enter[i]] if i < size else -np.inf
        leaves_at = values[fill[j]] - bounds[fill[j]] if j < size else -np.inf
        # at equal breakpoints entries enter before others leave
        if enters_at >= leaves_at:
            inside += enters_at
            free += 1
            i += 1
        else:
            inside -= values[fill[j]]
            full += bounds[fill[j]]
            free -= 1
            j += 1
        enters_at = values[enter[i]] if i < size else -np.inf
        leaves_at = values[fill[j]] - bounds[fill[j]] if j < size else -np.inf
        next_breakpoint = max(enters_at, leaves_at, -base)
        mass = full + inside - base
        if mass >= (free + 1) * next_breakpoint or next_breakpoint == -base:
            g = mass / (free + 1)
            break
    # one Newton step removes the rounding error of the running sums
    excess, free = -base - g, 0
    for j in range(size):
        u = values[j] - g
        excess += min(max(u, 0.0), bounds[j])
        free += 0 < u < bounds[j]
    return float(zeros.dtype.type(g + excess / (1 + free)))
