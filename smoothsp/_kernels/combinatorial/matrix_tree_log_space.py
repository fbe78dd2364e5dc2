"""Matrix-tree theorem in log space: log-partition, marginals and their tangents.

The elimination of ``matrix_tree``, with logarithms and fractions: p, the probabilities
of the heads of an eliminated word, and r, the fraction of an arc's new weight that is
the path over that word. For k from n to 1, and i, j below k,

    D_k       = sum_i w(i, k),    p_k(i) = w(i, k) / D_k
    w(i, j)  += p_k(i) w(k, j),   r_k(i, j) = p_k(i) w(k, j) / w(i, j)
    log Z     = sum_k log D_k

where r divides by the new w. Marginals P follow for k from 1 to n, from those of the
words below k:

    P(k, j)   = sum_i P(i, j) r_k(i, j)
    P(i, k)   = sum_j P(i, j) r_k(i, j) + p_k(i) (1 - sum_ij P(i, j) r_k(i, j))
    P(i, j)  -= P(i, j) r_k(i, j)

Tangents along a direction are computed beside these, with v = d log w:

    dp_k(i)    = p_k(i) (v(i, k) - sum_h p_k(h) v(h, k))
    dr_k(i, j) = r_k (1 - r_k) (v of the path over k - v(i, j))

The r of all k and their tangents, 2 n^3 numbers, are stored, since they are read in the
opposite order.

A weight is ``t^e`` times its exponential, with t infinitely small. With a single root,
e is 1 for arcs from the root, and sums keep the terms of the smallest e.
"""

import math

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays


@kernel
def matrix_tree_jvp(
    first,
    last,
    arcs,
    lengths,
    single_root,
    direction,
    value,
    marginals,
    marginal_tangents,
):
    """Fill value[B], marginals and marginal_tangents, both ``[B, n + 1, n + 1]``.

    ``marginal_tangents`` is the Hessian of the log-partition times ``direction``.
    """
    size = arcs.shape[1]
    scratch = make_scratch(size)
    for b in range(first, last):
        marginals[b] = 0.0
        marginal_tangents[b] = 0.0
        value[b] = matrix_tree_row(
            arcs[b], lengths[b], single_root, direction[b], scratch, marginals[b]
        )
        n = lengths[b]
        for i in range(n + 1):
            for j in range(1, n + 1):
                marginal_tangents[b, i, j] = scratch[5][i, j]


@subroutine
def make_scratch(size):
    """Log-weights, orders e, their tangents, p, dp, tangents of marginals, r and dr."""
    square = (size, size)
    logs, log_weight_tangent, head_probs, head_prob_tangents, marginal_tangents = (
        arrays.zeros(square),
        arrays.zeros(square),
        arrays.zeros(square),
        arrays.zeros(square),
        arrays.zeros(square),
    )
    orders = arrays.zeros(square, np.int64)
    path_fractions = arrays.zeros((2, size, size, size))
    return (
        logs,
        orders,
        log_weight_tangent,
        head_probs,
        head_prob_tangents,
        marginal_tangents,
        path_fractions,
    )


@subroutine
def matrix_tree_row(scores, n, single_root, direction, scratch, marginals):
    """Return a row's log-partition; fill marginals and, in the scratch, tangents."""
    logs, orders, log_weight_tangent, p, dp, marginal_tangents, r = scratch
    shift = 0.0
    for j in range(1, n + 1):
        top = -np.inf
        for i in range(n + 1):
            if i != j:
                top = max(top, scores[i, j])
        if top == -np.inf:
            return -np.inf
        # each word's largest weight becomes 1, which moves the log-partition by its
        # logarithm
        shift += top
        for i in range(n + 1):
            logs[i, j] = scores[i, j] - top if i != j else -np.inf
            orders[i, j] = 1 if single_root and i == 0 else 0
            log_weight_tangent[i, j] = (
                direction[i, j] if i != j and scores[i, j] > -np.inf else 0.0
            )
            marginals[i, j] = marginal_tangents[i, j] = 0.0
    value = 0.0
    for k in range(n, 0, -1):
        mass = _normalise_heads(logs, orders, log_weight_tangent, p, dp, k)
        if mass == -np.inf:
            return -np.inf
        value += mass
        _eliminate_word(logs, orders, log_weight_tangent, r, k)
    for k in range(1, n + 1):
        _add_word_to_marginals(marginals, marginal_tangents, p, dp, r, k)
    return shift + value


@subroutine
def _normalise_heads(logs, orders, log_weight_tangent, p, dp, k):
    """Normalise the weights of k's heads to p and its tangent; return their log sum."""
    order, top = np.int64(2**62), -np.inf
    for i in range(k):
        if logs[i, k] > -np.inf:
            # terms of higher order vanish beside the lowest
            if orders[i, k] < order:
                order, top = orders[i, k], -np.inf
            if orders[i, k] == order:
                top = max(top, logs[i, k])
    if top == -np.inf:
        return -np.inf
    total = 0.0
    for i in range(k):
        p[i, k] = 0.0
        if logs[i, k] > -np.inf and orders[i, k] == order:
            p[i, k] = math.exp(logs[i, k] - top)
            total += p[i, k]
    mean, mass = 0.0, top + math.log(total)
    for i in range(k):
        p[i, k] /= total
        mean += p[i, k] * log_weight_tangent[i, k]
    for i in range(k):
        dp[i, k] = p[i, k] * (log_weight_tangent[i, k] - mean)
        logs[i, k] -= mass
        orders[i, k] -= order
        log_weight_tangent[i, k] -= mean
    return mass


@subroutine
def _eliminate_word(logs, orders, log_weight_tangent, r, k):
    """Add to each arc (i, j) the path over k, of fraction ``r[0, k, i, j]``."""
    for i in range(k):
        for j in range(1, k):
            r[0, k, i, j] = r[1, k, i, j] = 0.0
            path_log_weight = logs[i, k] + logs[k, j]
            if i == j or path_log_weight == -np.inf:
                continue
            order = orders[i, k] + orders[k, j]
            path_tangent = log_weight_tangent[i, k] + log_weight_tangent[k, j]
            # the path replaces an arc that is infinitely smaller
            if logs[i, j] == -np.inf or order < orders[i, j]:
                fraction = 1.0
            elif order > orders[i, j]:
                continue
            else:
                fraction = 1 / (1 + math.exp(logs[i, j] - path_log_weight))
            if fraction == 1:
                logs[i, j] = path_log_weight
            elif path_log_weight > logs[i, j]:
                logs[i, j] = path_log_weight + math.log1p(
                    math.exp(logs[i, j] - path_log_weight)
                )
            else:
                logs[i, j] += math.log1p(math.exp(path_log_weight - logs[i, j]))
            orders[i, j] = order
            r[0, k, i, j] = fraction
            r[1, k, i, j] = (
                fraction * (1 - fraction) * (path_tangent - log_weight_tangent[i, j])
            )
            log_weight_tangent[i, j] = (
                path_tangent
                if fraction == 1
                else log_weight_tangent[i, j]
                + fraction * (path_tangent - log_weight_tangent[i, j])
            )


@subroutine
def _add_word_to_marginals(marginals, marginal_tangents, p, dp, r, k):
    """Fill marginals and tangents with k among the words, from those without it."""
    path_mass = path_mass_tangent = 0.0
    for i in range(k):
        a = da = 0.0
        for j in range(1, k):
            fraction, fraction_tangent = r[0, k, i, j], r[1, k, i, j]
            if fraction == 0:
                continue
            mass = marginals[i, j] * fraction
            tangent = (
                marginal_tangents[i, j] * fraction + marginals[i, j] * fraction_tangent
            )
            a += mass
            da += tangent
            marginals[k, j] += mass
            marginal_tangents[k, j] += tangent
            marginals[i, j] -= mass
            marginal_tangents[i, j] -= tangent
        marginals[i, k], marginal_tangents[i, k] = a, da
        path_mass += a
        path_mass_tangent += da
    for i in range(k):
        marginals[i, k] += p[i, k] * (1 - path_mass)
        marginal_tangents[i, k] += (
            dp[i, k] * (1 - path_mass) - p[i, k] * path_mass_tangent
        )
        # 1 - path_mass may be negative by rounding
        marginals[i, k] = max(marginals[i, k], 0.0)
