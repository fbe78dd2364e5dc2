"""Random permutations, reproducible from a seed on every platform."""

import numpy as np
from numba import uint64

from smoothsp._kernels.compilation.kernel import kernel


@kernel
def shuffle(state, order, orders):
    """Fill ``orders`` with random permutations of ``order``, concatenated.

    Fisher-Yates shuffles, with random numbers of splitmix64. ``state[0]``, a uint64, is
    updated; ``order`` becomes the last permutation.

    Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators".
    """
    n = len(order)
    s = state[0]
    for first in range(0, len(orders), n):
        for i in range(n - 1, 0, -1):
            s += uint64(0x9E3779B97F4A7C15)
            z = (s ^ (s >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
            z = (z ^ (z >> uint64(31))) >> uint64(32)
            # j in [0, i] from the upper 32 bits, without a division
            j = np.int64((z * uint64(i + 1)) >> uint64(32))
            other = order[j]
            order[j] = order[i]
            order[i] = other
        for i in range(n):
            orders[first + i] = order[i]
    state[0] = s
