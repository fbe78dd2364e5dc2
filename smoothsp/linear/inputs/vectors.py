"""Vectors of which few entries are not zero, and the plain ones, by the same words."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
State = dict[str, NDArray[Any]]


class SparseVector:
    """A vector as its entries: columns that rise, and their values."""

    __slots__ = ("columns", "values")

    def __init__(self, columns: NDArray[Any], values: Floats) -> None:
        self.columns, self.values = columns, values

    @classmethod
    def summed(cls, columns: NDArray[Any], values: Floats) -> "SparseVector":
        """Sum entries of equal columns and drop zeros; entries may have any order."""
        found, at = np.unique(columns, return_inverse=True)
        sums = np.bincount(at, values, len(found))
        some = sums != 0
        return cls(found[some], sums[some])

    def __add__(self, other: "SparseVector") -> "SparseVector":
        columns = np.concatenate([self.columns, other.columns])
        return self.summed(columns, np.concatenate([self.values, other.values]))

    def __sub__(self, other: "SparseVector") -> "SparseVector":
        return self + -other

    def __neg__(self) -> "SparseVector":
        return SparseVector(self.columns, -self.values)

    def __mul__(self, factor: float) -> "SparseVector":
        return SparseVector(self.columns, self.values * factor)

    __rmul__ = __mul__

    def __truediv__(self, factor: float) -> "SparseVector":
        return SparseVector(self.columns, self.values / factor)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SparseVector) and bool(
            np.array_equal(self.columns, other.columns)
            and np.array_equal(self.values, other.values)
        )

    __hash__ = None  # type: ignore[assignment]


Vector = Any
ZERO = SparseVector(np.zeros(0, np.int64), np.zeros(0))


class LazyCombination(NamedTuple):
    """Weights that are a sum of factors times vectors, added up where they are read."""

    terms: tuple[tuple[float, Floats], ...]


def as_vector(psi: Any) -> Vector:
    """A CSR row as its entries; anything else as it is."""
    if not hasattr(psi, "indptr"):
        return psi
    return SparseVector(psi.indices, psi.data)


def dot(x: Vector, w: Floats) -> float:
    """``<x, w>``, for what the entries of x cost."""
    if isinstance(x, SparseVector):
        return float(np.dot(x.values, w[x.columns]))
    return float(np.dot(x, w))


def squared_norm(x: Vector) -> float:
    """``|x|^2``."""
    values = x.values if isinstance(x, SparseVector) else x
    return float(np.dot(values, values))


def add(target: Floats, x: Vector) -> None:
    """``target += x``."""
    if isinstance(x, SparseVector):
        target[x.columns] += x.values
    else:
        target += x


def is_equal(x: Vector, y: Vector) -> bool:
    """Whether all entries are the same."""
    return bool(x == y) if isinstance(x, SparseVector) else bool(np.array_equal(x, y))


class DenseVectorStore:
    """Rows that are plain vectors: a matrix."""

    def __init__(self, width: int) -> None:
        self.width = width

    def zero(self) -> Vector:
        """One row of zeros."""
        return np.zeros(self.width)

    def zeros(self, n: int) -> Any:
        """N of them."""
        return np.zeros((n, self.width))

    def scaled(self, rows: Any, factor: float) -> Any:
        """Each times a number."""
        return rows * factor

    def total(self, rows: Any) -> Floats:
        """Their sum."""
        return np.asarray(rows.sum(0))

    def products(self, rows: Any, w: Floats) -> Floats:
        """The product of each with w."""
        return np.asarray(rows @ w)

    def save(self, name: str, rows: Any) -> State:
        """Save as arrays."""
        return {name: np.array(rows)}

    def load(self, name: str, state: State) -> Any:
        """The rows that were saved."""
        return state[name].copy()

    def shape(self, name: str, state: State) -> tuple[int, ...]:
        """Shape of the saved row."""
        return np.shape(state[name]) if name in state else ()


class SparseVectorStore(DenseVectorStore):
    """Rows of few entries: a list."""

    def zero(self) -> Vector:
        """One row of zeros."""
        return ZERO

    def zeros(self, n: int) -> Any:
        """N of them."""
        return [ZERO] * n

    def scaled(self, rows: Any, factor: float) -> Any:
        """Each times a number."""
        return [row * factor for row in rows]

    def total(self, rows: Any) -> Floats:
        """Their sum."""
        found = np.zeros(self.width)
        for row in rows:
            add(found, row)
        return found

    def products(self, rows: Any, w: Floats) -> Floats:
        """The product of each with w."""
        return np.array([dot(row, w) for row in rows])

    def save(self, name: str, rows: Sequence[SparseVector]) -> State:
        """Save as arrays."""
        ends = np.cumsum([0, *(len(row.columns) for row in rows)])
        return {
            f"{name}_indptr": ends,
            f"{name}_indices": np.concatenate(
                [np.zeros(0, np.int64), *(row.columns for row in rows)]
            ),
            f"{name}_values": np.concatenate(
                [np.zeros(0), *(row.values for row in rows)]
            ),
            f"{name}_width": np.array(self.width),
        }

    def load(self, name: str, state: State) -> Any:
        """The rows that were saved."""
        ends = state[f"{name}_indptr"]
        columns, values = state[f"{name}_indices"], state[f"{name}_values"]
        return [
            SparseVector(columns[a:b].copy(), values[a:b].copy())
            for a, b in pairwise(ends)
        ]

    def shape(self, name: str, state: State) -> tuple[int, ...]:
        """Shape of the saved row."""
        if f"{name}_indptr" not in state:
            return ()
        return len(state[f"{name}_indptr"]) - 1, int(state[f"{name}_width"])


def make_vector_store(problem: Any) -> DenseVectorStore:
    """Rows of the kind that corners of a problem use."""
    kind = SparseVectorStore if getattr(problem, "sparse", False) else DenseVectorStore
    return kind(problem.num_weights)
