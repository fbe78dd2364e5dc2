"""One pass over an array at an address: scaling, weighted sums, checked copies."""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import carray


@kernel
def scale_rows(first, last, size, weights, stride, parts, like):
    """Multiply rows first to last of parts[B, size] by weights[stride * b], in place.

    Both are addresses of arrays of the dtype of ``like``. A weight of 1 is skipped.
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
    """Fill sums[size] with the sum over b of weights[stride * b] times parts[b, :].

    All are addresses of arrays of the dtype of ``like``; sums run in float64.
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
    """Copy the int64 numbers ``source[stride * e]``, e below ``size``, to the target.

    Returns the first e whose number is not in [0, max_index], or -1. Both arrays are
    given by address.
    """
    source = carray(source_address, (max(size - 1, 0) * stride + 1,), np.int64)
    target = carray(target_address, (size,), np.int64)
    for e in range(size):
        index = source[e * stride]
        if index < 0 or index > max_index:
            return e
        target[e] = index
    return -1
