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
from smoothsp._kernels.svm.box_sum_root import PATIENCE, clip, root
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.class_rows import put_own
from smoothsp._kernels.vectors.simd import (
    fma,
    get,
    larger,
    load,
    put,
    splat,
    store,
    where_below,
)
from smoothsp._kernels.vectors.simd_compare import differ
from smoothsp._kernels.vectors.simd_masked import max_of, sum_of


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
        old = where_below(zero, is_own, zero, load(a, o + j))
        u = fma(m, inverse, zero - old)
        store(v, j, u)
        top = larger(u, top)
        bound = where_below(zero, is_own, zero, load(room, j) * most_of_all)
        store(cap, j, bound)
        above, under = larger(m, zero), larger(zero - m, zero)
        gap = gap + ((bound + old) * above - old * under)
        below = where_below(u, bound, one, zero)
        inside = inside + where_below(zero, u, below, zero)
        new = clip(u, bound, zero)
        total = total + new
        most = larger(larger(new + old, zero - (new + old)), most)
    if max_of(most) <= still * min(limit, number(1) / square):
        return 0, sum_of(gap)
    if greed > 0:
        put(a, o + y, zeros[0])
        _descend_greedily(z, cap, square, greed, K, P, zeros, a, o, v)
    else:
        base = float(own)
        guess = (float(sum_of(total)) - base) / (1 + float(sum_of(inside)))
        # g + base is at most the largest v, and at most the sum of bounds
        ceiling = min(float(max_of(top)), K * float(limit) - base)
        g = root(v, cap, base, guess, ceiling, PATIENCE, P, zeros)
        at = splat(number(g))
        for j in range(0, P, V):
            store(v, j, clip(load(v, j) - at, load(cap, j), zero))
    count = 0
    total = zero
    for j in range(0, P, V):
        new = load(v, j)
        total = total + new
        old = where_below(zero, load(mark, P - y + j), zero, load(a, o + j))
        new = zero - new
        store(a, o + j, new)
        store(step, j, new - old)
        if differ(new, old) or j <= y < j + V:
            places[count] = j
            count += 1
    put(a, o + y, sum_of(total))
    put_own(step, y, sum_of(total) - own, mark, P, zeros)
    return count, sum_of(gap)


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
            up = where_below(x, load(cap, j), u, zero)
            down = where_below(zero, x, zero - u, zero)
            wrong = larger(up, down)
            place = where_below(best, wrong, splat(number(j)), place)
            best = larger(wrong, best)
        worst = max_of(best)
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
