"""One block of the Weston-Watkins dual: solved exactly, or greedily as a baseline.

A block is a row of coefficients: ``a(j) = -b(j)`` for the classes j other than y, and
``a(y) = sum_j b(j)``, where b minimises ``1/2 b'(I + 11')b - v'b`` in a box. With the
margin violations ``m(j) = cost(j) - z(y) + z(j)`` of scores z and q the squared norm of
the sample, ``v = m / q + b + sum(b)``; here the sum is left out of v and of the root.

Source: Wang and Scott, "An Exact Solver for the Weston-Watkins SVM Subproblem",
proposition 3.5.
"""

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.svm.box_sum_root import MAX_NEWTON_STEPS, clip, find_root
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.class_rows import put_own
from smoothsp._kernels.vectors.simd import (
    fma,
    get,
    load,
    maximum,
    put,
    select_lt,
    splat,
    store,
)
from smoothsp._kernels.vectors.simd_compare import any_not_equal
from smoothsp._kernels.vectors.simd_masked import reduce_max, reduce_sum


@subroutine
def solve_block(
    y,
    square,
    z,
    cost,
    r,
    limit,
    cap,
    K,
    P,
    still,
    greed,
    zeros,
    mark,
    room,
    v,
    step,
    places,
    a,
    o,
):
    """Replace the row of ``a`` at o; in how many vectors, and what its gap was.

    One pass over the classes finds m, v, the gap and a first guess of g, by a step of
    Newton. Then comes the root g of ``box_sum_root``, and a second pass stores
    ``a = -clip(v - g, 0, c)``.

    Where the changed vectors are is written to ``places``, and the change itself to
    ``step``. The costs of class y are at r. A coefficient is at most ``limit``; ``cap``
    is scratch, ``room`` has 1 for each class and 0 past K, ``mark`` is that of
    ``own_class``. A block is left alone when no coefficient would leave where it is by
    more than ``still`` times what it may be: ``limit``, or 1 / q where that is less.
    ``greed`` is 0, or where the greedy solver stops.
    """
    V = len(zeros)
    number = zeros.dtype.type
    zero = splat(zeros[0])
    one, most_of_all = splat(number(1)), splat(limit)
    inverse = splat(number(1) / square)
    shift = splat(z[y])
    own = get(a, o + y)
    total = inside = most = gap = zero
    top = splat(number(-np.inf))
    for j in range(0, P, V):
        is_own = load(mark, P - y + j)
        m = load(cost, r + j) + (load(z, j) - shift)
        store(z, j, m)
        old = select_lt(zero, is_own, zero, load(a, o + j))
        u = fma(m, inverse, zero - old)
        store(v, j, u)
        top = maximum(u, top)
        bound = select_lt(zero, is_own, zero, load(room, j) * most_of_all)
        store(cap, j, bound)
        above, under = maximum(m, zero), maximum(zero - m, zero)
        gap = gap + ((bound + old) * above - old * under)
        below = select_lt(u, bound, one, zero)
        inside = inside + select_lt(zero, u, below, zero)
        new = clip(u, bound, zero)
        total = total + new
        most = maximum(maximum(new + old, zero - (new + old)), most)
    if reduce_max(most) <= still * min(limit, number(1) / square):
        return 0, reduce_sum(gap)
    if greed > 0:
        put(a, o + y, zeros[0])
        _descend_greedily(z, cap, square, greed, K, P, zeros, a, o, v)
    else:
        base = float(own)
        guess = (float(reduce_sum(total)) - base) / (1 + float(reduce_sum(inside)))
        # g + base is at most the largest v, and at most the sum of bounds
        ceiling = min(float(reduce_max(top)), K * float(limit) - base)
        g = find_root(v, cap, base, guess, ceiling, MAX_NEWTON_STEPS, P, zeros)
        at = splat(number(g))
        for j in range(0, P, V):
            store(v, j, clip(load(v, j) - at, load(cap, j), zero))
    count = 0
    total = zero
    for j in range(0, P, V):
        new = load(v, j)
        total = total + new
        old = select_lt(zero, load(mark, P - y + j), zero, load(a, o + j))
        new = zero - new
        store(a, o + j, new)
        store(step, j, new - old)
        if any_not_equal(new, old) or j <= y < j + V:
            places[count] = j
            count += 1
    put(a, o + y, reduce_sum(total))
    put_own(step, y, reduce_sum(total) - own, mark, P, zeros)
    return count, reduce_sum(gap)


@subroutine
def _descend_greedily(r, cap, square, tolerance, K, P, zeros, a, o, b):
    """Fill b: steps along the coordinate that violates its conditions most.

    Stops below the tolerance or after ``10 K`` steps. r are the margin violations,
    which each step changes. As in the solver of the Shark library, which the paper
    compares with.
    """
    V = len(zeros)
    number = zeros.dtype.type
    zero = splat(zeros[0])
    lanes = arrays.empty(2 * V, zeros.dtype)
    for j in range(0, P, V):
        store(b, j, zero - load(a, o + j))
    fall = zeros[0]
    at = -1
    for _ in range(10 * K + 1):
        if at >= 0:
            r[at] -= fall
        drop = splat(fall)
        best = place = zero
        for j in range(0, P, V):
            u = load(r, j) - drop
            store(r, j, u)
            x = load(b, j)
            up = select_lt(x, load(cap, j), u, zero)
            down = select_lt(zero, x, zero - u, zero)
            wrong = maximum(up, down)
            place = select_lt(best, wrong, splat(number(j)), place)
            best = maximum(wrong, best)
        worst = reduce_max(best)
        if worst < tolerance:
            break
        store(lanes, 0, best)
        store(lanes, V, place)
        for lane in range(V):
            if lanes[lane] == worst:
                at = int(lanes[V + lane]) + lane
                break
        new = b[at] + r[at] / (number(2) * square)
        new = min(max(new, zeros[0]), cap[at])
        fall = (new - b[at]) * square
        b[at] = new
