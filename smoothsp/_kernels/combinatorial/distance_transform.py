"""Generalised distance transforms: best locations of a pictorial structure's parts.

A part has a score at each location of a grid, ``scores`` [B, P, H, W], float64, -inf to
forbid. If the parent is at q, a part at l costs ``b d + a d^2`` for rows and for
columns, where ``d = l - q - anchor`` and ``a >= 0``. ``springs`` [B, P, 4] are b and a
of rows, then of columns; ``anchors`` [B, P, 2] are a row and a column. ``parents`` [P]
are -1 at roots, and ``order`` [P] lists each part after its parent.

The message of a part to its parent is a generalised distance transform of its scores:
rows and columns in turn, each the upper envelope of parabolas, in O(H W) together.

    total(p, l) = scores(p, l) + sum over children c of p of up(c, l)
    up(p, q)    = max over l of total(p, l) - spring(l - q - anchor)

from the last part of the order to the first. Locations are then read from the stored
maximisers, from roots to leaves.

Source: Felzenszwalb and Huttenlocher, "Distance Transforms of Sampled Functions"
(2004, 2012) and "Pictorial Structures for Object Recognition" (2005).
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy


@kernel
def best_locations(
    first, last, scores, springs, anchors, parents, order, locations, feasible
):
    """Fill locations[B, P, 2], row and column of each part, and feasible[B]."""
    _, P, H, W = scores.shape
    total, message = arrays.empty((P, H, W)), arrays.empty((H, W))
    rows, columns = arrays.empty((2, P, H, W), np.int32)
    scratch = _make_scratch(H, W)
    for b in range(first, last):
        copy(scores[b].ravel(), total.ravel())
        feasible[b] = True
        for i in range(P - 1, -1, -1):
            p = order[i]
            if parents[p] < 0:
                continue
            spring, anchor = springs[b, p], anchors[b, p]
            _transform_2d(
                total[p], spring, anchor, 1.0, message, rows[p], columns[p], scratch
            )
            total[parents[p]] += message
        for i in range(P):
            p = order[i]
            if parents[p] >= 0:
                r, c = locations[b, parents[p], 0], locations[b, parents[p], 1]
                locations[b, p, 0] = rows[p, r, c]
                # the transform ran over columns first, then over rows, so it is undone
                # in reverse
                locations[b, p, 1] = columns[p, rows[p, r, c], c]
                continue
            top = -np.inf
            locations[b, p, 0] = locations[b, p, 1] = 0
            for r in range(H):
                for c in range(W):
                    if total[p, r, c] > top:
                        top = total[p, r, c]
                        locations[b, p, 0], locations[b, p, 1] = r, c
            if top == -np.inf:
                feasible[b] = False


@kernel
def max_marginals(first, last, scores, springs, anchors, parents, order, highest):
    """Fill highest[B, P, H, W]: the maximum over outputs with part p at a location.

    A message from the parent to a part uses the mirrored spring. With q a location of
    the parent, and c its other children,

        down(p, l)    = max over q of scores(parent, q) + down(parent, q)
                          + sum over c of up(c, q) - spring(l - q - anchor)
        highest(p, l) = total(p, l) + down(p, l) + the maxima of all other trees
    """
    _, P, H, W = scores.shape
    up, down = arrays.empty((P, H, W)), arrays.empty((P, H, W))
    parent_scores = arrays.empty((H, W))
    max_root_scores, roots = arrays.empty(P), arrays.empty(P, np.int64)
    rows, columns = arrays.empty((2, H, W), np.int32)
    scratch = _make_scratch(H, W)
    for b in range(first, last):
        total = highest[b]
        copy(scores[b].ravel(), total.ravel())
        for i in range(P - 1, -1, -1):
            p = order[i]
            if parents[p] >= 0:
                spring, anchor = springs[b, p], anchors[b, p]
                _transform_2d(
                    total[p], spring, anchor, 1.0, up[p], rows, columns, scratch
                )
                total[parents[p]] += up[p]
        for i in range(P):
            p = order[i]
            parent = parents[p]
            roots[p] = p if parent < 0 else roots[parent]
            if parent < 0:
                down[p] = 0.0
                max_root_scores[p] = total[p].max()
                continue
            # siblings are summed anew: to subtract up[p] from the total would give inf
            # - inf
            parent_scores[:] = scores[b, parent] + down[parent]
            for sibling in range(P):
                if parents[sibling] == parent and sibling != p:
                    parent_scores += up[sibling]
            spring, anchor = springs[b, p], anchors[b, p]
            _transform_2d(
                parent_scores, spring, anchor, -1.0, down[p], rows, columns, scratch
            )
        for p in range(P):
            total[p] += down[p]
            for sibling in range(P):
                if parents[sibling] < 0 and sibling != roots[p]:
                    total[p] += max_root_scores[sibling]


@subroutine
def _make_scratch(H, W):
    """Scratch for one transform of an H by W grid: half, lines and integers."""
    N = max(H, W)
    return arrays.empty((H, W)), arrays.empty((4, N)), arrays.empty((2, N), np.int32)


@subroutine
def _transform_2d(scores, spring, anchor, direction, message, rows, columns, scratch):
    """Fill message[q] = max over l of scores[l] less the spring at l - q - anchor.

    The maximiser of q is at row ``rows[q]`` and, in that row, at the column that
    ``columns`` has for q's column. ``direction`` -1 exchanges the ends of the spring.
    """
    H, W = scores.shape
    half, lines, ints = scratch
    line, values, chosen = lines[0], lines[1], ints[1]
    hull = lines[2], lines[3], ints[0]
    axis_spring = direction * spring[2], spring[3], direction * anchor[1]
    for r in range(H):
        _transform_1d(scores[r], W, axis_spring, half[r], columns[r], hull)
    axis_spring = direction * spring[0], spring[1], direction * anchor[0]
    for c in range(W):
        for r in range(H):
            line[r] = half[r, c]
        _transform_1d(line, H, axis_spring, values, chosen, hull)
        for r in range(H):
            message[r, c], rows[r, c] = values[r], chosen[r]


@subroutine
def _transform_1d(scores, N, spring, values, chosen, hull_scratch):
    """Fill values[q] = max over l of ``scores[l] - b d - a d^2``, d = l - q - shift.

    With u = q + shift and up to terms without l, this is the line
    ``2 a l u + (scores[l] - b l - a l^2)`` in u, whose slope grows with l. The upper
    envelope is built from left to right, then scanned. ``spring`` is (b, a, shift).
    """
    b, a, shift = spring
    heights, starts, hull = hull_scratch
    size = 0
    for l in range(N):  # noqa: E741
        if scores[l] == -np.inf:
            continue
        height = scores[l] - b * l - a * l * l
        start = -np.inf
        while size > 0:
            k = hull[size - 1]
            # where line l exceeds line k; parallel lines differ by a constant
            if a > 0:
                start = (heights[size - 1] - height) / (2 * a * (l - k))
            else:
                start = np.inf if heights[size - 1] >= height else -np.inf
            if start > starts[size - 1]:
                break
            size -= 1
            start = -np.inf
        if start < np.inf:
            hull[size], heights[size], starts[size] = l, height, start
            size += 1
    segment = 0
    for q in range(N):
        u = q + shift
        while segment + 1 < size and starts[segment + 1] <= u:
            segment += 1
        values[q], chosen[q] = -np.inf, 0
        # rounding may move a start past u: the neighbouring lines are compared, too
        for candidate in range(max(segment - 1, 0), min(segment + 2, size)):
            d = hull[candidate] - u
            value = scores[hull[candidate]] - b * d - a * d * d
            if value > values[q]:
                values[q], chosen[q] = value, hull[candidate]
