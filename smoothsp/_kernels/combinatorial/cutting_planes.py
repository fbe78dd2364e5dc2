r"""Cutting planes of a risk, and the weights that their maximum is lowest at.

A cut is ``<w, g_i> + b_i``. The dual of ``lam/2 |w|^2`` and the maximum of all cuts is

    max <b, a> - |p|^2 / (2 lam)    over the simplex,    p = sum_i a_i g_i

Slopes are rows in slots, of which ``slots`` lists those in use, oldest first. A row
is a whole number of vectors long, with zeros at its end. A cut takes as long as it
takes to read rows: all of them for its products, those with weight for the mean.
"""

import numpy as np

from smoothsp._kernels.combinatorial.simplex_qp import maximise
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import fma, get, load, put, span, splat, store
from smoothsp._kernels.vectors.simd_masked import reduce_sum

LANES = 8

# How many rows are read side by side, and how many numbers of each at a time: so many
# of the vector that all of them meet stay near the core.
ROWS, BLOCK = 4, 2048


@kernel
def add_cut(before, slope, offset, lam, patience, room, after, p, found):
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
    slopes, products = room
    t, d = len(next_slots), len(slope)
    taken = arrays.zeros(len(slopes), np.int64)
    b, weights = arrays.empty(t), arrays.empty(t)
    for a in range(t - 1):
        next_slots[a] = slots[a]
        taken[slots[a]] = 1
        b[a], weights[a] = lam * cuts[a, 0], cuts[a, 1]
        next_cuts[a, 0], next_cuts[a, 2] = cuts[a, 0], cuts[a, 2]
    free = 0
    while taken[free] == 1:
        free += 1
    next_slots[t - 1] = free
    b[t - 1], weights[t - 1] = lam * offset, 1.0 if t == 1 else 0.0
    next_cuts[t - 1, 0], next_cuts[t - 1, 2] = offset, 0.0
    rows, given, wide = span(slopes), span(slope), slopes.shape[1]
    for e in range(d):
        put(rows, free * wide + e, get(given, e))
    places, numbers = arrays.empty(t + ROWS, np.int64), arrays.zeros(t + ROWS)
    for a in range(t):
        places[a] = next_slots[a] * wide
    _multiply(rows, free * wide, wide, places, t, numbers)
    for a in range(t):
        product, row = numbers[a], next_slots[a]
        products[free, row] = products[row, free] = product
    maximise(next_slots, products, b, weights)
    count = 0
    for a in range(t):
        if weights[a] > 0:
            places[count], numbers[count] = places[a], weights[a]
            count += 1
    _mean(rows, places, numbers, count, p)
    found[1:] = 0.0
    kept = 0
    for a in range(t):
        share, row = weights[a], next_slots[a]
        found[1] += share * next_cuts[a, 0]
        found[2] += share * abs(next_cuts[a, 0])
        found[3] += share * np.sqrt(products[row, row])
        idle = 0.0 if share > 0 else next_cuts[a, 2] + 1
        if patience < 0 or idle <= patience:
            next_slots[kept], next_cuts[kept, 0] = row, next_cuts[a, 0]
            next_cuts[kept, 1], next_cuts[kept, 2] = share, idle
            kept += 1
    found[0] = kept


@subroutine
def _multiply(rows, own, wide, places, t, sums):
    """Fill sums[t] with the products of rows with that at ``own``."""
    _round_up(places, sums, t)
    sums[:] = 0.0
    for first in range(0, wide, BLOCK):
        last = min(first + BLOCK, wide)
        for a in range(0, t, ROWS):
            i, j, k, o = places[a], places[a + 1], places[a + 2], places[a + 3]
            p = q = r = s = splat(0.0)
            for e in range(first, last, LANES):
                x = load(rows, own + e)
                p, q = fma(x, load(rows, i + e), p), fma(x, load(rows, j + e), q)
                r, s = fma(x, load(rows, k + e), r), fma(x, load(rows, o + e), s)
            sums[a] += reduce_sum(p)
            sums[a + 1] += reduce_sum(q)
            sums[a + 2] += reduce_sum(r)
            sums[a + 3] += reduce_sum(s)


@subroutine
def _mean(rows, places, shares, count, p):
    """Fill p with the sum of ``count`` rows, each times its share."""
    _round_up(places, shares, count)
    out = span(p)
    # from the end, which was read last
    for block in range((len(p) - 1) // BLOCK, -1, -1):
        first, last = block * BLOCK, min((block + 1) * BLOCK, len(p))
        for e in range(first, last, LANES):
            store(out, e, splat(0.0))
        for a in range(0, count, ROWS):
            i, j, k, o = places[a], places[a + 1], places[a + 2], places[a + 3]
            f, g = splat(shares[a]), splat(shares[a + 1])
            h, m = splat(shares[a + 2]), splat(shares[a + 3])
            for e in range(first, last, LANES):
                x = fma(f, load(rows, i + e), load(out, e))
                x = fma(h, load(rows, k + e), fma(g, load(rows, j + e), x))
                store(out, e, fma(m, load(rows, o + e), x))


@subroutine
def _round_up(places, shares, count):
    """The last row again, without a share, so that rows are a multiple of ``ROWS``."""
    for a in range(count, count + ROWS):
        places[a], shares[a] = places[max(count - 1, 0)], 0.0
