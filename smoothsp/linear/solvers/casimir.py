"""Casimir-SVRG: accelerated and smoothed, for linear structured models."""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from smoothsp.linear.engines import run_monitor
from smoothsp.linear.engines.callback_objective import CallbackObjective
from smoothsp.linear.engines.compiled_objective import ChainObjective, Loss
from smoothsp.linear.engines.objective_factory import AnyObjective, make_objective
from smoothsp.linear.engines.primal_passes import run_primal_solver
from smoothsp.linear.engines.run_monitor import Tolerance, check_limits
from smoothsp.linear.engines.solution import Callback, Solution, State
from smoothsp.linear.engines.variance_reduced_epoch import (
    Snapshot,
    compute_snapshot,
    run_svrg_epoch,
    sample_order,
)
from smoothsp.linear.inputs import checks
from smoothsp.linear.inputs.vectors import add
from smoothsp.linear.problems import LinearProblem
from smoothsp.optim import estimate_smoothness, schedules

WARM_STARTS = ("restart", "prox-center", "extrapolation", "prev-iterate")
EXTRAPOLATED = ("restart", "extrapolation")


class CasimirSVRG:
    r"""Casimir with SVRG inside: a smoothed proximal point method, extrapolated.

    .. math::

        w_k \approx \arg\min_w F_{\mu_k}(w) + \tfrac{\kappa_k}{2} \|w - z_{k-1}\|^2,
        \qquad z_k = w_k + \beta_k (w_k - w_{k-1}).

    Parameters
    ----------
    lam
        lambda, positive.
    schedule
        ``"const"``: fixed smoothing, kappa and rate from ``smoothness``. ``"adapt"``:
        smoothing that falls geometrically, ``kappa = lam``, and the rate given.
    loss
        ``"hinge-l2"``, ``"hinge-entropy"`` or ``"likelihood"``, as in :class:`SGD`;
        ``"hinge"``, or ``mu = 0``, runs without smoothing.
    mu, k
        Strength of the smoothing, the first one of ``"adapt"``, and over how many
        outputs.
    smoothness
        L of ``"const"``, positive: Lipschitz constant of the gradient of the smoothed
        loss of an example. The rate is ``1 / (L + lam + kappa)``. None: the estimate of
        ``optim.estimate_smoothness`` on up to 100 examples. It takes several hundred
        oracle calls, which are counted.
    rate
        gamma of ``"adapt"``, positive.
    kappa
        Weight of the proximal term, if not that of the schedule.
    warm_start
        Start of epoch k. ``"extrapolation"`` is ``w_{k-1} + kappa / (kappa + lam)
        (z_{k-1} - z_{k-2})``, fast but unstable. ``"restart"`` is the same, unless the
        smoothed objective is higher there than at the start of epoch k - 1. Then it is
        w_{k-1} with ``z_{k-1} = w_{k-1}``, for n more oracle calls. ``"prox-center"``
        is z_{k-1}. ``"prev-iterate"`` is w_{k-1}, which is stable, and with
        ``inner_passes=1`` no faster than :class:`SVRG`.
    inner_passes
        Epochs of SVRG for each k.
    tol
        As in :class:`SGD`.
    evaluate_every, max_passes, max_seconds, seed, callback, progress
        As in :class:`SVRG`; a pass is one k.

    Notes
    -----
    The history has the minimised objective: with smoothing for ``"const"``, and the
    hinge itself for ``"adapt"``, whose gap includes the error of the smoothing.

    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
    algorithm 4, corollaries 17 and 18, proposition 29, section 7.3.1. Restarts:
    O'Donoghue and Candès, "Adaptive restart for accelerated gradient schemes".

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import ChainProblem
    >>> problem = ChainProblem(np.eye(3), [0, 1, 1], lengths=[2, 1])
    >>> solution = CasimirSVRG(lam=0.1).solve(problem)
    >>> problem.decode(solution.w).tolist()
    [0, 1, 1]
    """

    def __init__(
        self,
        *,
        lam: float,
        schedule: str = "const",
        loss: str = "hinge-l2",
        mu: float = 1.0,
        k: int = 5,
        smoothness: float | None = None,
        rate: float = 0.02,
        kappa: float | None = None,
        warm_start: str = "restart",
        inner_passes: int = 1,
        tol: float | Tolerance = 0.0,
        evaluate_every: int = 10,
        max_passes: int = 50,
        max_seconds: float | None = None,
        seed: int = 0,
        callback: Callback | None = None,
        progress: bool | None = None,
    ) -> None:
        checks.require_choice("schedule", schedule, ("const", "adapt"))
        checks.require_choice("warm_start", warm_start, WARM_STARTS)
        self.lam = checks.as_positive("lam", lam)
        self.schedule, self.warm_start = schedule, warm_start
        self.loss = Loss(loss, mu, k)
        self.smoothness = (
            None if smoothness is None else checks.as_positive("smoothness", smoothness)
        )
        self.rate = checks.as_positive("rate", rate)
        self.kappa = None if kappa is None else checks.as_positive("kappa", kappa)
        self.inner_passes = checks.as_positive_int("inner_passes", inner_passes)
        self.seed = run_monitor.check_seed(seed)
        self.evaluate_every = checks.as_positive_int("evaluate_every", evaluate_every)
        self._limits = check_limits(
            "Casimir-SVRG", tol, max_passes, max_seconds, callback, progress
        )

    def plan(self, n: int, smoothness: float) -> schedules.CasimirSchedule:
        """Return the sequences for n examples whose losses have this smoothness."""
        kappa, const = self.kappa, self.schedule == "const"
        if kappa is None:
            found = schedules.svrg_kappa(smoothness, n, self.lam)
            kappa = found if const else self.lam
        return schedules.CasimirSchedule(self.lam, kappa, self.loss.mu, not const)

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
            f"CasimirSVRG lam={self.lam!r} schedule={self.schedule} loss={self.loss}"
            f" smoothness={self.smoothness!r} rate={self.rate!r} kappa={self.kappa!r}"
            f" warm_start={self.warm_start} inner_passes={self.inner_passes}"
            f" seed={self.seed}"
        )
        outer = _Outer(self, objective)
        return run_primal_solver(
            outer,
            objective,
            self._limits,
            self.evaluate_every,
            settings,
            start,
            resume,
            outer.last_mu if self.schedule == "adapt" else None,
        )


def estimate_example_smoothness(
    objective: AnyObjective, seed: int
) -> tuple[float, int]:
    """Smoothness of single examples near weights 0, and the oracle calls."""
    mu, slope = objective.loss.mu, objective.zero_buffer()
    w = torch.nn.Parameter(torch.zeros(len(slope), dtype=torch.float64))
    calls = 0

    def closure(example: NDArray[np.int64]) -> torch.Tensor:
        nonlocal calls
        calls += 1
        flat = w.detach().numpy()
        if isinstance(objective, CallbackObjective):
            slope[:] = 0
            value, found = objective.one(int(example[0]), flat, mu)
            add(slope, found)
        else:
            alone = ChainObjective(
                objective.problem.subset(example), objective.loss, objective.lam
            )
            value = alone.gradient(flat, mu, slope)[0]
        loss = value + (w - w.detach()) @ torch.from_numpy(slope)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    examples = sample_order(seed, 0, objective.n)[:100, None]
    if not len(examples):
        return objective.lam, 0
    try:
        found = estimate_smoothness([w], closure, list(examples))
    except RuntimeError:  # a loss that is no number
        return math.inf, calls
    # 0 where no example has a slope: any step does
    return found or objective.lam, calls


class _Reached(NamedTuple):
    """After k iterations: w_k, z_k, z_{k-1}, alpha_k; where the k-th one started."""

    k: int
    w: NDArray[np.float64]
    z: NDArray[np.float64]
    z_before: NDArray[np.float64]
    alpha: float
    started: float = math.inf
    restarts: int = 0


class _Outer:
    def __init__(self, solver: CasimirSVRG, objective: AnyObjective) -> None:
        self.solver, self.objective = solver, objective
        const = solver.schedule == "const"
        L, self.asked = solver.smoothness or 1.0, 0
        if const and solver.smoothness is None:
            L, self.asked = estimate_example_smoothness(objective, solver.seed)
        # where lambda is nothing beside L, no step pulls the weights to 0 any more
        if math.isfinite(L):
            self.plan = solver.plan(objective.n, L)
        if not (math.isfinite(L) and self.plan.alpha_0**2 > 0):
            raise FloatingPointError(
                "the gradients overflowed; scale the features, or choose a smaller "
                "rate or a larger smoothness"
            )
        kappa = self.plan.kappa_at(1)
        pull = solver.lam + kappa
        self.rate = 1 / (L + pull) if const else solver.rate
        if self.rate * pull >= 1:
            raise ValueError(
                f"rate: expected less than 1 / (lam + kappa) = {1 / pull:.3g}, got"
                f" {self.rate}"
            )
        self.begin(objective.zero_buffer())

    @property
    def passes(self) -> int:
        return self.reached.k

    @property
    def calls(self) -> int:
        epochs = self.solver.inner_passes * self.reached.k
        return (2 * epochs + self.reached.restarts) * self.objective.n + self.asked

    def begin(self, w: NDArray[np.float64]) -> None:
        self.reached = _Reached(0, w, w, w, self.plan.alpha_0)

    def advance(self) -> None:
        before, w, z, _, alpha, _, restarts = self.reached
        k = before + 1
        lam, kappa = self.solver.lam, self.plan.kappa_at(k)
        kappa_next, mu = self.plan.kappa_at(k + 1), self.plan.mu_at(k)
        start = compute_snapshot(self.objective, self._start(kappa), mu)
        if self.solver.warm_start == "restart" and self._has_risen(start):
            # as large as the weights and the slopes
            del start
            start = compute_snapshot(self.objective, w, mu)
            z, alpha, restarts = w, self.plan.alpha_0, restarts + 1
        started, x = start.value, start.x
        for inner in range(self.solver.inner_passes):
            if inner:
                start = compute_snapshot(self.objective, x, mu)
            number = before * self.solver.inner_passes + inner
            order = sample_order(self.solver.seed, number, self.objective.n)
            x = run_svrg_epoch(self.objective, start, order, self.rate, mu, kappa, z)
        alpha_next = schedules.next_alpha(alpha, kappa, kappa_next, lam)
        beta = schedules.extrapolation(alpha, alpha_next, kappa, kappa_next, lam)
        z_next = x + beta * (x - w)
        # only these starts need the one before
        kept = z if self.solver.warm_start in EXTRAPOLATED else z_next
        self.reached = _Reached(k, x, z_next, kept, alpha_next, started, restarts)

    def _start(self, kappa: float) -> NDArray[np.float64]:
        _, w, z, z_before, *_ = self.reached
        if self.solver.warm_start == "prev-iterate":
            return w
        if self.solver.warm_start == "prox-center":
            return z
        return w + kappa / (kappa + self.solver.lam) * (z - z_before)

    def _has_risen(self, start: Snapshot) -> bool:
        """Whether the objective is higher than where the iteration before started."""
        before = self.reached.started
        rounding = np.finfo(np.float64).eps * abs(before)
        return before < math.inf and not start.value - before <= rounding

    def last_mu(self) -> float:
        """Strength of the smoothing of the last pass."""
        return self.plan.mu_at(max(self.reached.k, 1))

    def weights(self) -> NDArray[np.float64]:
        return self.reached.w

    def state(self) -> State:
        found = {
            name: np.array(value) for name, value in self.reached._asdict().items()
        }
        return {**found, "w": self.objective.unpad(self.reached.w)}

    def load(self, state: State) -> None:
        z, z_before = (self.objective.zero_buffer() for _ in range(2))
        checks.fill_from_state(state, z=z, z_before=z_before)
        w = self.objective.as_start_weights(state["w"])
        started, restarts = float(state["started"]), int(state["restarts"])
        alpha = float(state["alpha"])
        self.reached = _Reached(
            int(state["k"]), w, z, z_before, alpha, started, restarts
        )
