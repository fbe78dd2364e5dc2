"""Squared norms of sparse rows: ``|x_i|^2``, summed in float64."""

from numba import njit

from smoothsp._kernels.simd import get, span


@njit(cache=True, nogil=True, error_model="numpy")
def squares(first, last, indptr, data, out):
    """Fill the squared norms of the rows from first to last."""
    values = span(data)
    for i in range(first, last):
        # in two sums: one would wait for itself
        a = b = 0.0
        e, high = indptr[i], indptr[i + 1]
        while e + 2 <= high:
            x, y = float(get(values, e)), float(get(values, e + 1))
            a += x * x
            b += y * y
            e += 2
        if e < high:
            x = float(get(values, e))
            a += x * x
        out[i] = a + b
