"""Stochastic subgradient descent for linear structured models."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.linear import sgd as kernel
from smoothsp.linear.engines import run_monitor
from smoothsp.linear.engines.callback_loops import DenseSGD
from smoothsp.linear.engines.callback_objective import CallbackObjective
from smoothsp.linear.engines.compiled_objective import ChainObjective, Loss
from smoothsp.linear.engines.objective_factory import make_objective
from smoothsp.linear.engines.primal_passes import PrimalStepper, run_primal_solver
from smoothsp.linear.engines.run_monitor import Tolerance, check_limits
from smoothsp.linear.engines.solution import Callback, Solution, State
from smoothsp.linear.engines.sparse_loops import SparseSGD
from smoothsp.linear.inputs import checks
from smoothsp.linear.problems import LinearProblem

DECAYS = ("step", "constant", "inverse-sqrt", "pegasos")
AVERAGES = ("weighted", "uniform", "none")


class SGD:
    r"""Stochastic subgradient descent with averaging, one example per step.

    .. math:: w_t = w_{t-1} - \gamma_t (g_t + \lambda w_{t-1})

    with g_t a subgradient of the loss of one example. The cost of a step is
    proportional to the features of its example, because shrinking and averaging of all
    other weights are lazy.

    Parameters
    ----------
    lam
        lambda, positive.
    loss
        ``"hinge"``; ``"hinge-l2"``, smoothed over the ``k`` worst outputs;
        ``"hinge-entropy"``, smoothed over all; ``"likelihood"``, the negative
        log-likelihood of a conditional random field.
    mu, k
        Strength of the smoothing, and number of outputs of ``"hinge-l2"``.
    rate
        gamma, the first step size, positive. Not used by ``"pegasos"``.
    decay
        The t-th step size, t from 1, is ``rate`` times

        - ``"step"``: ``1 / (1 + floor(t / (period n)))``,
        - ``"constant"``: 1,
        - ``"inverse-sqrt"``: ``1 / sqrt(t)``,

        or ``"pegasos"``: ``1 / (lambda t)``.
    period
        Passes after which the step size is halved. After ``2 period`` passes it is a
        third.
    averaging
        ``"weighted"`` returns the average of the iterates, the t-th with weight t;
        ``"uniform"`` weights them equally; ``"none"`` returns the last iterate.
    average_after
        Passes before averaging begins; t counts from there.
    sampling
        ``"permutation"``, a new random order each pass, or ``"uniform"``.
    tol
        The gap ``|gradient|^2 / (2 lambda)`` at which to stop. An unsmoothed hinge has
        no such gap: the run stops when two evaluations have not lowered the objective
        by more than ``tol``. With 0 the run ends at its budget.
    evaluate_every
        Passes between evaluations of the objective. Each costs one oracle call per
        example, or two with a smoothed hinge, for ``primal`` and ``smoothed_primal``.
    max_passes, max_seconds, seed, callback, progress
        As in :class:`BCFW`.

    Notes
    -----
    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
    section 7.2; Shalev-Shwartz et al., "Pegasos: primal estimated sub-gradient solver
    for SVM" (2011), for the rate 1/(lambda t).

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import ChainProblem
    >>> problem = ChainProblem(np.eye(3), [0, 1, 1], lengths=[2, 1])
    >>> solution = SGD(lam=0.1, max_passes=20).solve(problem)
    >>> problem.decode(solution.w).tolist()
    [0, 1, 1]
    """

    def __init__(
        self,
        *,
        lam: float,
        loss: str = "hinge",
        mu: float = 1.0,
        k: int = 5,
        rate: float = 0.1,
        decay: str = "step",
        period: float = 5.0,
        averaging: str = "weighted",
        average_after: int = 0,
        sampling: str = "permutation",
        tol: float | Tolerance = 0.0,
        evaluate_every: int = 10,
        max_passes: int = 30,
        max_seconds: float | None = None,
        seed: int = 0,
        callback: Callback | None = None,
        progress: bool | None = None,
    ) -> None:
        checks.require_choice("decay", decay, DECAYS)
        checks.require_choice("averaging", averaging, AVERAGES)
        checks.require_choice("sampling", sampling, ("permutation", "uniform"))
        self.lam = checks.as_positive("lam", lam)
        self.loss = Loss(loss, mu, k)
        self.rate = checks.as_positive("rate", rate)
        self.decay, self.averaging, self.sampling = decay, averaging, sampling
        self.period = checks.as_positive("period", period)
        self.average_after = int(checks.as_nonnegative("average_after", average_after))
        self.seed = run_monitor.check_seed(seed)
        self.evaluate_every = checks.as_positive_int("evaluate_every", evaluate_every)
        if decay != "pegasos" and self.rate * self.lam > 1:
            raise ValueError(
                f"rate: expected at most 1 / lam = {1 / self.lam:.3g}, got {rate}: a "
                "larger step reverses the weights"
            )
        self._limits = check_limits(
            "SGD", tol, max_passes, max_seconds, callback, progress
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
        steps: PrimalStepper
        if not isinstance(objective, CallbackObjective):
            steps = _CompiledSGD(self, objective)
        else:
            sgd_class = SparseSGD if objective.sparse else DenseSGD
            steps = sgd_class(
                objective, lambda pass_index: self.plan(pass_index, objective.n)
            )
        settings = (
            f"SGD lam={self.lam!r} loss={self.loss} rate={self.rate!r}"
            f" decay={self.decay} period={self.period!r} averaging={self.averaging}"
            f" after={self.average_after} sampling={self.sampling} seed={self.seed}"
        )
        evaluate_every = self.evaluate_every
        return run_primal_solver(
            steps, objective, self._limits, evaluate_every, settings, start, resume
        )

    def plan(
        self, number: int, n: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Order, step sizes and weights in the average of a pass, each ``(n,)``."""
        rng = np.random.Generator(np.random.PCG64([self.seed, number]))
        uniform = self.sampling == "uniform"
        order = rng.integers(n, size=n) if uniform else rng.permutation(n)
        # Weights t rather than 1 suit step sizes 1 / t (section 7.2): late iterates
        # count more.
        t = number * n + np.arange(1, n + 1)
        average_weights: NDArray[Any] = np.zeros(n)
        if self.averaging != "none" and number >= self.average_after:
            weighted = self.averaging == "weighted"
            average_weights = (
                t - float(self.average_after * n) if weighted else np.ones(n)
            )
        return order, self.rates(t, n), average_weights

    def rates(self, steps: NDArray[np.int64], n: int) -> NDArray[np.float64]:
        """Step sizes of the steps with these numbers, counted from 1."""
        if self.decay == "pegasos":
            return np.asarray(1 / (self.lam * steps))
        if self.decay == "inverse-sqrt":
            return self.rate / np.sqrt(steps)
        if self.decay == "constant":
            return np.full(len(steps), self.rate)
        return self.rate / (1 + np.floor(steps / (self.period * n)))


class _CompiledSGD:
    """Run of the compiled SGD: iterate r W, and average (C W - Q) / total."""

    def __init__(self, solver: SGD, objective: ChainObjective) -> None:
        self.solver, self.objective = solver, objective
        self.W, self.tail = objective.split_weights(objective.zero_buffer())
        self.Q, self.tail_sum = objective.split_weights(objective.zero_buffer())
        # r, C, sum of the averaging weights, number of steps
        self.scales = np.array([1.0, 0.0, 0.0, 0.0])

    @property
    def passes(self) -> int:
        return int(self.scales[3]) // self.objective.n

    @property
    def calls(self) -> int:
        return int(self.scales[3])

    def initialise(self, w: NDArray[np.float64]) -> None:
        self.W[:], self.tail[:] = self.objective.split_weights(w)

    def run_pass(self) -> None:
        solver, pass_index = self.solver, self.passes
        losses = np.empty(self.objective.n)
        kernel.subgradient_steps(
            *solver.plan(pass_index, self.objective.n),
            solver.lam,
            self.objective.sequences,
            *solver.loss.kernel_arguments(solver.loss.mu),
            self.W,
            self.Q,
            self.tail,
            self.tail_sum,
            self.scales,
            losses,
        )
        if not np.isfinite(losses[-1]):
            raise FloatingPointError(
                f"SGD: the weights overflowed in pass {pass_index + 1}; choose a"
                " smaller rate"
            )

    def weights(self) -> NDArray[np.float64]:
        r, C, total, _ = self.scales
        flat = self.objective.zero_buffer()
        W, tail = self.objective.split_weights(flat)
        if total > 0:
            # A running mean of w = r W would touch all weights in each step.
            np.multiply(self.W, C / total, out=W)
            W -= self.Q / total
            np.divide(self.tail_sum, total, out=tail)
        else:
            np.multiply(self.W, r, out=W)
            tail[:] = self.tail
        return flat

    def state(self) -> State:
        return {name: array.copy() for name, array in self._get_arrays().items()}

    def load(self, state: State) -> None:
        checks.fill_from_state(state, **self._get_arrays())

    def _get_arrays(self) -> State:
        names = ("W", "Q", "tail", "tail_sum", "scales")
        return {name: getattr(self, name) for name in names}
