"""Least squares: the mean of squared residuals."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.inputs import arrays
from smoothsp.linear.inputs.sparse_matrices import list_arrays
from smoothsp.linear.problems.binary import as_float64_matrix

Floats = NDArray[np.float64]


class LeastSquaresProblem:
    r"""Mean square of residuals, which is smooth.

    .. math:: R(w) = \tfrac1n \sum_i (y_i - \langle x_i, w \rangle)^2

    With penalties this is the elastic net. Solve it with :class:`CoordinateDescent`, or
    with ``AGM(lam=..., l1=..., loss="likelihood")``.

    Parameters
    ----------
    X
        ``(n, features)``: dense, or sparse of any format; kept as float64, copied.
    y
        ``(n,)``, finite.

    Raises
    ------
    ValueError
        If numbers are not finite, or shapes do not fit.

    Notes
    -----
    Source: Zhang, Saha and Vishwanathan, "Regularized Risk Minimization by Nesterov's
    Accelerated Gradient Methods", example 6 and eq. (52).

    Examples
    --------
    >>> import numpy as np
    >>> problem = LeastSquaresProblem(np.eye(2), [1.0, 3.0])
    >>> problem.likelihood(np.zeros(2))[0]
    5.0
    """

    # in messages
    called = "X"

    def __init__(self, X: Any, y: Any) -> None:
        self.X = as_float64_matrix("X", X)
        self._XT = self.X.T
        self.num_weights = int(self.X.shape[1])
        self.y = np.array(y, dtype=np.float64)
        if self.y.shape != (self.X.shape[0],):
            raise ValueError(
                f"y: expected ({self.X.shape[0]},) numbers, got {self.y.shape}"
            )
        if not np.isfinite(self.y).all():
            i = int((~np.isfinite(self.y)).argmax())
            raise ValueError(f"y: expected finite numbers, got {self.y[i]} at {i}")

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.y)

    @cached_property
    def checksum(self) -> int:
        """Checksum of samples and targets; recognises the state of another problem."""
        return arrays.checksum(*list_arrays(self.X), self.y)

    def likelihood(self, w: Floats) -> tuple[float, Floats]:
        """The mean square, and its gradient."""
        residuals = np.asarray(self.X @ w) - self.y
        gradient = np.asarray(self._XT @ residuals) * (2 / len(residuals))
        return float(residuals @ residuals) / len(residuals), gradient

    risk = likelihood
