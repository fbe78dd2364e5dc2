"""Wilson's algorithm: exact samples of dependency trees, each with a seed.

Random walks draw the head of each visited word j with probability

    w(i, j) / sum_i w(i, j)

until they meet the tree. A later head of a word replaces its earlier one, which erases
loops. Walks are long if they stay in a cycle with probability near 1. In that case
``matrix_tree_log_space`` gives P(head of j | heads of the words before), in O(n^3) for
each word.

With ``single_root`` the root's child is drawn first, by its marginal probability. The
other words then form a tree below it, in which the root is no head.

Source: Wilson, "Generating Random Spanning Trees More Quickly than the Cover Time"
(1996).
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
from smoothsp._kernels.vectors.simd import aligned_span, get_number, put_number

# increment of splitmix64
STEP = np.uint64(0x9E3779B97F4A7C15)


@kernel
def sample_trees(first, last, arcs, lengths, single_root, seeds, heads):
    """Fill heads[B, draws, n], -1 past the length, from seeds[B, draws].

    By Wilson's walks if their expected number of steps is small; otherwise word by
    word, each head by its probability given the earlier heads.
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
                # heads drawn so far are fixed by forbidding all other arcs
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
    """Fill weights with ``root`` as the root: its arcs are in row 0, others are 0."""
    row_width = scratch[1].shape[1] - LANES
    w, rerooted = aligned_span(scratch[0][0]), aligned_span(subtree_scratch[0][0])
    for i in range(n + 1):
        for j in range(1, n + 1):
            in_subtree = i > 0 and i != root and j != root
            put_number(
                rerooted,
                i * row_width + j,
                get_number(w, i * row_width + j) if in_subtree else 0.0,
            )
    for j in range(1, n + 1):
        put_number(
            rerooted, j, get_number(w, root * row_width + j) if j != root else 1.0
        )


@subroutine
def _has_short_walks(n, log_product, scratch):
    """Whether walks from all words take few steps in expectation.

    Word j is left ``D_j d log Z / d w(0, j)`` times in expectation, with D_j the sum
    over its heads. The limit grows as n^4, like the cost of drawing word by word.
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
            steps += get_number(w, i * row_width + j)
        steps_left -= steps * get_number(gradient, j)
    return steps_left > 0


@subroutine
def _sample_index(row, first, n, u):
    """Draw an index from ``first`` to n with probability proportional to ``row``."""
    total = 0.0
    for i in range(first, n + 1):
        total += row[i]
    remaining, index = u * total, first
    for i in range(first, n + 1):
        # rounding may leave a remainder at the end: only positive entries are returned
        if row[i] > 0:
            index = i
            remaining -= row[i]
            if remaining < 0:
                break
    return index


@subroutine
def _sample_loop_erased_walks(scratch, n, first_head, state, heads):
    """Draw the heads of words without one, by loop-erased walks to the tree."""
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
                column[i] = get_number(w, i * row_width + j)
            state += STEP
            heads[j - 1] = _sample_index(
                column, first_head, n, splitmix64_uniform(state)
            )
            j = heads[j - 1]
        j = begin
        while not in_tree[j]:
            in_tree[j] = True
            j = heads[j - 1]
