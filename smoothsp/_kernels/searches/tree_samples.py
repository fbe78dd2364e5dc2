"""Exact draws of spanning trees, each with its own stream of random numbers."""

import numpy as np
from numba import njit

from smoothsp._kernels.circuits.cpu.samples import uniform
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.searches.tree_moves import of_one, scratch
from smoothsp._kernels.searches.tree_sums import LEAST, adjoint, eliminate, weights

STEP = np.uint64(0x9E3779B97F4A7C15)


@kernel
def samples(first, last, arcs, lengths, single, seeds, heads):
    """Fill heads[B, draws, n], -1 past the length, from seeds[B, draws].

    By random walks whose loops are erased (Wilson 1996), as long as the walks are
    expected to be short; else word by word, each head by its chance given the heads
    before it.
    """
    size = arcs.shape[1]
    w, g, turned = np.empty((3, size, size))
    d, row = np.empty(size), np.empty(size)
    room, chances = scratch(size), np.empty((size, size))
    none, left = np.zeros((size, size)), np.empty((size, size))
    for b in range(first, last):
        n = lengths[b]
        _, product = weights(arcs[b], n, single, w)
        short = False
        if single:
            of_one(arcs[b], n, True, none, room, chances)
            g[0] = chances[0]
        else:
            turned[:] = w
            short = _is_short(w, n, product, d, row, g)
            w[:] = turned
        for i in range(seeds.shape[1]):
            state = np.uint64(seeds[b, i])
            drawn = heads[b, i]
            drawn[:] = -1
            if n == 0:
                continue
            root, lowest = 0, 0
            if single:
                state += STEP
                root, lowest = _pick(g[0], 1, n, uniform(state)), 1
                _hang_below(w, n, root, turned)
                short = _is_short(turned, n, product, d, row, left)
                drawn[root - 1] = 0
            if short:
                _walk(w, n, lowest, state, drawn)
                continue
            drawn[:] = -1
            left[:] = arcs[b]
            for j in range(1, n + 1):
                of_one(left, n, single, none, room, chances)
                state += STEP
                for h in range(n + 1):
                    d[h] = chances[h, j]
                h = _pick(d, 0, n, uniform(state))
                drawn[j - 1] = h
                for other in range(n + 1):
                    if other != h:
                        left[other, j] = -np.inf


@njit(error_model="numpy", no_cpython_wrapper=True)
def _hang_below(w, n, root, turned):
    """Fill weights of the same words as children of one, which stays where it is."""
    for i in range(n + 1):
        for j in range(1, n + 1):
            turned[i, j] = w[i, j] if i > 0 and i != root and j != root else 0.0
    for j in range(1, n + 1):
        turned[0, j] = w[root, j] if j != root else 1.0


@njit(error_model="numpy", no_cpython_wrapper=True)
def _is_short(w, n, product, d, row, g):
    """Whether walks from all words take few steps on average; w is used up."""
    steps = np.zeros(n + 1)
    for j in range(1, n + 1):
        for i in range(n + 1):
            steps[j] += w[i, j]
    total = eliminate(w, n, False, d, row)
    if not total - product > LEAST:
        return False
    adjoint(w, n, False, d, g)
    most = 1000.0 + 0.3 * n**4
    for j in range(1, n + 1):
        most -= steps[j] * g[0, j]
    return most > 0


@njit(error_model="numpy", no_cpython_wrapper=True)
def _pick(row, lowest, n, chance):
    """An index from ``lowest`` to n, by its share of the sum."""
    total = 0.0
    for i in range(lowest, n + 1):
        total += row[i]
    left, found = chance * total, lowest
    for i in range(lowest, n + 1):
        if row[i] > 0:
            found = i
            left -= row[i]
            if left < 0:
                break
    return found


@njit(error_model="numpy", no_cpython_wrapper=True)
def _walk(w, n, lowest, state, drawn):
    """Heads of the words that have none, from loop-erased walks to those that do."""
    done = np.zeros(n + 1, np.bool_)
    done[0] = True
    column = np.empty(n + 1)
    for j in range(1, n + 1):
        done[j] = drawn[j - 1] >= 0
    for begin in range(1, n + 1):
        j = begin
        while not done[j]:
            for i in range(n + 1):
                column[i] = w[i, j]
            state += STEP
            drawn[j - 1] = _pick(column, lowest, n, uniform(state))
            j = drawn[j - 1]
        j = begin
        while not done[j]:
            done[j] = True
            j = drawn[j - 1]
