"""Bundle method: cutting planes of a risk, and the minimiser of their maximum.

A cut is ``<w, g_i> + b_i``. The dual of minimising ``lam/2 |w|^2`` plus the maximum of
all cuts is

    max <b, a> - |p|^2 / (2 lam)    over the simplex,    p = sum_i a_i g_i

and w = -p / lam. Gradients g_i are stored in slots; ``slots`` lists the slots in use,
oldest first. Rows are padded with zeros to whole vectors. A cut costs two passes over
memory: all rows for its inner products, and the rows with weight for p.

Source: Joachims, Finley and Yu, "Cutting-Plane Training of Structural SVMs" (2009);
Teo et al., "Bundle Methods for Regularized Risk Minimization" (2010).
"""

import numpy as np

from smoothsp._kernels.combinatorial.simplex_qp import maximise_over_simplex
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import (
    fma,
    get_number,
    load,
    put_number,
    span,
    splat,
    store,
)
from smoothsp._kernels.vectors.simd_masked import reduce_sum

LANES = 8

# Rows that are read side by side, and numbers of each row per block. A block of the
# new gradient, 16 KiB of float64, stays in the first-level cache for all rows.
ROWS_AT_ONCE, BLOCK = 4, 2048


@kernel
def add_cut(before, gradient, offset, lam, patience, bundle, after, p, stats):
    """Add a cut and solve the dual over all t cuts.

    ``before`` and ``after`` are (slots, cuts); ``bundle`` is (gradients, products).
    ``cuts[:, 3]`` are offsets, weights, and rounds without weight. The gradient is
    written to a free slot, and its inner products to that row and column of
    ``products``. Fill p, as long as a row of ``gradients``, and ``stats``: the number
    of cuts that remain, then means of offsets, of absolute offsets and of norms of
    gradients, by weight. A cut is dropped after more than ``patience`` rounds without
    weight; a negative ``patience`` drops none.
    """
    (slots, cuts), (next_slots, next_cuts) = before, after
    gradients, products = bundle
    t, d = len(next_slots), len(gradient)
    slot_in_use = arrays.zeros(len(gradients), np.int64)
    b, weights = arrays.empty(t), arrays.empty(t)
    for a in range(t - 1):
        next_slots[a] = slots[a]
        slot_in_use[slots[a]] = 1
        # the dual times lam: max <lam b, a> - 1/2 |p|^2
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
        put_number(rows, free_slot * width + e, get_number(new_gradient, e))
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
    # warm start from the weights of the last round, the new cut at 0
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
    """Fill sums[t] with inner products of the listed rows and the row at an offset."""
    _pad_rows(row_offsets, sums, num_rows)
    sums[:] = 0.0
    # blocks outside, rows inside: the block of x is read from memory once
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
    """Fill p with the weighted sum of ``num_rows`` rows."""
    _pad_rows(row_offsets, row_weights, num_rows)
    out = span(p)
    # backwards: the inner products read the last block last, and it is still in the
    # cache
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
    """Repeat the last row with weight 0: groups of ``ROWS_AT_ONCE`` rows are full."""
    for a in range(num_rows, num_rows + ROWS_AT_ONCE):
        row_offsets[a], row_weights[a] = row_offsets[max(num_rows - 1, 0)], 0.0
