"""Whether the values, positions and labels of a chain are what they may be.

The rule for numbers is that of ``vectors.extremes``. Most chains hold ordinary numbers
alone, which one pass over all of them sees: with c the power of two that takes 2^40 to
the first number that the dtype lacks, ``0 (c x)`` is 0 for x of smaller magnitude, else
NaN. Only where that fails is each row looked at, for itself and without its padding.
"""

import numpy as np

from smoothsp._kernels.chain.cpu.records import Addresses, chain_at
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import carray
from smoothsp._kernels.vectors.range_check import (
    COARSE,
    INVALID,
    LIMIT,
    LOW,
    range_codes,
)
from smoothsp._kernels.vectors.simd import fma, get, load, span, splat, store

# Bits that ``look`` returns. Of the emissions, the transitions, start and end: finite
# numbers that forbid. Then: a number that is refused; a row without an output.
LOW_BITS = (1, 2, 4, 8)
HAS_INVALID, INFEASIBLE = 16, 32
# Numbers of a row from which on it pays to leave out its padding.
_LONG_ROW = 512


@kernel
def all_below_limit(where, shared):
    """Whether all numbers, those in the holes of a mask too, are of magnitude < 2^40.

    It is all that most chains need, and is compiled in no time. Of long rows emissions
    behind the last real position are not read.
    """
    B, T, S, emissions, transitions, start, end, steps, lengths, zeros = where
    moves = S * S if shared else B * max(T - 1, 0) * S * S
    lanes = arrays.empty(16, zeros.dtype)
    if not (
        _all_ordinary(carray(start, (S,), zeros), 0, S, lanes)
        and _all_ordinary(carray(end, (S,), zeros), 0, S, lanes)
        and _all_ordinary(carray(transitions, (moves,), zeros), 0, moves, lanes)
    ):
        return False
    flat = carray(emissions, (B * T * S,), zeros)
    if lengths == 0 or T * S < _LONG_ROW:
        return _all_ordinary(flat, 0, B * T * S, lanes)
    sizes = carray(lengths, (B,), np.int64)
    for b in range(B):
        N = sizes[b]
        if steps != 0 and N > 0:
            N = carray(steps, (B, T), np.int64)[b, N - 1] + 1
        if not _all_ordinary(flat, b * T * S, N * S, lanes):
            return False
    return True


@kernel
def check_potentials(where, shared, stuck):
    """What is among the numbers that are read: a sum of bits.

    ``stuck[2]`` becomes the first row without an output, and the step by which all its
    paths are forbidden.
    """
    where = Addresses(*where)
    chain = chain_at(where, shared)
    B, T, S, zeros = where.B, where.T, where.S, where.zeros
    square = S * S if shared else 0
    item = zeros.itemsize
    nodes, moves = 0, range_codes(where.transitions, square, zeros)
    heads, tails = range_codes(where.start, S, zeros), range_codes(where.end, S, zeros)
    common = (heads | tails | moves) & ~COARSE
    path, dead = arrays.empty(T, np.int64), arrays.zeros(T * S, np.bool_)
    fine = arrays.zeros(T + 1, np.bool_)
    fine[0] = True
    stuck[0] = -1
    for b in range(B):
        order = chain.steps[b, : chain.lengths[b]]
        N = len(order)
        # one look at each run of neighbouring positions
        own, n = 0, 0
        while n < N:
            m = n + 1
            while m < N and order[m] == order[m - 1] + 1:
                m += 1
            first = (b * T + order[n]) * S
            own |= range_codes(where.emissions + first * item, (m - n) * S, zeros)
            n = m
        nodes |= own
        for n in range(1, 0 if shared else N):
            first = (b * (T - 1) + order[n] - 1) * S * S
            step = range_codes(where.transitions + first * item, S * S, zeros)
            own |= step
            moves |= step
        own &= ~COARSE
        barred = own | common
        # without -inf of its own, how long a row is tells whether it has an output
        known = own == 0 and fine[N]
        if stuck[0] < 0 and barred and not barred & INVALID and not known:
            n = _stuck_at(b, order, chain, path, dead)
            fine[N] |= own == 0
            if n >= 0:
                stuck[0], stuck[1] = b, order[n]
    found = 0 if stuck[0] < 0 else INFEASIBLE
    for x, code in enumerate((nodes, moves, heads, tails)):
        found |= LOW_BITS[x] if code & LOW else 0
        found |= HAS_INVALID if code & INVALID else 0
    return found


@subroutine
def _stuck_at(b, order, chain, path, dead):
    """The step that no allowed prefix of row b passes, -1 where an output exists.

    Depth first, the lowest state first; no pair of step and state is left twice: those
    that lead nowhere are ``dead``, scratch that is False before and after.
    """
    T, S = chain.emissions.shape[1], chain.emissions.shape[2]
    emissions, moves = span(chain.emissions), span(chain.transitions)
    start, end = span(chain.start), span(chain.end)
    N = len(order)
    n = deepest = j = left = 0
    while n < N:
        t = order[n]
        deepest = max(deepest, n)
        e = (b * T + t) * S
        into, o = start, 0
        if n > 0:
            step = 0 if chain.shared else b * (T - 1) + t - 1
            into, o = moves, (step * S + path[n - 1]) * S
        last = n == N - 1
        while j < S:
            if (
                get(emissions, e + j) > -LIMIT
                and get(into, o + j) > -LIMIT
                and not (last and get(end, j) <= -LIMIT)
                and not (left > 0 and dead[n * S + j])
            ):
                break
            j += 1
        if j < S:
            path[n] = j
            n, j = n + 1, 0
        elif n == 0:
            break
        else:
            n -= 1
            j = path[n]
            dead[n * S + j] = True
            left += 1
    if left > 0:
        dead[:] = False
    return -1 if n == N else deepest


@kernel
def find_bad_positions(steps, lengths, T):
    """The first row whose real positions are not ascending within T, or -1."""
    for b in range(len(lengths)):
        if not 0 <= lengths[b] <= T:
            return b
        before = -1
        for n in range(lengths[b]):
            if not before < steps[b, n] < T:
                return b
            before = steps[b, n]
    return -1


@kernel
def find_bad_label(labels, steps, lengths, S):
    """The first place in labels[B, K, T] that is read and no state, or -1."""
    K, T = labels.shape[1:]
    for b in range(len(lengths)):
        for k in range(K):
            for n in range(lengths[b]):
                if not 0 <= labels[b, k, steps[b, n]] < S:
                    return (b * K + k) * T + steps[b, n]
    return -1


@subroutine
def _all_ordinary(flat, first, size, lanes):
    """Whether ``flat[first : first + size]`` are ordinary; lanes is scratch."""
    dtype = flat.dtype.type
    L = 64 // flat.itemsize
    zero = splat(dtype(0))
    root = dtype(2.0**88 if flat.itemsize == 4 else 2.0**984)
    roots = splat(root)
    a = b = c = d = zero
    x = first
    end = first + size
    while x + 4 * L <= end:
        a = fma(load(flat, x) * roots, zero, a)
        b = fma(load(flat, x + L) * roots, zero, b)
        c = fma(load(flat, x + 2 * L) * roots, zero, c)
        d = fma(load(flat, x + 3 * L) * roots, zero, d)
        x += 4 * L
    while x + L <= end:
        a = fma(load(flat, x) * roots, zero, a)
        x += L
    store(lanes, 0, (a + b) + (c + d))
    total = dtype(0)
    for lane in range(L):
        total += lanes[lane]
    while x < end:
        total += flat[x] * root * dtype(0)
        x += 1
    return total == 0
