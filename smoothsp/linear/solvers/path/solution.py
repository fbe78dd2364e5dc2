"""Weights for every lambda, as a path of weights for some."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.solution import Resumable
from smoothsp.linear.inputs import checks


@dataclass(frozen=True)
class PathPoint(Resumable):
    """Weights at one lambda, and what it took to get there.

    Parameters
    ----------
    lam
        lambda.
    w
        ``(num_weights,)``, float64.
    primal
        The objective at ``w``; NaN where it was not computed.
    gap
        The duality gap, or its estimate where it was not computed.
    oracle_calls, seconds
        Since the beginning, those for certificates included.
    begins
        On a path the weights serve from here, at or above ``lam``, down to where those
        of the next point begin.
    """

    lam: float
    w: NDArray[np.float64] = field(repr=False)
    primal: float
    gap: float
    oracle_calls: int
    seconds: float
    begins: float = math.nan


@dataclass(frozen=True)
class PathSolution:
    """Weights for every lambda down to ``ends_at``.

    Parameters
    ----------
    points
        Breakpoints, lambda falling.
    ends_at
        The smallest lambda that there are weights for; 0 if the path is complete.
    eps
        How far the objective is from its minimum, at most, anywhere on the path.
    certified
        Whether that is certain, or only estimated.
    lam_infinity
        From here on upwards the first dual point is known to be good without looking.
    complete
        Whether there are weights for every lambda above 0.
    flat
        Whether it ends because a smaller lambda changes nothing: the mean hinge stays
        above eps, and the minimum at ten times the last lambda is at most eps above
        that at the last. The last weights are what these data allow, probably for
        every smaller lambda, too, but this is not proved below ``ends_at``.
    oracle_calls, seconds
        What the whole path took, its end included.
    status
        Why the path ends, as a sentence.
    state
        Arrays by name, from which ``solve(problem, resume=state)`` goes on.
        ``numpy.savez`` stores them without pickle.
    """

    points: list[PathPoint]
    ends_at: float
    eps: float
    certified: bool
    lam_infinity: float
    complete: bool
    flat: bool
    oracle_calls: int
    seconds: float
    status: str
    state: dict[str, NDArray[Any]] = field(repr=False)

    def evaluate(self, lam: float) -> NDArray[np.float64]:
        r"""Weights for one lambda: :math:`P_\lambda(w) \leq \min P_\lambda + \epsilon`.

        Parameters
        ----------
        lam
            Positive, at least ``ends_at``.

        Returns
        -------
        ndarray
            ``(num_weights,)``, float64. Those of a breakpoint; above the first, its
            weights times its lambda over this one.
        """
        lam = checks.positive("lam", lam)
        if lam < self.ends_at:
            raise ValueError(
                f"lam: expected at least {self.ends_at:.6g}, where the path ends, got "
                f"{lam:.6g}; solve(problem, resume=path.state) continues from there"
            )
        first = self.points[0]
        if lam >= first.lam:
            return first.lam / lam * first.w
        known = [point for point in self.points if point.begins >= lam]
        return known[-1].w.copy()


@dataclass(frozen=True)
class GridSolution:
    """Weights at the values of a grid.

    Parameters
    ----------
    points
        One for each value that was solved, lambda falling.
    complete
        Whether all were.
    oracle_calls, seconds
        What the whole grid took.
    status
        Why it ended, as a sentence.
    state
        Arrays by name, from which ``grid_search(problem, resume=state)`` goes on with
        the same parameters. ``numpy.savez`` stores them without pickle.
    """

    points: list[PathPoint]
    complete: bool
    oracle_calls: int
    seconds: float
    status: str
    state: dict[str, NDArray[Any]] = field(repr=False)
