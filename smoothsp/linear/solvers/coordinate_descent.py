"""Coordinate descent for the elastic net, with a duality gap."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from smoothsp._kernels.linear import elastic_net
from smoothsp.linear.engines.run_monitor import RunMonitor, Tolerance, check_limits
from smoothsp.linear.engines.runner import Solver, run_solver
from smoothsp.linear.engines.solution import (
    Callback,
    Solution,
    State,
    check_start_weights,
)
from smoothsp.linear.inputs import checks
from smoothsp.linear.problems.least_squares import LeastSquaresProblem

Floats = NDArray[np.float64]

# Sweeps over nonzero weights in a pass. A sweep reads the features of these weights;
# with stored products it costs O(features) for each weight that changes.
_MAX_SWEEPS, _MAX_GRAM_SWEEPS = 10, 100
# Products X'X are stored if computing them costs at most this many sweeps.
_GRAM_COST_SWEEPS = 100
# Rounding error of a sum, relative to the magnitude of its terms.
_RELATIVE_ROUNDING = 16 * float(np.finfo(np.float64).eps)


class CoordinateDescent:
    r"""Coordinate descent for the elastic net of a :class:`LeastSquaresProblem`.

    .. math:: P(w) = \tfrac1n \|y - X w\|^2 + l_1 \|w\|_1 + \tfrac{\lambda}{2} \|w\|^2

    Parameters
    ----------
    lam
        lambda, at least 0.
    l1
        Strength of the absolute values, at least 0. ``lam`` or ``l1`` must be positive.
    products
        If True, store the Gram matrix of the features, ``(features, features)``. A
        weight that changes then costs O(features), and a weight that does not change
        costs nothing. None: True if the matrix has at most as much memory as X and
        costs at most a hundred sweeps.
    tol
        The gap at which to stop, >= 0.
    certify_every
        Passes between certificates; each costs two products with X.
    max_passes, max_seconds, callback, progress
        As in :class:`BCFW`. A pass is a sweep over all features, followed by sweeps
        over the features with nonzero weights. ``oracle_calls`` counts n for each
        sweep.

    Notes
    -----
    The lower bound is the better of two. The first takes the residuals as dual
    variables. The second takes lambda as additional samples, and scales the residuals
    until they are feasible. Up to rounding, ``dual`` never falls and ``primal`` never
    rises.

    Source: Friedman, Hastie and Tibshirani, "Regularization Paths for Generalized
    Linear Models via Coordinate Descent", section 2. The second bound is that of
    Fercoq, Gramfort and Salmon, "Mind the duality gap: safer rules for the Lasso",
    section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import LeastSquaresProblem
    >>> problem = LeastSquaresProblem(np.eye(2), [1.0, 3.0])
    >>> CoordinateDescent(lam=1.0, l1=1.0, tol=1e-9).solve(problem).w.tolist()
    [0.0, 1.0]
    """

    def __init__(
        self,
        *,
        lam: float,
        l1: float = 0.0,
        products: bool | None = None,
        tol: float | Tolerance = 1e-4,
        certify_every: int = 1,
        max_passes: int = 10_000,
        max_seconds: float | None = None,
        callback: Callback | None = None,
        progress: bool | None = None,
    ) -> None:
        self.lam = checks.as_nonnegative("lam", lam)
        self.l1 = checks.as_nonnegative("l1", l1)
        if not (self.lam or self.l1):
            raise ValueError("lam: expected a positive number if l1 is 0, got 0")
        if products is not None:
            products = checks.as_bool("products", products)
        self.products = products
        self.certify_every = checks.as_positive_int("certify_every", certify_every)
        self._limits = check_limits(
            "CoordinateDescent", tol, max_passes, max_seconds, callback, progress
        )

    def solve(
        self,
        problem: LeastSquaresProblem,
        start: Solution | NDArray[np.float64] | None = None,
        resume: State | None = None,
    ) -> Solution:
        """Minimise until the gap is small enough, or the budget is used up.

        Parameters
        ----------
        problem
            Problem to solve. Dense features are copied to sparse columns if products
            are not stored.
        start
            A solution, or weights, to start from; by default 0.
        resume
            The ``state`` of a solution of this solver; the run continues bit for bit.

        Returns
        -------
        Solution
            Ctrl-C does not raise; it returns the current weights.
        """
        if not isinstance(problem, LeastSquaresProblem):
            raise TypeError(
                "problem: expected a LeastSquaresProblem, got"
                f" {type(problem).__name__}; use AGM for other problems"
            )
        # The clock includes the products computed below.
        monitor = RunMonitor(self._limits, problem)
        stores_products = self.products
        if stores_products is None:
            stores_products = _should_store_products(problem.X)
        descent_run = _CoordinateDescentRun(
            problem, self.lam, self.l1, stores_products, self.certify_every
        )
        settings = (
            f"CoordinateDescent lam={self.lam!r} l1={self.l1!r}"
            f" products={stores_products}"
        )
        return run_solver(descent_run, monitor, settings, start, resume)


def _should_store_products(X: Any) -> bool:
    n, d = X.shape
    if not sparse.issparse(X):
        # X'X costs as many operations as d / 2 sweeps; BLAS is assumed
        # to be ten times as fast per operation.
        return bool(d <= min(n, 10 * _GRAM_COST_SWEEPS))
    # Row i adds length_i^2 / 2 products; float64, as squares overflow int32.
    lengths = np.diff(X.indptr).astype(np.float64)
    return bool(d * d <= X.nnz and lengths @ lengths <= 2 * _GRAM_COST_SWEEPS * X.nnz)


class _CoordinateDescentRun(Solver):
    compiled = certify_on_interrupt = True
    passes = calls = 0

    def __init__(
        self,
        problem: LeastSquaresProblem,
        lam: float,
        l1: float,
        stores_products: bool,
        certify_every: int,
    ) -> None:
        self.problem, self.lam, self.l1, self.certify_every = (
            problem,
            lam,
            l1,
            certify_every,
        )
        X, n = problem.X, len(problem)
        self.scale, self.stores_products = 2 / n, stores_products
        self.dual = -math.inf
        self.columns: Any = (np.zeros(0, np.int32),) * 2 + (np.zeros(0),)
        self.products = np.zeros((0, 0))
        if stores_products:
            with np.errstate(over="ignore", invalid="ignore"):
                self.products = _compute_products(X, self.scale)
            self.scaled_squared_norms = self.products.diagonal().copy()
            self.columns = np.zeros(X.shape[1] + 1, np.int32), *self.columns[1:]
        else:
            columns = sparse.csc_array(X)
            self.columns = columns.indptr, columns.indices, columns.data
            with np.errstate(over="ignore"):
                squared_norms = columns.multiply(columns).sum(axis=0)
            self.scaled_squared_norms = self.scale * np.asarray(squared_norms)
        if not np.isfinite(self.scaled_squared_norms).all():
            column = int((~np.isfinite(self.scaled_squared_norms)).argmax())
            raise ValueError(
                "X: expected columns whose squared norm fits float64, got"
                f" {self.scaled_squared_norms[column]} in column {column}; scale the"
                " features"
            )
        self._set_weights(np.zeros(problem.num_weights))

    def _set_weights(self, w: Floats) -> None:
        """Set w and recompute the residual, or with stored products X' times it."""
        self.w, residual = w, self._compute_residual(w)
        self.residual = (
            self.scale * self.problem._XT @ residual
            if self.stores_products
            else residual
        )

    def _compute_residual(self, w: Floats) -> Floats:
        return np.asarray(self.problem.y - self.problem.X @ w)

    def begin(self, start: Any) -> None:
        """Start from weights."""
        self._set_weights(check_start_weights(start, len(self.w)))

    def advance(self) -> str | None:
        sweeps = np.zeros(1, dtype=np.int64)
        elastic_net.coordinate_descent(
            self.products,
            *self.columns,
            self.scaled_squared_norms,
            self.scale,
            np.full(len(self.w), self.l1),
            self.lam,
            _MAX_GRAM_SWEEPS if self.stores_products else _MAX_SWEEPS,
            np.zeros(1),
            self.w,
            self.residual,
            sweeps,
        )
        if not sweeps[0]:
            return "no weight changes by more than rounding error"
        self.passes += 1
        self.calls += int(sweeps[0]) * len(self.problem)
        return None

    def due(self) -> bool:
        return self.passes % self.certify_every == 0

    def certify(self) -> tuple[float, float, float]:
        w, y, lam, l1 = self.w, self.problem.y, self.lam, self.l1
        residual = self._compute_residual(w)
        self.calls += len(y)
        mean_squared_residual = float(residual @ residual) / len(residual)
        quadratic_terms = mean_squared_residual + lam / 2 * float(w @ w)
        primal = quadratic_terms + l1 * float(np.abs(w).sum())
        # Dual variables 2/n (y - X w), scaled by the maximiser of the dual along them,
        # clipped to the largest feasible multiple: |X' theta - lambda w| <= l1.
        dual_linear_term, correlations = (
            self.scale * float(residual @ y),
            self.scale * self.problem._XT @ residual,
        )
        max_correlation = float(np.abs(correlations - lam * w).max())
        max_scale = (
            l1 * (1 - _RELATIVE_ROUNDING) / max_correlation
            if max_correlation
            else math.inf
        )
        scale = (
            min(dual_linear_term / (2 * quadratic_terms), max_scale)
            if dual_linear_term > 0 and quadratic_terms
            else 0.0
        )
        lower_bound = scale * dual_linear_term - scale**2 * quadratic_terms
        if lam:
            # With lambda > 0 every residual is feasible: sum_j [|x_j' theta| - l1]_+^2
            # / (2 lambda).
            excess = np.maximum(np.abs(correlations) - l1, 0.0)
            lower_bound = max(
                lower_bound,
                dual_linear_term
                - mean_squared_residual
                - float(excess @ excess) / (2 * lam),
            )
        lower_bound -= _RELATIVE_ROUNDING * (abs(dual_linear_term) + quadratic_terms)
        self.dual = max(self.dual, lower_bound)
        return primal, self.dual, max(primal - self.dual, 0.0)

    def weights(self) -> Floats:
        return self.w.copy()

    def state(self) -> State:
        return {
            "w": self.w.copy(),
            "rest": self.residual.copy(),
            "dual": np.array(self.dual),
            "calls": np.array(self.calls),
        }

    def load(self, state: State) -> None:
        w, residual = np.empty_like(self.w), np.empty_like(self.residual)
        self.w, self.residual = checks.fill_from_state(state, w=w, rest=residual)
        self.dual, self.calls = float(state["dual"]), int(state["calls"])
        self.passes = int(state["passes"])


def _compute_products(X: Any, scale: float) -> Floats:
    """Gram matrix ``scale X'X``, dense."""
    if not sparse.issparse(X):
        return np.ascontiguousarray(scale * (X.T @ X))
    d = X.shape[1]
    upper = np.zeros((d, d))
    rows = X.indptr, X.indices, X.data
    elastic_net.add_gram(0, X.shape[0], d, scale, *rows, upper)
    return np.ascontiguousarray(upper + np.triu(upper, 1).T)
