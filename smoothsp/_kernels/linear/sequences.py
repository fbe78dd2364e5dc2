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
from smoothsp._kernels.linear.tied_weights import rest, room_of_rest, score_words
from smoothsp._kernels.linear.viterbi import (
    add_costs,
    best_labels,
    without_costs,
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
    rest: np.ndarray


@subroutine(optimise=False)
def scratch(s):
    """Room for the longest sequence; a cache line begins where a row does."""
    size = s.max_length * s.P
    room = arrays.zeros(3 * size + 8)
    past = -(room.ctypes.data // 8) % 8
    return Scratch(
        room[past : past + size],
        room[past + size : past + 2 * size],
        room[past + 2 * size : past + 3 * size],
        arrays.zeros(s.max_length, np.int32),
        room_of_rest(s),
    )


@subroutine(optimise=False)
def score_sequence(s, i, weights, k):
    """Fill ``k.E`` for sequence i; return where A, start and end are."""
    score_words(s, s.offsets[i], s.offsets[i + 1], weights, k.E)
    return rest(s, 1.0, weights, weights, k.rest)


@subroutine(optimise=False)
def worst_labels(s, i, tail, k):
    """Fill ``k.y`` with the labelling of most cost plus score, and return that sum.

    ``k.E`` holds the scores of the sequence, ``tail`` A, start and end.
    """
    o = s.offsets[i]
    T = s.offsets[i + 1] - o
    add_costs(
        k.E,
        T,
        s.labels,
        o,
        s.costs,
        s.scales[i],
        tail,
        s.start_offset,
        s.end_offset,
        s.P,
        k.U,
    )
    return best_labels(T, s.S, tail, s.transition_offset, s.P, k.U, k.M, k.y)


@subroutine(optimise=False)
def gold_score(s, i, tail, k):
    """The score of the gold labels of sequence i, whose scores are in ``k.E``."""
    o = s.offsets[i]
    T = s.offsets[i + 1] - o
    return labelling_score(
        k.E,
        T,
        s.labels,
        o,
        tail,
        s.transition_offset,
        s.start_offset,
        s.end_offset,
        s.P,
    )


@subroutine(optimise=False)
def cost_of(s, i, y, o):
    """``scales_i sum_t c(gold_t, y_t)`` for the labels ``y[o:]`` of sequence i."""
    first = s.offsets[i]
    cost = 0.0
    for t in range(s.offsets[i + 1] - first):
        cost += s.costs[s.labels[first + t] * s.P + y[o + t]]
    return s.scales[i] * cost


@subroutine(optimise=False)
def share(s, i):
    """``s_i = loss_scales[i] / n``, the weight of sequence i in the mean loss."""
    return s.loss_scales[i] / (len(s.offsets) - 1)


@kernel
def structured_hinges(first, last, s, weights, out):
    """Fill ``out[i] = max_y cost(y) + <w, phi(y) - phi(gold)>``, not times a weight."""
    k = scratch(s)
    for i in range(first, last):
        tail = score_sequence(s, i, weights, k)
        worst = worst_labels(s, i, tail, k)
        out[i] = max(worst - gold_score(s, i, tail, k), 0.0)


@kernel
def decode(first, last, s, weights, labels, scores):
    """Fill the best labelling of each sequence, by Viterbi, and its score."""
    k = scratch(s)
    for i in range(first, last):
        tail = score_sequence(s, i, weights, k)
        o = s.offsets[i]
        T = s.offsets[i + 1] - o
        without_costs(k.E, T, s.S, tail, s.start_offset, s.end_offset, s.P, k.U)
        scores[i] = best_labels(T, s.S, tail, s.transition_offset, s.P, k.U, k.M, k.y)
        copy(k.y[:T], labels[o : o + T])
