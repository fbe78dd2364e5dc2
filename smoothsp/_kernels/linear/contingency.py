"""Labellings of a set by their contingency tables: the best one, and sums over all.

One class at a time: element i of m has log odds ``theta[i]``, falling, of being put
into the other class. The weight of all labellings that flip v of the first k is the
elementary symmetric polynomial e_v of ``exp(theta[:k])``; kept is

    E_k(v) = e_v / exp(theta[0] + ... + theta[v - 1]) = E_{k-1}(v) + r E_{k-1}(v - 1),

with ``r = exp(theta[k - 1] - theta[v - 1])`` at most 1. Neighbours of E differ by a
factor of at most m, so that BLOCK of them share an exponent: E is ``m 2^e``, with a
float64 each and an e for each block.

The chance c(v) that element k is among v flips obeys, with x_k its odds,

    c(v) = a (1 - c(v - 1)),  1 - c(v - 1) = c(v) / a,  a = x_k e_{v-1} / e_v

and rises in v. Where it is at most 1/2, a is at most 1 and the first equation forgets
its rounding; where it is above, 1 / a is, and the second one does. So each element is
followed from v = 0 to where its chance passes 1/2, and from v = m back to there: O(m)
numbers, and none of the polynomials without k.
"""

import math

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays

BLOCK = 32
# steps from one normalisation of the blocks to the next
STEPS = 32
# an exponent so low that what has it adds nothing
NEVER = -(1 << 40)
LN2 = math.log(2)
# log weights this far below the largest add nothing to a sum
FAR = 100.0
# nor do logs of odds this far below another, which would become denormal
LOST = 600.0


@kernel
def best_table(positive, negative, found):
    """Fill ``found`` with the largest loss plus gains, and its b and c.

        max over b, c of    (b + c) / (2 P - b + c) + positive[b] + negative[c]

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
def table_marginals(positive, negative, mu, at_b, at_c, sums):
    """Fill the chances of b and of c, and two sums over all tables.

    A table has probability ``exp(loss / mu + positive[b] + negative[c]) / Z`` with
    ``loss = (b + c) / (2 P - b + c)``. A first pass finds the largest exponent; the
    second subtracts it and sums. No number is stored for a table: there are about P N.

    ``positive[b]`` and ``negative[c]`` are log weights of the labellings of a class.
    ``sums`` are the log of all weights, and the loss that is expected.
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
    total = losses = 0.0
    for b in range(P + 1):
        row = 0.0
        for c in range(N + 1):
            loss = (b + c) / (2.0 * P - b + c)
            z = loss / mu + negative[c] + positive[b] - top
            if z > -FAR:
                weight = math.exp(z)
                row += weight
                losses += weight * loss
                at_c[c] += weight
        at_b[b] = row
        total += row
    for b in range(P + 1):
        at_b[b] /= total
    for c in range(N + 1):
        at_c[c] /= total
    sums[0], sums[1] = top + math.log(total), losses / total


@subroutine
def _power(e):
    """2^e, 0 where it underflows."""
    return math.ldexp(1.0, int(e)) if e > -1022 else 0.0


@subroutine
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


@subroutine
def _ratios(theta, base, first, k, ratios):
    """``exp(theta[k] - theta[v - 1])`` for v from 1 to ``k + 1``.

    ``base`` has those of ``first``, a little earlier.
    """
    here = math.exp(theta[k] - theta[first])
    for v in range(1, first + 2):
        ratios[v] = here * base[v]
    for v in range(first + 2, k + 2):
        ratios[v] = math.exp(theta[k] - theta[v - 1])


@subroutine
def _base(theta, first, base):
    for v in range(1, first + 2):
        base[v] = math.exp(theta[first] - theta[v - 1])


@subroutine
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
def log_elementary_symmetric(theta, out, falls):
    """Fill the log weights of flipping v, and ``falls[v] = E(v - 1) / E(v)``."""
    m = len(theta)
    blocks = m // BLOCK + 1
    rows = arrays.zeros((2, blocks * BLOCK))
    exponents = arrays.zeros((2, blocks), np.int64)
    base, ratios = arrays.zeros(m + 2), arrays.zeros(m + 2)
    every = _every(m)
    rows[0, 0] = 1.0
    now = first = 0
    for k in range(m):
        if k % every == 0:
            first = k
            _base(theta, first, base)
        _ratios(theta, base, first, k, ratios)
        _forward(
            ratios, k, rows[now], exponents[now], rows[1 - now], exponents[1 - now]
        )
        now = 1 - now
    values, powers = rows[now], exponents[now]
    total = falls[0] = 0.0
    for v in range(m + 1):
        if v > 0:
            total += theta[v - 1]
            apart = _power(powers[(v - 1) // BLOCK] - powers[v // BLOCK])
            falls[v] = values[v - 1] / values[v] * apart
        out[v] = math.log(values[v]) + powers[v // BLOCK] * LN2 + total


@subroutine
def _every(m):
    """Elements that share exponentials: as many of these as of the rest."""
    return max(int(math.sqrt(m)), 1)


@subroutine
def _odds(theta, first, begin, end, sign, odds):
    """``exp(theta[k] - theta[first])``, or one over it; 0 for what is far below."""
    for k in range(begin, end):
        z = sign * (theta[k] - theta[first])
        odds[k] = math.exp(z) if z > -LOST else 0.0


@subroutine
def _from_none(theta, falls, chances, odds, known, passed, out):
    """Add what flips while its chance is at most 1/2; ``passed[k]`` is v afterwards.

    Elements pass in their order, for earlier ones have larger odds.
    """
    m, every = len(theta), _every(len(theta))
    known[:] = 0
    passed[:] = m + 1
    low = first = 0
    for v in range(1, m + 1):
        far = theta[first] - theta[v - 1]
        if v == 1 or v - 1 - first >= every or far > FAR:
            first, far = v - 1, 0.0
            _odds(theta, first, low, m, 1.0, odds)
        factor, weight = math.exp(far) * falls[v], chances[v]
        for k in range(low, m):
            known[k] = odds[k] * factor * (1 - known[k])
            out[k] += weight * known[k]
        while low < m and known[low] > 0.5:
            out[low] -= weight * known[low]
            passed[low] = v
            low += 1


@subroutine
def _from_all(theta, falls, chances, odds, known, passed, out):
    """Add what flips once its chance is above 1/2; ``known`` is 1 less the chance."""
    m, every = len(theta), _every(len(theta))
    known[:] = 0
    high, first = m, m
    for v in range(m, 0, -1):
        while high > 0 and passed[high - 1] > v:
            high -= 1
        for k in range(high):
            out[k] += chances[v] * (1 - known[k])
        while high > 0 and passed[high - 1] > v - 1:
            high -= 1
        if high == 0:
            return
        far = theta[v - 1] - theta[first] if first < m else 0.0
        if first == m or first - (v - 1) >= every or far > FAR:
            first, far = v - 1, 0.0
            _odds(theta, first, 0, high, -1.0, odds)
        factor = math.exp(far) / falls[v]
        for k in range(high):
            known[k] = odds[k] * factor * (1 - known[k])


@kernel
def flip_probabilities(theta, falls, chances, out):
    """Fill the chance of each element to be flipped.

    ``chances[v]`` is that of v flips; ``falls`` is as ``log_weights`` left it.
    """
    m = len(theta)
    odds, known, passed = arrays.empty(m), arrays.empty(m), arrays.empty(m, np.int64)
    out[:] = 0
    _from_none(theta, falls, chances, odds, known, passed, out)
    _from_all(theta, falls, chances, odds, known, passed, out)
