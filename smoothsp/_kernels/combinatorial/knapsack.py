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
def best_packing(first, last, tables, weights, rooms, lengths, outputs, values, found):
    """Fill outputs[B, N] of best choices, -1 past the length, values[B] and found[B].

    Rows hold values of choices that weigh at most c. One bit for each element and
    weight tells whether the element is chosen.
    """
    N, most = tables.shape[1], 0
    for b in range(first, last):
        most = max(most, rooms[b])
    words = most // 64 + 1
    # beyond -inf for what weighs less than nothing, which no element leaves room for
    before, after = arrays.empty((2, most + 64 * words))
    before[:most] = after[:most] = -np.inf
    bits = arrays.empty((N, words), np.uint64)
    flags = arrays.zeros(64 * words, np.uint8)
    for b in range(first, last):
        room, shift = rooms[b], 0.0
        before[most:] = 0.0
        for v in range(lengths[b]):
            without, chosen = tables[b, v, 0], tables[b, v, 1]
            w = weights[v]
            bits[v] = np.uint64(0)
            if chosen > without and w <= room:
                n = 64 * (room // 64 + 1)
                keep, take = before[most : most + n], before[most - w : most - w + n]
                _choose(keep, take, without, chosen, after[most:], flags)
                _pack(flags, room // 64 + 1, bits[v])
                before, after = after, before
            else:
                shift += without
        outputs[b], total, c = -1, 0.0, room
        for v in range(lengths[b] - 1, -1, -1):
            some = np.int64(bits[v, c // 64] >> np.uint64(c % 64)) & 1
            outputs[b, v] = some
            c -= some * weights[v]
        for v in range(lengths[b]):
            total += tables[b, v, outputs[b, v]]
        values[b] = total
        found[b] = before[most + room] + shift > -np.inf


@subroutine
def _choose(keep, take, without, chosen, out, flags):
    """Fill the larger values of leaving out and choosing, and which it is."""
    for i in range(len(keep)):
        one, other = keep[i] + without, take[i] + chosen
        flags[i] = other > one
        out[i] = max(one, other)


@subroutine
def _pack(flags, words, bits):
    """Fill the flags as bits of numbers."""
    for word in range(words):
        found = np.uint64(0)
        for i in range(64):
            found |= np.uint64(flags[64 * word + i]) << np.uint64(i)
        bits[word] = found


@kernel
def forward_backward(
    first, last, tables, weights, rooms, lengths, soft, inwards, values, parts
):
    """Fill values[B], and with ``inwards`` parts[B, N, 2] of leaving out and choosing.

    With ``soft`` log-partitions and probabilities, else maxima and max-marginals. One
    pass over the elements keeps every Kth row, K the root of N; the second goes back
    and computes K rows at a time again. 0 or -inf past the length.
    """
    N = tables.shape[1]
    most = 0
    for b in range(first, last):
        most = max(most, rooms[b])
    K = math.ceil(math.sqrt(max(N, 1)))
    kept, block = arrays.empty((K + 1, most + 1)), arrays.empty((K + 1, most + 1))
    behind = arrays.empty(most + 1)
    for b in range(first, last):
        room, m = rooms[b], lengths[b]
        row = block[0]
        row[:] = -np.inf
        row[0] = 0.0
        for v in range(m):
            if v % K == 0:
                arrays.copy(row, kept[v // K])
            _add(row, room, weights[v], tables[b, v], soft)
        total = -np.inf
        for c in range(room + 1):
            total = _either(total, row[c], soft)
        values[b] = total
        if not inwards:
            continue
        parts[b] = 0.0 if soft else -np.inf
        behind[:] = 0.0
        for begin in range((m - 1) // K * K, -1, -K):
            end = min(begin + K, m)
            arrays.copy(kept[begin // K], block[0])
            for v in range(begin, end - 1):
                arrays.copy(block[v - begin], block[v - begin + 1])
                _add(block[v - begin + 1], room, weights[v], tables[b, v], soft)
            for v in range(end - 1, begin - 1, -1):
                score, w = tables[b, v], weights[v]
                _join(
                    block[v - begin], behind, room, w, score, total, soft, parts[b, v]
                )
                _add(behind, room, w, score, soft)


@subroutine
def _add(row, room, w, score, soft):
    """Update the row for one more element."""
    for c in range(room, -1, -1):
        take = row[c - w] + score[1] if c >= w else -np.inf
        row[c] = _either(row[c] + score[0], take, soft)


@subroutine
def _either(a, b, soft):
    """The larger of two, or the logarithm of the sum of their exponentials."""
    high, low = max(a, b), min(a, b)
    if soft and low > -np.inf:
        return high + math.log1p(math.exp(low - high))
    return high


@subroutine
def _join(before, behind, room, w, score, total, soft, part):
    """Fill the values of choices without and with an element.

    ``before[c]`` is of choices among earlier elements that weigh c, ``behind[c]`` of
    choices among later ones that weigh at most c.
    """
    for chosen in range(2):
        heavy = w if chosen else 0
        found = 0.0 if soft else -np.inf
        for c in range(room + 1 - heavy):
            value = before[c] + score[chosen]
            if value > -np.inf:
                value += behind[room - c - heavy]
                if soft:
                    found += math.exp(value - total)
                else:
                    found = max(found, value)
        part[chosen] = found
