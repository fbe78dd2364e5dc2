"""Which outputs are possible, and which leaves are read: bits, 64 rows to a word."""

import numpy as np
from numba.extending import register_jitable

from smoothsp._kernels.circuits.layout.addresses import circuit_at, potentials_at
from smoothsp._kernels.circuits.layout.edges import ADDRESS, SHARED, WIDTH
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import at

WORD = 64


@kernel
def possible(circuit, roots, table, like, answer):
    """Fill answer[B]: whether the row has an output without a score of -inf.

    ``table`` is one of potentials of the float type of ``like``.
    """
    circuit, table = circuit_at(circuit), potentials_at(table)
    B = len(roots)
    words = arrays.empty(circuit.items, np.uint64)
    for begin in range(0, B, WORD):
        rows = min(WORD, B - begin)
        low, high = needed(circuit, roots, begin, begin + rows)
        words[0] = ~np.uint64(0)
        first = 1
        for t in range(len(table)):
            width = table[t, WIDTH]
            every = 1 if table[t, SHARED] else B
            scores = at(table[t, ADDRESS], (every * width,), like)
            for leaf in range(width):
                word = np.uint64(0)
                if table[t, SHARED]:
                    word = ~word if scores[leaf] > -np.inf else word
                else:
                    for lane in range(rows):
                        if scores[(begin + lane) * width + leaf] > -np.inf:
                            word |= np.uint64(1) << np.uint64(lane)
                words[first + leaf] = word
            first += width
        spread(circuit, low, high, words)
        for lane in range(rows):
            bit = np.uint64(1) << np.uint64(lane)
            answer[begin + lane] = words[roots[begin + lane]] & bit != 0


@register_jitable
def spread(circuit, low, high, words):
    """Fill the bits of items from definition ``low`` to ``high``.

    An item has those that both factors of one of its products have.
    """
    heads, starts, runs = circuit.heads, circuit.starts, circuit.runs
    for h in range(low, high):
        any_of = np.uint64(0)
        for r in range(starts[h], starts[h + 1]):
            a, b = np.intp(runs[r, 1]), np.intp(runs[r, 3])
            for _ in range(runs[r, 0]):
                any_of |= words[a] & words[b]
                a += runs[r, 2]
                b += runs[r, 4]
        words[heads[h]] = any_of


@kernel
def reading(circuit, roots, answer):
    """Fill answer[B, P + Q]: whether the root of a row can reach the leaf."""
    circuit = circuit_at(circuit)
    B, leaves = answer.shape
    words = arrays.empty(circuit.items, np.uint64)
    heads, starts, runs = circuit.heads, circuit.starts, circuit.runs
    for begin in range(0, B, WORD):
        rows = min(WORD, B - begin)
        words[:] = 0
        low, high = needed(circuit, roots, begin, begin + rows)
        for lane in range(rows):
            words[roots[begin + lane]] |= np.uint64(1) << np.uint64(lane)
        for h in range(high - 1, low - 1, -1):
            word = words[heads[h]]
            if word == 0:
                continue
            for r in range(starts[h], starts[h + 1]):
                a, b = np.intp(runs[r, 1]), np.intp(runs[r, 3])
                for _ in range(runs[r, 0]):
                    # a product with an impossible factor is not followed
                    if circuit.uses[a] >= 0 and circuit.uses[b] >= 0:
                        words[a] |= word
                        words[b] |= word
                    a += runs[r, 2]
                    b += runs[r, 4]
        for lane in range(rows):
            bit = np.uint64(1) << np.uint64(lane)
            for leaf in range(leaves):
                answer[begin + lane, leaf] = words[1 + leaf] & bit != 0


@register_jitable
def needed(circuit, roots, first, last):
    """The definitions that rows ``first`` to ``last`` need, as a range."""
    low, high = len(circuit.heads), 0
    for b in range(first, last):
        high = max(high, circuit.place[roots[b]] + 1)
        low = min(low, circuit.since[roots[b]])
    return min(low, high), high
