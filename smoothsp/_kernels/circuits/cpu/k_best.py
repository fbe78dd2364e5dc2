"""The k best outputs of each row, lazily.

Every output is the best one but for some deviations: items, in the order in which a
trace visits them, of which another product is taken. The successors of an output
deviate once more, after its last deviation, or take the next product there: so each
output has one predecessor, which is no worse. A short list holds the best successors of
what was found so far. The items on a trace are scanned once a row. With x the maxima of
``max_product``, an output scores

    x(root) - sum over its deviations, to (a, b) at item i, of x(i) - (x(a) + x(b))

After the pass inwards x is turned, so that a row's scans stay within its own numbers.

Source: Huang and Chiang, "Better k-best Parsing" (2005), section 4.4, is lazy item by
item; this is lazy deviation by deviation, after Eppstein, "Finding the k Shortest
Paths" (1998), section 2.
"""

from typing import Any, NamedTuple

import numpy as np

from smoothsp._kernels.circuits.cpu.lanes import beside, bounds, gather, one_of, turn
from smoothsp._kernels.circuits.cpu.max_product import maxima, read
from smoothsp._kernels.circuits.layout.addresses import (
    circuit_at,
    potentials_at,
    rows_at,
)
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import carray, copy

# What is stored of an item, in one cache line: the row that stored it, its best
# product, and the second with its number among the products.
ROW, BEST_A, BEST_B, NEXT_A, NEXT_B, NUMBER = range(6)
# The fourth float64 of the line: by how much the second is below the best.
LOSS = 3
NOTES = 16
# A candidate, then an output: from which output it deviates, at which step of the
# trace, to which product of which number.
FROM, STEP, TO_A, TO_B, TO_NUMBER = range(5)


class Candidates(NamedTuple):
    """Outputs listed so far, those that may be next, and scratch of a trace."""

    found: Any  # [K, 5], outputs
    totals: Any  # [K], their scores
    waiting: Any  # [K, 5], candidates, best first
    offers: Any  # [K], their scores
    notes: Any  # [items, NOTES]
    losses: Any  # the same memory as float64
    chain: Any  # [K], outputs that one deviates from
    stack: Any  # [depth + 2], items


@kernel
def k_best(first, last, circuit, rows, scores, room, sizes, out):
    """Fill exact[B, K, 2], labels[B, K, N], parts[B, K, U] of ``order[first:last]``.

    Best first, each as ``best`` does; -inf and -1 where fewer than K are possible.
    values[B, K] are in float32. ``sizes`` are K, N and U; ``out`` the addresses of
    exact, values, labels and parts, that of values may be 0. ``scores`` is a table of
    potentials of float64. ``room`` is scratch, ``[2, size]`` of float64.
    """
    K, N, U = sizes
    exact, values, labels, parts = out
    circuit, rows = circuit_at(circuit), rows_at(rows)
    scores = potentials_at(scores)
    B = len(rows.roots)
    L = 64 // room.itemsize
    exact, labels = (
        carray(exact, (B, K, 2), np.float64),
        carray(labels, (B, K, N), np.int64),
    )
    parts = carray(parts, (B, K, U), np.int32)
    rounded = carray(values, (B if values else 0, K), np.float32)
    one = one_of(room)
    x = room[0]
    losses = room[1].reshape(-1, NOTES // 2)
    notes = room[1].view(np.int32).reshape(-1, NOTES)
    stack = arrays.empty(circuit.max_depth + 2, np.int64)
    found, totals = arrays.empty((K, 5), np.int32), arrays.empty(K, np.float64)
    waiting, offers = arrays.empty((K, 5), np.int32), arrays.empty(K, np.float64)
    chain = arrays.empty(K, np.int64)
    kept = Candidates(found, totals, waiting, offers, notes, losses, chain, stack)
    for item in range(circuit.num_items):
        notes[item, ROW] = -1
    for begin in range(first, last, L):
        lanes = rows.order[begin : min(begin + L, last)]
        low, high = bounds(circuit, rows.roots, lanes)
        gather(scores, B, lanes, x, one, L)
        maxima(x, circuit, low, high, one, L)
        turn(x, circuit, L)
        for lane in range(len(lanes)):
            row = lanes[lane]
            place = (rows.roots[row], row, lane, L)
            offers[0] = x[beside(place[0], lane, L)]
            waiting[0, FROM] = waiting[0, STEP] = -1
            count = 1 if offers[0] > -np.inf else 0
            for k in range(K):
                parts[row, k] = -1
                labels[row, k] = -1
                exact[row, k, 0], exact[row, k, 1] = -np.inf, 0.0
                if values:
                    rounded[row, k] = -np.inf
                if count == 0:
                    continue
                totals[k] = offers[0]
                for f in range(5):
                    found[k, f] = waiting[0, f]
                count -= 1
                for c in range(count):
                    offers[c] = offers[c + 1]
                    for f in range(5):
                        waiting[c, f] = waiting[c + 1, f]
                count = _follow(x, place, circuit, k, kept, count, parts[row, k])
                mine = exact[row, k]
                read(scores, B, row, room, circuit, parts[row, k], labels[row, k], mine)
                # summed again, so the last bits may differ: at most the score before it
                if k and _is_below(exact[row, k - 1], mine):
                    copy(exact[row, k - 1], mine)
                if values:
                    rounded[row, k] = mine[0]


@subroutine(optimise=False)
def _is_below(one, other):
    """Whether a number of two parts is less than another."""
    return one[0] < other[0] or (one[0] == other[0] and one[1] < other[1])


@subroutine
def _follow(x, place, circuit, k, kept, count, parts):
    """Trace output k: its parts, and its successors among the candidates.

    Returns how many candidates there are.
    """
    root, row, lane, L = place
    found, totals, waiting, offers, notes, losses, chain, stack = kept
    leaves = circuit.num_row_leaves + circuit.num_shared_leaves
    steps, o = 0, k
    while o > 0:
        chain[steps] = o
        steps += 1
        o = found[o, FROM]
    most = len(found) - k - 1
    last = found[k, STEP]
    stack[0] = root
    top, used, step = 1, 0, -1
    while top > 0:
        top -= 1
        item = stack[top]
        if item <= leaves:
            if item > 0:
                parts[used] = item - 1
                used += 1
            continue
        step += 1
        if steps > 0 and found[chain[steps - 1], STEP] == step:
            steps -= 1
            o = chain[steps]
            a, b = np.intp(found[o, TO_A]), np.intp(found[o, TO_B])
            if o == k and most > 0:
                # another product at that step, instead of this one
                here = x[beside(a, lane, L)] + x[beside(b, lane, L)]
                number = found[k, TO_NUMBER]
                p, q, number, below = _after(x, lane, L, item, circuit, here, number)
                if number >= 0:
                    offer = (np.intp(found[k, FROM]), step, p, q, number)
                    whole = x[beside(item, lane, L)]
                    # both losses rounded alike, so that equal ones cancel
                    score = totals[k] + (whole - here) - (whole - below)
                    count = _insert(offer, score, waiting, offers, count, most)
        else:
            if notes[item, ROW] != row:
                _note(x, lane, L, row, item, circuit, notes, losses)
            a, b = np.intp(notes[item, BEST_A]), np.intp(notes[item, BEST_B])
            number = notes[item, NUMBER]
            if step > last and number >= 0 and most > 0:
                score = totals[k] - losses[item, LOSS]
                if count < most or score > offers[count - 1]:
                    p, q = notes[item, NEXT_A], notes[item, NEXT_B]
                    offer = (k, step, np.intp(p), np.intp(q), np.intp(number))
                    count = _insert(offer, score, waiting, offers, count, most)
        stack[top], stack[top + 1] = b, a
        top += 2
    return count


@subroutine
def _note(x, lane, L, row, item, circuit, notes, losses):
    """Store the best product of an item, and the second; of equal ones the first."""
    runs, starts = circuit.runs, circuit.starts
    h = circuit.definition[item]
    most = more = -np.inf
    best_a = best_b = next_a = next_b = 0
    best_number = next_number = -1
    number = 0
    for r in range(starts[h], starts[h + 1]):
        a, b = np.intp(runs[r, 1]), np.intp(runs[r, 3])
        for _ in range(runs[r, 0]):
            v = x[beside(a, lane, L)] + x[beside(b, lane, L)]
            if v > more:
                if v > most:
                    more, next_number = most, best_number
                    next_a, next_b = best_a, best_b
                    most, best_number, best_a, best_b = v, number, a, b
                else:
                    more, next_number, next_a, next_b = v, number, a, b
            number += 1
            a += runs[r, 2]
            b += runs[r, 4]
    notes[item, ROW] = row
    notes[item, BEST_A], notes[item, BEST_B] = best_a, best_b
    notes[item, NEXT_A], notes[item, NEXT_B] = next_a, next_b
    notes[item, NUMBER] = next_number
    losses[item, LOSS] = most - more


@subroutine
def _after(x, lane, L, item, circuit, here, number):
    """The product that follows one in the order of value, then number; -1 if none does.

    Values are compared, as in ``_note``: equal losses may come from unequal values.
    """
    runs, starts = circuit.runs, circuit.starts
    h = circuit.definition[item]
    best_a = best_b = np.intp(0)
    best, best_number = -np.inf, np.intp(-1)
    n = np.intp(0)
    for r in range(starts[h], starts[h + 1]):
        a, b = np.intp(runs[r, 1]), np.intp(runs[r, 3])
        for _ in range(runs[r, 0]):
            v = x[beside(a, lane, L)] + x[beside(b, lane, L)]
            if v > best and (v < here or (v == here and n > number)):
                best, best_number, best_a, best_b = v, n, a, b
            n += 1
            a += runs[r, 2]
            b += runs[r, 4]
    return best_a, best_b, best_number, best


@subroutine
def _insert(offer, score, waiting, offers, count, most):
    """Insert a candidate into the sorted list, after its equals; keep ``most``."""
    if count == most:
        if score <= offers[count - 1]:
            return count
        count -= 1
    c = count
    while c > 0 and offers[c - 1] < score:
        offers[c] = offers[c - 1]
        for f in range(5):
            waiting[c, f] = waiting[c - 1, f]
        c -= 1
    offers[c] = score
    waiting[c, FROM], waiting[c, STEP], waiting[c, TO_A] = offer[0], offer[1], offer[2]
    waiting[c, TO_B], waiting[c, TO_NUMBER] = offer[3], offer[4]
    return count + 1
