"""The k best outputs of one chain, by lazy enumeration.

A cell (n, j) lists the best prefixes of n + 1 labels that end in state j, best first;
cell 0 lists whole outputs, as if a last step N followed. A Viterbi pass has told the
best of every cell. The next ones are worked out only where an output among the k best
may use them: the r-th prefix of a cell extends the ``rank``-th prefix of the cell
``back`` one step earlier, and its successor is sought there first.

The method is known as recursive enumeration of the k shortest paths.
"""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
def workspace(T, S, K):
    """Scratch of ``k_best`` for chains of up to T steps."""
    cells = min(T * S, 2 * (K + 1) * T) + 1
    slot = np.empty(T * S, np.int32)
    value = np.empty((cells, K), np.float64)
    back = np.empty((cells, K), np.int32)
    rank = np.empty((cells, K), np.int32)
    count = np.empty(cells, np.int32)
    done = np.empty(cells, np.bool_)
    path = np.empty((2, T + 1), np.int32)
    taken = np.empty(S, np.int32)
    return slot, value, back, rank, count, done, path, taken


@njit(cache=True, nogil=True, error_model="numpy")
def k_best(b, N, maxima, lane, L, parts, space, labels, valid):
    """Fill labels[b, K, T] with the K best outputs of row b, and valid[b, K].

    ``maxima[(n * S + s) * L + lane]`` is the score of the best prefix of n + 1 labels
    that ends in s; ``parts`` are (emissions, transitions, end, steps, shared). Sums run
    in time order. Ties go to the lower state, so the K best are a prefix of the K + 1
    best. Outputs that score -inf are not listed. Time O(K N (S + K)).
    """
    steps = parts[3]
    slot, _, back, rank, count, done, path, _ = space
    S = parts[0].shape[2]
    K = labels.shape[1]
    labels[b] = -1
    valid[b] = False
    if N == 0:
        valid[b, 0] = True
        return
    slot[: N * S] = -1
    count[0] = 0
    done[0] = False
    used = 1
    path[:, 0] = 0
    for k in range(K):
        # down to the first cell whose successor is known, or that has none
        depth = 0
        while True:
            cell = path[0, depth]
            n = N - depth
            if n == 1 or count[cell] == 0:
                break
            i = back[cell, count[cell] - 1]
            r = rank[cell, count[cell] - 1] + 1
            below = slot[(n - 1) * S + i]
            if below < 0:
                below = used
                used = _open(used, b, n - 1, i, N, maxima, lane, L, parts, space)
            if count[below] > r or done[below]:
                break
            depth += 1
            path[0, depth] = below
            path[1, depth] = i
        # and up again, one more prefix in each
        while depth >= 0:
            cell, j = path[0, depth], path[1, depth]
            _append(cell, b, N - depth, j, N, maxima, lane, L, parts, space)
            depth -= 1
        if done[0]:
            return
        valid[b, k] = True
        j = back[0, k]
        r = rank[0, k]
        for n in range(N - 1, 0, -1):
            labels[b, k, steps[b, n]] = j
            cell = slot[n * S + j]
            if cell < 0:
                cell = used
                used = _open(used, b, n, j, N, maxima, lane, L, parts, space)
            j, r = back[cell, r], rank[cell, r]
        labels[b, k, steps[b, 0]] = j


@njit(error_model="numpy")
def _open(cell, b, n, j, N, maxima, lane, L, parts, space):
    """Begin the list of (n, j) with its best prefix; returns the next free cell."""
    slot, _, _, _, count, done, _, _ = space
    slot[n * parts[0].shape[2] + j] = cell
    count[cell] = 0
    done[cell] = False
    _append(cell, b, n, j, N, maxima, lane, L, parts, space)
    return cell + 1


@njit(error_model="numpy")
def _append(cell, b, n, j, N, maxima, lane, L, parts, space):
    """Add the next best prefix to the list of (n, j), or mark the list as done."""
    emissions, transitions, end, steps, shared = parts
    slot, value, back, rank, count, done, _, taken = space
    S = emissions.shape[2]
    for i in range(S):
        taken[i] = 0
    for m in range(count[cell]):
        taken[back[cell, m]] += 1
    t = steps[b, n] if n < N else 0
    q = 0 if shared else t - 1
    p = 0 if shared else b
    best = -1
    most = -np.inf
    for i in range(S):
        r = taken[i]
        reach = -np.inf
        if r == 0:
            reach = maxima[((n - 1) * S + i) * L + lane]
        elif n > 1:
            below = slot[(n - 1) * S + i]
            if count[below] > r:
                reach = value[below, r]
        if n < N:
            reach += transitions[p, q, i, j]
        else:
            reach += end[i]
        if reach > most:
            most = reach
            best = i
    if n < N:
        most += emissions[b, t, j]
    if not most > -np.inf:
        done[cell] = True
        return
    c = count[cell]
    value[cell, c] = most
    back[cell, c] = best
    rank[cell, c] = taken[best]
    count[cell] = c + 1
