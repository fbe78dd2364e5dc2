"""Best choices of bounded weight, and sums over all, in memory of few rows of a chart.

``tables`` are ``[B, N, 2]`` of scores for leaving out and for choosing each element,
-inf to forbid; ``weights[N]``, ``rooms[B]`` and ``lengths[B]`` are those of
``oracles/large_knapsack.py``. With ``row[c]`` the value of all choices among the first
elements that weigh c, the next element has

    row[c] = either(row[c] + left out, row[c - weight] + chosen)

for c from the highest on, where ``either`` is the maximum or the logarithm of the sum
of exponentials.
"""

import math

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays


@kernel
def best_packing(
    first, last, tables, weights, capacities, lengths, outputs, values, feasible
):
    """Fill outputs[B, N] of best choices, -1 past the length, values[B] and found[B].

    Rows hold values of choices that weigh at most c. One bit for each element and
    weight tells whether the element is chosen.
    """
    N, max_capacity = tables.shape[1], 0
    for b in range(first, last):
        max_capacity = max(max_capacity, capacities[b])
    num_words = max_capacity // 64 + 1
    # beyond -inf for what weighs less than nothing, which no element leaves room for
    before, after = arrays.empty((2, max_capacity + 64 * num_words))
    before[:max_capacity] = after[:max_capacity] = -np.inf
    bits = arrays.empty((N, num_words), np.uint64)
    flags = arrays.zeros(64 * num_words, np.uint8)
    for b in range(first, last):
        capacity, shift = capacities[b], 0.0
        before[max_capacity:] = 0.0
        for v in range(lengths[b]):
            score_out, score_in = tables[b, v, 0], tables[b, v, 1]
            w = weights[v]
            bits[v] = np.uint64(0)
            if score_in > score_out and w <= capacity:
                n = 64 * (capacity // 64 + 1)
                left_out, shifted = (
                    before[max_capacity : max_capacity + n],
                    before[max_capacity - w : max_capacity - w + n],
                )
                _choose_larger(
                    left_out, shifted, score_out, score_in, after[max_capacity:], flags
                )
                _pack_bits(flags, capacity // 64 + 1, bits[v])
                before, after = after, before
            else:
                shift += score_out
        outputs[b], total, c = -1, 0.0, capacity
        for v in range(lengths[b] - 1, -1, -1):
            is_chosen = np.int64(bits[v, c // 64] >> np.uint64(c % 64)) & 1
            outputs[b, v] = is_chosen
            c -= is_chosen * weights[v]
        for v in range(lengths[b]):
            total += tables[b, v, outputs[b, v]]
        values[b] = total
        feasible[b] = before[max_capacity + capacity] + shift > -np.inf


@subroutine
def _choose_larger(values_out, values_in, score_out, score_in, out, flags):
    """Fill the larger values of leaving out and choosing, and which it is."""
    for i in range(len(values_out)):
        value_out, value_in = values_out[i] + score_out, values_in[i] + score_in
        flags[i] = value_in > value_out
        out[i] = max(value_out, value_in)


@subroutine
def _pack_bits(flags, num_words, bits):
    """Fill the flags as bits of numbers."""
    for word in range(num_words):
        packed = np.uint64(0)
        for i in range(64):
            packed |= np.uint64(flags[64 * word + i]) << np.uint64(i)
        bits[word] = packed


@kernel
def forward_backward(
    first,
    last,
    tables,
    weights,
    capacities,
    lengths,
    is_soft,
    with_marginals,
    values,
    marginals,
):
    """Fill values[B], and with ``inwards`` parts[B, N, 2] of leaving out and choosing.

    With ``soft`` log-partitions and probabilities, else maxima and max-marginals. One
    pass over the elements keeps every Kth row, K the root of N; the second goes back
    and computes K rows at a time again. 0 or -inf past the length.
    """
    N = tables.shape[1]
    max_capacity = 0
    for b in range(first, last):
        max_capacity = max(max_capacity, capacities[b])
    K = math.ceil(math.sqrt(max(N, 1)))
    stored_rows, block = (
        arrays.empty((K + 1, max_capacity + 1)),
        arrays.empty((K + 1, max_capacity + 1)),
    )
    suffix = arrays.empty(max_capacity + 1)
    for b in range(first, last):
        capacity, m = capacities[b], lengths[b]
        row = block[0]
        row[:] = -np.inf
        row[0] = 0.0
        for v in range(m):
            if v % K == 0:
                arrays.copy(row, stored_rows[v // K])
            _add_element(row, capacity, weights[v], tables[b, v], is_soft)
        total = -np.inf
        for c in range(capacity + 1):
            total = _max_or_logaddexp(total, row[c], is_soft)
        values[b] = total
        if not with_marginals:
            continue
        marginals[b] = 0.0 if is_soft else -np.inf
        suffix[:] = 0.0
        for begin in range((m - 1) // K * K, -1, -K):
            end = min(begin + K, m)
            arrays.copy(stored_rows[begin // K], block[0])
            for v in range(begin, end - 1):
                arrays.copy(block[v - begin], block[v - begin + 1])
                _add_element(
                    block[v - begin + 1], capacity, weights[v], tables[b, v], is_soft
                )
            for v in range(end - 1, begin - 1, -1):
                score, w = tables[b, v], weights[v]
                _element_marginals(
                    block[v - begin],
                    suffix,
                    capacity,
                    w,
                    score,
                    total,
                    is_soft,
                    marginals[b, v],
                )
                _add_element(suffix, capacity, w, score, is_soft)


@subroutine
def _add_element(row, capacity, w, score, is_soft):
    """Update the row for one more element."""
    for c in range(capacity, -1, -1):
        value_in = row[c - w] + score[1] if c >= w else -np.inf
        row[c] = _max_or_logaddexp(row[c] + score[0], value_in, is_soft)


@subroutine
def _max_or_logaddexp(a, b, is_soft):
    """The larger of two, or the logarithm of the sum of their exponentials."""
    high, low = max(a, b), min(a, b)
    if is_soft and low > -np.inf:
        return high + math.log1p(math.exp(low - high))
    return high


@subroutine
def _element_marginals(prefix, suffix, capacity, w, score, total, is_soft, marginals_v):
    """Fill the values of choices without and with an element.

    ``before[c]`` is of choices among earlier elements that weigh c, ``behind[c]`` of
    choices among later ones that weigh at most c.
    """
    for choice in range(2):
        weight_of_choice = w if choice else 0
        total_of_choice = 0.0 if is_soft else -np.inf
        for c in range(capacity + 1 - weight_of_choice):
            value = prefix[c] + score[choice]
            if value > -np.inf:
                value += suffix[capacity - c - weight_of_choice]
                if is_soft:
                    total_of_choice += math.exp(value - total)
                else:
                    total_of_choice = max(total_of_choice, value)
        marginals_v[choice] = total_of_choice
