"""Whole questions to a chain in one compiled call, from addresses.

For small batches, where calls of single kernels from Python would cost as much as the
kernels. With s(y) the score of an output, h the number of wrong labels and g the weight
of a row,

    decode, decode_topk   the best y, the K best y
    sums                  log Z = log sum_y exp(s(y)), and the marginals P(part)
    log_likelihood        sum_b g_b mu (s(y) / mu - log sum_y' exp((s(y') + c h) / mu))
    violation             sum_b g_b (max_y' [s(y') + c h(y', y)] - s(y))
    smoothed_violation    the same with the K best, smoothed by ``smoothed_hinge``

A loss fills its gradients in the same call. In ``log_likelihood`` the marginals of the
nodes stand where the gradient of the emissions replaces them: they need no array.

Outputs, given labels and weights are addresses, too; marginals and gradients are tuples
of four. Sums go over a chain with one chain per lane or with one state per lane: of
``in_lanes`` and ``over_states`` one is a number and the other None, and only the way
that is used for is compiled.
"""

import numpy as np

from smoothsp._kernels.chain.cpu.forward_backward import sums_in_range
from smoothsp._kernels.chain.cpu.hinge import hinge, hinge_gradient
from smoothsp._kernels.chain.cpu.records import (
    Addresses,
    Chain,
    Marginals,
    Potentials,
    chain_at,
    longest_first,
)
from smoothsp._kernels.chain.cpu.scores import add_part_counts, score
from smoothsp._kernels.chain.cpu.viterbi import viterbi, viterbi_topk
from smoothsp._kernels.chain.cpu.vjp import add_rows, weigh_rows
from smoothsp._kernels.chain.cpu.vjp import vjp as vjp_of_parts
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import carray, copy
from smoothsp._kernels.vectors.smoothed_hinge import smoothed_hinge
from smoothsp._kernels.vectors.whole_arrays import scale_rows

# What a call returns when it has done its work, and when a row needs another method.
DONE, UNSAFE = -1, -2
# Positions of which float64 sums of float32 scores up to 64 err by less than 1e-9.
SHORT = 256


@subroutine(optimise=False)
def _place(fault, T):
    """``b T + t`` of the first row b with a fault, at t; -1 if there is none."""
    for b in range(len(fault)):
        if fault[b] >= 0:
            return b * T + fault[b]
    return -1


@subroutine(optimise=False)
def _row_weights(weight, weights, where):
    """Weights [B]: those at an address, or one for all where that is 0."""
    found = arrays.empty(where.B, where.zeros.dtype)
    for b in range(where.B):
        found[b] = weight
    if weights != 0:
        copy(carray(weights, (where.B,), where.zeros), found)
    return found


@subroutine(optimise=False)
def _weighted_sum(weights, values):
    """``sum_b g_b values(b)``; rows without weight may have infinite values."""
    total = 0.0
    for b in range(len(weights)):
        if weights[b] != 0:
            total += weights[b] * values[b]
    return total


@subroutine(optimise=False)
def _empty_gradients(gradients, where):
    """Those of the emissions at their address, room for the others in float64."""
    B, T, S = where.B, where.T, where.S
    nodes = carray(gradients[0], (B, T, S), where.zeros)
    return Potentials(
        nodes, arrays.zeros((1, 1, S, S)), arrays.zeros(S), arrays.zeros(S)
    )


@subroutine(optimise=False)
def _store_shared(found, gradients, where):
    """Put the gradients that rows share at their addresses."""
    S, zeros = where.S, where.zeros
    copy(found.transitions.ravel(), carray(gradients[1], (S * S,), zeros))
    copy(found.start, carray(gradients[2], (S,), zeros))
    copy(found.end, carray(gradients[3], (S,), zeros))


@kernel
def mask_to_steps(B, T, mask, steps, lengths):
    """Fill steps[B, T], the real positions of a row before the others, and lengths."""
    real = carray(mask, (B, T), np.uint8)
    found = carray(steps, (B, T), np.int64)
    add_part_counts = carray(lengths, (B,), np.int64)
    for b in range(B):
        n = 0
        for t in range(T):
            if real[b, t]:
                found[b, n] = t
                n += 1
        add_part_counts[b] = n
        for t in range(T):
            if not real[b, t]:
                found[b, n] = t
                n += 1


@kernel
def decode(where, labels, value):
    """Fill labels[B, T] with a maximiser, -1 where masked, and value[B], its score."""
    where = Addresses(*where)
    B, T = where.B, where.T
    chain = chain_at(where, True)
    order = longest_first(chain.lengths, T)
    found = carray(labels, (B, T), np.int64)
    scores = arrays.empty(B)
    viterbi(0, B, chain, order, found, 0.0, found, scores)
    copy(scores, carray(value, (B,), where.zeros))


@kernel
def decode_topk(where, K, labels, valid, values):
    """Fill labels[B, K, T], valid[B, K] and values[B, K] with the K best outputs."""
    where = Addresses(*where)
    B, T = where.B, where.T
    chain = chain_at(where, True)
    order = longest_first(chain.lengths, T)
    scores = arrays.empty((B, K))
    found, exist = carray(labels, (B, K, T), np.int64), carray(valid, (B, K), np.bool_)
    viterbi_topk(0, B, chain, order, found, exist, scores)
    copy(scores.ravel(), carray(values, (B * K,), where.zeros))


@kernel
def score_labels(where, K, labels, value, rest):
    """Fill value[B, K] and rest[B, K] as ``scores.score``, both float64.

    Address 0 for ``rest``: it is not wanted. Returns ``b T + t``, the place of a wrong
    label, or -1.
    """
    where = Addresses(*where)
    B, T = where.B, where.T
    paths = carray(labels, (B, K, T), np.int64)
    lost = carray(rest, (B if rest != 0 else 0, K), np.float64)
    fault = arrays.empty(B, np.int64)
    score(
        0,
        B,
        chain_at(where, True),
        paths,
        carray(value, (B, K), np.float64),
        lost,
        fault,
    )
    return _place(fault, T)


@kernel
def forward_backward(where, in_lanes, over_states, wide, value, parts, marginals):
    """Fill the log-partition ``value[B]`` and the marginals.

    As ``forward_backward``. The value is float64 if ``wide``, else of the
    dtype of the potentials; ``parts[B, 2]`` is the same as a sum of two float64
    numbers, unless the address is 0. Returns how many rows are not safe in this dtype;
    their value is NaN.
    """
    where = Addresses(*where)
    B, zeros = where.B, where.zeros
    log_z = arrays.empty((B, 2))
    if parts != 0:
        log_z = carray(parts, (B, 2), np.float64)
    out = _marginals(marginals, where)
    way = in_lanes, over_states
    pending = sums_in_range(chain_at(where, True), zeros, log_z, out, *way)
    far = 0
    for b in range(B):
        if pending[b]:
            log_z[b, 0] = np.nan
            far += 1
    if wide:
        copy(log_z[:, 0], carray(value, (B,), np.float64))
    else:
        copy(log_z[:, 0], carray(value, (B,), zeros))
    return far


@subroutine(optimise=False)
def _marginals(places, where):
    """The marginals at these addresses, edges summed over time."""
    B, T, S, zeros = where.B, where.T, where.S, where.zeros
    return Marginals(
        carray(places[0], (B, T, S), zeros),
        carray(places[1], (B, 1, S, S), zeros),
        carray(places[2], (B, S), zeros),
        carray(places[3], (B, S), zeros),
    )


@kernel
def vjp(first, last, pieces, sizes, weights, stride, marginals, gradients):
    """Fill the gradients with ``weights[stride * b]`` times the marginals of row b.

    ``sizes`` are B, T, S and ``zeros``; transitions are shared. Pieces ``first`` to
    ``last`` of ``pieces``. A gradient whose address is 0 is not wanted; that of the
    emissions may take the place of the nodes.
    """
    B, T, S, zeros = sizes
    row_weights = arrays.empty(B, zeros.dtype)
    given = carray(weights, (max(B - 1, 0) * stride + 1,), zeros)
    for b in range(B):
        row_weights[b] = given[b * stride]
    nodes, edges, heads, tails = marginals
    emissions, transitions, start, end = gradients
    if emissions == nodes:
        rows = B * first // pieces, B * last // pieces
        scale_rows(rows[0], rows[1], T * S, weights, stride, nodes, zeros)
        emissions = 0
    parts = Marginals(
        carray(nodes, (B, T, S), zeros),
        carray(edges, (B, 1, S, S), zeros),
        carray(heads, (B, S), zeros),
        carray(tails, (B, S), zeros),
    )
    out = Potentials(
        _wanted(emissions, B * T * S, zeros),
        _wanted(transitions, S * S, zeros),
        _wanted(start, S, zeros),
        _wanted(end, S, zeros),
    )
    vjp_of_parts(first, last, pieces, row_weights, parts, out)


@subroutine
def _wanted(address, size, zeros):
    """What is at an address, flat; nothing if that is 0."""
    return carray(address, (size if address != 0 else 0,), zeros)


@subroutine(optimise=False)
def _out_of_range(chain, labels):
    """``b T + t`` of the first label out of range, -1 if there is none."""
    B, T, S = chain.emissions.shape
    for b in range(B):
        for n in range(chain.lengths[b]):
            t = chain.steps[b, n]
            if not 0 <= labels[b, t] < S:
                return b * T + t
    return -1


@subroutine
def _augmented(chain, gold, cost, mu, zeros):
    """The chain with ``cost`` added to emissions of other labels than gold, over mu."""
    B, T, S = chain.emissions.shape
    emissions = arrays.empty((B, T, S), zeros.dtype)
    moves = arrays.empty((1, 1, S, S), zeros.dtype)
    start, end = arrays.empty(S, zeros.dtype), arrays.empty(S, zeros.dtype)
    share = 1 / mu
    for b in range(B):
        for n in range(chain.lengths[b]):
            t = chain.steps[b, n]
            for j in range(S):
                emissions[b, t, j] = (chain.emissions[b, t, j] + cost) * share
            j = gold[b, t]
            emissions[b, t, j] = chain.emissions[b, t, j] * share
    for i in range(S):
        start[i], end[i] = chain.start[i] * share, chain.end[i] * share
        for j in range(S):
            moves[0, 0, i, j] = chain.transitions[0, 0, i, j] * share
    return Chain(emissions, moves, start, end, chain.steps, chain.lengths, True)


@kernel
def log_likelihood(
    where, labels, weight, weights, cost, mu, gradients, total, in_lanes, over_states
):
    """Fill ``total``, the weighted sum of the log-probabilities of labels[B, T].

    And its gradients. With the scores over mu, to which ``cost`` was added for each
    other label, and mu times the sum. Rows weigh ``weight`` each, or weights[B] where
    that address is not 0. Returns ``DONE``; ``UNSAFE`` if a row is not safe in this
    dtype; or ``b T + t``, the place of a label out of range.
    """
    where = Addresses(*where)
    B, T, S, zeros = where.B, where.T, where.S, where.zeros
    chain = chain_at(where, True)
    paths = carray(labels, (B, 1, T), np.int64)
    if mu != 1 or cost != 0:
        wrong = _out_of_range(chain, paths[:, 0])
        if wrong >= 0:
            return wrong
        chain = _augmented(chain, paths[:, 0], cost, mu, zeros)
    scores, lost = arrays.empty((B, 1)), arrays.empty((B, 1))
    fault = arrays.empty(B, np.int64)
    score(0, B, chain, paths, scores, lost, fault)
    wrong = _place(fault, T)
    if wrong >= 0:
        return wrong
    log_z = arrays.empty((B, 2))
    found = _empty_gradients(gradients, where)
    marginals = Marginals(
        found.emissions,
        arrays.empty((B, 1, S, S), zeros.dtype),
        arrays.empty((B, S), zeros.dtype),
        arrays.empty((B, S), zeros.dtype),
    )
    pending = sums_in_range(chain, zeros, log_z, marginals, in_lanes, over_states)
    log_p = arrays.empty(B)
    for b in range(B):
        if pending[b]:
            return UNSAFE
        # in two numbers each, so that large ones cancel; rounding may leave more than 0
        chance = (scores[b, 0] - log_z[b, 0]) + (lost[b, 0] - log_z[b, 1])
        log_p[b] = min(chance, 0.0)
    row_weights = _row_weights(weight, weights, where)
    carray(total, (1,), zeros)[0] = mu * _weighted_sum(row_weights, log_p)
    # g_b ([y uses part] - P(part)), in place of the marginals of the nodes
    minus = arrays.empty(B, zeros.dtype)
    for b in range(B):
        minus[b] = -row_weights[b]
    nodes = marginals.nodes.reshape(-1)
    weigh_rows((0, B), minus, nodes, nodes)
    add_rows(
        0, S * S, minus, marginals.edges.reshape(-1), found.transitions.reshape(-1)
    )
    add_rows(0, S, minus, marginals.heads.reshape(-1), found.start)
    add_rows(0, S, minus, marginals.tails.reshape(-1), found.end)
    one_each = row_weights.reshape(B, 1)
    add_part_counts(0, B, one_each, paths, chain.steps, chain.lengths, True, found)
    _store_shared(found, gradients, where)
    return DONE


@kernel
def violation(where, labels, weight, weights, cost_scale, gradients, total):
    """Fill ``total``, the weighted sum of the margin violations of labels[B, T].

    And its gradients; the cost of an output is ``cost_scale`` times its wrong labels.
    Arguments and result as ``log_likelihood``.
    """
    where = Addresses(*where)
    B, T = where.B, where.T
    chain = chain_at(where, True)
    paths = carray(labels, (B, T), np.int64)
    order = longest_first(chain.lengths, T)
    best = arrays.empty((B, T), np.int64)
    excess = arrays.empty(B)
    fault = arrays.empty(B, np.int64)
    hinge(0, B, chain, order, paths, cost_scale, best, excess, fault)
    wrong = _place(fault, T)
    if wrong >= 0:
        return wrong
    row_weights = _row_weights(weight, weights, where)
    carray(total, (1,), where.zeros)[0] = _weighted_sum(row_weights, excess)
    found = _empty_gradients(gradients, where)
    found.emissions[:] = 0
    real = chain.steps, chain.lengths, True
    hinge_gradient(0, B, best, paths, *real, row_weights, found)
    _store_shared(found, gradients, where)
    return DONE


@kernel
def smoothed_violation(
    where, labels, weight, weights, exact, cost, mu, K, gradients, total
):
    """Fill ``total``, the weighted sum of smoothed margin violations of labels[B, T].

    And its gradients, and bool exact[B], as ``smoothed_hinge`` has them for mu and K.
    Arguments and result as ``violation``.
    """
    where = Addresses(*where)
    B, T, zeros = where.B, where.T, where.zeros
    chain = chain_at(where, True)
    gold = carray(labels, (B, T), np.int64)
    wrong = _out_of_range(chain, gold)
    if wrong >= 0:
        return wrong
    augmented = _augmented(chain, gold, cost, 1.0, zeros)
    M = K + 1
    best, found = arrays.empty((B, M, T), np.int64), arrays.empty((B, M), np.bool_)
    values, lost = arrays.empty((B, M)), arrays.empty((B, M))
    order = longest_first(chain.lengths, T)
    viterbi_topk(0, B, augmented, order, best, found, values)
    # what is not there takes the place of the best, without weight
    for b in range(B):
        for k in range(1, M):
            if not found[b, k]:
                best[b, k] = best[b, 0]
    paths = gold.reshape(B, 1, T)
    own, rest = arrays.empty((B, 1)), arrays.empty((B, 1))
    fault = arrays.empty(B, np.int64)
    score(0, B, chain, paths, own, rest, fault)
    # what rounding took in float64 from few numbers of float32 is nothing to these
    short = zeros.itemsize == 4 and T <= SHORT
    if not short:
        score(0, B, augmented, best, values, lost, fault)
    every, rows = carray(exact, (B,), np.bool_), _row_weights(weight, weights, where)
    tops, z, u = arrays.empty((M, 2)), arrays.empty(M), arrays.empty(M)
    shares, minus = arrays.empty((B, M), zeros.dtype), arrays.empty((B, 1), zeros.dtype)
    losses = arrays.empty(B)
    for b in range(B):
        for k in range(M):
            tops[k, 0] = values[b, k] if found[b, k] else -np.inf
            tops[k, 1] = 0.0 if short else lost[b, k]
        given = tops, own[b, 0], 0.0 if short else rest[b, 0], mu, K, True, z, u
        losses[b], every[b] = smoothed_hinge(*given)
        for k in range(M):
            shares[b, k] = u[k] * rows[b]
        minus[b, 0] = -rows[b]
    carray(total, (1,), zeros)[0] = _weighted_sum(rows, losses)
    gradient = _empty_gradients(gradients, where)
    gradient.emissions[:] = 0
    real = chain.steps, chain.lengths, True
    add_part_counts(0, B, shares, best, *real, gradient)
    add_part_counts(0, B, minus, paths, *real, gradient)
    _store_shared(gradient, gradients, where)
    return DONE
