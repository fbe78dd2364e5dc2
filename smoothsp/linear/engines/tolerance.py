"""Relative tolerances: how small a gap is small enough."""

from collections.abc import Sequence
from dataclasses import dataclass

from smoothsp.linear.engines.solution import Certificate

STOPPING = ("objective", "relative_gap", "gap")


@dataclass(frozen=True)
class Tolerance:
    """A tolerance relative to the objective, as ``tol`` of a solver.

    A number as ``tol`` of a solver is the gap itself.

    Parameters
    ----------
    tol
        At least 0.
    stopping
        ``"objective"``: stop at a gap of ``tol`` times the dual, so that the objective
        is at most ``1 + tol`` times its minimum, if that is positive.
        ``"relative_gap"``: at ``tol`` times the first gap. ``"gap"``: at ``tol``.

    Notes
    -----
    Source: Wang and Scott, "An Exact Solver for the Weston-Watkins SVM Subproblem",
    sections 5 and A.6.3, for ``"relative_gap"``.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import MulticlassProblem
    >>> from smoothsp.linear.solvers import BCFW, Tolerance
    >>> solver = BCFW(lam=0.1, tol=Tolerance(0.01))
    >>> solution = solver.solve(MulticlassProblem(np.eye(2), [0, 1]))
    >>> bool(solution.gap <= 0.01 * solution.dual)
    True
    """

    tol: float
    stopping: str = "objective"

    def goal(self, history: Sequence[Certificate]) -> float:
        """Return the gap to stop at, given the certificates so far; 0 for none."""
        if self.stopping == "gap":
            return self.tol
        if not history:
            return 0.0
        if self.stopping == "relative_gap":
            return self.tol * history[0].gap
        # NaN where no bound is known
        return self.tol * max(0.0, history[-1].dual)
