"""Validation of scipy matrices, and CSR or dense rows in the layout of kernels."""

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from smoothsp._kernels.svm import csr_rows


def validate_sparse(X: Any, name: str = "X") -> Any:
    """Return X; a sparse matrix as CSR with ascending columns in each row.

    scipy does not check the indices of a matrix and its conversions write where they
    point. Validate before any conversion. X is not changed.

    Raises
    ------
    ValueError
        If indices are out of range, or the arrays of X are inconsistent.
    TypeError
        If indices are not int32 or int64.
    """
    if not sparse.issparse(X):
        return X
    if X.ndim != 2:
        raise ValueError(f"{name}: expected (samples, features), got shape {X.shape}")
    if X.format in ("csc", "bsr"):
        _check_compressed_indices(X, name)
    elif X.format == "coo":
        for index, length, axis in zip(X.coords, X.shape, _AXES, strict=True):
            _require_index_array(name, f"{axis} indices", index)
            out_of_range = (index < 0) | (index >= length)
            if out_of_range.any():
                _raise_index_out_of_range(
                    name, axis, length, index[out_of_range.argmax()], ""
                )
    if X.format != "csr":
        X = X.tocsr()
    is_sorted = _check_compressed_indices(X, name)
    end = X.indptr[-1]
    if is_sorted and end == len(X.indices) == len(X.data):
        return X
    # sort columns, sum duplicates, and drop entries beyond the last row
    arrays = X.data[:end], X.indices[:end], X.indptr
    canonical = sparse.csr_array(arrays, shape=X.shape, copy=True)
    canonical.sum_duplicates()
    return canonical


def list_arrays(X: Any) -> list[NDArray[Any]]:
    """Return the arrays of a dense or CSR matrix and its shape, for a checksum."""
    arrays = [X.indptr, X.indices, X.data] if sparse.issparse(X) else [X]
    return [*arrays, np.array(X.shape)]


@dataclass(frozen=True)
class SparseRows:
    """CSR rows: sample i has ``data[e]`` at feature ``indices[e]``, 0 elsewhere.

    e runs from ``indptr[i]`` to ``indptr[i + 1]``, exclusive.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    data: NDArray[Any]
    features: int

    @property
    def squared_norms(self) -> NDArray[np.float64]:
        """``(samples,)`` float64: squared norm of each sample."""
        squared_norms = np.empty(len(self.indptr) - 1)
        csr_rows.squared_norms(
            0, len(squared_norms), self.indptr, self.data, squared_norms
        )
        return squared_norms

    @property
    def arrays(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return ``indptr, indices, data``: the order of kernel arguments."""
        return self.indptr, self.indices, self.data


@dataclass(frozen=True)
class DenseRows:
    """Dense rows: sample i has the features ``data[i]``."""

    data: NDArray[Any]

    @property
    def features(self) -> int:
        """Number of features."""
        return int(self.data.shape[1])

    @property
    def squared_norms(self) -> NDArray[np.float64]:
        """``(samples,)`` float64: squared norm of each sample."""
        squared_norms = np.einsum("ij,ij->i", self.data, self.data, dtype=np.float64)
        return np.asarray(squared_norms)

    @property
    def arrays(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return kernel arguments: empty ``indptr`` and ``indices``, flat ``data``."""
        return np.zeros(0, np.int64), np.zeros(0, np.int32), self.data.ravel()


def as_sample_rows(X: Any, intercept_value: float) -> SparseRows | DenseRows:
    """Return rows for kernels: dense if at least half of X is nonzero, else CSR.

    An ``intercept_value`` other than 0 is appended as a constant feature.
    """
    num_nonzeros = X.nnz if sparse.issparse(X) else np.count_nonzero(X)
    # CSR also reads an index per entry: below about half it reads fewer bytes
    if 2 * num_nonzeros < X.shape[0] * X.shape[1]:
        return as_sparse_sample_rows(X, intercept_value)
    X = X.toarray() if sparse.issparse(X) else X
    if intercept_value:
        X = np.insert(X, X.shape[1], intercept_value, axis=1)
    return DenseRows(np.ascontiguousarray(X))


def as_sparse_sample_rows(X: Any, intercept_value: float) -> SparseRows:
    """Return CSR rows for kernels; ``intercept_value`` is a last feature if not 0."""
    X = sparse.csr_array(X)
    if intercept_value:
        column = np.full((X.shape[0], 1), intercept_value, dtype=X.dtype)
        X = sparse.hstack([X, column], format="csr", dtype=X.dtype)
    # narrower indices halve the memory traffic of a product
    fits_int32 = X.shape[1] <= np.iinfo(np.int32).max
    return SparseRows(
        np.ascontiguousarray(X.indptr, dtype=np.int64),
        np.ascontiguousarray(X.indices, dtype=np.int32 if fits_int32 else np.int64),
        np.ascontiguousarray(X.data),
        X.shape[1],
    )


_AXES = ("row", "column")


def _check_compressed_indices(X: Any, name: str) -> bool:
    """Validate the indices of a CSR, BSR or CSC matrix; return whether they ascend.

    The outer axis is the one of ``indptr``: columns for CSC, (block) rows otherwise.
    """
    is_csc = X.format == "csc"
    outer_axis, inner_axis = _AXES[::-1] if is_csc else _AXES
    block = X.blocksize if X.format == "bsr" else (1, 1)
    num_blocks = [length // size for length, size in zip(X.shape, block, strict=True)]
    num_outer, num_inner = num_blocks[::-1] if is_csc else num_blocks
    _require_index_array(name, "indptr", X.indptr)
    _require_index_array(name, "indices", X.indices)
    num_data_axes = 3 if X.format == "bsr" else 1
    if not isinstance(X.data, np.ndarray) or X.data.ndim != num_data_axes:
        raise ValueError(
            f"{name}: expected entries in an array of {num_data_axes} axes, got"
            f" {type(X.data).__name__} of shape {np.shape(X.data)}"
        )
    indptr = np.ascontiguousarray(X.indptr, dtype=np.int64)
    indices = np.ascontiguousarray(X.indices)
    num_entries = min(len(indices), len(X.data))
    is_valid = (
        indptr.shape == (num_outer + 1,)
        and indptr[0] == 0
        and indptr[-1] <= num_entries
    )
    if not is_valid or (indptr[1:] < indptr[:-1]).any():
        raise ValueError(
            f"{name}: expected an indptr of {num_outer + 1} numbers that rise from 0"
            f" to at"
            f" most the number of entries, {num_entries}; build the matrix anew"
        )
    result = np.empty(2, dtype=np.int64)
    csr_rows.check_csr(0, num_outer, indptr, indices, num_inner, result)
    bad_entry, is_sorted = result
    if bad_entry >= 0:
        outer_index = int(np.searchsorted(indptr, bad_entry, side="right")) - 1
        _raise_index_out_of_range(
            name,
            inner_axis,
            num_inner,
            indices[bad_entry],
            f" in {outer_axis} {outer_index}",
        )
    return bool(is_sorted)


def _require_index_array(name: str, array_name: str, array: Any) -> None:
    dtype = getattr(array, "dtype", type(array).__name__)
    if dtype not in (np.int32, np.int64):
        raise TypeError(f"{name}: expected {array_name} of int32 or int64, got {dtype}")
    if array.ndim != 1:
        raise ValueError(f"{name}: expected flat {array_name}, got shape {array.shape}")


def _raise_index_out_of_range(
    name: str, axis: str, axis_length: int, index: int, location: str
) -> NoReturn:
    raise ValueError(
        f"{name}: expected {axis} indices from 0 to {axis_length - 1}, got"
        f" {index}{location};"
        " build the matrix anew"
    )
