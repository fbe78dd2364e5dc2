"""Sums over all spanning trees of heads: the matrix-tree theorem without a subtraction.

Words are eliminated one at a time, from the last. Word k has the weights of its heads
``w[i, k]``, of sum D, and all trees sum to D times those of the other words, where
``w[i, j]`` has become ``w[i, j] + w[i, k] w[k, j] / D``: a sum of positive numbers,
however far they spread. That is Gaussian elimination of the Laplacian with its diagonal
taken from what is left of the columns.

``arcs`` are ``[B, n + 1, n + 1]`` of float64: head, modifier. With ``single`` exactly
one word has the root for its head: the root's weights count as infinitely small, so
that D is the sum over words, but for the last word.
"""

import math

import numpy as np
from numba import njit

from smoothsp._kernels.compilation.kernel import kernel

# Below this chance that heads drawn one by one make a tree, exponents may run out.
LEAST = -600.0


@kernel
def sums(first, last, arcs, lengths, single, inwards, value, far, chances):
    """Fill value[B], the log-partition, and, if ``inwards``, chances[B, n + 1, n + 1].

    Rows whose weights spread beyond the exponents of float64 are marked in far[B], for
    ``tree_moves`` to answer.
    """
    size = arcs.shape[1]
    w, g, kept = np.empty((3, size, size))
    d, row = np.empty((2, size))
    for b in range(first, last):
        n = lengths[b]
        shift, product = weights(arcs[b], n, single, w)
        if inwards:
            kept[:] = w
        total = eliminate(w, n, single, d, row)
        value[b] = shift + total
        far[b] = not total - product > LEAST
        if not inwards:
            continue
        for i in range(size):
            for j in range(size):
                chances[b, i, j] = 0
        if far[b]:
            continue
        adjoint(w, n, single, d, g)
        for i in range(n + 1):
            for j in range(1, n + 1):
                if i != j:
                    chances[b, i, j] = max(kept[i, j] * g[i, j], 0.0)


@njit(error_model="numpy", no_cpython_wrapper=True)
def weights(scores, n, single, w):
    """Fill w with weights of which the largest of each word is 1.

    Returns the logarithm of what they were divided by, and that of the product of their
    sums, which bounds the sum over trees.
    """
    lowest = 1 if single else 0
    shift, product, root = 0.0, 0.0, -np.inf
    for j in range(1, n + 1):
        top = -np.inf
        for i in range(lowest, n + 1):
            if i != j:
                top = max(top, scores[i, j])
        if top == -np.inf:
            top = scores[0, j] if scores[0, j] > -np.inf else 0.0
        shift += top
        total = 0.0
        for i in range(lowest, n + 1):
            w[i, j] = math.exp(scores[i, j] - top) if i != j else 0.0
            total += w[i, j]
        product += math.log(max(total, 1.0))
        if single:
            w[0, j] = scores[0, j] - top
            root = max(root, w[0, j])
    if single and n > 0:
        shift += root
        product += math.log(n)
        for j in range(1, n + 1):
            w[0, j] = math.exp(w[0, j] - root) if w[0, j] > -np.inf else 0.0
    return shift, product


@njit(error_model="numpy", no_cpython_wrapper=True)
def eliminate(w, n, single, d, row):
    """The logarithm of the sum over trees; -inf where a word has lost all heads.

    Of w what is above the diagonal become shares ``w[i, k] / d[k]``; what is left of it
    is what the words' own arcs weighed when they were eliminated.
    """
    total = 0.0
    for k in range(n, 0, -1):
        lowest = 1 if single and k > 1 else 0
        mass = 0.0
        for i in range(lowest, k):
            mass += w[i, k]
        d[k] = mass
        if not mass > 0:
            return -np.inf
        total += math.log(mass)
        for j in range(1, k):
            row[j] = w[k, j]
        for i in range(k):
            share = w[i, k] / mass
            w[i, k] = share
            if share > 0:
                for j in range(1, k):
                    w[i, j] += share * row[j]
    return total


@njit(error_model="numpy", no_cpython_wrapper=True)
def adjoint(w, n, single, d, g):
    """Fill g[i, j] = d log(sum) / d w[i, j], from what ``eliminate`` left in w.

    In the sums below each term is a weight times a derivative: a chance.
    """
    turned = np.zeros(g.shape)
    along, down = np.empty((2, len(g)))
    for k in range(1, n + 1):
        for i in range(k):
            along[i] = down[i] = 0
        # both as sums of rows, which the compiler puts on vectors
        for j in range(1, k):
            share = w[k, j]
            for i in range(k):
                along[i] += share * turned[j, i]
        for i in range(k):
            share = w[i, k]
            for j in range(1, k):
                down[j] += share * g[i, j]
        children = 0.0
        for j in range(1, k):
            children += w[k, j] * down[j]
            g[k, j] = turned[j, k] = down[j]
        g[k, k] = 0
        for i in range(k):
            found = along[i] / d[k]
            if i > 0 or k == 1 or not single:
                found += (1 - children) / d[k]
            g[i, k] = turned[k, i] = found
