"""Working sets: stored labellings of sequences, with their weights in the dual.

For the labellings y_k of sequence i, of weights alpha_k that sum to 1,

    h(k) = loss(k) + <w, phi(y_k)> - <w, phi(gold)>        at the weights of the visit
    mu   = sum_k alpha_k e_{y_k},    ell = s_i sum_k alpha_k loss(k)

Pools are flat and shared by all sequences, so that a step adds slots without
allocating. If a pool is full, the step is not made, and the caller enlarges the pool.

Sequence i has ``size[i]`` of ``room[i]`` slots, from ``slot[i]`` on. Slot k has the
labels ``labels[word[i] + k T:]``. A sequence that needs more slots moves to the end of
the pools; ``used`` are the used lengths of labels and of slots.
"""

from typing import NamedTuple

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.linear.sequences import labelling_cost, sequence_weight
from smoothsp._kernels.linear.sparse_scores import labelling_score
from smoothsp._kernels.vectors.arrays import copy

# Differences of h below this are ties: rounding must not choose between labellings. The
# first slot wins.
TIE_TOLERANCE = 1e-10


class WorkingSets(NamedTuple):
    """Pools; ``alpha`` weights, ``loss`` costs, ``h`` cost plus score margin."""

    labels: np.ndarray
    alpha: np.ndarray
    loss: np.ndarray
    h: np.ndarray
    word: np.ndarray
    slot: np.ndarray
    room: np.ndarray
    size: np.ndarray
    used: np.ndarray


@subroutine(optimise=False)
def try_reserve_slot(sequences, i, working_sets, max_labellings):
    """Reserve one more slot; return False, without changes, if the pool is full.

    The capacity doubles up to ``max_labellings``, then grows by 8 slots: labellings
    with weight cannot be dropped, and others would have been.
    """
    if working_sets.size[i] < working_sets.room[i]:
        return True
    T = sequences.offsets[i + 1] - sequences.offsets[i]
    size, capacity = (
        working_sets.size[i],
        2 * working_sets.room[i]
        if working_sets.room[i] < max_labellings
        else working_sets.room[i] + 8,
    )
    labels_end, slots_end = working_sets.used[0], working_sets.used[1]
    if labels_end + capacity * T > len(
        working_sets.labels
    ) or slots_end + capacity > len(working_sets.alpha):
        return False
    a, b = working_sets.word[i], working_sets.slot[i]
    # h is not copied, since each visit fills it
    copy(
        working_sets.labels[a : a + size * T],
        working_sets.labels[labels_end : labels_end + size * T],
    )
    for k in range(size):
        working_sets.alpha[slots_end + k] = working_sets.alpha[b + k]
        working_sets.loss[slots_end + k] = working_sets.loss[b + k]
    working_sets.word[i], working_sets.slot[i], working_sets.room[i] = (
        labels_end,
        slots_end,
        capacity,
    )
    working_sets.used[0] = labels_end + capacity * T
    working_sets.used[1] = slots_end + capacity
    return True


@subroutine(optimise=False)
def score_slots(sequences, i, w, E, gold, working_sets):
    """Fill ``h = loss + score - gold`` of each slot; ``gold`` is the gold score.

    O(T) per slot, whereas Viterbi takes ``O(T S^2)``.
    """
    T = sequences.offsets[i + 1] - sequences.offsets[i]
    for k in range(working_sets.size[i]):
        o = working_sets.word[i] + k * T
        score = labelling_score(
            E,
            T,
            working_sets.labels,
            o,
            w,
            sequences.transition_offset,
            sequences.start_offset,
            sequences.end_offset,
            sequences.P,
        )
        working_sets.h[working_sets.slot[i] + k] = (
            working_sets.loss[working_sets.slot[i] + k] + score - gold
        )


@subroutine(optimise=False)
def first_best_slot(i, working_sets):
    """Return the first slot with the largest h."""
    b, best = working_sets.slot[i], 0
    for k in range(1, working_sets.size[i]):
        if working_sets.h[b + k] > working_sets.h[b + best] + TIE_TOLERANCE:
            best = k
    return best


@subroutine(optimise=False)
def find_slot_at_least(i, h, working_sets):
    """Return the first slot whose h is at least this one, up to rounding, or -1."""
    for k in range(working_sets.size[i]):
        if working_sets.h[working_sets.slot[i] + k] >= h - TIE_TOLERANCE:
            return k
    return -1


@subroutine(optimise=False)
def away_slot(i, working_sets):
    """Return the first slot with the smallest h among those of positive weight."""
    b, worst = working_sets.slot[i], -1
    for k in range(working_sets.size[i]):
        is_lower = (
            worst < 0
            or working_sets.h[b + k] < working_sets.h[b + worst] - TIE_TOLERANCE
        )
        if is_lower and working_sets.alpha[b + k] > 0.0:
            worst = k
    return worst


@subroutine(optimise=False)
def store_labels(sequences, i, y, h, max_labellings, with_weights, working_sets):
    """Return the slot of labels y, added if they were not stored.

    With ``max_labellings`` slots, the slot of smallest h is replaced. With weights,
    only slots of weight 0 are, if there are any.
    """
    T = sequences.offsets[i + 1] - sequences.offsets[i]
    o, b = working_sets.word[i], working_sets.slot[i]
    for k in range(working_sets.size[i]):
        is_same = True
        for t in range(T):
            if working_sets.labels[o + k * T + t] != y[t]:
                is_same = False
                break
        if is_same:
            working_sets.h[b + k] = h
            return k
    k = -1
    if working_sets.size[i] >= max_labellings:
        for m in range(working_sets.size[i]):
            # a labelling with weight is part of mu and cannot be dropped
            is_free = not with_weights or working_sets.alpha[b + m] == 0.0
            if is_free and (k < 0 or working_sets.h[b + m] < working_sets.h[b + k]):
                k = m
    if k < 0:
        k = np.int64(working_sets.size[i])
        working_sets.size[i] += 1
    for t in range(T):
        working_sets.labels[o + k * T + t] = y[t]
    working_sets.alpha[b + k] = 0.0
    working_sets.h[b + k] = h
    working_sets.loss[b + k] = labelling_cost(
        sequences, i, working_sets.labels, o + k * T
    )
    return k


@subroutine(optimise=False)
def drop_zero_weights(sequences, i, working_sets):
    """Remove slots of weight 0; the last slot fills the gap."""
    T = sequences.offsets[i + 1] - sequences.offsets[i]
    o, b = working_sets.word[i], working_sets.slot[i]
    k = working_sets.size[i] - 1
    # backwards: the slot that fills a gap has been checked
    while k >= 0:
        if working_sets.alpha[b + k] == 0.0:
            last = working_sets.size[i] - 1
            for t in range(T):
                working_sets.labels[o + k * T + t] = working_sets.labels[
                    o + last * T + t
                ]
            working_sets.alpha[b + k] = working_sets.alpha[b + last]
            working_sets.loss[b + k] = working_sets.loss[b + last]
            working_sets.size[i] = last
        k -= 1


@subroutine(optimise=False)
def marginals_from_slots(sequences, i, working_sets, duals):
    """Recompute the dual variable of sequence i from its weights, normalised to sum 1.

    A single weight becomes exactly 1, so that its marginals are free of rounding.
    """
    first, P, b = sequences.offsets[i], sequences.P, working_sets.slot[i]
    T = sequences.offsets[i + 1] - first
    total, num_weighted, last_weighted = 0.0, 0, 0
    for k in range(working_sets.size[i]):
        total += working_sets.alpha[b + k]
        if working_sets.alpha[b + k] > 0.0:
            num_weighted, last_weighted = num_weighted + 1, k
    duals.mu[first * P : (first + T) * P] = 0.0
    if sequences.transition_offset >= 0:
        duals.edges[i * sequences.S * P : (i + 1) * sequences.S * P] = 0.0
    ell = 0.0
    for k in range(working_sets.size[i]):
        # rounding makes the sum of weights drift from 1
        a = working_sets.alpha[b + k] / total
        if num_weighted == 1:
            a = 1.0 if k == last_weighted else 0.0
        working_sets.alpha[b + k] = a
        if a == 0.0:
            continue
        o = working_sets.word[i] + k * T
        ell += a * working_sets.loss[b + k]
        for t in range(T):
            duals.mu[(first + t) * P + working_sets.labels[o + t]] += a
        if sequences.transition_offset >= 0:
            for t in range(1, T):
                e = (
                    i * sequences.S * P
                    + working_sets.labels[o + t - 1] * P
                    + working_sets.labels[o + t]
                )
                duals.edges[e] += a
    duals.ell[i] = sequence_weight(sequences, i) * ell


@kernel
def shrink_towards_gold(first, sequences, rho, max_labellings, working_sets):
    """``alpha <- rho alpha``, plus 1 - rho on gold labels, from sequence ``first`` on.

    Return the sequence at which the pool was full, or the number of sequences.
    """
    for i in range(first, len(sequences.offsets) - 1):
        if not try_reserve_slot(sequences, i, working_sets, max_labellings):
            return i
        gold = sequences.labels[sequences.offsets[i] : sequences.offsets[i + 1]]
        gold_slot = store_labels(
            sequences, i, gold, 0.0, max_labellings, True, working_sets
        )
        for k in range(working_sets.size[i]):
            working_sets.alpha[working_sets.slot[i] + k] *= rho
        working_sets.alpha[working_sets.slot[i] + gold_slot] += 1.0 - rho
    return len(sequences.offsets) - 1
