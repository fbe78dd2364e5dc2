"""Records of sequences and scratch, and loss-augmented decoding of one sequence.

The hinge of sequence i, in the order of computation:

    E(t, j) = sum_f x(t, f) W(f, j)                              scores of words
    U(t, j) = E(t, j) + scales_i c(gold_t, j), and the ends      with costs
    worst   = max_y sum_t U(t, y_t) + A(y_{t-1}, y_t)            Viterbi
    hinge   = worst - <w, phi(gold)>

E is stored beside U, since the gold score and gradients are computed from it. Rows have
P numbers, S labels padded to whole vectors. Scratch is for one sequence and is reused
for the next.
"""

from typing import NamedTuple

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.linear.sparse_scores import labelling_score
from smoothsp._kernels.linear.tied_weights import (
    fill_position_scores,
    gather_transition_weights,
    make_transition_buffer,
)
from smoothsp._kernels.linear.viterbi import (
    fill_loss_augmented_scores,
    fill_scores,
    viterbi,
)
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy


class Sequences(NamedTuple):
    """Sequences, their gold labels, costs of wrong labels, and weights.

    The cost of sequence i is multiplied by ``scales[i]``, its loss by
    ``loss_scales[i]``. ``offsets[i]`` is its first position, ``offsets[n]`` the end of
    the last one. ``transition_offset``, ``start_offset`` and ``end_offset`` are
    positions in the weights (see ``sparse_scores``). ``max_length`` is the largest
    number of positions. ``tied_index`` maps parts to weights they share, or is empty
    (see ``tied_weights``).
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    offsets: np.ndarray
    labels: np.ndarray
    costs: np.ndarray
    scales: np.ndarray
    loss_scales: np.ndarray
    S: int
    P: int
    transition_offset: int
    start_offset: int
    end_offset: int
    max_length: int
    tied_index: np.ndarray


class Scratch(NamedTuple):
    """Rows of P numbers for each position of one sequence, and a labelling.

    ``transition_weights`` has rows for A, start and end if parts share weights.
    """

    E: np.ndarray
    U: np.ndarray
    M: np.ndarray
    y: np.ndarray
    transition_weights: np.ndarray


@subroutine(optimise=False)
def make_scratch(sequences):
    """Allocate scratch for the longest sequence, aligned to cache lines."""
    size = sequences.max_length * sequences.P
    buffer = arrays.zeros(3 * size + 8)
    padding = -(buffer.ctypes.data // 8) % 8
    return Scratch(
        buffer[padding : padding + size],
        buffer[padding + size : padding + 2 * size],
        buffer[padding + 2 * size : padding + 3 * size],
        arrays.zeros(sequences.max_length, np.int32),
        make_transition_buffer(sequences),
    )


@subroutine(optimise=False)
def score_sequence(sequences, i, weights, scratch):
    """Fill E for sequence i; return the array that holds A, start and end."""
    fill_position_scores(
        sequences, sequences.offsets[i], sequences.offsets[i + 1], weights, scratch.E
    )
    return gather_transition_weights(
        sequences, 1.0, weights, weights, scratch.transition_weights
    )


@subroutine(optimise=False)
def loss_augmented_labels(sequences, i, transition_weights, scratch):
    """Fill y with the labelling of highest cost plus score; return this sum.

    E holds the scores of the sequence, ``transition_weights`` A, start and end.
    """
    o = sequences.offsets[i]
    T = sequences.offsets[i + 1] - o
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
        sequences.P,
        scratch.U,
    )
    return viterbi(
        T,
        sequences.S,
        transition_weights,
        sequences.transition_offset,
        sequences.P,
        scratch.U,
        scratch.M,
        scratch.y,
    )


@subroutine(optimise=False)
def gold_score(sequences, i, transition_weights, scratch):
    """Return the score of the gold labels of sequence i, from its scores E."""
    o = sequences.offsets[i]
    T = sequences.offsets[i + 1] - o
    return labelling_score(
        scratch.E,
        T,
        sequences.labels,
        o,
        transition_weights,
        sequences.transition_offset,
        sequences.start_offset,
        sequences.end_offset,
        sequences.P,
    )


@subroutine(optimise=False)
def labelling_cost(sequences, i, y, labels_offset):
    """``scales_i sum_t c(gold_t, y_t)`` for the labels ``y[labels_offset:]``."""
    first = sequences.offsets[i]
    cost = 0.0
    for t in range(sequences.offsets[i + 1] - first):
        cost += sequences.costs[
            sequences.labels[first + t] * sequences.P + y[labels_offset + t]
        ]
    return sequences.scales[i] * cost


@subroutine(optimise=False)
def sequence_weight(sequences, i):
    """``s_i = loss_scales[i] / n``, the weight of sequence i in the mean loss."""
    return sequences.loss_scales[i] / (len(sequences.offsets) - 1)


@kernel
def structured_hinges(first, last, sequences, weights, out):
    """Fill ``out[i] = max_y cost(y) + <w, phi(y) - phi(gold)>``, not weighted."""
    scratch = make_scratch(sequences)
    for i in range(first, last):
        transition_weights = score_sequence(sequences, i, weights, scratch)
        worst = loss_augmented_labels(sequences, i, transition_weights, scratch)
        # the gold labelling is among all y: negative only by rounding
        out[i] = max(worst - gold_score(sequences, i, transition_weights, scratch), 0.0)


@kernel
def decode(first, last, sequences, weights, labels, scores):
    """Fill the best labelling of each sequence, by Viterbi, and its score."""
    scratch = make_scratch(sequences)
    for i in range(first, last):
        transition_weights = score_sequence(sequences, i, weights, scratch)
        o = sequences.offsets[i]
        T = sequences.offsets[i + 1] - o
        fill_scores(
            scratch.E,
            T,
            sequences.S,
            transition_weights,
            sequences.start_offset,
            sequences.end_offset,
            sequences.P,
            scratch.U,
        )
        scores[i] = viterbi(
            T,
            sequences.S,
            transition_weights,
            sequences.transition_offset,
            sequences.P,
            scratch.U,
            scratch.M,
            scratch.y,
        )
        copy(scratch.y[:T], labels[o : o + T])
