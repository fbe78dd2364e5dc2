"""One visit of block-coordinate Frank-Wolfe: oracle or cache, direction, line search.

Along a direction that adds ``gamma w_d`` to w and ``gamma ell_d`` to ell the dual gains
``gamma linear - gamma^2 quadratic / 2`` with

    linear = ell_d - lambda <w_d, w>,    quadratic = lambda ||w_d||^2

and the best step is ``gamma = clip(linear / quadratic, 0, max_step)``. With the corner
y of the visit, the stored labelling a of smallest h among those with weight, h as in
``working_sets`` and E[h] its mean under alpha, the directions are

    step         D          linear                           max_step
    Frank-Wolfe  mu - e_y   gap = s_i (h(y) - E[h])          1
    pairwise     e_a - e_y  pairwise_gap = s_i (h(y)-h(a))   alpha(a)
    away         e_a - mu   away_gap = pairwise_gap - gap    alpha(a) / (1 - alpha(a))

A visit computes the scores of the words, then h of stored labellings, if there are any.
With a cache, the best of these is the corner if its gap is large enough. Otherwise
loss-augmented Viterbi finds the corner. The step and the new weights alpha follow. Only
one direction is stored: if several are compared, the chosen one is recomputed.

Source: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
Structured SVMs" (2016), sections 3.2 and 3.3.
"""

from typing import NamedTuple

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.linear.directions import (
    add_direction_features,
    clip_to_box,
    clipped_step_size,
    frank_wolfe_direction,
    linear_term,
    negate_direction,
    pairwise_direction,
    quadratic_term,
    subtract_from_marginals,
)
from smoothsp._kernels.linear.sequences import (
    gold_score,
    labelling_cost,
    loss_augmented_labels,
    score_sequence,
    sequence_weight,
)
from smoothsp._kernels.linear.working_sets import (
    away_slot,
    drop_zero_weights,
    find_slot_at_least,
    first_best_slot,
    marginals_from_slots,
    score_slots,
    store_labels,
    try_reserve_slot,
)

# Kinds of steps. AWAY alternates with FRANK_WOLFE, by the larger gap. SAFEGUARDED is
# the better of pairwise and Frank-Wolfe steps by dual gain, BEST the best of all three.
FRANK_WOLFE, PAIRWISE, AWAY, SAFEGUARDED, BEST = range(5)

# Positions in ``counts``.
STEPS, CALLS, HITS, DROPS = range(4)


class StepRule(NamedTuple):
    """Kind of step and rules of the cache.

    A cached corner is used if its gap is at least ``min_gap_ratio`` times the gap at
    the last oracle call of the sequence, and ``min_gap``. A sequence stores at most
    ``max_labellings`` labellings.
    """

    lam: float
    kind: int
    is_cached: bool
    min_gap_ratio: float
    min_gap: float
    max_labellings: int


class Counters(NamedTuple):
    """Counts of steps, oracle calls, cache hits and drops; lag of the averaged ell."""

    counts: np.ndarray
    lag: np.ndarray


@subroutine(optimise=False)
def try_bcfw_step(
    sequences, i, rule, primal, duals, gram, working_sets, scratch, direction, counters
):
    """Make one step on sequence i; return False, without changes, if a pool is full."""
    uses_working_sets = rule.kind != FRANK_WOLFE or rule.is_cached
    # before any change, so that the caller can enlarge the pool and repeat the visit
    if uses_working_sets and not try_reserve_slot(
        sequences, i, working_sets, rule.max_labellings
    ):
        return False
    weight = sequence_weight(sequences, i)
    transition_weights = score_sequence(sequences, i, primal.w, scratch)
    gold, num_active, gap, loss, slot = 0.0, 0, 0.0, 0.0, -1
    if uses_working_sets:
        gold = gold_score(sequences, i, transition_weights, scratch)
        score_slots(sequences, i, transition_weights, scratch.E, gold, working_sets)
    is_cache_hit = False
    if rule.is_cached:
        slot = first_best_slot(i, working_sets)
        loss = weight * working_sets.loss[working_sets.slot[i] + slot]
        o = working_sets.word[i] + slot * (
            sequences.offsets[i + 1] - sequences.offsets[i]
        )
        num_active = frank_wolfe_direction(
            sequences, i, duals, working_sets.labels, o, direction
        )
        gap = (
            loss
            - duals.ell[i]
            - weight
            * linear_term(
                sequences, i, transition_weights, scratch.E, direction, num_active
            )
        )
        is_cache_hit = gap > 0.0 and gap >= max(
            rule.min_gap_ratio * duals.gap_estimates[i], rule.min_gap
        )
    if is_cache_hit:
        counters.counts[HITS] += 1
    else:
        worst = loss_augmented_labels(sequences, i, transition_weights, scratch)
        loss = weight * labelling_cost(sequences, i, scratch.y, 0)
        num_active = frank_wolfe_direction(sequences, i, duals, scratch.y, 0, direction)
        gap = (
            loss
            - duals.ell[i]
            - weight
            * linear_term(
                sequences, i, transition_weights, scratch.E, direction, num_active
            )
        )
        counters.counts[CALLS] += 1
        # only oracle calls give exact gaps; cached corners keep the estimate
        duals.gap_estimates[i] = max(gap, 0.0)
        if uses_working_sets:
            with_weights = rule.kind != FRANK_WOLFE
            # a tie is no new corner: equal labellings would split a weight
            slot = (
                find_slot_at_least(i, worst - gold, working_sets)
                if with_weights
                else -1
            )
            if slot < 0:
                slot = store_labels(
                    sequences,
                    i,
                    scratch.y,
                    worst - gold,
                    rule.max_labellings,
                    with_weights,
                    working_sets,
                )
            # the stored slot may score less than the oracle's labels, by rounding
            gap -= weight * (worst - gold - working_sets.h[working_sets.slot[i] + slot])
    counters.counts[STEPS] += 1
    if rule.kind == FRANK_WOLFE:
        _frank_wolfe_step(
            sequences,
            i,
            rule.lam,
            primal,
            duals,
            gram,
            direction,
            counters,
            num_active,
            gap,
            loss,
        )
    else:
        _active_set_step(
            sequences,
            i,
            rule,
            primal,
            duals,
            gram,
            working_sets,
            direction,
            counters,
            slot,
            gap,
        )
    return True


@subroutine(optimise=False)
def _quadratic_coefficient(sequences, i, lam, gram, direction, num_active):
    """``quadratic = s_i^2 (||X'D||^2 + ...) / lambda``."""
    weight = sequence_weight(sequences, i)
    return (
        quadratic_term(sequences, i, gram, direction, num_active)
        * weight
        * weight
        / lam
    )


@subroutine(optimise=False)
def _frank_wolfe_step(
    sequences, i, lam, primal, duals, gram, direction, counters, num_active, gap, loss
):
    """Step along ``mu - e_y``, whose D is in ``direction``; return gamma."""
    if num_active == 0 or gap <= 0.0:
        return 0.0
    gamma = clipped_step_size(
        gap, _quadratic_coefficient(sequences, i, lam, gram, direction, num_active), 1.0
    )
    _take_step(
        sequences,
        i,
        lam,
        primal,
        duals,
        direction,
        counters,
        num_active,
        gamma,
        loss - duals.ell[i],
    )
    # whole steps end in a corner: rounding errors do not accumulate in mu
    if gamma == 1.0:
        _round_duals(sequences, i, duals, direction, num_active)
    return gamma


@subroutine(optimise=False)
def _round_duals(sequences, i, duals, direction, num_active):
    """Round the marginals to a corner after a whole step."""
    first = sequences.offsets[i]
    for m in range(num_active):
        for j in range(
            (first + direction.active[m]) * sequences.P,
            (first + direction.active[m] + 1) * sequences.P,
        ):
            duals.mu[j] = np.round(duals.mu[j])
    if sequences.transition_offset >= 0:
        for e in range(
            i * sequences.S * sequences.P, (i + 1) * sequences.S * sequences.P
        ):
            duals.edges[e] = np.round(duals.edges[e])


@subroutine(optimise=False)
def _take_step(
    sequences, i, lam, primal, duals, direction, counters, num_active, gamma, ell
):
    """Take ``gamma`` of the direction, whose expected cost is ``ell``.

    ``mu -= gamma D``, ``v += gamma s_i X'D / lambda``, then ``w = clip(v)`` in a box.
    In the average, iterates 1 to k - 1 lack step k. Iterate j has weight j, so that
    step k is added ``k (k - 1) / 2`` times to the lag.
    """
    a = gamma * sequence_weight(sequences, i) / lam
    subtract_from_marginals(sequences, i, duals, direction, num_active, gamma)
    add_direction_features(sequences, i, direction, num_active, a, primal.v)
    duals.ell[i] += gamma * ell
    if primal.boxed:
        clip_to_box(sequences, i, direction, num_active, primal)
    if primal.averaged:
        steps = float(counters.counts[STEPS])
        # sum of the weights of earlier iterates
        older = steps * (steps - 1.0) / 2.0
        add_direction_features(
            sequences, i, direction, num_active, older * a, primal.lag
        )
        counters.lag[0] += older * gamma * ell


@subroutine(optimise=False)
def _dual_gain(linear, quadratic, max_step):
    """Dual gain of the best step along a direction."""
    gamma = clipped_step_size(linear, quadratic, max_step)
    return gamma * linear - gamma * gamma * quadratic / 2


@subroutine(optimise=False)
def _active_set_step(
    sequences,
    i,
    rule,
    primal,
    duals,
    gram,
    working_sets,
    direction,
    counters,
    slot,
    gap,
):
    """Make a step that changes weights of stored labellings; the corner is in ``slot``.

    With gamma of the step, the weights become

        Frank-Wolfe   (1 - gamma) alpha, and alpha(y) + gamma
        pairwise      alpha(y) + gamma, alpha(a) - gamma
        away          (1 + gamma) alpha, and alpha(a) - gamma

    A maximal step of the last two drops a. Marginals are then recomputed from the
    weights, since rounding would leave a trace of a in them.
    """
    weight = sequence_weight(sequences, i)
    T = sequences.offsets[i + 1] - sequences.offsets[i]
    b, labels_offset = working_sets.slot[i], working_sets.word[i]
    away = away_slot(i, working_sets)
    corner_labels, away_labels = labels_offset + slot * T, labels_offset + away * T
    pairwise_gap = (
        weight * (working_sets.h[b + slot] - working_sets.h[b + away])
        if slot != away
        else 0.0
    )
    away_gap = pairwise_gap - gap
    away_weight = working_sets.alpha[b + away]
    max_away_step = away_weight / (1.0 - away_weight) if away_weight < 1.0 else 0.0
    kind = rule.kind
    if kind == AWAY:
        kind = FRANK_WOLFE if gap > away_gap else AWAY
    elif kind != PAIRWISE:
        num_active = frank_wolfe_direction(
            sequences, i, duals, working_sets.labels, corner_labels, direction
        )
        best = _dual_gain(
            gap,
            _quadratic_coefficient(sequences, i, rule.lam, gram, direction, num_active),
            1.0,
        )
        kind = FRANK_WOLFE
        num_active = pairwise_direction(
            sequences, i, working_sets.labels, away_labels, corner_labels, direction
        )
        gain = _dual_gain(
            pairwise_gap,
            _quadratic_coefficient(sequences, i, rule.lam, gram, direction, num_active),
            away_weight,
        )
        # of equal gains Frank-Wolfe, which needs no stored labelling
        if gain > best:
            kind, best = PAIRWISE, gain
        if rule.kind == BEST:
            num_active = frank_wolfe_direction(
                sequences, i, duals, working_sets.labels, away_labels, direction
            )
            den = _quadratic_coefficient(
                sequences, i, rule.lam, gram, direction, num_active
            )
            if _dual_gain(away_gap, den, max_away_step) > best:
                kind = AWAY
    is_dropped = False
    if kind == FRANK_WOLFE:
        num_active = frank_wolfe_direction(
            sequences, i, duals, working_sets.labels, corner_labels, direction
        )
        loss = weight * working_sets.loss[b + slot]
        gamma = _frank_wolfe_step(
            sequences,
            i,
            rule.lam,
            primal,
            duals,
            gram,
            direction,
            counters,
            num_active,
            gap,
            loss,
        )
        for m in range(working_sets.size[i]):
            working_sets.alpha[b + m] *= 1.0 - gamma
        working_sets.alpha[b + slot] += gamma
    elif kind == PAIRWISE:
        num_active = pairwise_direction(
            sequences, i, working_sets.labels, away_labels, corner_labels, direction
        )
        ell = weight * (working_sets.loss[b + slot] - working_sets.loss[b + away])
        gamma = clipped_step_size(
            pairwise_gap,
            _quadratic_coefficient(sequences, i, rule.lam, gram, direction, num_active),
            away_weight,
        )
        if num_active and gamma > 0.0:
            _take_step(
                sequences,
                i,
                rule.lam,
                primal,
                duals,
                direction,
                counters,
                num_active,
                gamma,
                ell,
            )
            # exact comparison: the clipped step is this very number
            is_dropped = gamma == away_weight
            working_sets.alpha[b + slot] += gamma
            working_sets.alpha[b + away] = 0.0 if is_dropped else away_weight - gamma
    else:
        num_active = frank_wolfe_direction(
            sequences, i, duals, working_sets.labels, away_labels, direction
        )
        negate_direction(sequences, num_active, direction)
        ell = duals.ell[i] - weight * working_sets.loss[b + away]
        gamma = clipped_step_size(
            away_gap,
            _quadratic_coefficient(sequences, i, rule.lam, gram, direction, num_active),
            max_away_step,
        )
        if num_active and gamma > 0.0:
            _take_step(
                sequences,
                i,
                rule.lam,
                primal,
                duals,
                direction,
                counters,
                num_active,
                gamma,
                ell,
            )
            is_dropped = gamma == max_away_step
            for m in range(working_sets.size[i]):
                working_sets.alpha[b + m] *= 1.0 + gamma
            working_sets.alpha[b + away] = (
                0.0 if is_dropped else working_sets.alpha[b + away] - gamma
            )
    if is_dropped:
        counters.counts[DROPS] += 1
        marginals_from_slots(sequences, i, working_sets, duals)
    if not rule.is_cached:
        drop_zero_weights(sequences, i, working_sets)
