"""The k best of a batch from max-marginals: best max-marginal first.

The listed outputs partition the output space into cells with one listed output each;
the max-marginals of each cell are stored. The next best output differs from the listed
output of its cell at some position. Its score is the highest max-marginal of all labels
other than the listed ones, over all cells. It splits its cell in two: outputs with this
label, and outputs without it.

If outputs tie, the labels of highest max-marginals may belong to different outputs. So
the best output of a cell is decoded, not read off the max-marginals.

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
    """Return the k best outputs ``[B, k, N]``, and which exist ``[B, k]``.

    Parameters
    ----------
    tables
        ``[B, N, V]``: score of each label at each position, -inf to forbid.
    decode
        ``decode(tables[M, N, V], rows[M])``: best outputs ``[M, N]``, and which exist.
        ``rows`` are the rows of the batch to which the tables belong.
    max_marginals
        With the same arguments, ``[M, N, V]``: highest score of an output with each
        label at each position, -inf if there is none. Among labels outside the best
        output only the highest entry must be right; lower ones may be -inf.

    Notes
    -----
    Computes 2k - 1 sets of max-marginals and k maxima for each row.
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
        # the first maximum: ties go to the cell listed first, then by position, label
        pick = scores.argmax(1)
        rows = np.flatnonzero(scores[np.arange(B), pick] > -np.inf)
        if not len(rows):
            break
        # cell t gets the label alone at this position, cell s loses it
        s, position, value = np.unravel_index(pick[rows], (t, N, V))
        allowed[rows, t] = allowed[rows, s]
        allowed[rows, t, position] = label == value[:, None]
        allowed[rows, s, position, value] = False
        new = np.where(allowed[rows, t], tables[rows], -np.inf)
        outputs[rows, t], valid[rows, t] = decode(new, rows)
        # after the last output no max-marginals are needed
        if t + 1 < k:
            old = np.where(allowed[rows, s], tables[rows], -np.inf)
            new_and_old = max_marginals(
                np.concatenate([new, old]), np.concatenate([rows, rows])
            )
            highest[rows, t], highest[rows, s] = np.split(new_and_old, 2)
    return outputs, valid
