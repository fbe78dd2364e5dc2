"""The largest of the scores of each row, as many as bounds allow."""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import carray


@kernel
def best_subset(first, last, address, shape, like, bounds, places):
    """Fill the best subsets ``[B, N]``, -1 past the length, and what they use.

    Scores ``[B, N]``, of the type of ``like``, are at an address; ``bounds[B]`` are
    least and largest size, and length. ``places`` are addresses of the subsets, and of
    their scores ``[B]``; of int32 ``[B, N]`` for the elements that they use, -1 for
    none; and of the scores as two numbers ``[B, 2]``. The last two may be 0. O(N) on
    average.
    """
    B, N = shape
    scores, values = carray(address, shape, like), carray(places[1], (B,), like)
    labels, used = (
        carray(places[0], shape, np.int64),
        carray(places[2], shape, np.int32),
    )
    exact = carray(places[3], (B, 2), np.float64)
    room = arrays.empty(N, like.dtype)
    for b in range(first, last):
        low, high, m = bounds[b]
        row = scores[b]
        # above this all are chosen, and of those that equal it some
        least, equal = 0.0, 0
        above = 0
        for v in range(m):
            above += row[v] > 0
        size = max(min(above, high), low)
        if size != above:
            for v in range(m):
                room[v] = row[v]
            least = _select(room, m, size) if size > 0 else np.inf
            equal = size
            for v in range(m):
                equal -= row[v] > least
        total, rest = 0.0, 0.0
        for v in range(N):
            some = v < m and row[v] > least
            if v < m and row[v] == least and equal > 0:
                some = True
                equal -= 1
            labels[b, v] = some if v < m else -1
            if places[2]:
                used[b, v] = v if some else -1
            if some:
                x = np.float64(row[v])
                before = total
                total = before + x
                part = total - before
                rest += (before - (total - part)) + (x - part)
        values[b] = total + rest
        if places[3]:
            exact[b, 0], exact[b, 1] = total, rest


@subroutine
def _select(room, m, size):
    """The number of rank ``size``, from the largest on, of the first m; moves them."""
    first, last, k = 0, m - 1, size - 1
    while first < last:
        middle = (first + last) // 2
        one, two, three = room[first], room[middle], room[last]
        pivot = max(min(one, two), min(max(one, two), three))
        i, j = first, last
        while i <= j:
            while room[i] > pivot:
                i += 1
            while room[j] < pivot:
                j -= 1
            if i <= j:
                room[i], room[j] = room[j], room[i]
                i += 1
                j -= 1
        if k <= j:
            last = j
        elif k >= i:
            first = i
        else:
            break
    return room[k]
