"""Labels of the spans of binary trees."""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors.arrays import at


@kernel
def labels_of_trees(sizes, places):
    """Fill labels[B, K, n, n] with those of y, all -1 where y is no tree by number.

    A tree over N words has ``2 N - 1`` spans; of so many that make a tree, none is left
    over. Only spans of the first ``lengths[b]`` words are counted. ``places`` are the
    addresses of y, lengths and labels, all of int64, ``sizes`` B, K and n.
    """
    B, K, n = sizes
    y, labels = (
        at(places[0], (B, K, n, n), np.int64),
        at(places[2], (B, K, n, n), np.int64),
    )
    lengths = at(places[1], (B,), np.int64)
    for b in range(B):
        N = lengths[b]
        for k in range(K):
            several = 0
            for i in range(N):
                for j in range(i, N):
                    several += y[b, k, i, j] >= 0
            right = several == max(2 * N - 1, 0)
            for i in range(n):
                for j in range(n):
                    labels[b, k, i, j] = y[b, k, i, j] if right else -1
