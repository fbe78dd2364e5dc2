"""Dual coordinate ascent for conditional random fields and logistic regression."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines import run_monitor
from smoothsp.linear.engines.dual_ascent import DualAscentEngine
from smoothsp.linear.engines.dual_passes import DualPasses
from smoothsp.linear.engines.run_monitor import RunMonitor, Tolerance, check_limits
from smoothsp.linear.engines.runner import run_solver
from smoothsp.linear.engines.solution import (
    Callback,
    Solution,
    State,
    check_start_weights,
)
from smoothsp.linear.inputs import checks
from smoothsp.linear.problems import ChainProblem

# Measured ratio of the gaps at the last visits to those at the current weights.
_STALENESS = 2.0


class SDCA:
    r"""Stochastic dual coordinate ascent for the likelihood of chains and classes.

    .. math:: \min_w \tfrac{\lambda}{2} \|w\|^2
        + \tfrac{1}{n} \sum_i \omega_i \left[ \log Z_i(w)
        - \langle w, \phi(x_i, y_i) \rangle \right]

    A step computes the marginals of one sequence at the current weights by
    forward-backward, and moves its dual variable, the marginals of a distribution over
    its labellings, towards them by line search. The mean of the Kullback-Leibler
    divergences between the two is the duality gap.

    Parameters
    ----------
    lam
        lambda, positive. ``1 / (C n)`` for the form that multiplies the sum by C.
    sampling
        Choice of the next sequence: ``"gap"``, four times in five in proportion to its
        gap at its last visit, else uniformly; ``"uniform"``; or ``"permutation"``, a
        new random order each pass.
    tol
        The duality gap at which to stop, at least 0. A
        :class:`~smoothsp.linear.solvers.Tolerance` is relative to the objective.
    max_passes, max_seconds
        Budgets; a pass is n steps.
    seed
        Seed of the random numbers; equal seeds give equal results bit for bit.
    callback
        Called with each :class:`~smoothsp.linear.Certificate`; a true return value
        stops the run.
    progress
        Show a progress bar with the gap. None: on a terminal, if the run takes longer
        than three seconds.
    refresh_every
        Most passes between two certificates, each of which costs about half a pass. A
        certificate comes earlier if the gaps of the last visits sum to 2 ``tol``.

    Notes
    -----
    The dual objective never falls by more than rounding error. The primal objective may
    rise, even far above that of ``start``. The number of visits and the rounding grow
    with ``R^2 / lam`` for features of norm R. :class:`LBFGS` is better if lambda is
    small or features are not scaled.

    Dual variables take 8 bytes per pair of neighbouring positions and pair of labels.
    That is 131 MB for 200,000 words and 9 labels, and twice as much while the state is
    copied. :class:`LBFGS` stores none.

    Source: Le Priol, Piché and Lacoste-Julien, "Adaptive Stochastic Dual Coordinate
    Ascent for Conditional Random Fields" (2018), algorithm 1 and section 5.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import ChainProblem
    >>> problem = ChainProblem(np.eye(3), [0, 1, 1], lengths=[2, 1])
    >>> solution = SDCA(lam=0.1, tol=1e-8).solve(problem)
    >>> solution.converged, solution.gap <= 1e-8
    (True, True)
    """

    def __init__(
        self,
        *,
        lam: float,
        sampling: str = "gap",
        tol: float | Tolerance = 1e-3,
        max_passes: int = 1000,
        max_seconds: float | None = None,
        seed: int = 0,
        callback: Callback | None = None,
        progress: bool | None = None,
        refresh_every: int = 10,
    ) -> None:
        self.lam, self.loss = checks.as_positive("lam", lam), "likelihood"
        checks.require_choice("sampling", sampling, run_monitor.SAMPLINGS)
        self.sampling, self.tol = sampling, tol
        self.seed = run_monitor.check_seed(seed)
        self.refresh_every = checks.as_positive_int("refresh_every", refresh_every)
        self._limits = check_limits(
            "SDCA", tol, max_passes, max_seconds, callback, progress
        )

    def solve(
        self,
        problem: ChainProblem,
        start: Solution | NDArray[np.float64] | None = None,
        resume: State | None = None,
    ) -> Solution:
        """Train until the gap is small enough, or the budget is used up.

        Parameters
        ----------
        problem
            A :class:`ChainProblem`, :class:`HashedChainProblem` or
            :class:`MulticlassProblem`, whose costs are not used.
        start
            A solution of this solver and of the same problem, at any lambda: the run
            starts from its dual variables. With any other solution, or with weights,
            the marginals at the weights become the dual variables. The weights that
            belong to these may have a larger objective.
        resume
            The ``state`` of a solution of this solver, or that of a record in the
            callback: the run continues bit for bit.

        Returns
        -------
        Solution
            Weights with their certificate. Ctrl-C does not raise; it returns the
            current weights. A second Ctrl-C raises.

        Raises
        ------
        TypeError
            For problems without chains in compiled loops.
        MemoryError
            If the dual variables do not fit into memory.
        """
        if not isinstance(problem, ChainProblem):
            raise TypeError(
                "problem: expected a ChainProblem, HashedChainProblem or"
                f" MulticlassProblem, got {type(problem).__name__}; use LBFGS"
            )
        problem.require_range(self.lam)
        monitor = RunMonitor(self._limits, problem)
        engine = DualAscentEngine(problem, self.lam)
        settings = (
            f"SDCA lam={self.lam!r} sampling={self.sampling} seed={self.seed}"
            f" refresh_every={self.refresh_every}"
        )
        return run_solver(
            _SDCARun(self, engine, monitor), monitor, settings, start, resume
        )


def has_duals_for(problem: ChainProblem, start: object) -> bool:
    """Whether ``start`` is a solution of SDCA for the same examples."""
    state = getattr(start, "state", {})
    return "nodes" in state and state.get("examples") == problem.checksum


class _SDCARun(DualPasses):
    """Run of SDCA; starts from dual variables or from weights."""

    @property
    def certify_gap(self) -> float:
        return _STALENESS * self.monitor.gap_threshold

    def begin(self, start: Any) -> None:
        problem = self.engine.problem
        if has_duals_for(problem, start):
            self.engine.load_duals(start.state)
            return
        w = check_start_weights(start, problem.num_weights)
        self.engine.set_duals_at(problem.padded_weights(w))
