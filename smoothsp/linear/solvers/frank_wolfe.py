"""Batch Frank-Wolfe for structured SVMs: all dual variables in one step."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.linear import frank_wolfe as kernels
from smoothsp.linear.engines import settings as engines_settings
from smoothsp.linear.engines.budget import Budget, limits, require_range
from smoothsp.linear.engines.runner import Solver, run
from smoothsp.linear.engines.solution import Callback, Solution, State
from smoothsp.linear.inputs import checks
from smoothsp.linear.problems import CallbackProblem, ChainProblem, LinearProblem
from smoothsp.linear.problems.callback import as_callbacks

Floats = NDArray[np.float64]


# From weights and lambda: unclipped weights, expected cost and mean hinge of the corner
# of the dual to which all examples point.
Corners = Callable[[Floats, float], tuple[Floats, float, float]]


def _chain_corners(problem: ChainProblem) -> Corners:
    s, n = problem.sentences, len(problem)
    losses, hinges = np.empty(n), np.empty(n)

    def corners(w: Floats, lam: float) -> tuple[Floats, float, float]:
        v = np.zeros(problem.flat_size)
        flat = problem.padded_weights(w)
        kernels.add_corners(0, n, s, flat, 1 / (lam * n), v, losses, hinges)
        return problem.plain_weights(v), float(losses.mean()), float(hinges.mean())

    return corners


def _callback_corners(problem: CallbackProblem) -> Corners:
    def corners(w: Floats, lam: float) -> tuple[Floats, float, float]:
        n = len(problem)
        found = [problem.worst(i, w) for i in range(n)]
        v = sum((c.psi for c in found), np.zeros(problem.num_weights)) / (lam * n)
        hinges = [max(c.loss - float(np.dot(w, c.psi)), 0.0) for c in found]
        return v, float(np.mean([c.loss for c in found])), float(np.mean(hinges))

    return corners


class BatchFrankWolfe:
    r"""Frank-Wolfe on the dual of a structured SVM, all examples at once.

    .. math:: g = \lambda \langle w - w_s, w \rangle - \ell + \ell_s, \qquad
        w \leftarrow w + \gamma (w_s - w), \quad
        \gamma = \min\left(1, \frac{g}{\lambda \|w - w_s\|^2}\right)

    where ``w_s`` and ``l_s`` belong to the worst outputs at w. Each pass certifies the
    gap; it needs many more passes than :class:`BCFW`, and no memory for dual variables.

    Parameters
    ----------
    lam
        lambda, positive.
    tol
        The duality gap at which to stop.
    max_passes, max_seconds
        Budgets; a pass is one oracle call for each example.
    callback
        Called with each :class:`~smoothsp.linear.Certificate`; a true answer stops.
    progress
        Whether to show a bar with the gap.
    bounds
        ``(lower, upper)`` of the weights, as for :class:`BCFW`.

    Notes
    -----
    Source: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
    Structured SVMs", algorithm 8.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import MulticlassProblem
    >>> problem = MulticlassProblem(np.eye(2), [0, 1])
    >>> solution = BatchFrankWolfe(lam=1.0, tol=1e-2).solve(problem)
    >>> solution.converged
    True
    """

    def __init__(
        self,
        *,
        lam: float,
        tol: float = 1e-3,
        max_passes: int = 1000,
        max_seconds: float | None = None,
        callback: Callback | None = None,
        progress: bool = False,
        bounds: tuple[Any, Any] | None = None,
    ) -> None:
        self.lam = checks.positive("lam", lam)
        self._bounds = engines_settings.pair_of_bounds(bounds)
        self._limits = limits(
            "BatchFrankWolfe", tol, max_passes, max_seconds, callback, progress
        )

    def solve(
        self,
        problem: LinearProblem,
        resume: State | None = None,
    ) -> Solution:
        """Train until the gap is small enough, or the budget is used up.

        Parameters
        ----------
        problem
            What to solve.
        resume
            The ``state`` of a solution of this solver: goes on bit for bit.
        """
        if isinstance(problem, ChainProblem):
            require_range(problem, self.lam)
            corners = _chain_corners(problem)
        else:
            corners = _callback_corners(as_callbacks(problem))
        box = engines_settings.box(self._bounds, problem.num_weights)
        passes = _Passes(corners, box, self.lam, len(problem))
        budget = Budget(self._limits, problem)
        return run(passes, budget, f"batch Frank-Wolfe lam={self.lam!r}", resume=resume)


class _Passes(Solver):
    """One oracle call an example gives the certificate, and then the next step."""

    passes, repeats = 0, True

    def __init__(
        self, corners: Corners, box: tuple[Floats, Floats], lam: float, n: int
    ) -> None:
        self.corners, self.box, self.lam, self.n = corners, box, lam, n
        # unclipped weights and expected cost, replaced as one
        self.reached: tuple[Floats, float] = (np.zeros(len(box[0])), 0.0)
        # the corner that was found there, its expected cost, and the gap
        self.found: tuple[Floats, float, float] | None = None
        self.certificate = math.nan, math.nan, math.nan

    @property
    def calls(self) -> int:
        return self.passes * self.n

    def advance(self) -> None:
        if self.found is not None:
            self._step(*self.found)
        v, ell = self.reached
        w, lam = self.weights(), self.lam
        corner, loss, hinge = self.corners(w, lam)
        norm, cross = float(np.dot(w, w)), float(np.dot(v, w))
        gap = lam * (cross - float(np.dot(corner, w))) - ell + loss
        self.certificate = lam / 2 * norm + hinge, ell - lam * (cross - norm / 2), gap
        self.found = corner, loss, gap
        self.passes += 1

    def _step(self, corner: Floats, loss: float, gap: float) -> None:
        v, ell = self.reached
        step = corner - v
        den = self.lam * float(np.dot(step, step))
        gamma = min(max(gap / den, 0.0), 1.0) if den > 0 else 0.0
        self.reached = v + gamma * step, ell + gamma * (loss - ell)
        self.found = None

    def estimate(self) -> float:
        return self.certificate[2]

    def certify(self) -> tuple[float, float, float]:
        if self.found is None:
            # there was no time for a pass
            self.advance()
        return self.certificate

    def weights(self) -> Floats:
        return np.clip(self.reached[0], *self.box)

    def state(self) -> State:
        v, ell = self.reached
        return {"v": v.copy(), "total_ell": np.array(ell), "lam": np.array(self.lam)}

    def load(self, state: State) -> None:
        self.reached = state["v"].copy(), float(state["total_ell"])
        self.passes = int(state["passes"])
