"""Quickselect: the elements of highest scores, within bounds of their number."""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import carray


@kernel
def best_subset(first, last, address, shape, like, bounds, pointers):
    """Fill the best subset of each row, its score, and the elements that it uses.

    Scores ``[B, N]``, of the dtype of ``like``, are at an address; ``bounds[B]`` are
    smallest size, largest size and length. ``pointers`` are the addresses of labels
    ``[B, N]``, -1 past the length; of their scores ``[B]``; of int32 indices ``[B, N]``
    of chosen elements, -1 for none; and of the scores as two float64 ``[B, 2]``. The
    last two may be 0. O(N) on average.
    """
    B, N = shape
    scores, values = carray(address, shape, like), carray(pointers[1], (B,), like)
    labels, used = (
        carray(pointers[0], shape, np.int64),
        carray(pointers[2], shape, np.int32),
    )
    exact = carray(pointers[3], (B, 2), np.float64)
    buffer = arrays.empty(N, like.dtype)
    for b in range(first, last):
        low, high, m = bounds[b]
        row = scores[b]
        # All scores above the threshold are chosen, and the first num_ties equal to it.
        threshold, num_ties = 0.0, 0
        above = 0
        for v in range(m):
            above += row[v] > 0
        size = max(min(above, high), low)
        if size != above:
            for v in range(m):
                buffer[v] = row[v]
            threshold = _select_nth_largest(buffer, m, size) if size > 0 else np.inf
            num_ties = size
            for v in range(m):
                num_ties -= row[v] > threshold
        total, error = 0.0, 0.0
        for v in range(N):
            is_chosen = v < m and row[v] > threshold
            if v < m and row[v] == threshold and num_ties > 0:
                is_chosen = True
                num_ties -= 1
            labels[b, v] = is_chosen if v < m else -1
            if pointers[2]:
                used[b, v] = v if is_chosen else -1
            if is_chosen:
                x = np.float64(row[v])
                before = total
                total = before + x
                # TwoSum (Knuth): the rounding error of each addition is exact
                part = total - before
                error += (before - (total - part)) + (x - part)
        values[b] = total + error
        if pointers[3]:
            exact[b, 0], exact[b, 1] = total, error


@subroutine
def _select_nth_largest(buffer, m, rank):
    """Return the score of rank ``rank``, 1 the largest, of the first m; permute m."""
    first, last, k = 0, m - 1, rank - 1
    while first < last:
        middle = (first + last) // 2
        low_value, middle_value, high_value = (
            buffer[first],
            buffer[middle],
            buffer[last],
        )
        # median of three: sorted input stays linear
        pivot = max(
            min(low_value, middle_value), min(max(low_value, middle_value), high_value)
        )
        i, j = first, last
        while i <= j:
            while buffer[i] > pivot:
                i += 1
            while buffer[j] < pivot:
                j -= 1
            if i <= j:
                buffer[i], buffer[j] = buffer[j], buffer[i]
                i += 1
                j -= 1
        if k <= j:
            last = j
        elif k >= i:
            first = i
        else:
            break
    return buffer[k]
