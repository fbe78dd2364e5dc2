"""The structural hinge of a chain with Hamming cost, and its gradient.

``max_y' [s(y') + c h(y', y)] - s(y)``, where h counts labels that differ. Viterbi finds
the maximiser y' first, with the cost added in float64 while emissions are loaded. Then,
with transitions that include start and end,

    value      max(0, sum_n [e_n(y'_n) - e_n(y_n)]
                      + sum_n [s(y'_{n-1}, y'_n) - s(y_{n-1}, y_n)] + c h(y', y))
    gradient   [y' uses part] - [y uses part], times the weight of the row

Scores are subtracted emission by emission and transition by transition, not as two
totals: terms that both outputs share then cancel exactly.
"""

import numpy as np

from smoothsp._kernels.chain.cpu.records import Chain
from smoothsp._kernels.chain.cpu.viterbi import viterbi
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine


@kernel
def hinge(first, last, chain, order, gold, cost, labels, value, fault):
    """Fill labels[B, T] with a maximiser, -1 where masked, and value[B] in float64.

    For the rows ``order[first:last]``, as ``chain.cpu.viterbi.viterbi``.
    ``cost >= 0`` is that of each label that differs from gold[B, T]. fault[b] is the
    first position with a gold label outside [0, S), or -1; where a range of rows has a
    fault, nothing else is filled. A gold output that is forbidden has value inf.
    """
    chain = Chain(*chain)
    S, steps, lengths = chain.emissions.shape[2], chain.steps, chain.lengths
    is_valid = True
    for b in order[first:last]:
        fault[b] = -1
        for n in range(lengths[b]):
            t = steps[b, n]
            if not 0 <= gold[b, t] < S:
                fault[b] = t
                is_valid = False
                break
    if not is_valid:
        return
    viterbi(first, last, chain, order, gold, cost, labels, value)
    for b in order[first:last]:
        value[b] = _score_difference(b, chain, gold, cost, labels)


@subroutine
def _score_difference(b, chain, gold, cost, labels):
    """Return ``s(y') + c h(y', y) - s(y)`` for labels y' and gold y of row b, >= 0."""
    emissions, transitions, start, end, steps, lengths, shared = chain
    N = lengths[b]
    # parts that both outputs use cancel exactly; two independent sums overlap
    emission_sum = transition_sum = 0.0
    one = np.uint64(1)
    i = y = np.uint64(0)
    num_wrong = 0
    b = np.uint64(b)
    for n in range(N):
        # unsigned indices spare numba's wraparound of negative ones
        t = np.uint64(steps[b, np.uint64(n)])
        j, z = np.uint64(labels[b, t]), np.uint64(gold[b, t])
        if n == 0:
            transition_sum += np.float64(start[j]) - np.float64(start[z])
        else:
            p, q = (one - one, one - one) if shared else (b, t - one)
            transition = np.float64(transitions[p, q, i, j])
            transition_sum += transition - np.float64(transitions[p, q, y, z])
        emission_sum += np.float64(emissions[b, t, j]) - np.float64(emissions[b, t, z])
        num_wrong += j != z
        i, y = j, z
    if N > 0:
        transition_sum += np.float64(end[i]) - np.float64(end[y])
    # negative only by rounding, where gold is the maximiser
    return max(emission_sum + transition_sum + cost * num_wrong, 0.0)


@kernel
def hinge_gradient(first, last, labels, gold, steps, lengths, shared, weights, out):
    """Fill ``out`` with the sum of ``weights_b (phi(labels_b) - phi(gold_b))``.

    ``out`` has the shapes of the potentials, and is 0 on entry; it stays 0 where both
    outputs use a part. Gradients of shared potentials are summed in the order of the
    rows, so a single call must cover all rows.
    """
    emissions, transitions, start, end = out
    for b in range(first, last):
        weight = weights[b]
        i = y = 0
        for n in range(lengths[b]):
            t = steps[b, n]
            j, z = labels[b, t], gold[b, t]
            if j != z:
                emissions[b, t, j] = weight
                emissions[b, t, z] = -weight
                if n == 0:
                    start[j] += weight
                    start[z] -= weight
            if n > 0 and (i != y or j != z):
                p = 0 if shared else b
                q = 0 if shared else t - 1
                transitions[p, q, i, j] += weight
                transitions[p, q, y, z] -= weight
            i, y = j, z
        if i != y:
            end[i] += weight
            end[y] -= weight
