"""Regularised risks as a smooth and a simple function: in the primal and in the dual.

The dual variables themselves are never there. What matters of them is linear: a
tangent ``<w, a> + b`` of the risk, and a smoothed oracle gives that of the maximiser

    argmax <w, a(alpha)> + b(alpha) - nu d(alpha)

for any w and nu. So tangents (a, b) are the points of the dual set, and the weights
and 1 / nu that lead to one are the gradient of d there.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.run_monitor import require_finite_certificate
from smoothsp.linear.solvers.accelerated.prox_terms import Point, SimpleTerm

Floats = NDArray[np.float64]


class SmoothedRisk:
    """The smoothed risk of a problem as a function of the weights."""

    def __init__(self, problem: Any, mu: float, smoothing: str) -> None:
        self.problem, self.mu, self.smoothing = problem, mu, smoothing
        self._tangent = getattr(problem, "smoothed_tangent", None)

    def value(self, x: Floats) -> float:
        """Smoothed; without the product for the gradient where scores suffice."""
        p = self.problem
        if hasattr(p, "smoothed_risk_of_scores"):
            scores = p.scores(x)
            return float(p.smoothed_risk_of_scores(scores, self.mu, self.smoothing)[0])
        return float(p.smoothed_risk(x, self.mu, self.smoothing)[0])

    def value_and_gradient(self, x: Floats) -> tuple[float, Floats, float]:
        """Smoothed, and a tangent of the risk itself where the problem knows it."""
        if self._tangent is not None:
            tangent: tuple[float, Floats, float] = self._tangent(
                x, self.mu, self.smoothing
            )
            return tangent
        value, gradient = self.problem.smoothed_risk(x, self.mu, self.smoothing)
        return value, gradient, value - float(gradient @ x)

    def exact_risk(self, x: Floats) -> float:
        """The risk."""
        return float(self.problem.risk(x)[0])


class Likelihood:
    """A risk that is smooth: the negative log-likelihood of a problem."""

    def __init__(self, problem: Any) -> None:
        self.problem = problem

    def value(self, x: Floats) -> float:
        """The risk."""
        return float(self.problem.likelihood(x)[0])

    exact_risk = value

    def value_and_gradient(self, x: Floats) -> tuple[float, Floats, float]:
        """The risk and its tangent."""
        value, gradient = self.problem.likelihood(x)
        return value, gradient, value - float(gradient @ x)


class NegativeDual:
    r""":math:`\Omega^*(-a) - b` of a tangent (a, b): what the dual minimises."""

    def __init__(self, penalty: SimpleTerm) -> None:
        self.penalty = penalty

    def weights(self, a: Floats) -> Floats:
        """The weights that are best against a tangent."""
        return self.penalty.solve(-a, 0.0).x

    def value(self, x: Floats) -> float:
        """The negative dual."""
        return self.penalty.conjugate(-x[:-1]) - float(x[-1])

    def value_and_gradient(self, x: Floats) -> tuple[float, Floats, float]:
        """Its gradient has the weights, with a minus."""
        value, gradient = self.value(x), -np.append(self.weights(x[:-1]), 1.0)
        return value, gradient, value - float(gradient @ x)


class DualSet:
    """All tangents of a risk, with d, and Psi a multiple of d.

    Parameters
    ----------
    problem
        It has ``smoothed_tangent``.
    smoothing
        Which d.
    mu
        Psi is mu d; 0 is the dual as it is.
    """

    # d of a mixture is not known, but that it is at most that of its parts
    mixes = False

    def __init__(self, problem: Any, smoothing: str, mu: float) -> None:
        self.problem, self.smoothing, self.strong = problem, smoothing, mu

    def solve(self, p: Floats, near: float, step: float = 1.0) -> Point:
        """An oracle call; the last entry of p is positive."""
        weight = near + step * self.strong
        w, nu = p[:-1] / p[-1], weight / float(p[-1])
        if not (nu < math.inf and np.isfinite(w).all()):
            require_finite_certificate(self.problem, math.inf, -math.inf, math.inf)
        value, gradient, offset = self.problem.smoothed_tangent(w, nu, self.smoothing)
        d = max(float(w @ gradient) + offset - value, 0.0) / nu
        return Point(np.append(gradient, offset), p / weight, d, self.strong * d)

    def at(self, x: Floats) -> Point:
        """Raise an error: a point is known by its gradient of d only."""
        raise NotImplementedError

    def conjugate(self, v: Floats) -> float:
        """The largest ``<v, x>``, the bound that belongs to the averaged weights."""
        scale = float(v[-1])
        if not scale > 0:
            return math.inf
        return scale * float(self.problem.risk(v[:-1] / scale)[0])
