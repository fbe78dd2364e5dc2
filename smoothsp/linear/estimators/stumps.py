"""Decision stumps, and the exact search for the one of largest edge."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Stump:
    """Stump with labels 0 and 1: ``above`` if ``x[feature] > threshold``."""

    feature: int
    threshold: float
    above: int

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the label of each sample, ``(samples,)``."""
        column = X[:, [self.feature]]
        dense = column.toarray() if sparse.issparse(column) else column
        over = np.asarray(dense).ravel() > self.threshold
        return np.where(over, self.above, 1 - self.above)


class StumpLearner:
    r"""Search for the stump of largest edge over features, thresholds and signs.

    .. math:: \max_{j, \theta, s} \sum_i d_i y_i \, s \operatorname{sign}(x_{ij} -
        \theta)

    Each column is sorted once. For given weights, one pass over the sorted entries
    gives the edges of all thresholds. A stump that turns from -1 to 1 after k
    entries has the sum of all :math:`d_i y_i`, less twice that of the first k, as edge.

    Parameters
    ----------
    X
        ``(samples, features)``, dense or CSR, finite.
    """

    def __init__(self, X: Any) -> None:
        n, self.features = X.shape
        if sparse.issparse(X):
            columns = sparse.csc_array(X)
            columns.eliminate_zeros()
            counts = np.diff(columns.indptr)
            # all implicit zeros of a column are one entry, with row n + column
            columns_with_zeros = np.flatnonzero(counts < n)
            entry_feature = np.repeat(np.arange(self.features), counts)
            entry_feature = np.append(entry_feature, columns_with_zeros)
            values = np.append(columns.data, np.zeros(len(columns_with_zeros), X.dtype))
            rows = np.append(columns.indices.astype(np.int64), n + columns_with_zeros)
            order = np.lexsort((values, entry_feature))
            self._rows, self._values, entry_feature = (
                rows[order],
                values[order],
                entry_feature[order],
            )
            self._present = columns != 0
        else:
            order = np.argsort(X, axis=0, kind="stable").T
            self._rows = order.ravel()
            self._values = np.take_along_axis(X.T, order, axis=1).ravel()
            entry_feature = np.repeat(np.arange(self.features), n)
            self._present = None
        self._entry_feature = entry_feature
        self._starts = np.searchsorted(entry_feature, np.arange(self.features))
        # thresholds lie between different neighbouring values of a column
        rises = self._values[1:] > self._values[:-1]
        self._threshold_positions = np.flatnonzero(
            rises & (entry_feature[1:] == entry_feature[:-1])
        )

    def best(self, signed_weights: Floats) -> Stump:
        """Return the stump of largest edge for ``signed_weights``, ``d_i y_i``."""
        total = float(signed_weights.sum())
        entry_weights = signed_weights
        if self._present is not None:
            # weight of the implicit zeros of a column: the total less its entries
            entry_weights = np.append(
                signed_weights, total - self._present.T @ signed_weights
            )
        # a threshold of -inf: the constant stump
        constant_stump = Stump(0, -np.inf, int(total >= 0))
        if not len(self._threshold_positions):
            return constant_stump
        entries = entry_weights[self._rows]
        sums = np.cumsum(entries)
        sums_before = sums[self._starts] - entries[self._starts]
        # edge of a stump with positive sign above position k: total - 2 (prefix sum)
        edges = (
            total
            - 2 * (sums - sums_before[self._entry_feature])[self._threshold_positions]
        )
        k = int(np.abs(edges).argmax())
        # strictly larger: the constant stump wins ties
        if abs(edges[k]) <= abs(total):
            return constant_stump
        position = int(self._threshold_positions[k])
        return Stump(
            int(self._entry_feature[position]),
            _midpoint(self._values[position], self._values[position + 1]),
            int(edges[k] > 0),
        )


def _midpoint(low: Any, high: Any) -> float:
    """Return the mean of two numbers, in [low, high) despite rounding."""
    # sum of halves: the sum of two large numbers overflows
    middle = low / 2 + high / 2
    return float(middle) if low <= middle < high else float(low)
