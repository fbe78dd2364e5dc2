"""Exact samples of spanning trees, each with its own stream of random numbers.

Wilson's walks draw the head of each word j that they visit with probability

    w(i, j) / sum_i w(i, j)

until they meet the tree. A head drawn later replaces the one before it, which erases
loops. Walks are long where they stay in a cycle with a probability near 1. There
``matrix_tree_log_space`` gives P(head of j | heads of the words before), in O(n^3) for
each word.

With ``single`` walks need the word below the root first: it is drawn by its marginal
probability. The others then hang below that word, and the root is no head.
"""

import numpy as np

from smoothsp._kernels.circuits.cpu.samples import uniform
from smoothsp._kernels.combinatorial import matrix_tree_log_space
from smoothsp._kernels.combinatorial.matrix_tree import (
    LANES,
    LEAST,
    adjoint,
    eliminate,
    scratch,
    weights,
)
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy
from smoothsp._kernels.vectors.simd import aligned_span, get, put

STEP = np.uint64(0x9E3779B97F4A7C15)


@kernel
def sample_trees(first, last, arcs, lengths, single, seeds, heads):
    """Fill heads[B, draws, n], -1 past the length, from seeds[B, draws].

    By random walks whose loops are erased (Wilson 1996), as long as the walks are
    expected to be short; else word by word, each head by its chance given the heads
    before it.
    """
    size = arcs.shape[1]
    room, below, chance = scratch(size), scratch(size), arrays.empty(size)
    logs, chances = matrix_tree_log_space.scratch(size), arrays.empty((size, size))
    none, left = arrays.zeros((size, size)), arrays.empty((size, size))
    for b in range(first, last):
        n = lengths[b]
        _, product = weights(arcs, b, n, single, room)
        short = False
        if single:
            matrix_tree_log_space.of_one(arcs[b], n, True, none, logs, chances)
            copy(chances[0], chance)
        else:
            short = _is_short(n, product, room)
        for i in range(seeds.shape[1]):
            state = np.uint64(seeds[b, i])
            drawn = heads[b, i]
            drawn[:] = -1
            if n == 0:
                continue
            lowest = 0
            if single:
                state += STEP
                root, lowest = _pick(chance, 1, n, uniform(state)), 1
                _hang_below(n, root, room, below)
                short = _is_short(n, product, below)
                drawn[root - 1] = 0
            if short:
                _walk(room, n, lowest, state, drawn)
                continue
            drawn[:] = -1
            copy(arcs[b].ravel(), left.ravel())
            for j in range(1, n + 1):
                matrix_tree_log_space.of_one(left, n, single, none, logs, chances)
                state += STEP
                h = _pick(chances[:, j].copy(), 0, n, uniform(state))
                drawn[j - 1] = h
                for other in range(n + 1):
                    if other != h:
                        left[other, j] = -np.inf


@subroutine
def _hang_below(n, root, room, below):
    """Fill weights of the same words as children of one, which stays where it is."""
    wide = room[1].shape[1] - LANES
    w, turned = aligned_span(room[0][0]), aligned_span(below[0][0])
    for i in range(n + 1):
        for j in range(1, n + 1):
            inside = i > 0 and i != root and j != root
            put(turned, i * wide + j, get(w, i * wide + j) if inside else 0.0)
    for j in range(1, n + 1):
        put(turned, j, get(w, root * wide + j) if j != root else 1.0)


@subroutine
def _is_short(n, product, room):
    """Whether walks from all words take few steps on average.

    Word j is left ``D_j d log Z / d w(0, j)`` times on average, D_j the sum over its
    heads. The limit grows as n^4, as the work of drawing word by word does.
    """
    if not eliminate(n, False, room) - product > LEAST:
        return False
    adjoint(n, False, room)
    wide = room[1].shape[1] - LANES
    w, slopes = aligned_span(room[0][0]), aligned_span(room[0][2])
    most = 1000.0 + 0.3 * n**4
    for j in range(1, n + 1):
        steps = 0.0
        for i in range(n + 1):
            steps += get(w, i * wide + j)
        most -= steps * get(slopes, j)
    return most > 0


@subroutine
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


@subroutine
def _walk(room, n, lowest, state, drawn):
    """Draw heads of the other words, by loop-erased walks to words that have one."""
    wide, w = room[1].shape[1] - LANES, aligned_span(room[0][0])
    done = arrays.zeros(n + 1, np.bool_)
    done[0] = True
    column = arrays.empty(n + 1)
    for j in range(1, n + 1):
        done[j] = drawn[j - 1] >= 0
    for begin in range(1, n + 1):
        j = begin
        while not done[j]:
            for i in range(n + 1):
                column[i] = get(w, i * wide + j)
            state += STEP
            drawn[j - 1] = _pick(column, lowest, n, uniform(state))
            j = drawn[j - 1]
        j = begin
        while not done[j]:
            done[j] = True
            j = drawn[j - 1]
