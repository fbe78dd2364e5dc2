"""Max-product on chains: the best output, and the K best.

All sums are float64 and run in time order, ``(a + transition) + emission``, as in
``chain_path_cpu.score``. Rounding is monotone, so the score of a decoded output is
never below that of any other output, to the last bit.
"""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
def viterbi(
    first,
    last,
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    shared,
    labels,
):
    """Fill labels[B, T] with a maximiser; -1 where there is no real position.

    Ties go to the lower state, from the end backwards.
    """
    T, S = emissions.shape[1], emissions.shape[2]
    back = np.empty((T, S), np.int32)
    alpha = np.empty(S, np.float64)
    best = np.empty(S, np.float64)
    for b in range(first, last):
        N = lengths[b]
        labels[b] = -1
        if N == 0:
            continue
        for s in range(S):
            alpha[s] = np.float64(start[s]) + emissions[b, steps[b, 0], s]
        for n in range(1, N):
            t = steps[b, n]
            q = 0 if shared else t - 1
            p = 0 if shared else b
            for j in range(S):
                best[j] = alpha[0] + transitions[p, q, 0, j]
                back[n, j] = 0
            for i in range(1, S):
                a = alpha[i]
                for j in range(S):
                    reach = a + transitions[p, q, i, j]
                    back[n, j] = i if reach > best[j] else back[n, j]
                    best[j] = max(reach, best[j])
            for j in range(S):
                alpha[j] = best[j] + emissions[b, t, j]
        j = 0
        for s in range(S):
            alpha[s] += end[s]
            if alpha[s] > alpha[j]:
                j = s
        for n in range(N - 1, 0, -1):
            labels[b, steps[b, n]] = j
            j = back[n, j]
        labels[b, steps[b, 0]] = j


@njit(cache=True, nogil=True, error_model="numpy")
def viterbi_topk(
    first,
    last,
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    shared,
    labels,
    valid,
):
    """Fill labels[B, K, T] with the K best outputs, best first, and valid[B, K].

    Each cell (t, j) keeps a sorted list of its at most K best prefixes. The list of a
    cell is the merge of its predecessors' lists, which are sorted too: K times the best
    of S heads. Time O(T S^2 K). Ties go to the lower state, so the K best are a prefix
    of the K + 1 best. Outputs that score -inf are not listed.

    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
    algorithm 2 and eq. (19).
    """
    T, S = emissions.shape[1], emissions.shape[2]
    K = labels.shape[1]
    back = np.empty((T, S, K), np.int32)
    rank = np.empty((T, S, K), np.int32)
    alpha = np.empty((S, K), np.float64)
    grown = np.empty((S, K), np.float64)
    count = np.empty(S, np.int64)
    grown_count = np.empty(S, np.int64)
    head = np.empty(S, np.float64)
    taken = np.empty(S, np.int64)
    for b in range(first, last):
        N = lengths[b]
        labels[b] = -1
        valid[b] = False
        if N == 0:
            valid[b, 0] = True
            continue
        for s in range(S):
            alpha[s, 0] = np.float64(start[s]) + emissions[b, steps[b, 0], s]
            count[s] = 1 if alpha[s, 0] > -np.inf else 0
        for n in range(1, N):
            t = steps[b, n]
            q = 0 if shared else t - 1
            p = 0 if shared else b
            for j in range(S):
                for i in range(S):
                    taken[i] = 0
                    head[i] = -np.inf
                    if count[i] > 0:
                        head[i] = alpha[i, 0] + transitions[p, q, i, j]
                k = 0
                while k < K:
                    best = 0
                    for i in range(1, S):
                        if head[i] > head[best]:
                            best = i
                    reach = head[best] + emissions[b, t, j]
                    if not reach > -np.inf:
                        break
                    grown[j, k] = reach
                    back[n, j, k] = best
                    rank[n, j, k] = taken[best]
                    taken[best] += 1
                    head[best] = -np.inf
                    if taken[best] < count[best]:
                        move = transitions[p, q, best, j]
                        head[best] = alpha[best, taken[best]] + move
                    k += 1
                grown_count[j] = k
            alpha, grown = grown, alpha
            count, grown_count = grown_count, count
        for s in range(S):
            taken[s] = 0
            head[s] = alpha[s, 0] + end[s] if count[s] > 0 else -np.inf
        for k in range(K):
            best = 0
            for s in range(1, S):
                if head[s] > head[best]:
                    best = s
            if not head[best] > -np.inf:
                break
            valid[b, k] = True
            j = best
            r = taken[best]
            for n in range(N - 1, 0, -1):
                labels[b, k, steps[b, n]] = j
                i = back[n, j, r]
                r = rank[n, j, r]
                j = i
            labels[b, k, steps[b, 0]] = j
            taken[best] += 1
            head[best] = -np.inf
            if taken[best] < count[best]:
                head[best] = alpha[best, taken[best]] + end[best]
