"""Structural hinge of 1 - ROC area: the mean hinge over pairs of both classes."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.inputs import arrays, checks
from smoothsp.linear.inputs.sparse_matrices import list_arrays
from smoothsp.linear.problems.binary import as_float64_matrix, as_signs

Floats = NDArray[np.float64]


class ROCAreaProblem:
    r"""Structural hinge of 1 - ROC area, with the order of the whole set as output.

    .. math:: R(w) = \frac{1}{n_+ n_-} \sum_{y_i = 1} \sum_{y_j = -1}
        c_i c_j [1 - \langle x_i - x_j, w \rangle]_+

    is the mean hinge of pairs. The fraction of pairs in the wrong order is 1 minus the
    area, and at most R. :math:`n_+` and :math:`n_-` are the sums of c over the two
    classes.

    Parameters
    ----------
    X
        ``(n, features)``: dense, or sparse of any format; kept as float64, copied.
    y
        ``(n,)``: 1 and -1, at least one of each.
    weights
        ``(n,)``: c, at least 0; by default 1. Weight 2 counts a sample twice.

    Notes
    -----
    The set is the only example. Each evaluation sorts the scores, in O(n log n) time
    and O(n) memory for n_+ n_- pairs.

    Source: Joachims, "A Support Vector Method for Multivariate Performance Measures",
    section 3.4 and algorithm 3.

    Examples
    --------
    >>> import numpy as np
    >>> problem = ROCAreaProblem([[3.0], [1.0], [2.0]], [1, -1, -1])
    >>> problem.risk(np.array([0.5]))[0]
    0.25
    """

    # in messages
    called = "X"
    # default smoothing of AGM
    smoothing = "l2"

    def __init__(self, X: Any, y: Any, *, weights: Any = None) -> None:
        self.X = as_float64_matrix("X", X)
        self._XT = self.X.T
        self.y = as_signs("y", y, self.X.shape[0])
        c = checks.as_sample_weight(weights, len(self.y))
        self._positive = np.flatnonzero((self.y > 0) & (c > 0))
        self._negative = np.flatnonzero((self.y < 0) & (c > 0))
        if not (len(self._positive) and len(self._negative)):
            raise ValueError("y: expected a positive and a negative sample")
        # normalised so that the weights of each class sum to 1
        self._class_weights = [
            c[members] / c[members].sum()
            for members in (self._positive, self._negative)
        ]
        self.num_weights = int(self.X.shape[1])

    def __len__(self) -> int:
        """Return 1: the whole set is one example."""
        return 1

    @cached_property
    def checksum(self) -> int:
        """Checksum of samples and weights; recognises the state of another problem."""
        return arrays.checksum(
            *list_arrays(self.X), self._positive, self._negative, *self._class_weights
        )

    def risk(self, w: Floats) -> tuple[float, Floats]:
        """Mean hinge of pairs, and a subgradient."""
        return self._pairwise_hinge(w, 0.0)[:2]

    def smoothed_risk(
        self, w: Floats, mu: float, smoothing: str = "l2", k: int = 5
    ) -> tuple[float, Floats]:
        r"""Each hinge smoothed from below, and the gradient of the mean.

        Parameters
        ----------
        w
            ``(num_weights,)``.
        mu
            Width, positive. The smoothed hinge of a pair with margin deficit z is
            :math:`z^2 / (2 \mu)` for z from 0 to mu, and :math:`z - \mu / 2` beyond.
        smoothing
            ``"l2"``.
        k
            Ignored.
        """
        return self.smoothed_tangent(w, mu, smoothing)[:2]

    def smoothed_tangent(
        self, w: Floats, mu: float, smoothing: str = "l2", k: int = 5
    ) -> tuple[float, Floats, float]:
        """Result of ``smoothed_risk``, and the mean of its dual variables.

        ``<v, gradient>`` plus this mean is at most the risk at any v.
        """
        checks.require_choice("smoothing", smoothing, ("l2",))
        return self._pairwise_hinge(w, checks.as_positive("mu", mu))

    def diameter(self, smoothing: str = "l2") -> float:
        r"""D of :math:`R - \mu D \le R_\mu \le R`: 1/2."""
        checks.require_choice("smoothing", smoothing, ("l2",))
        return 0.5

    def likelihood(self, w: Floats) -> tuple[float, Floats]:
        """Raise a TypeError: a sum over pairs takes n_+ n_- exponentials."""
        raise TypeError(
            "likelihood: expected a problem that sums over outputs; for rankings of a "
            "set use risk, or smoothed_risk with smoothing='l2'"
        )

    def _pairwise_hinge(self, w: Floats, mu: float) -> tuple[float, Floats, float]:
        with np.errstate(over="ignore", invalid="ignore"):
            scores = np.asarray(self.X @ w)
        if not np.isfinite(scores).all():
            i = int((~np.isfinite(scores)).argmax())
            raise checks.Diverged(
                f"w: expected weights with finite scores, got {scores[i]} at sample {i}"
            )
        # the margin deficit of a pair is b - a, with 1 subtracted from a just once
        a, b = scores[self._positive] - 1, scores[self._negative]
        positive_order, negative_order = np.argsort(a), np.argsort(b)
        a, b = a[positive_order], b[negative_order]
        # sums of squares lose fewest digits around 0: shift by the median of b
        shift = float(b[len(b) // 2])
        a, b = a - shift, b - shift
        weights_of_a, weights_of_b = (
            self._class_weights[0][positive_order],
            self._class_weights[1][negative_order],
        )
        values, gradient_a = _pairwise_hinge_sums(a, b, weights_of_b, mu)
        # the pair sums are symmetric under a -> -b: reversal restores the ascending
        # order
        gradient_b = _pairwise_hinge_sums(-b[::-1], -a[::-1], weights_of_a[::-1], mu)[
            1
        ][::-1]
        dual_variables = np.zeros(len(scores))
        dual_variables[self._positive[positive_order]] = -weights_of_a * gradient_a
        dual_variables[self._negative[negative_order]] = weights_of_b * gradient_b
        gradient = np.asarray(self._XT @ dual_variables)
        return float(weights_of_a @ values), gradient, float(weights_of_a @ gradient_a)


def _pairwise_hinge_sums(
    a: Floats, b: Floats, b_weights: Floats, mu: float
) -> tuple[Floats, Floats]:
    """``sum_j w_j h_mu(b_j - a_i)`` for each i, and its derivative in ``-a_i``.

    a and b are ascending. Prefix sums of ``w``, ``w b`` and ``w b^2`` give each sum in
    O(log n); binary searches in ascending order reuse the cache.
    """
    cumulative_weights = np.append(0.0, np.cumsum(b_weights))
    weighted_sums = np.append(0.0, np.cumsum(b_weights * b))
    first_active = np.searchsorted(b, a, side="right")
    if mu == 0:
        active_weight = cumulative_weights[-1] - cumulative_weights[first_active]
        return (
            weighted_sums[-1] - weighted_sums[first_active]
        ) - active_weight * a, active_weight
    # the smoothed hinge is quadratic up to a deficit of mu, and linear beyond
    first_linear = np.maximum(np.searchsorted(b, a + mu, side="left"), first_active)
    active_weight, quadratic_weight = (
        cumulative_weights[-1] - cumulative_weights[first_linear],
        cumulative_weights[first_linear] - cumulative_weights[first_active],
    )
    square_sums = np.append(0.0, np.cumsum(b_weights * b * b))
    linear_term = (
        weighted_sums[first_linear] - weighted_sums[first_active] - quadratic_weight * a
    )
    quadratic_term = (
        square_sums[first_linear]
        - square_sums[first_active]
        - a * (weighted_sums[first_linear] - weighted_sums[first_active])
        - a * linear_term
    )
    value = (
        (weighted_sums[-1] - weighted_sums[first_linear])
        - active_weight * (a + mu / 2)
        + quadratic_term / (2 * mu)
    )
    return value, active_weight + linear_term / mu
