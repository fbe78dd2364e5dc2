"""Solutions over lambda: piecewise constant weights of a path, and of a grid."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.solution import Resumable
from smoothsp.linear.inputs import checks


@dataclass(frozen=True)
class PathPoint(Resumable):
    """Weights at one lambda, with their certificate and cost.

    Parameters
    ----------
    lam
        lambda.
    w
        ``(num_weights,)``, float64.
    primal
        The objective at ``w``.
    gap
        The duality gap.
    oracle_calls, seconds
        Totals since the start of the run, as in :class:`~smoothsp.linear.Certificate`.
    begins
        Largest lambda for which the path uses these weights, at least ``lam``; they
        apply down to ``begins`` of the next point.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import MulticlassProblem
    >>> from smoothsp.linear.solvers import RegularisationPath
    >>> path = RegularisationPath(eps=0.05).solve(MulticlassProblem(np.eye(2), [0, 1]))
    >>> point = path.points[0]
    >>> point.w.shape, point.gap <= 0.05
    ((4,), True)
    """

    lam: float
    w: NDArray[np.float64] = field(repr=False)
    primal: float
    gap: float
    oracle_calls: int
    seconds: float
    begins: float = math.nan

    @property
    def dual(self) -> float:
        """Lower bound of the minimum."""
        return self.primal - self.gap


@dataclass(frozen=True)
class PathSolution:
    """Weights for every lambda down to ``ends_at``.

    Parameters
    ----------
    points
        Breakpoints, lambda falling.
    ends_at
        The smallest lambda with weights; 0 if the path is complete.
    eps
        Upper bound of the suboptimality anywhere on the path.
    lam_infinity
        Lambda above which the first dual point has a gap of at most ``kappa eps``.
    complete
        Whether there are weights for every lambda above 0.
    flat
        True if the path ends because smaller values of lambda have no effect. The mean
        hinge is then above eps, and a tenfold lambda raises the minimum by at most eps.
        The last weights are probably near the minimum for every smaller lambda, but
        this is not certified below ``ends_at``.
    oracle_calls, seconds
        Totals of the whole path.
    status
        Reason why the path ends, as a sentence.
    state
        Arrays by name; ``solve(problem, resume=state)`` continues the run.
        ``numpy.savez`` stores them without pickle.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import MulticlassProblem
    >>> from smoothsp.linear.solvers import RegularisationPath
    >>> path = RegularisationPath(eps=0.05).solve(MulticlassProblem(np.eye(2), [0, 1]))
    >>> path.complete, path.evaluate(0.1).shape
    (True, (4,))
    """

    points: list[PathPoint]
    ends_at: float
    eps: float
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
            ``(num_weights,)``, float64. The weights of a breakpoint. Above the first
            breakpoint, its weights times its lambda divided by ``lam``.
        """
        lam = checks.as_positive("lam", lam)
        if lam < self.ends_at:
            raise ValueError(
                f"lam: expected at least {self.ends_at:.6g}, where the path ends, got "
                f"{lam:.6g}; solve(problem, resume=path.state) continues from there"
            )
        first = self.points[0]
        if lam >= first.lam:
            return first.lam / lam * first.w
        candidates = [point for point in self.points if point.begins >= lam]
        return candidates[-1].w.copy()


@dataclass(frozen=True)
class GridSolution:
    """Weights at the values of a grid.

    Parameters
    ----------
    points
        One point for each solved value, in order of decreasing lambda.
    complete
        Whether all values were solved.
    oracle_calls, seconds
        Totals of the whole grid.
    status
        Reason why it ended, as a sentence.
    state
        Arrays by name; ``grid_search(problem, resume=state)`` continues with the same
        parameters. ``numpy.savez`` stores them without pickle.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import MulticlassProblem
    >>> from smoothsp.linear.solvers import grid_search
    >>> grid = grid_search(MulticlassProblem(np.eye(2), [0, 1]), [1.0, 0.1])
    >>> [point.lam for point in grid.points]
    [1.0, 0.1]
    """

    points: list[PathPoint]
    complete: bool
    oracle_calls: int
    seconds: float
    status: str
    state: dict[str, NDArray[Any]] = field(repr=False)
