"""Best boxes of images of signed cells, by best-first branch and bound.

A set of boxes is four intervals: of the first row, the first column, the last row and
the last column. No box of it scores more than what is positive in the largest box plus
what is negative in the smallest. Integral images give both from four numbers each.

The set of highest bound comes first. If it has one box, no box that is left scores
more, and it is listed. Else the longest of its intervals is halved. Sets are rows of
eight integers, the least and the largest of each interval, in one heap.

Source: Lampert, Blaschko and Hofmann, "Beyond Sliding Windows: Object Localization by
Efficient Subwindow Search" (2008), section 2; k best by going on.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy


@kernel
def best_box(first, last, cells, gold, weight, boxes, valid, num_visited):
    """Fill boxes[B, k, 4], exist[B, k] and visited[B], the sets that were looked at.

    Boxes are first row, first column, last row, last column. To the score of a box its
    cells are summed in ``cells`` [B, H, W] of float64, of which -inf forbid, and
    ``weight[b] (1 - IoU)`` with the box ``gold[b]`` is added if the weight is not 0.
    """
    _, H, W = cells.shape
    integral = arrays.zeros((3, H + 1, W + 1))
    # a heap of sets: bounds, the order in which they came, intervals
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
                bound, age = _doubled(bound), _doubled(age)
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
                if half[0] > half[5] or half[2] > half[7]:
                    continue
                # a box ends at or after its beginning
                half[1], half[3] = min(half[1], half[5]), min(half[3], half[7])
                half[4], half[6] = max(half[4], half[0]), max(half[6], half[2])
                top = _upper_bound(integral, half, gold[b], weight[b])
                if top > -np.inf:
                    _push_set(bound, age, sets, size, top, num_created, half)
                    size += 1
                num_created += 1


@subroutine
def _fill_integral_images(cells, integral):
    """Fill integral images of what is positive, of what is negative, and of -inf."""
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
    """The sum over a box, 0 if it ends before it begins."""
    if top > bottom or left > right:
        return 0.0
    right_side = image[bottom + 1, right + 1] - image[top, right + 1]
    return right_side - (image[bottom + 1, left] - image[top, left])


@subroutine
def _upper_bound(integral, box_set, gold, weight):
    """An upper bound on the scores of a set of boxes; the score if it holds one box.

    With the box G = ``gold``, the smallest box S and the largest L, it is

        sum of positive cells of L + sum of negative cells of S
            + weight (1 - |S and G| / |L or G|)

    since a box of the set meets G in no less than S, and its union with G is no larger
    than that of L. If S has a forbidden cell, so has each box of the set.
    """
    top, left, bottom, right = box_set[1], box_set[3], box_set[4], box_set[6]
    # every box of the set contains the smallest
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
def _doubled(array):
    larger = arrays.empty(2 * len(array), array.dtype)
    copy(array, larger[: len(array)])
    return larger


@subroutine(forceinline=True)
def _has_priority(bound, age, i, j):
    """Whether set i comes before j: the higher bound; of equal ones the later set."""
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
    """Remove the first set of ``size + 1``."""
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
