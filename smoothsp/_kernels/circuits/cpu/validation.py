"""Feasibility of rows and reachability of leaves, as bit sets of 64 rows per word.

    possible(i)  = OR over products (a, b) of i of possible(a) AND possible(b)
    reachable(a) = OR over products (a, b) of items i of reachable(i)

The first visits definitions in order, from leaves with finite scores. The second visits
them in reverse, from the roots, through products whose factors both have an output. Bit
r of an item's word belongs to row r: a product costs one AND and one OR for 64 rows.
"""

import numpy as np
from numba.extending import register_jitable

from smoothsp._kernels.circuits.layout.addresses import (
    load_circuit,
    load_potential_table,
)
from smoothsp._kernels.circuits.layout.circuit_arrays import ADDRESS, SHARED, WIDTH
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import carray

WORD = 64


@kernel
def first_infeasible_row(circuit, roots, table, like):
    """Return the first row without an output of finite score, -1 if all rows have one.

    ``table`` is a table of potentials of the float type of ``like``.
    """
    circuit, table = load_circuit(circuit), load_potential_table(table)
    B = len(roots)
    bit_sets = arrays.empty(circuit.num_items, np.uint64)
    for begin in range(0, B, WORD):
        rows = min(WORD, B - begin)
        low, high = definition_range_of_rows(circuit, roots, begin, begin + rows)
        bit_sets[0] = ~np.uint64(0)
        first = 1
        for t in range(len(table)):
            width = table[t, WIDTH]
            num_rows = 1 if table[t, SHARED] else B
            scores = carray(table[t, ADDRESS], (num_rows * width,), like)
            if table[t, SHARED]:
                for leaf in range(width):
                    allowed = scores[leaf] > -np.inf
                    bit_sets[first + leaf] = ~np.uint64(0) if allowed else np.uint64(0)
            else:
                row_bits = bit_sets[first : first + width]
                row_bits[:] = 0
                # row by row, so that a vector holds neighbouring leaves
                for lane in range(rows):
                    add_row_bits(scores, (begin + lane) * width, lane, row_bits)
            first += width
        propagate_bits(circuit, low, high, bit_sets)
        for lane in range(rows):
            bit = np.uint64(1) << np.uint64(lane)
            if bit_sets[roots[begin + lane]] & bit == 0:
                return begin + lane
    return -1


@register_jitable
def add_row_bits(scores, start, lane, bit_sets):
    """Set the bit of a row in the words of its leaves with finite scores."""
    bit = np.uint64(1) << np.uint64(lane)
    for leaf in range(len(bit_sets)):
        bit_sets[leaf] |= bit if scores[start + leaf] > -np.inf else np.uint64(0)


@register_jitable
def propagate_bits(circuit, low, high, bit_sets):
    """Fill the words of the items of definitions ``low`` to ``high``.

    A bit is set if both factors of some product have it.
    """
    heads, starts, runs = circuit.heads, circuit.starts, circuit.runs
    for h in range(low, high):
        bits = np.uint64(0)
        for r in range(starts[h], starts[h + 1]):
            a, b = np.intp(runs[r, 1]), np.intp(runs[r, 3])
            for _ in range(runs[r, 0]):
                bits |= bit_sets[a] & bit_sets[b]
                a += runs[r, 2]
                b += runs[r, 4]
        bit_sets[heads[h]] = bits


@kernel
def reachable_leaves(circuit, roots, is_reachable):
    """Fill is_reachable[B, P + Q]: whether the root of a row can reach the leaf."""
    circuit = load_circuit(circuit)
    B, leaves = is_reachable.shape
    bit_sets = arrays.empty(circuit.num_items, np.uint64)
    heads, starts, runs = circuit.heads, circuit.starts, circuit.runs
    for begin in range(0, B, WORD):
        rows = min(WORD, B - begin)
        bit_sets[:] = 0
        low, high = definition_range_of_rows(circuit, roots, begin, begin + rows)
        for lane in range(rows):
            bit_sets[roots[begin + lane]] |= np.uint64(1) << np.uint64(lane)
        for h in range(high - 1, low - 1, -1):
            word = bit_sets[heads[h]]
            if word == 0:
                continue
            for r in range(starts[h], starts[h + 1]):
                a, b = np.intp(runs[r, 1]), np.intp(runs[r, 3])
                for _ in range(runs[r, 0]):
                    # a product with an impossible factor is not followed
                    if circuit.max_leaves[a] >= 0 and circuit.max_leaves[b] >= 0:
                        bit_sets[a] |= word
                        bit_sets[b] |= word
                    a += runs[r, 2]
                    b += runs[r, 4]
        for lane in range(rows):
            bit = np.uint64(1) << np.uint64(lane)
            for leaf in range(leaves):
                is_reachable[begin + lane, leaf] = bit_sets[1 + leaf] & bit != 0


@register_jitable
def definition_range_of_rows(circuit, roots, first, last):
    """Return the range of definitions below the roots of rows ``first`` to ``last``."""
    low, high = len(circuit.heads), 0
    for b in range(first, last):
        high = max(high, circuit.definition[roots[b]] + 1)
        low = min(low, circuit.first_definition[roots[b]])
    return min(low, high), high
