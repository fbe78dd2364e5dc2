"""Random orders that depend on their seed alone."""

import numpy as np
from numba import uint64

from smoothsp._kernels.compilation import kernel


@kernel
def shuffle(state, order):
    """Shuffle ``order`` in place: Fisher and Yates, with the numbers of splitmix64.

    ``state`` is one uint64, carried on from call to call.
    """
    s = state[0]
    for i in range(len(order) - 1, 0, -1):
        s += uint64(0x9E3779B97F4A7C15)
        z = (s ^ (s >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
        z = (z ^ (z >> uint64(31))) >> uint64(32)
        j = np.int64((z * uint64(i + 1)) >> uint64(32))
        other = order[j]
        order[j] = order[i]
        order[i] = other
    state[0] = s
