"""Efficient subwindow search: the k best boxes of an image of signed cells.

Best-first branch and bound over sets of boxes. A set is the product of four intervals:
of the first row, the first column, the last row and the last column. With L the largest
box of the set and S the smallest, each box of the set scores at most

    sum of positive cells of L + sum of negative cells of S

Integral images give each sum from four of their entries.

The set with the highest bound is popped from a heap. If it is a single box, no
remaining box scores more, and it is the next result. Otherwise its longest interval is
halved. A set is stored as eight integers: lower and upper end of each interval.

Source: Lampert, Blaschko and Hofmann, "Beyond Sliding Windows: Object Localization by
Efficient Subwindow Search" (2008), section 2. For the k best, the search continues
after the first box.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy


@kernel
def best_box(first, last, cells, gold, weight, boxes, valid, num_visited):
    """Fill boxes[B, k, 4], valid[B, k] and num_visited[B], the number of sets popped.

    A box is (first row, first column, last row, last column), inclusive; -1 where fewer
    than k boxes exist. Its score is the sum of its ``cells`` [B, H, W], float64, where
    -inf forbids, plus ``weight[b] (1 - IoU)`` with ``gold[b]`` if the weight is not 0.
    """
    _, H, W = cells.shape
    integral = arrays.zeros((3, H + 1, W + 1))
    # Binary heap of sets: bounds, creation numbers, intervals. 64 is a start; it
    # doubles.
    bound, age = arrays.empty(64), arrays.empty(64, np.int64)
    sets = arrays.empty((64, 8), np.int64)
    box_set, half = arrays.empty(8, np.int64), arrays.empty(8, np.int64)
    for b in range(first, last):
        _fill_integral_images(cells[b], integral)
        size = num_created = num_listed = 0
        num_visited[b] = 0
        for t in range(boxes.shape[1]):
            valid[b, t] = False
            for e in range(4):
                boxes[b, t, e] = -1
        for e in range(4):
            box_set[2 * e] = 0
            box_set[2 * e + 1] = (H if e % 2 == 0 else W) - 1
        top = (
            _upper_bound(integral, box_set, gold[b], weight[b])
            if H * W > 0
            else -np.inf
        )
        if top > -np.inf:
            _push_set(bound, age, sets, size, top, num_created, box_set)
            size, num_created = 1, 1
        while size > 0 and num_listed < boxes.shape[1]:
            copy(sets[0], box_set)
            size -= 1
            _pop_set(bound, age, sets, size)
            num_visited[b] += 1
            # branch on the longest interval; of equal lengths the first one
            widest = 0
            for e in range(1, 4):
                if (
                    box_set[2 * e + 1] - box_set[2 * e]
                    > box_set[2 * widest + 1] - box_set[2 * widest]
                ):
                    widest = e
            low, high = box_set[2 * widest], box_set[2 * widest + 1]
            if low == high:
                for e in range(4):
                    boxes[b, num_listed, e] = box_set[2 * e]
                valid[b, num_listed] = True
                num_listed += 1
                continue
            if size + 2 > len(bound):
                bound, age = (
                    _copy_to_doubled_length(bound),
                    _copy_to_doubled_length(age),
                )
                larger = arrays.empty((len(bound), 8), np.int64)
                copy(sets[:size].ravel(), larger[:size].ravel())
                sets = larger
            middle = (low + high) // 2
            for half_index in range(2):
                copy(box_set, half)
                if half_index == 0:
                    half[2 * widest + 1] = middle
                else:
                    half[2 * widest] = middle + 1
                # all boxes of the half would end before they begin
                if half[0] > half[5] or half[2] > half[7]:
                    continue
                # A box ends at or after its beginning, which tightens all four
                # intervals.
                half[1], half[3] = min(half[1], half[5]), min(half[3], half[7])
                half[4], half[6] = max(half[4], half[0]), max(half[6], half[2])
                top = _upper_bound(integral, half, gold[b], weight[b])
                if top > -np.inf:
                    _push_set(bound, age, sets, size, top, num_created, half)
                    size += 1
                # Counted for infeasible halves, too: creation numbers only order sets.
                num_created += 1


@subroutine
def _fill_integral_images(cells, integral):
    """Fill integral[3, H + 1, W + 1]: images of positive, negative and -inf cells.

    ``integral[c, i, j]`` is the sum over the first i rows and the first j columns.
    """
    H, W = cells.shape
    for i in range(H):
        positive = negative = forbidden = 0.0
        for j in range(W):
            x = cells[i, j]
            if x == -np.inf:
                forbidden += 1.0
            elif x > 0:
                positive += x
            else:
                negative += x
            integral[0, i + 1, j + 1] = integral[0, i, j + 1] + positive
            integral[1, i + 1, j + 1] = integral[1, i, j + 1] + negative
            integral[2, i + 1, j + 1] = integral[2, i, j + 1] + forbidden


@subroutine(forceinline=True)
def _box_sum(image, top, left, bottom, right):
    """Sum over an inclusive box from its integral image; 0 for an empty box."""
    if top > bottom or left > right:
        return 0.0
    # differences of one column first: they are smaller than the image's entries
    right_side = image[bottom + 1, right + 1] - image[top, right + 1]
    return right_side - (image[bottom + 1, left] - image[top, left])


@subroutine
def _upper_bound(integral, box_set, gold, weight):
    """Upper bound on the scores of a set of boxes; the exact score of a single box.

    With G = ``gold``, the smallest box S and the largest box L of the set, it is

        sum of positive cells of L + sum of negative cells of S
            + weight (1 - |S and G| / |L or G|)

    since each box of the set contains S and lies in L. If S has a forbidden cell, so
    has each box of the set, and the bound is -inf.
    """
    top, left, bottom, right = box_set[1], box_set[3], box_set[4], box_set[6]
    # each box of the set contains the smallest one
    if _box_sum(integral[2], top, left, bottom, right) > 0:
        return -np.inf
    total = _box_sum(integral[0], box_set[0], box_set[2], box_set[5], box_set[7])
    total += _box_sum(integral[1], top, left, bottom, right)
    if weight > 0:
        min_intersection = _box_area(
            max(top, gold[0]),
            max(left, gold[1]),
            min(bottom, gold[2]),
            min(right, gold[3]),
        )
        max_intersection = _box_area(
            max(box_set[0], gold[0]),
            max(box_set[2], gold[1]),
            min(box_set[5], gold[2]),
            min(box_set[7], gold[3]),
        )
        largest = _box_area(box_set[0], box_set[2], box_set[5], box_set[7])
        union = (
            largest + _box_area(gold[0], gold[1], gold[2], gold[3]) - max_intersection
        )
        total += weight * (1 - min_intersection / union)
    return total


@subroutine(forceinline=True)
def _box_area(top, left, bottom, right):
    return max(bottom - top + 1, 0) * max(right - left + 1, 0)


@subroutine
def _copy_to_doubled_length(array):
    """Return a copy of twice the length; its second half is not filled."""
    larger = arrays.empty(2 * len(array), array.dtype)
    copy(array, larger[: len(array)])
    return larger


@subroutine(forceinline=True)
def _has_priority(bound, age, i, j):
    """Whether set i precedes set j: by the higher bound, then by the later creation.

    Later sets are smaller, so that ties lead depth first to a single box.
    """
    return bound[i] > bound[j] or (bound[i] == bound[j] and age[i] > age[j])


@subroutine
def _swap_sets(bound, age, sets, i, j):
    bound[i], bound[j] = bound[j], bound[i]
    age[i], age[j] = age[j], age[i]
    for e in range(8):
        sets[i, e], sets[j, e] = sets[j, e], sets[i, e]


@subroutine
def _push_set(bound, age, sets, size, bound_value, age_value, box_set):
    bound[size], age[size] = bound_value, age_value
    sets[size] = box_set
    i = size
    while i > 0 and _has_priority(bound, age, i, (i - 1) // 2):
        _swap_sets(bound, age, sets, i, (i - 1) // 2)
        i = (i - 1) // 2


@subroutine
def _pop_set(bound, age, sets, size):
    """Move the root of a heap of ``size + 1`` sets behind its end."""
    _swap_sets(bound, age, sets, 0, size)
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            return
        if child + 1 < size and _has_priority(bound, age, child + 1, child):
            child += 1
        if not _has_priority(bound, age, child, i):
            return
        _swap_sets(bound, age, sets, i, child)
        i = child
