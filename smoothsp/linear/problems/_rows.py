"""Checks of features, labels and costs, and sparse rows as plain arrays."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from smoothsp.linear.inputs.sparse_matrices import validate_sparse


class Rows(NamedTuple):
    """Sparse rows: row t has ``values[k]`` at column ``indices[k]``.

    k runs from ``indptr[t]`` to ``indptr[t + 1]``, and columns rise within a row.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[Any]
    columns: int

    def take(self, chosen: NDArray[np.int64]) -> "Rows":
        """The rows ``chosen``, in that order."""
        lengths = np.diff(self.indptr)[chosen]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        within = np.arange(indptr[-1]) - np.repeat(indptr[:-1], lengths)
        entries = np.repeat(self.indptr[chosen], lengths) + within
        return Rows(indptr, self.indices[entries], self.values[entries], self.columns)


def as_rows(name: str, given: Any) -> Rows:
    """A scipy matrix, or a dense array, as checked rows."""
    if not sparse.issparse(given):
        dense = np.asarray(given)
        if dense.ndim != 2:
            raise ValueError(
                f"{name}: expected (positions, features), got shape {dense.shape}"
            )
        given = sparse.csr_matrix(dense)
    given = validate_sparse(given, name)
    if not 0 < given.shape[1] < 2**31:
        raise ValueError(
            f"{name}: expected 1 to 2**31 - 1 columns, got {given.shape[1]}"
        )
    if given.data.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected real numbers, got {given.data.dtype}")
    data = given.data if given.data.dtype == np.float32 else given.data.astype(float)
    wrong = ~np.isfinite(data)
    if wrong.any():
        k = int(wrong.argmax())
        raise ValueError(
            f"{name}: expected finite numbers, got {data[k]} in row "
            f"{_row_of(given.indptr, k)}, column {given.indices[k]}"
        )
    return Rows(
        np.ascontiguousarray(given.indptr, dtype=np.int64),
        np.ascontiguousarray(given.indices, dtype=np.int32),
        np.ascontiguousarray(data),
        int(given.shape[1]),
    )


def _row_of(indptr: NDArray[Any], entry: int) -> int:
    return int(np.searchsorted(indptr, entry, side="right")) - 1


def stack_labelled_sequences(
    name: str, given: Sequence[Any], labels: Sequence[Any]
) -> Any:
    """Sequences one below the other, once each fits its labels."""
    if len(given) != len(labels):
        raise ValueError(
            f"{name}: expected as many sequences of features as of labels, got "
            f"{len(given)} and {len(labels)}"
        )
    if not len(given):
        raise ValueError(f"{name}: expected at least one sequence, got none")
    width = given[0].shape[1] if getattr(given[0], "ndim", 0) == 2 else None
    for i, (x, y) in enumerate(zip(given, labels, strict=True)):
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
    return stack_matrices(name, given)


def stack_matrices(name: str, given: Sequence[Any]) -> Any:
    """Matrices one below the other."""
    parts = [
        sparse.csr_matrix(validate_sparse(x, f"{name}[{i}]"))
        for i, x in enumerate(given)
    ]
    return sparse.vstack(parts, format="csr")


def as_offsets(offsets: Any, lengths: Any, positions: int) -> NDArray[np.int64]:
    """Offsets of sequences, from offsets or lengths."""
    if (offsets is None) == (lengths is None):
        raise TypeError("offsets: expected either offsets or lengths")
    if offsets is None:
        lengths = _integers("lengths", lengths)
        found = np.concatenate([[0], np.cumsum(lengths)])
    else:
        found = _integers("offsets", offsets)
    name = "lengths" if offsets is None else "offsets"
    if len(found) < 2:
        raise ValueError(f"{name}: expected at least one sequence, got none")
    short = np.diff(found) < 0
    if short.any():
        raise ValueError(
            f"{name}: expected at least 0 positions in each sequence, got "
            f"{np.diff(found)[short.argmax()]} in sequence {short.argmax()}"
        )
    if found[0] != 0 or found[-1] != positions:
        raise ValueError(
            f"{name}: expected sequences that cover the {positions} rows of features, "
            f"got {found[0]} to {found[-1]}"
        )
    return found


def as_labels(
    labels: Any, positions: int, num_labels: int | None
) -> tuple[NDArray[np.int32], int]:
    """Labels, and how many there are."""
    found = _integers("labels", labels)
    if len(found) != positions:
        raise ValueError(
            f"labels: expected one for each of {positions} rows of features, got "
            f"{len(found)}"
        )
    count = int(found.max(initial=0)) + 1 if num_labels is None else int(num_labels)
    if count < 2:
        raise ValueError(
            "labels: expected at least two different labels, got only one; "
            "num_labels says how many there are if not all occur"
        )
    wrong = (found < 0) | (found >= count)
    if wrong.any():
        raise ValueError(
            f"labels: expected 0 to {count - 1}, got {found[wrong.argmax()]} at "
            f"position {wrong.argmax()}"
        )
    return found.astype(np.int32), count


def as_cost_matrix(cost: Any, labels: int) -> NDArray[np.float64]:
    """``cost[gold, guessed]``, by default 1 for each wrong label."""
    if cost is None:
        return 1.0 - np.eye(labels)
    found = np.asarray(cost, dtype=np.float64)
    if found.shape != (labels, labels):
        raise ValueError(
            f"cost: expected (gold, guessed) = ({labels}, {labels}), got {found.shape}"
        )
    if not (np.isfinite(found) & (found >= 0)).all():
        raise ValueError("cost: expected finite numbers of at least 0")
    if found.diagonal().any():
        raise ValueError(
            "cost: expected zeros on the diagonal, the cost of a correct label"
        )
    return found


def _numbers(name: str, value: Any) -> NDArray[np.float64]:
    try:
        return np.asarray(value, dtype=np.float64)
    except (OverflowError, TypeError, ValueError) as error:
        raise TypeError(f"{name}: expected numbers, got others ({error})") from error


def as_cost_scale(cost_scale: Any, examples: int) -> NDArray[np.float64]:
    """Factors of the costs of each example."""
    if cost_scale is None:
        return np.ones(examples)
    found = _numbers("cost_scale", cost_scale)
    if found.shape != (examples,):
        raise ValueError(
            f"cost_scale: expected one for each of {examples} examples, got shape "
            f"{found.shape}"
        )
    wrong = ~(np.isfinite(found) & (found > 0))
    if wrong.any():
        raise ValueError(
            f"cost_scale: expected positive numbers, got {found[wrong.argmax()]} at "
            f"example {wrong.argmax()}"
        )
    return found.copy()


def as_loss_scale(loss_scale: Any, examples: int) -> NDArray[np.float64]:
    """Factors of the losses of each example."""
    if loss_scale is None:
        return np.ones(examples)
    found = _numbers("loss_scale", loss_scale)
    if found.shape != (examples,):
        raise ValueError(
            f"loss_scale: expected one for each of {examples} examples, got shape "
            f"{found.shape}"
        )
    wrong = ~(np.isfinite(found) & (found >= 0))
    if wrong.any():
        raise ValueError(
            "loss_scale: expected finite numbers of at least 0, got "
            f"{found[wrong.argmax()]} at example {wrong.argmax()}"
        )
    return found.copy()


def _integers(name: str, given: Any) -> NDArray[np.int64]:
    found = np.asarray(given)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise TypeError(
            f"{name}: expected a flat array of integers, got {found.dtype} of shape "
            f"{found.shape}"
        )
    return found.astype(np.int64)
