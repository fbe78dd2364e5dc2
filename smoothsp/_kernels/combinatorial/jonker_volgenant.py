"""Jonker-Volgenant algorithm: best assignments, by shortest augmenting paths.

``tables`` are float64 scores ``[B, N, N]``, -inf to forbid; the solver works on costs,
minus the scores. ``u`` and ``v`` are the dual variables that certify a maximum:
``u[i] + v[j] >= score[i, j]``, with equality where row i has column j.
"""

from typing import Any, NamedTuple

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import carray, copy


@kernel
def is_feasible(address, shape, like, partial, feasible):
    """Fill feasible[B]: whether a matching with finite scores exists.

    Scores ``[B, P, Q]``, of the dtype of ``like``, are at an address; with ``partial``
    they are ``[B, P, Q + 1]``, and the last column leaves a row unmatched. Augmenting
    paths start from the smaller side. O(P Q) unless few pairs are allowed.
    """
    B, P, Q = shape
    scores = carray(address, shape, like)
    Q -= 1 if partial else 0
    is_transposed = P > Q and not partial
    num_rows, num_columns = (Q, P) if is_transposed else (P, Q)
    mate, before = (
        arrays.empty(num_columns, np.int64),
        arrays.empty(num_columns, np.int64),
    )
    queue = arrays.empty(num_columns, np.int64)
    for b in range(B):
        mate[:] = -1
        feasible[b] = True
        for i in range(num_rows):
            # a row that may remain unmatched imposes no constraint
            if partial and scores[b, i, Q] > -np.inf:
                continue
            if not _augment_matching(
                scores[b], i, is_transposed, num_columns, mate, before, queue
            ):
                feasible[b] = False
                break


@subroutine
def _augment_matching(
    scores, start, is_transposed, num_columns, row_of_column, previous_row, queue
):
    """Match one more row by an augmenting path; return whether there is one."""
    previous_row[:] = -1
    next_index, count, i = 0, 0, start
    # breadth-first search along alternating paths
    while True:
        for j in range(num_columns):
            score = scores[j, i] if is_transposed else scores[i, j]
            if previous_row[j] < 0 and score > -np.inf:
                previous_row[j] = i
                if row_of_column[j] < 0:
                    while True:
                        i = previous_row[j]
                        last = j
                        j = -1
                        for k in range(num_columns):
                            if row_of_column[k] == i and k != last:
                                j = k
                        row_of_column[last] = i
                        if i == start:
                            return True
                queue[count] = j
                count += 1
        if next_index == count:
            return False
        i = row_of_column[queue[next_index]]
        next_index += 1


@kernel
def indices_of_pairs(sizes, pointers, partial):
    """Fill used[R, P] with flat indices of the scores that labels[R, P] use.

    The scores are ``[P, C]``. -1 for rows without a column; with ``partial``, the last
    column's entry instead. ``sizes`` are (R, P, C), ``pointers`` the addresses of
    labels and used. Return the first r whose labels are no matching, -1 if all are
    matchings.
    """
    R, P, C = sizes
    labels, used = (
        carray(pointers[0], (R, P), np.int64),
        carray(pointers[1], (R, P), np.int64),
    )
    Q = C - 1 if partial else C
    is_used, first_invalid = arrays.empty(Q, np.bool_), -1
    for r in range(R):
        is_used[:] = False
        num_unmatched, is_matching = 0, True
        for i in range(P):
            j = labels[r, i]
            if 0 <= j < Q:
                used[r, i] = i * C + j
                is_matching &= not is_used[j]
                is_used[j] = True
            else:
                used[r, i] = i * C + Q if partial else -1
                is_matching &= j == -1
                num_unmatched += 1
        if not partial:
            # a full matching leaves rows unmatched only for lack of columns
            is_matching &= num_unmatched == max(P - Q, 0)
        if first_invalid < 0 and not is_matching:
            first_invalid = r
    return first_invalid


@kernel
def score_assignments(scores, unmatched_column, labels, values):
    """Fill values[B, K] with the scores of labels[B, K, P].

    A row of label -1 scores as in column ``unmatched_column``, or 0 if that is -1.
    """
    for b in range(len(labels)):
        for k in range(labels.shape[1]):
            total = 0.0
            for i in range(labels.shape[2]):
                j = labels[b, k, i] if labels[b, k, i] >= 0 else unmatched_column
                if j >= 0:
                    total += scores[b, i, j]
            values[b, k] = total


@kernel
def decode_assignment(first, last, address, shape, partial, columns, values, feasible):
    """Fill columns[B, P] of each row, -1 for none, values[B] and feasible[B].

    Scores ``[B, P, Q]``, or ``[B, P, Q + 1]`` with ``partial``, of the dtype of
    ``values``, are at an address. Costs are padded to a square with 0. O(N^3).
    """
    _, P, C = shape
    scores = carray(address, shape, values)
    Q = C - 1 if partial else C
    is_transposed = P > Q and not partial
    N = P + Q if partial else max(P, Q)
    cost = arrays.empty((N, N))
    mate, rows = arrays.empty(N, np.int64), arrays.empty(N, np.int64)
    int_scratch, float_scratch = arrays.empty((3, N), np.int64), arrays.empty((5, N))
    for b in range(first, last):
        cost[:] = 0.0
        for i in range(P):
            for j in range(Q):
                score = np.float64(scores[b, i, j])
                if is_transposed:
                    cost[j, i] = -score
                else:
                    cost[i, j] = -score
            # each row has a column for itself that leaves it unmatched
            if partial:
                cost[i, Q:] = np.inf
                cost[i, Q + i] = -np.float64(scores[b, i, Q])
        u, v = float_scratch[0], float_scratch[1]
        feasible[b] = _solve_assignment(
            cost, mate, rows, u, v, int_scratch, float_scratch[2:]
        )
        total = 0.0
        for i in range(P):
            j = rows[i] if is_transposed else mate[i]
            columns[b, i] = j if 0 <= j < Q else -1
            if columns[b, i] >= 0 or partial:
                # from the scores: a sum of duals has more rounding
                total += scores[b, i, j if 0 <= j < Q else Q]
        values[b] = total


@kernel
def best_assignment(first, last, scores, columns, u, v, feasible):
    """Fill columns[B, N] of each row, duals u[B, N] and v[B, N], and feasible[B].

    Column reduction, augmenting row reduction, then shortest augmenting paths for the
    remaining rows. O(N^3).

    Source: Jonker and Volgenant, "A Shortest Augmenting Path Algorithm for Dense and
    Sparse Linear Assignment Problems" (1987).
    """
    N = scores.shape[1]
    cost = arrays.empty((N, N))
    rows = arrays.empty(N, np.int64)
    int_scratch, float_scratch = arrays.empty((3, N), np.int64), arrays.empty((3, N))
    for b in range(first, last):
        for i in range(N):
            for j in range(N):
                cost[i, j] = -scores[b, i, j]
        feasible[b] = _solve_assignment(
            cost, columns[b], rows, u[b], v[b], int_scratch, float_scratch
        )
        for i in range(N):
            # duals of the costs are minus those of the scores
            u[b, i], v[b, i] = -u[b, i], -v[b, i]


@subroutine
def _solve_assignment(cost, columns, rows, u, v, int_scratch, float_scratch):
    """Match all rows at minimal cost; return whether that is possible."""
    N = len(cost)
    free_rows, prev = int_scratch[0], int_scratch[1]
    columns[:] = -1
    rows[:] = -1
    u[:] = 0.0
    v[:] = np.inf
    for i in range(N):
        for j in range(N):
            if cost[i, j] < v[j]:
                v[j] = cost[i, j]
                prev[j] = i
    # column reduction: each column takes its cheapest row, if that is still free
    for j in range(N - 1, -1, -1):
        if v[j] == np.inf:
            return False
        if columns[prev[j]] < 0:
            columns[prev[j]] = j
            rows[j] = prev[j]
    count = 0
    for i in range(N):
        if columns[i] < 0:
            free_rows[count] = i
            count += 1
    # two rounds, as in the paper: later rounds match few more rows
    for _ in range(2):
        count = _augmenting_row_reduction(cost, columns, rows, v, free_rows, count)
    for i in range(N):
        if columns[i] >= 0:
            u[i] = cost[i, columns[i]] - v[columns[i]]
    distance, column_duals, final_distance = float_scratch
    search = PathSearch(column_duals, distance, prev, int_scratch[2], final_distance)
    for i in free_rows[:count]:
        copy(v, column_duals)
        sink, path_length, num_scanned = shortest_augmenting_path(
            cost, rows, u, i, np.inf, search
        )
        if sink < 0:
            return False
        update_duals(
            rows, u, v, i, final_distance, int_scratch[2], num_scanned, path_length
        )
        augment_matching(columns, rows, prev, i, sink)
    return True


@subroutine
def _augmenting_row_reduction(cost, columns, rows, v, free_rows, count):
    """Match free rows with their cheapest columns, and lower the columns' duals.

    A dual falls until the second cheapest column is equally cheap. The column's
    previous row becomes free. Return the number of rows that remain free.
    """
    N = len(cost)
    next_index = num_left = 0
    # rows may displace each other many times: the remaining ones take shortest paths
    steps_left = 4 * N
    while next_index < count:
        i = free_rows[next_index]
        next_index += 1
        min_cost, second_cost, j = np.inf, np.inf, -1
        second_column = -1
        for c in range(N):
            h = cost[i, c] - v[c]
            if h < second_cost:
                if h < min_cost:
                    second_cost, second_column = min_cost, j
                    min_cost, j = h, c
                else:
                    second_cost, second_column = h, c
        if j < 0:
            free_rows[num_left] = i
            num_left += 1
            continue
        steps_left -= 1
        gap = second_cost - min_cost
        if not (gap > 0 and gap < np.inf) and rows[j] >= 0:
            # the dual stays; another column of the same cost may be free
            if gap == 0 and rows[second_column] < 0:
                j = second_column
            else:
                free_rows[num_left] = i
                num_left += 1
                continue
        elif gap < np.inf:
            v[j] -= gap
        previous_row = rows[j]
        columns[i], rows[j] = j, i
        if previous_row >= 0:
            columns[previous_row] = -1
            if steps_left > 0:
                next_index -= 1
                free_rows[next_index] = previous_row
            else:
                free_rows[num_left] = previous_row
                num_left += 1
    return num_left


class PathSearch(NamedTuple):
    """Arrays of a shortest augmenting path search, ``[N]`` each."""

    column_duals: Any  # duals of the columns, -inf at closed ones; overwritten
    distance: Any  # tentative distances, inf at scanned columns
    prev: Any  # the row before each column
    order: Any  # columns in the order in which they were scanned
    final_distance: Any  # distances of the scanned columns


@subroutine
def shortest_augmenting_path(cost, rows, u, start, bound, search):
    """Return the nearest free column from a row, its distance, and the columns scanned.

    Dijkstra's algorithm over reduced costs: ``distance[j]`` is the minimum, over
    scanned rows i, of ``d - u[i] + cost[i, j] - column_duals[j]``, with d the distance
    of i. The row matched with the nearest column is scanned next. The column is -1 if
    none is nearer than ``bound``.
    """
    column_duals, distance, prev, order, final_distance = search
    N = len(cost)
    distance[:] = np.inf
    i, path_length, num_scanned = start, 0.0, 0
    while True:
        base = path_length - u[i]
        min_distance, nearest = np.inf, -1
        for j in range(N):
            # closed columns have h = inf, since their dual is -inf
            h = base + cost[i, j] - column_duals[j]
            distance_j = distance[j]
            if h < distance_j:
                distance[j] = distance_j = h
                prev[j] = i
            if distance_j < min_distance:
                min_distance, nearest = distance_j, j
            # of equal distances a free column, which ends the search
            elif distance_j == min_distance and rows[j] < 0:
                nearest = j
        if not min_distance < bound:
            return -1, min_distance, num_scanned
        path_length = (
            # distances cannot decrease, but for rounding; the first may be negative
            max(min_distance, path_length) if num_scanned > 0 else min_distance
        )
        if rows[nearest] < 0:
            return nearest, path_length, num_scanned
        order[num_scanned], final_distance[num_scanned] = nearest, min_distance
        num_scanned += 1
        column_duals[nearest], distance[nearest] = -np.inf, np.inf
        i = rows[nearest]


@subroutine
def update_duals(rows, u, v, start, final_distance, order, num_scanned, path_length):
    """Update the duals after a shortest augmenting path of length ``path_length``."""
    u[start] += path_length
    for k in range(num_scanned):
        j = order[k]
        gain = path_length - final_distance[k]
        u[rows[j]] += gain
        v[j] -= gain


@subroutine
def augment_matching(columns, rows, prev, start, sink):
    """Move each row of the path from ``start`` to ``sink`` to its next column."""
    j = sink
    while True:
        i = prev[j]
        rows[j] = i
        columns[i], j = j, columns[i]
        if i == start:
            return


@kernel
def max_marginal_gaps(first, last, scores, columns, u, v, gap):
    """Fill gap[B, N, N]: the loss of the maximum if row i must have column j.

    Shortest alternating paths between all pairs of rows: to force i onto j moves j's
    row along a path that ends at i's column. inf if no path exists. O(N^3), by Floyd
    and Warshall. With the reduced costs ``r(i, j) = u(i) + v(j) - score(i, j)``,

        path(i, k) = r(i, column of k), then for each h in turn
        path(i, k) = min(path(i, k), path(i, h) + path(h, k))
        gap(i, j)  = r(i, j) + path(row of j, i)

    The inner loop runs over k, along rows.

    Source: Duchi et al., "Using Combinatorial Optimization within Max-Product Belief
    Propagation" (2006), with reduced costs as weights.
    """
    N = scores.shape[1]
    distances = arrays.empty((N, N))
    rows = arrays.empty(N, np.int64)
    for b in range(first, last):
        for i in range(N):
            rows[columns[b, i]] = i
        for i in range(N):
            for k in range(N):
                j = columns[b, k]
                reduced = u[b, i] + v[b, j] - scores[b, i, j]
                # negative only by rounding; Floyd-Warshall needs no negative cycles
                distances[i, k] = max(reduced, 0.0) if i != k else 0.0
        for k in range(N):
            for i in range(N):
                distance_to_k = distances[i, k]
                if distance_to_k < np.inf and i != k:
                    for j in range(N):
                        distances[i, j] = min(
                            distances[i, j], distance_to_k + distances[k, j]
                        )
        for i in range(N):
            for j in range(N):
                reduced = u[b, i] + v[b, j] - scores[b, i, j]
                path_back = distances[rows[j], i]
                gap[b, i, j] = max(reduced, 0.0) + path_back if rows[j] != i else 0.0
