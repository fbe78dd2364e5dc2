"""The best output of each row, and which leaves it uses."""

import numpy as np
from numba import njit

from smoothsp._kernels.circuits.cpu.lanes import bounds, gather, one_of
from smoothsp._kernels.circuits.cpu.numbers import constant
from smoothsp._kernels.compilation import kernel
from smoothsp._kernels.vectors.simd import larger, load, span, store, where_below


@kernel
def best(first, last, circuit, rows, own, shared, room, value, labels, parts):
    """Fill value[B], labels[B, N] and parts[B, U] of the rows ``order[first:last]``.

    ``parts`` are the leaves, from 0, that the best output uses, then -1; ``labels``
    what they say, -1 where nothing does; ``value`` the sum of their scores. ``room`` is
    scratch, ``[1, size]``.
    """
    L = 64 // room.itemsize
    one = one_of(room)
    x = room[0]
    stack = np.empty(circuit.depth + 2, np.int64)
    for begin in range(first, last, L):
        lanes = rows.order[begin : min(begin + L, last)]
        low, high = bounds(circuit, rows.roots, lanes)
        gather(own, shared, lanes, x, one, L)
        maxima(x, circuit, low, high, one, L)
        for lane in range(len(lanes)):
            row = lanes[lane]
            root = rows.roots[row]
            trace(x, lane, L, root, circuit, stack, parts[row])
            value[row] = read(own[row], shared, circuit, parts[row], labels[row])
            if x[root * L + lane] == -np.inf:
                value[row] = -np.inf


@njit(error_model="numpy", no_cpython_wrapper=True)
def maxima(x, circuit, low, high, one, L):
    """Every item from definition ``low`` to ``high``: the largest of its products.

    Padding that is NaN or +inf becomes -inf, so that nothing here makes a NaN.
    """
    x = span(x)
    heads, starts, runs = circuit.heads, circuit.starts, circuit.runs
    infinite = constant(one, np.inf)
    none = one - infinite
    for i in range(0, (1 + circuit.own + circuit.shared) * L, L):
        w = load(x, i)
        store(x, i, where_below(w, infinite, w, none))
    for h in range(low, high):
        top = none
        for r in range(starts[h], starts[h + 1]):
            n = np.intp(runs[r, 0])
            a, step_a = np.intp(runs[r, 1]) * L, np.intp(runs[r, 2]) * L
            b, step_b = np.intp(runs[r, 3]) * L, np.intp(runs[r, 4]) * L
            for i in range(n):
                top = larger(load(x, a + i * step_a) + load(x, b + i * step_b), top)
        store(x, np.intp(heads[h]) * L, top)


@njit(error_model="numpy", no_cpython_wrapper=True)
def trace(x, lane, L, root, circuit, stack, parts):
    """The leaves, from 0, of the best product at the root, then -1."""
    parts[:] = -1
    leaves = circuit.own + circuit.shared
    count, top = 0, 0
    if x[root * L + lane] > -np.inf:
        stack[0] = root
        top = 1
    while top > 0:
        top -= 1
        item = stack[top]
        if item > leaves:
            a, b = best_edge(x, lane, L, item, circuit)
            stack[top], stack[top + 1] = b, a
            top += 2
        elif item > 0:
            parts[count] = item - 1
            count += 1


@njit(error_model="numpy", no_cpython_wrapper=True)
def best_edge(x, lane, L, item, circuit):
    """The first product that is the item's maximum, to the bit: it was computed so."""
    runs, starts = circuit.runs, circuit.starts
    h = circuit.place[item]
    goal = x[item * L + lane]
    for r in range(starts[h], starts[h + 1]):
        a, b = np.intp(runs[r, 1]), np.intp(runs[r, 3])
        for _ in range(runs[r, 0]):
            if x[a * L + lane] + x[b * L + lane] == goal:
                return a, b
            a += runs[r, 2]
            b += runs[r, 4]
    return np.intp(0), np.intp(0)


@njit(error_model="numpy", no_cpython_wrapper=True)
def read(own, shared, circuit, parts, labels):
    """Fill the labels[N] that parts say, and return the sum of their scores."""
    labels[:] = -1
    total = 0.0
    for leaf in parts:
        if leaf < 0:
            break
        if leaf < circuit.own:
            total += own[leaf]
        else:
            total += shared[leaf - circuit.own]
        position = circuit.positions[1 + leaf]
        if position >= 0:
            labels[position] = circuit.values[1 + leaf]
    return total
