"""One visit of one sequence: an oracle or a cache, a direction, an exact line search.

Along a direction that adds ``gamma w_d`` to w and ``gamma ell_d`` to ell the dual gains
``gamma num - gamma^2 den / 2`` with

    num = ell_d - lambda <w_d, w>,    den = lambda ||w_d||^2,

and the best step is ``gamma = clip(num / den, 0, largest)``. With the corner y of the
visit, the stored labelling a of least h among those with weight, h as in
``working_sets`` and E[h] its mean under alpha, the directions are

    step            D           num                            largest
    Frank-Wolfe     mu - e_y    gap = s_i (h(y) - E[h])        1
    pairwise        e_a - e_y   pair = s_i (h(y) - h(a))       alpha(a)
    away            e_a - mu    apart = pair - gap             alpha(a) / (1 - alpha(a))

A visit computes the scores of the words, then h of the labellings if any are stored.
With a cache, the best of these is the corner if its gap is large enough. Otherwise
Viterbi with costs finds the corner. Last come the step and the new weights alpha. Only
one direction is held at a time: where several are compared, the chosen one is built
again.
"""

from typing import NamedTuple

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.linear.directions import (
    add_direction,
    back_into_box,
    between,
    length,
    slope,
    step_size,
    take_marginals,
    towards,
    turn_round,
)
from smoothsp._kernels.linear.sequences import (
    cost_of,
    gold_score,
    score_sequence,
    share,
    worst_labels,
)
from smoothsp._kernels.linear.working_sets import (
    away_slot,
    best_slot,
    forget_weightless,
    has_room,
    marginals_from_slots,
    put_labels,
    score_slots,
    slot_as_good,
)

# Kinds of steps. A solver allows one of the first three, the third with the first, or
# chooses by what the dual gains: pairwise or Frank-Wolfe, or any of the three.
FRANK_WOLFE, PAIRWISE, AWAY, SAFEGUARDED, BEST = range(5)

# What ``counts`` counts.
STEPS, CALLS, HITS, DROPS = range(4)


class StepRule(NamedTuple):
    """How to step.

    A cached corner is good enough if its gap reaches ``local`` times the gap at the
    last oracle call of the sequence, and ``least``. A sequence keeps ``most``
    labellings.
    """

    lam: float
    kind: int
    cached: bool
    local: float
    least: float
    most: int


class Counters(NamedTuple):
    """Counters, and what the averaged ell lacks."""

    counts: np.ndarray
    lag: np.ndarray


@subroutine(optimise=False)
def visit(s, i, rules, p, d, x, q, k, r, c):
    """One step on sequence i; False if the store is full, and then nothing changed."""
    keeps = rules.kind != FRANK_WOLFE or rules.cached
    if keeps and not has_room(s, i, q, rules.most):
        return False
    part = share(s, i)
    tail = score_sequence(s, i, p.w, k)
    base, count, gap, loss, own = 0.0, 0, 0.0, 0.0, -1
    if keeps:
        base = gold_score(s, i, tail, k)
        score_slots(s, i, tail, k.E, base, q)
    hit = False
    if rules.cached:
        own = best_slot(i, q)
        loss = part * q.loss[q.slot[i] + own]
        o = q.word[i] + own * (s.offsets[i + 1] - s.offsets[i])
        count = towards(s, i, d, q.labels, o, r)
        gap = loss - d.ell[i] - part * slope(s, i, tail, k.E, r, count)
        hit = gap > 0.0 and gap >= max(rules.local * d.gap_estimates[i], rules.least)
    if hit:
        c.counts[HITS] += 1
    else:
        worst = worst_labels(s, i, tail, k)
        loss = part * cost_of(s, i, k.y, 0)
        count = towards(s, i, d, k.y, 0, r)
        gap = loss - d.ell[i] - part * slope(s, i, tail, k.E, r, count)
        c.counts[CALLS] += 1
        d.gap_estimates[i] = max(gap, 0.0)
        if keeps:
            weighed = rules.kind != FRANK_WOLFE
            own = slot_as_good(i, worst - base, q) if weighed else -1
            if own < 0:
                own = put_labels(s, i, k.y, worst - base, rules.most, weighed, q)
            # the slot may be worth less than the oracle's labels, by rounding
            gap -= part * (worst - base - q.h[q.slot[i] + own])
    c.counts[STEPS] += 1
    if rules.kind == FRANK_WOLFE:
        _frank_wolfe(s, i, rules.lam, p, d, x, r, c, count, gap, loss)
    else:
        _weighed_step(s, i, rules, p, d, x, q, r, c, own, gap)
    return True


@subroutine(optimise=False)
def _curvature(s, i, lam, x, r, count):
    """``den = s_i^2 (||X'D||^2 + ...) / lambda``, with ``directions.length``."""
    part = share(s, i)
    return length(s, i, x, r, count) * part * part / lam


@subroutine(optimise=False)
def _frank_wolfe(s, i, lam, p, d, x, r, c, count, gap, loss):
    """Step along ``mu - e_y``, whose D is in r; return gamma."""
    if count == 0 or gap <= 0.0:
        return 0.0
    gamma = step_size(gap, _curvature(s, i, lam, x, r, count), 1.0)
    _move(s, i, lam, p, d, r, c, count, gamma, loss - d.ell[i])
    if gamma == 1.0:
        _round(s, i, d, r, count)
    return gamma


@subroutine(optimise=False)
def _round(s, i, d, r, count):
    """After a whole step the marginals are a corner, free of rounding."""
    first = s.offsets[i]
    for m in range(count):
        for j in range((first + r.moved[m]) * s.P, (first + r.moved[m] + 1) * s.P):
            d.mu[j] = np.round(d.mu[j])
    if s.transition_offset >= 0:
        for e in range(i * s.S * s.P, (i + 1) * s.S * s.P):
            d.edges[e] = np.round(d.edges[e])


@subroutine(optimise=False)
def _move(s, i, lam, p, d, r, c, count, gamma, ell):
    """Take ``gamma`` of the direction, whose expected cost is ``ell``.

    ``mu -= gamma D``, ``v += gamma s_i X'D / lambda``, then ``w = clip(v)`` in a box.
    In an average, iterates 1 to k - 1 lack step k. Iterate j has weight j, so step k
    is added ``k (k - 1) / 2`` times to what the average lacks.
    """
    a = gamma * share(s, i) / lam
    take_marginals(s, i, d, r, count, gamma)
    add_direction(s, i, r, count, a, p.v)
    d.ell[i] += gamma * ell
    if p.boxed:
        back_into_box(s, i, r, count, p)
    if p.averaged:
        steps = float(c.counts[STEPS])
        older = steps * (steps - 1.0) / 2.0
        add_direction(s, i, r, count, older * a, p.lag)
        c.lag[0] += older * gamma * ell


@subroutine(optimise=False)
def _gain(num, den, largest):
    """What the best step along a direction adds to the dual."""
    gamma = step_size(num, den, largest)
    return gamma * num - gamma * gamma * den / 2


@subroutine(optimise=False)
def _weighed_step(s, i, rules, p, d, x, q, r, c, own, gap):
    """A step that changes the weights of stored labellings; ``own`` is the corner's.

    With gamma of the step, the weights become

        Frank-Wolfe   (1 - gamma) alpha, and alpha(y) + gamma
        pairwise      alpha(y) + gamma, alpha(a) - gamma
        away          (1 + gamma) alpha, and alpha(a) - gamma

    A largest step of the last two drops a. Marginals are then built from the weights
    anew, as rounding would leave a trace of a in them.
    """
    part = share(s, i)
    T = s.offsets[i + 1] - s.offsets[i]
    b, w0 = q.slot[i], q.word[i]
    other = away_slot(i, q)
    here, there = w0 + own * T, w0 + other * T
    pair = part * (q.h[b + own] - q.h[b + other]) if own != other else 0.0
    apart = pair - gap
    mass = q.alpha[b + other]
    furthest = mass / (1.0 - mass) if mass < 1.0 else 0.0
    kind = rules.kind
    if kind == AWAY:
        kind = FRANK_WOLFE if gap > apart else AWAY
    elif kind != PAIRWISE:
        count = towards(s, i, d, q.labels, here, r)
        best = _gain(gap, _curvature(s, i, rules.lam, x, r, count), 1.0)
        kind = FRANK_WOLFE
        count = between(s, i, q.labels, there, here, r)
        gain = _gain(pair, _curvature(s, i, rules.lam, x, r, count), mass)
        if gain > best:
            kind, best = PAIRWISE, gain
        if rules.kind == BEST:
            count = towards(s, i, d, q.labels, there, r)
            den = _curvature(s, i, rules.lam, x, r, count)
            if _gain(apart, den, furthest) > best:
                kind = AWAY
    dropped = False
    if kind == FRANK_WOLFE:
        count = towards(s, i, d, q.labels, here, r)
        loss = part * q.loss[b + own]
        gamma = _frank_wolfe(s, i, rules.lam, p, d, x, r, c, count, gap, loss)
        for m in range(q.size[i]):
            q.alpha[b + m] *= 1.0 - gamma
        q.alpha[b + own] += gamma
    elif kind == PAIRWISE:
        count = between(s, i, q.labels, there, here, r)
        ell = part * (q.loss[b + own] - q.loss[b + other])
        gamma = step_size(pair, _curvature(s, i, rules.lam, x, r, count), mass)
        if count and gamma > 0.0:
            _move(s, i, rules.lam, p, d, r, c, count, gamma, ell)
            dropped = gamma == mass
            q.alpha[b + own] += gamma
            q.alpha[b + other] = 0.0 if dropped else mass - gamma
    else:
        count = towards(s, i, d, q.labels, there, r)
        turn_round(s, count, r)
        ell = d.ell[i] - part * q.loss[b + other]
        gamma = step_size(apart, _curvature(s, i, rules.lam, x, r, count), furthest)
        if count and gamma > 0.0:
            _move(s, i, rules.lam, p, d, r, c, count, gamma, ell)
            dropped = gamma == furthest
            for m in range(q.size[i]):
                q.alpha[b + m] *= 1.0 + gamma
            q.alpha[b + other] = 0.0 if dropped else q.alpha[b + other] - gamma
    if dropped:
        c.counts[DROPS] += 1
        marginals_from_slots(s, i, q, d)
    if not rules.cached:
        forget_weightless(s, i, q)
