"""Products of small matrices, one problem per lane of a vector.

Arrays are flat: a vector of S numbers per lane is ``[S, L]`` at an offset. Tiles of
four keep what is summed in registers.
"""

import numpy as np
from numba import njit

from smoothsp._kernels.simd import fma, larger, load, splat, store

# Steps between two hand-overs of a running sum to float64.
BLOCK = 64


@njit(error_model="numpy", inline="always")
def product(x, o, matrix, S, y, p, zero, L):
    """``y(j) = sum_i x(i) matrix(i, j)``, x at offset o, y at p; the same matrix."""
    j = 0
    while j + 4 <= S:
        y0 = zero
        y1 = zero
        y2 = zero
        y3 = zero
        for i in range(S):
            v = load(x, o + i * L)
            e = i * S + j
            y0 = fma(v, splat(matrix[e]), y0)
            y1 = fma(v, splat(matrix[e + 1]), y1)
            y2 = fma(v, splat(matrix[e + 2]), y2)
            y3 = fma(v, splat(matrix[e + 3]), y3)
        store(y, p + j * L, y0)
        store(y, p + (j + 1) * L, y1)
        store(y, p + (j + 2) * L, y2)
        store(y, p + (j + 3) * L, y3)
        j += 4
    while j < S:
        y0 = zero
        for i in range(S):
            y0 = fma(load(x, o + i * L), splat(matrix[i * S + j]), y0)
        store(y, p + j * L, y0)
        j += 1


@njit(error_model="numpy", inline="always")
def max_product(x, o, matrix, S, y, p, L):
    """``y(j) = max_i x(i) + matrix(i, j)``, x at offset o, y at p."""
    j = 0
    while j + 4 <= S:
        v = load(x, o)
        y0 = v + splat(matrix[j])
        y1 = v + splat(matrix[j + 1])
        y2 = v + splat(matrix[j + 2])
        y3 = v + splat(matrix[j + 3])
        for i in range(1, S):
            v = load(x, o + i * L)
            e = i * S + j
            y0 = larger(v + splat(matrix[e]), y0)
            y1 = larger(v + splat(matrix[e + 1]), y1)
            y2 = larger(v + splat(matrix[e + 2]), y2)
            y3 = larger(v + splat(matrix[e + 3]), y3)
        store(y, p + j * L, y0)
        store(y, p + (j + 1) * L, y1)
        store(y, p + (j + 2) * L, y2)
        store(y, p + (j + 3) * L, y3)
        j += 4
    while j < S:
        y0 = load(x, o) + splat(matrix[j])
        for i in range(1, S):
            y0 = larger(load(x, o + i * L) + splat(matrix[i * S + j]), y0)
        store(y, p + j * L, y0)
        j += 1


@njit(cache=True, nogil=True, error_model="numpy")
def outer_sums(N, S, zeros, x, y, total):
    """Fill ``total(i, j) = sum over n in [1, N) of x_{n-1}(i) y_n(j)``, in float64.

    x and y are ``[N, S, L]``, total ``[S, S, L]``.
    """
    L = len(zeros)
    zero = splat(zeros[0])
    block = np.empty(L, zeros.dtype)
    total[:] = 0
    for first in range(1, N, BLOCK):
        last = min(first + BLOCK, N)
        for i in range(0, S, 4):
            for j in range(0, S, 4):
                if i + 4 <= S and j + 4 <= S:
                    _tile(first, last, S, L, i, j, x, y, block, total, zero)
                    continue
                for u in range(i, min(i + 4, S)):
                    for v in range(j, min(j + 4, S)):
                        t = zero
                        for n in range(first, last):
                            a = load(x, ((n - 1) * S + u) * L)
                            t = fma(a, load(y, (n * S + v) * L), t)
                        _add(t, (u * S + v) * L, block, total)


@njit(error_model="numpy", inline="always")
def _tile(first, last, S, L, i, j, x, y, block, total, zero):
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
    _add_row(a0, a1, a2, a3, (i * S + j) * L, L, block, total)
    _add_row(b0, b1, b2, b3, (i * S + S + j) * L, L, block, total)
    _add_row(c0, c1, c2, c3, (i * S + 2 * S + j) * L, L, block, total)
    _add_row(d0, d1, d2, d3, (i * S + 3 * S + j) * L, L, block, total)


@njit(error_model="numpy", inline="always")
def _add_row(t0, t1, t2, t3, e, L, block, total):
    _add(t0, e, block, total)
    _add(t1, e + L, block, total)
    _add(t2, e + 2 * L, block, total)
    _add(t3, e + 3 * L, block, total)


@njit(error_model="numpy", inline="always")
def _add(t, e, block, total):
    """Add the lanes of t to the float64 numbers at e."""
    store(block, 0, t)
    for lane in range(len(block)):
        total[e + lane] += block[lane]
