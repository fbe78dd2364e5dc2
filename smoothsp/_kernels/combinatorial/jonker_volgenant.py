"""Best assignments of rows to columns, by shortest augmenting paths.

``tables`` are ``[B, N, N]`` of float64 scores, -inf to forbid. Inside they are costs;
``u`` and ``v`` are the prices that prove a maximum: ``u[i] + v[j] >= score[i, j]``,
equal where i has j.
"""

from typing import Any, NamedTuple

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import carray, copy


@kernel
def is_feasible(address, shape, like, partial, found):
    """Fill found[B]: whether there is a matching of pairs above -inf.

    Of scores ``[B, P, Q]`` at an address, of the type of ``like``, or with ``partial``
    ``[B, P, Q + 1]``, where the last column leaves a row alone. The fewer look for the
    others, along alternating paths. O(P Q) unless few pairs are allowed.
    """
    B, P, Q = shape
    scores = carray(address, shape, like)
    Q -= 1 if partial else 0
    turned = P > Q and not partial
    seekers, others = (Q, P) if turned else (P, Q)
    mate, before = arrays.empty(others, np.int64), arrays.empty(others, np.int64)
    queue = arrays.empty(others, np.int64)
    for b in range(B):
        mate[:] = -1
        found[b] = True
        for i in range(seekers):
            if partial and scores[b, i, Q] > -np.inf:
                continue
            if not _find_mate(scores[b], i, turned, others, mate, before, queue):
                found[b] = False
                break


@subroutine
def _find_mate(scores, start, turned, others, mate, before, queue):
    """Match one more, and move the mates of others for it; whether that is possible."""
    before[:] = -1
    carray, count, i = 0, 0, start
    while True:
        for j in range(others):
            score = scores[j, i] if turned else scores[i, j]
            if before[j] < 0 and score > -np.inf:
                before[j] = i
                if mate[j] < 0:
                    while True:
                        i = before[j]
                        last = j
                        j = -1
                        for k in range(others):
                            if mate[k] == i and k != last:
                                j = k
                        mate[last] = i
                        if i == start:
                            return True
                queue[count] = j
                count += 1
        if carray == count:
            return False
        i = mate[queue[carray]]
        carray += 1


@kernel
def indices_of_pairs(sizes, places, partial):
    """Fill used[R, P] with the entries of a row's scores that labels[R, P] use.

    Of scores ``[P, C]``, -1 for none; with ``partial`` in the last column those of rows
    without a column. ``sizes`` are R, P and C, ``places`` the addresses of both.
    Returns the first r whose labels are no matching, -1 if all are.
    """
    R, P, C = sizes
    labels, used = (
        carray(places[0], (R, P), np.int64),
        carray(places[1], (R, P), np.int64),
    )
    Q = C - 1 if partial else C
    taken, first = arrays.empty(Q, np.bool_), -1
    for r in range(R):
        taken[:] = False
        alone, fine = 0, True
        for i in range(P):
            j = labels[r, i]
            if 0 <= j < Q:
                used[r, i] = i * C + j
                fine &= not taken[j]
                taken[j] = True
            else:
                used[r, i] = i * C + Q if partial else -1
                fine &= j == -1
                alone += 1
        if not partial:
            fine &= alone == max(P - Q, 0)
        if first < 0 and not fine:
            first = r
    return first


@kernel
def score_assignments(scores, alone, labels, values):
    """Fill values[B, K] with the scores of labels[B, K, P].

    A row without a column, label -1, scores as in column ``alone``; 0 if that is -1.
    """
    for b in range(len(labels)):
        for k in range(labels.shape[1]):
            total = 0.0
            for i in range(labels.shape[2]):
                j = labels[b, k, i] if labels[b, k, i] >= 0 else alone
                if j >= 0:
                    total += scores[b, i, j]
            values[b, k] = total


@kernel
def decode_assignment(first, last, address, shape, partial, columns, values, found):
    """Fill columns[B, P] of each row, -1 for none, the scores values[B], and found[B].

    The scores ``[B, P, Q]``, or ``[B, P, Q + 1]`` with ``partial``, of the type of the
    values, are at an address. Rows that are left meet padding of score 0. O(N^3).
    """
    _, P, C = shape
    scores = carray(address, shape, values)
    Q = C - 1 if partial else C
    turned = P > Q and not partial
    N = P + Q if partial else max(P, Q)
    cost = arrays.empty((N, N))
    mate, rows = arrays.empty(N, np.int64), arrays.empty(N, np.int64)
    ints, floats = arrays.empty((3, N), np.int64), arrays.empty((5, N))
    for b in range(first, last):
        cost[:] = 0.0
        for i in range(P):
            for j in range(Q):
                score = np.float64(scores[b, i, j])
                if turned:
                    cost[j, i] = -score
                else:
                    cost[i, j] = -score
            if partial:
                cost[i, Q:] = np.inf
                cost[i, Q + i] = -np.float64(scores[b, i, Q])
        u, v = floats[0], floats[1]
        found[b] = _assign(cost, mate, rows, u, v, ints, floats[2:])
        total = 0.0
        for i in range(P):
            j = rows[i] if turned else mate[i]
            columns[b, i] = j if 0 <= j < Q else -1
            if columns[b, i] >= 0 or partial:
                total += scores[b, i, j if 0 <= j < Q else Q]
        values[b] = total


@kernel
def best_assignment(first, last, tables, columns, u, v, found):
    """Fill columns[B, N] of each row's column, prices u and v ``[B, N]``, found[B].

    Columns take their cheapest row, rows that are left bid for columns, and the rest go
    by shortest augmenting paths. O(N^3).

    Source: Jonker and Volgenant, "A Shortest Augmenting Path Algorithm for Dense and
    Sparse Linear Assignment Problems" (1987).
    """
    N = tables.shape[1]
    cost = arrays.empty((N, N))
    rows = arrays.empty(N, np.int64)
    ints, floats = arrays.empty((3, N), np.int64), arrays.empty((3, N))
    for b in range(first, last):
        for i in range(N):
            for j in range(N):
                cost[i, j] = -tables[b, i, j]
        found[b] = _assign(cost, columns[b], rows, u[b], v[b], ints, floats)
        for i in range(N):
            u[b, i], v[b, i] = -u[b, i], -v[b, i]


@subroutine
def _assign(cost, columns, rows, u, v, ints, floats):
    """Match all rows; return whether that is possible."""
    N = len(cost)
    free, prev = ints[0], ints[1]
    columns[:] = -1
    rows[:] = -1
    u[:] = 0.0
    v[:] = np.inf
    for i in range(N):
        for j in range(N):
            if cost[i, j] < v[j]:
                v[j] = cost[i, j]
                prev[j] = i
    for j in range(N - 1, -1, -1):
        if v[j] == np.inf:
            return False
        if columns[prev[j]] < 0:
            columns[prev[j]] = j
            rows[j] = prev[j]
    count = 0
    for i in range(N):
        if columns[i] < 0:
            free[count] = i
            count += 1
    for _ in range(2):
        count = _bid(cost, columns, rows, v, free, count)
    for i in range(N):
        if columns[i] >= 0:
            u[i] = cost[i, columns[i]] - v[columns[i]]
    reach, opened, passed = floats
    search = Search(opened, reach, prev, ints[2], passed)
    for i in free[:count]:
        copy(v, opened)
        sink, total, steps = shortest(cost, rows, u, i, np.inf, search)
        if sink < 0:
            return False
        reprice(rows, u, v, i, passed, ints[2], steps, total)
        augment(columns, rows, prev, i, sink)
    return True


@subroutine
def _bid(cost, columns, rows, v, free, count):
    """Give each free row its cheapest column, and lower the column's price.

    The price falls until the second cheapest column costs the row as much; the row that
    had the column becomes free. Returns how many rows still are.
    """
    N = len(cost)
    carray = left = 0
    patience = 4 * N
    while carray < count:
        i = free[carray]
        carray += 1
        low, second, j = np.inf, np.inf, -1
        other = -1
        for c in range(N):
            h = cost[i, c] - v[c]
            if h < second:
                if h < low:
                    second, other = low, j
                    low, j = h, c
                else:
                    second, other = h, c
        if j < 0:
            free[left] = i
            left += 1
            continue
        patience -= 1
        gap = second - low
        if not (gap > 0 and gap < np.inf) and rows[j] >= 0:
            # the price stays: another column may cost as little, and be free
            if gap == 0 and rows[other] < 0:
                j = other
            else:
                free[left] = i
                left += 1
                continue
        elif gap < np.inf:
            v[j] -= gap
        before = rows[j]
        columns[i], rows[j] = j, i
        if before >= 0:
            columns[before] = -1
            if patience > 0:
                carray -= 1
                free[carray] = before
            else:
                free[left] = before
                left += 1
    return left


class Search(NamedTuple):
    """What a search for a shortest path fills, ``[N]`` each."""

    opened: Any  # prices of the columns, -inf for those that are closed; used up
    reach: Any  # least distances of columns that were not passed
    prev: Any  # the row before each column
    order: Any  # the columns passed
    passed: Any  # their distances


@subroutine
def shortest(cost, rows, u, start, bound, search):
    """The nearest free column from a row: it, its distance, and how many were passed.

    Dijkstra over reduced costs: ``reach[j]`` is the least, over the rows i passed, of
    ``d - u[i] + cost[i, j] - opened[j]``, with d the distance of i. The row that has
    the nearest column is next. -1 for the column where none is nearer than ``bound``.
    """
    opened, reach, prev, order, passed = search
    N = len(cost)
    reach[:] = np.inf
    i, total, steps = start, 0.0, 0
    while True:
        base = total - u[i]
        low, found = np.inf, -1
        for j in range(N):
            # inf where the column is closed
            h = base + cost[i, j] - opened[j]
            near = reach[j]
            if h < near:
                reach[j] = near = h
                prev[j] = i
            if near < low:
                low, found = near, j
            elif near == low and rows[j] < 0:
                # of equally near ones a free column ends the search
                found = j
        if not low < bound:
            return -1, low, steps
        total = max(low, total) if steps > 0 else low
        if rows[found] < 0:
            return found, total, steps
        order[steps], passed[steps] = found, low
        steps += 1
        opened[found], reach[found] = -np.inf, np.inf
        i = rows[found]


@subroutine
def reprice(rows, u, v, start, passed, order, steps, total):
    """Update the prices after a shortest path of length ``total``."""
    u[start] += total
    for k in range(steps):
        j = order[k]
        gain = total - passed[k]
        u[rows[j]] += gain
        v[j] -= gain


@subroutine
def augment(columns, rows, prev, start, sink):
    """Move each row of the path to the next column."""
    j = sink
    while True:
        i = prev[j]
        rows[j] = i
        columns[i], j = j, columns[i]
        if i == start:
            return


@kernel
def max_marginal_gaps(first, last, tables, columns, u, v, lost):
    """Fill lost[B, N, N]: how much a row must lose that has a column, of the maximum.

    By all shortest ways between rows, along which each takes the column of the next:
    to force i onto j moves j's row along a path that ends at i's column. inf if there
    is none. O(N^3). With the reduced costs ``r(i, j) = u(i) + v(j) - score(i, j)``,

        way(i, k)  = r(i, column of k), then for each h in turn
        way(i, k)  = min(way(i, k), way(i, h) + way(h, k))
        lost(i, j) = r(i, j) + way(row of j, i)

    The inner loop is over k, along rows.

    Source: Duchi et al., "Using Combinatorial Optimization within Max-Product Belief
    Propagation" (2006), with weights that are reduced costs.
    """
    N = tables.shape[1]
    ways = arrays.empty((N, N))
    rows = arrays.empty(N, np.int64)
    for b in range(first, last):
        for i in range(N):
            rows[columns[b, i]] = i
        for i in range(N):
            for k in range(N):
                j = columns[b, k]
                # rounding may leave them a little below 0
                reduced = u[b, i] + v[b, j] - tables[b, i, j]
                ways[i, k] = max(reduced, 0.0) if i != k else 0.0
        for k in range(N):
            for i in range(N):
                half = ways[i, k]
                if half < np.inf and i != k:
                    for j in range(N):
                        ways[i, j] = min(ways[i, j], half + ways[k, j])
        for i in range(N):
            for j in range(N):
                reduced = u[b, i] + v[b, j] - tables[b, i, j]
                back = ways[rows[j], i]
                lost[b, i, j] = max(reduced, 0.0) + back if rows[j] != i else 0.0
