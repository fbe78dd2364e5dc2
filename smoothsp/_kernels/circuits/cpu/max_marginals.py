"""The highest score of an output that uses each leaf.

With x the maxima of ``max_product``, rest(root) = 0 and at first -inf elsewhere,

    rest(a)       = max over products (a, b) of items i of rest(i) + x(b)
    highest(leaf) = rest(leaf) + x(leaf)

Definitions are visited in reverse, and each offers its terms to both factors. An item's
own x is added for leaves only. Both arrays are ``[items, L]``, a row in each lane.
"""

import numpy as np

from smoothsp._kernels.circuits.cpu.lanes import bounds, gather, one_of, scatter
from smoothsp._kernels.circuits.cpu.max_product import maxima
from smoothsp._kernels.circuits.cpu.scaled_floats import constant
from smoothsp._kernels.circuits.layout.addresses import (
    circuit_at,
    potentials_at,
    rows_at,
)
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.simd import load, maximum, span, store


@kernel
def max_marginals(first, last, circuit, rows, scores, room):
    """Fill the targets of ``scores`` for the rows ``rows.order[first:last]``.

    ``scores`` is a table of potentials of the float type of ``room``, scratch, ``[2,
    size]``. -inf where no output uses a leaf.
    """
    circuit, rows = circuit_at(circuit), rows_at(rows)
    scores = potentials_at(scores)
    B = len(rows.roots)
    L = 64 // room.itemsize
    one = one_of(room)
    x, rest = room[0], room[1]
    for begin in range(first, last, L):
        lanes = rows.order[begin : begin + L if begin + L < last else last]
        low, high = bounds(circuit, rows.roots, lanes)
        gather(scores, B, lanes, x, one, L)
        maxima(x, circuit, low, high, one, L)
        _clear(rest, circuit, low, high, one, L)
        for lane in range(len(lanes)):
            rest[rows.roots[lanes[lane]] * L + lane] = 0.0
        _outside(x, rest, circuit, low, high, L)
        scatter(rest, scores, B, lanes, L)


@subroutine
def _clear(rest, circuit, low, high, one, L):
    """Write -inf to item 0, leaves, and definitions ``low`` to ``high``."""
    out, none = span(rest), one - constant(one, np.inf)
    for i in range(0, (1 + circuit.num_row_leaves + circuit.num_shared_leaves) * L, L):
        store(out, i, none)
    for h in range(low, high):
        store(out, np.intp(circuit.heads[h]) * L, none)


@subroutine
def _outside(x, rest, circuit, low, high, L):
    """Fill ``rest``: the best score of an output with an item, less the item's own x.

    The x of leaves is added at the end.
    """
    x, rest = span(x), span(rest)
    runs, starts = circuit.runs, circuit.starts
    h = high
    while h > low:
        h -= 1
        g = load(rest, np.intp(circuit.heads[h]) * L)
        for r in range(starts[h], starts[h + 1]):
            a, b = np.intp(runs[r, 1]) * L, np.intp(runs[r, 3]) * L
            step_a, step_b = np.intp(runs[r, 2]) * L, np.intp(runs[r, 4]) * L
            for _ in range(runs[r, 0]):
                v, w = load(x, a), load(x, b)
                store(rest, a, maximum(g + w, load(rest, a)))
                store(rest, b, maximum(g + v, load(rest, b)))
                a += step_a
                b += step_b
    for i in range(L, (1 + circuit.num_row_leaves + circuit.num_shared_leaves) * L, L):
        store(rest, i, load(rest, i) + load(x, i))
