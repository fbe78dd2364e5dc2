"""Solvers of a block of the Weston-Watkins dual: exact, or greedy as a baseline.

A block is a row of coefficients: ``a(j) = -b(j)`` for the classes j other than y, and
``a(y) = sum_j b(j)``, where b minimises ``1/2 b'(I + 11')b - v'b`` in a box. With the
margin violations ``m(j) = cost(j) - z(y) + z(j)`` of scores z, and q the squared norm
of the sample, ``v = m / q + b + sum(b)``. The code omits sum(b) from v and from the
root g: it is ``base`` of ``box_sum_root``.

Source: Wang and Scott, "An Exact Solver for the Weston-Watkins SVM Subproblem",
proposition 3.5.
"""

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.svm.box_sum_root import MAX_NEWTON_STEPS, box_sum_root, clip
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.class_rows import set_class_entry
from smoothsp._kernels.vectors.simd import (
    fma,
    get_number,
    load,
    maximum,
    put_number,
    select_lt,
    splat,
    store,
)
from smoothsp._kernels.vectors.simd_compare import any_not_equal
from smoothsp._kernels.vectors.simd_masked import reduce_max, reduce_sum


@subroutine
def solve_block(
    y,
    squared_norm,
    z,
    cost,
    cost_offset,
    limit,
    cap,
    K,
    P,
    move_tolerance,
    greedy_tolerance,
    zeros,
    one_hot,
    class_mask,
    v,
    step,
    vector_offsets,
    a,
    row_offset,
):
    """Solve the block at ``row_offset`` of a; return its changed vectors and its gap.

    One pass over the classes computes m, v, the gap before the solve and a first guess
    of g by a Newton step. After the root g of ``box_sum_root``, a second pass stores
    ``a = -clip(v - g, 0, c)``.

    The change is written to ``step``, the offsets of its nonzero vectors to
    ``vector_offsets``. The costs of class y begin at ``cost_offset``. A coefficient is
    at most ``limit``; ``cap`` is scratch, ``class_mask`` is 1 for the K classes and 0
    for padding, ``one_hot`` comes from ``make_one_hot``. The block is skipped if no
    coefficient would change by more than ``move_tolerance min(limit, 1 / q)``.
    ``greedy_tolerance`` is 0, or the tolerance at which the greedy solver stops.
    """
    V = len(zeros)
    number = zeros.dtype.type
    zero = splat(zeros[0])
    ones, limits = splat(number(1)), splat(limit)
    inverse = splat(number(1) / squared_norm)
    score_of_y = splat(z[y])
    a_y = get_number(a, row_offset + y)
    total = inside = max_change = gap = zero
    top = splat(number(-np.inf))
    for j in range(0, P, V):
        is_class_y = load(one_hot, P - y + j)
        m = load(cost, cost_offset + j) + (load(z, j) - score_of_y)
        store(z, j, m)
        old = select_lt(zero, is_class_y, zero, load(a, row_offset + j))
        u = fma(m, inverse, zero - old)
        store(v, j, u)
        top = maximum(u, top)
        bound = select_lt(zero, is_class_y, zero, load(class_mask, j) * limits)
        store(cap, j, bound)
        above, under = maximum(m, zero), maximum(zero - m, zero)
        gap = gap + ((bound + old) * above - old * under)
        below = select_lt(u, bound, ones, zero)
        inside = inside + select_lt(zero, u, below, zero)
        new = clip(u, bound, zero)
        total = total + new
        max_change = maximum(maximum(new + old, zero - (new + old)), max_change)
    if reduce_max(max_change) <= move_tolerance * min(limit, number(1) / squared_norm):
        return 0, reduce_sum(gap)
    if greedy_tolerance > 0:
        put_number(a, row_offset + y, zeros[0])
        _descend_greedily(
            z, cap, squared_norm, greedy_tolerance, K, P, zeros, a, row_offset, v
        )
    else:
        base = float(a_y)
        guess = (float(reduce_sum(total)) - base) / (1 + float(reduce_sum(inside)))
        # bounds of the root: the largest v, and the sum of bounds minus base
        ceiling = min(float(reduce_max(top)), K * float(limit) - base)
        g = box_sum_root(v, cap, base, guess, ceiling, MAX_NEWTON_STEPS, P, zeros)
        g_vector = splat(number(g))
        for j in range(0, P, V):
            store(v, j, clip(load(v, j) - g_vector, load(cap, j), zero))
    count = 0
    total = zero
    for j in range(0, P, V):
        new = load(v, j)
        total = total + new
        old = select_lt(zero, load(one_hot, P - y + j), zero, load(a, row_offset + j))
        new = zero - new
        store(a, row_offset + j, new)
        store(step, j, new - old)
        # the vector of class y always counts: its entry is set after the loop
        if any_not_equal(new, old) or j <= y < j + V:
            vector_offsets[count] = j
            count += 1
    put_number(a, row_offset + y, reduce_sum(total))
    set_class_entry(step, y, reduce_sum(total) - a_y, one_hot, P, zeros)
    return count, reduce_sum(gap)


@subroutine
def _descend_greedily(
    violations, cap, squared_norm, tolerance, K, P, zeros, a, a_offset, b
):
    """Fill b by greedy coordinate descent: the largest violation of optimality first.

    Stops below the tolerance or after ``10 K`` steps. ``violations`` are the margin
    violations; each step updates them. This is the solver of the Shark library, the
    baseline in the paper of Wang and Scott.
    """
    V = len(zeros)
    number = zeros.dtype.type
    zero = splat(zeros[0])
    lanes = arrays.empty(2 * V, zeros.dtype)
    for j in range(0, P, V):
        store(b, j, zero - load(a, a_offset + j))
    fall = zeros[0]
    index = -1
    for _ in range(10 * K + 1):
        if index >= 0:
            violations[index] -= fall
        drop = splat(fall)
        best = position = zero
        for j in range(0, P, V):
            u = load(violations, j) - drop
            store(violations, j, u)
            x = load(b, j)
            up = select_lt(x, load(cap, j), u, zero)
            down = select_lt(zero, x, zero - u, zero)
            violation = maximum(up, down)
            position = select_lt(best, violation, splat(number(j)), position)
            best = maximum(violation, best)
        worst = reduce_max(best)
        if worst < tolerance:
            break
        store(lanes, 0, best)
        store(lanes, V, position)
        for lane in range(V):
            if lanes[lane] == worst:
                index = int(lanes[V + lane]) + lane
                break
        # the Hessian q (I + 11') has the diagonal 2 q
        new = b[index] + violations[index] / (number(2) * squared_norm)
        new = min(max(new, zeros[0]), cap[index])
        fall = (new - b[index]) * squared_norm
        b[index] = new
