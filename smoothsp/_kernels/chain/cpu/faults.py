"""What is wrong with the values of a chain, if anything.

One pass looks for what is not finite, or large: whose square is not finite. With c the
root of the first power of 2 that the dtype lacks, ``0 (c x)`` is 0 for other x, else
NaN. Only where that finds something is each value looked at.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import fma, load, splat, store

# Codes in fault[0]; fault[1:] is (row, step, from state, to state), -1 where unused.
# LARGE is no fault: a finite value has a square that is not.
FINE, EMISSION, TRANSITION, START, END, INFEASIBLE, LARGE = range(7)


@kernel
def find_fault(
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    shared,
    fault,
):
    """Fill fault[5] with the first NaN or +inf that is read, or row without an output.

    Without a fault fault[0] is ``FINE``, or ``LARGE`` if a value that is read is.
    Reachability packs 64 states into a word, so a step costs S^2 / 64, not S^2.
    """
    B, T, S = emissions.shape
    fault[:] = -1
    fault[0] = FINE
    lanes = arrays.empty(16, emissions.dtype)
    flat = emissions.reshape(-1)
    moves = transitions.reshape(-1)
    ordinary = all_ordinary(start, 0, S, lanes) and all_ordinary(end, 0, S, lanes)
    if shared:
        ordinary &= all_ordinary(moves, 0, S * S, lanes)
    large = False
    if not ordinary:
        _look_at_ends(start, end, fault)
        if shared and fault[0] == FINE:
            _look_at_moves(transitions, 0, 0, -1, -1, fault)
        if fault[0] != FINE:
            return
        large = _any_large(start, 0, S) or _any_large(end, 0, S)
        if shared:
            large |= _any_large(moves, 0, S * S)
    elif shared and B and all_ordinary(flat, 0, B * T * S, lanes):
        return
    # with finite emissions and shared moves, the length tells whether an output exists
    fine_length = np.full(T + 1, ordinary)
    open_moves = arrays.zeros((S, (S + 63) // 64), np.uint64)
    if shared and not ordinary:
        _open_moves(transitions, 0, 0, open_moves)
    for b in range(B):
        N = lengths[b]
        if N == 0:
            continue
        sound = True
        begin, last = steps[b, 0], steps[b, N - 1]
        if last - begin == N - 1:
            o = (b * T + begin) * S
            sound &= all_ordinary(flat, o, N * S, lanes)
            if not shared:
                o = (b * (T - 1) + begin) * S * S
                sound &= all_ordinary(moves, o, (N - 1) * S * S, lanes)
        else:
            for n in range(N):
                t = steps[b, n]
                sound &= all_ordinary(flat, (b * T + t) * S, S, lanes)
                if not shared and n > 0:
                    o = (b * (T - 1) + t - 1) * S * S
                    sound &= all_ordinary(moves, o, S * S, lanes)
        if sound and fine_length[N]:
            continue
        if shared and ordinary:
            _open_moves(transitions, 0, 0, open_moves)
        _look_at_row(b, emissions, transitions, steps, lengths, shared, fault)
        if fault[0] == FINE:
            _look_for_output(
                b, emissions, transitions, start, end, steps, lengths, shared,
                open_moves, fault,
            )  # fmt: skip
        if fault[0] != FINE:
            return
        for n in range(N):
            t = steps[b, n]
            large |= _any_large(flat, (b * T + t) * S, S)
            if not shared and n > 0:
                large |= _any_large(moves, (b * (T - 1) + t - 1) * S * S, S * S)
        fine_length[N] |= shared and sound
    if large:
        fault[0] = LARGE


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
def all_ordinary(flat, first, size, lanes):
    """Whether ``flat[first : first + size]`` has finite squares; lanes is scratch."""
    dtype = flat.dtype.type
    L = 64 // flat.itemsize
    zero = splat(dtype(0))
    root = _root(flat)
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


@subroutine
def _any_large(flat, first, size):
    """Whether one of these numbers is large, but finite."""
    root = _root(flat)
    found = False
    for x in range(first, first + size):
        found |= root <= abs(flat[x]) < np.inf
    return found


@subroutine
def _root(flat):
    """2^64 for float32, 2^512 for float64."""
    return flat.dtype.type(2.0**64 if flat.itemsize == 4 else 2.0**512)


@subroutine
def _look_at_ends(start, end, fault):
    for s in range(len(start)):
        if not start[s] < np.inf:
            fault[0] = START
            fault[4] = s
            return
        if not end[s] < np.inf:
            fault[0] = END
            fault[3] = s
            return


@subroutine
def _look_at_moves(transitions, p, q, row, step, fault):
    S = transitions.shape[2]
    for i in range(S):
        for j in range(S):
            if not transitions[p, q, i, j] < np.inf:
                fault[0] = TRANSITION
                fault[1] = row
                fault[2] = step
                fault[3] = i
                fault[4] = j
                return


@subroutine
def _look_at_row(b, emissions, transitions, steps, lengths, shared, fault):
    for n in range(lengths[b]):
        t = steps[b, n]
        for s in range(emissions.shape[2]):
            if not emissions[b, t, s] < np.inf:
                fault[0] = EMISSION
                fault[1] = b
                fault[2] = t
                fault[4] = s
                return
    if shared:
        return
    for n in range(1, lengths[b]):
        t = steps[b, n]
        _look_at_moves(transitions, b, t - 1, b, t - 1, fault)
        if fault[0] != FINE:
            return


@subroutine
def _open_moves(transitions, p, q, open_moves):
    """Set bit j of row i where j may follow i."""
    one = np.uint64(1)
    open_moves[:] = 0
    for i in range(len(open_moves)):
        for j in range(len(open_moves)):
            if transitions[p, q, i, j] > -np.inf:
                open_moves[i, j >> 6] |= one << np.uint64(j & 63)


@subroutine
def _look_for_output(
    b,
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    shared,
    open_moves,
    fault,
):
    S, W = open_moves.shape
    reach = arrays.zeros(W, np.uint64)
    grown = arrays.zeros(W, np.uint64)
    one = np.uint64(1)
    for n in range(lengths[b]):
        t = steps[b, n]
        if n > 0 and not shared:
            _open_moves(transitions, b, t - 1, open_moves)
        for w in range(W):
            grown[w] = 0
        for s in range(S):
            if n == 0:
                if start[s] > -np.inf:
                    grown[s >> 6] |= one << np.uint64(s & 63)
            elif (reach[s >> 6] >> np.uint64(s & 63)) & one:
                for w in range(W):
                    grown[w] |= open_moves[s, w]
        for s in range(S):
            if emissions[b, t, s] == -np.inf or (
                n == lengths[b] - 1 and end[s] == -np.inf
            ):
                grown[s >> 6] &= ~(one << np.uint64(s & 63))
        empty = True
        for w in range(W):
            reach[w] = grown[w]
            empty &= grown[w] == 0
        if empty:
            fault[0] = INFEASIBLE
            fault[1] = b
            fault[2] = t
            return
