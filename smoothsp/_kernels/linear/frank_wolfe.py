"""Block-coordinate Frank-Wolfe over sequences: the loops that a solver calls.

Without a box, the dual of ``lambda / 2 |w|^2 + sum_i s_i H_i(w)`` is

    max over alpha   sum_i ell_i - lambda / 2 |sum_i w_i|^2

with ell_i and w_i as in ``directions``. Each visit moves one block alpha_i and at once
the weights, so visits run one after the other. Kernels that take a range of sequences
do not move weights. Threads can share the sequences, except where all add to one v.

Arguments: s sequences, rules the settings, p weights, d dual variables, x inner
products of words, q stored labellings, k scratch, r direction, c counters.
"""

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.linear.directions import (
    Direction,
    Duals,
    Primal,
    add_direction,
    no_direction,
    slope,
    towards,
)
from smoothsp._kernels.linear.frank_wolfe_steps import Counters, StepRule, visit
from smoothsp._kernels.linear.sampling_tree import fill_tree, sample_leaf, set_leaf
from smoothsp._kernels.linear.sequences import (
    Sequences,
    cost_of,
    gold_score,
    score_sequence,
    scratch,
    share,
    worst_labels,
)
from smoothsp._kernels.linear.squared_norm import GramCache, fill_gram
from smoothsp._kernels.linear.tied_weights import add_one_to_rest, add_word_label
from smoothsp._kernels.linear.working_sets import (
    WorkingSets,
    marginals_from_slots,
    shrink_towards_gold,
)

__all__ = [
    "Counters",
    "Direction",
    "Duals",
    "GramCache",
    "Primal",
    "Sequences",
    "StepRule",
    "WorkingSets",
    "add_subgradients",
    "exact_gaps",
    "fill_gram",
    "fill_tree",
    "marginals_of_all",
    "primal_from_dual",
    "shrink_towards_gold",
    "visit_by_gap",
    "visit_in_order",
]


@kernel
def visit_in_order(order, s, rules, p, d, x, q, c):
    """A step on each of ``order``; how many it came to before the store was full."""
    k, r = scratch(s), no_direction(s)
    for m in range(len(order)):
        if not visit(s, order[m], rules, p, d, x, q, k, r, c):
            return m
    return len(order)


@kernel
def visit_by_gap(uniforms, floor, tree, s, rules, p, d, x, q, c):
    """Steps on sequences drawn in proportion to their gaps as they are estimated.

    A draw descends the tree of sums. After the step the new estimate replaces its leaf,
    and the sums above are computed again. Both take ``O(log n)``.

    Ends when the estimates sum to ``floor`` or less; how many steps it came to.
    """
    k, r = scratch(s), no_direction(s)
    for m in range(len(uniforms)):
        if tree[1] <= floor:
            return m
        i = sample_leaf(tree, uniforms[m])
        if not visit(s, i, rules, p, d, x, q, k, r, c):
            return m
        set_leaf(tree, i, d.gap_estimates[i])
    return len(uniforms)


@kernel
def exact_gaps(first, last, s, w, d, gaps, hinges):
    """Fill the exact gap and the hinge of each sequence at w; nothing moves.

    With y the labels that attain ``max_y cost(y) + <w, phi(y)>`` and D = mu - e_y, the
    gap is ``s_i (cost(y) - slope(D)) - ell_i``. Of the words, only those where mu and
    y differ are summed.
    """
    k, r = scratch(s), no_direction(s)
    for i in range(first, last):
        tail = score_sequence(s, i, w, k)
        worst = worst_labels(s, i, tail, k)
        hinges[i] = s.loss_scales[i] * max(worst - gold_score(s, i, tail, k), 0.0)
        count = towards(s, i, d, k.y, 0, r)
        gain = cost_of(s, i, k.y, 0) - slope(s, i, tail, k.E, r, count)
        gaps[i] = max(share(s, i) * gain - d.ell[i], 0.0)


@kernel
def primal_from_dual(first, last, s, lam, d, v):
    """Add ``w_i`` of each sequence to v, from the marginals.

    ``w_i = -s_i X'D / lambda`` with D = mu less the gold labels.
    """
    r = no_direction(s)
    for i in range(first, last):
        count = towards(s, i, d, s.labels, s.offsets[i], r)
        if count:
            add_direction(s, i, r, count, -share(s, i) / lam, v)


@kernel
def marginals_of_all(first, last, s, q, d):
    """Dual variables from the weights of stored labellings."""
    for i in range(first, last):
        marginals_from_slots(s, i, q, d)


@kernel
def add_subgradients(first, last, s, w, scale, v, losses, hinges):
    """``v += scale (phi(gold) - phi(y))`` for the worst y of each sequence at w.

    Fills what they cost, and their hinges. All of it is times the sequence's weight.
    """
    k = scratch(s)
    for i in range(first, last):
        tail = score_sequence(s, i, w, k)
        worst = worst_labels(s, i, tail, k)
        hinges[i] = s.loss_scales[i] * max(worst - gold_score(s, i, tail, k), 0.0)
        losses[i] = s.loss_scales[i] * cost_of(s, i, k.y, 0)
        a = scale * s.loss_scales[i]
        o = s.offsets[i]
        T = s.offsets[i + 1] - o
        for t in range(T):
            gold, y = s.labels[o + t], k.y[t]
            if gold != y:
                add_word_label(s, o + t, a, gold, v)
                add_word_label(s, o + t, -a, y, v)
        if s.transition_offset >= 0:
            for t in range(1, T):
                gold = s.labels[o + t - 1] * s.P + s.labels[o + t]
                add_one_to_rest(s, s.transition_offset + gold, a, v)
                add_one_to_rest(
                    s, s.transition_offset + k.y[t - 1] * s.P + k.y[t], -a, v
                )
        if s.start_offset >= 0 and T > 0:
            add_one_to_rest(s, s.start_offset + s.labels[o], a, v)
            add_one_to_rest(s, s.start_offset + k.y[0], -a, v)
            add_one_to_rest(s, s.end_offset + s.labels[o + T - 1], a, v)
            add_one_to_rest(s, s.end_offset + k.y[T - 1], -a, v)
