"""One pass over an array at an address: scaled, added up, or kept within bounds."""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import carray


@kernel
def scale_rows(first, last, size, weights, stride, parts, like):
    """Multiply row b of parts[B, size] by ``weights[stride * b]``, in place.

    Both of the dtype of ``like``; rows ``first`` to ``last``. A weight of 1 costs
    nothing.
    """
    weight_values = carray(weights, (max(last - 1, 0) * stride + 1,), like)
    flat = carray(parts, (last * size,), like)
    for b in range(first, last):
        weight = weight_values[b * stride]
        if weight != 1:
            for e in range(b * size, (b + 1) * size):
                flat[e] *= weight


@kernel
def add_rows(B, size, weights, stride, parts, sums, like):
    """Fill sums[size] with the rows of parts[B, size] times ``weights[stride * b]``.

    All of the dtype of ``like``; added up in float64.
    """
    weight_values = carray(weights, (max(B - 1, 0) * stride + 1 if B else 0,), like)
    flat, out = carray(parts, (B * size,), like), carray(sums, (size,), like)
    total = arrays.zeros(size, np.float64)
    for b in range(B):
        weight = np.float64(weight_values[b * stride])
        for e in range(size):
            total[e] += weight * flat[b * size + e]
    for e in range(size):
        out[e] = total[e]


@kernel
def copy_checked_indices(size, source_address, stride, max_index, target_address):
    """Fill copied[size] with int64 ``given[stride * e]``.

    Returns the first e whose number is not from 0 to ``most``, or -1.
    """
    source = carray(source_address, (max(size - 1, 0) * stride + 1,), np.int64)
    target = carray(target_address, (size,), np.int64)
    for e in range(size):
        index = source[e * stride]
        if index < 0 or index > max_index:
            return e
        target[e] = index
    return -1
