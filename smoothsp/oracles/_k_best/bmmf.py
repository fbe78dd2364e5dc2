"""The k best of a batch from max-marginals: best max-marginal first.

Each listed output has a part of the outputs of its own, of which the max-marginals are
known. The best output that is not listed has, in its part, a label that the listed one
has not, and the highest such max-marginal is its score: two new parts, two new sets of
max-marginals.

Where outputs tie, labels of highest max-marginals need not be those of one output, so
the output of a part is searched for, not read off them.

Source: Yanover and Weiss, "Finding the M Most Probable Configurations using Loopy
Belief Propagation" (2004), with a maximum in place of their decoding.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
SolveFunction = Callable[[Floats, Ints], tuple[Ints, Bools]]
MaxMarginalsFunction = Callable[[Floats, Ints], Floats]


def k_best(
    tables: Floats, k: int, decode: SolveFunction, max_marginals: MaxMarginalsFunction
) -> tuple[Ints, Bools]:
    """The k best outputs ``[B, k, N]``, and which exist ``[B, k]``.

    Parameters
    ----------
    tables
        ``[B, N, V]``: the score of each label of each position, -inf to forbid.
    solve
        ``solve(tables[M, N, V], rows[M])``: best outputs ``[M, N]`` and which exist,
        where ``rows`` says of which row of the batch each table is.
    marginals
        With the same arguments, ``[M, N, V]``: the highest score of an output with
        such a label, -inf where there is none. Of labels that the best output has not,
        all below the highest may be -inf, too.

    Notes
    -----
    2k - 1 sets of max-marginals and k maxima a row.
    """
    B, N, V = tables.shape
    outputs = np.full((B, k, N), -1, np.int64)
    valid = np.zeros((B, k), np.bool_)
    allowed = np.zeros((B, k, N, V), np.bool_)
    highest = np.full((B, k, N, V), -np.inf)
    allowed[:, 0] = True
    rows = np.arange(B)
    outputs[:, 0], valid[:, 0] = decode(tables, rows)
    if k > 1:
        highest[:, 0] = max_marginals(tables, rows)
    label = np.arange(V)
    for t in range(1, k):
        is_other_label = outputs[:, :t, :, None] != label
        scores = np.where(is_other_label & allowed[:, :t], highest[:, :t], -np.inf)
        scores = scores.reshape(B, t * N * V)
        if not scores.size:
            break
        pick = scores.argmax(1)
        rows = np.flatnonzero(scores[np.arange(B), pick] > -np.inf)
        if not len(rows):
            break
        s, position, value = np.unravel_index(pick[rows], (t, N, V))
        allowed[rows, t] = allowed[rows, s]
        allowed[rows, t, position] = label == value[:, None]
        allowed[rows, s, position, value] = False
        new = np.where(allowed[rows, t], tables[rows], -np.inf)
        outputs[rows, t], valid[rows, t] = decode(new, rows)
        if t + 1 < k:
            old = np.where(allowed[rows, s], tables[rows], -np.inf)
            new_and_old = max_marginals(
                np.concatenate([new, old]), np.concatenate([rows, rows])
            )
            highest[rows, t], highest[rows, s] = np.split(new_and_old, 2)
    return outputs, valid
