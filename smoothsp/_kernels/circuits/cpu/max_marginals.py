"""Max-marginals: the highest score of an output that uses each leaf.

With x the maxima of ``max_product``, outside(root) = 0 and initially -inf elsewhere,

    outside(a)    = max over products (a, b) of items i of outside(i) + x(b)
    highest(leaf) = outside(leaf) + x(leaf)

Definitions are visited in reverse, and each updates both factors of its products. An
item's x is added for leaves only. Both arrays are ``[num_items, L]``, a row in each
lane.
"""

import numpy as np

from smoothsp._kernels.circuits.cpu.lanes import (
    definition_range,
    gather_scores,
    scatter_to_targets,
    vector_of_ones,
)
from smoothsp._kernels.circuits.cpu.max_product import max_inside
from smoothsp._kernels.circuits.cpu.scaled_floats import splat_like
from smoothsp._kernels.circuits.layout.addresses import (
    load_circuit,
    load_potential_table,
    load_row_roots,
)
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.simd import load, maximum, span, store


@kernel
def max_marginals(first, last, circuit, rows, scores, scratch):
    """Fill the targets of ``scores`` for the rows ``rows.order[first:last]``.

    ``scores`` is a table of potentials of the float type of ``scratch``, ``[2, size]``.
    -inf where no output uses a leaf.
    """
    circuit, rows = load_circuit(circuit), load_row_roots(rows)
    scores = load_potential_table(scores)
    B = len(rows.roots)
    L = 64 // scratch.itemsize
    ones = vector_of_ones(scratch)
    x, outside = scratch[0], scratch[1]
    for begin in range(first, last, L):
        lanes = rows.order[begin : begin + L if begin + L < last else last]
        low, high = definition_range(circuit, rows.roots, lanes)
        gather_scores(scores, B, lanes, x, ones, L)
        max_inside(x, circuit, low, high, ones, L)
        _fill_items_with_neg_inf(outside, circuit, low, high, ones, L)
        for lane in range(len(lanes)):
            outside[rows.roots[lanes[lane]] * L + lane] = 0.0
        _fill_outside_maxima(x, outside, circuit, low, high, L)
        scatter_to_targets(outside, scores, B, lanes, L)


@subroutine
def _fill_items_with_neg_inf(outside, circuit, low, high, ones, L):
    """Write -inf to item 0, to leaves, and to definitions ``low`` to ``high``."""
    outside_span, none = span(outside), ones - splat_like(ones, np.inf)
    for i in range(0, (1 + circuit.num_row_leaves + circuit.num_shared_leaves) * L, L):
        store(outside_span, i, none)
    for h in range(low, high):
        store(outside_span, np.intp(circuit.heads[h]) * L, none)


@subroutine
def _fill_outside_maxima(x, outside, circuit, low, high, L):
    """Fill ``outside``: the best score of an output with an item, less the item's x.

    The x of leaves is added at the end.
    """
    x, outside = span(x), span(outside)
    runs, starts = circuit.runs, circuit.starts
    h = high
    while h > low:
        h -= 1
        g = load(outside, np.intp(circuit.heads[h]) * L)
        for r in range(starts[h], starts[h + 1]):
            a, b = np.intp(runs[r, 1]) * L, np.intp(runs[r, 3]) * L
            step_a, step_b = np.intp(runs[r, 2]) * L, np.intp(runs[r, 4]) * L
            for _ in range(runs[r, 0]):
                # each factor's term lacks its own x, hence no subtraction of infinities
                v, w = load(x, a), load(x, b)
                store(outside, a, maximum(g + w, load(outside, a)))
                store(outside, b, maximum(g + v, load(outside, b)))
                a += step_a
                b += step_b
    for i in range(L, (1 + circuit.num_row_leaves + circuit.num_shared_leaves) * L, L):
        store(outside, i, load(outside, i) + load(x, i))
