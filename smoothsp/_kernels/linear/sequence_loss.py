"""The loss of one sequence, and its gradient as marginals less the gold labels.

Both are weighted by loss_scales.

    MAX          max_y z(y)                    z(y) = cost(y) + score(y) - score(gold)
    ENTROPY      mu log sum_y exp(z(y) / mu)   with no costs and mu = 1: the negative
                                               log-likelihood
    TOP_K        max_u <u, z> + mu / 2 (1 - |u|^2)  over the K best labellings

W is separate from the other weights here: ``transition_offset``, ``start_offset`` and
``end_offset`` count from the beginning of ``transition_weights``, which is empty if
parts share weights. The gradient of W is ``X' D``, that of A is ``edges``, and those of
start and end are the first and the last row of D.
"""

from typing import NamedTuple

import numpy as np

from smoothsp._kernels.chain.cpu.k_best import candidates_size, make_scratch
from smoothsp._kernels.chain.cpu.viterbi_over_states import aligned_empty
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.linear.few_best import (
    KBestBuffers,
    k_best_labellings,
    make_k_best_buffers,
)
from smoothsp._kernels.linear.forward_backward import forward_backward
from smoothsp._kernels.linear.sequences import Scratch
from smoothsp._kernels.linear.sparse_scores import V, labelling_score
from smoothsp._kernels.linear.tied_weights import (
    add_to_transition_rows,
    has_tied_weights,
    make_transition_buffer,
)
from smoothsp._kernels.linear.viterbi import fill_loss_augmented_scores, viterbi
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import load, maximum, splat, store
from smoothsp._kernels.vectors.simd_masked import reduce_max, reduce_sum
from smoothsp._kernels.vectors.smoothed_hinge import project_onto_simplex

MAX, ENTROPY, TOP_K = 0, 1, 2


class GradientScratch(NamedTuple):
    """Scratch, with the gradient in D (rows of P) and in ``edges`` (S rows)."""

    scratch: Scratch
    k_best_buffers: KBestBuffers
    D: np.ndarray
    R: np.ndarray
    RT: np.ndarray
    edges: np.ndarray


@subroutine
def make_gradient_scratch(sequences, K):
    """Allocate scratch for the longest sequence, aligned to cache lines."""
    size, square = sequences.max_length * sequences.P, sequences.S * sequences.P
    buffer = arrays.zeros(4 * size + 3 * square + 8)
    padding = -(buffer.ctypes.data // 8) % 8
    buffer = buffer[padding:]
    scratch = Scratch(
        buffer[:size],
        buffer[size : 2 * size],
        buffer[2 * size : 3 * size],
        arrays.zeros(sequences.max_length, np.int32),
        make_transition_buffer(sequences),
    )
    D, buffer = buffer[3 * size : 4 * size], buffer[4 * size :]
    return GradientScratch(
        scratch,
        make_k_best_buffers(sequences.max_length, sequences.S, sequences.P, K),
        D,
        buffer[:square],
        buffer[square : 2 * square],
        buffer[2 * square : 3 * square],
    )


@subroutine
def make_k_best_scratch(sequences, K):
    """Allocate scratch of the lazy enumeration of K labellings."""
    candidates = aligned_empty(
        candidates_size(sequences.max_length, sequences.S, sequences.P, K)
    )
    return make_scratch(sequences.max_length, sequences.S, K, candidates)


@subroutine
def loss_and_gradient(
    sequences, i, transition_weights, kind, mu, gradient, k_best_scratch
):
    """Fill D and ``edges`` for sequence i from its scores E; return the loss.

    First U = E plus costs, then the marginals by kind, less the gold labels, times the
    weight.
    """
    scratch = gradient.scratch
    o = sequences.offsets[i]
    T = sequences.offsets[i + 1] - o
    P, S = sequences.P, sequences.S
    if T == 0:
        gradient.edges[:] = 0.0
        return 0.0
    fill_loss_augmented_scores(
        scratch.E,
        T,
        sequences.labels,
        o,
        sequences.costs,
        sequences.scales[i],
        transition_weights,
        sequences.start_offset,
        sequences.end_offset,
        P,
        scratch.U,
    )
    if kind == ENTROPY:
        value = forward_backward(
            T,
            S,
            P,
            transition_weights,
            sequences.transition_offset,
            mu,
            scratch.U,
            scratch.M,
            gradient.R,
            gradient.RT,
            gradient.D,
            gradient.edges,
        )
    else:
        # a maximum's gradient is the counts of single labellings
        gradient.D[: T * P] = 0.0
        gradient.edges[:] = 0.0
        if kind == MAX:
            value = viterbi(
                T,
                S,
                transition_weights,
                sequences.transition_offset,
                P,
                scratch.U,
                scratch.M,
                scratch.y,
            )
            _add_labelling_counts(T, scratch.y, 1.0, P, gradient.D, gradient.edges)
        else:
            count = k_best_labellings(
                T,
                S,
                P,
                transition_weights,
                sequences.transition_offset,
                scratch.U,
                scratch.M,
                scratch.y,
                gradient.k_best_buffers,
                k_best_scratch,
            )
            value = project_onto_simplex(
                mu, count, gradient.k_best_buffers.z, gradient.k_best_buffers.u
            )
            for b in range(count):
                # the projection onto the simplex is sparse
                if gradient.k_best_buffers.u[b] > 0:
                    _add_labelling_counts(
                        T,
                        gradient.k_best_buffers.labels[0, b],
                        gradient.k_best_buffers.u[b],
                        P,
                        gradient.D,
                        gradient.edges,
                    )
    _add_labelling_counts(
        T, sequences.labels[o : o + T], -1.0, P, gradient.D, gradient.edges
    )
    weight = sequences.loss_scales[i]
    # unweighted training skips a pass over D
    if weight != 1.0:
        scale_array(weight, gradient.D[: T * P])
        scale_array(weight, gradient.edges)
    gold = labelling_score(
        scratch.E,
        T,
        sequences.labels,
        o,
        transition_weights,
        sequences.transition_offset,
        sequences.start_offset,
        sequences.end_offset,
        P,
    )
    return weight * (value - gold)


@subroutine
def _add_labelling_counts(T, y, a, P, D, edges):
    """Add ``a`` for each part of the labelling y."""
    for t in range(T):
        D[t * P + y[t]] += a
        if t > 0:
            edges[y[t - 1] * P + y[t]] += a


@subroutine
def add_transition_gradient(sequences, T, a, D, edges, W, transition_weights):
    """Add ``a`` times the gradient of A, start and end to ``transition_weights``.

    If parts share weights, it is added to W.
    """
    if has_tied_weights(sequences):
        if sequences.transition_offset >= 0 and T > 1:
            add_to_transition_rows(
                sequences, sequences.S, sequences.transition_offset, a, edges, 0, W
            )
        if sequences.start_offset >= 0 and T > 0:
            add_to_transition_rows(sequences, 1, sequences.start_offset, a, D, 0, W)
            add_to_transition_rows(
                sequences, 1, sequences.end_offset, a, D, (T - 1) * sequences.P, W
            )
        return
    scale = splat(a)
    if sequences.transition_offset >= 0 and T > 1:
        for e in range(0, sequences.S * sequences.P, V):
            # whole rows: padding of edges is 0
            t = sequences.transition_offset + e
            store(
                transition_weights,
                t,
                load(transition_weights, t) + scale * load(edges, e),
            )
    if sequences.start_offset >= 0 and T > 0:
        o = (T - 1) * sequences.P
        for j in range(0, sequences.P, V):
            store(
                transition_weights,
                sequences.start_offset + j,
                load(transition_weights, sequences.start_offset + j)
                + scale * load(D, j),
            )
            store(
                transition_weights,
                sequences.end_offset + j,
                load(transition_weights, sequences.end_offset + j)
                + scale * load(D, o + j),
            )


@subroutine
def is_zero_row(D, o, P):
    """Whether a row is 0 throughout."""
    zero = splat(0.0)
    max_abs = zero
    for j in range(0, P, V):
        x = load(D, o + j)
        max_abs = maximum(maximum(x, zero - x), max_abs)
    return reduce_max(max_abs) == 0


@subroutine
def all_finite(x, size):
    """Whether ``x[:size]``, whole vectors, contains neither infinity nor NaN."""
    total, zero = splat(0.0), splat(0.0)
    for e in range(0, size, V):
        # infinity and NaN times 0 are NaN; no comparison per entry
        total = total + load(x, e) * zero
    return reduce_sum(total) == 0


@subroutine
def scale_array(a, x):
    """``x *= a``, in place; x is whole vectors."""
    factor = splat(a)
    for e in range(0, len(x), V):
        store(x, e, load(x, e) * factor)
