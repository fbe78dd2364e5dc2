"""The binary dual as the loop of ``_descent`` takes it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.multiclass import binary_hinge
from smoothsp.linear.descent.coordinate_descent import Parts
from smoothsp.linear.descent.dual_blocks import PATIENCE, STILL, within_range
from smoothsp.linear.descent.multiclass_duals import measure, squared_norm
from smoothsp.linear.descent.sparse_rows import SparseRows
from smoothsp.linear.engines.solution import State
from smoothsp.linear.inputs import arrays


class BinaryProblem:
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
        rows: SparseRows,
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
        self.dtype = dtype
        self._still = dtype.type(STILL * np.finfo(dtype).eps)
        self._patience = PATIENCE if shrinking else 0
        self.blocks = np.flatnonzero(long & (bounds > 0))
        self._stakes = within_range(bounds.astype(np.float64))
        self.work = 4 * len(rows.data)
        self.weights = arrays.zeros(rows.features, dtype)
        # no weights change the loss of a sample without length
        first = 0 if start is None else np.clip(start[:, 0], 0, bounds)
        self.coefficients = np.where(long, first, bounds).astype(dtype)
        self.waits = np.zeros(len(signs), dtype=np.uint8)
        self.calm = np.zeros(len(signs), dtype=np.uint8)
        self.met = np.zeros(2)

    def sweep(self, order: NDArray[np.intp], first: int, last: int) -> None:
        """Solve for the coefficients ``order[first:last]``."""
        binary_hinge.descend(
            first,
            last,
            order,
            *self._rows.arrays,
            self._squares,
            self._signs,
            self._bounds,
            self._still,
            self._patience,
            self.weights,
            self.coefficients,
            self.waits,
            self.calm,
            self.met,
        )

    def certify(self) -> Parts:
        """Primal, dual, and the part of the gap that each sample has."""
        return measure(
            self._stakes,
            squared_norm(self.weights) / 2,
            binary_hinge.gaps,
            self.work // 2,
            *self._rows.arrays,
            self._signs,
            self._bounds,
            self.weights,
            self.coefficients,
        )

    @property
    def variables(self) -> State:
        """What the sweeps change, by name; no copies."""
        return {
            "weights": self.weights,
            "coefficients": self.coefficients,
            "waits": self.waits,
            "calm": self.calm,
        }

    @property
    def checksum(self) -> int:
        """Of all that stays."""
        return arrays.checksum(*self._rows.arrays, self._signs, self._bounds)

    def rebuild(self) -> None:
        """Weights anew from the coefficients."""
        binary_hinge.rebuild(
            0,
            len(self._signs),
            *self._rows.arrays,
            self._signs,
            self.coefficients,
            self.weights,
        )
