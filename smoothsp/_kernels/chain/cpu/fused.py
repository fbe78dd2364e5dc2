"""Fused kernels of a chain: one compiled call, on arrays given by address.

For small batches, where several calls from Python would cost as much as the kernels.
With s(y) the score of an output, h the number of wrong labels and g the weight of a
row,

    decode, decode_topk   the best y, the K best y
    forward_backward      log Z = log sum_y exp(s(y)), and the marginals P(part)
    log_likelihood        sum_b g_b mu (s(y) / mu - log sum_y' exp((s(y') + c h) / mu))
    violation             sum_b g_b (max_y' [s(y') + c h(y', y)] - s(y))
    smoothed_violation    the same with the K best, smoothed by ``smoothed_hinge``

A loss fills its gradients in the same call. In ``log_likelihood`` the marginals of the
nodes share the memory of the gradient of the emissions, which replaces them.

Labels, weights and outputs are addresses, too; marginals and gradients are tuples of
four. The forward-backward pass has one row per lane or one state per lane: exactly one
of ``in_lanes`` and ``over_states`` is None, and numba compiles only the branch of the
other.
"""

import numpy as np

from smoothsp._kernels.chain.cpu.forward_backward import forward_backward_in_range
from smoothsp._kernels.chain.cpu.hinge import hinge, hinge_gradient
from smoothsp._kernels.chain.cpu.records import (
    Addresses,
    Chain,
    Marginals,
    Potentials,
    chain_from_addresses,
    order_by_length,
)
from smoothsp._kernels.chain.cpu.scores import add_part_counts, score
from smoothsp._kernels.chain.cpu.viterbi import viterbi, viterbi_topk
from smoothsp._kernels.chain.cpu.vjp import add_weighted_rows, scale_rows_into
from smoothsp._kernels.chain.cpu.vjp import vjp as vjp_of_parts
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import carray, copy
from smoothsp._kernels.vectors.smoothed_hinge import smoothed_hinge
from smoothsp._kernels.vectors.whole_arrays import scale_rows

# Return codes of losses: success, and a row that is out of range of this dtype.
DONE, UNSAFE = -1, -2
# Up to this length, float64 sums of float32 scores up to 64 err by less than 1e-9.
SHORT_LENGTH = 256


@subroutine(optimise=False)
def _first_fault(fault, T):
    """Return ``b T + t`` for the first row b with a fault, at position t, or -1."""
    for b in range(len(fault)):
        if fault[b] >= 0:
            return b * T + fault[b]
    return -1


@subroutine(optimise=False)
def _row_weights(weight, weights, addresses):
    """Return the weights [B] at an address, or ``weight`` for all rows if it is 0."""
    row_weights = arrays.empty(addresses.B, addresses.zeros.dtype)
    for b in range(addresses.B):
        row_weights[b] = weight
    if weights != 0:
        copy(carray(weights, (addresses.B,), addresses.zeros), row_weights)
    return row_weights


@subroutine(optimise=False)
def _weighted_sum(weights, values):
    """Return ``sum_b g_b values(b)``; rows of weight 0 may have infinite values."""
    total = 0.0
    for b in range(len(weights)):
        if weights[b] != 0:
            total += weights[b] * values[b]
    return total


@subroutine(optimise=False)
def _make_gradients(gradients, addresses):
    """Return gradient arrays: emissions at their address, the others new, float64."""
    B, T, S = addresses.B, addresses.T, addresses.S
    nodes = carray(gradients[0], (B, T, S), addresses.zeros)
    return Potentials(
        nodes, arrays.zeros((1, 1, S, S)), arrays.zeros(S), arrays.zeros(S)
    )


@subroutine(optimise=False)
def _store_shared_gradients(shared_gradients, gradients, addresses):
    """Copy the gradients of transitions, start and end to their addresses."""
    S, zeros = addresses.S, addresses.zeros
    copy(shared_gradients.transitions.ravel(), carray(gradients[1], (S * S,), zeros))
    copy(shared_gradients.start, carray(gradients[2], (S,), zeros))
    copy(shared_gradients.end, carray(gradients[3], (S,), zeros))


@kernel
def mask_to_steps(B, T, mask, steps, lengths):
    """Fill steps[B, T], the real positions of a row before masked ones, and lengths."""
    is_real = carray(mask, (B, T), np.uint8)
    step_array = carray(steps, (B, T), np.int64)
    length_array = carray(lengths, (B,), np.int64)
    for b in range(B):
        n = 0
        for t in range(T):
            if is_real[b, t]:
                step_array[b, n] = t
                n += 1
        length_array[b] = n
        for t in range(T):
            if not is_real[b, t]:
                step_array[b, n] = t
                n += 1


@kernel
def decode(addresses, labels, value):
    """Fill labels[B, T] with a maximiser, -1 where masked, and value[B], its score."""
    addresses = Addresses(*addresses)
    B, T = addresses.B, addresses.T
    chain = chain_from_addresses(addresses, True)
    order = order_by_length(chain.lengths, T)
    label_array = carray(labels, (B, T), np.int64)
    scores = arrays.empty(B)
    viterbi(0, B, chain, order, label_array, 0.0, label_array, scores)
    copy(scores, carray(value, (B,), addresses.zeros))


@kernel
def decode_topk(addresses, K, labels, valid, values):
    """Fill labels[B, K, T], valid[B, K] and values[B, K] with the K best outputs."""
    addresses = Addresses(*addresses)
    B, T = addresses.B, addresses.T
    chain = chain_from_addresses(addresses, True)
    order = order_by_length(chain.lengths, T)
    scores = arrays.empty((B, K))
    label_array, valid_array = (
        carray(labels, (B, K, T), np.int64),
        carray(valid, (B, K), np.bool_),
    )
    viterbi_topk(0, B, chain, order, label_array, valid_array, scores)
    copy(scores.ravel(), carray(values, (B * K,), addresses.zeros))


@kernel
def score_labels(addresses, K, labels, value, value_lo):
    """Fill value[B, K] and rest[B, K] as ``scores.score``, both float64.

    Skips ``value_lo`` if its address is 0. Returns ``b T + t`` of the first invalid
    label, or -1.
    """
    addresses = Addresses(*addresses)
    B, T = addresses.B, addresses.T
    paths = carray(labels, (B, K, T), np.int64)
    lo_array = carray(value_lo, (B if value_lo != 0 else 0, K), np.float64)
    fault = arrays.empty(B, np.int64)
    score(
        0,
        B,
        chain_from_addresses(addresses, True),
        paths,
        carray(value, (B, K), np.float64),
        lo_array,
        fault,
    )
    return _first_fault(fault, T)


@kernel
def forward_backward(
    addresses, in_lanes, over_states, is_float64, value, double_double_value, marginals
):
    """Fill the log-partition ``value[B]`` and the marginals.

    By ``chain.cpu.forward_backward``. The value is float64 if ``is_float64``, else of
    the dtype of the potentials; ``double_double_value[B, 2]`` is the same as a
    double-double, unless its address is 0. Returns the number of rows out of range of
    this dtype, whose value is NaN.
    """
    addresses = Addresses(*addresses)
    B, zeros = addresses.B, addresses.zeros
    log_z = arrays.empty((B, 2))
    if double_double_value != 0:
        log_z = carray(double_double_value, (B, 2), np.float64)
    out = _marginals_from_addresses(marginals, addresses)
    layout = in_lanes, over_states
    pending = forward_backward_in_range(
        chain_from_addresses(addresses, True), zeros, log_z, out, *layout
    )
    num_pending = 0
    for b in range(B):
        if pending[b]:
            log_z[b, 0] = np.nan
            num_pending += 1
    if is_float64:
        copy(log_z[:, 0], carray(value, (B,), np.float64))
    else:
        copy(log_z[:, 0], carray(value, (B,), zeros))
    return num_pending


@subroutine(optimise=False)
def _marginals_from_addresses(marginals, addresses):
    """Return the arrays of marginals at addresses, edges summed over time."""
    B, T, S, zeros = addresses.B, addresses.T, addresses.S, addresses.zeros
    return Marginals(
        carray(marginals[0], (B, T, S), zeros),
        carray(marginals[1], (B, 1, S, S), zeros),
        carray(marginals[2], (B, S), zeros),
        carray(marginals[3], (B, S), zeros),
    )


@kernel
def vjp(first, last, num_chunks, sizes, weights, stride, marginals, gradients):
    """Fill the gradients with ``weights[stride * b]`` times the marginals of row b.

    ``sizes`` are B, T, S and ``zeros``; transitions are shared. Pieces ``first`` to
    ``last`` of ``pieces``. A gradient whose address is 0 is not wanted; that of the
    emissions may take the place of the nodes.
    """
    B, T, S, zeros = sizes
    row_weights = arrays.empty(B, zeros.dtype)
    weight_array = carray(weights, (max(B - 1, 0) * stride + 1,), zeros)
    for b in range(B):
        row_weights[b] = weight_array[b * stride]
    nodes, edges, start_marginals, end_marginals = marginals
    emissions, transitions, start, end = gradients
    if emissions == nodes:
        row_range = B * first // num_chunks, B * last // num_chunks
        scale_rows(row_range[0], row_range[1], T * S, weights, stride, nodes, zeros)
        emissions = 0
    parts = Marginals(
        carray(nodes, (B, T, S), zeros),
        carray(edges, (B, 1, S, S), zeros),
        carray(start_marginals, (B, S), zeros),
        carray(end_marginals, (B, S), zeros),
    )
    out = Potentials(
        _optional_array(emissions, B * T * S, zeros),
        _optional_array(transitions, S * S, zeros),
        _optional_array(start, S, zeros),
        _optional_array(end, S, zeros),
    )
    vjp_of_parts(first, last, num_chunks, row_weights, parts, out)


@subroutine
def _optional_array(address, size, zeros):
    """Return a flat view of ``size`` numbers at an address, empty if it is 0."""
    return carray(address, (size if address != 0 else 0,), zeros)


@subroutine(optimise=False)
def _first_invalid_label(chain, labels):
    """Return ``b T + t`` of the first label outside [0, S), or -1."""
    B, T, S = chain.emissions.shape
    for b in range(B):
        for n in range(chain.lengths[b]):
            t = chain.steps[b, n]
            if not 0 <= labels[b, t] < S:
                return b * T + t
    return -1


@subroutine
def _cost_augmented(chain, gold, cost, mu, zeros):
    """Return the chain with scores ``(s(y') + cost h(y', gold)) / mu``."""
    B, T, S = chain.emissions.shape
    emissions = arrays.empty((B, T, S), zeros.dtype)
    transitions = arrays.empty((1, 1, S, S), zeros.dtype)
    start, end = arrays.empty(S, zeros.dtype), arrays.empty(S, zeros.dtype)
    inverse_mu = 1 / mu
    for b in range(B):
        for n in range(chain.lengths[b]):
            t = chain.steps[b, n]
            for j in range(S):
                emissions[b, t, j] = (chain.emissions[b, t, j] + cost) * inverse_mu
            j = gold[b, t]
            emissions[b, t, j] = chain.emissions[b, t, j] * inverse_mu
    for i in range(S):
        start[i], end[i] = chain.start[i] * inverse_mu, chain.end[i] * inverse_mu
        for j in range(S):
            transitions[0, 0, i, j] = chain.transitions[0, 0, i, j] * inverse_mu
    return Chain(emissions, transitions, start, end, chain.steps, chain.lengths, True)


@kernel
def log_likelihood(
    addresses,
    labels,
    weight,
    weights,
    cost,
    mu,
    gradients,
    total,
    in_lanes,
    over_states,
):
    """Fill ``total``, the weighted sum of the log-probabilities of labels[B, T].

    And its gradients. With the scores over mu, to which ``cost`` was added for each
    other label, and mu times the sum. Rows weigh ``weight`` each, or weights[B] where
    that address is not 0. Returns ``DONE``; ``UNSAFE`` if a row is not safe in this
    dtype; or ``b T + t``, the place of a label out of range.
    """
    addresses = Addresses(*addresses)
    B, T, S, zeros = addresses.B, addresses.T, addresses.S, addresses.zeros
    chain = chain_from_addresses(addresses, True)
    paths = carray(labels, (B, 1, T), np.int64)
    if mu != 1 or cost != 0:
        invalid_label = _first_invalid_label(chain, paths[:, 0])
        if invalid_label >= 0:
            return invalid_label
        chain = _cost_augmented(chain, paths[:, 0], cost, mu, zeros)
    scores, scores_lo = arrays.empty((B, 1)), arrays.empty((B, 1))
    fault = arrays.empty(B, np.int64)
    score(0, B, chain, paths, scores, scores_lo, fault)
    invalid_label = _first_fault(fault, T)
    if invalid_label >= 0:
        return invalid_label
    log_z = arrays.empty((B, 2))
    gradient_arrays = _make_gradients(gradients, addresses)
    marginals = Marginals(
        gradient_arrays.emissions,
        arrays.empty((B, 1, S, S), zeros.dtype),
        arrays.empty((B, S), zeros.dtype),
        arrays.empty((B, S), zeros.dtype),
    )
    pending = forward_backward_in_range(
        chain, zeros, log_z, marginals, in_lanes, over_states
    )
    log_p = arrays.empty(B)
    for b in range(B):
        if pending[b]:
            return UNSAFE
        # log p = score - log_z in double-double, so that large values cancel exactly;
        # rounding above 0 is clipped
        log_prob = (scores[b, 0] - log_z[b, 0]) + (scores_lo[b, 0] - log_z[b, 1])
        log_p[b] = min(log_prob, 0.0)
    row_weights = _row_weights(weight, weights, addresses)
    carray(total, (1,), zeros)[0] = mu * _weighted_sum(row_weights, log_p)
    # g_b ([y uses part] - P(part)), in place of the marginals of the nodes
    negative_weights = arrays.empty(B, zeros.dtype)
    for b in range(B):
        negative_weights[b] = -row_weights[b]
    nodes = marginals.nodes.reshape(-1)
    scale_rows_into((0, B), negative_weights, nodes, nodes)
    add_weighted_rows(
        0,
        S * S,
        negative_weights,
        marginals.edges.reshape(-1),
        gradient_arrays.transitions.reshape(-1),
    )
    add_weighted_rows(
        0,
        S,
        negative_weights,
        marginals.start_marginals.reshape(-1),
        gradient_arrays.start,
    )
    add_weighted_rows(
        0, S, negative_weights, marginals.end_marginals.reshape(-1), gradient_arrays.end
    )
    weight_column = row_weights.reshape(B, 1)
    add_part_counts(
        0, B, weight_column, paths, chain.steps, chain.lengths, True, gradient_arrays
    )
    _store_shared_gradients(gradient_arrays, gradients, addresses)
    return DONE


@kernel
def violation(addresses, labels, weight, weights, cost_scale, gradients, total):
    """Fill ``total``, the weighted sum of the margin violations of labels[B, T].

    And its gradients; the cost of an output is ``cost_scale`` times its wrong labels.
    Arguments and result as ``log_likelihood``.
    """
    addresses = Addresses(*addresses)
    B, T = addresses.B, addresses.T
    chain = chain_from_addresses(addresses, True)
    paths = carray(labels, (B, T), np.int64)
    order = order_by_length(chain.lengths, T)
    best_labels = arrays.empty((B, T), np.int64)
    violations = arrays.empty(B)
    fault = arrays.empty(B, np.int64)
    hinge(0, B, chain, order, paths, cost_scale, best_labels, violations, fault)
    invalid_label = _first_fault(fault, T)
    if invalid_label >= 0:
        return invalid_label
    row_weights = _row_weights(weight, weights, addresses)
    carray(total, (1,), addresses.zeros)[0] = _weighted_sum(row_weights, violations)
    gradient_arrays = _make_gradients(gradients, addresses)
    gradient_arrays.emissions[:] = 0
    real = chain.steps, chain.lengths, True
    hinge_gradient(0, B, best_labels, paths, *real, row_weights, gradient_arrays)
    _store_shared_gradients(gradient_arrays, gradients, addresses)
    return DONE


@kernel
def smoothed_violation(
    addresses, labels, weight, weights, exact, cost, mu, K, gradients, total
):
    """Fill ``total``, the weighted sum of smoothed margin violations of labels[B, T].

    And its gradients, and bool exact[B], as ``smoothed_hinge`` has them for mu and K.
    Arguments and result as ``violation``.
    """
    addresses = Addresses(*addresses)
    B, T, zeros = addresses.B, addresses.T, addresses.zeros
    chain = chain_from_addresses(addresses, True)
    gold = carray(labels, (B, T), np.int64)
    invalid_label = _first_invalid_label(chain, gold)
    if invalid_label >= 0:
        return invalid_label
    augmented = _cost_augmented(chain, gold, cost, 1.0, zeros)
    M = K + 1
    best_labels, is_valid = (
        arrays.empty((B, M, T), np.int64),
        arrays.empty((B, M), np.bool_),
    )
    values, values_lo = arrays.empty((B, M)), arrays.empty((B, M))
    order = order_by_length(chain.lengths, T)
    viterbi_topk(0, B, augmented, order, best_labels, is_valid, values)
    # outputs that do not exist repeat the best one, with weight 0
    for b in range(B):
        for k in range(1, M):
            if not is_valid[b, k]:
                best_labels[b, k] = best_labels[b, 0]
    paths = gold.reshape(B, 1, T)
    gold_hi, gold_lo = arrays.empty((B, 1)), arrays.empty((B, 1))
    fault = arrays.empty(B, np.int64)
    score(0, B, chain, paths, gold_hi, gold_lo, fault)
    # float64 sums of few float32 numbers need no low words
    is_short = zeros.itemsize == 4 and T <= SHORT_LENGTH
    if not is_short:
        score(0, B, augmented, best_labels, values, values_lo, fault)
    exact_array, row_weights = (
        carray(exact, (B,), np.bool_),
        _row_weights(weight, weights, addresses),
    )
    best_scores, z, u = arrays.empty((M, 2)), arrays.empty(M), arrays.empty(M)
    output_weights, negative_weights = (
        arrays.empty((B, M), zeros.dtype),
        arrays.empty((B, 1), zeros.dtype),
    )
    losses = arrays.empty(B)
    for b in range(B):
        for k in range(M):
            best_scores[k, 0] = values[b, k] if is_valid[b, k] else -np.inf
            best_scores[k, 1] = 0.0 if is_short else values_lo[b, k]
        hinge_inputs = (
            best_scores,
            gold_hi[b, 0],
            0.0 if is_short else gold_lo[b, 0],
            mu,
            K,
            True,
            z,
            u,
        )
        losses[b], exact_array[b] = smoothed_hinge(*hinge_inputs)
        for k in range(M):
            output_weights[b, k] = u[k] * row_weights[b]
        negative_weights[b, 0] = -row_weights[b]
    carray(total, (1,), zeros)[0] = _weighted_sum(row_weights, losses)
    gradient = _make_gradients(gradients, addresses)
    gradient.emissions[:] = 0
    real = chain.steps, chain.lengths, True
    add_part_counts(0, B, output_weights, best_labels, *real, gradient)
    add_part_counts(0, B, negative_weights, paths, *real, gradient)
    _store_shared_gradients(gradient, gradients, addresses)
    return DONE
