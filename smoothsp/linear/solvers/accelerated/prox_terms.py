"""Simple terms of composite objectives, with their prox functions.

The sum of a simple term, a multiple of its prox function d and a linear function has a
minimiser in closed form. d defines the Bregman divergence

    D(x, y) = d(x) - d(y) - <grad d(y), x - y>.

d is half the squared Euclidean norm, or the negative entropy on the simplex.
"""

import math
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from smoothsp.linear.inputs import checks
from smoothsp.projections import project_capped_simplex_kl, project_elastic_net_ball

Floats = NDArray[np.float64]


class Point(NamedTuple):
    """Point x with ``mirror``, the gradient of d at x, d(x) and Psi(x)."""

    x: Floats
    mirror: Floats
    d: float
    psi: float


class SimpleTerm(Protocol):
    """Convex function Psi on its domain, and prox function d.

    Attributes
    ----------
    strong
        Strong convexity of Psi relative to d: Psi - strong d is convex.
    mixes
        Whether Psi can be evaluated, by ``at``, at convex combinations of points.
    """

    strong: float
    mixes: bool

    def solve(self, p: Floats, near: float, step: float = 1.0) -> Point:
        """Minimise ``near d(x) - <p, x> + step Psi(x)``."""

    def at(self, x: Floats) -> Point:
        """Return x, a point of the domain, with d, its gradient and Psi."""

    def conjugate(self, v: Floats) -> float:
        """Convex conjugate ``sup_x <v, x> - Psi(x)``; may be infinite."""


class ElasticNet:
    r""":math:`\Psi(x) = l_1 \|x\|_1 + \tfrac{l_2}{2} \|x\|^2`, Euclidean.

    Parameters
    ----------
    l1, l2
        At least 0. If both are 0, Psi is 0.

    Examples
    --------
    >>> import numpy as np
    >>> ElasticNet(l1=1.0, l2=1.0).solve(np.array([3.0, 0.5]), 1.0).x.tolist()
    [1.0, 0.0]
    """

    mixes = True

    def __init__(self, l1: float = 0.0, l2: float = 0.0) -> None:
        self.l1 = checks.as_nonnegative("l1", l1)
        self.strong = checks.as_nonnegative("l2", l2)

    def solve(self, p: Floats, near: float, step: float = 1.0) -> Point:
        """Minimise ``near d(x) - <p, x> + step Psi(x)``: soft threshold, then scale."""
        threshold = step * self.l1
        # p - clip(p) is the soft threshold without signs or branches.
        x = p - np.clip(p, -threshold, threshold) if threshold else p
        return self.at(x / (near + step * self.strong))

    def at(self, x: Floats) -> Point:
        """Return x with d(x) = |x|^2 / 2 and Psi(x)."""
        half = float(x @ x) / 2
        norm = float(np.abs(x).sum()) if self.l1 else 0.0
        return Point(x, x, half, self.l1 * norm + self.strong * half)

    def conjugate(self, v: Floats) -> float:
        r""":math:`\sum_i [|v_i| - l_1]_+^2 / (2 l_2)`."""
        excess = np.maximum(np.abs(v) - self.l1, 0.0)
        if self.strong == 0:
            return math.inf if excess.any() else 0.0
        return float(excess @ excess) / (2 * self.strong)


class ElasticNetBall:
    r"""Indicator of :math:`l_1 \|x\|_1 + \tfrac{l_2}{2} \|x\|^2 \le r`, Euclidean.

    Parameters
    ----------
    l1, l2
        At least 0, not both 0.
    radius
        r, positive.

    Examples
    --------
    >>> import numpy as np
    >>> ElasticNetBall(1.0, 0.0, 2.0).solve(np.array([3.0, 0.5]), 1.0).x.tolist()
    [2.0, 0.0]
    """

    mixes, strong = True, 0.0

    def __init__(self, l1: float, l2: float, radius: float) -> None:
        self.l1 = checks.as_nonnegative("l1", l1)
        self.l2 = checks.as_nonnegative("l2", l2)
        if not self.l1 + self.l2 > 0:
            raise ValueError("l2: expected a positive number where l1 is 0, got 0")
        self.radius = checks.as_positive("radius", radius)

    def solve(self, p: Floats, near: float, step: float = 1.0) -> Point:
        """Project ``p / near`` on the ball."""
        v = torch.from_numpy(p / near)
        return self.at(
            project_elastic_net_ball(v, self.l1, self.l2, self.radius).numpy()
        )

    def at(self, x: Floats) -> Point:
        """Return x with d(x) = |x|^2 / 2."""
        return Point(x, x, float(x @ x) / 2, 0.0)

    def conjugate(self, v: Floats) -> float:
        """Support function of the ball: the maximum of ``<v, x>``."""
        magnitudes = np.sort(np.abs(v))[::-1]
        if not magnitudes[0] > 0:
            return 0.0
        if self.l2 == 0:
            return self.radius * float(magnitudes[0]) / self.l1
        # x = soft(v, t l1) / (t l2) for a multiplier t. With a support of the k largest
        # entries, t solves l1 |x|_1 + l2 / 2 |x|^2 = r; the largest consistent k holds.
        sums, count = (
            np.cumsum(magnitudes * magnitudes),
            np.arange(1, len(magnitudes) + 1),
        )
        t = np.sqrt(sums / (2 * self.radius * self.l2 + self.l1**2 * count))
        inside = magnitudes > self.l1 * t
        k = int(inside.sum()) - 1
        x = np.maximum(magnitudes - self.l1 * t[k], 0.0) / (self.l2 * t[k])
        return float(magnitudes @ x)


class CappedSimplex:
    r""":math:`\Psi(x) = \lambda \, \mathrm{KL}(x \,\|\, x_0)` on a simplex with a cap.

    The set is :math:`0 \le x \le \nu, \sum_i x_i = 1`, the prior :math:`x_0` is
    uniform, and d is the negative entropy.

    Parameters
    ----------
    size
        Number of entries n.
    lam
        lambda, at least 0.
    cap
        nu, at least 1 / n; by default there is none.

    Examples
    --------
    >>> import numpy as np
    >>> CappedSimplex(3, cap=0.5).solve(np.array([1.0, 0.0, 0.0]), 1.0).x.tolist()
    [0.5, 0.25, 0.25]
    """

    mixes = True

    def __init__(self, size: int, lam: float = 0.0, cap: float = math.inf) -> None:
        self.size = checks.as_positive_int("size", size)
        self.strong = checks.as_nonnegative("lam", lam)
        if not cap * size >= 1:
            raise ValueError(f"cap: expected at least 1 / {size}, got {cap!r}")
        self.cap = float(cap)

    def solve(self, p: Floats, near: float, step: float = 1.0) -> Point:
        """Capped softmax of ``p / (near + step lambda)``.

        The logarithm of the uniform prior shifts all entries of p equally, which does
        not change the minimiser.
        """
        logits = torch.from_numpy(p / (near + step * self.strong))
        return self.at(project_capped_simplex_kl(logits, self.cap).numpy())

    def at(self, x: Floats) -> Point:
        """Return x with the negative entropy d(x) and Psi(x)."""
        # A logarithm of -inf would keep an underflowed entry at 0 for ever.
        mirror = np.log(np.maximum(x, np.finfo(np.float64).tiny))
        d = float(x @ mirror)
        return Point(x, mirror, d, self.strong * (d + math.log(self.size)))

    def conjugate(self, v: Floats) -> float:
        """Convex conjugate: the maximum of ``<v, x> - Psi(x)`` on the set."""
        if self.strong > 0:
            point = self.solve(v, 0.0)
            return float(v @ point.x) - point.psi
        if self.cap >= 1:
            return float(v.max())
        # Without KL a vertex is optimal: the largest entries are filled up to the cap.
        vertex = np.clip(1.0 - self.cap * np.arange(len(v)), 0.0, self.cap)
        return float(np.sort(v)[::-1] @ vertex)
