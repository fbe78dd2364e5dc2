"""Max-product of a few rows of a batch, vectors over states.

Prefix scores are float64 and flat: ``alpha[o + n P + s]`` is the score of the best
prefix of n + 1 labels that ends in state s, where o is the row's offset and P is S up
to whole vectors, with -inf in between. Before a step, its emissions stand there.
"""

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import (
    larger,
    load,
    splat,
    splat_at,
    store,
    where_below,
)
from smoothsp._kernels.vectors.simd_parts import load_some, max_of

# Lanes of a vector of float64.
V = 8


@subroutine
def cache_lines(size):
    """Room for numbers from the start of a cache line on: no vector lies in two."""
    room = arrays.empty(size + 7, np.float64)
    skip = -(room.ctypes.data // 8) % 8
    return room[skip : skip + size]


@subroutine
def countdown():
    """The numbers 0, -1, ..., -7, of which ``place_of_max`` makes a vector."""
    numbers = arrays.empty(V, np.float64)
    for lane in range(V):
        numbers[lane] = -lane
    return numbers


@subroutine(forceinline=True)
def add(alpha, p, y):
    """Add a vector to the one at p."""
    store(alpha, p, y + load(alpha, p))


@subroutine(forceinline=True, machine_code=True)
def step_four(alpha, o, R, moves, S, P):
    """``alpha'(j) = max_i alpha(i) + moves(i, j) + e(j)`` for four rows.

    alpha is at o, and R further for each next row. Tiles of two vectors a row: their
    eight comparisons are independent, and overlap.
    """
    o1, o2, o3 = o + R, o + 2 * R, o + 3 * R
    j = 0
    while j + 2 * V <= P:
        m, t = load(moves, j), load(moves, j + V)
        v = splat_at(alpha, o)
        y0, z0 = v + m, v + t
        v = splat_at(alpha, o1)
        y1, z1 = v + m, v + t
        v = splat_at(alpha, o2)
        y2, z2 = v + m, v + t
        v = splat_at(alpha, o3)
        y3, z3 = v + m, v + t
        for i in range(1, S):
            m, t = load(moves, i * P + j), load(moves, i * P + j + V)
            v = splat_at(alpha, o + i)
            y0, z0 = larger(v + m, y0), larger(v + t, z0)
            v = splat_at(alpha, o1 + i)
            y1, z1 = larger(v + m, y1), larger(v + t, z1)
            v = splat_at(alpha, o2 + i)
            y2, z2 = larger(v + m, y2), larger(v + t, z2)
            v = splat_at(alpha, o3 + i)
            y3, z3 = larger(v + m, y3), larger(v + t, z3)
        p = P + j
        add(alpha, o + p, y0)
        add(alpha, o1 + p, y1)
        add(alpha, o2 + p, y2)
        add(alpha, o3 + p, y3)
        p += V
        add(alpha, o + p, z0)
        add(alpha, o1 + p, z1)
        add(alpha, o2 + p, z2)
        add(alpha, o3 + p, z3)
        j += 2 * V
    if j < P:
        m = load(moves, j)
        y0 = splat_at(alpha, o) + m
        y1 = splat_at(alpha, o1) + m
        y2 = splat_at(alpha, o2) + m
        y3 = splat_at(alpha, o3) + m
        for i in range(1, S):
            m = load(moves, i * P + j)
            y0 = larger(splat_at(alpha, o + i) + m, y0)
            y1 = larger(splat_at(alpha, o1 + i) + m, y1)
            y2 = larger(splat_at(alpha, o2 + i) + m, y2)
            y3 = larger(splat_at(alpha, o3 + i) + m, y3)
        p = P + j
        add(alpha, o + p, y0)
        add(alpha, o1 + p, y1)
        add(alpha, o2 + p, y2)
        add(alpha, o3 + p, y3)


@subroutine(forceinline=True, machine_code=True)
def step_one(alpha, o, moves, S, P):
    """As ``step_four``, for one row."""
    j = 0
    while j + 4 * V <= P:
        v = splat_at(alpha, o)
        y0, y1 = v + load(moves, j), v + load(moves, j + V)
        y2, y3 = v + load(moves, j + 2 * V), v + load(moves, j + 3 * V)
        for i in range(1, S):
            v = splat_at(alpha, o + i)
            e = i * P + j
            y0 = larger(v + load(moves, e), y0)
            y1 = larger(v + load(moves, e + V), y1)
            y2 = larger(v + load(moves, e + 2 * V), y2)
            y3 = larger(v + load(moves, e + 3 * V), y3)
        p = o + P + j
        add(alpha, p, y0)
        add(alpha, p + V, y1)
        add(alpha, p + 2 * V, y2)
        add(alpha, p + 3 * V, y3)
        j += 4 * V
    while j < P:
        # four independent chains of comparisons: one alone runs in sequence
        y0 = splat_at(alpha, o) + load(moves, j)
        y1 = y2 = y3 = y0
        i = 1
        while i + 4 <= S:
            e = i * P + j
            y0 = larger(splat_at(alpha, o + i) + load(moves, e), y0)
            y1 = larger(splat_at(alpha, o + i + 1) + load(moves, e + P), y1)
            y2 = larger(splat_at(alpha, o + i + 2) + load(moves, e + 2 * P), y2)
            y3 = larger(splat_at(alpha, o + i + 3) + load(moves, e + 3 * P), y3)
            i += 4
        while i < S:
            y0 = larger(splat_at(alpha, o + i) + load(moves, i * P + j), y0)
            i += 1
        add(alpha, o + P + j, larger(larger(y0, y1), larger(y2, y3)))
        j += V


@subroutine(forceinline=True, machine_code=True)
def step_edges(alpha, o, edges, e, S, P, back, p):
    """As ``step_one``, for the transitions ``edges[e:]``, S by S, of one step only.

    Fills back(j) at p with the lowest i that attains the maximum: the transitions are
    not read again.
    """
    low, zero = splat(np.float64(-np.inf)), splat(0.0)
    for j in range(0, P, V):
        y = splat_at(alpha, o) + load_some(edges, e + j, S - j, low)
        k = zero
        for i in range(1, S):
            v = splat_at(alpha, o + i) + load_some(edges, e + i * S + j, S - j, low)
            k = where_below(y, v, splat(float(i)), k)
            y = larger(v, y)
        add(alpha, o + P + j, y)
        store(back, p + j, k)


@subroutine(forceinline=True, machine_code=True)
def place_of_max(x, o, y, p, S, P, down):
    """The lowest i with the largest ``x(i) + y(i)``; ``down`` is 0, -1, -2, ..."""
    best = load(x, o) + load(y, p)
    here = place = down
    whole = splat(float(V))
    for s in range(V, P, V):
        here = here - whole
        v = load(x, o + s) + load(y, p + s)
        place = where_below(best, v, here, place)
        best = larger(v, best)
    last = splat(-float(P))
    place = where_below(best, splat(max_of(best)), last, place)
    # a valid state even where scores are NaN
    return min(int(-max_of(place)), S - 1)
