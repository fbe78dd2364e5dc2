"""Stochastic dual coordinate ascent (SDCA) for the likelihood of sequences.

The dual of ``lambda / 2 |w|^2 + 1/n sum_i c_i (log Z_i(w) - <w, phi(gold)>)`` is

    max over a   1/n sum_i c_i H(a_i) - lambda / 2 |w(a)|^2
    w(a) = 1/(lambda n) sum_i c_i (phi(gold) - E_{a_i} phi)

A block a_i consists of the marginals of a Markov chain over labellings, so that

    H(a)       = -sum over pairs a log a + sum over inner positions a log a
    K(a || b)  = the same sums of a log(a / b), with opposite signs

K is the Kullback-Leibler divergence. Inner positions have two neighbours. The only
position of a sequence counts as a pair. With b_i the marginals at w(a), the duality gap
is ``1/n sum_i c_i K(a_i || b_i)``.

A visit computes b, its gap, d = b - a, and the best step along d: the root of

    slope(gamma) = -sum d (log m - log b) - gamma kappa,    m = a + gamma d
    kappa = c_i / (lambda n) |sum of d times features|^2

in [0, 1], where ``slope(0) = K(a || b) + K(b || a)`` and ``slope(1) = -kappa``.

Source: Le Priol, Piche and Lacoste-Julien, "Adaptive Stochastic Dual Coordinate Ascent
for Conditional Random Fields" (2018), algorithm 1.
"""

import math
from typing import NamedTuple

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.linear.directions import (
    Direction,
    add_direction_features,
    quadratic_term,
)
from smoothsp._kernels.linear.pair_marginals import (
    TINY,
    Marginals,
    chain_marginals,
    make_marginals,
)
from smoothsp._kernels.linear.sampling_tree import sample_leaf, set_leaf
from smoothsp._kernels.linear.sequences import (
    Scratch,
    gold_score,
    make_scratch,
    score_sequence,
    sequence_weight,
)
from smoothsp._kernels.linear.sparse_scores import V, splat_entry
from smoothsp._kernels.linear.squared_norm import GramCache
from smoothsp._kernels.linear.viterbi import fill_scores
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import fma, get_number, load, maximum, splat, store
from smoothsp._kernels.vectors.simd_exp import log
from smoothsp._kernels.vectors.simd_masked import reduce_sum

# Fraction of uniform draws: gaps of sequences that are not visited become stale.
UNIFORM_FRACTION = 0.2
# Gaps below this, times T log S, are due to rounding.
_MIN_GAP = 1e-14
_MAX_EVALUATIONS = 20
# The smallest step at which a line search begins.
_MIN_FIRST_STEP = 1e-3
_FIRST_STEP_FRACTION = 0.85
# The product of two numbers of at least this size does not underflow.
_MIN_FACTOR = 1e-150

# Positions in ``counters``.
STEPS, CALLS, EVALUATIONS = range(3)


class BlockMarginals(NamedTuple):
    """The dual variables of all sequences, and their gaps at their last visits.

    ``nodes`` has P numbers per position. The pairs of sequence i begin at
    ``edge_offsets[i]`` of ``edges``, S^2 numbers per step, padded with zeros to whole
    vectors.
    """

    nodes: np.ndarray
    edges: np.ndarray
    edge_offsets: np.ndarray
    gaps: np.ndarray


class StepRule(NamedTuple):
    """lambda, and the relative change of gamma at which a line search ends."""

    lam: float
    precision: float


class Primal(NamedTuple):
    """Weights, their mask, and inner products of words.

    ``mask`` is 1 at weights that may change and 0 elsewhere; empty if all may. With a
    mask, ``gram.rows`` has the length of w, and is 0 between visits.
    """

    w: np.ndarray
    mask: np.ndarray
    gram: GramCache


class SlopeTerms(NamedTuple):
    """Contributions of vectors of pairs to the slope at 0; selected vectors, ascending.

    ``all_vectors`` lists the vectors of all positions.
    """

    terms: np.ndarray
    selected: np.ndarray
    all_vectors: np.ndarray


class DualAscentScratch(NamedTuple):
    """Scratch of one sequence; ``direction.D`` is ``marginals.node``."""

    sequence_scratch: Scratch
    marginals: Marginals
    direction: Direction
    edge_sums: np.ndarray
    slope_terms: SlopeTerms


@subroutine
def make_dual_ascent_scratch(sequences):
    """Allocate scratch for the longest sequence."""
    marginals = make_marginals(sequences)
    active = arrays.zeros(sequences.max_length, np.int64)
    for t in range(sequences.max_length):
        # likelihood gradients are dense: all positions are active
        active[t] = t
    square = sequences.S * sequences.P if sequences.transition_offset >= 0 else 0
    direction = Direction(marginals.node, arrays.zeros(square), active)
    all_vectors = arrays.zeros(len(marginals.node) // V, np.int64)
    for v in range(len(all_vectors)):
        all_vectors[v] = v
    num_vectors = max(len(marginals.edge), len(marginals.node)) // V
    slope_terms = SlopeTerms(
        arrays.zeros(num_vectors), arrays.zeros(num_vectors + 1, np.int64), all_vectors
    )
    return DualAscentScratch(
        make_scratch(sequences),
        marginals,
        direction,
        arrays.zeros(square + V),
        slope_terms,
    )


@subroutine(optimise=False)
def _num_positions(sequences, i):
    """Return the number of positions of sequence i."""
    return sequences.offsets[i + 1] - sequences.offsets[i]


@kernel
def smoothed_gold_marginals(first, last, sequences, eps, duals):
    """Fill blocks with ``1 - eps`` on the gold labels, and eps uniformly."""
    S, P = sequences.S, sequences.P
    for i in range(first, last):
        o, e = sequences.offsets[i], duals.edge_offsets[i]
        for t in range(_num_positions(sequences, i)):
            for j in range(S):
                duals.nodes[(o + t) * P + j] = eps / S
            duals.nodes[(o + t) * P + sequences.labels[o + t]] += 1 - eps
            if t > 0:
                f = e + (t - 1) * S * S
                # sums of eps / S^2 over S labels are eps / S: pairs and positions agree
                for q in range(f, f + S * S):
                    duals.edges[q] = eps / (S * S)
                duals.edges[
                    f + sequences.labels[o + t - 1] * S + sequences.labels[o + t]
                ] += 1 - eps


@kernel
def marginals_at_weights(first, last, sequences, w, duals):
    """Fill blocks with the marginals at the weights w."""
    scratch = make_dual_ascent_scratch(sequences)
    for i in range(first, last):
        T = _num_positions(sequences, i)
        if T > 0:
            _fill_marginals(sequences, i, w, scratch)
            o, e = sequences.offsets[i] * sequences.P, duals.edge_offsets[i]
            for q in range(0, T * sequences.P, V):
                store(duals.nodes, o + q, load(scratch.marginals.node, q))
            for q in range(0, duals.edge_offsets[i + 1] - e, V):
                store(duals.edges, e + q, load(scratch.marginals.edge, q))


@kernel
def visit_in_order(order, sequences, rule, primal, duals, counters):
    """Make a step on each sequence of ``order``."""
    scratch = make_dual_ascent_scratch(sequences)
    for n in range(len(order)):
        _coordinate_step(sequences, order[n], rule, primal, duals, scratch, counters)


@kernel
def visit_by_gap(uniforms, floor, tree, sequences, rule, primal, duals, counters):
    """Make steps on sequences sampled in proportion to their gaps at their last visits.

    A fraction of the draws is uniform. Count the steps in ``counters[STEPS]``; stop
    when the gaps sum to ``floor`` or less.
    """
    scratch = make_dual_ascent_scratch(sequences)
    n = len(sequences.offsets) - 1
    for m in range(len(uniforms)):
        # `not >` also stops at NaN
        if not tree[1] > floor:
            return
        if uniforms[m] < UNIFORM_FRACTION:
            # the number is uniform given the branch, and serves both choices
            i = min(int(uniforms[m] / UNIFORM_FRACTION * n), n - 1)
        else:
            i = sample_leaf(
                tree, (uniforms[m] - UNIFORM_FRACTION) / (1 - UNIFORM_FRACTION)
            )
        _coordinate_step(sequences, i, rule, primal, duals, scratch, counters)
        set_leaf(tree, i, duals.gaps[i])


@kernel
def exact_gaps(first, last, sequences, w, duals, gaps, losses):
    """Fill the gap and the loss of each sequence at w; weights stay."""
    scratch = make_dual_ascent_scratch(sequences)
    for i in range(first, last):
        gaps[i] = losses[i] = 0.0
        if _num_positions(sequences, i) > 0:
            value = _fill_marginals(sequences, i, w, scratch)
            gap = _fill_direction_and_curvatures(sequences, i, duals, scratch)[0]
            gaps[i] = sequence_weight(sequences, i) * max(gap, 0.0)
            losses[i] = sequences.loss_scales[i] * value


@kernel
def primal_from_dual(sequences, lam, duals, w):
    """Add ``w(a)`` to w."""
    scratch = make_dual_ascent_scratch(sequences)
    for i in range(len(sequences.offsets) - 1):
        T, o = _num_positions(sequences, i), sequences.offsets[i]
        for q in range(0, T * sequences.P, V):
            store(scratch.marginals.node, q, load(duals.nodes, o * sequences.P + q))
        for q in range(0, duals.edge_offsets[i + 1] - duals.edge_offsets[i], V):
            store(
                scratch.marginals.edge, q, load(duals.edges, duals.edge_offsets[i] + q)
            )
        _sum_edges_over_steps(sequences, T, scratch)
        for t in range(T):
            # w(a) is linear in the marginals less the gold labels
            scratch.marginals.node[t * sequences.P + sequences.labels[o + t]] -= 1.0
            if t > 0:
                scratch.direction.DE[
                    sequences.labels[o + t - 1] * sequences.P + sequences.labels[o + t]
                ] -= 1.0
        if T > 0:
            add_direction_features(
                sequences,
                i,
                scratch.direction,
                T,
                -sequence_weight(sequences, i) / lam,
                w,
            )


@subroutine
def _fill_marginals(sequences, i, w, scratch):
    """Fill the marginals of sequence i at w; return ``log Z - <w, phi(gold)>``."""
    sequence_scratch, T = scratch.sequence_scratch, _num_positions(sequences, i)
    transition_weights = score_sequence(sequences, i, w, sequence_scratch)
    fill_scores(
        sequence_scratch.E,
        T,
        sequences.S,
        transition_weights,
        sequences.start_offset,
        sequences.end_offset,
        sequences.P,
        sequence_scratch.U,
    )
    value = chain_marginals(
        T,
        sequences.S,
        sequences.P,
        transition_weights,
        sequences.transition_offset,
        sequence_scratch.U,
        scratch.marginals,
    )
    return value - gold_score(sequences, i, transition_weights, sequence_scratch)


@subroutine
def _coordinate_step(sequences, i, rule, primal, duals, scratch, counters):
    """Make one step on sequence i."""
    counters[STEPS] += 1
    T, weight = _num_positions(sequences, i), sequence_weight(sequences, i)
    duals.gaps[i] = 0.0
    if T == 0 or weight == 0.0:
        return
    counters[CALLS] += 1
    _fill_marginals(sequences, i, primal.w, scratch)
    gap, slope_at_0, curvature_at_0, curvature_at_1, max_curvature = (
        _fill_direction_and_curvatures(sequences, i, duals, scratch)
    )
    # below rounding there is no direction left; T log S bounds the entropy
    if not gap > _MIN_GAP * T * math.log(sequences.S):
        return
    duals.gaps[i] = weight * gap
    _sum_edges_over_steps(sequences, T, scratch)
    is_masked = len(primal.mask) > 0
    if is_masked:
        squared_norm = _masked_squared_norm(sequences, i, T, primal, scratch.direction)
    else:
        squared_norm = quadratic_term(sequences, i, primal.gram, scratch.direction, T)
    # the quadratic part of the dual has constant curvature
    kappa = weight / rule.lam * squared_norm
    curvatures = curvature_at_0 + kappa, curvature_at_1 + kappa, max_curvature + kappa
    gamma = _line_search(
        sequences,
        i,
        duals,
        scratch,
        slope_at_0,
        curvatures,
        kappa,
        rule.precision,
        counters,
    )
    _add_direction_to_duals(sequences, i, duals, scratch.marginals, gamma)
    add_direction_features(
        sequences, i, scratch.direction, T, -gamma * weight / rule.lam, primal.w
    )
    if is_masked:
        _mask_weights(sequences, i, T, primal)


@subroutine
def _fill_difference_and_divergence_sums(a, o, size, b, log_b, terms):
    """Replace b by ``d = b - a``; return five sums, with ``r = log(a / b)``.

    ``a r``, ``-d r``, ``d^2 / a``, ``d^2 / b`` and ``d^2 / min(a, b)``. ``terms``
    receives the contributions of each vector to the second.
    """
    gap = slope_at_0 = curvature_at_0 = curvature_at_1 = max_curvature = splat(0.0)
    tiny, min_factor = splat(TINY), splat(_MIN_FACTOR)
    for q in range(0, size, V):
        x, y = load(a, o + q), load(b, q)
        ratio = log(maximum(x, tiny)) - load(log_b, q)
        d = y - x
        gap = fma(x, ratio, gap)
        term = d * ratio
        terms[q // V] = -reduce_sum(term)
        slope_at_0 = slope_at_0 + term
        x, y = maximum(x, min_factor), maximum(y, min_factor)
        # one division for three quotients
        weight = d * d / (x * y)
        curvature_at_0 = fma(weight, y, curvature_at_0)
        curvature_at_1 = fma(weight, x, curvature_at_1)
        max_curvature = fma(weight, maximum(x, y), max_curvature)
        store(b, q, d)
    return (
        reduce_sum(gap),
        -reduce_sum(slope_at_0),
        reduce_sum(curvature_at_0),
        reduce_sum(curvature_at_1),
        reduce_sum(max_curvature),
    )


@subroutine
def _fill_direction_and_curvatures(sequences, i, duals, scratch):
    """Turn the marginals b into b - a.

    Return ``K(a || b)``, the slope at 0, the entropy's curvature at 0 and at 1, and an
    upper bound of it in between.
    """
    T, P, marginals, terms = (
        _num_positions(sequences, i),
        sequences.P,
        scratch.marginals,
        scratch.slope_terms.terms,
    )
    o, e = sequences.offsets[i] * P, duals.edge_offsets[i]
    if T == 1:
        return _fill_difference_and_divergence_sums(
            duals.nodes, o, P, marginals.node, marginals.log_node, terms
        )
    # positions first: the terms of pairs then overwrite theirs
    inner = _fill_difference_and_divergence_sums(
        duals.nodes,
        o + P,
        (T - 2) * P,
        marginals.node[P:],
        marginals.log_node[P:],
        terms,
    )
    size = duals.edge_offsets[i + 1] - e
    outer = _fill_difference_and_divergence_sums(
        duals.edges, e, size, marginals.edge, marginals.log_edge, terms
    )
    # end positions have one neighbour: no entropy term, only d
    for t in range(0, T, T - 1):
        for q in range(t * P, (t + 1) * P, V):
            store(marginals.node, q, load(marginals.node, q) - load(duals.nodes, o + q))
    # m lies between a and b: at positions, d^2 / max(a, b) is the smallest
    min_curvature = inner[2] + inner[3] - inner[4]
    return (
        outer[0] - inner[0],
        outer[1] - inner[1],
        outer[2] - inner[2],
        outer[3] - inner[3],
        outer[4] - min_curvature,
    )


@subroutine
def _list_large_terms(size, min_term, slope_terms):
    """List the vectors whose terms are at least ``min_term``; return their number.

    Terms decrease in gamma, to 0 at 1. Omitted terms thus contribute at most their
    values at 0, and steps without them are shorter, never longer.
    """
    count = 0
    for v in range(size // V):
        # written in any case: no branch in the loop
        slope_terms.selected[count] = v
        count += slope_terms.terms[v] >= min_term
    return count


@subroutine
def _divergence_slope_and_curvature(
    a, o, num_selected, selected, direction, log_b, gamma
):
    """``sum d (log m - log b)`` and ``sum d^2 / m`` for ``m = a + gamma d``.

    Over the first ``num_selected`` vectors of ``selected``.
    """
    slope = curvature = splat(0.0)
    step, tiny = splat(gamma), splat(TINY)
    for v in range(num_selected):
        q = get_number(selected, v) * V
        x = load(direction, q)
        m = maximum(fma(step, x, load(a, o + q)), tiny)
        slope = fma(x, log(m) - load(log_b, q), slope)
        curvature = fma(x, x / m, curvature)
    return reduce_sum(slope), reduce_sum(curvature)


@subroutine
def _entropy_slope_and_curvature(sequences, i, duals, scratch, num_selected, gamma):
    """Slope and curvature of the entropy's part of the dual, with opposite signs."""
    T, P, marginals, slope_terms = (
        _num_positions(sequences, i),
        sequences.P,
        scratch.marginals,
        scratch.slope_terms,
    )
    o, e = sequences.offsets[i] * P, duals.edge_offsets[i]
    if T == 1:
        return _divergence_slope_and_curvature(
            duals.nodes,
            o,
            num_selected,
            slope_terms.selected,
            marginals.node,
            marginals.log_node,
            gamma,
        )
    slope, curvature = _divergence_slope_and_curvature(
        duals.edges,
        e,
        num_selected,
        slope_terms.selected,
        marginals.edge,
        marginals.log_edge,
        gamma,
    )
    # inner positions have the opposite sign in the entropy, and are not selected
    num_inner = (T - 2) * P // V
    inner_slope, inner_curvature = _divergence_slope_and_curvature(
        duals.nodes,
        o + P,
        num_inner,
        slope_terms.all_vectors,
        marginals.node[P:],
        marginals.log_node[P:],
        gamma,
    )
    return slope - inner_slope, curvature - inner_curvature


@subroutine
def _line_search(
    sequences, i, duals, scratch, slope_at_0, curvatures, kappa, precision, counters
):
    """Return a step near the root of the slope that does not decrease the dual.

    ``curvatures`` are those at 0 and at 1, and a bound of those in between. The search
    begins between Newton's steps from both ends. If the slope is nearly linear they
    agree, and no slope is evaluated. Newton's steps follow, or bisection where these
    leave the bracket. The last step is not evaluated: its error is of the order of its
    square.

    The dual h is concave, and its slope is at least ``-kappa``. Therefore

        h(x) - h(low) >= (x - low) slope(gamma)           low <= x <= gamma
        h(x) - h(gamma) >= -(x - gamma) kappa             gamma <= x

    A last step x is safe if the loss that these allow is at most the gain up to low or
    gamma, which is ``h(low) - h(0) >= low slope(low)``.
    """
    low, high, min_gain = 0.0, 1.0, 0.0
    first, last = slope_at_0 / curvatures[0], 1.0 - kappa / curvatures[1]
    gamma = min(max((first + last) / 2, _MIN_FIRST_STEP), 1.0)
    # with the bound on the curvature, the dual increases at gamma
    if abs(first - last) < precision * gamma and gamma * curvatures[2] < 2 * slope_at_0:
        return gamma
    # a little short: where the slope is not negative, each step is safe
    gamma *= _FIRST_STEP_FRACTION
    size = (
        duals.edge_offsets[i + 1] - duals.edge_offsets[i]
        if _num_positions(sequences, i) > 1
        else sequences.P
    )
    num_selected = _list_large_terms(
        size, precision * slope_at_0 * V / size, scratch.slope_terms
    )
    for _ in range(_MAX_EVALUATIONS):
        slope, curvature = _entropy_slope_and_curvature(
            sequences, i, duals, scratch, num_selected, gamma
        )
        # slope of the dual, and minus its curvature
        slope, curvature = -slope - gamma * kappa, curvature + kappa
        counters[EVALUATIONS] += 1
        following = gamma + slope / curvature
        is_converged = abs(following - gamma) < precision * gamma
        if slope >= 0.0:
            low, min_gain = gamma, gamma * slope
            if is_converged:
                return min(following, high) if gamma * curvature >= kappa else gamma
        else:
            high = gamma
            if (
                is_converged
                and low < following
                and min_gain >= slope * (low - following)
            ):
                return following
        gamma = following if low < following < high else (low + high) / 2
    return low


@subroutine
def _add_direction_to_duals(sequences, i, duals, marginals, gamma):
    """``a += gamma d``."""
    step = splat(gamma)
    o, e = sequences.offsets[i] * sequences.P, duals.edge_offsets[i]
    for q in range(0, _num_positions(sequences, i) * sequences.P, V):
        store(
            duals.nodes,
            o + q,
            fma(step, load(marginals.node, q), load(duals.nodes, o + q)),
        )
    for q in range(0, duals.edge_offsets[i + 1] - e, V):
        store(
            duals.edges,
            e + q,
            fma(step, load(marginals.edge, q), load(duals.edges, e + q)),
        )


@subroutine
def _sum_edges_over_steps(sequences, T, scratch):
    """Fill ``direction.DE`` with the sum over steps of the differences of pairs."""
    if sequences.transition_offset < 0:
        return
    S, square = sequences.S, sequences.S * sequences.S
    scratch.edge_sums[:] = 0.0
    for t in range(T - 1):
        for q in range(0, square, V):
            # lanes past the square are of the next step, and are not read
            x = load(scratch.edge_sums, q) + load(
                scratch.marginals.edge, t * square + q
            )
            store(scratch.edge_sums, q, x)
    for i in range(S):
        for j in range(S):
            scratch.direction.DE[i * sequences.P + j] = scratch.edge_sums[i * S + j]


@subroutine
def _masked_squared_norm(sequences, i, T, primal, direction):
    """``|g|^2`` for g the direction with 0 at weights that may not change.

    Computed as ``<g, direction>``, which counts repeated features correctly.
    """
    rows, P, first = primal.gram.rows, sequences.P, sequences.offsets[i]
    add_direction_features(sequences, i, direction, T, 1.0, rows)
    total = splat(0.0)
    for t in range(T):
        for e in range(sequences.indptr[first + t], sequences.indptr[first + t + 1]):
            f, x = (
                get_number(sequences.indices, e) * P,
                splat_entry(sequences.values, e),
            )
            for j in range(0, P, V):
                # the mask once is enough: it is 0 or 1
                g = x * load(rows, f + j) * load(primal.mask, f + j)
                total = fma(g, load(direction.D, t * P + j), total)
    for f in range(
        sequences.transition_offset,
        sequences.transition_offset + sequences.S * P
        if sequences.transition_offset >= 0
        else sequences.transition_offset,
        V,
    ):
        g = load(rows, f) * load(primal.mask, f)
        total = fma(g, load(rows, f), total)
    if sequences.start_offset >= 0:
        for j in range(0, P, V):
            g = load(rows, sequences.start_offset + j) * load(
                primal.mask, sequences.start_offset + j
            )
            total = fma(g, load(rows, sequences.start_offset + j), total)
            g = load(rows, sequences.end_offset + j) * load(
                primal.mask, sequences.end_offset + j
            )
            total = fma(g, load(rows, sequences.end_offset + j), total)
    return reduce_sum(total)


@subroutine
def _mask_weights(sequences, i, T, primal):
    """Reset masked weights to 0, and clear the rows of the direction."""
    first, last = sequences.offsets[i], sequences.offsets[i + 1]
    for e in range(sequences.indptr[first], sequences.indptr[last]):
        _mask_row(primal, get_number(sequences.indices, e) * sequences.P, sequences.P)
    if sequences.transition_offset >= 0:
        _mask_row(primal, sequences.transition_offset, sequences.S * sequences.P)
    if sequences.start_offset >= 0:
        _mask_row(primal, sequences.start_offset, sequences.P)
        _mask_row(primal, sequences.end_offset, sequences.P)


@subroutine
def _mask_row(primal, o, size):
    """Multiply ``size`` weights by the mask, and clear their ``gram.rows``."""
    zero = splat(0.0)
    for q in range(o, o + size, V):
        store(primal.w, q, load(primal.w, q) * load(primal.mask, q))
        store(primal.gram.rows, q, zero)
