"""Features whose inner products are a kernel."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from smoothsp.linear.inputs import checks

Floats = NDArray[np.float64]

# Rows whose kernel is asked for at once, where only its diagonal is wanted.
_ROWS = 64


class KernelFeatures:
    r"""Features of points whose inner products are a kernel of these points.

    .. math:: \langle \varphi(x), \varphi(x') \rangle = k(x, x')

    With them every linear problem is one in the space of the kernel, with the same
    norm, the same solvers and the same certificates.

    Parameters
    ----------
    kernel
        ``kernel(A, B)`` gives ``(len(A), len(B))`` finite numbers: symmetric, positive
        semidefinite.
    X
        ``(points, ...)``: an array that ``kernel`` takes, rows of it too.
    tol
        Points are added to the base until no entry of the kernel is off by more than
        ``tol`` times the largest, >= 0.
    most
        Points in the base at most; None: as many as it takes.

    Attributes
    ----------
    rows
        ``(points, rank)``, float64: features of X.
    pivots
        ``(rank,)``: the points in the base.
    residual
        No inner product of rows is off by more.

    Raises
    ------
    ValueError
        For numbers that are no kernel: not finite, of another shape, not positive
        semidefinite.

    Notes
    -----
    The pivoted Cholesky factor. O(points rank^2), and ``rank`` columns of the kernel,
    which is never kept as a whole.

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
        left = self._diagonal(X)
        largest = float(left.max(initial=0.0))
        factor = np.zeros((most, n))
        chosen: list[int] = []
        while len(chosen) < most:
            r, p = len(chosen), int(left.argmax())
            if not left[p] > tol * largest:
                break
            column = self._ask(X, X[p : p + 1])[:, 0] - factor[:r].T @ factor[:r, p]
            factor[r] = column / np.sqrt(left[p])
            # what rounding leaves
            factor[r, chosen] = 0.0
            factor[r, p] = np.sqrt(left[p])
            chosen.append(p)
            left = left - factor[r] ** 2
            left[chosen] = 0.0
            if left.min() < -1e-6 * largest:
                raise ValueError(
                    "kernel: expected a positive semidefinite kernel, got"
                    f" {left.min():.3g} as the residual of point {int(left.argmin())}"
                )
            left = np.maximum(left, 0.0)
        self.rows: Floats = np.ascontiguousarray(factor[: len(chosen)].T)
        self.pivots = np.array(chosen, dtype=np.int64)
        self.residual = float(left.max(initial=0.0))
        self._base = X[self.pivots]

    def transform(self, X: Any) -> Floats:
        """``(points, rank)``: features of other points."""
        against = self._ask(X, self._base)
        corner = self.rows[self.pivots]
        found = solve_triangular(corner, against.T, lower=True)
        return np.ascontiguousarray(found.T)

    def _ask(self, A: Any, B: Any) -> Floats:
        if not (len(A) and len(B)):
            return np.zeros((len(A), len(B)))
        try:
            found = checks.as_real_float64(np.asarray(self.kernel(A, B)))
        except TypeError as error:
            raise TypeError(f"kernel: expected real numbers, got {error}") from error
        if found.shape != (len(A), len(B)) or not np.isfinite(found).all():
            raise ValueError(
                f"kernel: expected {(len(A), len(B))} finite numbers, got shape"
                f" {found.shape}, or numbers that are not finite"
            )
        return found

    def _diagonal(self, X: Any) -> Floats:
        found = np.empty(len(X))
        for at in range(0, len(X), _ROWS):
            part = X[at : at + _ROWS]
            found[at : at + _ROWS] = self._ask(part, part).diagonal()
        if found.size and found.min() < 0:
            raise ValueError(
                "kernel: expected a positive semidefinite kernel, got"
                f" {found.min():.3g} of point {int(found.argmin())} with itself"
            )
        return found
