"""Max-product: the best output of each row, and the leaves that it uses.

With x = 0 for the empty product and x = score for a leaf, definitions in order give

    x(i) = max over products (a, b) of i of x(a) + x(b)

The trace goes from the root downwards, the left factor before the right one. At each
item it takes the first product that attains x(i). The score is then recomputed as a
double-double sum over the leaves of the trace.

x is ``[num_items, L]``, a row of the batch in each lane: all rows have the same
products, so that a vector serves L rows and no maximum crosses lanes. No argmax is
stored, since a trace visits few items and searches only their products.
"""

import numpy as np

from smoothsp._kernels.circuits.cpu.lanes import (
    definition_range,
    gather_scores,
    run_start_and_step,
    vector_of_ones,
)
from smoothsp._kernels.circuits.cpu.scaled_floats import splat_like
from smoothsp._kernels.circuits.layout.addresses import (
    load_circuit,
    load_potential_table,
    load_row_roots,
)
from smoothsp._kernels.circuits.layout.circuit_arrays import (
    ADDRESS,
    SHARED,
    TILE,
    WIDTH,
)
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import carray
from smoothsp._kernels.vectors.double_double import add, normalise
from smoothsp._kernels.vectors.simd import load, maximum, select_lt, span, store


@kernel
def best_outputs(first, last, circuit, rows, scores, scratch, sizes, out):
    """Fill value_dd, value, labels[B, N] and parts[B, U] of rows ``order[first:last]``.

    ``parts`` are indices from 0 of the leaves that the best output uses, then -1.
    ``labels`` are the labels that these leaves set, -1 elsewhere. ``value_dd`` is the
    double-double score ``[B, 2]``, ``value`` the score in the float type of
    ``scratch``, ``[1, size]``. ``sizes`` are (N, U); ``out`` are the addresses of
    value_dd, value, labels and parts, where that of value may be 0. ``scores`` is a
    table of potentials of the same float type.
    """
    N, U = sizes
    value_dd, value, labels, parts = out
    circuit, rows = load_circuit(circuit), load_row_roots(rows)
    scores = load_potential_table(scores)
    B = len(rows.roots)
    value_dd, labels = (
        carray(value_dd, (B, 2), np.float64),
        carray(labels, (B, N), np.int64),
    )
    parts, rounded = (
        carray(parts, (B, U), np.int32),
        carray(value, (B if value else 0,), scratch),
    )
    L = 64 // scratch.itemsize
    ones = vector_of_ones(scratch)
    x = scratch[0]
    stack = arrays.empty(circuit.max_depth + 2, np.int64)
    for begin in range(first, last, L):
        lanes = rows.order[begin : begin + L if begin + L < last else last]
        low, high = definition_range(circuit, rows.roots, lanes)
        gather_scores(scores, B, lanes, x, ones, L)
        max_inside(x, circuit, low, high, ones, L)
        for lane in range(len(lanes)):
            row = lanes[lane]
            root = rows.roots[row]
            trace_best_leaves(x, lane, L, root, circuit, stack, parts[row])
            fill_labels_and_score(
                scores, B, row, scratch, circuit, parts[row], labels[row], value_dd[row]
            )
            if x[root * L + lane] == -np.inf:
                value_dd[row, 0] = -np.inf
            if value:
                rounded[row] = value_dd[row, 0]


@subroutine
def max_inside(x, circuit, low, high, ones, L):
    """Fill each item of definitions ``low`` to ``high`` with its best product.

    NaN and +inf, which only padding holds, become -inf: no sum is NaN.
    """
    x = span(x)
    heads, starts, runs = circuit.heads, circuit.starts, circuit.runs
    infinite = splat_like(ones, np.inf)
    none = ones - infinite
    for i in range(0, (1 + circuit.num_row_leaves + circuit.num_shared_leaves) * L, L):
        w = load(x, i)
        store(x, i, select_lt(w, infinite, w, none))
    h = low
    while h < high:
        if circuit.tiles[h] == TILE:
            first = starts[h]
            _max_inside_of_four(x, heads, h, runs, first, none, L)
            h += TILE
            continue
        top = none
        for r in range(starts[h], starts[h + 1]):
            a, step_a = run_start_and_step(runs, r, 1, L)
            b, step_b = run_start_and_step(runs, r, 3, L)
            for _ in range(runs[r, 0]):
                top = maximum(load(x, a) + load(x, b), top)
                a += step_a
                b += step_b
        store(x, np.intp(heads[h]) * L, top)
        h += 1


@subroutine
def _max_inside_of_four(x, heads, first_head, runs, first_run, neg_inf, L):
    """Fill a tile: each left factor is loaded once for all its definitions."""
    a, step = run_start_and_step(runs, first_run, 1, L)
    b0, step0 = run_start_and_step(runs, first_run, 3, L)
    b1, step1 = run_start_and_step(runs, first_run + 1, 3, L)
    b2, step2 = run_start_and_step(runs, first_run + 2, 3, L)
    b3, step3 = run_start_and_step(runs, first_run + 3, 3, L)
    t0 = t1 = t2 = t3 = neg_inf
    for _ in range(runs[first_run, 0]):
        v = load(x, a)
        t0, t1 = maximum(v + load(x, b0), t0), maximum(v + load(x, b1), t1)
        t2, t3 = maximum(v + load(x, b2), t2), maximum(v + load(x, b3), t3)
        a += step
        b0 += step0
        b1 += step1
        b2 += step2
        b3 += step3
    store(x, np.intp(heads[first_head]) * L, t0)
    store(x, np.intp(heads[first_head + 1]) * L, t1)
    store(x, np.intp(heads[first_head + 2]) * L, t2)
    store(x, np.intp(heads[first_head + 3]) * L, t3)


@subroutine
def fill_with_padding(out):
    """Fill an array with -1, which stands for no label or no leaf."""
    for i in range(len(out)):
        out[i] = -1


@subroutine
def trace_best_leaves(x, lane, L, root, circuit, stack, parts):
    """Fill parts with the leaves, from 0, of the root's best output, then -1."""
    fill_with_padding(parts)
    leaves = circuit.num_row_leaves + circuit.num_shared_leaves
    count, top = 0, 0
    if x[root * L + lane] > -np.inf:
        stack[0] = root
        top = 1
    while top > 0:
        top -= 1
        item = stack[top]
        if item > leaves:
            a, b = first_best_product(x, lane, L, item, circuit)
            # the left factor on top: leaves are listed from left to right
            stack[top], stack[top + 1] = b, a
            top += 2
        elif item > 0:
            parts[count] = item - 1
            count += 1


@subroutine
def first_best_product(x, lane, L, item, circuit):
    """Return the first product equal to the item's maximum.

    The same sum of the same floats gives the same bits, so that equality is safe.
    """
    runs, starts = circuit.runs, circuit.starts
    h = circuit.definition[item]
    goal = x[item * L + lane]
    for r in range(starts[h], starts[h + 1]):
        a, b = np.intp(runs[r, 1]), np.intp(runs[r, 3])
        for _ in range(runs[r, 0]):
            if x[a * L + lane] + x[b * L + lane] == goal:
                return a, b
            a += runs[r, 2]
            b += runs[r, 4]
    return np.intp(0), np.intp(0)


@subroutine
def fill_labels_and_score(scores, B, row, scratch, circuit, parts, labels, value_dd):
    """Fill labels[N] of the leaves in parts, and value_dd[2], their total score."""
    fill_with_padding(labels)
    total = lo = 0.0
    for leaf in parts:
        if leaf < 0:
            break
        total, lo = add(total, lo, leaf_score(scores, B, row, leaf, scratch))
        position = circuit.positions[1 + leaf]
        if position >= 0:
            labels[position] = circuit.values[1 + leaf]
    value_dd[0], value_dd[1] = normalise(total, lo)


@subroutine
def leaf_score(scores, B, row, leaf, scratch):
    """Return the score of a leaf, from 0, in a table of potentials."""
    for t in range(len(scores)):
        width = scores[t, WIDTH]
        if leaf < width:
            if scores[t, SHARED]:
                return np.float64(carray(scores[t, ADDRESS], (width,), scratch)[leaf])
            flat = carray(scores[t, ADDRESS], (B * width,), scratch)
            return np.float64(flat[row * width + leaf])
        leaf -= width
    return -np.inf
