r"""Cutting planes of a risk, and the weights that their maximum is lowest at.

A cut is ``<w, g_i> + b_i``. The dual of ``lam/2 |w|^2`` and the maximum of all cuts is

    max <b, a> - |p|^2 / (2 lam)    over the simplex,    p = sum_i a_i g_i

Slopes are rows in slots, of which ``slots`` lists those in use, oldest first.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.searches.simplex_quadratic import maximise
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import fma, get, load, put, span, splat, store
from smoothsp._kernels.vectors.simd_parts import sum_of

LANES = 8

# Numbers of p that stay near the core while all slopes are added up.
BLOCK = 512


@kernel
def add(
    slots, cuts, slope, offset, lam, patience, slopes, products,
    next_slots, next_cuts, p, found,
):  # fmt: skip
    """Take one more cut, and solve the dual: ``next_slots`` and ``next_cuts``, of t.

    ``cuts[t - 1, 3]`` are offsets, weights, and for how many rounds each had none. The
    slope is written to a slot that is free, its products to that row and column of
    ``products``. Fills p[d], and ``found`` with how many cuts are kept, those that had
    no weight for at most ``patience`` rounds, or all if it is negative, and with the
    means of offsets, of their sizes, and of the lengths of slopes.
    """
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
    given, rows = span(slope), span(slopes)
    for e in range(d):
        put(rows, free * d + e, get(given, e))
    for a in range(t):
        product = _product(given, rows, next_slots[a] * d, d)
        products[free, next_slots[a]] = products[next_slots[a], free] = product
    maximise(next_slots, products, b, weights)
    _mean(next_slots, weights, rows, d, p)
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
def _product(x, rows, o, d):
    """``<x, y>`` for y at o, in four sums that do not depend on each other."""
    p = q = r = s = splat(0.0)
    e = 0
    while e + 4 * LANES <= d:
        p = fma(load(x, e), load(rows, o + e), p)
        q = fma(load(x, e + LANES), load(rows, o + e + LANES), q)
        r = fma(load(x, e + 2 * LANES), load(rows, o + e + 2 * LANES), r)
        s = fma(load(x, e + 3 * LANES), load(rows, o + e + 3 * LANES), s)
        e += 4 * LANES
    total = sum_of((p + q) + (r + s))
    while e < d:
        total += get(x, e) * get(rows, o + e)
        e += 1
    return total


@subroutine
def _mean(slots, weights, rows, d, p):
    """Fill p with the sum of rows, each times its weight."""
    p[:] = 0.0
    out = span(p)
    for first in range(0, d, BLOCK):
        last = min(first + BLOCK, d)
        for a in range(len(slots)):
            if weights[a] > 0:
                share, o = splat(weights[a]), slots[a] * d
                e = first
                while e + LANES <= last:
                    store(out, e, fma(share, load(rows, o + e), load(out, e)))
                    e += LANES
                while e < last:
                    put(out, e, get(out, e) + weights[a] * get(rows, o + e))
                    e += 1
