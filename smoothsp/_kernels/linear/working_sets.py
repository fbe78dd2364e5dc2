"""Labellings that a sequence has met, with their weights in its dual variable.

For the labellings y_k of sequence i, of weights alpha_k that sum to 1,

    h(k) = loss(k) + <w, phi(y_k)> - <w, phi(gold)>        at the weights of the visit
    mu   = sum_k alpha_k e_{y_k},    ell = s_i sum_k alpha_k loss(k)

Pools are flat and shared by all sequences, so that a step adds slots without
allocating. Where a pool is full the step is not made, and the caller enlarges the pool.

Sequence i has ``size[i]`` of ``room[i]`` slots from ``slot[i]`` on; slot k has the
labels ``labels[word[i] + k T:]``. Where a sequence needs more slots it moves to the end
of the pool, whose rest is ``used``: words and slots.
"""

from typing import NamedTuple

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.linear.sequences import cost_of, share
from smoothsp._kernels.linear.sparse_scores import labelling_score
from smoothsp._kernels.vectors.arrays import copy

# Steps leave pairs of labellings whose h are equal but for rounding, which is not to
# choose between them: the first slot wins.
TIE = 1e-10


class WorkingSets(NamedTuple):
    """Pools; ``alpha`` weights, ``loss`` costs, ``h`` cost plus score less gold."""

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
def has_room(s, i, q, most):
    """Make room for one more slot; False if the pool is full, and then nothing changed.

    Above ``most`` it grows by 8 slots only: labellings that have weight may not be
    dropped, others would have been dropped first.
    """
    if q.size[i] < q.room[i]:
        return True
    T = s.offsets[i + 1] - s.offsets[i]
    size, room = q.size[i], 2 * q.room[i] if q.room[i] < most else q.room[i] + 8
    words, slots = q.used[0], q.used[1]
    if words + room * T > len(q.labels) or slots + room > len(q.alpha):
        return False
    a, b = q.word[i], q.slot[i]
    # h is not copied: each visit fills it again
    copy(q.labels[a : a + size * T], q.labels[words : words + size * T])
    for k in range(size):
        q.alpha[slots + k] = q.alpha[b + k]
        q.loss[slots + k] = q.loss[b + k]
    q.word[i], q.slot[i], q.room[i] = words, slots, room
    q.used[0] = words + room * T
    q.used[1] = slots + room
    return True


@subroutine(optimise=False)
def score_slots(s, i, w, E, base, q):
    """Fill ``h = loss + score - base`` of each slot; ``base`` is the gold score.

    In O(T) a slot, where Viterbi takes ``O(T S^2)``.
    """
    T = s.offsets[i + 1] - s.offsets[i]
    for k in range(q.size[i]):
        o = q.word[i] + k * T
        score = labelling_score(
            E, T, q.labels, o, w, s.transition_offset, s.start_offset, s.end_offset, s.P
        )
        q.h[q.slot[i] + k] = q.loss[q.slot[i] + k] + score - base


@subroutine(optimise=False)
def best_slot(i, q):
    """The first slot with the largest h."""
    b, best = q.slot[i], 0
    for k in range(1, q.size[i]):
        if q.h[b + k] > q.h[b + best] + TIE:
            best = k
    return best


@subroutine(optimise=False)
def slot_as_good(i, h, q):
    """The first slot whose labels are worth h but for rounding, or -1."""
    for k in range(q.size[i]):
        if q.h[q.slot[i] + k] >= h - TIE:
            return k
    return -1


@subroutine(optimise=False)
def away_slot(i, q):
    """The first slot with the smallest h among those with weight."""
    b, worst = q.slot[i], -1
    for k in range(q.size[i]):
        lower = worst < 0 or q.h[b + k] < q.h[b + worst] - TIE
        if lower and q.alpha[b + k] > 0.0:
            worst = k
    return worst


@subroutine(optimise=False)
def put_labels(s, i, y, h, most, weighed, q):
    """The slot of labels y, which gets one if it had none.

    At ``most`` slots the one with the smallest h is replaced, or if weights are kept
    the smallest of those without weight, if there are any.
    """
    T = s.offsets[i + 1] - s.offsets[i]
    o, b = q.word[i], q.slot[i]
    for k in range(q.size[i]):
        same = True
        for t in range(T):
            if q.labels[o + k * T + t] != y[t]:
                same = False
                break
        if same:
            q.h[b + k] = h
            return k
    k = -1
    if q.size[i] >= most:
        for m in range(q.size[i]):
            free = not weighed or q.alpha[b + m] == 0.0
            if free and (k < 0 or q.h[b + m] < q.h[b + k]):
                k = m
    if k < 0:
        k = np.int64(q.size[i])
        q.size[i] += 1
    for t in range(T):
        q.labels[o + k * T + t] = y[t]
    q.alpha[b + k] = 0.0
    q.h[b + k] = h
    q.loss[b + k] = cost_of(s, i, q.labels, o + k * T)
    return k


@subroutine(optimise=False)
def forget_weightless(s, i, q):
    """Take out slots without weight; the last fills the gap."""
    T = s.offsets[i + 1] - s.offsets[i]
    o, b = q.word[i], q.slot[i]
    k = q.size[i] - 1
    while k >= 0:
        if q.alpha[b + k] == 0.0:
            last = q.size[i] - 1
            for t in range(T):
                q.labels[o + k * T + t] = q.labels[o + last * T + t]
            q.alpha[b + k] = q.alpha[b + last]
            q.loss[b + k] = q.loss[b + last]
            q.size[i] = last
        k -= 1


@subroutine(optimise=False)
def marginals_from_slots(s, i, q, d):
    """Build the dual variable of sequence i from its weights, made to sum to one.

    A single weight becomes exactly 1, so that its marginals are free of rounding.
    """
    first, P, b = s.offsets[i], s.P, q.slot[i]
    T = s.offsets[i + 1] - first
    total, kept, only = 0.0, 0, 0
    for k in range(q.size[i]):
        total += q.alpha[b + k]
        if q.alpha[b + k] > 0.0:
            kept, only = kept + 1, k
    d.mu[first * P : (first + T) * P] = 0.0
    if s.transition_offset >= 0:
        d.edges[i * s.S * P : (i + 1) * s.S * P] = 0.0
    ell = 0.0
    for k in range(q.size[i]):
        a = q.alpha[b + k] / total
        if kept == 1:
            a = 1.0 if k == only else 0.0
        q.alpha[b + k] = a
        if a == 0.0:
            continue
        o = q.word[i] + k * T
        ell += a * q.loss[b + k]
        for t in range(T):
            d.mu[(first + t) * P + q.labels[o + t]] += a
        if s.transition_offset >= 0:
            for t in range(1, T):
                e = i * s.S * P + q.labels[o + t - 1] * P + q.labels[o + t]
                d.edges[e] += a
    d.ell[i] = share(s, i) * ell


@kernel
def shrink_towards_gold(first, s, rho, most, q):
    """``alpha <- rho alpha``, the rest on the gold labels, from sequence ``first`` on.

    Returns the sequence that it came to before the pool was full.
    """
    for i in range(first, len(s.offsets) - 1):
        if not has_room(s, i, q, most):
            return i
        gold = s.labels[s.offsets[i] : s.offsets[i + 1]]
        own = put_labels(s, i, gold, 0.0, most, True, q)
        for k in range(q.size[i]):
            q.alpha[q.slot[i] + k] *= rho
        q.alpha[q.slot[i] + own] += 1.0 - rho
    return len(s.offsets) - 1
