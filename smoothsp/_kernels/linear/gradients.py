"""The losses of all sequences and their gradient.

For each sequence in turn, with D and ``edges`` of ``sequence_loss``, marginals less the
gold labels, times the weight of the sequence,

    E = X_i W,    loss, D, edges from E and A,    G += X_i' D,    dA += edges, and ends

Rows of D that are 0, where all mass is on the gold label, are skipped.
``sequence_losses`` reads a range of sequences, so that threads can share them.
``losses_and_gradient`` adds all gradients to one G, in the order of the sequences. If
scores overflow, the loss is NaN.

W is separate from the other weights, as in ``sequence_loss``.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.linear.sequence_loss import (
    add_transition_gradient,
    all_finite,
    is_zero_row,
    loss_and_gradient,
    make_gradient_scratch,
    make_k_best_scratch,
)
from smoothsp._kernels.linear.tied_weights import (
    add_word_features,
    fill_position_scores,
    gather_transition_weights,
)
from smoothsp._kernels.vectors.arrays import copy


@kernel
def sequence_losses(first, last, sequences, W, transition_weights, kind, mu, K, out):
    """Fill out[first:last] with the losses of the sequences."""
    gradient = make_gradient_scratch(sequences, K)
    k_best_scratch = make_k_best_scratch(sequences, K)
    for i in range(first, last):
        a, b = sequences.offsets[i], sequences.offsets[i + 1]
        fill_position_scores(sequences, a, b, W, gradient.scratch.E)
        gathered = gather_transition_weights(
            sequences, 1.0, W, transition_weights, gradient.scratch.transition_weights
        )
        if not (
            all_finite(gradient.scratch.E, (b - a) * sequences.P)
            and all_finite(gathered, len(gathered))
        ):
            out[i] = np.nan
            continue
        out[i] = loss_and_gradient(
            sequences, i, gathered, kind, mu, gradient, k_best_scratch
        )


@kernel
def losses_and_gradient(
    sequences,
    W,
    transition_weights,
    kind,
    mu,
    K,
    with_marginals,
    G,
    transition_gradient,
    nodes,
    edges,
    out,
):
    """Add the gradients to G and transition_gradient; fill out with the losses.

    If ``with_marginals``, rows ``nodes`` of positions and ``edges[n]`` receive the
    marginals less gold of each sequence.
    """
    gradient = make_gradient_scratch(sequences, K)
    k_best_scratch = make_k_best_scratch(sequences, K)
    D, P = gradient.D, sequences.P
    for i in range(len(sequences.offsets) - 1):
        first, last = sequences.offsets[i], sequences.offsets[i + 1]
        T = last - first
        fill_position_scores(sequences, first, last, W, gradient.scratch.E)
        gathered = gather_transition_weights(
            sequences, 1.0, W, transition_weights, gradient.scratch.transition_weights
        )
        if not (
            all_finite(gradient.scratch.E, T * P)
            and all_finite(gathered, len(gathered))
        ):
            # overflow: the gradient is of no use, so the loop ends
            out[i:] = np.nan
            return
        out[i] = loss_and_gradient(
            sequences, i, gathered, kind, mu, gradient, k_best_scratch
        )
        for t in range(T):
            # with MAX and TOP_K many rows are 0, and features cost most
            if not is_zero_row(D, t * P, P):
                add_word_features(sequences, first + t, 1.0, D, t * P, G)
        add_transition_gradient(
            sequences, T, 1.0, D, gradient.edges, G, transition_gradient
        )
        if with_marginals:
            copy(D[: T * P], nodes[first * P : last * P])
            copy(gradient.edges, edges[i])
