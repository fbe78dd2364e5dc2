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

from smoothsp._kernels.circuits.cpu.samples import splitmix64_uniform
from smoothsp._kernels.combinatorial import matrix_tree_log_space
from smoothsp._kernels.combinatorial.matrix_tree import (
    LANES,
    MIN_LOG_RATIO,
    eliminate,
    fill_gradient,
    fill_weights,
    make_scratch,
)
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy
from smoothsp._kernels.vectors.simd import aligned_span, get, put

STEP = np.uint64(0x9E3779B97F4A7C15)


@kernel
def sample_trees(first, last, arcs, lengths, single_root, seeds, heads):
    """Fill heads[B, draws, n], -1 past the length, from seeds[B, draws].

    By random walks whose loops are erased (Wilson 1996), as long as the walks are
    expected to be short; else word by word, each head by its chance given the heads
    before it.
    """
    size = arcs.shape[1]
    scratch, subtree_scratch, root_marginals = (
        make_scratch(size),
        make_scratch(size),
        arrays.empty(size),
    )
    logs, marginals = (
        matrix_tree_log_space.make_scratch(size),
        arrays.empty((size, size)),
    )
    zero_direction, scores_left = arrays.zeros((size, size)), arrays.empty((size, size))
    for b in range(first, last):
        n = lengths[b]
        _, log_product = fill_weights(arcs, b, n, single_root, scratch)
        is_short = False
        if single_root:
            matrix_tree_log_space.matrix_tree_row(
                arcs[b], n, True, zero_direction, logs, marginals
            )
            copy(marginals[0], root_marginals)
        else:
            is_short = _has_short_walks(n, log_product, scratch)
        for i in range(seeds.shape[1]):
            state = np.uint64(seeds[b, i])
            heads_i = heads[b, i]
            heads_i[:] = -1
            if n == 0:
                continue
            first_head = 0
            if single_root:
                state += STEP
                root, first_head = (
                    _sample_index(root_marginals, 1, n, splitmix64_uniform(state)),
                    1,
                )
                _fill_rerooted_weights(n, root, scratch, subtree_scratch)
                is_short = _has_short_walks(n, log_product, subtree_scratch)
                heads_i[root - 1] = 0
            if is_short:
                _sample_loop_erased_walks(scratch, n, first_head, state, heads_i)
                continue
            heads_i[:] = -1
            copy(arcs[b].ravel(), scores_left.ravel())
            for j in range(1, n + 1):
                matrix_tree_log_space.matrix_tree_row(
                    scores_left, n, single_root, zero_direction, logs, marginals
                )
                state += STEP
                h = _sample_index(
                    marginals[:, j].copy(), 0, n, splitmix64_uniform(state)
                )
                heads_i[j - 1] = h
                for other_head in range(n + 1):
                    if other_head != h:
                        scores_left[other_head, j] = -np.inf


@subroutine
def _fill_rerooted_weights(n, root, scratch, subtree_scratch):
    """Fill weights of the same words as children of one, which stays where it is."""
    row_width = scratch[1].shape[1] - LANES
    w, rerooted = aligned_span(scratch[0][0]), aligned_span(subtree_scratch[0][0])
    for i in range(n + 1):
        for j in range(1, n + 1):
            in_subtree = i > 0 and i != root and j != root
            put(
                rerooted,
                i * row_width + j,
                get(w, i * row_width + j) if in_subtree else 0.0,
            )
    for j in range(1, n + 1):
        put(rerooted, j, get(w, root * row_width + j) if j != root else 1.0)


@subroutine
def _has_short_walks(n, log_product, scratch):
    """Whether walks from all words take few steps on average.

    Word j is left ``D_j d log Z / d w(0, j)`` times on average, D_j the sum over its
    heads. The limit grows as n^4, as the work of drawing word by word does.
    """
    if not eliminate(n, False, scratch) - log_product > MIN_LOG_RATIO:
        return False
    fill_gradient(n, False, scratch)
    row_width = scratch[1].shape[1] - LANES
    w, gradient = aligned_span(scratch[0][0]), aligned_span(scratch[0][2])
    steps_left = 1000.0 + 0.3 * n**4
    for j in range(1, n + 1):
        steps = 0.0
        for i in range(n + 1):
            steps += get(w, i * row_width + j)
        steps_left -= steps * get(gradient, j)
    return steps_left > 0


@subroutine
def _sample_index(row, first, n, u):
    """An index from ``lowest`` to n, by its share of the sum."""
    total = 0.0
    for i in range(first, n + 1):
        total += row[i]
    remaining, index = u * total, first
    for i in range(first, n + 1):
        if row[i] > 0:
            index = i
            remaining -= row[i]
            if remaining < 0:
                break
    return index


@subroutine
def _sample_loop_erased_walks(scratch, n, first_head, state, heads):
    """Draw heads of the other words, by loop-erased walks to words that have one."""
    row_width, w = scratch[1].shape[1] - LANES, aligned_span(scratch[0][0])
    in_tree = arrays.zeros(n + 1, np.bool_)
    in_tree[0] = True
    column = arrays.empty(n + 1)
    for j in range(1, n + 1):
        in_tree[j] = heads[j - 1] >= 0
    for begin in range(1, n + 1):
        j = begin
        while not in_tree[j]:
            for i in range(n + 1):
                column[i] = get(w, i * row_width + j)
            state += STEP
            heads[j - 1] = _sample_index(
                column, first_head, n, splitmix64_uniform(state)
            )
            j = heads[j - 1]
        j = begin
        while not in_tree[j]:
            in_tree[j] = True
            j = heads[j - 1]
