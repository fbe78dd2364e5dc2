"""The k best assignments, each new one a single shortest path from an old one.

Those that differ from an assignment first in row p keep the columns of the rows before:
p, without its column, finds the shortest path to one, and only rows on that path change
their columns. Only the k best candidates are kept, and a path that gets longer than the
last of them is given up. Lengths are reduced costs,

    cost(i, j) - u(i) - v(j) >= 0,    0 where i has j

where cost, u and v are minus the scores and prices of ``jonker_volgenant``. A candidate
costs as much as the old assignment and its path together. Prices are updated along the
path.
Each candidate stores its own, so that its successors are single paths again.

Source: Murty (1968); Miller, Stone and Cox, "Optimizing Murty's Ranked Assignment
Method" (1997).
"""

import numpy as np

from smoothsp._kernels.combinatorial.jonker_volgenant import (
    Search,
    augment,
    reprice,
    shortest,
)
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy


@kernel
def k_best_assignments(first, last, tables, real, solved, outputs, exist):
    """Fill outputs[B, k, real] and exist[B, k] after ``jonker_volgenant.best``.

    The first ``real`` rows tell assignments apart; the others are padding. ``solved``
    are the four arrays that it filled.
    """
    columns, u, v, found = solved
    N, k = tables.shape[1], outputs.shape[1]
    cost = arrays.empty((N, N))
    # candidates: values, prices, columns, first differing rows, what these may not take
    value, prices = arrays.empty(k), arrays.empty((k, 2, N))
    have, (since, age) = arrays.empty((k, N), np.int64), arrays.empty((2, k), np.int64)
    barred = arrays.empty((k, N), np.bool_)
    listed_prices, listed = arrays.empty((2, N)), arrays.empty(N, np.int64)
    listed_barred = arrays.empty(N, np.bool_)
    new_prices, new = arrays.empty((2, N)), arrays.empty(N, np.int64)
    rows, prev, order = arrays.empty((3, N), np.int64)
    reach, opened, row, passed = arrays.empty((4, N))
    search = Search(opened, reach, prev, order, passed)
    for b in range(first, last):
        for t in range(k):
            exist[b, t] = False
            value[t] = np.inf
            for i in range(real):
                outputs[b, t, i] = -1
        if not found[b]:
            continue
        for i in range(N):
            for j in range(N):
                cost[i, j] = -tables[b, i, j]
        value[0] = _total(cost, columns[b], real)
        have[0] = columns[b]
        prices[0, 0] = -u[b]
        prices[0, 1] = -v[b]
        since[0] = age[0] = 0
        barred[0] = False
        for t in range(k):
            # of equal ones the oldest: the best k are then a prefix of the best k + 1
            c = 0
            for i in range(1, k):
                if value[i] < value[c] or (value[i] == value[c] and age[i] < age[c]):
                    c = i
            if value[c] == np.inf:
                break
            exist[b, t] = True
            for i in range(real):
                outputs[b, t, i] = have[c, i]
            if t == k - 1:
                break
            copy(have[c], listed)
            copy(prices[c].ravel(), listed_prices.ravel())
            copy(barred[c], listed_barred)
            begin, least = since[c], value[c]
            value[c] = np.inf
            for p in range(begin, real):
                # room for the k - t - 1 best only
                worst = _place(value, age, k - t - 1)
                bound = value[worst] - least
                # rounding decides below, where scores are compared
                bound += 1e-9 * (1 + abs(value[worst]) + abs(least))
                copy(listed, new)
                copy(listed_prices.ravel(), new_prices.ravel())
                # columns of rows before p are closed, and that of p alone is free
                for j in range(N):
                    opened[j] = new_prices[1, j]
                    rows[j] = -1
                for i in range(p + 1, N):
                    rows[new[i]] = i
                for i in range(p):
                    opened[new[i]] = -np.inf
                # columns that p may not take cost inf
                copy(cost[p], row)
                for j in range(N):
                    if p == begin and listed_barred[j]:
                        cost[p, j] = np.inf
                cost[p, new[p]] = np.inf
                sink, total, steps = shortest(
                    cost, rows, new_prices[0], p, bound, search
                )
                cost[p] = row
                if sink < 0:
                    continue
                reprice(
                    rows, new_prices[0], new_prices[1], p, passed, order, steps, total
                )
                augment(new, rows, prev, p, sink)
                candidate = _total(cost, new, real)
                if not candidate < value[worst]:
                    continue
                value[worst] = candidate
                have[worst] = new
                prices[worst] = new_prices
                since[worst], age[worst] = p, 1 + t * real + p
                for j in range(N):
                    barred[worst, j] = j == listed[p] or (
                        p == begin and listed_barred[j]
                    )


@subroutine
def _place(value, age, most):
    """Where the next candidate is stored.

    In a free place, or in that of the worst if there are ``most`` already.
    """
    count, free, worst = 0, -1, -1
    for i in range(len(value)):
        if value[i] == np.inf:
            free = i
        else:
            count += 1
            later = worst >= 0 and value[i] == value[worst] and age[i] > age[worst]
            if worst < 0 or value[i] > value[worst] or later:
                worst = i
    return free if count < most and free >= 0 else worst


@subroutine
def _total(cost, columns, real):
    total = 0.0
    for i in range(len(columns)):
        total += cost[i, columns[i]]
    return total
