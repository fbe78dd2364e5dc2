r"""Dual coordinate ascent for the likelihood of sequences: compiled loops.

The dual of ``lambda / 2 |w|^2 + 1/n sum_i c_i (log Z_i(w) - <w, phi(gold)>)`` is

    max over a   1/n sum_i c_i H(a_i) - lambda / 2 |w(a)|^2
    w(a) = 1/(lambda n) sum_i c_i (phi(gold) - E_{a_i} phi)

A block a_i is the marginals of a distribution of labellings that is a Markov chain, so

    H(a)       = -sum over pairs a log a + sum over inner positions a log a
    K(a || b)  = the same sums of a log(a / b), with opposite signs

K is the Kullback-Leibler divergence. Inner positions have two neighbours. The only
position of a sequence counts as a pair.
With b_i the marginals at w(a), the duality gap is ``1/n sum_i c_i K(a_i || b_i)``.

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
from smoothsp._kernels.linear.directions import Direction, add_direction, length
from smoothsp._kernels.linear.pair_marginals import (
    TINY,
    Marginals,
    marginals_of_one,
    room_of_marginals,
)
from smoothsp._kernels.linear.sampling_tree import sample_leaf, set_leaf
from smoothsp._kernels.linear.sequences import (
    Scratch,
    gold_score,
    score_sequence,
    scratch,
    share,
)
from smoothsp._kernels.linear.sparse_scores import V, entry
from smoothsp._kernels.linear.squared_norm import GramCache
from smoothsp._kernels.linear.viterbi import without_costs
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import fma, get, load, maximum, splat, store
from smoothsp._kernels.vectors.simd_exp import log
from smoothsp._kernels.vectors.simd_masked import reduce_sum

# The share of draws by gap that is uniform instead: gaps of examples that are not
# visited grow unnoticed.
UNIFORM = 0.2
# Gaps below this, times T log S, are rounding.
_ROUNDING = 1e-14
_MOST_EVALUATIONS = 20
# The least step from which a search begins.
_LEAST = 1e-3
_SHORT = 0.85
# The product of two numbers of at least this is one.
_SMALL = 1e-150

# What ``counts`` counts.
STEPS, CALLS, EVALUATIONS = range(3)


class BlockMarginals(NamedTuple):
    """The dual variables of all sequences, and their gaps at their last visits.

    ``nodes`` has P numbers a position. The pairs of sequence i begin at ``at[i]`` of
    ``edges``, S^2 numbers a step, and end with zeros up to whole vectors.
    """

    nodes: np.ndarray
    edges: np.ndarray
    edge_offsets: np.ndarray
    gaps: np.ndarray


class StepRule(NamedTuple):
    """lambda, and the relative change of gamma at which a search ends."""

    lam: float
    precision: float


class Primal(NamedTuple):
    """Weights, what restricts them, and products of words.

    ``mask`` is 1 for weights that may change and 0 for all others; empty if all may.
    Then ``x.rows`` is as long, and all 0.
    """

    w: np.ndarray
    mask: np.ndarray
    x: GramCache


class Parts(NamedTuple):
    """What vectors of pairs add to the slope at 0, and those that count, ascending.

    ``every`` has the numbers of all vectors of positions.
    """

    share: np.ndarray
    kept: np.ndarray
    every: np.ndarray


class Room(NamedTuple):
    """Scratch of one sequence; ``r`` has the differences of positions in ``m.node``."""

    k: Scratch
    m: Marginals
    r: Direction
    sums: np.ndarray
    n: Parts


@subroutine
def room_of_one(s):
    """Room for the longest sequence."""
    m = room_of_marginals(s)
    moved = arrays.zeros(s.max_length, np.int64)
    for t in range(s.max_length):
        moved[t] = t
    square = s.S * s.P if s.transition_offset >= 0 else 0
    r = Direction(m.node, arrays.zeros(square), moved)
    every = arrays.zeros(len(m.node) // V, np.int64)
    for v in range(len(every)):
        every[v] = v
    count = max(len(m.edge), len(m.node)) // V
    n = Parts(arrays.zeros(count), arrays.zeros(count + 1, np.int64), every)
    return Room(scratch(s), m, r, arrays.zeros(square + V), n)


@subroutine(optimise=False)
def _length(s, i):
    return s.offsets[i + 1] - s.offsets[i]


@kernel
def smoothed_gold_marginals(first, last, s, eps, d):
    """Fill blocks with ``(1 - eps)`` on the gold labels, and the rest uniform."""
    S, P = s.S, s.P
    for i in range(first, last):
        o, e = s.offsets[i], d.edge_offsets[i]
        for t in range(_length(s, i)):
            for j in range(S):
                d.nodes[(o + t) * P + j] = eps / S
            d.nodes[(o + t) * P + s.labels[o + t]] += 1 - eps
            if t > 0:
                f = e + (t - 1) * S * S
                for q in range(f, f + S * S):
                    d.edges[q] = eps / (S * S)
                d.edges[f + s.labels[o + t - 1] * S + s.labels[o + t]] += 1 - eps


@kernel
def marginals_at_weights(first, last, s, w, d):
    """Fill blocks with the marginals at the weights w."""
    c = room_of_one(s)
    for i in range(first, last):
        T = _length(s, i)
        if T > 0:
            _marginals(s, i, w, c)
            o, e = s.offsets[i] * s.P, d.edge_offsets[i]
            for q in range(0, T * s.P, V):
                store(d.nodes, o + q, load(c.m.node, q))
            for q in range(0, d.edge_offsets[i + 1] - e, V):
                store(d.edges, e + q, load(c.m.edge, q))


@kernel
def visit_in_order(order, s, rules, p, d, counts):
    """A step on each of ``order``."""
    c = room_of_one(s)
    for n in range(len(order)):
        _visit(s, order[n], rules, p, d, c, counts)


@kernel
def visit_by_gap(uniforms, floor, tree, s, rules, p, d, counts):
    """Steps on sequences drawn in proportion to their gaps at their last visits.

    Some draws are uniform. Fills ``counts[STEPS]``; ends when the gaps sum to ``floor``
    or less.
    """
    c = room_of_one(s)
    n = len(s.offsets) - 1
    for m in range(len(uniforms)):
        if not tree[1] > floor:
            return
        if uniforms[m] < UNIFORM:
            i = min(int(uniforms[m] / UNIFORM * n), n - 1)
        else:
            i = sample_leaf(tree, (uniforms[m] - UNIFORM) / (1 - UNIFORM))
        _visit(s, i, rules, p, d, c, counts)
        set_leaf(tree, i, d.gaps[i])


@kernel
def exact_gaps(first, last, s, w, d, gaps, losses):
    """Fill the gap and the loss of each sequence at w; nothing moves."""
    c = room_of_one(s)
    for i in range(first, last):
        gaps[i] = losses[i] = 0.0
        if _length(s, i) > 0:
            value = _marginals(s, i, w, c)
            gap = _differences(s, i, d, c)[0]
            gaps[i] = share(s, i) * max(gap, 0.0)
            losses[i] = s.loss_scales[i] * value


@kernel
def primal_from_dual(s, lam, d, w):
    """Add ``w(a)`` to w."""
    c = room_of_one(s)
    for i in range(len(s.offsets) - 1):
        T, o = _length(s, i), s.offsets[i]
        for q in range(0, T * s.P, V):
            store(c.m.node, q, load(d.nodes, o * s.P + q))
        for q in range(0, d.edge_offsets[i + 1] - d.edge_offsets[i], V):
            store(c.m.edge, q, load(d.edges, d.edge_offsets[i] + q))
        _sum_of_pairs(s, T, c)
        for t in range(T):
            c.m.node[t * s.P + s.labels[o + t]] -= 1.0
            if t > 0:
                c.r.DE[s.labels[o + t - 1] * s.P + s.labels[o + t]] -= 1.0
        if T > 0:
            add_direction(s, i, c.r, T, -share(s, i) / lam, w)


@subroutine
def _marginals(s, i, w, c):
    """Fill the marginals of sequence i at w; return ``log Z - <w, phi(gold)>``."""
    k, T = c.k, _length(s, i)
    tail = score_sequence(s, i, w, k)
    without_costs(k.E, T, s.S, tail, s.start_offset, s.end_offset, s.P, k.U)
    value = marginals_of_one(T, s.S, s.P, tail, s.transition_offset, k.U, c.m)
    return value - gold_score(s, i, tail, k)


@subroutine
def _visit(s, i, rules, p, d, c, counts):
    """One step on sequence i."""
    counts[STEPS] += 1
    T, part = _length(s, i), share(s, i)
    d.gaps[i] = 0.0
    if T == 0 or part == 0.0:
        return
    counts[CALLS] += 1
    _marginals(s, i, p.w, c)
    gap, slope_at_0, bend_at_0, bend_at_1, most_bend = _differences(s, i, d, c)
    if not gap > _ROUNDING * T * math.log(s.S):
        return
    d.gaps[i] = part * gap
    _sum_of_pairs(s, T, c)
    restricted = len(p.mask) > 0
    if restricted:
        squares = _restricted_length(s, i, T, p, c.r)
    else:
        squares = length(s, i, p.x, c.r, T)
    kappa = part / rules.lam * squares
    bends = bend_at_0 + kappa, bend_at_1 + kappa, most_bend + kappa
    gamma = _best_step(s, i, d, c, slope_at_0, bends, kappa, rules.precision, counts)
    _move(s, i, d, c.m, gamma)
    add_direction(s, i, c.r, T, -gamma * part / rules.lam, p.w)
    if restricted:
        _restrict(s, i, T, p)


@subroutine
def _compare(a, o, size, b, log_b, share):
    """Of ``r = log(a / b)`` and ``d = b - a``, which replaces b, five sums.

    ``a r``, ``-d r``, ``d^2 / a``, ``d^2 / b`` and ``d^2 / min(a, b)``. ``share`` takes
    what each vector adds to the second.
    """
    gap = slope_at_0 = bend_at_0 = bend_at_1 = most_bend = splat(0.0)
    tiny, small = splat(TINY), splat(_SMALL)
    for q in range(0, size, V):
        x, y = load(a, o + q), load(b, q)
        ratio = log(maximum(x, tiny)) - load(log_b, q)
        d = y - x
        gap = fma(x, ratio, gap)
        part = d * ratio
        share[q // V] = -reduce_sum(part)
        slope_at_0 = slope_at_0 + part
        x, y = maximum(x, small), maximum(y, small)
        weight = d * d / (x * y)
        bend_at_0 = fma(weight, y, bend_at_0)
        bend_at_1 = fma(weight, x, bend_at_1)
        most_bend = fma(weight, maximum(x, y), most_bend)
        store(b, q, d)
    return (
        reduce_sum(gap),
        -reduce_sum(slope_at_0),
        reduce_sum(bend_at_0),
        reduce_sum(bend_at_1),
        reduce_sum(most_bend),
    )


@subroutine
def _differences(s, i, d, c):
    """Turn the marginals b into b - a.

    Return ``K(a || b)``, the slope at 0, the curvature of the entropy at 0 and 1, and
    a bound of it in between.
    """
    T, P, m, share = _length(s, i), s.P, c.m, c.n.share
    o, e = s.offsets[i] * P, d.edge_offsets[i]
    if T == 1:
        return _compare(d.nodes, o, P, m.node, m.log_node, share)
    # of positions first: the shares of pairs are those that stay
    inner = _compare(d.nodes, o + P, (T - 2) * P, m.node[P:], m.log_node[P:], share)
    size = d.edge_offsets[i + 1] - e
    outer = _compare(d.edges, e, size, m.edge, m.log_edge, share)
    for t in range(0, T, T - 1):
        for q in range(t * P, (t + 1) * P, V):
            store(m.node, q, load(m.node, q) - load(d.nodes, o + q))
    # m lies between a and b: of positions, d^2 / max(a, b) is the least
    least = inner[2] + inner[3] - inner[4]
    return (
        outer[0] - inner[0],
        outer[1] - inner[1],
        outer[2] - inner[2],
        outer[3] - inner[3],
        outer[4] - least,
    )


@subroutine
def _keep(size, least, n):
    """List the vectors whose shares are at least this; how many there are.

    A share falls with gamma, to 0 at 1. So what is left out adds no more than at 0, and
    without it steps are shorter, never longer.
    """
    count = 0
    for v in range(size // V):
        n.kept[count] = v
        count += n.share[v] >= least
    return count


@subroutine
def _along(a, o, count, kept, d, log_b, gamma):
    """``sum d (log m - log b)`` and ``sum d^2 / m`` for ``m = a + gamma d``.

    Over the vectors ``kept[:count]``.
    """
    slope = bend = splat(0.0)
    step, tiny = splat(gamma), splat(TINY)
    for v in range(count):
        q = get(kept, v) * V
        x = load(d, q)
        m = maximum(fma(step, x, load(a, o + q)), tiny)
        slope = fma(x, log(m) - load(log_b, q), slope)
        bend = fma(x, x / m, bend)
    return reduce_sum(slope), reduce_sum(bend)


@subroutine
def _slope(s, i, d, c, count, gamma):
    """Slope and curvature of the entropy's part of the dual, with opposite signs."""
    T, P, m, n = _length(s, i), s.P, c.m, c.n
    o, e = s.offsets[i] * P, d.edge_offsets[i]
    if T == 1:
        return _along(d.nodes, o, count, n.kept, m.node, m.log_node, gamma)
    slope, bend = _along(d.edges, e, count, n.kept, m.edge, m.log_edge, gamma)
    inner = (T - 2) * P // V
    less, less_bend = _along(
        d.nodes, o + P, inner, n.every, m.node[P:], m.log_node[P:], gamma
    )
    return slope - less, bend - less_bend


@subroutine
def _best_step(s, i, d, c, slope_at_0, bends, kappa, precision, counts):
    """A step near the root of the slope, with which the dual does not fall.

    ``bends`` are the curvatures at 0 and at 1, and a bound of those in between. The
    search begins between Newton's steps from both ends. Where the slope is a line they
    agree, and no slope is evaluated. Newton's steps follow, and halves where these
    leave the bracket. The last step is not evaluated: its error is of the order of its
    square.

    The dual h is concave and its slope at least ``-kappa``. So steps that end between
    low and gamma or after a gamma of positive slope are safe, if

        h(x) - h(low) >= (x - low) slope(gamma)           low <= x <= gamma
        h(x) - h(gamma) >= -(x - gamma) kappa             gamma <= x

    leave more than ``h(low) - h(0) >= low slope(low)`` has gained.
    """
    low, high, gained = 0.0, 1.0, 0.0
    first, last = slope_at_0 / bends[0], 1.0 - kappa / bends[1]
    gamma = min(max((first + last) / 2, _LEAST), 1.0)
    if abs(first - last) < precision * gamma and gamma * bends[2] < 2 * slope_at_0:
        return gamma
    # a little short: where the slope is not negative, every step is safe
    gamma *= _SHORT
    size = d.edge_offsets[i + 1] - d.edge_offsets[i] if _length(s, i) > 1 else s.P
    count = _keep(size, precision * slope_at_0 * V / size, c.n)
    for _ in range(_MOST_EVALUATIONS):
        slope, bend = _slope(s, i, d, c, count, gamma)
        slope, bend = -slope - gamma * kappa, bend + kappa
        counts[EVALUATIONS] += 1
        following = gamma + slope / bend
        close = abs(following - gamma) < precision * gamma
        if slope >= 0.0:
            low, gained = gamma, gamma * slope
            if close:
                return min(following, high) if gamma * bend >= kappa else gamma
        else:
            high = gamma
            if close and low < following and gained >= slope * (low - following):
                return following
        gamma = following if low < following < high else (low + high) / 2
    return low


@subroutine
def _move(s, i, d, m, gamma):
    """``a += gamma d``."""
    step = splat(gamma)
    o, e = s.offsets[i] * s.P, d.edge_offsets[i]
    for q in range(0, _length(s, i) * s.P, V):
        store(d.nodes, o + q, fma(step, load(m.node, q), load(d.nodes, o + q)))
    for q in range(0, d.edge_offsets[i + 1] - e, V):
        store(d.edges, e + q, fma(step, load(m.edge, q), load(d.edges, e + q)))


@subroutine
def _sum_of_pairs(s, T, c):
    """Fill ``r.DE`` with the sum of the differences of pairs over all steps."""
    if s.transition_offset < 0:
        return
    S, square = s.S, s.S * s.S
    c.sums[:] = 0.0
    for t in range(T - 1):
        for q in range(0, square, V):
            # the lanes past the square are of the next step, and are not read
            x = load(c.sums, q) + load(c.m.edge, t * square + q)
            store(c.sums, q, x)
    for i in range(S):
        for j in range(S):
            c.r.DE[i * s.P + j] = c.sums[i * S + j]


@subroutine
def _restricted_length(s, i, T, p, r):
    """``|g|^2`` where g is the direction with 0 for weights that may not change.

    As ``<g, direction>``, in which features that occur twice count right.
    """
    rows, P, first = p.x.rows, s.P, s.offsets[i]
    add_direction(s, i, r, T, 1.0, rows)
    total = splat(0.0)
    for t in range(T):
        for e in range(s.indptr[first + t], s.indptr[first + t + 1]):
            f, x = get(s.indices, e) * P, entry(s.values, e)
            for j in range(0, P, V):
                g = x * load(rows, f + j) * load(p.mask, f + j)
                total = fma(g, load(r.D, t * P + j), total)
    for f in range(
        s.transition_offset,
        s.transition_offset + s.S * P
        if s.transition_offset >= 0
        else s.transition_offset,
        V,
    ):
        g = load(rows, f) * load(p.mask, f)
        total = fma(g, load(rows, f), total)
    if s.start_offset >= 0:
        for j in range(0, P, V):
            g = load(rows, s.start_offset + j) * load(p.mask, s.start_offset + j)
            total = fma(g, load(rows, s.start_offset + j), total)
            g = load(rows, s.end_offset + j) * load(p.mask, s.end_offset + j)
            total = fma(g, load(rows, s.end_offset + j), total)
    return reduce_sum(total)


@subroutine
def _restrict(s, i, T, p):
    """Weights that may not change become 0 again, and so do the rows of a direction."""
    first, last = s.offsets[i], s.offsets[i + 1]
    for e in range(s.indptr[first], s.indptr[last]):
        _restrict_row(p, get(s.indices, e) * s.P, s.P)
    if s.transition_offset >= 0:
        _restrict_row(p, s.transition_offset, s.S * s.P)
    if s.start_offset >= 0:
        _restrict_row(p, s.start_offset, s.P)
        _restrict_row(p, s.end_offset, s.P)


@subroutine
def _restrict_row(p, o, size):
    zero = splat(0.0)
    for q in range(o, o + size, V):
        store(p.w, q, load(p.w, q) * load(p.mask, q))
        store(p.x.rows, q, zero)
