"""What is known about how far a solution is from the optimum, and when it will do."""

from smoothsp.linear.engines.solution import Certificate

# A gap of fewer roundings of what the samples in it may cost cannot be told from 0.
_ROUNDINGS = 4
STOPPING = ("objective", "relative_gap", "gap")


def goal(stopping: str, tol: float, first: Certificate, last: Certificate) -> float:
    """The gap that is asked for.

    Parameters
    ----------
    stopping
        ``"objective"``: ``tol`` times the dual, so that the objective is at most
        ``1 + tol`` times the minimum; ``"relative_gap"``: ``tol`` times the gap after
        the first epoch; ``"gap"``: ``tol``.
    tol
        At least 0.
    first, last
        The certificates after the first epoch, and now.

    Notes
    -----
    Source: Wang and Scott, "An Exact Solver for the Weston-Watkins SVM Subproblem",
    sections 5 and A.6.3, for ``"relative_gap"``.
    """
    if stopping == "objective":
        return tol * max(last.dual, 0.0)
    return tol * first.gap if stopping == "relative_gap" else tol


def rounding(epsilon: float, at_stake: float) -> float:
    """The gap below which roundings cannot be told from what is missing.

    Parameters
    ----------
    epsilon
        Rounding of the dtype.
    at_stake
        What samples that have a coefficient or a loss cost at weights 0, summed.
    """
    return _ROUNDINGS * epsilon * at_stake
