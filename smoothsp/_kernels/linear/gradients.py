"""The loss of all sequences and its gradient.

For each sequence in turn, with D and ``edges`` of ``linear.slopes``: marginals less the
gold labels, times the weight of the sequence,

    E = X_i W,    loss, D, edges from E and A,    G += X_i' D,    tail_G += edges, ends

Rows of D that are all 0, where the labels are gold, are skipped. ``losses`` takes a
range of sequences, so that threads can share them. ``gradient`` adds all slopes to one
G, in the order of the sequences. Where scores overflow, the loss is NaN.

Weights are laid out as in ``linear.slopes``: W, and the rest in ``tail``.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.linear.sequence_loss import (
    add_to_tail,
    finite,
    is_zero,
    scratch_of_ranking,
    slope,
    slope_scratch,
)
from smoothsp._kernels.linear.tied_weights import add_word, rest, score_words
from smoothsp._kernels.vectors.arrays import copy


@kernel
def sequence_losses(first, last, s, W, tail, kind, mu, K, out):
    """Fill out[first:last] with the losses of the sequences."""
    c = slope_scratch(s, K)
    space = scratch_of_ranking(s, K)
    for i in range(first, last):
        a, b = s.offsets[i], s.offsets[i + 1]
        score_words(s, a, b, W, c.k.E)
        own = rest(s, 1.0, W, tail, c.k.rest)
        if not (finite(c.k.E, (b - a) * s.P) and finite(own, len(own))):
            out[i] = np.nan
            continue
        out[i] = slope(s, i, own, kind, mu, c, space)


@kernel
def losses_and_gradient(s, W, tail, kind, mu, K, keep, G, tail_G, nodes, edges, out):
    """Add the slopes of all sequences to G and tail_G; fill out with the losses.

    With ``keep``, rows ``nodes`` of positions and ``edges[n]`` take each slope as
    marginals less gold.
    """
    c = slope_scratch(s, K)
    space = scratch_of_ranking(s, K)
    D, P = c.D, s.P
    for i in range(len(s.offsets) - 1):
        first, last = s.offsets[i], s.offsets[i + 1]
        T = last - first
        score_words(s, first, last, W, c.k.E)
        own = rest(s, 1.0, W, tail, c.k.rest)
        if not (finite(c.k.E, T * P) and finite(own, len(own))):
            out[i:] = np.nan
            return
        out[i] = slope(s, i, own, kind, mu, c, space)
        for t in range(T):
            if not is_zero(D, t * P, P):
                add_word(s, first + t, 1.0, D, t * P, G)
        add_to_tail(s, T, 1.0, D, c.edges, G, tail_G)
        if keep:
            copy(D[: T * P], nodes[first * P : last * P])
            copy(c.edges, edges[i])
