"""The binary dual as the loop of ``coordinate_descent`` takes it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.svm import binary_hinge
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.linear.descent.coordinate_descent import (
    PATIENCE,
    STILL,
    Parts,
    require_finite_sum,
    squared_norm,
)
from smoothsp.linear.engines.solution import State
from smoothsp.linear.inputs import arrays
from smoothsp.linear.inputs.sparse_matrices import DenseRows, SparseRows

# A margin is off by at most so many roundings times the features that its sample has.
_ROUNDINGS = 4
# What covers the roundings of a length.
_UP = 1 + 1e-9


class BinaryHingeDual:
    """Weights of features, ``w = sum_i s_i a_i x_i`` with ``0 <= a_i <= c_i``.

    Parameters
    ----------
    rows
        The samples.
    signs, bounds, squares
        ``(n,)``: 1 or -1, what multiplies the loss, and the squared norm.
    shrinking
        Whether coefficients that do not move are passed over for a while.
    start
        ``(n, 1)``: coefficients to begin with, or None for 0.
    """

    def __init__(
        self,
        rows: SparseRows | DenseRows,
        signs: NDArray[Any],
        bounds: NDArray[Any],
        squares: NDArray[np.float64],
        shrinking: bool,
        start: NDArray[Any] | None,
    ) -> None:
        dtype = bounds.dtype
        long = squares >= np.finfo(dtype).tiny
        self._rows, self._signs, self._bounds = rows, signs, bounds
        self._squares = squares.astype(dtype)
        self._width = rows.features if isinstance(rows, DenseRows) else 0
        self.dtype = dtype
        self._still = dtype.type(STILL * np.finfo(dtype).eps)
        self._rounding = _ROUNDINGS * float(np.finfo(dtype).eps)
        self._patience = PATIENCE if shrinking else 0
        self.blocks = np.flatnonzero(long & (bounds > 0))
        require_finite_sum(bounds.astype(np.float64))
        self.work = 4 * rows.data.size
        self._zeros = np.zeros(arrays.num_simd_lanes(dtype), dtype=dtype)
        # kernels of dense rows read and write whole vectors
        self._padded = arrays.aligned_zeros(
            arrays.round_up_to_lanes(rows.features, dtype), dtype
        )
        self.weights = self._padded[: rows.features]
        # no weights change the loss of a sample without length
        first = 0 if start is None else np.clip(start[:, 0], 0, bounds)
        self.coefficients = np.where(long, first, bounds).astype(dtype)
        self.waits = np.zeros(len(signs), dtype=np.uint8)
        self.calm = np.zeros(len(signs), dtype=np.uint8)
        self.met, self.num_checked = np.zeros(3), len(signs)
        # of each sample: how far the weights may go before it can have a gap again
        self._reach = np.full(len(signs), -1.0)
        self._path, self._rebuilt = 0.0, False
        self._measured_at = self.weights.copy()
        self._at_stake, self._gaps = np.zeros((2, len(signs)))

    def sweep(self, order: NDArray[np.intp], first: int, last: int) -> None:
        """Solve for the coefficients ``order[first:last]``."""
        binary_hinge.coordinate_descent(
            first,
            last,
            order,
            self._width,
            *self._rows.arrays,
            self._squares,
            self._signs,
            self._bounds,
            self._still,
            self._patience,
            self._zeros,
            self._padded,
            self.coefficients,
            self.waits,
            self.calm,
            self._reach,
            self.met,
        )

    def certify(self) -> Parts:
        """Primal, dual, and the part of the gap that each sample has.

        Samples that cannot have a gap are not looked at.
        """
        moved = np.subtract(self.weights, self._measured_at, dtype=np.float64)
        self._path += _UP * float(np.sqrt(np.dot(moved, moved)))
        self._measured_at[:] = self.weights
        rows = np.flatnonzero(self._reach < self._path)
        self.num_checked = len(rows)
        square = squared_norm(self.weights)
        whole, self._rebuilt = self._rebuilt, False
        loss = np.empty(len(rows) if whole else 0)
        run_rows(
            binary_hinge.compute_gaps,
            len(rows),
            self.work * len(rows) // (2 * len(self._reach)),
            rows,
            self._width,
            *self._rows.arrays,
            self._squares,
            self._signs,
            self._bounds,
            self._path,
            self._rounding,
            np.sqrt(square),
            self._zeros,
            self._padded,
            self.coefficients,
            loss,
            self._at_stake,
            self._gaps,
            self._reach,
        )
        dual = float(self.coefficients.sum(dtype=np.float64)) - square / 2
        if whole:
            primal = square / 2 + float(loss.sum())
        else:
            # losses that were not looked at are linear in the weights
            primal = dual + float(self._gaps.sum())
        return Parts(primal, dual, self._gaps, float(self._at_stake.sum()))

    @property
    def w(self) -> NDArray[Any]:
        """Weights of the features ``(features,)``; a view."""
        return self.weights

    @property
    def variables(self) -> State:
        """Arrays that sweeps change, by name; no copies."""
        return {
            "w": self.w,
            "coefficients": self.coefficients,
            "waits": self.waits,
            "calm": self.calm,
        }

    @property
    def checksum(self) -> int:
        """Checksum of the constant arrays."""
        return arrays.checksum(*self._rows.arrays, self._signs, self._bounds)

    def rebuild(self) -> None:
        """Weights anew from the coefficients; the next gap looks at all samples."""
        self._rebuilt = True
        self._reach[:] = -1
        binary_hinge.weights_from_dual(
            0,
            len(self._signs),
            self._width,
            *self._rows.arrays,
            self._signs,
            self._zeros,
            self.coefficients,
            self._padded,
        )
