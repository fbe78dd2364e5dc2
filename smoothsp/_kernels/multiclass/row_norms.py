"""Squared norms of sparse rows: ``|x_i|^2``, summed in float64."""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors.simd import get, span


@kernel
def squares(first, last, indptr, data, out):
    """Fill the squared norms of the rows from first to last."""
    values = span(data)
    for i in range(first, last):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            x = np.float64(get(values, e))
            total += x * x
        out[i] = total
