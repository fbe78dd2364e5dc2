"""Whole questions to a chain in one compiled call, from addresses.

For small batches, where calls of single kernels from Python would cost as much as the
kernels. With s(y) the score of an output, h the number of wrong labels and g the weight
of a row,

    decode, decode_topk   the best y, the K best y
    sums                  log Z = log sum_y exp(s(y)), and the marginals P(part)
    log_likelihood        sum_b g_b (s(y) - log Z)
    violation             sum_b g_b (max_y' [s(y') + c h(y', y)] - s(y))

A loss fills its gradients in the same call. In ``log_likelihood`` the marginals of the
nodes stand where the gradient of the emissions replaces them: they need no array.

Sizes and addresses come first: B, T, S, then emissions, shared transitions,
start, end, steps and lengths. Address 0 for steps and lengths: all positions are real.
``zeros`` has the dtype of the potentials and as many entries as a vector has lanes.
Sums go over a chain with one chain per lane or with one state per lane: of ``in_lanes``
and ``over_states`` one is a number and the other None, and only the way that is used
for is compiled.
"""

import numpy as np

from smoothsp._kernels.chain.cpu import (
    forward_backward_in_lanes,
    forward_backward_over_states,
)
from smoothsp._kernels.chain.cpu.hinge import hinge, hinge_gradient
from smoothsp._kernels.chain.cpu.scores import score
from smoothsp._kernels.chain.cpu.viterbi import viterbi, viterbi_topk
from smoothsp._kernels.chain.cpu.vjp import vjp as vjp_of_parts
from smoothsp._kernels.chain.cpu.vjp import vjp_residual
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import at, copy
from smoothsp._kernels.vectors.state_products import ROWS
from smoothsp._kernels.vectors.subnormals import flush, restore
from smoothsp._kernels.vectors.whole_arrays import scale_rows

# What a call returns when it has done its work, and when a row needs another method.
DONE, UNSAFE = -1, -2
# The relative error of a dtype, over its least normal number.
_RANGE_32, _RANGE_64 = (
    float(x.eps) / float(x.tiny) for x in map(np.finfo, (np.float32, np.float64))
)


@subroutine(loops=False)
def _chain(B, T, S, emissions, transitions, start, end, steps, lengths, zeros):
    if steps == 0:
        real = arrays.empty((B, T), np.int64)
        for b in range(B):
            for t in range(T):
                real[b, t] = t
    else:
        real = at(steps, (B, T), np.int64)
    sizes = arrays.empty(B, np.int64)
    for b in range(B):
        sizes[b] = T
    if lengths != 0:
        sizes = at(lengths, (B,), np.int64)
    return (
        at(emissions, (B, T, S), zeros),
        at(transitions, (1, 1, S, S), zeros),
        at(start, (S,), zeros),
        at(end, (S,), zeros),
        real,
        sizes,
        True,
    )


@subroutine
def _longest_first(lengths, T):
    """Rows by decreasing length, equal ones in order."""
    first = arrays.empty(T + 2, np.int64)
    for x in range(T + 2):
        first[x] = 0
    for n in lengths:
        first[T - n + 1] += 1
    for x in range(T + 1):
        first[x + 1] += first[x]
    order = arrays.empty(len(lengths), np.int64)
    for b in range(len(lengths)):
        x = T - lengths[b]
        order[first[x]] = b
        first[x] += 1
    return order


@subroutine(loops=False)
def _scores(chain, paths, scores, lost):
    """Fill scores[B, 1] of paths[B, T]; returns the place of a wrong label, or -1.

    ``lost[B, 1]`` is what rounding took from the scores.
    """
    B, T = paths.shape
    fault = arrays.empty(B, np.int64)
    score(0, B, *chain, paths.reshape(B, 1, T), scores, lost, fault)
    for b in range(B):
        if fault[b] >= 0:
            return b * T + fault[b]
    return -1


@subroutine(loops=False)
def _row_weights(B, weight, weights, zeros):
    found = arrays.empty(B, zeros.dtype)
    for b in range(B):
        found[b] = weight
    if weights != 0:
        copy(at(weights, (B,), zeros), found)
    return found


@kernel
def positions(B, T, mask, steps, lengths):
    """Fill steps[B, T], the real positions of a row before the others, and lengths."""
    real = at(mask, (B, T), np.uint8)
    found = at(steps, (B, T), np.int64)
    count = at(lengths, (B,), np.int64)
    for b in range(B):
        n = 0
        for t in range(T):
            if real[b, t]:
                found[b, n] = t
                n += 1
        count[b] = n
        for t in range(T):
            if not real[b, t]:
                found[b, n] = t
                n += 1


@kernel
def decode(
    B, T, S, emissions, transitions, start, end, steps, lengths, zeros, labels, value
):
    """Fill labels[B, T] with a maximiser, -1 where masked, and value[B], its score."""
    chain = _chain(B, T, S, emissions, transitions, start, end, steps, lengths, zeros)
    order = _longest_first(chain[5], T)
    found = at(labels, (B, T), np.int64)
    scores = arrays.empty(B)
    viterbi(0, B, *chain, order, found, 0.0, found, scores)
    copy(scores, at(value, (B,), zeros))


@kernel
def decode_topk(
    B,
    T,
    S,
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    zeros,
    K,
    labels,
    valid,
    values,
):
    """Fill labels[B, K, T], valid[B, K] and values[B, K] with the K best outputs."""
    chain = _chain(B, T, S, emissions, transitions, start, end, steps, lengths, zeros)
    order = _longest_first(chain[5], T)
    scores = arrays.empty((B, K))
    viterbi_topk(
        0, B, *chain, order, at(labels, (B, K, T), np.int64),
        at(valid, (B, K), np.bool_), scores,
    )  # fmt: skip
    copy(scores.ravel(), at(values, (B * K,), zeros))


@kernel
def score_of(
    B,
    T,
    S,
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    zeros,
    K,
    labels,
    value,
    rest,
):
    """Fill value[B, K] and rest[B, K] as ``scores.score``, both float64.

    Address 0 for ``rest``: it is not wanted. Returns ``b T + t``, the place of a wrong
    label, or -1.
    """
    chain = _chain(B, T, S, emissions, transitions, start, end, steps, lengths, zeros)
    paths = at(labels, (B, K, T), np.int64)
    lost = at(rest, (B if rest != 0 else 0, K), np.float64)
    fault = arrays.empty(B, np.int64)
    score(0, B, *chain, paths, at(value, (B, K), np.float64), lost, fault)
    for b in range(B):
        if fault[b] >= 0:
            return b * T + fault[b]
    return -1


@subroutine(loops=False)
def _sums(
    chain, zeros, log_z, nodes, edges, heads, tails, pending, in_lanes, over_states
):
    """Fill log_z[B, 2] and the marginals; clear ``pending`` of the rows that are safe.

    The others are not safe in this dtype.
    """
    B, T, S = nodes.shape
    control = flush()
    order = _longest_first(chain[5], T)
    ceiling = (_RANGE_32 if zeros.itemsize == 4 else _RANGE_64) / (max(T, 1) * S * S)
    if over_states is not None:
        forward_backward_over_states.forward_backward(
            0, -(-B // ROWS), *chain, order, zeros, ceiling, pending,
            log_z, nodes, edges, heads, tails,
        )  # fmt: skip
    if in_lanes is not None:
        forward_backward_in_lanes.forward_backward(
            0, -(-B // len(zeros)), *chain, order, zeros, ceiling, pending,
            log_z, nodes, edges, heads, tails,
        )  # fmt: skip
    restore(control)


@kernel
def sums(
    B,
    T,
    S,
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    zeros,
    in_lanes,
    over_states,
    wide,
    value,
    parts,
    nodes,
    edges,
    heads,
    tails,
):
    """Fill the log-partition ``value[B]`` and the marginals.

    As ``forward_backward_in_lanes``. The value is float64 if ``wide``, else of the
    dtype of ``zeros``; ``parts[B, 2]`` is the same as a sum of two float64 numbers,
    unless the address is 0. Returns how many rows are not safe in this dtype; their
    value is NaN.
    """
    chain = _chain(B, T, S, emissions, transitions, start, end, steps, lengths, zeros)
    log_z = arrays.empty((B, 2))
    if parts != 0:
        log_z = at(parts, (B, 2), np.float64)
    pending = arrays.empty(B, np.bool_)
    for b in range(B):
        pending[b] = True
    _sums(
        chain, zeros, log_z, at(nodes, (B, T, S), zeros),
        at(edges, (B, 1, S, S), zeros), at(heads, (B, S), zeros),
        at(tails, (B, S), zeros), pending, in_lanes, over_states,
    )  # fmt: skip
    far = 0
    for b in range(B):
        if pending[b]:
            log_z[b, 0] = np.nan
            far += 1
    if wide:
        copy(log_z[:, 0], at(value, (B,), np.float64))
    else:
        copy(log_z[:, 0], at(value, (B,), zeros))
    return far


@kernel
def vjp(
    first,
    last,
    pieces,
    B,
    T,
    S,
    zeros,
    weights,
    stride,
    nodes,
    edges,
    heads,
    tails,
    emissions_grad,
    transitions_grad,
    start_grad,
    end_grad,
):
    """Fill the gradients with ``weights[stride * b]`` times the parts of row b.

    Transitions are shared; pieces ``first`` to ``last`` of ``pieces``. A gradient whose
    address is 0 is not wanted; that of the emissions may take the place of ``nodes``.
    """
    row_weights = arrays.empty(B, zeros.dtype)
    given = at(weights, (max(B - 1, 0) * stride + 1,), zeros)
    for b in range(B):
        row_weights[b] = given[b * stride]
    chances = at(nodes, (B, T, S), zeros)
    if emissions_grad == nodes:
        rows = B * first // pieces, B * last // pieces
        scale_rows(rows[0], rows[1], T * S, weights, stride, nodes, zeros)
        emissions_grad = 0
    vjp_of_parts(
        first, last, pieces, row_weights, chances, at(edges, (B, 1, S, S), zeros),
        at(heads, (B, S), zeros), at(tails, (B, S), zeros), True,
        _wanted(emissions_grad, B * T * S, zeros),
        _wanted(transitions_grad, S * S, zeros), _wanted(start_grad, S, zeros),
        _wanted(end_grad, S, zeros),
    )  # fmt: skip


@subroutine
def _wanted(address, size, zeros):
    """What is at an address, flat; nothing if that is 0."""
    return at(address, (size if address != 0 else 0,), zeros)


@kernel
def log_likelihood(
    B,
    T,
    S,
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    zeros,
    labels,
    weight,
    weights,
    emissions_grad,
    transitions_grad,
    start_grad,
    end_grad,
    total,
    in_lanes,
    over_states,
):
    """Fill ``total``, the weighted sum of the log-probabilities of labels[B, T].

    And its gradients. Rows weigh ``weight`` each, or weights[B] where that address is
    not 0. Returns ``DONE``; ``UNSAFE`` if a row is not safe in this dtype; or
    ``b T + t``, the place of a label out of range.
    """
    chain = _chain(B, T, S, emissions, transitions, start, end, steps, lengths, zeros)
    real, sizes = chain[4], chain[5]
    paths = at(labels, (B, T), np.int64)
    scores, lost = arrays.empty((B, 1)), arrays.empty((B, 1))
    wrong = _scores(chain, paths, scores, lost)
    if wrong >= 0:
        return wrong
    log_z = arrays.empty((B, 2))
    nodes = at(emissions_grad, (B, T, S), zeros)
    edges = arrays.empty((B, 1, S, S), zeros.dtype)
    heads = arrays.empty((B, S), zeros.dtype)
    tails = arrays.empty((B, S), zeros.dtype)
    pending = arrays.empty(B, np.bool_)
    for b in range(B):
        pending[b] = True
    _sums(
        chain, zeros, log_z, nodes, edges, heads, tails, pending, in_lanes, over_states
    )
    for b in range(B):
        if pending[b]:
            return UNSAFE
    row_weights = _row_weights(B, weight, weights, zeros)
    sum_ = 0.0
    for b in range(B):
        # forbidden labels may weigh 0
        if row_weights[b] == 0:
            continue
        # in two numbers each, so that large ones cancel; rounding may leave more than 0
        chance = (scores[b, 0] - log_z[b, 0]) + (lost[b, 0] - log_z[b, 1])
        sum_ += row_weights[b] * min(chance, 0.0)
    at(total, (1,), zeros)[0] = sum_
    vjp_residual(
        0, 1, 1, row_weights, paths, real, sizes, nodes, edges, heads, tails,
        nodes, at(transitions_grad, (S * S,), zeros), at(start_grad, (S,), zeros),
        at(end_grad, (S,), zeros),
    )  # fmt: skip
    return DONE


@kernel
def violation(
    B,
    T,
    S,
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    zeros,
    labels,
    weight,
    weights,
    cost_scale,
    emissions_grad,
    transitions_grad,
    start_grad,
    end_grad,
    total,
):
    """Fill ``total``, the weighted sum of the margin violations of labels[B, T].

    And its gradients; the cost of an output is ``cost_scale`` times its wrong labels.
    Arguments and result as ``log_likelihood``.
    """
    chain = _chain(B, T, S, emissions, transitions, start, end, steps, lengths, zeros)
    real, sizes = chain[4], chain[5]
    paths = at(labels, (B, T), np.int64)
    order = _longest_first(sizes, T)
    best = arrays.empty((B, T), np.int64)
    excess = arrays.empty(B)
    fault = arrays.empty(B, np.int64)
    hinge(0, B, *chain, order, paths, cost_scale, best, excess, fault)
    for b in range(B):
        if fault[b] >= 0:
            return b * T + fault[b]
    row_weights = _row_weights(B, weight, weights, zeros)
    sum_ = 0.0
    for b in range(B):
        if row_weights[b] == 0:
            continue
        sum_ += row_weights[b] * excess[b]
    at(total, (1,), zeros)[0] = sum_
    nodes = at(emissions_grad, (B, T, S), zeros)
    nodes[:] = 0
    moves = arrays.zeros((1, 1, S, S))
    ends = arrays.zeros((2, S))
    found = (nodes, moves, ends[0], ends[1])
    hinge_gradient(0, B, best, paths, real, sizes, True, row_weights, *found)
    copy(moves.ravel(), at(transitions_grad, (S * S,), zeros))
    copy(ends[0], at(start_grad, (S,), zeros))
    copy(ends[1], at(end_grad, (S,), zeros))
    return DONE
