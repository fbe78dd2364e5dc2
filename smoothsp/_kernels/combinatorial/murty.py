"""Murty's algorithm: the k best assignments, each by one shortest augmenting path.

The successors of an assignment are its best changes whose first differing row is p, for
each p. Rows before p keep their columns. Row p loses its column and takes the shortest
augmenting path to it from another; only rows on that path change. At most the k best
candidates are stored, and a search ends when its path exceeds the worst of them.
Lengths are reduced costs,

    cost(i, j) - u(i) - v(j) >= 0,    0 where i has j

where cost, u and v are minus the scores and duals of ``jonker_volgenant``. The cost of
a candidate is that of the old assignment plus the length of its path. Duals are updated
along the path and stored with the candidate, so that its successors need single paths,
too.

Source: Murty, "An Algorithm for Ranking all the Assignments in Order of Increasing
Cost" (1968); Miller, Stone and Cox, "Optimizing Murty's Ranked Assignment Method"
(1997).
"""

import numpy as np

from smoothsp._kernels.combinatorial.jonker_volgenant import (
    PathSearch,
    augment_matching,
    shortest_augmenting_path,
    update_duals,
)
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy


@kernel
def k_best_assignments(first, last, scores, num_real, solution, outputs, valid):
    """Fill outputs[B, k, num_real] and valid[B, k], best first.

    Only the first ``num_real`` rows distinguish assignments; the others are padding.
    ``solution`` has the four arrays that ``jonker_volgenant.best_assignment`` fills.
    """
    columns, u, v, feasible = solution
    N, k = scores.shape[1], outputs.shape[1]
    cost = arrays.empty((N, N))
    # candidates: cost, duals, columns, first row that differs, columns excluded in it
    value, prices = arrays.empty(k), arrays.empty((k, 2, N))
    candidate_columns, (first_free_row, age) = (
        arrays.empty((k, N), np.int64),
        arrays.empty((2, k), np.int64),
    )
    excluded = arrays.empty((k, N), np.bool_)
    listed_prices, listed = arrays.empty((2, N)), arrays.empty(N, np.int64)
    listed_excluded = arrays.empty(N, np.bool_)
    new_prices, new = arrays.empty((2, N)), arrays.empty(N, np.int64)
    rows, prev, order = arrays.empty((3, N), np.int64)
    distance, column_duals, row, final_distance = arrays.empty((4, N))
    search = PathSearch(column_duals, distance, prev, order, final_distance)
    for b in range(first, last):
        for t in range(k):
            valid[b, t] = False
            value[t] = np.inf
            for i in range(num_real):
                outputs[b, t, i] = -1
        if not feasible[b]:
            continue
        for i in range(N):
            for j in range(N):
                cost[i, j] = -scores[b, i, j]
        value[0] = _assignment_cost(cost, columns[b], num_real)
        candidate_columns[0] = columns[b]
        prices[0, 0] = -u[b]
        prices[0, 1] = -v[b]
        first_free_row[0] = age[0] = 0
        excluded[0] = False
        for t in range(k):
            # of equal ones the oldest: the k best are then a prefix of the k + 1 best
            best_candidate = 0
            for i in range(1, k):
                if value[i] < value[best_candidate] or (
                    value[i] == value[best_candidate] and age[i] < age[best_candidate]
                ):
                    best_candidate = i
            if value[best_candidate] == np.inf:
                break
            valid[b, t] = True
            for i in range(num_real):
                outputs[b, t, i] = candidate_columns[best_candidate, i]
            if t == k - 1:
                break
            copy(candidate_columns[best_candidate], listed)
            copy(prices[best_candidate].ravel(), listed_prices.ravel())
            copy(excluded[best_candidate], listed_excluded)
            first_row, current_value = (
                first_free_row[best_candidate],
                value[best_candidate],
            )
            value[best_candidate] = np.inf
            for p in range(first_row, num_real):
                # only the k - t - 1 best candidates can still be listed
                slot = _replacement_slot(value, age, k - t - 1)
                bound = value[slot] - current_value
                # slack for rounding of path lengths; exact costs are compared below
                bound += 1e-9 * (1 + abs(value[slot]) + abs(current_value))
                copy(listed, new)
                copy(listed_prices.ravel(), new_prices.ravel())
                # columns of rows before p are closed, and that of p alone is free
                for j in range(N):
                    column_duals[j] = new_prices[1, j]
                    rows[j] = -1
                for i in range(p + 1, N):
                    rows[new[i]] = i
                for i in range(p):
                    column_duals[new[i]] = -np.inf
                # columns that p may not take cost inf
                copy(cost[p], row)
                for j in range(N):
                    if p == first_row and listed_excluded[j]:
                        cost[p, j] = np.inf
                cost[p, new[p]] = np.inf
                sink, path_length, num_scanned = shortest_augmenting_path(
                    cost, rows, new_prices[0], p, bound, search
                )
                cost[p] = row
                if sink < 0:
                    continue
                update_duals(
                    rows,
                    new_prices[0],
                    new_prices[1],
                    p,
                    final_distance,
                    order,
                    num_scanned,
                    path_length,
                )
                augment_matching(new, rows, prev, p, sink)
                candidate = _assignment_cost(cost, new, num_real)
                if not candidate < value[slot]:
                    continue
                value[slot] = candidate
                candidate_columns[slot] = new
                prices[slot] = new_prices
                # age orders candidates by (t, p), whichever slots they are in
                first_free_row[slot], age[slot] = p, 1 + t * num_real + p
                for j in range(N):
                    excluded[slot, j] = j == listed[p] or (
                        p == first_row and listed_excluded[j]
                    )


@subroutine
def _replacement_slot(value, age, max_candidates):
    """Slot for the next candidate: a free one, or the worst one's if there are enough.

    Enough are ``max_candidates``; of equally bad ones the latest is replaced.
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
    return free if count < max_candidates and free >= 0 else worst


@subroutine
def _assignment_cost(cost, columns, num_real):
    """Return the sum of the costs of all rows.

    Padding rows count, too: their costs are 0 or those of unmatched rows.
    """
    total = 0.0
    for i in range(len(columns)):
        total += cost[i, columns[i]]
    return total
