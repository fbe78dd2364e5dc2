"""Products of vectors with one matrix, with lanes over states.

Rows of a matrix are padded by zeros from S to P, whole vectors of V. Sums of tiles of
four vectors stay in registers. The two halves of a sum are each added in order, then to
each other, for all tile sizes: the bits of a row do not depend on the rows computed
together with it.
"""

from typing import Any, NamedTuple

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.kahan import BLOCK, add_compensated_at
from smoothsp._kernels.vectors.simd import fma, load, splat_at, store
from smoothsp._kernels.vectors.simd_masked import store_masked

# Rows multiplied in one pass over the matrix.
ROWS_PER_PASS = 4


class Matrix(NamedTuple):
    """S rows of P numbers, in vectors of V lanes."""

    rows: Any  # [S, P]
    S: Any
    P: Any
    V: Any
    zero: Any  # a vector


@subroutine(forceinline=True)
def multiply_rows(x, x_offset, x_stride, num_rows, matrix, y):
    """Fill ``y(q, j) = sum_i x_q(i) matrix(i, j)`` for q below num_rows, at most 4.

    x_q begins at ``x_offset + q x_stride``; y is ``[4, P]``.
    """
    if num_rows > 2:
        third = x_offset + 2 * x_stride
        # three rows: the last is computed twice, in the code for four
        _multiply_four_rows(
            x,
            x_offset,
            x_offset + x_stride,
            third,
            third + (num_rows - 3) * x_stride,
            matrix,
            y,
        )
        return
    for q in range(num_rows):
        _multiply_one_row(x, x_offset + q * x_stride, matrix, y, q * matrix.P)


@subroutine(forceinline=True)
def _fma_four(v, m0, m1, m2, m3, t0, t1, t2, t3):
    """Return ``v m + t`` for four vectors m and sums t."""
    return fma(v, m0, t0), fma(v, m1, t1), fma(v, m2, t2), fma(v, m3, t3)


@subroutine(forceinline=True)
def _store_four(out, offset, stride, t0, t1, t2, t3):
    """Store four vectors, ``stride`` numbers apart, from ``offset`` on."""
    store(out, offset, t0)
    store(out, offset + stride, t1)
    store(out, offset + 2 * stride, t2)
    store(out, offset + 3 * stride, t3)


@subroutine(forceinline=True)
def _multiply_four_rows(x, o0, o1, o2, o3, matrix, y):
    """Multiply four rows, in tiles of four vectors: 16 sums in registers.

    For each tile the first half of the sum over i is stored in y, then the second half
    is added. For the last vectors, one at a time, both halves run together.
    """
    rows, S, P, V, zero = matrix
    middle = (S + 1) // 2
    tiled_width = P // (4 * V) * (4 * V)
    for j in range(0, tiled_width, 4 * V):
        for half in range(2):
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero
            c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = zero
            for i in range(half * middle, S if half else middle):
                e = i * P + j
                m0, m1 = load(rows, e), load(rows, e + V)
                m2, m3 = load(rows, e + 2 * V), load(rows, e + 3 * V)
                v = splat_at(x, o0 + i)
                a0, a1, a2, a3 = _fma_four(v, m0, m1, m2, m3, a0, a1, a2, a3)
                v = splat_at(x, o1 + i)
                b0, b1, b2, b3 = _fma_four(v, m0, m1, m2, m3, b0, b1, b2, b3)
                v = splat_at(x, o2 + i)
                c0, c1, c2, c3 = _fma_four(v, m0, m1, m2, m3, c0, c1, c2, c3)
                v = splat_at(x, o3 + i)
                d0, d1, d2, d3 = _fma_four(v, m0, m1, m2, m3, d0, d1, d2, d3)
            _store_half_sums(half, y, j, V, a0, a1, a2, a3)
            _store_half_sums(half, y, P + j, V, b0, b1, b2, b3)
            _store_half_sums(half, y, 2 * P + j, V, c0, c1, c2, c3)
            _store_half_sums(half, y, 3 * P + j, V, d0, d1, d2, d3)
    for j in range(tiled_width, P, V):
        a0 = b0 = c0 = d0 = a1 = b1 = c1 = d1 = zero
        for i in range(middle):
            m = load(rows, i * P + j)
            a0, b0 = fma(splat_at(x, o0 + i), m, a0), fma(splat_at(x, o1 + i), m, b0)
            c0, d0 = fma(splat_at(x, o2 + i), m, c0), fma(splat_at(x, o3 + i), m, d0)
            k = i + middle
            if k < S:
                m = load(rows, k * P + j)
                a1, b1 = _fma_pair(x, o0 + k, o1 + k, m, a1, b1)
                c1, d1 = _fma_pair(x, o2 + k, o3 + k, m, c1, d1)
        _store_four(y, j, P, a0 + a1, b0 + b1, c0 + c1, d0 + d1)


@subroutine(forceinline=True)
def _fma_pair(x, first_offset, second_offset, m, s, t):
    return fma(splat_at(x, first_offset), m, s), fma(splat_at(x, second_offset), m, t)


@subroutine(forceinline=True)
def _store_half_sums(is_second_half, out, offset, V, t0, t1, t2, t3):
    if is_second_half:
        t0, t1 = load(out, offset) + t0, load(out, offset + V) + t1
        t2, t3 = load(out, offset + 2 * V) + t2, load(out, offset + 3 * V) + t3
    _store_four(out, offset, V, t0, t1, t2, t3)


@subroutine(forceinline=True)
def _load_four(array, offset, V):
    """Load four consecutive vectors."""
    m0, m1 = load(array, offset), load(array, offset + V)
    return m0, m1, load(array, offset + 2 * V), load(array, offset + 3 * V)


@subroutine(forceinline=True)
def _multiply_one_row(x, x_offset, matrix, y, y_offset):
    """Multiply one row; both halves of each sum run together."""
    rows, S, P, V, zero = matrix
    middle = (S + 1) // 2
    tiled_width = P // (4 * V) * (4 * V)
    for j in range(0, tiled_width, 4 * V):
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero
        for i in range(middle):
            m0, m1, m2, m3 = _load_four(rows, i * P + j, V)
            v = splat_at(x, x_offset + i)
            a0, a1, a2, a3 = _fma_four(v, m0, m1, m2, m3, a0, a1, a2, a3)
            k = i + middle
            if k < S:
                m0, m1, m2, m3 = _load_four(rows, k * P + j, V)
                v = splat_at(x, x_offset + k)
                b0, b1, b2, b3 = _fma_four(v, m0, m1, m2, m3, b0, b1, b2, b3)
        _store_four(y, y_offset + j, V, a0 + b0, a1 + b1, a2 + b2, a3 + b3)
    for j in range(tiled_width, P, V):
        a = b = zero
        for i in range(middle):
            a = fma(splat_at(x, x_offset + i), load(rows, i * P + j), a)
            k = i + middle
            if k < S:
                b = fma(splat_at(x, x_offset + k), load(rows, k * P + j), b)
        store(y, y_offset + j, a + b)


@subroutine
def sum_outer_products(x, y, row_offset, N, matrix, accumulators, out, out_offset):
    """Fill ``out(i, j) = matrix(i, j) sum over n in [1, N) of x_{n-1}(i) y_n(j)``.

    x_n and y_n begin at ``row_offset + n P``; out is ``[S, S]`` at out_offset; N >= 2.
    ``accumulators`` are totals and compensations of Kahan summation, for N > BLOCK + 1:
    each has the size of the matrix, its rows rounded up to a multiple of four. The
    outer loop is over blocks of steps; the 16 sums of a tile stay in registers.
    """
    rows, S, P, V, zero = matrix
    totals, compensations = accumulators
    is_single_block = N - 1 <= BLOCK
    if not is_single_block:
        for e in range(0, S * P, V):
            store(totals, e, zero)
            store(compensations, e, zero)
    for first in range(1, N, BLOCK):
        last = min(first + BLOCK, N)
        tiled_width = P // (4 * V) * (4 * V)
        for j in range(0, tiled_width, 4 * V):
            for i in range(0, S, 4):
                target = (is_single_block, i, S, P, rows, accumulators, out, out_offset)
                _sum_tile(target, first, last, x, y, row_offset, j, V, zero)
        for j in range(tiled_width, P, V):
            for i in range(0, S, 4):
                a = b = c = d = zero
                for n in range(first, last):
                    m = load(y, row_offset + n * P + j)
                    e = row_offset + n * P - P + i
                    a, b = _fma_pair(x, e, e + 1, m, a, b)
                    c, d = _fma_pair(x, e + 2, e + 3, m, c, d)
                target = (is_single_block, i, S, P, rows, accumulators, out, out_offset)
                _store_tile_column(target, j, a, b, c, d)
    if not is_single_block:
        for i in range(S):
            for j in range(0, P, V):
                t = load(totals, i * P + j) * load(rows, i * P + j)
                store_masked(out, out_offset + i * S + j, S - j, t)


@subroutine(forceinline=True)
def _sum_tile(target, first, last, x, y, row_offset, j, V, zero):
    """Sum a tile over steps first to last: rows i to i + 3, four vectors from j on."""
    _, i, _, P, _, _, _, _ = target
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero
    c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = zero
    for n in range(first, last):
        m0, m1, m2, m3 = _load_four(y, row_offset + n * P + j, V)
        e = row_offset + n * P - P + i
        v = splat_at(x, e)
        a0, a1, a2, a3 = _fma_four(v, m0, m1, m2, m3, a0, a1, a2, a3)
        v = splat_at(x, e + 1)
        b0, b1, b2, b3 = _fma_four(v, m0, m1, m2, m3, b0, b1, b2, b3)
        v = splat_at(x, e + 2)
        c0, c1, c2, c3 = _fma_four(v, m0, m1, m2, m3, c0, c1, c2, c3)
        v = splat_at(x, e + 3)
        d0, d1, d2, d3 = _fma_four(v, m0, m1, m2, m3, d0, d1, d2, d3)
    _store_tile_column(target, j, a0, b0, c0, d0)
    _store_tile_column(target, j + V, a1, b1, c1, d1)
    _store_tile_column(target, j + 2 * V, a2, b2, c2, d2)
    _store_tile_column(target, j + 3 * V, a3, b3, c3, d3)


@subroutine(forceinline=True)
def _store_tile_column(target, j, a, b, c, d):
    """Store four rows of a vector at column j, times the matrix, or accumulate them.

    If there are several blocks, the sums are added to the accumulators instead, and
    the product with the matrix follows after the last block.
    """
    is_single_block, i, S, P, rows, accumulators, out, out_offset = target
    e = i * P + j
    if not is_single_block:
        totals, compensations = accumulators
        add_compensated_at(e, totals, compensations, a)
        add_compensated_at(e + P, totals, compensations, b)
        add_compensated_at(e + 2 * P, totals, compensations, c)
        add_compensated_at(e + 3 * P, totals, compensations, d)
        return
    out_offset += i * S + j
    store_masked(out, out_offset, S - j, a * load(rows, e))
    if i + 1 < S:
        store_masked(out, out_offset + S, S - j, b * load(rows, e + P))
    if i + 2 < S:
        store_masked(out, out_offset + 2 * S, S - j, c * load(rows, e + 2 * P))
    if i + 3 < S:
        store_masked(out, out_offset + 3 * S, S - j, d * load(rows, e + 3 * P))
