"""Risk of LPBoost: the maximum of linear functions, minus the smallest margin."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.inputs import arrays, checks
from smoothsp.linear.inputs.sparse_matrices import list_arrays
from smoothsp.linear.problems.binary import as_float64_matrix

Floats = NDArray[np.float64]


class LPBoostProblem:
    r"""Maximum of linear functions: in boosting, minus the smallest margin.

    .. math:: R(w) = \max_i \langle u_i, w \rangle

    With rows ``u_i = -y_i h(x_i)`` for predictions h of weak learners, and weights on
    the simplex, this is LPBoost. The risk may be negative.

    Parameters
    ----------
    U
        ``(t, n)``: dense, or sparse of any format; kept as float64, copied.

    Notes
    -----
    Source: Zhang, Saha and Vishwanathan, "Regularized Risk Minimization by Nesterov's
    Accelerated Gradient Methods", example 5 and eq. (51).

    Examples
    --------
    A game of two players: rock, paper, scissors.

    >>> import numpy as np
    >>> from smoothsp.linear.solvers import AGM
    >>> problem = LPBoostProblem([[0, 1, -1], [-1, 0, 1], [1, -1, 0]])
    >>> game = AGM(lam=0, domain="simplex", tol=1e-3).solve(problem)
    >>> round(game.primal, 2), game.w.round(2).tolist()
    (0.0, [0.33, 0.33, 0.33])
    """

    def __init__(self, U: Any) -> None:
        self.U = as_float64_matrix("U", U)
        self._UT = self.U.T
        self.num_weights = int(self.U.shape[1])

    def __len__(self) -> int:
        """Return 1: the maximum over all rows is the only example."""
        return 1

    @cached_property
    def checksum(self) -> int:
        """Checksum of U; recognises the state of another problem."""
        return arrays.checksum(*list_arrays(self.U))

    def risk(self, w: Floats) -> tuple[float, Floats]:
        """Maximum of ``<u_i, w>``, and its row as a subgradient."""
        z = np.asarray(self.U @ w)
        one_hot = np.zeros(len(z))
        one_hot[int(z.argmax())] = 1.0
        return float(z.max()), np.asarray(self._UT @ one_hot)

    def diameter(self, smoothing: str = "entropy") -> float:
        """D of ``R - mu D <= R_mu <= R``: ``log t`` for ``"entropy"``."""
        checks.require_choice("smoothing", smoothing, ("entropy",))
        return float(np.log(self.U.shape[0]))

    def smoothed_risk(
        self, w: Floats, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> tuple[float, Floats]:
        r""":math:`\mu \log \tfrac1t \sum_i \exp(\langle u_i, w \rangle / \mu)`."""
        checks.require_choice("smoothing", smoothing, ("entropy",))
        mu = checks.as_positive("mu", mu)
        z = np.asarray(self.U @ w)
        # subtract the maximum: exponentials stay in (0, 1]
        largest = float(z.max())
        exponentials = np.exp((z - largest) / mu)
        value = largest + mu * float(np.log(exponentials.mean()))
        return value, np.asarray(self._UT @ (exponentials / exponentials.sum()))

    def smoothed_tangent(
        self, w: Floats, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> tuple[float, Floats, float]:
        """Result of ``smoothed_risk``, and 0: a mixture of rows is a tangent."""
        return *self.smoothed_risk(w, mu, smoothing), 0.0

    def likelihood(self, w: Floats) -> tuple[float, Floats]:
        """Smoothed risk at mu = 1, as a smooth objective."""
        return self.smoothed_risk(w, 1.0)
