"""Validation of features, labels, offsets and costs; CSR rows as plain arrays."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from smoothsp.linear.inputs.sparse_matrices import validate_sparse


class Rows(NamedTuple):
    """CSR matrix: row t has ``values[k]`` at column ``indices[k]``.

    k runs from ``indptr[t]`` to ``indptr[t + 1]``; columns ascend within a row.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[Any]
    columns: int

    def select_rows(self, row_indices: NDArray[np.int64]) -> "Rows":
        """Return the rows ``row_indices``, in that order."""
        lengths = np.diff(self.indptr)[row_indices]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        # 0, 1, ... within each selected row, without a loop over rows
        offset_in_row = np.arange(indptr[-1]) - np.repeat(indptr[:-1], lengths)
        entry_indices = np.repeat(self.indptr[row_indices], lengths) + offset_in_row
        return Rows(
            indptr,
            self.indices[entry_indices],
            self.values[entry_indices],
            self.columns,
        )


def as_rows(name: str, matrix: Any) -> Rows:
    """Return a scipy matrix or dense array as validated CSR rows."""
    if not sparse.issparse(matrix):
        dense = np.asarray(matrix)
        if dense.ndim != 2:
            raise ValueError(
                f"{name}: expected (positions, features), got shape {dense.shape}"
            )
        matrix = sparse.csr_matrix(dense)
    matrix = validate_sparse(matrix, name)
    if not 0 < matrix.shape[1] < 2**31:
        raise ValueError(
            f"{name}: expected 1 to 2**31 - 1 columns, got {matrix.shape[1]}"
        )
    if matrix.data.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected real numbers, got {matrix.data.dtype}")
    # float32 stays; integers and bools become float64
    data = matrix.data if matrix.data.dtype == np.float32 else matrix.data.astype(float)
    invalid = ~np.isfinite(data)
    if invalid.any():
        entry = int(invalid.argmax())
        raise ValueError(
            f"{name}: expected finite numbers, got {data[entry]} in row "
            f"{_find_row_of_entry(matrix.indptr, entry)}, column"
            f" {matrix.indices[entry]}"
        )
    return Rows(
        np.ascontiguousarray(matrix.indptr, dtype=np.int64),
        np.ascontiguousarray(matrix.indices, dtype=np.int32),
        np.ascontiguousarray(data),
        int(matrix.shape[1]),
    )


def _find_row_of_entry(indptr: NDArray[Any], entry_index: int) -> int:
    return int(np.searchsorted(indptr, entry_index, side="right")) - 1


def stack_labelled_sequences(
    name: str, sequences: Sequence[Any], labels: Sequence[Any]
) -> Any:
    """Stack feature matrices of sequences after checking them against their labels."""
    if len(sequences) != len(labels):
        raise ValueError(
            f"{name}: expected equal numbers of sequences of features and of labels, "
            f"got {len(sequences)} and {len(labels)}"
        )
    if not len(sequences):
        raise ValueError(f"{name}: expected at least one sequence, got none")
    width = sequences[0].shape[1] if getattr(sequences[0], "ndim", 0) == 2 else None
    for i, (x, y) in enumerate(zip(sequences, labels, strict=True)):
        if getattr(x, "ndim", 0) != 2 or x.shape[1] != width:
            raise ValueError(
                f"{name}: expected (positions, {width}) at sequence {i}, got shape "
                f"{np.shape(x)}"
            )
        if x.shape[0] != len(y):
            raise ValueError(
                f"labels: expected one for each of {x.shape[0]} positions of sequence "
                f"{i}, got {len(y)}"
            )
    return stack_matrices(name, sequences)


def stack_matrices(name: str, matrices: Sequence[Any]) -> Any:
    """Stack matrices vertically, as CSR."""
    csr_matrices = [
        sparse.csr_matrix(validate_sparse(x, f"{name}[{i}]"))
        for i, x in enumerate(matrices)
    ]
    return sparse.vstack(csr_matrices, format="csr")


def as_offsets(offsets: Any, lengths: Any, num_positions: int) -> NDArray[np.int64]:
    """Return ``(n + 1,)`` offsets of sequences, from offsets or lengths."""
    if (offsets is None) == (lengths is None):
        raise TypeError("offsets: expected either offsets or lengths")
    if offsets is None:
        lengths = _as_int64_vector("lengths", lengths)
        bounds = np.concatenate([[0], np.cumsum(lengths)])
    else:
        bounds = _as_int64_vector("offsets", offsets)
    name = "lengths" if offsets is None else "offsets"
    if len(bounds) < 2:
        raise ValueError(f"{name}: expected at least one sequence, got none")
    is_negative = np.diff(bounds) < 0
    if is_negative.any():
        raise ValueError(
            f"{name}: expected at least 0 positions in each sequence, got "
            f"{np.diff(bounds)[is_negative.argmax()]} in sequence"
            f" {is_negative.argmax()}"
        )
    if bounds[0] != 0 or bounds[-1] != num_positions:
        raise ValueError(
            f"{name}: expected sequences that cover the {num_positions} rows of"
            f" features, "
            f"got {bounds[0]} to {bounds[-1]}"
        )
    return bounds


def as_labels(
    labels: Any, num_positions: int, num_labels: int | None
) -> tuple[NDArray[np.int32], int]:
    """Return labels ``(num_positions,)`` as int32, and the number of labels."""
    values = _as_int64_vector("labels", labels)
    if len(values) != num_positions:
        raise ValueError(
            f"labels: expected one for each of {num_positions} rows of features, got "
            f"{len(values)}"
        )
    count = int(values.max(initial=0)) + 1 if num_labels is None else int(num_labels)
    if count < 2:
        raise ValueError(
            "labels: expected at least two different labels, got only one; "
            "set num_labels if some labels do not occur"
        )
    out_of_range = (values < 0) | (values >= count)
    if out_of_range.any():
        raise ValueError(
            f"labels: expected 0 to {count - 1}, got {values[out_of_range.argmax()]}"
            f" at "
            f"position {out_of_range.argmax()}"
        )
    return values.astype(np.int32), count


def as_cost_matrix(cost: Any, num_labels: int) -> NDArray[np.float64]:
    """Return ``cost[gold, predicted]``; by default 1 for each wrong label."""
    if cost is None:
        return 1.0 - np.eye(num_labels)
    matrix = np.asarray(cost, dtype=np.float64)
    if matrix.shape != (num_labels, num_labels):
        raise ValueError(
            f"cost: expected (gold, predicted) = ({num_labels}, {num_labels}), got"
            f" {matrix.shape}"
        )
    if not (np.isfinite(matrix) & (matrix >= 0)).all():
        raise ValueError("cost: expected finite numbers of at least 0")
    if matrix.diagonal().any():
        raise ValueError(
            "cost: expected zeros on the diagonal, the cost of a correct label"
        )
    return matrix


def _as_float64(name: str, value: Any) -> NDArray[np.float64]:
    try:
        return np.asarray(value, dtype=np.float64)
    except (OverflowError, TypeError, ValueError) as error:
        raise TypeError(f"{name}: expected numbers ({error})") from error


def as_cost_scales(cost_scale: Any, num_examples: int) -> NDArray[np.float64]:
    """Return ``(num_examples,)`` positive factors of the costs; by default 1."""
    if cost_scale is None:
        return np.ones(num_examples)
    scales = _as_float64("cost_scale", cost_scale)
    if scales.shape != (num_examples,):
        raise ValueError(
            f"cost_scale: expected one for each of {num_examples} examples, got shape "
            f"{scales.shape}"
        )
    invalid = ~(np.isfinite(scales) & (scales > 0))
    if invalid.any():
        raise ValueError(
            f"cost_scale: expected positive numbers, got {scales[invalid.argmax()]} at "
            f"example {invalid.argmax()}"
        )
    return scales.copy()


def as_loss_scale(loss_scale: Any, num_examples: int) -> NDArray[np.float64]:
    """Return ``(num_examples,)`` factors of the losses, at least 0; by default 1."""
    if loss_scale is None:
        return np.ones(num_examples)
    scales = _as_float64("loss_scale", loss_scale)
    if scales.shape != (num_examples,):
        raise ValueError(
            f"loss_scale: expected one for each of {num_examples} examples, got shape "
            f"{scales.shape}"
        )
    invalid = ~(np.isfinite(scales) & (scales >= 0))
    if invalid.any():
        raise ValueError(
            "loss_scale: expected finite numbers of at least 0, got "
            f"{scales[invalid.argmax()]} at example {invalid.argmax()}"
        )
    return scales.copy()


def _as_int64_vector(name: str, value: Any) -> NDArray[np.int64]:
    array = np.asarray(value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(
            f"{name}: expected a flat array of integers, got {array.dtype} of shape "
            f"{array.shape}"
        )
    return array.astype(np.int64)
