"""Whether the values, positions and labels of a chain are what they may be.

The rule for numbers is that of ``vectors.extremes``. Most chains hold ordinary numbers
alone, which one pass over all of them sees: with c the power of two that takes 2^40 to
the first number that the dtype lacks, ``0 (c x)`` is 0 for x of smaller magnitude, else
NaN. Only where that fails is each row looked at, for itself and without its padding.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import at
from smoothsp._kernels.vectors.extremes import LIMIT, LOW, WRONG, extremes
from smoothsp._kernels.vectors.simd import (
    fma,
    get,
    load,
    span,
    splat,
    store,
    where_below,
)
from smoothsp._kernels.vectors.simd_compare import differ
from smoothsp._kernels.vectors.simd_parts import load_some

# Bits that ``look`` returns. Of the emissions, the transitions, start and end: finite
# numbers that forbid. Then: a number that is refused; a row without an output.
LOW_BITS = (1, 2, 4, 8)
REFUSED, INFEASIBLE = 16, 32
# Numbers of a row from which on it pays to leave out its padding.
_LONG_ROW = 512


@kernel
def is_ordinary(
    B, T, S, emissions, transitions, start, end, steps, lengths, zeros, shared
):  # fmt: skip
    """Whether all numbers, those in the holes of a mask too, are of magnitude < 2^40.

    It is all that most chains need, and is compiled in no time. Of long rows emissions
    behind the last real position are not read.
    """
    moves = S * S if shared else B * max(T - 1, 0) * S * S
    lanes = arrays.empty(16, zeros.dtype)
    if not (
        _all_ordinary(at(start, (S,), zeros), 0, S, lanes)
        and _all_ordinary(at(end, (S,), zeros), 0, S, lanes)
        and _all_ordinary(at(transitions, (moves,), zeros), 0, moves, lanes)
    ):
        return False
    flat = at(emissions, (B * T * S,), zeros)
    if lengths == 0 or T * S < _LONG_ROW:
        return _all_ordinary(flat, 0, B * T * S, lanes)
    sizes = at(lengths, (B,), np.int64)
    for b in range(B):
        N = sizes[b]
        if steps != 0 and N > 0:
            N = at(steps, (B, T), np.int64)[b, N - 1] + 1
        if not _all_ordinary(flat, b * T * S, N * S, lanes):
            return False
    return True


@kernel
def look(
    B,
    T,
    S,
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    zeros,
    shared,
    stuck,
):
    """What is among the numbers that are read: a sum of bits.

    ``stuck[2]`` becomes the first row without an output, and the step by which all its
    paths are forbidden.
    """
    item = zeros.itemsize
    heads, tails = extremes(start, S, zeros), extremes(end, S, zeros)
    moves = extremes(transitions, S * S if shared else 0, zeros)
    common = heads | tails | moves
    nodes = own_moves = 0
    real = at(steps, (B, T if steps != 0 else 0), np.int64)
    sizes = at(lengths, (B if lengths != 0 else 0,), np.int64)
    order = arrays.empty(T, np.int64)
    for n in range(T):
        order[n] = n
    path = arrays.empty(T, np.int64)
    dead = arrays.zeros(T * S, np.bool_)
    fine = arrays.zeros(T + 1, np.bool_)
    fine[0] = True
    own_size = 0 if shared else S * S
    moves_size = S * S if shared else B * max(T - 1, 0) * S * S
    stuck[0] = -1
    for b in range(B):
        N = sizes[b] if lengths != 0 else T
        for n in range(N if steps != 0 else 0):
            order[n] = real[b, n]
        # one look at each run of neighbouring positions
        own, n = 0, 0
        while n < N:
            m = N
            if steps != 0:
                m = n + 1
                while m < N and order[m] == order[m - 1] + 1:
                    m += 1
            first = b * T + order[n]
            own |= extremes(emissions + first * S * item, (m - n) * S, zeros)
            n = m
        nodes |= own
        for n in range(1, 0 if shared else N):
            e = transitions + (b * (T - 1) + order[n] - 1) * S * S * item
            step = extremes(e, S * S, zeros)
            own |= step
            own_moves |= step
        barred = own | common
        # without -inf of its own, how long a row is tells whether it has an output
        if (
            stuck[0] < 0
            and barred
            and not barred & WRONG
            and not (own == 0 and fine[N])
        ):
            scores = span(at(emissions, (B * T * S,), zeros))
            if shared and not common:
                n = _bare_at(b * T, order[:N], scores, S, zeros)
            else:
                n = _stuck_at(
                    b * T, (0 if shared else b * (T - 1) - 1), own_size, order[:N],
                    scores, span(at(transitions, (moves_size,), zeros)),
                    span(at(start, (S,), zeros)), span(at(end, (S,), zeros)),
                    S, path, dead,
                )  # fmt: skip
            fine[N] |= own == 0
            if n >= 0:
                stuck[0], stuck[1] = b, order[n]
    found = 0 if stuck[0] < 0 else INFEASIBLE
    for x, code in enumerate((nodes, moves | own_moves, heads, tails)):
        found |= LOW_BITS[x] if code & LOW else 0
        found |= REFUSED if code & WRONG else 0
    return found


@subroutine
def _bare_at(row, order, emissions, S, like):
    """The first step of a row whose states are all forbidden, -1 if there is none.

    All that tells of an output where states may follow each other in any way.
    """
    L = 64 // like.itemsize
    zero, one = splat(like.dtype.type(0)), splat(like.dtype.type(1))
    least = splat(like.dtype.type(-LIMIT))
    for n in range(len(order)):
        e, allowed = (row + order[n]) * S, zero
        for j in range(0, S, L):
            v = load_some(emissions, e + j, S - j, least)
            allowed = where_below(least, v, one, allowed)
        if not differ(allowed, zero):
            return n
    return -1


@subroutine
def _stuck_at(
    row, step, size, order, emissions, transitions, start, end, S, path, dead
):  # fmt: skip
    """The step that no allowed prefix of a row passes, -1 where an output exists.

    Depth first, the lowest state first; no pair of step and state is left twice: those
    that lead nowhere are ``dead``, scratch that is False before and after. Emissions of
    step t are S numbers from ``(row + t) S`` on, transitions into it those from
    ``(step + t) size`` on.
    """
    N = len(order)
    n = deepest = j = left = 0
    while n < N:
        t = order[n]
        deepest = max(deepest, n)
        e = (row + t) * S
        into, o = start, 0
        if n > 0:
            into, o = transitions, (step + t) * size + path[n - 1] * S
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
