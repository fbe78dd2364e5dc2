"""Kernel features by pivoted Cholesky: inner products approximate a kernel."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from smoothsp.linear.inputs import checks

Floats = NDArray[np.float64]

# Points per kernel call for the diagonal: each call computes a square block.
_DIAGONAL_BATCH = 64


class KernelFeatures:
    r"""Features of points whose inner products equal a kernel.

    .. math:: \langle \varphi(x), \varphi(x') \rangle = k(x, x')

    With these features, a linear problem is the problem in the reproducing kernel
    Hilbert space, with the same norm, solvers and certificates.

    Parameters
    ----------
    kernel
        ``kernel(A, B)`` returns ``(len(A), len(B))`` finite numbers of a symmetric,
        positive semidefinite kernel.
    X
        ``(points, ...)``: an array that ``kernel`` accepts, also in part.
    tol
        Pivots are added until the error of all entries of the kernel is at most ``tol``
        times the largest entry, >= 0.
    most
        Maximum number of pivots; None: no limit.

    Attributes
    ----------
    rows
        ``(points, rank)``, float64: features of X.
    pivots
        ``(rank,)``: indices of the pivots in X.
    residual
        Upper bound of the error of all inner products of rows.

    Raises
    ------
    ValueError
        If values of the kernel are not finite, have another shape, or are not positive
        semidefinite.

    Notes
    -----
    Features are the rows of the pivoted Cholesky factor. It takes O(points rank^2) time
    and evaluates ``rank`` columns of the kernel matrix, which is never stored.

    Source: Fine and Scheinberg, "Efficient SVM Training Using Low-Rank Kernel
    Representations", figure 2.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [1.0], [3.0]])
    >>> features = KernelFeatures(lambda A, B: np.exp(-((A - B.T) ** 2)), X)
    >>> features.rows.shape, bool(abs(features.rows[0] @ features.rows[3]) < 1e-3)
    ((4, 3), True)
    """

    def __init__(
        self,
        kernel: Callable[[Any, Any], Any],
        X: Any,
        *,
        tol: float = 1e-12,
        most: int | None = None,
    ) -> None:
        if not callable(kernel):
            raise TypeError(f"kernel: expected a function, got {kernel!r}")
        if not getattr(X, "shape", ()):
            raise TypeError(
                f"X: expected an array (points, ...), got {type(X).__name__}"
            )
        tol, n = checks.as_nonnegative("tol", tol), len(X)
        most = n if most is None else min(checks.as_positive_int("most", most), n)
        self.kernel = kernel
        residual_diagonal = self._kernel_diagonal(X)
        largest = float(residual_diagonal.max(initial=0.0))
        factor = np.zeros((most, n))
        pivots: list[int] = []
        while len(pivots) < most:
            # Largest residual first: for a semidefinite matrix the diagonal bounds all
            # entries.
            rank, pivot = len(pivots), int(residual_diagonal.argmax())
            if not residual_diagonal[pivot] > tol * largest:
                break
            column = (
                self._evaluate_kernel(X, X[pivot : pivot + 1])[:, 0]
                - factor[:rank].T @ factor[:rank, pivot]
            )
            factor[rank] = column / np.sqrt(residual_diagonal[pivot])
            # exact values where rounding leaves small residuals
            factor[rank, pivots] = 0.0
            factor[rank, pivot] = np.sqrt(residual_diagonal[pivot])
            pivots.append(pivot)
            residual_diagonal = residual_diagonal - factor[rank] ** 2
            residual_diagonal[pivots] = 0.0
            if residual_diagonal.min() < -1e-6 * largest:
                raise ValueError(
                    "kernel: expected a positive semidefinite kernel, got"
                    f" {residual_diagonal.min():.3g} as the residual of point"
                    f" {int(residual_diagonal.argmin())}"
                )
            residual_diagonal = np.maximum(residual_diagonal, 0.0)
        self.rows: Floats = np.ascontiguousarray(factor[: len(pivots)].T)
        self.pivots = np.array(pivots, dtype=np.int64)
        self.residual = float(residual_diagonal.max(initial=0.0))
        self._pivot_points = X[self.pivots]

    def transform(self, X: Any) -> Floats:
        """``(points, rank)``: features of new points, by a triangular solve."""
        cross_kernel = self._evaluate_kernel(X, self._pivot_points)
        pivot_factor = self.rows[self.pivots]
        features = solve_triangular(pivot_factor, cross_kernel.T, lower=True)
        return np.ascontiguousarray(features.T)

    def _evaluate_kernel(self, A: Any, B: Any) -> Floats:
        """``(len(A), len(B))``: values of the kernel, validated."""
        if not (len(A) and len(B)):
            return np.zeros((len(A), len(B)))
        try:
            values = checks.as_real_float64(np.asarray(self.kernel(A, B)))
        except TypeError as error:
            raise TypeError(f"kernel: expected real numbers, got {error}") from error
        if values.shape != (len(A), len(B)) or not np.isfinite(values).all():
            raise ValueError(
                f"kernel: expected {(len(A), len(B))} finite numbers, got shape"
                f" {values.shape}, or numbers that are not finite"
            )
        return values

    def _kernel_diagonal(self, X: Any) -> Floats:
        """``(points,)``: ``k(x, x)``, validated."""
        diagonal = np.empty(len(X))
        for start in range(0, len(X), _DIAGONAL_BATCH):
            batch = X[start : start + _DIAGONAL_BATCH]
            diagonal[start : start + _DIAGONAL_BATCH] = self._evaluate_kernel(
                batch, batch
            ).diagonal()
        if diagonal.size and diagonal.min() < 0:
            raise ValueError(
                "kernel: expected a positive semidefinite kernel, got"
                f" {diagonal.min():.3g} of point {int(diagonal.argmin())} with itself"
            )
        return diagonal
