"""Labellings of a set by their contingency tables: the best one, and sums over all.

One class at a time: element i of m has log odds ``theta[i]``, falling, of being put
into the other class. The weight of all labellings that flip v of the first k is the
elementary symmetric polynomial e_v of ``exp(theta[:k])``; kept is

    E_k(v) = e_v / exp(theta[0] + ... + theta[v - 1]) = E_{k-1}(v) + r E_{k-1}(v - 1),

with ``r = exp(theta[k - 1] - theta[v - 1])`` at most 1. Neighbours of E differ by a
factor of at most m, so that BLOCK of them share an exponent: E is ``m 2^e``, with a
float64 each and an e for each block. Way back, with X for what follows, neighbours may
differ by any factor; what then underflows next to the largest of its block has no part
in any sum.
"""

import math

import numpy as np
from numba import njit

from smoothsp._kernels.compilation.kernel import kernel

BLOCK = 32
# steps from one normalisation of the blocks to the next
STEPS = 32
# an exponent that counts for nothing
NEVER = -(1 << 40)
LN2 = math.log(2)
# log weights this far below the largest have no part in a sum
FAR = 100.0


@kernel
def best_table(positive, negative, found):
    """Fill ``found`` with the largest loss plus gains, and its b and c.

    ``positive[b]`` is the most that b false negatives gain, ``negative[c]`` that of c
    false positives; the loss is ``1 - F1``.
    """
    P, N = len(positive) - 1, len(negative) - 1
    best, at, beside = -np.inf, 0, 0
    for b in range(P + 1):
        for c in range(N + 1):
            value = (b + c) / (2.0 * P - b + c) + positive[b] + negative[c]
            if value > best:
                best, at, beside = value, b, c
    found[0], found[1], found[2] = best, at, beside


@kernel
def joint(positive, negative, mu, at_b, at_c, log_total):
    """Fill the chances of b and of c, and the log of the sum over all tables.

    ``positive[b]`` and ``negative[c]`` are log weights of the labellings of a class.
    """
    P, N = len(positive) - 1, len(negative) - 1
    top = -np.inf
    for b in range(P + 1):
        row = -np.inf
        for c in range(N + 1):
            row = max(row, (b + c) / (2.0 * P - b + c) / mu + negative[c])
        top = max(top, row + positive[b])
    at_b[:] = 0
    at_c[:] = 0
    total = 0.0
    for b in range(P + 1):
        row = 0.0
        for c in range(N + 1):
            z = (b + c) / (2.0 * P - b + c) / mu + negative[c] + positive[b] - top
            if z > -FAR:
                weight = math.exp(z)
                row += weight
                at_c[c] += weight
        at_b[b] = row
        total += row
    for b in range(P + 1):
        at_b[b] /= total
    for c in range(N + 1):
        at_c[c] /= total
    log_total[0] = top + math.log(total)


@njit(error_model="numpy")
def _power(e):
    """2^e, 0 where it underflows."""
    return math.ldexp(1.0, int(e)) if e > -1022 else 0.0


@njit(error_model="numpy")
def _normalise(values, exponents, last):
    """The largest of each block up to ``last`` from 1/2 to 1."""
    for j in range(last // BLOCK + 1):
        top = 0.0
        for v in range(j * BLOCK, (j + 1) * BLOCK):
            top = max(top, values[v])
        if top == 0:
            exponents[j] = NEVER
            continue
        e = math.frexp(top)[1]
        scale = _power(-e)
        for v in range(j * BLOCK, (j + 1) * BLOCK):
            values[v] *= scale
        exponents[j] += e


@njit(error_model="numpy")
def _ratios(theta, base, first, k, ratios):
    """``exp(theta[k] - theta[v - 1])`` for v from 1 to ``k + 1``.

    ``base`` has those of ``first``, a little earlier.
    """
    here = math.exp(theta[k] - theta[first])
    for v in range(1, first + 2):
        ratios[v] = here * base[v]
    for v in range(first + 2, k + 2):
        ratios[v] = math.exp(theta[k] - theta[v - 1])


@njit(error_model="numpy")
def _base(theta, first, base):
    for v in range(1, first + 2):
        base[v] = math.exp(theta[first] - theta[v - 1])


@njit(error_model="numpy")
def _forward(ratios, k, values, exponents, after, exponents_after):
    """E of ``k + 1`` elements from that of k."""
    v = k + 1
    if v % BLOCK == 0:
        exponents[v // BLOCK] = exponents[v // BLOCK - 1]
    # rows are used again
    values[v] = 0.0
    for v in range(k + 2, ((k + 1) // BLOCK + 1) * BLOCK):
        after[v] = 0.0
    after[0] = values[0]
    for v in range(1, k + 2):
        after[v] = values[v] + ratios[v] * values[v - 1]
    for j in range((k + 1) // BLOCK + 1):
        exponents_after[j] = exponents[j]
        v = j * BLOCK
        if j > 0:
            scale = _power(exponents[j - 1] - exponents[j])
            after[v] = values[v] + ratios[v] * values[v - 1] * scale
    if k % STEPS == 0:
        _normalise(after, exponents_after, k + 1)


@kernel
def log_weights(theta, every, rows, row_exponents, base, ratios, out):
    """Fill the log weights of flipping v, and E at every ``every``-th element.

    ``rows`` and ``row_exponents`` have one row for each of these, and one more as room;
    they are zeros before. ``rows[s]`` is E of ``s * every`` elements.
    """
    m = len(theta)
    rows[0, 0] = 1.0
    segments = (m + every - 1) // every
    room = np.zeros((2, rows.shape[1]))
    exponents = np.zeros((2, row_exponents.shape[1]), np.int64)
    for s in range(segments):
        first = s * every
        _base(theta, first, base)
        room[0], exponents[0] = rows[s], row_exponents[s]
        now = 0
        for k in range(first, min(first + every, m)):
            _ratios(theta, base, first, k, ratios)
            _forward(
                ratios, k, room[now], exponents[now], room[1 - now], exponents[1 - now]
            )
            now = 1 - now
        rows[s + 1], row_exponents[s + 1] = room[now], exponents[now]
    total = 0.0
    for v in range(m + 1):
        if v > 0:
            total += theta[v - 1]
        exponent = row_exponents[segments, v // BLOCK] * LN2
        out[v] = math.log(rows[segments, v]) + exponent + total


@njit(error_model="numpy")
def _begin(chances, values, exponents, X, exponents_x):
    """X of all elements: chances over E."""
    m = len(chances) - 1
    X[:] = 0
    for j in range(m // BLOCK + 1):
        top = -np.inf
        for v in range(j * BLOCK, min((j + 1) * BLOCK, m + 1)):
            if chances[v] > 0:
                X[v] = math.log(chances[v]) - math.log(values[v])
                top = max(top, X[v])
            else:
                X[v] = -np.inf
        exponents_x[j] = NEVER
        if top > -np.inf:
            e = math.floor(top / LN2)
            exponents_x[j] = e - exponents[j]
            for v in range(j * BLOCK, min((j + 1) * BLOCK, m + 1)):
                X[v] = math.exp(X[v] - e * LN2)
        else:
            for v in range(j * BLOCK, min((j + 1) * BLOCK, m + 1)):
                X[v] = 0.0


@njit(error_model="numpy")
def _backward(ratios, k, values, exponents, X, exponents_x, products, sums):
    """X of k elements from that of ``k + 1``; the chance that the last one flips."""
    last = k // BLOCK
    for v in range(k + 1):
        products[v] = ratios[v + 1] * X[v + 1]
    sums[:] = 0
    edges = 0.0
    for j in range(last + 1):
        v = j * BLOCK
        scale = _power(exponents[j] + exponents_x[j])
        inside = min(BLOCK - 1, k + 1 - v)
        if scale > 0:
            for i in range(inside):
                sums[i] += scale * (values[v + i] * products[v + i])
        for i in range(inside):
            X[v + i] += products[v + i]
        v += BLOCK - 1
        if v > k or products[v] == 0:
            continue
        # the one whose product belongs to the next block
        edges += values[v] * products[v] * _power(exponents[j] + exponents_x[j + 1])
        more, e = math.frexp(products[v])
        e += exponents_x[j + 1] - exponents_x[j]
        if e > 64:
            scale = _power(-e)
            for i in range(BLOCK):
                X[v - i] *= scale
            exponents_x[j] += e
            e = 0
        X[v] += more * _power(e)
    X[k + 1] = 0.0
    if k % STEPS == 0:
        _normalise(X, exponents_x, k)
    total = edges
    for i in range(BLOCK):
        total += sums[i]
    return total


@kernel
def flips(theta, every, chances, rows, row_exponents, base, ratios, out):
    """Fill the chance of each element to be flipped.

    ``chances[v]`` is that of v flips; ``rows`` and the rest are as ``log_weights`` left
    them.
    """
    m, width = len(theta), rows.shape[1]
    segments = (m + every - 1) // every
    values = np.zeros((every + 1, width))
    exponents = np.zeros((every + 1, row_exponents.shape[1]), np.int64)
    X = np.zeros(width)
    exponents_x = np.full(row_exponents.shape[1], NEVER)
    products, sums = np.zeros(width), np.zeros(BLOCK)
    _begin(chances, rows[segments], row_exponents[segments], X, exponents_x)
    for s in range(segments - 1, -1, -1):
        first, last = s * every, min((s + 1) * every, m)
        _base(theta, first, base)
        values[0], exponents[0] = rows[s], row_exponents[s]
        for k in range(first, last - 1):
            _ratios(theta, base, first, k, ratios)
            o = k - first
            _forward(
                ratios, k, values[o], exponents[o], values[o + 1], exponents[o + 1]
            )
        for k in range(last - 1, first - 1, -1):
            _ratios(theta, base, first, k, ratios)
            o = k - first
            out[k] = _backward(
                ratios, k, values[o], exponents[o], X, exponents_x, products, sums
            )
