"""Stochastic variance-reduced gradients for linear structured models."""

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines import run_monitor
from smoothsp.linear.engines.compiled_objective import Loss
from smoothsp.linear.engines.objective_factory import AnyObjective, make_objective
from smoothsp.linear.engines.primal_passes import run_primal_solver
from smoothsp.linear.engines.run_monitor import Tolerance, check_limits
from smoothsp.linear.engines.solution import Callback, Solution, State
from smoothsp.linear.engines.variance_reduced_epoch import (
    compute_snapshot,
    run_svrg_epoch,
    sample_order,
)
from smoothsp.linear.inputs import checks
from smoothsp.linear.problems import LinearProblem


class SVRG:
    r"""SVRG on a smoothed structured hinge, or on the likelihood.

    .. math:: x_t = x_{t-1} - \gamma \bigl( \nabla f_i(x_{t-1}) - \nabla f_i(\tilde w)
        + \nabla \bar f(\tilde w) + \lambda x_{t-1} \bigr)

    for n examples sampled uniformly. The mean of these iterates is the next
    :math:`\tilde w`. The cost of a step grows with the features of its example.

    Parameters
    ----------
    lam
        lambda, positive.
    loss
        ``"hinge-l2"``, ``"hinge-entropy"`` or ``"likelihood"``, as in :class:`SGD`;
        with ``"hinge"``, which is not smooth, the method is a heuristic.
    mu, k
        Strength of the smoothing, and number of outputs of ``"hinge-l2"``.
    rate
        gamma, positive, below ``1 / lam``.
    tol
        As in :class:`SGD`.
    evaluate_every, max_passes, max_seconds, seed, callback, progress
        As in :class:`SGD`. An epoch counts as one pass and has 2 n oracle calls: n for
        the full gradient and n for the steps. Gradients of single examples at the
        snapshot are stored as marginals.

    Notes
    -----
    The history records the minimised objective, including smoothing.

    Source: Johnson and Zhang (2013), as used by Pillutla et al., "A Smoother Way to
    Train Structured Prediction Models", section 7.2.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import ChainProblem
    >>> problem = ChainProblem(np.eye(3), [0, 1, 1], lengths=[2, 1])
    >>> solver = SVRG(lam=0.1, loss="likelihood", rate=0.2, tol=1e-6, max_passes=500)
    >>> solver.solve(problem).converged
    True
    """

    def __init__(
        self,
        *,
        lam: float,
        loss: str = "hinge-l2",
        mu: float = 1.0,
        k: int = 5,
        rate: float = 0.02,
        tol: float | Tolerance = 0.0,
        evaluate_every: int = 10,
        max_passes: int = 50,
        max_seconds: float | None = None,
        seed: int = 0,
        callback: Callback | None = None,
        progress: bool | None = None,
    ) -> None:
        self.lam = checks.as_positive("lam", lam)
        self.loss = Loss(loss, mu, k)
        self.rate = checks.as_positive("rate", rate)
        if self.rate * self.lam >= 1:
            raise ValueError(
                f"rate: expected less than 1 / lam = {1 / self.lam:.3g}, got {rate}"
            )
        self.seed = run_monitor.check_seed(seed)
        self.evaluate_every = checks.as_positive_int("evaluate_every", evaluate_every)
        self._limits = check_limits(
            "SVRG", tol, max_passes, max_seconds, callback, progress
        )

    def solve(
        self,
        problem: LinearProblem,
        start: Solution | NDArray[np.float64] | None = None,
        resume: State | None = None,
    ) -> Solution:
        """Train until the budget is used up; arguments as those of ``BCFW.solve``.

        ``start`` may be weights, too.

        Raises
        ------
        FloatingPointError
            If the steps are so long that the weights overflow.
        """
        objective = make_objective(problem, self.loss, self.lam)
        settings = (
            f"SVRG lam={self.lam!r} loss={self.loss} rate={self.rate!r}"
            f" seed={self.seed}"
        )
        svrg_run = _SVRGRun(self, objective)
        evaluate_every = self.evaluate_every
        return run_primal_solver(
            svrg_run, objective, self._limits, evaluate_every, settings, start, resume
        )


class _SVRGRun:
    def __init__(self, solver: SVRG, objective: AnyObjective) -> None:
        self.solver, self.objective = solver, objective
        # One assignment replaces both, so that Ctrl-C cannot separate them.
        self.svrg_state: tuple[int, NDArray[np.float64]] = (0, objective.zero_buffer())

    @property
    def passes(self) -> int:
        return self.svrg_state[0]

    @property
    def calls(self) -> int:
        # n calls for the full gradient, n for the steps.
        return 2 * self.objective.n * self.svrg_state[0]

    def initialise(self, w: NDArray[np.float64]) -> None:
        self.svrg_state = (0, w)

    def run_pass(self) -> None:
        epoch_index, w = self.svrg_state
        order = sample_order(self.solver.seed, epoch_index, self.objective.n)
        mu = self.solver.loss.mu
        start = compute_snapshot(self.objective, w, mu)
        w = run_svrg_epoch(self.objective, start, order, self.solver.rate, mu)
        self.svrg_state = (epoch_index + 1, w)

    def weights(self) -> NDArray[np.float64]:
        return self.svrg_state[1]

    def state(self) -> State:
        w = self.objective.unpad(self.svrg_state[1])
        return {"epochs": np.array(self.svrg_state[0]), "w": w}

    def load(self, state: State) -> None:
        self.svrg_state = (
            int(state["epochs"]),
            self.objective.as_start_weights(state["w"]),
        )
