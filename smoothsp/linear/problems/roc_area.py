"""The area under the ROC curve: a loss of all pairs of a positive and a negative."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.inputs import arrays, checks
from smoothsp.linear.inputs.sparse_matrices import list_arrays
from smoothsp.linear.problems.binary import as_float64_matrix, as_signs

Floats = NDArray[np.float64]


class ROCAreaProblem:
    r"""The structural hinge of 1 - ROC area, where all orders of the set are outputs.

    .. math:: R(w) = \frac{1}{n_+ n_-} \sum_{y_i = 1} \sum_{y_j = -1}
        c_i c_j [1 - \langle x_i - x_j, w \rangle]_+

    is the mean hinge of pairs. The share of pairs in the wrong order is 1 minus the
    area, and at most R. The sums of c over the two classes are :math:`n_+` and
    :math:`n_-`.

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
    # the default of AGM
    smoothing = "l2"

    def __init__(self, X: Any, y: Any, *, weights: Any = None) -> None:
        self.X = as_float64_matrix("X", X)
        self._across = self.X.T
        self.y = as_signs("y", y, self.X.shape[0])
        c = checks.as_sample_weight(weights, len(self.y))
        self._positive = np.flatnonzero((self.y > 0) & (c > 0))
        self._negative = np.flatnonzero((self.y < 0) & (c > 0))
        if not (len(self._positive) and len(self._negative)):
            raise ValueError("y: expected a positive and a negative sample")
        # each class sums to 1
        self._shares = [c[at] / c[at].sum() for at in (self._positive, self._negative)]
        self.num_weights = int(self.X.shape[1])

    def __len__(self) -> int:
        """One example: the whole set."""
        return 1

    @cached_property
    def checksum(self) -> int:
        """A number that tells these samples from others."""
        return arrays.checksum(
            *list_arrays(self.X), self._positive, self._negative, *self._shares
        )

    def risk(self, w: Floats) -> tuple[float, Floats]:
        """The mean hinge of pairs, and a subgradient."""
        return self._pairs(w, 0.0)[:2]

    def smoothed_risk(
        self, w: Floats, mu: float, smoothing: str = "l2", k: int = 5
    ) -> tuple[float, Floats]:
        r"""Each hinge smoothed from below, and the gradient of the mean.

        Parameters
        ----------
        w
            ``(num_weights,)``.
        mu
            Width, positive: the hinge of a pair that is z short of the margin is
            :math:`z^2 / (2 \mu)` for z up to mu, and :math:`z - \mu / 2` from there.
        smoothing
            ``"l2"``; ``k`` has no part in it.
        """
        return self.smoothed_tangent(w, mu, smoothing)[:2]

    def smoothed_tangent(
        self, w: Floats, mu: float, smoothing: str = "l2", k: int = 5
    ) -> tuple[float, Floats, float]:
        """Result of ``smoothed_risk``, and the mean of its dual variables.

        ``<v, slope>`` and this mean are at most the risk at any v.
        """
        checks.require_choice("smoothing", smoothing, ("l2",))
        return self._pairs(w, checks.as_positive("mu", mu))

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

    def _pairs(self, w: Floats, mu: float) -> tuple[float, Floats, float]:
        with np.errstate(over="ignore", invalid="ignore"):
            scores = np.asarray(self.X @ w)
        if not np.isfinite(scores).all():
            i = int((~np.isfinite(scores)).argmax())
            raise checks.Diverged(
                f"w: expected weights with finite scores, got {scores[i]} at sample {i}"
            )
        # a pair is short of the margin by b - a; from here on nothing is rounded twice
        a, b = scores[self._positive] - 1, scores[self._negative]
        up, down = np.argsort(a), np.argsort(b)
        a, b = a[up], b[down]
        # sums of squares lose least around 0, here the median of b
        middle = float(b[len(b) // 2])
        a, b = a - middle, b - middle
        of_a, of_b = self._shares[0][up], self._shares[1][down]
        values, from_a = _one_side(a, b, of_b, mu)
        from_b = _one_side(-b[::-1], -a[::-1], of_a[::-1], mu)[1][::-1]
        share = np.zeros(len(scores))
        share[self._positive[up]] = -of_a * from_a
        share[self._negative[down]] = of_b * from_b
        slope = np.asarray(self._across @ share)
        return float(of_a @ values), slope, float(of_a @ from_a)


def _one_side(a: Floats, b: Floats, shares: Floats, mu: float) -> tuple[Floats, Floats]:
    """Sums over j of hinges of ``b_j - a_i`` for each i, and gradients.

    Both a and b rise: searches for one number after the other are several times faster.
    """
    counts = np.append(0.0, np.cumsum(shares))
    sums = np.append(0.0, np.cumsum(shares * b))
    past = np.searchsorted(b, a, side="right")
    if mu == 0:
        count = counts[-1] - counts[past]
        return (sums[-1] - sums[past]) - count * a, count
    # from here on the smoothed hinge is linear
    full = np.maximum(np.searchsorted(b, a + mu, side="left"), past)
    count, inside = counts[-1] - counts[full], counts[full] - counts[past]
    squares = np.append(0.0, np.cumsum(shares * b * b))
    line = sums[full] - sums[past] - inside * a
    bent = squares[full] - squares[past] - a * (sums[full] - sums[past]) - a * line
    value = (sums[-1] - sums[full]) - count * (a + mu / 2) + bent / (2 * mu)
    return value, count + line / mu
