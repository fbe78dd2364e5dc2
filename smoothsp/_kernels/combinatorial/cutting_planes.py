r"""Cutting planes of a risk, and the weights that their maximum is lowest at.

A cut is ``<w, g_i> + b_i``. The dual of ``lam/2 |w|^2`` and the maximum of all cuts is

    max <b, a> - |p|^2 / (2 lam)    over the simplex,    p = sum_i a_i g_i

Slopes are rows in slots, of which ``slots`` lists those in use, oldest first. A row
is a whole number of vectors long, with zeros at its end. A cut takes as long as it
takes to read rows: all of them for its products, those with weight for the mean.
"""

import numpy as np

from smoothsp._kernels.combinatorial.simplex_qp import maximise_over_simplex
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import fma, get, load, put, span, splat, store
from smoothsp._kernels.vectors.simd_masked import reduce_sum

LANES = 8

# How many rows are read side by side, and how many numbers of each at a time: so many
# of the vector that all of them meet stay near the core.
ROWS_AT_ONCE, BLOCK = 4, 2048


@kernel
def add_cut(before, gradient, offset, lam, patience, bundle, after, p, stats):
    """Take one more cut, and solve the dual: ``after`` are then all t of them.

    ``before`` and ``after`` are slots and cuts, ``room`` slopes and products.
    ``cuts[t - 1, 3]`` are offsets, weights, and for how many rounds each had none. The
    slope is written to a slot that is free, its products to that row and column of
    ``products``. Fills p, which is as long as a row, and ``found`` with how many cuts
    are kept, those that had no weight for at most ``patience`` rounds, or all if it is
    negative, and with the means of offsets, of their sizes, and of the lengths of
    slopes.
    """
    (slots, cuts), (next_slots, next_cuts) = before, after
    gradients, products = bundle
    t, d = len(next_slots), len(gradient)
    slot_in_use = arrays.zeros(len(gradients), np.int64)
    b, weights = arrays.empty(t), arrays.empty(t)
    for a in range(t - 1):
        next_slots[a] = slots[a]
        slot_in_use[slots[a]] = 1
        b[a], weights[a] = lam * cuts[a, 0], cuts[a, 1]
        next_cuts[a, 0], next_cuts[a, 2] = cuts[a, 0], cuts[a, 2]
    free_slot = 0
    while slot_in_use[free_slot] == 1:
        free_slot += 1
    next_slots[t - 1] = free_slot
    b[t - 1], weights[t - 1] = lam * offset, 1.0 if t == 1 else 0.0
    next_cuts[t - 1, 0], next_cuts[t - 1, 2] = offset, 0.0
    rows, new_gradient, width = span(gradients), span(gradient), gradients.shape[1]
    for e in range(d):
        put(rows, free_slot * width + e, get(new_gradient, e))
    row_offsets, row_values = (
        arrays.empty(t + ROWS_AT_ONCE, np.int64),
        arrays.zeros(t + ROWS_AT_ONCE),
    )
    for a in range(t):
        row_offsets[a] = next_slots[a] * width
    _fill_inner_products(rows, free_slot * width, width, row_offsets, t, row_values)
    for a in range(t):
        product, row = row_values[a], next_slots[a]
        products[free_slot, row] = products[row, free_slot] = product
    maximise_over_simplex(next_slots, products, b, weights)
    count = 0
    for a in range(t):
        if weights[a] > 0:
            row_offsets[count], row_values[count] = row_offsets[a], weights[a]
            count += 1
    _weighted_sum(rows, row_offsets, row_values, count, p)
    stats[1:] = 0.0
    num_cuts = 0
    for a in range(t):
        weight, row = weights[a], next_slots[a]
        stats[1] += weight * next_cuts[a, 0]
        stats[2] += weight * abs(next_cuts[a, 0])
        stats[3] += weight * np.sqrt(products[row, row])
        idle_rounds = 0.0 if weight > 0 else next_cuts[a, 2] + 1
        if patience < 0 or idle_rounds <= patience:
            next_slots[num_cuts], next_cuts[num_cuts, 0] = row, next_cuts[a, 0]
            next_cuts[num_cuts, 1], next_cuts[num_cuts, 2] = weight, idle_rounds
            num_cuts += 1
    stats[0] = num_cuts


@subroutine
def _fill_inner_products(rows, row_offset, width, row_offsets, num_rows, sums):
    """Fill sums[t] with the products of rows with that at ``own``."""
    _pad_rows(row_offsets, sums, num_rows)
    sums[:] = 0.0
    for first in range(0, width, BLOCK):
        last = min(first + BLOCK, width)
        for a in range(0, num_rows, ROWS_AT_ONCE):
            i, j, k, o = (
                row_offsets[a],
                row_offsets[a + 1],
                row_offsets[a + 2],
                row_offsets[a + 3],
            )
            p = q = r = s = splat(0.0)
            for e in range(first, last, LANES):
                x = load(rows, row_offset + e)
                p, q = fma(x, load(rows, i + e), p), fma(x, load(rows, j + e), q)
                r, s = fma(x, load(rows, k + e), r), fma(x, load(rows, o + e), s)
            sums[a] += reduce_sum(p)
            sums[a + 1] += reduce_sum(q)
            sums[a + 2] += reduce_sum(r)
            sums[a + 3] += reduce_sum(s)


@subroutine
def _weighted_sum(rows, row_offsets, row_weights, num_rows, p):
    """Fill p with the sum of ``count`` rows, each times its share."""
    _pad_rows(row_offsets, row_weights, num_rows)
    out = span(p)
    # from the end, which was read last
    for block in range((len(p) - 1) // BLOCK, -1, -1):
        first, last = block * BLOCK, min((block + 1) * BLOCK, len(p))
        for e in range(first, last, LANES):
            store(out, e, splat(0.0))
        for a in range(0, num_rows, ROWS_AT_ONCE):
            i, j, k, o = (
                row_offsets[a],
                row_offsets[a + 1],
                row_offsets[a + 2],
                row_offsets[a + 3],
            )
            f, g = splat(row_weights[a]), splat(row_weights[a + 1])
            h, m = splat(row_weights[a + 2]), splat(row_weights[a + 3])
            for e in range(first, last, LANES):
                x = fma(f, load(rows, i + e), load(out, e))
                x = fma(h, load(rows, k + e), fma(g, load(rows, j + e), x))
                store(out, e, fma(m, load(rows, o + e), x))


@subroutine
def _pad_rows(row_offsets, row_weights, num_rows):
    """The last row again, without a share, so that rows are a multiple of ``ROWS``."""
    for a in range(num_rows, num_rows + ROWS_AT_ONCE):
        row_offsets[a], row_weights[a] = row_offsets[max(num_rows - 1, 0)], 0.0
