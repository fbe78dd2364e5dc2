"""The k best of a batch, by maxima with labels fixed and forbidden.

The outputs but the best are parted by the first position at which they differ from it,
each part has a maximum of its own, and the best of these is the second; then its part
is parted in turn. Ties are no trouble: parts do not overlap.

Source: Lawler, "A Procedure for Computing the K Best Solutions to Discrete Optimization
Problems" (1972); for assignments Murty (1968).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def k_best(
    tables: Floats, k: int, solve: Callable[[Floats, Ints], tuple[Ints, Bools]]
) -> tuple[Ints, Bools]:
    """The k best outputs ``[B, k, N]``, and which exist ``[B, k]``.

    Parameters
    ----------
    tables
        ``[B, N, V]``: the score of each label of each position, -inf to forbid. An
        output has at most one label a position, -1 for none, the same ones in all
        outputs of a row.
    solve
        ``solve(tables[M, N, V], rows[M])``: best outputs ``[M, N]``, and which exist,
        where ``rows`` says of which row of the batch each table is.

    Notes
    -----
    At most ``1 + (k - 1) N`` maxima a row, in k calls.
    """
    B, N, V = tables.shape
    outputs = np.full((B, k, N), -1, np.int64)
    exist = np.zeros((B, k), np.bool_)
    # candidates: the best, and then what each listed output but the last leaves
    values = np.full((B, 1 + (k - 1) * N), -np.inf)
    found = np.full((B, 1 + (k - 1) * N, N), -1, np.int64)
    allowed = np.zeros((B, k, N, V), np.bool_)
    allowed[:, 0] = True
    rows, position = np.arange(B), np.arange(N)
    found[:, 0], some = solve(tables, rows)
    values[:, 0] = np.where(some, totals(tables, found[:, 0]), -np.inf)
    for t in range(k):
        pick = values.argmax(1)
        rows = np.flatnonzero(values[np.arange(B), pick] > -np.inf)
        pick = pick[rows]
        outputs[rows, t], exist[rows, t] = found[rows, pick], True
        values[rows, pick] = -np.inf
        if t + 1 == k or not len(rows) or N == 0:
            break
        first = np.zeros(len(rows), np.int64)
        if t:
            parent, first = np.divmod(pick - 1, N)
            at_first = _parts(allowed[rows, parent], outputs[rows, parent], first)
            allowed[rows, t] = at_first
        # those before the first differing position have nowhere to go
        y = outputs[rows, t]
        which, where = np.nonzero((position >= first[:, None]) & (y >= 0))
        parts = _parts(allowed[rows, t][which], y[which], where)
        narrowed = np.where(parts, tables[rows[which]], -np.inf)
        ys, some = solve(narrowed, rows[which])
        slot = 1 + t * N + where
        found[rows[which], slot] = ys
        total = totals(tables[rows[which]], ys)
        values[rows[which], slot] = np.where(some, total, -np.inf)
    return outputs, exist


def totals(tables: Floats, ys: Ints) -> Floats:
    """Scores ``[M]`` of outputs ``[M, N]``, the labels of which stand in tables."""
    if not ys.size:
        return np.zeros(len(ys))
    picked = np.take_along_axis(tables, np.maximum(ys, 0)[..., None], 2)[..., 0]
    total: Floats = np.where(ys >= 0, picked, 0.0).sum(1)
    return total


def _parts(allowed: Bools, y: Ints, first: Ints) -> Bools:
    """Labels ``[M, N, V]`` of outputs that differ from y first at such positions."""
    _, N, V = allowed.shape
    same = (y[..., None] == np.arange(V)) | (y[..., None] < 0)
    before = (np.arange(N) < first[:, None])[..., None]
    at = (np.arange(N) == first[:, None])[..., None]
    parts: Bools = allowed & (same | ~before) & ~(same & at)
    return parts
