"""Given outputs on chains: their scores, and counts of the parts they use.

Each is the adjoint of the other, so they are each other's gradient.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel


@kernel
def score(
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
    value,
    fault,
):
    """Fill value[B, K] with the scores of labels[B, K, T], summed in time order.

    fault[b] is the first position with a label outside [0, S), or -1.
    """
    S = emissions.shape[2]
    K = labels.shape[1]
    for b in range(first, last):
        N = lengths[b]
        fault[b] = -1
        for k in range(K):
            value[b, k] = 0
            total = 0.0
            i = 0
            for n in range(N):
                t = steps[b, n]
                j = labels[b, k, t]
                if j < 0 or j >= S:
                    fault[b] = t
                    break
                if n == 0:
                    total = np.float64(start[j])
                else:
                    q = 0 if shared else t - 1
                    p = 0 if shared else b
                    total += transitions[p, q, i, j]
                total += emissions[b, t, j]
                i = j
            if fault[b] >= 0:
                break
            if N > 0:
                value[b, k] = total + end[i]


@kernel
def count(
    first,
    last,
    weights,
    labels,
    steps,
    lengths,
    shared,
    emissions,
    transitions,
    start,
    end,
):
    """Add weights[B, K] to every part that labels[B, K, T] use.

    Parts shared by rows are added in the order of the rows: give one call all rows.
    """
    K = labels.shape[1]
    for b in range(first, last):
        N = lengths[b]
        for k in range(K):
            weight = weights[b, k]
            i = 0
            for n in range(N):
                t = steps[b, n]
                j = labels[b, k, t]
                emissions[b, t, j] += weight
                if n == 0:
                    start[j] += weight
                else:
                    q = 0 if shared else t - 1
                    p = 0 if shared else b
                    transitions[p, q, i, j] += weight
                i = j
            if N > 0:
                end[i] += weight
