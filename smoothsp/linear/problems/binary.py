"""Binary hinge risk with an optional unregularised bias, and its smoothings."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from smoothsp._kernels.svm import binary_hinge, excessive_gap
from smoothsp._kernels.svm.quadratic_knapsack import project_box_equality
from smoothsp.linear.inputs import arrays, checks
from smoothsp.linear.inputs.sparse_matrices import list_arrays, validate_sparse

Floats = NDArray[np.float64]

_ZERO = np.zeros(1)


class BinaryProblem:
    r"""Hinge of a binary linear classifier, as a function of its weights.

    .. math:: R(w) = \min_b \tfrac1n \sum_i c_i [1 - y_i (\langle x_i, w \rangle + b)]_+

    with b = 0 unless ``bias`` is True.

    Parameters
    ----------
    X
        ``(n, features)``: dense, or sparse of any format; kept as float64, copied.
    y
        ``(n,)``: 1 and -1.
    bias
        If True, b is free and not regularised.
    weights
        ``(n,)``: c, at least 0; by default 1.

    Raises
    ------
    ValueError
        If X is not finite, y has other labels, or shapes do not fit.

    Notes
    -----
    A risk with its gradient costs two products with X. Without a bias, sparse samples
    are read once for both. A bias needs a selection in O(n).

    Source: Saha, Zhang and Vishwanathan, "Lower Bounds for BMRM and Faster Rates for
    Training SVMs", equations 2 and 20 to 23.

    Examples
    --------
    >>> import numpy as np
    >>> problem = BinaryProblem([[2.0], [3.0]], [-1, 1], bias=True)
    >>> value, slope = problem.risk(np.array([2.0]))
    >>> value, problem.optimal_bias(np.array([2.0]))
    (0.0, -5.0)
    """

    # name of the features in messages
    called = "X"
    # default smoothing of AGM
    smoothing = "l2"

    def __init__(
        self, X: Any, y: Any, *, bias: bool = False, weights: Any = None
    ) -> None:
        self.X = as_float64_matrix("X", X)
        # transposed once: scipy creates a new object at each .T
        self._XT = self.X.T
        self.y = as_signs("y", y, self.X.shape[0])
        self.bias = checks.as_bool("bias", bias)
        n = len(self.y)
        self._uniform = weights is None
        self.bounds = checks.as_sample_weight(weights, n) / n
        if not self.bounds.any():
            raise ValueError(
                "weights: expected at least one positive weight after division by n, "
                "got none"
            )
        self.num_weights = int(self.X.shape[1])
        self._rows: tuple[Any, Any, Any] | None = None
        if sparse.issparse(self.X) and not self.bias:
            # without a bias the gradient of a sample depends on its own score only, so
            # that kernels read each sparse row once for score and gradient
            self._rows = self.X.indptr, self.X.indices, self.X.data

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.y)

    @cached_property
    def checksum(self) -> int:
        """Checksum of samples, labels and weights, stored in states."""
        return arrays.checksum(
            *list_arrays(self.X), self.y, self.bounds, np.array(self.bias)
        )

    @property
    def squares(self) -> Floats:
        """Squared norm of each sample."""
        return compute_squared_norms(self.X)

    def scores(self, w: Floats) -> Floats:
        """``(n,)``: scores ``X w``."""
        return np.asarray(self.X @ w)

    def combine(self, alpha: Floats) -> Floats:
        """``sum_i alpha_i y_i x_i``."""
        return np.asarray(self._XT @ (alpha * self.y))

    def project(self, v: Floats, scale: Floats | None = None) -> Floats:
        r"""Project v onto the dual feasible set.

        :math:`0 \le \alpha_i \le c_i / n`, and with a bias
        :math:`\sum_i y_i \alpha_i = 0`: O(n) either way. Distances along i are
        multiplied by ``scale[i]``, by default 1.
        """
        if not self.bias:
            return np.asarray(np.clip(v, 0.0, self.bounds))
        out: Floats = np.zeros((1, len(v)))
        has_weight = self.bounds > 0
        # With one class and a bias, alpha = 0 is the only feasible point.
        if (self.y[has_weight] > 0).all() or (self.y[has_weight] < 0).all():
            return np.zeros(len(v))
        scale = np.ones(1) if scale is None else scale
        # The kernel's layout of one problem: strides of bounds, y and scale.
        block_layout = np.array([[0, 0], [0, 1], [0, 1], [0, int(len(scale) > 1)]])
        project_box_equality(
            0, 1, v[None], _ZERO, self.bounds, self.y, scale, block_layout, _ZERO, out
        )
        return np.asarray(out[0])

    def mix(
        self, alpha: Floats, scores: Floats, mu: float, tau: float
    ) -> tuple[Floats, Floats]:
        r"""Convex combination of dual variables with those of the smoothed risk.

        .. math:: \beta = (1 - \tau) \alpha
            + \tau\, \mathrm{project}((1 - y s) / \mu)

        Parameters
        ----------
        alpha, scores
            ``(n,)``, float64: dual variables, and ``X w``.
        mu
            Positive.
        tau
            From 0 to 1.

        Returns
        -------
        beta, combined
            ``(n,)``, and ``combine(beta)``.
        """
        mu = checks.as_positive("mu", mu)
        if self._rows is None:
            smoothed = self.project((1 - self.y * scores) / mu)
            beta = (1 - tau) * alpha + tau * smoothed
            return beta, self.combine(beta)
        n = len(self.y)
        alpha, scores = (
            _as_kernel_vector("alpha", alpha, n),
            _as_kernel_vector("scores", scores, n),
        )
        beta, combined = np.empty(n), np.empty(self.num_weights)
        kernel_args = (*self._rows, self.y, self.bounds, alpha, scores, mu, tau)
        excessive_gap.mix_dual(0, n, *kernel_args, beta, combined)
        return beta, combined

    def climb(
        self,
        beta: Floats,
        w: Floats,
        scores: Floats,
        tau: float,
        L: float,
        following: tuple[float, float] | None = None,
    ) -> tuple[Floats, Floats, tuple[Floats, Floats] | None]:
        r"""Projected gradient step on the dual, and a convex combination of scores.

        .. math:: \alpha = \mathrm{project}(\beta + (1 - y (X w)) / L), \qquad
            (1 - \tau) s + \tau X w

        Parameters
        ----------
        beta, scores
            ``(n,)``, float64.
        w
            ``(num_weights,)``, float64.
        tau
            From 0 to 1.
        L
            Positive.
        following
            mu and tau of the next ``mix``, or None.

        Returns
        -------
        alpha, mixed
            ``(n,)`` each.
        next_mix
            Result of ``mix`` with alpha, mixed and ``following``, if one pass over X
            computes both; else None.
        """
        L = checks.as_positive("L", L)
        if self._rows is None:
            new_scores = self.scores(w)
            alpha = self.project(beta + (1 - self.y * new_scores) / L)
            return alpha, (1 - tau) * scores + tau * new_scores, None
        n, w = len(self.y), _as_kernel_vector("w", w, self.num_weights)
        beta, scores = (
            _as_kernel_vector("beta", beta, n),
            _as_kernel_vector("scores", scores, n),
        )
        alpha, mixed = np.empty((2, n))
        kernel_args = (*self._rows, self.y, self.bounds, w, beta, scores, tau, L)
        if following is None:
            excessive_gap.dual_step(0, n, *kernel_args, alpha, mixed)
            return alpha, mixed, None
        next_mix = np.empty(n), np.empty(self.num_weights)
        excessive_gap.dual_step_and_mix(
            0, n, *kernel_args, *following, alpha, mixed, *next_mix
        )
        return alpha, mixed, next_mix

    def risk(self, w: Floats) -> tuple[float, Floats]:
        """Weighted mean hinge at w, and a subgradient ``(num_weights,)``."""
        if self._rows is not None:
            return self._sparse_risk(w)
        value, alpha = self.risk_of_scores(self.scores(w))
        return value, -self.combine(alpha)

    def _sparse_risk(self, w: Floats) -> tuple[float, Floats]:
        assert self._rows is not None
        w = _as_kernel_vector("w", w, self.num_weights)
        gradient, value = np.empty(self.num_weights), np.empty(1)
        binary_hinge.empirical_risk(
            0, len(self.y), *self._rows, self.y, self.bounds, _ZERO, w, gradient, value
        )
        return float(value[0]), gradient

    def risk_of_scores(self, scores: Floats) -> tuple[float, Floats]:
        """Return the risk at scores ``(n,)`` and dual variables that attain it.

        ``alpha_i`` is from 0 to ``c_i / n``. With a bias, ``sum_i y_i alpha_i = 0``:
        samples exactly at the margin get fractions of their bounds.
        """
        if not self.bias:
            # in place: these operations are bound by memory traffic
            margin_deficits = self.y * scores
            np.subtract(1.0, margin_deficits, out=margin_deficits)
            alpha = self.bounds * (margin_deficits > 0)
            return float(alpha @ margin_deficits), alpha
        b = self.bias_of(scores)
        margins = self.y * (scores + b)
        # compare b with the breakpoints y_i - s_i, since margins are rounded: b equals
        # one of them exactly, or lies between two, where the imbalance is 0
        breakpoints = self.y - scores
        is_at_breakpoint = breakpoints == b
        alpha = np.where(self.y * (breakpoints - b) > 0, self.bounds, 0.0)
        value = float(alpha @ (1 - margins))
        imbalance = -float(self.y @ alpha)
        for sign in (1.0, -1.0):
            if imbalance * sign > 0:
                headroom = np.where(
                    is_at_breakpoint & (self.y == sign), self.bounds, 0.0
                )
                total = float(headroom.sum())
                fraction = min(imbalance * sign / total, 1.0) if total > 0 else 0.0
                alpha += fraction * headroom
        return value, alpha

    def bias_of(self, scores: Floats) -> float:
        """Return the bias that minimises the risk at scores ``(n,)``, or 0.

        See :func:`optimal_bias`.
        """
        if not self.bias:
            return 0.0
        return optimal_bias(scores, self.y, None if self._uniform else self.bounds)

    def optimal_bias(self, w: Floats) -> float:
        """Return the bias that minimises the risk at weights w."""
        return self.bias_of(self.scores(w))

    def diameter(self, smoothing: str = "entropy") -> float:
        r"""D of :math:`R - \mu D \le R_\mu \le R`."""
        checks.require_choice("smoothing", smoothing, ("entropy", "l2"))
        # a hinge is max(0, z), a maximum over two outputs: log 2, or 1/2
        total = float(self.bounds.sum())
        return total / 2 if smoothing == "l2" else total * float(np.log(2))

    def smoothed_risk(
        self, w: Floats, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> tuple[float, Floats]:
        r"""Smoothed risk and its gradient.

        .. math:: R_\mu(w) = \min_b \tfrac1n \sum_i c_i h_\mu(y_i (s_i + b))

        Parameters
        ----------
        w
            ``(num_weights,)``.
        mu
            Width of the smoothing in units of the margin, positive.
        smoothing
            ``"l2"``: :math:`h_\mu(m)` is :math:`[1 - m]_+^2 / (2 \mu)` up to mu below
            the margin, and linear from there. ``"entropy"``:
            :math:`\mu \log (1 + e^{(1 - m) / \mu}) - \mu \log 2`.
        k
            Ignored.

        Notes
        -----
        Source: Zhang, Saha and Vishwanathan, "Regularized Risk Minimization by
        Nesterov's Accelerated Gradient Methods", section 5.1.
        """
        value, alpha = self.smoothed_risk_of_scores(self.scores(w), mu, smoothing)
        return value, -self.combine(alpha)

    def smoothed_tangent(
        self, w: Floats, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> tuple[float, Floats, float]:
        """Result of ``smoothed_risk``, and the sum of the dual variables.

        ``<v, gradient>`` plus this sum is at most the risk at any v.
        """
        value, alpha = self.smoothed_risk_of_scores(self.scores(w), mu, smoothing)
        return value, -self.combine(alpha), float(alpha.sum())

    def smoothed_risk_of_scores(
        self,
        scores: Floats,
        mu: float,
        smoothing: str = "entropy",
        cost: float = 1.0,
    ) -> tuple[float, Floats]:
        """Return the smoothed risk at scores ``(n,)`` and its dual variables.

        ``cost`` is the margin: 1 for the hinge, 0 for logistic regression.
        """
        mu = checks.as_positive("mu", mu)
        checks.require_choice("smoothing", smoothing, ("entropy", "l2"))
        if smoothing == "l2":
            return self._l2_smoothed_risk(cost - self.y * scores, mu)
        b = self._minimise_smoothed_bias(scores, mu, cost)
        margin_deficits = (cost - self.y * (scores + b)) / mu
        value = mu * float(
            self.bounds @ (np.logaddexp(0.0, margin_deficits) - np.log(2))
        )
        return value, _sigmoid(margin_deficits) * self.bounds

    def _l2_smoothed_risk(
        self, margin_deficits: Floats, mu: float
    ) -> tuple[float, Floats]:
        has_weight = self.bounds > 0
        # samples without weight have a bound of 0: avoid dividing by it
        inverse_width = np.where(has_weight, self.bounds, 1.0) / mu
        alpha = self.project(
            margin_deficits * self.bounds / mu, np.sqrt(1 / inverse_width)
        )
        return float(
            alpha @ margin_deficits - alpha @ (alpha / inverse_width) / 2
        ), alpha

    def _minimise_smoothed_bias(self, scores: Floats, mu: float, cost: float) -> float:
        """Bias at which the entropy-smoothed risk is minimal, by bisection."""
        if not self.bias:
            return 0.0
        has_weight = self.bounds > 0
        breakpoints, y = (cost * self.y - scores)[has_weight], self.y[has_weight]
        # 40 mu beyond the breakpoints the logistic function is 0 or 1 in float64
        half_width = 40 * mu
        if (y > 0).all() or (y < 0).all():
            return _single_class_bias(breakpoints, y, half_width)
        low, high = (
            float(breakpoints.min()) - half_width,
            float(breakpoints.max()) + half_width,
        )
        signed_bounds = self.y * self.bounds
        # bisect the monotone derivative until the interval has no float64 inside
        while True:
            b = low + (high - low) / 2
            if not low < b < high:
                return b
            probabilities = _sigmoid((cost - self.y * (scores + b)) / mu)
            if float(signed_bounds @ probabilities) > 0:
                low = b
            else:
                high = b

    def likelihood(self, w: Floats) -> tuple[float, Floats]:
        r"""Logistic loss: the mean of :math:`c_i \log (1 + e^{-y_i (s_i + b)})`.

        Minimised over b if there is a bias.
        """
        # entropy smoothing at mu = 1 without a margin, less its constant log 2
        value, alpha = self.smoothed_risk_of_scores(self.scores(w), 1.0, cost=0.0)
        return value + float(np.log(2) * self.bounds.sum()), -self.combine(alpha)


def _as_kernel_vector(name: str, x: Floats, size: int) -> Floats:
    """Return x as contiguous float64 ``(size,)``: kernels do not check layouts."""
    array = np.ascontiguousarray(x, dtype=np.float64)
    if array.shape != (size,):
        raise ValueError(f"{name}: expected ({size},), got {array.shape}")
    return array


def optimal_bias(scores: Floats, y: Floats, weights: Floats | None = None) -> float:
    r"""Return the minimiser of :math:`\sum_i c_i [1 - y_i (s_i + b)]_+` in b.

    The function is convex and piecewise linear. Its derivative is :math:`-c_+`, minus
    the weight of the positives, for small b, and rises by :math:`c_i` at each
    breakpoint :math:`y_i - s_i`. If it is 0 between two breakpoints, their middle is
    returned. If one class is missing, the bias nearest to 0 without loss is returned.

    Parameters
    ----------
    scores
        ``(n,)``.
    y
        ``(n,)``: 1 and -1.
    weights
        ``(n,)``: c, at least 0; by default 1. Takes O(n) without weights, and
        O(n log n) with weights.
    """
    breakpoints = y - scores
    if weights is None:
        num_positive = int((y > 0).sum())
        if not 0 < num_positive < len(y):
            return _single_class_bias(breakpoints, y, 0.0)
        # With weights 1 the derivative is 0 between the breakpoints n_+ and n_+ + 1:
        # selection instead of a sort.
        interval = np.partition(breakpoints, (num_positive - 1, num_positive))[
            num_positive - 1 : num_positive + 1
        ]
        return float(interval[0] + (interval[1] - interval[0]) / 2)
    has_weight = weights > 0
    breakpoints, y, weights = (
        breakpoints[has_weight],
        y[has_weight],
        weights[has_weight],
    )
    if (y > 0).all() or (y < 0).all():
        return _single_class_bias(breakpoints, y, 0.0)
    order = np.argsort(breakpoints, kind="stable")
    breakpoints, cumulative_weights = breakpoints[order], np.cumsum(weights[order])
    derivatives = cumulative_weights - float(weights[y > 0].sum())
    # a derivative of 0 is a sum of rounded weights: compare up to the error of the sum
    rounding_error = len(cumulative_weights) * float(
        np.finfo(np.float64).eps * cumulative_weights[-1]
    )
    index = int((derivatives >= -rounding_error).argmax())
    # the last breakpoint has no successor if the negatives weigh less than rounding
    is_interval = derivatives[index] <= rounding_error and index + 1 < len(breakpoints)
    return float(
        breakpoints[index] + (breakpoints[index + 1] - breakpoints[index]) / 2
        if is_interval
        else breakpoints[index]
    )


def _single_class_bias(breakpoints: Floats, y: Floats, margin: float) -> float:
    """Return the bias nearest to 0 without loss when all samples are of one class."""
    if y[0] > 0:
        return max(float(breakpoints.max()) + margin, 0.0)
    return min(float(breakpoints.min()) - margin, 0.0)


def _sigmoid(scores: Floats) -> Floats:
    """``1 / (1 + exp(-scores))`` without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -scores)))


def compute_squared_norms(X: Any) -> Floats:
    """``(n,)`` float64: squared norm of each row."""
    squares = X.power(2) if sparse.issparse(X) else X**2
    return np.asarray(squares.sum(axis=1), dtype=np.float64).ravel()


def as_float64_matrix(name: str, X: Any) -> Any:
    """Copy X as float64: CSR, or a dense array in C order; validate it."""
    if sparse.issparse(X):
        if X.dtype.kind not in "fiub":
            raise TypeError(f"{name}: expected real numbers, got {X.dtype}")
        matrix = sparse.csr_array(validate_sparse(X), dtype=np.float64, copy=True)
        entries = matrix.data
    else:
        dense = np.asarray(X)
        if dense.dtype.kind not in "fiub":
            raise TypeError(f"{name}: expected real numbers, got {dense.dtype}")
        matrix = entries = np.array(dense, dtype=np.float64, order="C")
    if matrix.ndim != 2 or not all(matrix.shape):
        raise ValueError(
            f"{name}: expected (samples, features), at least one of each, got"
            f" {matrix.shape}"
        )
    invalid = ~np.isfinite(entries)
    if invalid.any():
        if sparse.issparse(X):
            entry = int(invalid.argmax())
            row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
        else:
            # lexicographic order of (row, column): the first entry names its row
            entry, row = np.flatnonzero(invalid)[0], int(np.argwhere(invalid)[0, 0])
        raise ValueError(
            f"{name}: expected finite numbers, got {entries.flat[entry]} in sample"
            f" {row}"
        )
    return matrix


def as_signs(name: str, y: Any, n: int) -> Floats:
    """Copy labels 1 and -1 as float64 ``(n,)``; raise for others."""
    labels = np.asarray(y)
    if labels.shape != (n,):
        raise ValueError(f"{name}: expected ({n},) labels, got {labels.shape}")
    if labels.dtype.kind not in "fiu":
        raise TypeError(f"{name}: expected numbers 1 and -1, got {labels.dtype}")
    invalid = (labels != 1) & (labels != -1)
    if invalid.any():
        i = int(invalid.argmax())
        raise ValueError(f"{name}: expected 1 or -1, got {labels[i]} at sample {i}")
    return labels.astype(np.float64)
