"""Binary hinge risk, smoothed per sample in proportion to a scale."""

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.inputs import checks
from smoothsp.linear.problems.binary import BinaryProblem
from smoothsp.linear.solvers.accelerated.lipschitz import largest_eigenvalue

Floats = NDArray[np.float64]

# Smallest scale of a sample, relative to the mean scale.
MIN_RELATIVE_SCALE = 0.1


class ScaledHinge:
    r"""Binary problem with a diagonal prox function of its dual variables.

    .. math:: d(\alpha) = \tfrac12 \sum_i s_i \frac{\alpha_i^2}{c_i / n}

    The scales s have mean 1, so that the diameter D does not change. Three choices are
    compared: 1, :math:`\|x_i\|`, and :math:`|\langle x_i, v \rangle|` for the first
    eigenvector v. The choice with the smallest Lipschitz constant is used. No scale is
    below a tenth of the mean.

    Notes
    -----
    Source: Zhang, Saha and Vishwanathan, "Regularized Risk Minimization by Nesterov's
    Accelerated Gradient Methods", section 5.6, for the scales from the eigenvector.
    Without a lower limit they can have a Lipschitz constant hundreds of times as large
    as uniform scales. The limit, the norms and the comparison are not in the paper.
    """

    called, smoothing = "X", "l2"

    def __init__(self, problem: BinaryProblem) -> None:
        if not isinstance(problem, BinaryProblem):
            raise TypeError(
                "prox: expected 'uniform' but for a BinaryProblem, got"
                f" {type(problem).__name__}"
            )
        self.problem, self.num_weights = problem, problem.num_weights
        self.bounds = problem.bounds
        norms = np.sqrt(problem.squares)
        eigenvector = self._first_eigenvector()
        rules = [np.ones(len(problem)), norms, np.abs(problem.scores(eigenvector))]
        candidates = [_normalise_scales(rule, self.bounds) for rule in rules]
        self.constants = [self.curvature(scales) for scales in candidates]
        self.scales = candidates[int(np.argmin(self.constants))]
        self._inverse_scaled_bounds = (
            np.where(self.bounds > 0, self.bounds, 1.0) / self.scales
        )

    def __len__(self) -> int:
        return len(self.problem)

    def _apply_curvature(self, scales: Floats, v: Floats) -> Floats:
        p = self.problem
        # X^T diag(c / s) X v: the labels cancel, as y^2 = 1.
        return p.combine(self.bounds / scales * p.y * p.scores(v))

    def _first_eigenvector(self) -> Floats:
        # A random start is almost surely not orthogonal to the first eigenvector.
        v = np.random.default_rng(0).standard_normal(self.num_weights)
        ones = np.ones(len(self))
        for _ in range(6):
            v = self._apply_curvature(ones, v)
            v /= max(float(np.linalg.norm(v)), 1e-300)
        return v

    def curvature(self, scales: Floats) -> float:
        """Lipschitz constant of the gradient of the smoothed risk, times mu."""
        return largest_eigenvalue(
            lambda v: self._apply_curvature(scales, v), self.num_weights, tol=1e-2
        )

    def diameter(self, smoothing: str = "l2") -> float:
        """Diameter of the dual set; it does not depend on scales of mean 1."""
        checks.require_choice("smoothing", smoothing, ("l2",))
        return self.problem.diameter(smoothing)

    def risk(self, w: Floats) -> tuple[float, Floats]:
        """Risk of the problem and a subgradient at w."""
        return self.problem.risk(w)

    def scores(self, w: Floats) -> Floats:
        """Scores of the problem at w."""
        return self.problem.scores(w)

    def smoothed_risk_of_scores(
        self, scores: Floats, mu: float, smoothing: str = "l2"
    ) -> tuple[float, Floats]:
        r"""Smoothed risk, and the dual variables that attain it.

        :math:`\max_\alpha \langle \alpha, 1 - y \circ s \rangle - \mu d(\alpha)` over
        the dual set.
        """
        checks.require_choice("smoothing", smoothing, ("l2",))
        margin_deficits, inverse_scale = (
            1 - self.problem.y * scores,
            self._inverse_scaled_bounds / mu,
        )
        # Completing the square gives a projection in the metric of d.
        alpha = self.problem.project(
            margin_deficits * inverse_scale, np.sqrt(1 / inverse_scale)
        )
        return float(
            alpha @ margin_deficits - alpha @ (alpha / inverse_scale) / 2
        ), alpha

    def smoothed_tangent(
        self, w: Floats, mu: float, smoothing: str = "l2", k: int = 5
    ) -> tuple[float, Floats, float]:
        """Smoothed risk, its gradient, and the offset of a tangent of the risk."""
        value, alpha = self.smoothed_risk_of_scores(self.scores(w), mu, smoothing)
        return value, -self.problem.combine(alpha), float(alpha.sum())


def _normalise_scales(rule: Floats, bounds: Floats) -> Floats:
    """Scale a rule to mean 1, weighted by the bounds, with a lower limit."""
    mean = float(bounds @ rule) / float(bounds.sum())
    if not mean > 0:
        return np.ones(len(rule))
    scales = np.maximum(rule / mean, MIN_RELATIVE_SCALE)
    return np.asarray(scales * float(bounds.sum()) / float(bounds @ scales))
