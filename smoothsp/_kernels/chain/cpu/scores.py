"""Scores of given labels on chains, and weighted counts of their parts.

    score(y) = ((start(y_0) + e_0(y_0)) + s(y_0, y_1)) + e_1(y_1) + ... + end(y_{N-1})
    add_part_counts    adds the weight of y to each potential in this sum

The second is the adjoint of the first. Scores are summed in float64 in the order of
``chain.cpu.viterbi``: the score of a decoded output equals the maximum computed there,
to the last bit. A position reads one emission and one transition, so loops are scalar.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors import double_double


@kernel
def score(first, last, chain, labels, value, value_lo, fault):
    """Fill value[B, K] with the scores of labels[B, K, T], summed in time order.

    ``value_lo[B, K]`` gets their rounding errors, unless it is empty. fault[b] is the
    first position with a label outside [0, S), or -1.
    """
    emissions, transitions, start, end, steps, lengths, shared = chain
    S = emissions.shape[2]
    K = labels.shape[1]
    is_float32 = emissions.itemsize == 4
    for b in range(first, last):
        N = lengths[b]
        fault[b] = -1
        for k in range(K):
            # float64 sums of float32 numbers are exact unless magnitudes differ by more
            # than about 2^29; emissions and transitions are therefore summed apart
            hi = lo = emission_sum = transition_sum = start_score = 0.0
            i = 0
            for n in range(N):
                t = steps[b, n]
                j = labels[b, k, t]
                if j < 0 or j >= S:
                    fault[b] = t
                    break
                emission = np.float64(emissions[b, t, j])
                if n == 0:
                    hi = start_score = np.float64(start[j])
                else:
                    q = 0 if shared else t - 1
                    p = 0 if shared else b
                    transition = np.float64(transitions[p, q, i, j])
                    if is_float32:
                        hi += transition
                        transition_sum += transition
                    else:
                        hi, lo = double_double.add(hi, lo, transition)
                if is_float32:
                    hi += emission
                    emission_sum += emission
                else:
                    hi, lo = double_double.add(hi, lo, emission)
                i = j
            if fault[b] >= 0:
                break
            if N > 0:
                last = np.float64(end[i])
                if is_float32:
                    hi += last
                    sum_hi, lo = double_double.add(emission_sum, 0.0, transition_sum)
                    sum_hi, lo = double_double.add(sum_hi, lo, start_score)
                    sum_hi, lo = double_double.add(sum_hi, lo, last)
                    lo += sum_hi - hi
                else:
                    hi, lo = double_double.add(hi, lo, last)
            value[b, k] = hi
            if len(value_lo) > 0:
                # a double-double is infinite by its high word alone
                value_lo[b, k] = lo if hi > -np.inf else 0.0


@kernel
def add_part_counts(first, last, weights, labels, steps, lengths, shared, out):
    """Add weights[B, K] to every part that labels[B, K, T] use.

    ``out`` are arrays in the shapes of the potentials. Shared parts are added in the
    order of the rows, so one call must compute all rows.
    """
    emissions, transitions, start, end = out
    K = labels.shape[1]
    for b in range(first, last):
        N = lengths[b]
        for k in range(K):
            weight = weights[b, k]
            if weight == 0:
                continue
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
