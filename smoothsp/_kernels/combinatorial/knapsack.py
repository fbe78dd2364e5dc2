"""0/1 knapsack: best packings, and sums over packings, with few rows of the chart.

``tables`` are scores ``[B, N, 2]`` of leaving out and of choosing an element, -inf to
forbid; ``weights[N]``, ``capacities[B]`` and ``lengths[B]`` are as in
``oracles/large_knapsack.py``. With ``row[c]`` the value of all choices of weight c
among the elements so far, the next element of weight w gives

    row[c] = combine(row[c] + score out, row[c - w] + score in)

from the highest c down, where ``combine`` is the maximum or logaddexp.
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
    """Fill outputs[B, N], -1 past the length, values[B] and feasible[B].

    Rows hold the best values of choices that weigh at most c. The choice at each
    element and capacity is stored as one bit, so that N W choices take N W / 8 bytes.
    """
    N, max_capacity = tables.shape[1], 0
    for b in range(first, last):
        max_capacity = max(max_capacity, capacities[b])
    num_uint64 = max_capacity // 64 + 1
    # The first max_capacity entries are -inf: row[c - w] needs no test where c < w.
    before, after = arrays.empty((2, max_capacity + 64 * num_uint64))
    before[:max_capacity] = after[:max_capacity] = -np.inf
    bits = arrays.empty((N, num_uint64), np.uint64)
    flags = arrays.zeros(64 * num_uint64, np.uint8)
    for b in range(first, last):
        capacity, shift = capacities[b], 0.0
        before[max_capacity:] = 0.0
        for v in range(lengths[b]):
            score_out, score_in = tables[b, v, 0], tables[b, v, 1]
            w = weights[v]
            bits[v] = np.uint64(0)
            # Otherwise the element is never chosen, and only shifts all values.
            if score_in > score_out and w <= capacity:
                n = 64 * (capacity // 64 + 1)
                left_out, shifted = (
                    before[max_capacity : max_capacity + n],
                    before[max_capacity - w : max_capacity - w + n],
                )
                _fill_larger_values(
                    left_out, shifted, score_out, score_in, after[max_capacity:], flags
                )
                _pack_bits(flags, capacity // 64 + 1, bits[v])
                before, after = after, before
            else:
                shift += score_out
        # traced back from the full capacity: rows are of choices that weigh at most c
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
def _fill_larger_values(values_out, values_in, score_out, score_in, out, flags):
    """Fill the larger value of leaving out and choosing, and flags of choosing.

    Ties leave the element out.
    """
    for i in range(len(values_out)):
        value_out, value_in = values_out[i] + score_out, values_in[i] + score_in
        flags[i] = value_in > value_out
        out[i] = max(value_out, value_in)


@subroutine
def _pack_bits(flags, num_uint64, bits):
    """Pack 64 flags into each of num_words numbers, the first one lowest."""
    for index in range(num_uint64):
        packed = np.uint64(0)
        for i in range(64):
            packed |= np.uint64(flags[64 * index + i]) << np.uint64(i)
        bits[index] = packed


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
    """Fill values[B] and, if ``with_marginals``, marginals[B, N, 2] of out and in.

    With ``is_soft`` log-partitions and probabilities, otherwise maxima and
    max-marginals. Marginals are 0 or -inf past the length. The forward pass stores
    every Kth row, K the square root of N; the backward pass recomputes K rows at a
    time. Memory: O(W sqrt(N)).
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
        # not -inf above 0: the suffix holds choices that weigh at most c
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
    """Update row[:capacity + 1] in place for one more element of weight w."""
    # downwards: row[c - w] is still that of the elements before
    for c in range(capacity, -1, -1):
        value_in = row[c - w] + score[1] if c >= w else -np.inf
        row[c] = _max_or_logaddexp(row[c] + score[0], value_in, is_soft)


@subroutine
def _max_or_logaddexp(a, b, is_soft):
    """Return the maximum of a and b or, if ``is_soft``, log(exp(a) + exp(b))."""
    high, low = max(a, b), min(a, b)
    if is_soft and low > -np.inf:
        return high + math.log1p(math.exp(low - high))
    return high


@subroutine
def _element_marginals(prefix, suffix, capacity, w, score, total, is_soft, marginals_v):
    """Fill marginals_v[2]: the values of all choices without and with element v.

    ``prefix[c]`` is the value of choices of weight c among earlier elements,
    ``suffix[c]`` of choices of weight at most c among later ones.
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
