"""Casimir-SVRG for linear structured models: accelerated SVRG with smoothing."""

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
        kappa, is_const = self.kappa, self.schedule == "const"
        if kappa is None:
            kappa_of_rule = schedules.svrg_kappa(smoothness, n, self.lam)
            kappa = kappa_of_rule if is_const else self.lam
        return schedules.CasimirSchedule(self.lam, kappa, self.loss.mu, not is_const)

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
        casimir_run = _CasimirRun(self, objective)
        return run_primal_solver(
            casimir_run,
            objective,
            self._limits,
            self.evaluate_every,
            settings,
            start,
            resume,
            casimir_run.last_mu if self.schedule == "adapt" else None,
        )


def estimate_example_smoothness(
    objective: AnyObjective, seed: int
) -> tuple[float, int]:
    """Estimate the smoothness of the losses of single examples at w = 0.

    Returns the estimate and the number of oracle calls.
    """
    mu, gradient = objective.loss.mu, objective.zero_buffer()
    w = torch.nn.Parameter(torch.zeros(len(gradient), dtype=torch.float64))
    calls = 0

    def closure(example: NDArray[np.int64]) -> torch.Tensor:
        nonlocal calls
        calls += 1
        flat = w.detach().numpy()
        if isinstance(objective, CallbackObjective):
            gradient[:] = 0
            value, estimate = objective.example_loss_and_gradient(
                int(example[0]), flat, mu
            )
            add(gradient, estimate)
        else:
            example_objective = ChainObjective(
                objective.problem.subset(example), objective.loss, objective.lam
            )
            value = example_objective.gradient(flat, mu, gradient)[0]
        # A loss with this value and gradient, affine in w: autograd never enters the
        # oracle.
        loss = value + (w - w.detach()) @ torch.from_numpy(gradient)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    examples = sample_order(seed, 0, objective.n)[:100, None]
    if not len(examples):
        return objective.lam, 0
    try:
        estimate = estimate_smoothness([w], closure, list(examples))
    except RuntimeError:  # the loss is not finite
        return math.inf, calls
    # All gradients are 0: every step size is safe.
    return estimate or objective.lam, calls


class _OuterState(NamedTuple):
    """State after k iterations: w_k, z_k, z_{k-1}, alpha_k, start objective of k."""

    k: int
    w: NDArray[np.float64]
    z: NDArray[np.float64]
    previous_z: NDArray[np.float64]
    alpha: float
    start_objective: float = math.inf
    restarts: int = 0


class _CasimirRun:
    def __init__(self, solver: CasimirSVRG, objective: AnyObjective) -> None:
        self.solver, self.objective = solver, objective
        is_const = solver.schedule == "const"
        L, self.estimation_oracle_calls = solver.smoothness or 1.0, 0
        if is_const and solver.smoothness is None:
            L, self.estimation_oracle_calls = estimate_example_smoothness(
                objective, solver.seed
            )
        # alpha_0^2 underflows to 0 if lambda is negligible beside L.
        if math.isfinite(L):
            self.schedule = solver.plan(objective.n, L)
        if not (math.isfinite(L) and self.schedule.alpha_0**2 > 0):
            raise FloatingPointError(
                "the gradients overflowed; scale the features, or choose a smaller "
                "rate or a larger smoothness"
            )
        kappa = self.schedule.kappa_at(1)
        curvature = solver.lam + kappa
        # Step 1 / (L + lambda + kappa): the smoothness of the terms of the subproblem.
        self.rate = 1 / (L + curvature) if is_const else solver.rate
        if self.rate * curvature >= 1:
            raise ValueError(
                f"rate: expected less than 1 / (lam + kappa) = {1 / curvature:.3g}, got"
                f" {self.rate}"
            )
        self.initialise(objective.zero_buffer())

    @property
    def passes(self) -> int:
        return self.outer_state.k

    @property
    def calls(self) -> int:
        # One call per example for the full gradient of an epoch, one for its n steps.
        epochs = self.solver.inner_passes * self.outer_state.k
        return (
            2 * epochs + self.outer_state.restarts
        ) * self.objective.n + self.estimation_oracle_calls

    def initialise(self, w: NDArray[np.float64]) -> None:
        self.outer_state = _OuterState(0, w, w, w, self.schedule.alpha_0)

    def run_pass(self) -> None:
        previous_k, w, z, _, alpha, _, restarts = self.outer_state
        k = previous_k + 1
        lam, kappa = self.solver.lam, self.schedule.kappa_at(k)
        kappa_next, mu = (
            self.schedule.kappa_at(k + 1),
            self.schedule.mu_at(k),
        )
        start = compute_snapshot(self.objective, self._start_weights(kappa), mu)
        if self.solver.warm_start == "restart" and self._has_objective_increased(start):
            # Free the snapshot first: it is as large as weights and gradients.
            del start
            start = compute_snapshot(self.objective, w, mu)
            z, alpha, restarts = w, self.schedule.alpha_0, restarts + 1
        start_objective, x = start.value, start.x
        for inner in range(self.solver.inner_passes):
            if inner:
                start = compute_snapshot(self.objective, x, mu)
            epoch_index = previous_k * self.solver.inner_passes + inner
            order = sample_order(self.solver.seed, epoch_index, self.objective.n)
            x = run_svrg_epoch(self.objective, start, order, self.rate, mu, kappa, z)
        alpha_next = schedules.next_alpha(alpha, kappa, kappa_next, lam)
        beta = schedules.extrapolation(alpha, alpha_next, kappa, kappa_next, lam)
        # Eq. (28); w is still w_{k-1}.
        z_next = x + beta * (x - w)
        # Other warm starts do not use z_{k-1}: store no second vector.
        previous_z = z if self.solver.warm_start in EXTRAPOLATED else z_next
        self.outer_state = _OuterState(
            k, x, z_next, previous_z, alpha_next, start_objective, restarts
        )

    def _start_weights(self, kappa: float) -> NDArray[np.float64]:
        _, w, z, previous_z, *_ = self.outer_state
        if self.solver.warm_start == "prev-iterate":
            return w
        if self.solver.warm_start == "prox-center":
            return z
        # The start of section 7.3.1: the minimiser of the quadratic terms moves with
        # the centre from z_{k-2} to z_{k-1} by kappa / (kappa + lambda) times the
        # difference.
        return w + kappa / (kappa + self.solver.lam) * (z - previous_z)

    def _has_objective_increased(self, start: Snapshot) -> bool:
        """Whether the objective exceeds that at the start of the previous iteration."""
        previous_objective = self.outer_state.start_objective
        # Near the minimum rounding alone would restart the extrapolation.
        rounding = np.finfo(np.float64).eps * abs(previous_objective)
        return (
            previous_objective < math.inf
            and not start.value - previous_objective <= rounding
        )

    def last_mu(self) -> float:
        """Strength of the smoothing of the last pass."""
        return self.schedule.mu_at(max(self.outer_state.k, 1))

    def weights(self) -> NDArray[np.float64]:
        return self.outer_state.w

    def state(self) -> State:
        k, w, z, previous_z, alpha, start_objective, restarts = self.outer_state
        return {
            "k": np.array(k),
            "w": self.objective.unpad(w),
            "z": np.array(z),
            "z_before": np.array(previous_z),
            "alpha": np.array(alpha),
            "started": np.array(start_objective),
            "restarts": np.array(restarts),
        }

    def load(self, state: State) -> None:
        z, previous_z = (self.objective.zero_buffer() for _ in range(2))
        checks.fill_from_state(state, z=z, z_before=previous_z)
        w = self.objective.as_start_weights(state["w"])
        start_objective, restarts = float(state["started"]), int(state["restarts"])
        alpha = float(state["alpha"])
        self.outer_state = _OuterState(
            int(state["k"]), w, z, previous_z, alpha, start_objective, restarts
        )
