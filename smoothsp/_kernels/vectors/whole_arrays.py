"""One pass over an array at an address: times weights of rows, or in another dtype."""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors.memory import at


@kernel
def scale_rows(first, last, size, weights, stride, parts, like):
    """Multiply row b of parts[B, size] by ``weights[stride * b]``, in place.

    Both of the dtype of ``like``; rows ``first`` to ``last``. A weight of 1 costs
    nothing.
    """
    given = at(weights, (max(last - 1, 0) * stride + 1,), like)
    flat = at(parts, (last * size,), like)
    for b in range(first, last):
        weight = given[b * stride]
        if weight != 1:
            for e in range(b * size, (b + 1) * size):
                flat[e] *= weight


@kernel
def narrow(size, numbers, rounded, like):
    """Fill rounded[size], of the dtype of ``like``, with float64 numbers[size]."""
    source = at(numbers, (size,), np.float64)
    target = at(rounded, (size,), like)
    for e in range(size):
        target[e] = source[e]
