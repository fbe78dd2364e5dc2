"""Sparse and dense vectors with one interface, and lists of them in one store."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
State = dict[str, NDArray[Any]]


class SparseVector:
    """Sparse vector: ascending ``columns`` and their ``values``."""

    __slots__ = ("columns", "values")

    def __init__(self, columns: NDArray[Any], values: Floats) -> None:
        self.columns, self.values = columns, values

    @classmethod
    def from_entries(cls, columns: NDArray[Any], values: Floats) -> "SparseVector":
        """Create a vector from unordered entries: sum equal columns, drop zeros."""
        unique_columns, inverse = np.unique(columns, return_inverse=True)
        sums = np.bincount(inverse, values, len(unique_columns))
        # cancelled entries are dropped, so that stored vectors do not fill up
        is_nonzero = sums != 0
        return cls(unique_columns[is_nonzero], sums[is_nonzero])

    def __add__(self, other: "SparseVector") -> "SparseVector":
        columns = np.concatenate([self.columns, other.columns])
        return self.from_entries(columns, np.concatenate([self.values, other.values]))

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
    """Weights ``sum_j factor_j vector_j`` whose sum is not evaluated in advance.

    Products with features use each vector in turn, which saves a pass over all weights.
    """

    terms: tuple[tuple[float, Floats], ...]


def as_vector(psi: Any) -> Vector:
    """Return a CSR row as a ``SparseVector``; a dense vector unchanged."""
    if not hasattr(psi, "indptr"):
        return psi
    return SparseVector(psi.indices, psi.data)


def dot(x: Vector, w: Floats) -> float:
    """``<x, w>``, in time linear in the stored entries of x."""
    if isinstance(x, SparseVector):
        return float(np.dot(x.values, w[x.columns]))
    return float(np.dot(x, w))


def squared_norm(x: Vector) -> float:
    """``|x|^2``."""
    values = x.values if isinstance(x, SparseVector) else x
    return float(np.dot(values, values))


def add(target: Floats, x: Vector) -> None:
    """Compute ``target += x`` in place."""
    if isinstance(x, SparseVector):
        target[x.columns] += x.values
    else:
        target += x


def is_equal(x: Vector, y: Vector) -> bool:
    """Whether all entries are equal."""
    return bool(x == y) if isinstance(x, SparseVector) else bool(np.array_equal(x, y))


class DenseVectorStore:
    """Operations on n dense vectors, stored as a matrix ``(n, width)``."""

    def __init__(self, width: int) -> None:
        self.width = width

    def zero_vector(self) -> Vector:
        """Return one zero vector."""
        return np.zeros(self.width)

    def zeros(self, n: int) -> Any:
        """Return n zero vectors."""
        return np.zeros((n, self.width))

    def scale(self, rows: Any, factor: float) -> Any:
        """Return all vectors multiplied by ``factor``."""
        return rows * factor

    def sum(self, rows: Any) -> Floats:
        """Sum of all vectors, dense ``(width,)``."""
        return np.asarray(rows.sum(0))

    def dot_products(self, rows: Any, w: Floats) -> Floats:
        """``(n,)``: inner product of each vector with w."""
        return np.asarray(rows @ w)

    def save(self, name: str, rows: Any) -> State:
        """Return the vectors as arrays of a state; keys begin with ``name``."""
        return {name: np.array(rows)}

    def load(self, name: str, state: State) -> Any:
        """Return copies of the vectors that ``save`` stored under ``name``."""
        return state[name].copy()

    def shape(self, name: str, state: State) -> tuple[int, ...]:
        """``(n, width)`` of the vectors stored under ``name``; ``()`` without any."""
        return np.shape(state[name]) if name in state else ()


class SparseVectorStore(DenseVectorStore):
    """Operations on n sparse vectors, stored as a list of ``SparseVector``."""

    def zero_vector(self) -> Vector:
        """Return one zero vector."""
        return ZERO

    def zeros(self, n: int) -> Any:
        """Return n zero vectors."""
        return [ZERO] * n

    def scale(self, rows: Any, factor: float) -> Any:
        """Return all vectors multiplied by ``factor``."""
        return [row * factor for row in rows]

    def sum(self, rows: Any) -> Floats:
        """Sum of all vectors, dense ``(width,)``."""
        total = np.zeros(self.width)
        for row in rows:
            add(total, row)
        return total

    def dot_products(self, rows: Any, w: Floats) -> Floats:
        """``(n,)``: inner product of each vector with w."""
        return np.array([dot(row, w) for row in rows])

    def save(self, name: str, rows: Sequence[SparseVector]) -> State:
        """Return the vectors as arrays of a state; keys begin with ``name``."""
        indptr = np.cumsum([0, *(len(row.columns) for row in rows)])
        return {
            f"{name}_indptr": indptr,
            f"{name}_indices": np.concatenate(
                [np.zeros(0, np.int64), *(row.columns for row in rows)]
            ),
            f"{name}_values": np.concatenate(
                [np.zeros(0), *(row.values for row in rows)]
            ),
            f"{name}_width": np.array(self.width),
        }

    def load(self, name: str, state: State) -> Any:
        """Return copies of the vectors that ``save`` stored under ``name``."""
        indptr = state[f"{name}_indptr"]
        columns, values = state[f"{name}_indices"], state[f"{name}_values"]
        return [
            SparseVector(columns[begin:end].copy(), values[begin:end].copy())
            for begin, end in pairwise(indptr)
        ]

    def shape(self, name: str, state: State) -> tuple[int, ...]:
        """``(n, width)`` of the vectors stored under ``name``; ``()`` without any."""
        if f"{name}_indptr" not in state:
            return ()
        return len(state[f"{name}_indptr"]) - 1, int(state[f"{name}_width"])


def make_vector_store(problem: Any) -> DenseVectorStore:
    """Return the store for the psi of a problem: sparse if ``problem.sparse``."""
    store_class = (
        SparseVectorStore if getattr(problem, "sparse", False) else DenseVectorStore
    )
    return store_class(problem.num_weights)
