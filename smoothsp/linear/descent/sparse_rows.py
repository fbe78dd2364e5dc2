"""Samples as compiled code reads them: compressed sparse rows."""

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
        """In the order in which kernels take them."""
        return self.indptr, self.indices, self.data


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
