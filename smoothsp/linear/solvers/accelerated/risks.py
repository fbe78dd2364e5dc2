"""Primal and dual of a regularised risk, each as a smooth plus a simple function.

Dual variables alpha are exponential in number and are not stored. The dual depends on
them only through the tangent ``<w, a(alpha)> + b(alpha)`` of the risk, which is linear
in alpha. A smoothed oracle returns the tangent of

    argmax_alpha <w, a(alpha)> + b(alpha) - nu d(alpha)

for any weights w and smoothing nu > 0. The tangents (a, b) are therefore the points of
the dual set, and (w, 1) / nu is the gradient of d at the tangent of w and nu.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.run_monitor import require_finite_certificate
from smoothsp.linear.solvers.accelerated.prox_terms import Point, SimpleTerm

Floats = NDArray[np.float64]


class SmoothedRisk:
    """Smoothed risk of a problem as a function of the weights."""

    def __init__(self, problem: Any, mu: float, smoothing: str) -> None:
        self.problem, self.mu, self.smoothing = problem, mu, smoothing
        self._tangent = getattr(problem, "smoothed_tangent", None)

    def value(self, x: Floats) -> float:
        """Smoothed risk at x."""
        p = self.problem
        # Trials of L need no gradient: skip the product with the transposed features.
        if hasattr(p, "smoothed_risk_of_scores"):
            scores = p.scores(x)
            return float(p.smoothed_risk_of_scores(scores, self.mu, self.smoothing)[0])
        return float(p.smoothed_risk(x, self.mu, self.smoothing)[0])

    def value_and_gradient(self, x: Floats) -> tuple[float, Floats, float]:
        """Smoothed risk, its gradient, and the offset of a tangent.

        If the problem has ``smoothed_tangent``, the tangent is that of the risk without
        smoothing. It is larger by nu d(alpha), hence the bounds are tighter.
        """
        if self._tangent is not None:
            tangent: tuple[float, Floats, float] = self._tangent(
                x, self.mu, self.smoothing
            )
            return tangent
        value, gradient = self.problem.smoothed_risk(x, self.mu, self.smoothing)
        return value, gradient, value - float(gradient @ x)

    def exact_risk(self, x: Floats) -> float:
        """Risk at x, without smoothing."""
        return float(self.problem.risk(x)[0])


class Likelihood:
    """Negative log-likelihood of a problem, which is smooth by itself."""

    def __init__(self, problem: Any) -> None:
        self.problem = problem

    def value(self, x: Floats) -> float:
        """Negative log-likelihood at x."""
        return float(self.problem.likelihood(x)[0])

    exact_risk = value

    def value_and_gradient(self, x: Floats) -> tuple[float, Floats, float]:
        """Negative log-likelihood, its gradient, and the offset of its tangent."""
        value, gradient = self.problem.likelihood(x)
        return value, gradient, value - float(gradient @ x)


class NegativeDual:
    r"""Negative dual objective :math:`\Omega^*(-a) - b` of a tangent (a, b).

    Points are the ``(num_weights + 1,)`` arrays ``[a, b]``.
    """

    def __init__(self, penalty: SimpleTerm) -> None:
        self.penalty = penalty

    def weights(self, a: Floats) -> Floats:
        r"""Weights that minimise :math:`\Omega(w) + \langle w, a \rangle + b`."""
        return self.penalty.solve(-a, 0.0).x

    def value(self, x: Floats) -> float:
        """Negative dual objective at x."""
        return self.penalty.conjugate(-x[:-1]) - float(x[-1])

    def value_and_gradient(self, x: Floats) -> tuple[float, Floats, float]:
        """Negative dual objective, its gradient ``[-w, -1]``, and the offset."""
        value, gradient = self.value(x), -np.append(self.weights(x[:-1]), 1.0)
        return value, gradient, value - float(gradient @ x)


class DualSet:
    """Set of all tangents of a risk, with prox function d and Psi = mu d.

    Parameters
    ----------
    problem
        Problem with ``smoothed_tangent``.
    smoothing
        ``"entropy"`` or ``"l2"``: the prox function d of the dual variables.
    mu
        Strength of the smoothing of the dual, >= 0.
    """

    # d depends on alpha, which is not stored: at mixtures only convexity bounds it.
    mixes = False

    def __init__(self, problem: Any, smoothing: str, mu: float) -> None:
        self.problem, self.smoothing, self.strong = problem, smoothing, mu

    def solve(self, p: Floats, near: float, step: float = 1.0) -> Point:
        """Minimise ``near d(x) - <p, x> + step mu d(x)`` by a smoothed oracle call.

        Dividing by the last entry of p, which is positive, gives the oracle's problem
        with ``w = p[:-1] / p[-1]`` and ``nu = (near + step mu) / p[-1]``.
        """
        weight = near + step * self.strong
        w, nu = p[:-1] / p[-1], weight / float(p[-1])
        if not (nu < math.inf and np.isfinite(w).all()):
            require_finite_certificate(self.problem, math.inf, -math.inf, math.inf)
        value, gradient, offset = self.problem.smoothed_tangent(w, nu, self.smoothing)
        # The optimal value is <w, a> + b - nu d, so that d follows from it.
        d = max(float(w @ gradient) + offset - value, 0.0) / nu
        return Point(np.append(gradient, offset), p / weight, d, self.strong * d)

    def at(self, x: Floats) -> Point:
        """Raise an error: a tangent does not determine d."""
        raise NotImplementedError

    def conjugate(self, v: Floats) -> float:
        """Support function of the set: the risk at the averaged weights, scaled."""
        scale = float(v[-1])
        if not scale > 0:
            return math.inf
        return scale * float(self.problem.risk(v[:-1] / scale)[0])
