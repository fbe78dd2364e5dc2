"""Block-coordinate Frank-Wolfe over sequences: visits, gaps and the primal weights.

Without a box, the dual of ``lambda / 2 |w|^2 + sum_i s_i H_i(w)`` is

    max over alpha   sum_i ell_i - lambda / 2 |sum_i w_i|^2

with ell_i and w_i as in ``directions``. Each visit changes one block alpha_i and the
weights, so that visits are sequential. Kernels with a range of sequences do not change
weights; threads may share the sequences, unless all add to one v.

Source: Lacoste-Julien, Jaggi, Schmidt and Pletscher, "Block-Coordinate Frank-Wolfe
Optimization for Structural SVMs" (2013); Osokin et al., "Minding the Gaps for Block
Frank-Wolfe Optimization of Structured SVMs" (2016).
"""

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.linear.directions import (
    Direction,
    Duals,
    Primal,
    add_direction_features,
    frank_wolfe_direction,
    linear_term,
    make_direction,
)
from smoothsp._kernels.linear.frank_wolfe_steps import Counters, StepRule, try_bcfw_step
from smoothsp._kernels.linear.sampling_tree import fill_tree, sample_leaf, set_leaf
from smoothsp._kernels.linear.sequences import (
    Sequences,
    gold_score,
    labelling_cost,
    loss_augmented_labels,
    make_scratch,
    score_sequence,
    sequence_weight,
)
from smoothsp._kernels.linear.squared_norm import GramCache, fill_gram
from smoothsp._kernels.linear.tied_weights import (
    add_to_transition_entry,
    add_word_features_for_label,
)
from smoothsp._kernels.linear.working_sets import (
    WorkingSets,
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
    "primal_from_dual",
    "shrink_towards_gold",
    "visit_by_gap",
    "visit_in_order",
]


@kernel
def visit_in_order(order, sequences, rule, primal, duals, gram, working_sets, counters):
    """Make steps on sequences ``order`` until a pool is full; return their number."""
    scratch, direction = make_scratch(sequences), make_direction(sequences)
    for m in range(len(order)):
        if not try_bcfw_step(
            sequences,
            order[m],
            rule,
            primal,
            duals,
            gram,
            working_sets,
            scratch,
            direction,
            counters,
        ):
            return m
    return len(order)


@kernel
def visit_by_gap(
    uniforms, floor, tree, sequences, rule, primal, duals, gram, working_sets, counters
):
    """Make steps on sequences sampled in proportion to their estimated gaps.

    A draw descends the tree of sums. After the step the new estimate replaces its leaf,
    and the sums above it are recomputed. Both take ``O(log n)``.

    Stop when the estimates sum to ``floor`` or less, or a pool is full. Return the
    number of steps.
    """
    scratch, direction = make_scratch(sequences), make_direction(sequences)
    for m in range(len(uniforms)):
        # the root is the sum of all estimates
        if tree[1] <= floor:
            return m
        i = sample_leaf(tree, uniforms[m])
        if not try_bcfw_step(
            sequences,
            i,
            rule,
            primal,
            duals,
            gram,
            working_sets,
            scratch,
            direction,
            counters,
        ):
            return m
        set_leaf(tree, i, duals.gap_estimates[i])
    return len(uniforms)


@kernel
def exact_gaps(first, last, sequences, w, duals, gaps, hinges):
    """Fill the exact gap and the hinge of each sequence at w; weights stay.

    With y the labels that attain ``max_y cost(y) + <w, phi(y)>`` and D = mu - e_y, the
    gap is ``s_i (cost(y) - linear_term(D)) - ell_i``. Only words at which mu and y
    differ are summed.
    """
    scratch, direction = make_scratch(sequences), make_direction(sequences)
    for i in range(first, last):
        transition_weights = score_sequence(sequences, i, w, scratch)
        worst = loss_augmented_labels(sequences, i, transition_weights, scratch)
        # the gold labelling competes, too: negative only by rounding
        hinges[i] = sequences.loss_scales[i] * max(
            worst - gold_score(sequences, i, transition_weights, scratch), 0.0
        )
        num_active = frank_wolfe_direction(sequences, i, duals, scratch.y, 0, direction)
        gain = labelling_cost(sequences, i, scratch.y, 0) - linear_term(
            sequences, i, transition_weights, scratch.E, direction, num_active
        )
        gaps[i] = max(sequence_weight(sequences, i) * gain - duals.ell[i], 0.0)


@kernel
def primal_from_dual(first, last, sequences, lam, duals, v):
    """Add ``w_i`` of each sequence to v, from the marginals.

    ``w_i = -s_i X'D / lambda`` with D = mu less the gold labels.
    """
    direction = make_direction(sequences)
    for i in range(first, last):
        num_active = frank_wolfe_direction(
            sequences, i, duals, sequences.labels, sequences.offsets[i], direction
        )
        if num_active:
            add_direction_features(
                sequences,
                i,
                direction,
                num_active,
                -sequence_weight(sequences, i) / lam,
                v,
            )


@kernel
def add_subgradients(first, last, sequences, w, scale, v, losses, hinges):
    """``v += scale (phi(gold) - phi(y))`` for the worst y of each sequence at w.

    Fill ``losses`` with the costs of y, and ``hinges``. All are weighted by
    loss_scales.
    """
    scratch = make_scratch(sequences)
    for i in range(first, last):
        transition_weights = score_sequence(sequences, i, w, scratch)
        worst = loss_augmented_labels(sequences, i, transition_weights, scratch)
        hinges[i] = sequences.loss_scales[i] * max(
            worst - gold_score(sequences, i, transition_weights, scratch), 0.0
        )
        losses[i] = sequences.loss_scales[i] * labelling_cost(
            sequences, i, scratch.y, 0
        )
        a = scale * sequences.loss_scales[i]
        o = sequences.offsets[i]
        T = sequences.offsets[i + 1] - o
        for t in range(T):
            gold, y = sequences.labels[o + t], scratch.y[t]
            # features of equal labels cancel
            if gold != y:
                add_word_features_for_label(sequences, o + t, a, gold, v)
                add_word_features_for_label(sequences, o + t, -a, y, v)
        if sequences.transition_offset >= 0:
            for t in range(1, T):
                gold = (
                    sequences.labels[o + t - 1] * sequences.P + sequences.labels[o + t]
                )
                add_to_transition_entry(
                    sequences, sequences.transition_offset + gold, a, v
                )
                add_to_transition_entry(
                    sequences,
                    sequences.transition_offset
                    + scratch.y[t - 1] * sequences.P
                    + scratch.y[t],
                    -a,
                    v,
                )
        if sequences.start_offset >= 0 and T > 0:
            add_to_transition_entry(
                sequences, sequences.start_offset + sequences.labels[o], a, v
            )
            add_to_transition_entry(
                sequences, sequences.start_offset + scratch.y[0], -a, v
            )
            add_to_transition_entry(
                sequences, sequences.end_offset + sequences.labels[o + T - 1], a, v
            )
            add_to_transition_entry(
                sequences, sequences.end_offset + scratch.y[T - 1], -a, v
            )
