"""What compiled loops over sequences are given: data, one record; scratch, another.

The hinge of sequence i, in the order of computation:

    E(t, j) = sum_f x(t, f) W(f, j)                              scores of words
    U(t, j) = E(t, j) + scales_i c(gold_t, j), and the ends      with costs
    worst   = max_y sum_t U(t, y_t) + A(y_{t-1}, y_t)            Viterbi
    hinge   = worst - <w, phi(gold)>

E is kept beside U, as the score of the gold labels and slopes are read from it. All
rows have P numbers, S labels up to whole vectors. Scratch is for one sequence and is
used again for the next.
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
    """Sequences, their gold labels, what a wrong label costs, and what each counts.

    The cost of sequence i is multiplied by ``scales[i]``, its whole loss by
    ``loss_scales[i]``. ``offsets[i]`` is its first position, ``offsets[n]`` the end of
    the last. ``moves``, ``start`` and ``end`` say where weights are (see
    ``linear.sparse_scores``), ``longest`` how many positions a sequence has at most,
    and ``table``, empty or not, which parts share weights (see ``linear.parts``).
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

    ``rest`` has rows for A, start and end where parts share weights.
    """

    E: np.ndarray
    U: np.ndarray
    M: np.ndarray
    y: np.ndarray
    transition_weights: np.ndarray


@subroutine(optimise=False)
def make_scratch(sequences):
    """Room for the longest sequence; a cache line begins where a row does."""
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
    """Fill ``k.E`` for sequence i; return where A, start and end are."""
    fill_position_scores(
        sequences, sequences.offsets[i], sequences.offsets[i + 1], weights, scratch.E
    )
    return gather_transition_weights(
        sequences, 1.0, weights, weights, scratch.transition_weights
    )


@subroutine(optimise=False)
def loss_augmented_labels(sequences, i, transition_weights, scratch):
    """Fill ``k.y`` with the labelling of most cost plus score, and return that sum.

    ``k.E`` holds the scores of the sequence, ``tail`` A, start and end.
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
    """The score of the gold labels of sequence i, whose scores are in ``k.E``."""
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
    """``scales_i sum_t c(gold_t, y_t)`` for the labels ``y[o:]`` of sequence i."""
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
    """Fill ``out[i] = max_y cost(y) + <w, phi(y) - phi(gold)>``, not times a weight."""
    scratch = make_scratch(sequences)
    for i in range(first, last):
        transition_weights = score_sequence(sequences, i, weights, scratch)
        worst = loss_augmented_labels(sequences, i, transition_weights, scratch)
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
