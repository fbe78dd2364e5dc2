"""Validation of potentials, positions and labels of chains.

Numbers are classified by ``vectors.range_check``. A fast pass over all numbers accepts
most chains: with c = 2^88 (float32) or 2^984 (float64), ``c x`` overflows if and only
if ``|x| >= 2^40``, and ``0 * inf`` is NaN, so the sum of ``0 (c x)`` is 0 if and only
if all magnitudes are below 2^40. Only otherwise is each row checked without padding.
"""

import numpy as np

from smoothsp._kernels.chain.cpu.records import Addresses, chain_from_addresses
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
from smoothsp._kernels.vectors.simd import fma, get_number, load, span, splat, store

# Bits of ``check_potentials``. LOW_BITS: finite numbers that count as -inf, in the
# emissions, transitions, start and end. HAS_INVALID: an invalid number. INFEASIBLE: a
# row without an output.
LOW_BITS = (1, 2, 4, 8)
HAS_INVALID, INFEASIBLE = 16, 32
# Numbers of a row from which on skipping its padding is faster.
_LONG_ROW = 512


@kernel
def all_below_limit(addresses, shared):
    """Return whether all numbers, masked ones included, have magnitude below 2^40.

    Most chains need no other check, and it compiles quickly. In long rows, emissions
    after the last real position are not read.
    """
    B, T, S, emissions, transitions, start, end, steps, lengths, zeros = addresses
    num_transitions = S * S if shared else B * max(T - 1, 0) * S * S
    lanes = arrays.empty(16, zeros.dtype)
    if not (
        _all_below_limit(carray(start, (S,), zeros), 0, S, lanes)
        and _all_below_limit(carray(end, (S,), zeros), 0, S, lanes)
        and _all_below_limit(
            carray(transitions, (num_transitions,), zeros), 0, num_transitions, lanes
        )
    ):
        return False
    flat = carray(emissions, (B * T * S,), zeros)
    if lengths == 0 or T * S < _LONG_ROW:
        return _all_below_limit(flat, 0, B * T * S, lanes)
    sizes = carray(lengths, (B,), np.int64)
    for b in range(B):
        N = sizes[b]
        if steps != 0 and N > 0:
            N = carray(steps, (B, T), np.int64)[b, N - 1] + 1
        if not _all_below_limit(flat, b * T * S, N * S, lanes):
            return False
    return True


@kernel
def check_potentials(addresses, shared, infeasible):
    """Return the bit mask of the numbers that are read.

    Fills ``infeasible[2]`` with the first row without an output, or -1, and the first
    position that no allowed path reaches.
    """
    addresses = Addresses(*addresses)
    chain = chain_from_addresses(addresses, shared)
    B, T, S, zeros = addresses.B, addresses.T, addresses.S, addresses.zeros
    num_shared = S * S if shared else 0
    itemsize = zeros.itemsize
    emission_codes, transition_codes = (
        0,
        range_codes(addresses.transitions, num_shared, zeros),
    )
    start_codes, end_codes = (
        range_codes(addresses.start, S, zeros),
        range_codes(addresses.end, S, zeros),
    )
    shared_codes = (start_codes | end_codes | transition_codes) & ~COARSE
    path, is_dead = arrays.empty(T, np.int64), arrays.zeros(T * S, np.bool_)
    is_feasible_length = arrays.zeros(T + 1, np.bool_)
    is_feasible_length[0] = True
    infeasible[0] = -1
    for b in range(B):
        order = chain.steps[b, : chain.lengths[b]]
        N = len(order)
        # one call for each run of consecutive positions
        row_codes, n = 0, 0
        while n < N:
            m = n + 1
            while m < N and order[m] == order[m - 1] + 1:
                m += 1
            first = (b * T + order[n]) * S
            row_codes |= range_codes(
                addresses.emissions + first * itemsize, (m - n) * S, zeros
            )
            n = m
        emission_codes |= row_codes
        for n in range(1, 0 if shared else N):
            first = (b * (T - 1) + order[n] - 1) * S * S
            step_codes = range_codes(
                addresses.transitions + first * itemsize, S * S, zeros
            )
            row_codes |= step_codes
            transition_codes |= step_codes
        row_codes &= ~COARSE
        codes = row_codes | shared_codes
        # without -inf in the row itself, feasibility depends on its length only
        is_feasible = row_codes == 0 and is_feasible_length[N]
        if infeasible[0] < 0 and codes and not codes & INVALID and not is_feasible:
            n = _first_infeasible_step(b, order, chain, path, is_dead)
            is_feasible_length[N] |= row_codes == 0
            if n >= 0:
                infeasible[0], infeasible[1] = b, order[n]
    result = 0 if infeasible[0] < 0 else INFEASIBLE
    for x, range_code in enumerate(
        (emission_codes, transition_codes, start_codes, end_codes)
    ):
        result |= LOW_BITS[x] if range_code & LOW else 0
        result |= HAS_INVALID if range_code & INVALID else 0
    return result


@subroutine
def _first_infeasible_step(b, order, chain, path, is_dead):
    """Return the step that no allowed prefix of row b passes, -1 if an output exists.

    Depth-first search, lowest state first. Pairs of step and state from which no path
    continues are marked in ``is_dead`` (False before and after), so that none is
    searched twice.
    """
    T, S = chain.emissions.shape[1], chain.emissions.shape[2]
    emissions, transitions = span(chain.emissions), span(chain.transitions)
    start, end = span(chain.start), span(chain.end)
    N = len(order)
    n = deepest = j = num_dead = 0
    while n < N:
        t = order[n]
        deepest = max(deepest, n)
        e = (b * T + t) * S
        incoming, o = start, 0
        if n > 0:
            step = 0 if chain.shared else b * (T - 1) + t - 1
            incoming, o = transitions, (step * S + path[n - 1]) * S
        is_last = n == N - 1
        while j < S:
            if (
                get_number(emissions, e + j) > -LIMIT
                and get_number(incoming, o + j) > -LIMIT
                and not (is_last and get_number(end, j) <= -LIMIT)
                and not (num_dead > 0 and is_dead[n * S + j])
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
            is_dead[n * S + j] = True
            num_dead += 1
    if num_dead > 0:
        is_dead[:] = False
    return -1 if n == N else deepest


@kernel
def first_row_of_invalid_positions(steps, lengths, T):
    """The first row whose real positions are not ascending within T, or -1."""
    for b in range(len(lengths)):
        if not 0 <= lengths[b] <= T:
            return b
        previous = -1
        for n in range(lengths[b]):
            if not previous < steps[b, n] < T:
                return b
            previous = steps[b, n]
    return -1


@kernel
def first_invalid_label_offset(labels, steps, lengths, S):
    """The first place in labels[B, K, T] that is read and no state, or -1."""
    K, T = labels.shape[1:]
    for b in range(len(lengths)):
        for k in range(K):
            for n in range(lengths[b]):
                if not 0 <= labels[b, k, steps[b, n]] < S:
                    return (b * K + k) * T + steps[b, n]
    return -1


@subroutine
def _all_below_limit(flat, first, size, lanes):
    """Return whether |x| < 2^40 in flat[first : first + size]; lanes is scratch."""
    dtype = flat.dtype.type
    L = 64 // flat.itemsize
    zero = splat(dtype(0))
    scale = dtype(2.0**88 if flat.itemsize == 4 else 2.0**984)
    scales = splat(scale)
    a = b = c = d = zero
    x = first
    end = first + size
    while x + 4 * L <= end:
        a = fma(load(flat, x) * scales, zero, a)
        b = fma(load(flat, x + L) * scales, zero, b)
        c = fma(load(flat, x + 2 * L) * scales, zero, c)
        d = fma(load(flat, x + 3 * L) * scales, zero, d)
        x += 4 * L
    while x + L <= end:
        a = fma(load(flat, x) * scales, zero, a)
        x += L
    store(lanes, 0, (a + b) + (c + d))
    total = dtype(0)
    for lane in range(L):
        total += lanes[lane]
    while x < end:
        total += flat[x] * scale * dtype(0)
        x += 1
    return total == 0
