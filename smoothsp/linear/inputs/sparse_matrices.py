"""Sparse matrices as callers pass them, checked, and rows as kernels read them."""

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from smoothsp._kernels.svm import csr_rows


def validate_sparse(X: Any, name: str = "X") -> Any:
    """X, or of a sparse matrix a CSR matrix whose columns rise within each row.

    A scipy matrix is three arrays that anybody may change, and scipy itself writes
    where they point: this comes before any conversion. X is not changed.

    Raises
    ------
    ValueError
        If indices point outside of X, or its arrays do not fit together.
    TypeError
        If indices are not int32 or int64.
    """
    if not sparse.issparse(X):
        return X
    if X.ndim != 2:
        raise ValueError(f"{name}: expected (samples, features), got shape {X.shape}")
    if X.format in ("csc", "bsr"):
        _check_compressed(X, name)
    elif X.format == "coo":
        for index, length, kind in zip(X.coords, X.shape, _AXES, strict=True):
            _check_integers(name, f"{kind} indices", index)
            wrong = (index < 0) | (index >= length)
            if wrong.any():
                _refuse(name, kind, length, index[wrong.argmax()], "")
    if X.format != "csr":
        X = X.tocsr()
    rises = _check_compressed(X, name)
    end = X.indptr[-1]
    if rises and end == len(X.indices) == len(X.data):
        return X
    # rows are put in order, what stands twice is added up, and what is left is dropped
    arrays = X.data[:end], X.indices[:end], X.indptr
    fresh = sparse.csr_array(arrays, shape=X.shape, copy=True)
    fresh.sum_duplicates()
    return fresh


def list_arrays(X: Any) -> list[NDArray[Any]]:
    """The arrays that a matrix is made of, and its shape."""
    arrays = [X.indptr, X.indices, X.data] if sparse.issparse(X) else [X]
    return [*arrays, np.array(X.shape)]


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
        csr_rows.squared_norms(0, len(found), self.indptr, self.data, found)
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


def as_sample_rows(X: Any, constant: float) -> SparseRows | DenseRows:
    """Rows as ``sparse_rows``, dense if half of the numbers are not 0."""
    stored = X.nnz if sparse.issparse(X) else np.count_nonzero(X)
    if 2 * stored < X.shape[0] * X.shape[1]:
        return as_sparse_sample_rows(X, constant)
    X = X.toarray() if sparse.issparse(X) else X
    if constant:
        X = np.insert(X, X.shape[1], constant, axis=1)
    return DenseRows(np.ascontiguousarray(X))


def as_sparse_sample_rows(X: Any, constant: float) -> SparseRows:
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


_AXES = ("row", "column")


def _check_compressed(X: Any, name: str) -> bool:
    """Whether indices rise in the rows of a CSR or BSR, the columns of a CSC matrix."""
    by_column = X.format == "csc"
    axis, other = _AXES[::-1] if by_column else _AXES
    block = X.blocksize if X.format == "bsr" else (1, 1)
    sizes = [length // size for length, size in zip(X.shape, block, strict=True)]
    rows, columns = sizes[::-1] if by_column else sizes
    _check_integers(name, "indptr", X.indptr)
    _check_integers(name, "indices", X.indices)
    entries = 3 if X.format == "bsr" else 1
    if not isinstance(X.data, np.ndarray) or X.data.ndim != entries:
        raise ValueError(
            f"{name}: expected entries in an array of {entries} axes, got"
            f" {type(X.data).__name__} of shape {np.shape(X.data)}"
        )
    indptr = np.ascontiguousarray(X.indptr, dtype=np.int64)
    indices = np.ascontiguousarray(X.indices)
    room = min(len(indices), len(X.data))
    sound = indptr.shape == (rows + 1,) and indptr[0] == 0 and indptr[-1] <= room
    if not sound or (indptr[1:] < indptr[:-1]).any():
        raise ValueError(
            f"{name}: expected an indptr of {rows + 1} numbers that rise from 0 to at"
            f" most the number of entries, {room}; build the matrix anew"
        )
    found = np.empty(2, dtype=np.int64)
    csr_rows.check_csr(0, rows, indptr, indices, columns, found)
    e, rises = found
    if e >= 0:
        i = int(np.searchsorted(indptr, e, side="right")) - 1
        _refuse(name, other, columns, indices[e], f" in {axis} {i}")
    return bool(rises)


def _check_integers(name: str, part: str, array: Any) -> None:
    found = getattr(array, "dtype", type(array).__name__)
    if found not in (np.int32, np.int64):
        raise TypeError(f"{name}: expected {part} of int32 or int64, got {found}")
    if array.ndim != 1:
        raise ValueError(f"{name}: expected flat {part}, got shape {array.shape}")


def _refuse(name: str, kind: str, length: int, got: int, where: str) -> NoReturn:
    raise ValueError(
        f"{name}: expected {kind} indices from 0 to {length - 1}, got {got}{where};"
        " build the matrix anew"
    )
