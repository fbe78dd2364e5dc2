r"""Dual of the binary hinge SVM.

.. math:: \max_{0 \le a \le c} \sum_i a_i - \tfrac12 \|w\|^2, \qquad
    w = \sum_i s_i a_i x_i
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.svm import binary_hinge
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.linear.descent.coordinate_descent import (
    MAX_SKIP_DOUBLINGS,
    ZERO_VIOLATION_ULPS,
    CertificateTerms,
    require_finite_sum,
    squared_norm,
)
from smoothsp.linear.engines.solution import State
from smoothsp.linear.inputs import arrays
from smoothsp.linear.inputs.sparse_matrices import DenseRows, SparseRows

# Rounding error of a margin, in ulps per feature of its sample.
_MARGIN_ULPS = 4
# Upper bounds of distances are multiplied by this: their own computation is rounded.
_ROUND_UP_FACTOR = 1 + 1e-9


class BinaryHingeDual:
    """Dual variables ``0 <= a_i <= c_i`` and weights ``w = sum_i s_i a_i x_i``.

    Parameters
    ----------
    rows
        Samples x.
    signs, bounds, squared_norms
        ``(n,)``: labels s of 1 or -1, factors c of the losses, squared norms of x.
    shrinking
        Whether sweeps skip coefficients that did not move at their last visits.
    start
        ``(n, 1)``: initial coefficients, or None for 0.
    """

    def __init__(
        self,
        rows: SparseRows | DenseRows,
        signs: NDArray[Any],
        bounds: NDArray[Any],
        squared_norms: NDArray[np.float64],
        shrinking: bool,
        start: NDArray[Any] | None,
    ) -> None:
        dtype = bounds.dtype
        is_nonzero = squared_norms >= np.finfo(dtype).tiny
        self._rows, self._signs, self._bounds = rows, signs, bounds
        self._squared_norms = squared_norms.astype(dtype)
        self._num_dense_features = rows.features if isinstance(rows, DenseRows) else 0
        self.dtype = dtype
        self._zero_violation_tol = dtype.type(ZERO_VIOLATION_ULPS * np.finfo(dtype).eps)
        self._margin_tolerance = _MARGIN_ULPS * float(np.finfo(dtype).eps)
        self._max_skip_doublings = MAX_SKIP_DOUBLINGS if shrinking else 0
        self.blocks = np.flatnonzero(is_nonzero & (bounds > 0))
        require_finite_sum(bounds.astype(np.float64))
        self.work = 4 * rows.data.size
        self._zero_vector = np.zeros(arrays.num_simd_lanes(dtype), dtype=dtype)
        # Kernels of dense rows read and write whole SIMD vectors.
        self._padded_weights = arrays.aligned_zeros(
            arrays.round_up_to_lanes(rows.features, dtype), dtype
        )
        self.weights = self._padded_weights[: rows.features]
        # The loss of a sample of norm 0 is the same for all weights: a_i = c_i.
        start_coefficients = 0 if start is None else np.clip(start[:, 0], 0, bounds)
        self.coefficients = np.where(is_nonzero, start_coefficients, bounds).astype(
            dtype
        )
        self.skip_counts = np.zeros(len(signs), dtype=np.uint8)
        self.idle_sweeps = np.zeros(len(signs), dtype=np.uint8)
        self.sweep_stats, self.num_checked = np.zeros(3), len(signs)
        # Distance |w - w_0| from the last certificate within which sample i has no gap;
        # -1 for samples that the next certificate must evaluate.
        self._recheck_radius = np.full(len(signs), -1.0)
        self._path_length, self._check_all = 0.0, False
        self._weights_at_certificate = self.weights.copy()
        self._losses_at_zero, self._gaps = np.zeros((2, len(signs)))

    def sweep(self, order: NDArray[np.intp], first: int, last: int) -> None:
        """Minimise over each of the coefficients ``order[first:last]``, in order."""
        binary_hinge.coordinate_descent(
            first,
            last,
            order,
            self._num_dense_features,
            *self._rows.arrays,
            self._squared_norms,
            self._signs,
            self._bounds,
            self._zero_violation_tol,
            self._max_skip_doublings,
            self._zero_vector,
            self._padded_weights,
            self.coefficients,
            self.skip_counts,
            self.idle_sweeps,
            self._recheck_radius,
            self.sweep_stats,
        )

    def certify(self) -> CertificateTerms:
        """Compute primal, dual and the gap of each sample.

        Samples whose recheck radius exceeds the distance that w moved have gap 0 and
        are not evaluated.
        """
        displacement = np.subtract(
            self.weights, self._weights_at_certificate, dtype=np.float64
        )
        self._path_length += _ROUND_UP_FACTOR * float(
            np.sqrt(np.dot(displacement, displacement))
        )
        self._weights_at_certificate[:] = self.weights
        # A sample above the radius kept its gap 0: margins move by at most |x_i| |w -
        # w_0|.
        rows = np.flatnonzero(self._recheck_radius < self._path_length)
        self.num_checked = len(rows)
        squared_norm_w = squared_norm(self.weights)
        checks_all, self._check_all = self._check_all, False
        loss = np.empty(len(rows) if checks_all else 0)
        run_rows(
            binary_hinge.compute_gaps,
            len(rows),
            self.work * len(rows) // (2 * len(self._recheck_radius)),
            rows,
            self._num_dense_features,
            *self._rows.arrays,
            self._squared_norms,
            self._signs,
            self._bounds,
            self._path_length,
            self._margin_tolerance,
            np.sqrt(squared_norm_w),
            self._zero_vector,
            self._padded_weights,
            self.coefficients,
            loss,
            self._losses_at_zero,
            self._gaps,
            self._recheck_radius,
        )
        dual = float(self.coefficients.sum(dtype=np.float64)) - squared_norm_w / 2
        if checks_all:
            primal = squared_norm_w / 2 + float(loss.sum())
        else:
            # The duality gap is the sum of the gaps of samples: no loss is needed.
            primal = dual + float(self._gaps.sum())
        return CertificateTerms(
            primal, dual, self._gaps, float(self._losses_at_zero.sum())
        )

    @property
    def w(self) -> NDArray[Any]:
        """Weights of the features, a view ``(features,)``."""
        return self.weights

    @property
    def variables(self) -> State:
        """Arrays that sweeps change, by their names in saved states; no copies."""
        return {
            "w": self.w,
            "coefficients": self.coefficients,
            "waits": self.skip_counts,
            "calm": self.idle_sweeps,
        }

    @property
    def checksum(self) -> int:
        """Checksum of the constant arrays."""
        return arrays.checksum(*self._rows.arrays, self._signs, self._bounds)

    def rebuild_from_duals(self) -> None:
        """Recompute w from the coefficients; the next certificate checks all rows."""
        self._check_all = True
        self._recheck_radius[:] = -1
        binary_hinge.weights_from_dual(
            0,
            len(self._signs),
            self._num_dense_features,
            *self._rows.arrays,
            self._signs,
            self._zero_vector,
            self.coefficients,
            self._padded_weights,
        )
