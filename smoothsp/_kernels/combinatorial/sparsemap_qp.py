"""Weights of few outputs that maximise ``<s, p> - 1/2 |A p|^2`` over the simplex.

Column y of A is what output y uses. The outputs with weight are kept affinely
independent, so that the maximum over them is one solution of linear equations: with
``G = A'A + 1 1'``, which has the same maximum since ``1'p = 1``,

    G p = s - t 1,    1'p = 1

Rows have C slots each for outputs.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy

# Below this share of its own length, the residual of a column is rounding.
_DEPENDENT = 1e-12


@kernel
def add_output(first, last, products, scores, new, weights, active):
    """Add the output in slot ``new[i]`` of row i; -1: scores are new, -2: nothing is.

    ``products`` is A'A, ``[B, C, C]``. ``weights`` and ``active`` change in place: the
    slot of an output whose weight becomes 0 is free again.
    """
    C = scores.shape[1]
    held, p = arrays.empty(C, np.int64), arrays.empty(C)
    L, x, ones = arrays.empty((C, C)), arrays.empty(C), arrays.empty(C)
    for i in range(first, last):
        c = new[i]
        if c < -1:
            continue
        k = _collect(active[i], weights[i], held, p)
        if k == 0:
            active[i, c], weights[i, c] = True, 1.0
            continue
        _factor(products[i], held, k, L)
        if c >= 0:
            k = _append(products[i], held, k, p, L, x, c)
        k = _maximise(products[i], scores[i], held, k, p, L, x, ones)
        for a in range(C):
            active[i, a], weights[i, a] = False, 0.0
        for a in range(k):
            active[i, held[a]], weights[i, held[a]] = True, p[a]


@kernel
def _append(products, held, k, p, L, x, c):
    """Add output c to the factor of k outputs; return how many there are."""
    for a in range(k):
        x[a] = products[held[a], c] + 1
    rest = _lower(L, k, x)
    whole = products[c, c] + 1
    if whole - rest > _DEPENDENT * whole:
        for a in range(k):
            L[k, a] = x[a]
        L[k, k] = np.sqrt(whole - rest)
        held[k], p[k] = c, 0.0
        return k + 1
    # c is a mixture x of the others: weight moves from them to c until one of them
    # has none left
    _upper(L, k, x)
    out = 0
    for a in range(k):
        if x[a] > 0 and (x[out] <= 0 or p[a] * x[out] < p[out] * x[a]):
            out = a
    step = p[out] / x[out]
    for a in range(k):
        p[a] = max(p[a] - step * x[a], 0.0)
    held[out], p[out] = c, step
    _factor(products, held, k, L)
    return k


@kernel
def weights_jvp(first, last, products, active, scores, out):
    """Fill out[B, C]: ``dp/ds`` of the weights of a row, times scores[B, C].

    Over the outputs with weight ``x - o (1'x) / (1'o)``, for ``x = G^-1 scores`` and
    ``o = G^-1 1``, elsewhere 0.
    """
    C = active.shape[1]
    held = arrays.empty(C, np.int64)
    L, x, ones = arrays.empty((C, C)), arrays.empty(C), arrays.empty(C)
    for i in range(first, last):
        k = _collect(active[i], scores[i], held, x)
        _factor(products[i], held, k, L)
        ones[:k] = 1.0
        for y in (x, ones):
            _lower(L, k, y)
            _upper(L, k, y)
        total = mass = 0.0
        for a in range(k):
            total += ones[a]
            mass += x[a]
        out[i] = 0.0
        for a in range(k):
            out[i, held[a]] = x[a] - ones[a] * mass / total


@kernel
def _collect(active, weights, held, p):
    """List the slots in use and their weights; return how many."""
    k = 0
    for a in range(len(active)):
        if active[a]:
            held[k], p[k] = a, weights[a]
            k += 1
    return k


@kernel
def _factor(products, held, k, L):
    """Lower triangle of ``G = L L'``."""
    for a in range(k):
        for b in range(a + 1):
            value = products[held[a], held[b]] + 1
            for j in range(b):
                value -= L[a, j] * L[b, j]
            if a == b:
                L[a, a] = np.sqrt(max(value, 1e-300))
            else:
                L[a, b] = value / L[b, b]


@kernel
def _lower(L, k, x):
    """Solve ``L x = x`` in place; the squared length of the solution."""
    length = 0.0
    for a in range(k):
        value = x[a]
        for j in range(a):
            value -= L[a, j] * x[j]
        x[a] = value / L[a, a]
        length += x[a] * x[a]
    return length


@kernel
def _upper(L, k, x):
    """Solve ``L' x = x`` in place."""
    for a in range(k - 1, -1, -1):
        value = x[a]
        for j in range(a + 1, k):
            value -= L[j, a] * x[j]
        x[a] = value / L[a, a]


@kernel
def _maximise(products, scores, held, k, p, L, x, ones):
    """Move p to the maximum over the outputs with weight; return how many keep one."""
    while True:
        # less the largest: large scores that are alike lose no digits
        top = scores[held[0]]
        for a in range(k):
            top = max(top, scores[held[a]])
        for a in range(k):
            x[a], ones[a] = scores[held[a]] - top, 1.0
        _lower(L, k, x)
        _upper(L, k, x)
        _lower(L, k, ones)
        _upper(L, k, ones)
        one, mass = 0.0, 0.0
        for a in range(k):
            one += ones[a]
            mass += x[a]
        t = (mass - 1) / one
        # towards the maximum, as long as no weight is negative
        way, out = 1.0, -1
        for a in range(k):
            x[a] -= t * ones[a]
            if x[a] <= 0 and p[a] < way * (p[a] - x[a]):
                way, out = p[a] / (p[a] - x[a]), a
            elif x[a] <= 0 and out < 0:
                out = a
        if out < 0:
            copy(x[:k], p[:k])
            return k
        for a in range(k):
            p[a] = max(p[a] + way * (x[a] - p[a]), 0.0)
        k -= 1
        for a in range(out, k):
            held[a], p[a] = held[a + 1], p[a + 1]
        _factor(products, held, k, L)
