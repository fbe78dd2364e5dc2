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
def best_box(first, last, cells, gold, weight, boxes, exist, visited):
    """Fill boxes[B, k, 4], exist[B, k] and visited[B], the sets that were looked at.

    Boxes are first row, first column, last row, last column. To the score of a box its
    cells are summed in ``cells`` [B, H, W] of float64, of which -inf forbid, and
    ``weight[b] (1 - IoU)`` with the box ``gold[b]`` is added if the weight is not 0.
    """
    _, H, W = cells.shape
    sums = arrays.zeros((3, H + 1, W + 1))
    # a heap of sets: bounds, the order in which they came, intervals
    bound, age = arrays.empty(64), arrays.empty(64, np.int64)
    sets = arrays.empty((64, 8), np.int64)
    here, half = arrays.empty(8, np.int64), arrays.empty(8, np.int64)
    for b in range(first, last):
        _integrate(cells[b], sums)
        size = born = listed = 0
        visited[b] = 0
        for t in range(boxes.shape[1]):
            exist[b, t] = False
            for e in range(4):
                boxes[b, t, e] = -1
        for e in range(4):
            here[2 * e] = 0
            here[2 * e + 1] = (H if e % 2 == 0 else W) - 1
        top = _bound(sums, here, gold[b], weight[b]) if H * W > 0 else -np.inf
        if top > -np.inf:
            _push(bound, age, sets, size, top, born, here)
            size, born = 1, 1
        while size > 0 and listed < boxes.shape[1]:
            copy(sets[0], here)
            size -= 1
            _pop(bound, age, sets, size)
            visited[b] += 1
            widest = 0
            for e in range(1, 4):
                if (
                    here[2 * e + 1] - here[2 * e]
                    > here[2 * widest + 1] - here[2 * widest]
                ):
                    widest = e
            low, high = here[2 * widest], here[2 * widest + 1]
            if low == high:
                for e in range(4):
                    boxes[b, listed, e] = here[2 * e]
                exist[b, listed] = True
                listed += 1
                continue
            if size + 2 > len(bound):
                bound, age = _twice(bound), _twice(age)
                more = arrays.empty((len(bound), 8), np.int64)
                copy(sets[:size].ravel(), more[:size].ravel())
                sets = more
            middle = (low + high) // 2
            for part in range(2):
                copy(here, half)
                if part == 0:
                    half[2 * widest + 1] = middle
                else:
                    half[2 * widest] = middle + 1
                if half[0] > half[5] or half[2] > half[7]:
                    continue
                # a box ends at or after its beginning
                half[1], half[3] = min(half[1], half[5]), min(half[3], half[7])
                half[4], half[6] = max(half[4], half[0]), max(half[6], half[2])
                top = _bound(sums, half, gold[b], weight[b])
                if top > -np.inf:
                    _push(bound, age, sets, size, top, born, half)
                    size += 1
                born += 1


@subroutine
def _integrate(cells, sums):
    """Fill integral images of what is positive, of what is negative, and of -inf."""
    H, W = cells.shape
    for i in range(H):
        plus = minus = barred = 0.0
        for j in range(W):
            x = cells[i, j]
            if x == -np.inf:
                barred += 1.0
            elif x > 0:
                plus += x
            else:
                minus += x
            sums[0, i + 1, j + 1] = sums[0, i, j + 1] + plus
            sums[1, i + 1, j + 1] = sums[1, i, j + 1] + minus
            sums[2, i + 1, j + 1] = sums[2, i, j + 1] + barred


@subroutine(forceinline=True)
def _inside(image, top, left, bottom, right):
    """The sum over a box, 0 if it ends before it begins."""
    if top > bottom or left > right:
        return 0.0
    ends = image[bottom + 1, right + 1] - image[top, right + 1]
    return ends - (image[bottom + 1, left] - image[top, left])


@subroutine
def _bound(sums, box, gold, weight):
    """An upper bound on the scores of a set of boxes; the score if it holds one box.

    With the box G = ``gold``, the smallest box S and the largest L, it is

        sum of positive cells of L + sum of negative cells of S
            + weight (1 - |S and G| / |L or G|)

    since a box of the set meets G in no less than S, and its union with G is no larger
    than that of L. If S has a forbidden cell, so has each box of the set.
    """
    top, left, bottom, right = box[1], box[3], box[4], box[6]
    # every box of the set contains the smallest
    if _inside(sums[2], top, left, bottom, right) > 0:
        return -np.inf
    total = _inside(sums[0], box[0], box[2], box[5], box[7])
    total += _inside(sums[1], top, left, bottom, right)
    if weight > 0:
        both = _area(
            max(top, gold[0]),
            max(left, gold[1]),
            min(bottom, gold[2]),
            min(right, gold[3]),
        )
        shared = _area(
            max(box[0], gold[0]),
            max(box[2], gold[1]),
            min(box[5], gold[2]),
            min(box[7], gold[3]),
        )
        largest = _area(box[0], box[2], box[5], box[7])
        every = largest + _area(gold[0], gold[1], gold[2], gold[3]) - shared
        total += weight * (1 - both / every)
    return total


@subroutine(forceinline=True)
def _area(top, left, bottom, right):
    return max(bottom - top + 1, 0) * max(right - left + 1, 0)


@subroutine
def _twice(array):
    more = arrays.empty(2 * len(array), array.dtype)
    copy(array, more[: len(array)])
    return more


@subroutine(forceinline=True)
def _before(bound, age, i, j):
    """Whether set i comes before j: the higher bound; of equal ones the later set."""
    return bound[i] > bound[j] or (bound[i] == bound[j] and age[i] > age[j])


@subroutine
def _swap(bound, age, sets, i, j):
    bound[i], bound[j] = bound[j], bound[i]
    age[i], age[j] = age[j], age[i]
    for e in range(8):
        sets[i, e], sets[j, e] = sets[j, e], sets[i, e]


@subroutine
def _push(bound, age, sets, size, top, born, box):
    bound[size], age[size] = top, born
    sets[size] = box
    i = size
    while i > 0 and _before(bound, age, i, (i - 1) // 2):
        _swap(bound, age, sets, i, (i - 1) // 2)
        i = (i - 1) // 2


@subroutine
def _pop(bound, age, sets, size):
    """Remove the first set of ``size + 1``."""
    _swap(bound, age, sets, 0, size)
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            return
        if child + 1 < size and _before(bound, age, child + 1, child):
            child += 1
        if not _before(bound, age, child, i):
            return
        _swap(bound, age, sets, i, child)
        i = child
