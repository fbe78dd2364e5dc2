"""What is known about how far a solution is from the optimum, and when it will do."""

from dataclasses import dataclass

# Below so many roundings of the objective at weights 0 a gap cannot be told from 0.
_ROUNDINGS = 4


@dataclass(frozen=True)
class Certificate:
    """A proof of how good a solution is: the optimum lies between dual and primal.

    Parameters
    ----------
    epoch
        Passes over the samples so far.
    seconds
        Time spent in these passes; certificates are not counted.
    primal
        The objective.
    dual
        A bound below its minimum.
    gap
        ``primal - dual``, computed as a sum of terms that are never negative.
    """

    epoch: int
    seconds: float
    primal: float
    dual: float
    gap: float


def goal(
    stopping: str, tol: float, first: Certificate, scale: float, epsilon: float
) -> float:
    """The gap at which to stop.

    Parameters
    ----------
    stopping
        ``"relative_gap"``: ``tol`` times the gap after the first epoch; ``"gap"``:
        ``tol``.
    tol
        At least 0.
    first
        The certificate after the first epoch.
    scale, epsilon
        The objective at weights 0, and the rounding of the dtype: no less is asked than
        what they leave visible.

    Notes
    -----
    Source: Wang and Scott, "An Exact Solver for the Weston-Watkins SVM Subproblem",
    sections 5 and A.6.3.
    """
    asked = tol * first.gap if stopping == "relative_gap" else tol
    return max(asked, _ROUNDINGS * epsilon * scale)
