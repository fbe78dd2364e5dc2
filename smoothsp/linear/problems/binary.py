"""Two classes, the hinge, and a bias that costs nothing."""

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

    # in messages
    called = "X"
    # the default of AGM
    smoothing = "l2"

    def __init__(
        self, X: Any, y: Any, *, bias: bool = False, weights: Any = None
    ) -> None:
        self.X = as_float64_matrix("X", X)
        # scipy makes a new object at each transposition
        self._across = self.X.T
        self.y = as_signs("y", y, self.X.shape[0])
        self.bias = checks.as_bool("bias", bias)
        n = len(self.y)
        self._uniform = weights is None
        self.bounds = checks.as_sample_weight(weights, n) / n
        if not self.bounds.any():
            raise ValueError(
                "weights: expected one that, over n, is a number, got none"
            )
        self.num_weights = int(self.X.shape[1])
        self._rows: tuple[Any, Any, Any] | None = None
        if sparse.issparse(self.X) and not self.bias:
            # without a bias each sample has its slope by itself
            self._rows = self.X.indptr, self.X.indices, self.X.data

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.y)

    @cached_property
    def checksum(self) -> int:
        """A number that tells these samples from others."""
        return arrays.checksum(
            *list_arrays(self.X), self.y, self.bounds, np.array(self.bias)
        )

    @property
    def squares(self) -> Floats:
        """Squared norm of each sample."""
        return compute_squared_norms(self.X)

    def scores(self, w: Floats) -> Floats:
        """``X w``."""
        return np.asarray(self.X @ w)

    def combine(self, alpha: Floats) -> Floats:
        """``sum_i alpha_i y_i x_i``."""
        return np.asarray(self._across @ (alpha * self.y))

    def project(self, v: Floats, scale: Floats | None = None) -> Floats:
        r"""The dual variables nearest to v.

        :math:`0 \le \alpha_i \le c_i / n`, and with a bias
        :math:`\sum_i y_i \alpha_i = 0`: O(n) either way. Distances along i are
        multiplied by ``scale[i]``, by default 1.
        """
        if not self.bias:
            return np.asarray(np.clip(v, 0.0, self.bounds))
        out: Floats = np.zeros((1, len(v)))
        used = self.bounds > 0
        if (self.y[used] > 0).all() or (self.y[used] < 0).all():
            return np.zeros(len(v))
        scale = np.ones(1) if scale is None else scale
        along = np.array([[0, 0], [0, 1], [0, 1], [0, int(len(scale) > 1)]])
        project_box_equality(
            0, 1, v[None], _ZERO, self.bounds, self.y, scale, along, _ZERO, out
        )
        return np.asarray(out[0])

    def mix(
        self, alpha: Floats, scores: Floats, mu: float, tau: float
    ) -> tuple[Floats, Floats]:
        r"""Dual variables on the way to those of the smoothed risk.

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
        alpha, scores = _held("alpha", alpha, n), _held("scores", scores, n)
        beta, combined = np.empty(n), np.empty(self.num_weights)
        given = (*self._rows, self.y, self.bounds, alpha, scores, mu, tau)
        excessive_gap.mix_dual(0, n, *given, beta, combined)
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
        r"""A projected step of the dual, and scores on the way to those of w.

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
            mu and tau of the next ``mix``, if they are known.

        Returns
        -------
        alpha, mixed
            ``(n,)`` each.
        ahead
            What ``mix`` with them and ``following`` answers, where it costs less now,
            else None.
        """
        L = checks.as_positive("L", L)
        if self._rows is None:
            found = self.scores(w)
            alpha = self.project(beta + (1 - self.y * found) / L)
            return alpha, (1 - tau) * scores + tau * found, None
        n, w = len(self.y), _held("w", w, self.num_weights)
        beta, scores = _held("beta", beta, n), _held("scores", scores, n)
        alpha, mixed = np.empty((2, n))
        given = (*self._rows, self.y, self.bounds, w, beta, scores, tau, L)
        if following is None:
            excessive_gap.dual_step(0, n, *given, alpha, mixed)
            return alpha, mixed, None
        ahead = np.empty(n), np.empty(self.num_weights)
        excessive_gap.dual_step_and_mix(0, n, *given, *following, alpha, mixed, *ahead)
        return alpha, mixed, ahead

    def risk(self, w: Floats) -> tuple[float, Floats]:
        """The mean hinge, and a subgradient."""
        if self._rows is not None:
            return self._risk_of_rows(w)
        value, alpha = self.risk_of_scores(self.scores(w))
        return value, -self.combine(alpha)

    def _risk_of_rows(self, w: Floats) -> tuple[float, Floats]:
        assert self._rows is not None
        w = _held("w", w, self.num_weights)
        slope, value = np.empty(self.num_weights), np.empty(1)
        binary_hinge.empirical_risk(
            0, len(self.y), *self._rows, self.y, self.bounds, _ZERO, w, slope, value
        )
        return float(value[0]), slope

    def risk_of_scores(self, scores: Floats) -> tuple[float, Floats]:
        """The risk, and the dual variables that attain it.

        ``alpha_i`` is from 0 to ``c_i / n``; with a bias ``sum_i y_i alpha_i`` is 0,
        for which samples on the border share what is left.
        """
        if not self.bias:
            # as few passes over all samples as there can be
            short = self.y * scores
            np.subtract(1.0, short, out=short)
            alpha = self.bounds * (short > 0)
            return float(alpha @ short), alpha
        b = self.bias_of(scores)
        margins = self.y * (scores + b)
        # not by margins, which are rounded: b is exactly one of these, or between two
        # where nothing is missing
        kinks = self.y - scores
        border = kinks == b
        alpha = np.where(self.y * (kinks - b) > 0, self.bounds, 0.0)
        value = float(alpha @ (1 - margins))
        missing = -float(self.y @ alpha)
        for side in (1.0, -1.0):
            if missing * side > 0:
                room = np.where(border & (self.y == side), self.bounds, 0.0)
                total = float(room.sum())
                share = min(missing * side / total, 1.0) if total > 0 else 0.0
                alpha += share * room
        return value, alpha

    def bias_of(self, scores: Floats) -> float:
        """The best b for these scores; 0 without a bias, and for a single class.

        See :func:`optimal_bias`.
        """
        if not self.bias:
            return 0.0
        return optimal_bias(scores, self.y, None if self._uniform else self.bounds)

    def optimal_bias(self, w: Floats) -> float:
        """The best b for weights: O(n) besides ``X w``."""
        return self.bias_of(self.scores(w))

    def diameter(self, smoothing: str = "entropy") -> float:
        r"""D of :math:`R - \mu D \le R_\mu \le R`."""
        checks.require_choice("smoothing", smoothing, ("entropy", "l2"))
        total = float(self.bounds.sum())
        return total / 2 if smoothing == "l2" else total * float(np.log(2))

    def smoothed_risk(
        self, w: Floats, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> tuple[float, Floats]:
        r"""The smoothed risk and its gradient.

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
            No part in either.

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

        ``<v, slope>`` and this sum are at most the risk at any v.
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
        """The smoothed risk, and the dual variables that attain it."""
        mu = checks.as_positive("mu", mu)
        checks.require_choice("smoothing", smoothing, ("entropy", "l2"))
        if smoothing == "l2":
            return self._smoothed_by_l2(cost - self.y * scores, mu)
        b = self._smoothed_bias(scores, mu, cost)
        short = (cost - self.y * (scores + b)) / mu
        value = mu * float(self.bounds @ (np.logaddexp(0.0, short) - np.log(2)))
        return value, _logistic(short) * self.bounds

    def _smoothed_by_l2(self, short: Floats, mu: float) -> tuple[float, Floats]:
        used = self.bounds > 0
        tight = np.where(used, self.bounds, 1.0) / mu
        alpha = self.project(short * self.bounds / mu, np.sqrt(1 / tight))
        return float(alpha @ short - alpha @ (alpha / tight) / 2), alpha

    def _smoothed_bias(self, scores: Floats, mu: float, cost: float) -> float:
        """Bias at which the entropy-smoothed risk is minimal, by bisection."""
        if not self.bias:
            return 0.0
        used = self.bounds > 0
        kinks, y = (cost * self.y - scores)[used], self.y[used]
        # where the dual variables of a class are full, and those of the other 0
        reach = 40 * mu
        if (y > 0).all() or (y < 0).all():
            return _one_class(kinks, y, reach)
        low, high = float(kinks.min()) - reach, float(kinks.max()) + reach
        signed = self.y * self.bounds
        while True:
            b = low + (high - low) / 2
            if not low < b < high:
                return b
            share = _logistic((cost - self.y * (scores + b)) / mu)
            if float(signed @ share) > 0:
                low = b
            else:
                high = b

    def likelihood(self, w: Floats) -> tuple[float, Floats]:
        r"""Logistic regression: the mean of :math:`c_i \log (1 + e^{-y_i (s_i + b)})`.

        With the best b if there is a bias.
        """
        value, alpha = self.smoothed_risk_of_scores(self.scores(w), 1.0, cost=0.0)
        return value + float(np.log(2) * self.bounds.sum()), -self.combine(alpha)


def _held(name: str, x: Floats, size: int) -> Floats:
    """Arrays in the layout of kernels, which read them unchecked."""
    found = np.ascontiguousarray(x, dtype=np.float64)
    if found.shape != (size,):
        raise ValueError(f"{name}: expected ({size},), got {found.shape}")
    return found


def optimal_bias(scores: Floats, y: Floats, weights: Floats | None = None) -> float:
    r"""The minimiser of :math:`\sum_i c_i [1 - y_i (s_i + b)]_+` in b.

    The sum falls with slope :math:`-c_+` first, the weight of the positives, and its
    slope rises by :math:`c_i` at each :math:`y_i - s_i`. Where it is 0 between two of
    these all b are equally good, and b is the middle. Where one class is missing, the
    bias nearest to 0 that costs nothing.

    Parameters
    ----------
    scores
        ``(n,)``.
    y
        ``(n,)``: 1 and -1.
    weights
        ``(n,)``: c, at least 0; by default 1, which takes O(n), others O(n log n).
    """
    kinks = y - scores
    if weights is None:
        above = int((y > 0).sum())
        if not 0 < above < len(y):
            return _one_class(kinks, y, 0.0)
        ends = np.partition(kinks, (above - 1, above))[above - 1 : above + 1]
        return float(ends[0] + (ends[1] - ends[0]) / 2)
    used = weights > 0
    kinks, y, weights = kinks[used], y[used], weights[used]
    if (y > 0).all() or (y < 0).all():
        return _one_class(kinks, y, 0.0)
    order = np.argsort(kinks, kind="stable")
    kinks, sums = kinks[order], np.cumsum(weights[order])
    slopes = sums - float(weights[y > 0].sum())
    rounding = len(sums) * float(np.finfo(np.float64).eps * sums[-1])
    k = int((slopes >= -rounding).argmax())
    # the next one is missing where negatives weigh no more than roundings
    flat = slopes[k] <= rounding and k + 1 < len(kinks)
    return float(kinks[k] + (kinks[k + 1] - kinks[k]) / 2 if flat else kinks[k])


def _one_class(kinks: Floats, y: Floats, more: float) -> float:
    if y[0] > 0:
        return max(float(kinks.max()) + more, 0.0)
    return min(float(kinks.min()) - more, 0.0)


def _logistic(z: Floats) -> Floats:
    return np.asarray(np.exp(-np.logaddexp(0.0, -z)))


def compute_squared_norms(X: Any) -> Floats:
    """Squared norm of each row."""
    squares = X.power(2) if sparse.issparse(X) else X**2
    return np.asarray(squares.sum(axis=1), dtype=np.float64).ravel()


def as_float64_matrix(name: str, X: Any) -> Any:
    """A copy in float64: CSR, or a dense array in rows."""
    if sparse.issparse(X):
        if X.dtype.kind not in "fiub":
            raise TypeError(f"{name}: expected real numbers, got {X.dtype}")
        found = sparse.csr_array(validate_sparse(X), dtype=np.float64, copy=True)
        numbers = found.data
    else:
        given = np.asarray(X)
        if given.dtype.kind not in "fiub":
            raise TypeError(f"{name}: expected real numbers, got {given.dtype}")
        found = numbers = np.array(given, dtype=np.float64, order="C")
    if found.ndim != 2 or not all(found.shape):
        raise ValueError(
            f"{name}: expected (samples, features), at least one of each, got"
            f" {found.shape}"
        )
    wrong = ~np.isfinite(numbers)
    if wrong.any():
        if sparse.issparse(X):
            at = int(wrong.argmax())
            i = int(np.searchsorted(found.indptr, at, side="right")) - 1
        else:
            at, i = np.flatnonzero(wrong)[0], int(np.argwhere(wrong)[0, 0])
        raise ValueError(
            f"{name}: expected finite numbers, got {numbers.flat[at]} in sample {i}"
        )
    return found


def as_signs(name: str, y: Any, n: int) -> Floats:
    """Labels 1 and -1 as float64, copied."""
    found = np.asarray(y)
    if found.shape != (n,):
        raise ValueError(f"{name}: expected ({n},) labels, got {found.shape}")
    if found.dtype.kind not in "fiu":
        raise TypeError(f"{name}: expected numbers 1 and -1, got {found.dtype}")
    wrong = (found != 1) & (found != -1)
    if wrong.any():
        i = int(wrong.argmax())
        raise ValueError(f"{name}: expected 1 or -1, got {found[i]} at sample {i}")
    return found.astype(np.float64)
