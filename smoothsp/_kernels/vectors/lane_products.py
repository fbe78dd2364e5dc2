"""Products of small matrices, one problem per lane of a vector.

Arrays are flat: S numbers per lane are ``[S, L]`` at an offset. Tiles of four columns
keep the sums in registers.
"""

from numba.extending import register_jitable

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.kahan import BLOCK, add_compensated_at
from smoothsp._kernels.vectors.simd import fma, load, splat_at, store


@register_jitable
def prefer_lanes(num_rows, S, L):
    """Return whether one row per lane is faster than one state per lane.

    By measurement it is if lanes are nearly full and the data of all lanes fits the
    cache.
    """
    num_groups = (num_rows + L - 1) // L
    return S * num_groups <= 2 * num_rows and S < 3 * L


@subroutine(forceinline=True)
def vector_matrix_product(x, x_offset, matrix, S, y, y_offset, zero, L):
    """Fill ``y(j) = sum_i x(i) matrix(i, j)`` in each lane, for a shared matrix."""
    # four columns at a time: one load of x for four products, four chains of fma
    j = 0
    while j + 4 <= S:
        a = b = c = d = zero
        for i in range(S):
            v = load(x, x_offset + i * L)
            e = i * S + j
            a = fma(v, splat_at(matrix, e), a)
            b = fma(v, splat_at(matrix, e + 1), b)
            c = fma(v, splat_at(matrix, e + 2), c)
            d = fma(v, splat_at(matrix, e + 3), d)
        e = y_offset + j * L
        store(y, e, a)
        store(y, e + L, b)
        store(y, e + 2 * L, c)
        store(y, e + 3 * L, d)
        j += 4
    while j < S:
        a = zero
        for i in range(S):
            a = fma(load(x, x_offset + i * L), splat_at(matrix, i * S + j), a)
        store(y, y_offset + j * L, a)
        j += 1


@subroutine
def sum_outer_products(x, y, N, S, zero, L, matrix, totals, compensations):
    """Fill ``totals(i, j) = matrix(i, j) sum over n in [1, N) of x_{n-1}(i) y_n(j)``.

    x and y are ``[N, S, L]``, totals and the scratch ``compensations`` ``[S, S, L]``;
    the latter is unused if N is at most ``BLOCK + 1``. All lanes share the matrix. The
    outer loop is over blocks of steps, the inner one over tiles of four by four: a tile
    keeps its 16 sums in registers, and sums of blocks are added by Kahan summation.
    """
    is_single_block = N - 1 <= BLOCK
    for e in range(0, S * S * L, L):
        if N < 2 or not is_single_block:
            store(totals, e, zero)
        if not is_single_block:
            store(compensations, e, zero)
    for first in range(1, N, BLOCK):
        last = min(first + BLOCK, N)
        for i in range(0, S, 4):
            for j in range(0, S, 4):
                if i + 4 <= S and j + 4 <= S:
                    target = (is_single_block, S, L, matrix, totals, compensations)
                    _sum_tile(first, last, i, j, x, y, zero, target)
                    continue
                for u in range(i, min(i + 4, S)):
                    for v in range(j, min(j + 4, S)):
                        t = zero
                        for n in range(first, last):
                            a = load(x, ((n - 1) * S + u) * L)
                            t = fma(a, load(y, (n * S + v) * L), t)
                        _store_or_add_sum(
                            t,
                            u * S + v,
                            (is_single_block, S, L, matrix, totals, compensations),
                        )
    if not is_single_block:
        for e in range(S * S):
            store(totals, e * L, load(totals, e * L) * splat_at(matrix, e))


@subroutine(forceinline=True)
def _sum_tile(first, last, i, j, x, y, zero, target):
    """Sum the tile at (i, j) over steps first to last: eight loads for 16 products."""
    S, L = target[1], target[2]
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero
    c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = zero
    for n in range(first, last):
        o = ((n - 1) * S + i) * L
        p = (n * S + j) * L
        y0, y1 = load(y, p), load(y, p + L)
        y2, y3 = load(y, p + 2 * L), load(y, p + 3 * L)
        v = load(x, o)
        a0, a1, a2, a3 = fma(v, y0, a0), fma(v, y1, a1), fma(v, y2, a2), fma(v, y3, a3)
        v = load(x, o + L)
        b0, b1, b2, b3 = fma(v, y0, b0), fma(v, y1, b1), fma(v, y2, b2), fma(v, y3, b3)
        v = load(x, o + 2 * L)
        c0, c1, c2, c3 = fma(v, y0, c0), fma(v, y1, c1), fma(v, y2, c2), fma(v, y3, c3)
        v = load(x, o + 3 * L)
        d0, d1, d2, d3 = fma(v, y0, d0), fma(v, y1, d1), fma(v, y2, d2), fma(v, y3, d3)
    e = i * S + j
    _store_tile_row(a0, a1, a2, a3, e, target)
    _store_tile_row(b0, b1, b2, b3, e + S, target)
    _store_tile_row(c0, c1, c2, c3, e + 2 * S, target)
    _store_tile_row(d0, d1, d2, d3, e + 3 * S, target)


@subroutine(forceinline=True)
def _store_tile_row(t0, t1, t2, t3, e, target):
    """Store four neighbouring sums of a row, the first at cell e."""
    _store_or_add_sum(t0, e, target)
    _store_or_add_sum(t1, e + 1, target)
    _store_or_add_sum(t2, e + 2, target)
    _store_or_add_sum(t3, e + 3, target)


@subroutine(forceinline=True)
def _store_or_add_sum(t, e, target):
    """Store matrix times the sum of a single block, or add it to the total so far."""
    is_single_block, _, L, matrix, totals, compensations = target
    if is_single_block:
        store(totals, e * L, t * splat_at(matrix, e))
    else:
        add_compensated_at(e * L, totals, compensations, t)
