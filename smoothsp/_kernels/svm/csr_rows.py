"""CSR matrices: validation, squared norms, products and weighted sums of rows.

    dot                  w'x = sum_e w(column of e) value(e)
    add_row              w(column of e) += change value(e)
    squared_norms        |x|^2 = sum_e value(e)^2
    weights_from_dual    W(f, :) = sum_i x_i(f) a_i(:)

The entries of row i are ``indptr[i]`` to ``indptr[i + 1]``. Weights at scattered
columns are not contiguous, so ``dot_short`` adds scalars to four independent sums; in
long rows ``dot`` lets LLVM gather them into vectors. ``weights_from_dual`` has vectors
over the P numbers of a feature.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.simd import (
    fma,
    get_number,
    load,
    put_number,
    span,
    splat_at,
    store,
)

# Smallest number of entries for which gathering into vectors is faster, measured.
LONG = 32


@subroutine(forceinline=True)
def dot_short(low, high, columns, values, w, zero):
    """Return ``w'x`` of the entries low to high, by four independent sums.

    Additions to different sums overlap in the pipeline.
    """
    a = b = c = d = zero
    e = low
    while e + 4 <= high:
        a += get_number(w, get_number(columns, e)) * get_number(values, e)
        b += get_number(w, get_number(columns, e + 1)) * get_number(values, e + 1)
        c += get_number(w, get_number(columns, e + 2)) * get_number(values, e + 2)
        d += get_number(w, get_number(columns, e + 3)) * get_number(values, e + 3)
        e += 4
    while e < high:
        a += get_number(w, get_number(columns, e)) * get_number(values, e)
        e += 1
    return (a + b) + (c + d)


@subroutine
def dot(low, high, columns, values, w, zero):
    """Return ``w'x``, for rows of any length."""
    if high - low < LONG:
        return dot_short(low, high, columns, values, w, zero)
    return _dot_long(low, high, columns, values, w, zero)


@subroutine(fastmath={"contract", "reassoc"})
def _dot_long(low, high, columns, values, w, zero):
    """Return ``w'x``; LLVM may reorder the sum, to gather w by vector instructions."""
    total = zero
    for e in range(low, high):
        total += get_number(w, get_number(columns, e)) * get_number(values, e)
    return total


@subroutine(forceinline=True)
def add_row(low, high, change, columns, values, w):
    """Add ``change`` times x to w."""
    for e in range(low, high):
        j = get_number(columns, e)
        put_number(w, j, get_number(w, j) + change * get_number(values, e))


@kernel
def check_csr(first, last, indptr, indices, columns, report):
    """Fill report[2]: the first entry out of range, and whether columns are sorted.

    ``report[0]`` is the first entry whose column is not in [0, columns), or -1;
    ``report[1]`` is 1 if columns increase strictly within each row, else 0.
    """
    column_span = span(indices)
    report[0], report[1] = -1, 1
    for i in range(first, last):
        previous = -1
        for e in range(indptr[i], indptr[i + 1]):
            j = get_number(column_span, e)
            if j < 0 or j >= columns:
                report[0] = e
                return
            if j <= previous:
                report[1] = 0
            previous = j


@kernel
def squared_norms(first, last, indptr, data, out):
    """Fill out[first:last] with the squared norms of the rows, summed in float64."""
    values = span(data)
    for i in range(first, last):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            x = np.float64(get_number(values, e))
            total += x * x
        out[i] = total


@kernel
def weights_from_dual(
    first, last, rows, indptr, indices, data, P, zeros, coefficients, weights
):
    """Fill the weights with the sum of ``x_i a_i'`` over ``rows[first:last]``."""
    V = len(zeros)
    weights[:] = 0
    w, a = span(weights), span(coefficients)
    columns, values = span(indices), span(data)
    for k in range(first, last):
        i = rows[k]
        for e in range(indptr[i], indptr[i + 1]):
            o = get_number(columns, e) * P
            x = splat_at(values, e)
            for j in range(0, P, V):
                store(w, o + j, fma(x, load(a, i * P + j), load(w, o + j)))
