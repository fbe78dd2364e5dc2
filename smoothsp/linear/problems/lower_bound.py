"""Worst-case problem of the lower bound for cutting-plane methods."""

import numpy as np

from smoothsp.linear.inputs import checks
from smoothsp.linear.problems.callback import CallbackProblem, OracleResult, Weights


class LowerBoundProblem(CallbackProblem):
    r"""Worst case of cutting planes, at which they attain their lower bound.

    .. math:: P(w) = \tfrac{\lambda}{2} \|w\|^2 + \max(0, \max_{i \le d} 1 + w_i)

    One example has d wrong outputs of cost 1, with orthonormal features. From 0, the
    gap of :class:`BMRM` after ``t < d`` rounds is :math:`1 / (2 \lambda t)` if
    :math:`\lambda d \ge 1`. A gap of epsilon thus takes :math:`1 / (2 \lambda
    \epsilon)` rounds, and the minimum :math:`1 - 1 / (2 \lambda d)` takes d.

    Parameters
    ----------
    num_weights
        d, the number of wrong outputs and of weights, at least 1.

    Notes
    -----
    Each round adds the tangent of one coordinate: :math:`w_t` is :math:`-1 / (\lambda
    t)` at t coordinates and 0 elsewhere, and :math:`P(w_t) = 1 + 1 / (2 \lambda t)`.

    Source: Saha, Zhang and Vishwanathan, "Lower Bounds for BMRM and Faster Rates for
    Training SVMs", theorems 6 and 7. The columns of the matrix in their equation 14 are
    not orthonormal but come in pairs of opposite signs, so that BMRM is exact after two
    rounds. The identity in its place makes the theorems true; the cost of 1 keeps the
    risk non-negative.

    Examples
    --------
    >>> from smoothsp.linear.problems import LowerBoundProblem
    >>> from smoothsp.linear.solvers import BMRM
    >>> result = BMRM(lam=0.05, tol=0.099).solve(LowerBoundProblem(200))
    >>> [round(1 / (2 * 0.05 * at.gap)) for at in result.history] == [*range(1, 103)]
    True
    """

    def __init__(self, num_weights: int) -> None:
        d = checks.as_positive_int("num_weights", num_weights)

        def max_oracle(_: int, w: Weights) -> OracleResult:
            largest = int(w.argmax())
            psi = np.zeros(d)
            if not 1 + w[largest] > 0:
                # the gold output, with hinge 0
                return psi, 0.0, d
            psi[largest] = -1
            return psi, 1.0, largest

        super().__init__(1, d, max_oracle)
