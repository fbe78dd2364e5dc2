"""Interface of problems that evaluate all examples at once."""

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.inputs import checks

Weights = NDArray[np.float64]
# Value and gradient.
ValueAndGradient = tuple[float, Weights]

SMOOTHINGS = ("entropy", "l2")


@runtime_checkable
class BatchProblem(Protocol):
    r"""Interface of problems for solvers of the whole set.

    .. math:: R(w) = \tfrac{1}{n} \sum_i \max_y z_i(y), \qquad
        z_i(y) = L_i(y) - \langle w, \psi_i(y) \rangle

    Each method returns a mean over examples.

    Notes
    -----
    Source of the smoothing: Zhang, Saha and Vishwanathan, "Regularized risk
    minimization by Nesterov's accelerated gradient methods", (53), (54), (62).

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import BatchProblem, BinaryProblem
    >>> problem = BinaryProblem(np.eye(2), np.array([1, -1]))
    >>> isinstance(problem, BatchProblem), problem.risk(np.zeros(2))[0]
    (True, 1.0)
    """

    @property
    def num_weights(self) -> int:
        """Length of w."""

    def __len__(self) -> int: ...

    def risk(self, w: Weights) -> ValueAndGradient:
        """R(w), at least 0, and a subgradient ``(num_weights,)``, float64."""

    def smoothed_risk(
        self, w: Weights, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> ValueAndGradient:
        r"""Risk smoothed from below, and its gradient.

        .. math::
            R(w) - \mu D \le R_\mu(w)
            = \tfrac{1}{n} \sum_i \max_{u \in \Delta} \langle u, z_i \rangle - \mu d(u)
            \le R(w)

        For ``"entropy"``, ``d(u) = sum_y u_y log(|Y_i| u_y)``: the maximum becomes
        ``mu log (1 / |Y_i|) sum_y exp(z_i(y) / mu)``. For ``"l2"``,
        ``d(u) = |u|^2 / 2`` over the ``k`` outputs of largest z. The gradient is exact
        if no other output has a weight.
        """

    def diameter(self, smoothing: str = "entropy") -> float:
        """D: the mean of ``log |Y_i|`` for ``"entropy"``, 1/2 for ``"l2"``."""

    def likelihood(self, w: Weights) -> ValueAndGradient:
        r"""Mean negative log-likelihood of the gold outputs, and its gradient.

        ``log sum_y exp(-<w, psi_i(y)>)``: without costs. Raises a TypeError for
        problems that cannot sum over outputs.
        """


def require_smoothing(smoothing: str, mu: float, k: int) -> None:
    """Raise unless smoothing, mu and k are valid."""
    checks.require_choice("smoothing", smoothing, SMOOTHINGS)
    checks.as_positive("mu", mu)
    checks.as_positive_int("k", k)


def smoothed_max(z: NDArray[np.float64], mu: float) -> tuple[float, Weights]:
    r"""Maximum of ``<u, z> + mu / 2 (1 - |u|^2)`` over the simplex, and maximiser u.

    z must be in descending order.

    Notes
    -----
    ``u`` is the projection of ``z / mu``. Source: Pillutla et al., "A Smoother Way to
    Train Structured Prediction Models", proposition 3 and algorithm 6.
    """
    # support of the projection: the largest k with sum_{j<k} (z_j - z_k) < mu
    ranks, partial_sums = np.arange(1, len(z) + 1), np.cumsum(z)
    k = int(np.flatnonzero(partial_sums - ranks * z < mu)[-1])
    u = np.maximum((z - (partial_sums[k] - mu) / (k + 1)) / mu, 0.0)
    return float(u @ z + mu / 2 * (1 - u @ u)), u
