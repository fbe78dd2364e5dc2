"""Weights from the coefficients that they stand for."""

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors.simd import fma, get, load, span, splat_at, store


@kernel
def rebuild(first, last, rows, indptr, indices, data, P, zeros, coefficients, weights):
    """Fill the weights with the sum of ``x_i a_i'`` over ``rows[first:last]``."""
    V = len(zeros)
    weights[:] = 0
    w, a = span(weights), span(coefficients)
    columns, values = span(indices), span(data)
    for k in range(first, last):
        i = rows[k]
        for e in range(indptr[i], indptr[i + 1]):
            o = get(columns, e) * P
            x = splat_at(values, e)
            for j in range(0, P, V):
                store(w, o + j, fma(x, load(a, i * P + j), load(w, o + j)))
