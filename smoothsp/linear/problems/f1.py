"""Structural hinge of 1 - F1: a multivariate loss of the whole set of samples."""

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.linear import contingency
from smoothsp.linear.inputs import arrays, checks
from smoothsp.linear.inputs.sparse_matrices import list_arrays
from smoothsp.linear.problems.binary import as_float64_matrix, as_signs

Floats = NDArray[np.float64]


class F1Problem:
    r"""Structural hinge of 1 - F1, with the labelling of the whole set as output.

    .. math:: R(w) = \max_{y' \in \{-1, 1\}^n} \ell(b, c)
        + \tfrac1n \sum_i (y'_i - y_i) \langle x_i, w \rangle, \qquad
        \ell(b, c) = \frac{b + c}{2 n_+ - b + c}

    with b false negatives and c false positives of y'. :math:`\ell` is 1 minus the F1
    of the positive class.

    Parameters
    ----------
    X
        ``(n, features)``: dense, or sparse of any format; kept as float64, copied.
    y
        ``(n,)``: 1 and -1, at least one 1.

    Notes
    -----
    The set is the only example. ``risk`` sorts the scores and compares all contingency
    tables in O(n log n + n_+ n_-) time and O(n) memory. ``smoothed_risk`` is a dynamic
    programme over all 2^n labellings in O(n^2) time and O(n) memory, on numbers with
    separate exponents. The probability of each flip follows from the distribution of
    the number of flips, by the stable direction of the recurrence.

    Source: Joachims, "A Support Vector Method for Multivariate Performance Measures",
    algorithm 2; Zhang, Saha and Vishwanathan, "Regularized Risk Minimization by
    Nesterov's Accelerated Gradient Methods", example 3 and section 5.4.

    Examples
    --------
    >>> import numpy as np
    >>> problem = F1Problem(np.eye(4), [1, -1, -1, -1])
    >>> problem.risk(np.zeros(4))[0]
    1.0
    >>> problem.smoothed_risk(np.zeros(4), mu=1e-9)[0] <= 1
    True
    """

    # in messages
    called = "X"

    def __init__(self, X: Any, y: Any) -> None:
        self.X = as_float64_matrix("X", X)
        self._XT = self.X.T
        self.y = as_signs("y", y, self.X.shape[0])
        if not (self.y > 0).any():
            raise ValueError(
                "y: expected at least one positive sample: F1 is undefined without one"
            )
        self.num_weights = int(self.X.shape[1])

    def __len__(self) -> int:
        """Return 1: the whole set is one example."""
        return 1

    @cached_property
    def checksum(self) -> int:
        """Checksum of samples and labels; recognises the state of another problem."""
        return arrays.checksum(*list_arrays(self.X), self.y)

    def _flip_gains(self, w: Floats) -> Floats:
        """``(n,)``: change of ``<w, psi>`` if the label of each sample is flipped."""
        with np.errstate(over="ignore", invalid="ignore"):
            gains = -2 / len(self.y) * self.y * (self.X @ w)
        invalid = ~np.isfinite(gains)
        if invalid.any():
            i = int(invalid.argmax())
            raise checks.Diverged(
                f"w: expected weights with finite scores, got {gains[i]} at sample {i}"
            )
        return np.asarray(gains)

    def _gradient_of_flips(self, flip_weights: Floats) -> Floats:
        return np.asarray(self._XT @ (-2 / len(self.y) * self.y * flip_weights))

    def _sort_classes_by_gain(self, gains: Floats) -> list[NDArray[np.intp]]:
        """Indices of positives and of negatives, each in order of falling gain."""
        classes = (np.flatnonzero(self.y > 0), np.flatnonzero(self.y < 0))
        return [
            members[np.argsort(-gains[members], kind="stable")] for members in classes
        ]

    def risk(self, w: Floats) -> tuple[float, Floats]:
        """Structural hinge at w, and a subgradient."""
        gains = self._flip_gains(w)
        classes = self._sort_classes_by_gain(gains)
        # for a given number of flips in a class, flipping those of largest gain is best
        cumulative_gains = [
            np.append(0.0, np.cumsum(gains[members])) for members in classes
        ]
        result = np.empty(3)
        contingency.best_table(*cumulative_gains, result)
        flip_weights = np.zeros(len(gains))
        for members, count in zip(classes, result[1:], strict=True):
            flip_weights[members[: int(count)]] = 1
        return float(result[0]), self._gradient_of_flips(flip_weights)

    def smoothed_risk(
        self, w: Floats, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> tuple[float, Floats]:
        r"""``mu log 2^-n sum exp(z(y') / mu)`` for z in the maximum, and its gradient.

        Parameters
        ----------
        w
            ``(num_weights,)``.
        mu
            Strength, positive, in units of the loss.
        smoothing
            ``"entropy"``.
        k
            Ignored.
        """
        return self.smoothed_tangent(w, mu, smoothing, k)[:2]

    def smoothed_tangent(
        self, w: Floats, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> tuple[float, Floats, float]:
        """Result of ``smoothed_risk``, and the expected loss: a tangent at 0.

        ``<v, gradient>`` plus the expected loss is at most the risk at any v.
        """
        mu = checks.as_positive("mu", mu)
        self._require_entropy(smoothing)
        gains = self._flip_gains(w)
        classes = self._sort_classes_by_gain(gains)
        # z / mu may overflow for tiny mu, which is reported below
        with np.errstate(over="ignore"):
            scaled_gains = gains / mu
        if not np.isfinite(scaled_gains).all():
            raise ValueError(
                f"mu: expected a number by which scores can be divided, got {mu}"
            )
        log_weights, weight_ratios = zip(
            *(_flip_count_log_weights(scaled_gains[members]) for members in classes),
            strict=True,
        )
        count_probabilities, totals = (
            [np.empty_like(x) for x in log_weights],
            np.empty(2),
        )
        contingency.table_marginals(*log_weights, mu, *count_probabilities, totals)
        flip_weights = np.empty(len(gains))
        for members, ratios, probabilities in zip(
            classes, weight_ratios, count_probabilities, strict=True
        ):
            flip_probabilities = np.empty(len(members))
            contingency.flip_probabilities(
                scaled_gains[members], ratios, probabilities, flip_probabilities
            )
            flip_weights[members] = flip_probabilities
        # the constant log 2^n centres the entropy: a bound from below
        value = mu * (float(totals[0]) - len(gains) * math.log(2))
        return value, self._gradient_of_flips(flip_weights), float(totals[1])

    def diameter(self, smoothing: str = "entropy") -> float:
        r"""D of :math:`R - \mu D \le R_\mu \le R`: log of the number of labellings."""
        self._require_entropy(smoothing)
        return len(self.y) * math.log(2)

    def likelihood(self, w: Floats) -> tuple[float, Floats]:
        r"""Negative log-likelihood ``sum_i log(1 + exp(-2 y_i s_i / n))``.

        Without the loss, which couples them, samples are independent.
        """
        gains = self._flip_gains(w)
        value = float(np.logaddexp(0.0, gains).sum())
        return value, self._gradient_of_flips(np.exp(-np.logaddexp(0.0, -gains)))

    def _require_entropy(self, smoothing: str) -> None:
        checks.require_choice("smoothing", smoothing, ("entropy",))


def _flip_count_log_weights(scaled_gains: Floats) -> tuple[Floats, Floats]:
    """Log weights ``(m + 1,)`` of flipping 0 to m elements of a class, and ratios."""
    result = np.empty(len(scaled_gains) + 1), np.empty(len(scaled_gains) + 1)
    contingency.log_elementary_symmetric(scaled_gains, *result)
    return result
