r"""What two breakpoints prove of every lambda between them.

For fixed weights ``P_lambda(w) = lambda/2 ||w||^2 + H(w)`` is linear in lambda, H the
mean hinge. With ``u = (1/n) sum_i sum_y alpha_i(y) psi_i(y)`` the dual objective is

    D_lambda(alpha) = ell(alpha) - ||u(alpha)||^2 / (2 lambda),

jointly concave in alpha and lambda, since ``||u||^2 / lambda`` is jointly convex. So
between dual points alpha at lambda and beta at kappa the mixed ones keep D above the
chord, and ``P_lambda(w)`` less the chord, linear, bounds the excess of w all the way.
"""

import numpy as np

from smoothsp.linear.solvers.path.solution import PathPoint


def hinge_of(point: PathPoint) -> float:
    """The mean hinge at the weights of a breakpoint."""
    return point.primal - point.lam / 2 * float(np.dot(point.w, point.w))


def chord(above: PathPoint, below: PathPoint, lam: float) -> float:
    """A bound below the least objective, for lambda between two breakpoints."""
    share = (lam - below.lam) / (above.lam - below.lam)
    low, high = below.primal - below.gap, above.primal - above.gap
    return low + share * (high - low)


def meeting(above: PathPoint, below: PathPoint) -> tuple[float, float]:
    """Where the weights of the second breakpoint take over, and the bound there.

    Where both have the same objective, or at an end of the interval if one has the
    smaller one everywhere. The bound is that on the excess of either; elsewhere between
    the two breakpoints it is at most this or one of their gaps.
    """
    hinges = hinge_of(below) - hinge_of(above)
    squares = float(np.dot(above.w, above.w) - np.dot(below.w, below.w)) / 2
    lams = [above.lam, below.lam]
    if squares and below.lam < hinges / squares < above.lam:
        lams.append(hinges / squares)
    return min(
        ((lam, _excess(above, below, lam)) for lam in lams), key=lambda found: found[1]
    )


def _excess(above: PathPoint, below: PathPoint, lam: float) -> float:
    objectives = [
        point.primal + (lam - point.lam) / 2 * float(np.dot(point.w, point.w))
        for point in (above, below)
    ]
    return max(objectives) - chord(above, below, lam)
