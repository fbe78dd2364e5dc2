"""Labellings of a set by contingency tables: the best one, and sums over all.

Each class separately: element i of m has log odds ``theta[i]``, non-increasing, of
being flipped to the other class. The weight of all labellings that flip v of the first
k elements is the elementary symmetric polynomial e_v of ``exp(theta[:k])``. Stored is

    E_k(v) = e_v / exp(theta[0] + ... + theta[v - 1]) = E_{k-1}(v) + r E_{k-1}(v - 1)

with ``r = exp(theta[k - 1] - theta[v - 1])``, at most 1. Neighbours of E differ by a
factor of at most m, so that BLOCK of them can share an exponent.

The probability c(v) that element k is flipped, given v flips, satisfies

    c(v) = a (1 - c(v - 1)),  1 - c(v - 1) = c(v) / a,  a = x_k e_{v-1} / e_v

with x_k its odds, and increases in v. Where c is at most 1/2, a is at most 1, and the
upward recursion damps rounding errors. Where c is above 1/2, 1 / a is at most 1, and
the downward recursion damps them. So each element is followed upwards from v = 0 until
c passes 1/2, and downwards from v = m to the same v, in O(m) memory.
"""

import math

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays

# entries that share an exponent
BLOCK = 32
# elements between two normalisations of the blocks
STEPS = 32
# exponent of a block of zeros, low enough to add nothing
ZERO_EXPONENT = -(1 << 40)
LN2 = math.log(2)
# log-weights this far below the largest add nothing to a sum
NEGLIGIBLE_LOG = 100.0
# differences of log odds beyond this give 0, since they would become denormal
UNDERFLOW_LOG = 600.0


@kernel
def best_table(positive, negative, out):
    """Fill ``out`` with the largest loss plus scores, and its b and c.

        max over b, c of    (b + c) / (2 P - b + c) + positive[b] + negative[c]

    ``positive[b]`` is the highest score of b false negatives, ``negative[c]`` that of c
    false positives; the loss is 1 - F1.
    """
    P, N = len(positive) - 1, len(negative) - 1
    best, best_b, best_c = -np.inf, 0, 0
    for b in range(P + 1):
        for c in range(N + 1):
            value = (b + c) / (2.0 * P - b + c) + positive[b] + negative[c]
            # of equal tables the first: fewest false negatives
            if value > best:
                best, best_b, best_c = value, b, c
    out[0], out[1], out[2] = best, best_b, best_c


@kernel
def table_marginals(positive, negative, mu, probs_b, probs_c, sums):
    """Fill probs_b and probs_c, the probabilities of b and c, and two sums over tables.

    A table has probability ``exp(loss / mu + positive[b] + negative[c]) / Z`` with
    ``loss = (b + c) / (2 P - b + c)``. The first pass finds the largest exponent; the
    second subtracts it and sums. There are about P N tables, and none is stored.

    ``positive[b]`` and ``negative[c]`` are log-weights of the labellings of a class.
    ``sums`` are log Z and the expected loss.
    """
    P, N = len(positive) - 1, len(negative) - 1
    top = -np.inf
    for b in range(P + 1):
        row = -np.inf
        for c in range(N + 1):
            # positive[b] is constant in the inner loop, and added once a row
            row = max(row, (b + c) / (2.0 * P - b + c) / mu + negative[c])
        top = max(top, row + positive[b])
    probs_b[:] = 0
    probs_c[:] = 0
    total = losses = 0.0
    for b in range(P + 1):
        row = 0.0
        for c in range(N + 1):
            loss = (b + c) / (2.0 * P - b + c)
            # z is at most 0: exponentials cannot overflow
            z = loss / mu + negative[c] + positive[b] - top
            if z > -NEGLIGIBLE_LOG:
                weight = math.exp(z)
                row += weight
                losses += weight * loss
                probs_c[c] += weight
        probs_b[b] = row
        total += row
    for b in range(P + 1):
        probs_b[b] /= total
    for c in range(N + 1):
        probs_c[c] /= total
    sums[0], sums[1] = top + math.log(total), losses / total


@subroutine
def _exp2(e):
    """``2^e``, 0 where it underflows."""
    return math.ldexp(1.0, int(e)) if e > -1022 else 0.0


@subroutine
def _normalise_blocks(values, exponents, last):
    """Scale each block up to ``last`` so that its largest entry is in [1/2, 1)."""
    for j in range(last // BLOCK + 1):
        top = 0.0
        for v in range(j * BLOCK, (j + 1) * BLOCK):
            top = max(top, values[v])
        if top == 0:
            exponents[j] = ZERO_EXPONENT
            continue
        # frexp scales by powers of two: no rounding
        e = math.frexp(top)[1]
        scale = _exp2(-e)
        for v in range(j * BLOCK, (j + 1) * BLOCK):
            values[v] *= scale
        exponents[j] += e


@subroutine
def _fill_odds_ratios(theta, base, first, k, ratios):
    """Fill ``exp(theta[k] - theta[v - 1])`` for v from 1 to ``k + 1``.

    ``base`` has the ratios of ``first``, at most a few elements before k.
    """
    top_ratio = math.exp(theta[k] - theta[first])
    for v in range(1, first + 2):
        # one product instead of an exponential
        ratios[v] = top_ratio * base[v]
    # the base has no ratios to later elements
    for v in range(first + 2, k + 2):
        ratios[v] = math.exp(theta[k] - theta[v - 1])


@subroutine
def _fill_base_ratios(theta, first, base):
    """Fill ``exp(theta[first] - theta[v - 1])`` for v from 1 to ``first + 1``."""
    for v in range(1, first + 2):
        base[v] = math.exp(theta[first] - theta[v - 1])


@subroutine
def _add_element(ratio_of_size, count, values, exponents, next_values, next_exponents):
    """Fill E of ``count + 1`` elements from E of ``count``."""
    v = count + 1
    # a new block starts with its predecessor's exponent
    if v % BLOCK == 0:
        exponents[v // BLOCK] = exponents[v // BLOCK - 1]
    # rows are used again
    values[v] = 0.0
    for v in range(count + 2, ((count + 1) // BLOCK + 1) * BLOCK):
        next_values[v] = 0.0
    next_values[0] = values[0]
    for v in range(1, count + 2):
        next_values[v] = values[v] + ratio_of_size[v] * values[v - 1]
    for j in range((count + 1) // BLOCK + 1):
        next_exponents[j] = exponents[j]
        v = j * BLOCK
        # the first entry of a block reads a neighbour of another exponent
        if j > 0:
            scale = _exp2(exponents[j - 1] - exponents[j])
            next_values[v] = values[v] + ratio_of_size[v] * values[v - 1] * scale
    if count % STEPS == 0:
        _normalise_blocks(next_values, next_exponents, count + 1)


@kernel
def log_elementary_symmetric(theta, out, esp_ratios):
    """Fill out[v], the log-weight of v flips, and esp_ratios[v], E(v - 1) / E(v)."""
    m = len(theta)
    blocks = m // BLOCK + 1
    both_values = arrays.zeros((2, blocks * BLOCK))
    both_exponents = arrays.zeros((2, blocks), np.int64)
    base_ratios, ratios = arrays.zeros(m + 2), arrays.zeros(m + 2)
    interval = _num_elements_per_base(m)
    both_values[0, 0] = 1.0
    current = first = 0
    for k in range(m):
        # a base is shared by sqrt(m) elements, which saves most exponentials
        if k % interval == 0:
            first = k
            _fill_base_ratios(theta, first, base_ratios)
        _fill_odds_ratios(theta, base_ratios, first, k, ratios)
        _add_element(
            ratios,
            k,
            both_values[current],
            both_exponents[current],
            both_values[1 - current],
            both_exponents[1 - current],
        )
        current = 1 - current
    values, exponents = both_values[current], both_exponents[current]
    total = esp_ratios[0] = 0.0
    for v in range(m + 1):
        if v > 0:
            total += theta[v - 1]
            scale = _exp2(exponents[(v - 1) // BLOCK] - exponents[v // BLOCK])
            esp_ratios[v] = values[v - 1] / values[v] * scale
        # E(v) times the product of the v largest odds
        out[v] = math.log(values[v]) + exponents[v // BLOCK] * LN2 + total


@subroutine
def _num_elements_per_base(m):
    """Number of elements that share exponentials, about sqrt(m).

    This balances the O(m) exponentials of a new base with those of single elements.
    """
    return max(int(math.sqrt(m)), 1)


@subroutine
def _fill_odds(theta, first, begin, end, sign, odds):
    """Fill ``exp(sign (theta[k] - theta[first]))``; 0 where it is negligible."""
    for k in range(begin, end):
        z = sign * (theta[k] - theta[first])
        odds[k] = math.exp(z) if z > -UNDERFLOW_LOG else 0.0


@subroutine
def _upward_recursion(theta, esp_ratios, count_probs, odds, flip_probs, crossing, out):
    """Add flip probabilities up to 1/2; ``crossing[k]`` is the v at which k exceeds it.

    Elements cross in their order, since earlier ones have larger odds.
    """
    m, interval = len(theta), _num_elements_per_base(len(theta))
    flip_probs[:] = 0
    crossing[:] = m + 1
    low = first = 0
    for v in range(1, m + 1):
        log_gap = theta[first] - theta[v - 1]
        # a new base before ratios to the old one overflow
        if v == 1 or v - 1 - first >= interval or log_gap > NEGLIGIBLE_LOG:
            first, log_gap = v - 1, 0.0
            _fill_odds(theta, first, low, m, 1.0, odds)
        factor, weight = math.exp(log_gap) * esp_ratios[v], count_probs[v]
        for k in range(low, m):
            flip_probs[k] = odds[k] * factor * (1 - flip_probs[k])
            out[k] += weight * flip_probs[k]
        # past 1/2 the error grows: the downward recursion takes the element
        while low < m and flip_probs[low] > 0.5:
            out[low] -= weight * flip_probs[low]
            crossing[low] = v
            low += 1


@subroutine
def _downward_recursion(
    theta, esp_ratios, count_probs, odds, flip_probs, crossing, out
):
    """Add flip probabilities above 1/2; ``flip_probs`` holds their complements."""
    m, interval = len(theta), _num_elements_per_base(len(theta))
    flip_probs[:] = 0
    high, first = m, m
    for v in range(m, 0, -1):
        # crossings are ascending: active elements are a prefix
        while high > 0 and crossing[high - 1] > v:
            high -= 1
        for k in range(high):
            out[k] += count_probs[v] * (1 - flip_probs[k])
        while high > 0 and crossing[high - 1] > v - 1:
            high -= 1
        if high == 0:
            return
        log_gap = theta[v - 1] - theta[first] if first < m else 0.0
        if first == m or first - (v - 1) >= interval or log_gap > NEGLIGIBLE_LOG:
            first, log_gap = v - 1, 0.0
            _fill_odds(theta, first, 0, high, -1.0, odds)
        # 1 / a of element k is odds[k] times this factor
        factor = math.exp(log_gap) / esp_ratios[v]
        for k in range(high):
            flip_probs[k] = odds[k] * factor * (1 - flip_probs[k])


@kernel
def flip_probabilities(theta, esp_ratios, count_probs, out):
    """Fill out[m] with the probability of each element to be flipped.

    ``count_probs[v]`` is the probability of v flips; ``esp_ratios`` is as filled by
    ``log_elementary_symmetric``.
    """
    m = len(theta)
    odds, flip_probs, crossing = (
        arrays.empty(m),
        arrays.empty(m),
        arrays.empty(m, np.int64),
    )
    out[:] = 0
    _upward_recursion(theta, esp_ratios, count_probs, odds, flip_probs, crossing, out)
    _downward_recursion(theta, esp_ratios, count_probs, odds, flip_probs, crossing, out)
