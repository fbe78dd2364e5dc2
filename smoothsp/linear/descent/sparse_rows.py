"""Samples as compiled code reads them: compressed sparse rows, or dense ones."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from smoothsp._kernels.multiclass import csr_rows


@dataclass(frozen=True)
class SparseRows:
    """Sample i has ``data[e]`` at feature ``indices[e]``.

    For e from ``indptr[i]`` to ``indptr[i + 1]``, and zeros elsewhere.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    data: NDArray[Any]
    features: int

    @property
    def squares(self) -> NDArray[np.float64]:
        """Squared norm of each sample."""
        found = np.empty(len(self.indptr) - 1)
        csr_rows.squares(0, len(found), self.indptr, self.data, found)
        return found

    @property
    def arrays(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Arrays in the order of the arguments of kernels."""
        return self.indptr, self.indices, self.data


@dataclass(frozen=True)
class DenseRows:
    """Sample i has the features ``data[i]``."""

    data: NDArray[Any]

    @property
    def features(self) -> int:
        """Number of features."""
        return int(self.data.shape[1])

    @property
    def squares(self) -> NDArray[np.float64]:
        """Squared norm of each sample."""
        found = np.einsum("ij,ij->i", self.data, self.data, dtype=np.float64)
        return np.asarray(found)

    @property
    def arrays(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Arrays of compressed rows, two of them empty."""
        return np.zeros(0, np.int64), np.zeros(0, np.int32), self.data.ravel()


def rows_of(X: Any, constant: float) -> SparseRows | DenseRows:
    """Rows as ``sparse_rows``, dense if half of the numbers are not 0."""
    stored = X.nnz if sparse.issparse(X) else np.count_nonzero(X)
    if 2 * stored < X.shape[0] * X.shape[1]:
        return sparse_rows(X, constant)
    X = X.toarray() if sparse.issparse(X) else X
    if constant:
        X = np.insert(X, X.shape[1], constant, axis=1)
    return DenseRows(np.ascontiguousarray(X))


def sparse_rows(X: Any, constant: float) -> SparseRows:
    """Rows of X, dense or ``checked``; a ``constant`` is one more feature, if not 0."""
    X = sparse.csr_array(X)
    if constant:
        column = np.full((X.shape[0], 1), constant, dtype=X.dtype)
        X = sparse.hstack([X, column], format="csr", dtype=X.dtype)
    small = X.shape[1] <= np.iinfo(np.int32).max
    return SparseRows(
        np.ascontiguousarray(X.indptr, dtype=np.int64),
        np.ascontiguousarray(X.indices, dtype=np.int32 if small else np.int64),
        np.ascontiguousarray(X.data),
        X.shape[1],
    )
