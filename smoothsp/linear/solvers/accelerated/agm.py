"""Accelerated gradient methods for regularised risk minimisation."""

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.run_monitor import RunMonitor, Tolerance, check_limits
from smoothsp.linear.engines.runner import Solver, run_solver
from smoothsp.linear.engines.solution import (
    Callback,
    Solution,
    State,
    check_start_weights,
)
from smoothsp.linear.inputs import checks
from smoothsp.linear.solvers.accelerated.counted import CountedProblem
from smoothsp.linear.solvers.accelerated.estimate_functions import MEMORIES, Iteration
from smoothsp.linear.solvers.accelerated.lipschitz import (
    estimate_curvature,
    largest_eigenvalue,
)
from smoothsp.linear.solvers.accelerated.pragam import Pragam
from smoothsp.linear.solvers.accelerated.prox_terms import (
    CappedSimplex,
    ElasticNet,
    SimpleTerm,
)
from smoothsp.linear.solvers.accelerated.risks import (
    DualSet,
    Likelihood,
    NegativeDual,
    SmoothedRisk,
)
from smoothsp.linear.solvers.accelerated.scaled_hinge import ScaledHinge

Floats = NDArray[np.float64]

# Settings that a saved state must match.
_STATE_SETTINGS = (
    "scheme",
    "memory",
    "loss",
    "lam",
    "l1",
    "domain",
    "cap",
    "mu",
    "anneal",
    "adaptive",
)
SCHEMES = ("primal-smoothing", "dual-smoothing", "decreasing", "dual")
# Annealed smoothing divides mu by 4 when the gap is at most twice the error mu D.
MU_DECREASE, GAP_TO_ERROR_RATIO = 4.0, 2.0
# Target gap of relative tolerances: never reached, so that annealing continues.
MIN_TARGET_GAP = 1e-100
# Argument k of ``smoothed_tangent``: outputs in the projection of "l2".
_TANGENT_OUTPUTS = 5


class AGM:
    r"""Nesterov's accelerated gradient methods on a regularised risk, with a gap.

    .. math:: P(w) = \tfrac{\lambda}{2} \|w\|^2 + l_1 \|w\|_1 + R(w)

    A risk R that is a maximum is smoothed, :math:`R - \mu D \le R_\mu \le R`, or the
    dual is maximised instead. The certificate always bounds P without smoothing.

    Parameters
    ----------
    lam
        lambda, positive, or 0 with ``l1``.
    l1
        Strength of the absolute values; not on the simplex.
    scheme
        ``"primal-smoothing"`` minimises the smoothed risk in w. ``"dual"`` maximises
        the dual. ``"dual-smoothing"`` subtracts ``mu d`` from the dual, which is then
        strongly concave. ``"decreasing"`` is :class:`Pragam`, whose smoothing falls
        from step to step; for two classes. The last three need a positive ``lam``, and
        the schemes of the dual a problem with ``smoothed_tangent``.
    memory
        ``"infinite"`` averages all gradients, ``"one"`` keeps a single divergence.
    loss
        ``"hinge"`` for the problem's ``risk``; ``"likelihood"`` for its ``likelihood``,
        which is smooth and is minimised in w.
    smoothing
        ``"entropy"`` or ``"l2"``; by default the latter for two classes, for the ROC
        area and for oracles in Python. ``"l2"`` is a projection over the best 5
        outputs; the schemes of the dual take it where there are no more.
    mu
        Strength of the smoothing. By default ``tol / (2 D)``: the smoothing then takes
        half of the allowed gap.
    anneal
        With ``"primal-smoothing"``: begin with a large mu and lower it as the gap
        falls. None: if ``tol`` is relative, because its mu is not known in advance.
    prox
        ``"uniform"``, or ``"data"`` for two classes with ``"l2"``. The latter smooths
        each sample by the length of its features, or of their component along the
        first eigenvector, if that lowers the Lipschitz constant.
    domain
        ``"space"``, or ``"simplex"``: weights of at least 0 that sum to 1. On the
        simplex, lambda multiplies the relative entropy to equal weights.
    cap
        Largest value of a weight on the simplex.
    lipschitz
        L, a bound of the Lipschitz constant. By default it comes from the spectral norm
        of the features of two classes. With ``adaptive``, trials begin there, or at a
        guess.
    adaptive
        If True, search for L at each iteration, downwards as well as upwards.
    tol
        The gap at which to stop.
    certify_every
        Iterations between certificates. Each costs an evaluation of the risk.
    max_passes, max_seconds, callback, progress
        As in :class:`BCFW`. A pass is an iteration: one gradient, and the evaluations
        that search for L.

    Raises
    ------
    ValueError
        For parameters out of range, and for schemes that the problem or the loss does
        not support.

    Notes
    -----
    ``primal``, ``w`` and ``dual`` are the best so far.

    With A the matrix of all features, the primal needs
    :math:`\sqrt{D \|A\|^2 / (\lambda \epsilon)} \log(1 / \epsilon)` iterations, or
    ``O(1 / epsilon)`` without lambda. The dual needs
    :math:`\sqrt{D \|A\|^2 / (\lambda \epsilon)}`, up to a logarithm with smoothing.

    Source: Zhang, Saha and Vishwanathan, "Regularized Risk Minimization by Nesterov's
    Accelerated Gradient Methods", algorithms 1 to 4 and sections 5.1 to 5.3. The bound
    of ``"primal-smoothing"`` uses tangents of R if the problem computes them. Not in
    the paper: structured dual variables are stored as tangents, and ``anneal``, of
    which it has the idea.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import BinaryProblem
    >>> problem = BinaryProblem(np.eye(4), [1, 1, -1, -1], bias=True)
    >>> AGM(lam=0.1, tol=1e-4).solve(problem).converged
    True
    """

    def __init__(
        self,
        *,
        lam: float,
        l1: float = 0.0,
        scheme: Literal[
            "primal-smoothing", "dual-smoothing", "decreasing", "dual"
        ] = "primal-smoothing",
        memory: Literal["infinite", "one"] = "infinite",
        loss: Literal["hinge", "likelihood"] = "hinge",
        smoothing: Literal["entropy", "l2"] | None = None,
        mu: float | None = None,
        anneal: bool | None = None,
        prox: Literal["uniform", "data"] = "uniform",
        domain: Literal["space", "simplex"] = "space",
        cap: float = math.inf,
        lipschitz: float | None = None,
        adaptive: bool = True,
        tol: float | Tolerance = 1e-3,
        certify_every: int = 1,
        max_passes: int = 10_000,
        max_seconds: float | None = None,
        callback: Callback | None = None,
        progress: bool | None = None,
    ) -> None:
        checks.require_choice("scheme", scheme, SCHEMES)
        checks.require_choice("memory", memory, tuple(MEMORIES))
        checks.require_choice("loss", loss, ("hinge", "likelihood"))
        checks.require_choice("domain", domain, ("space", "simplex"))
        checks.require_choice("prox", prox, ("uniform", "data"))
        if smoothing is not None:
            checks.require_choice("smoothing", smoothing, ("entropy", "l2"))
        self.lam = checks.as_nonnegative("lam", lam)
        self.l1 = checks.as_nonnegative("l1", l1)
        if domain == "simplex" and self.l1:
            raise ValueError("l1: expected 0 on the simplex, where it is constant")
        if domain == "space" and not math.isinf(cap):
            raise ValueError("cap: expected inf with domain='space'")
        needs_lam = scheme != "primal-smoothing" or (domain == "space" and not self.l1)
        if needs_lam and not self.lam:
            raise ValueError("lam: expected a positive number, got 0")
        if loss == "likelihood" and scheme != "primal-smoothing":
            raise ValueError(
                "scheme: expected 'primal-smoothing' for a likelihood, which is smooth"
            )
        self.mu = None if mu is None else checks.as_positive("mu", mu)
        is_smoothed = loss == "hinge" and scheme in SCHEMES[:2]
        self._limits = check_limits(
            "AGM", tol, max_passes, max_seconds, callback, progress
        )
        tolerance = self._limits.tol
        self.target_gap = (
            MIN_TARGET_GAP
            if isinstance(tolerance, Tolerance)
            else max(tolerance, MIN_TARGET_GAP)
        )
        if anneal is None:
            is_relative = isinstance(tolerance, Tolerance) and mu is None
            anneal = is_relative and is_smoothed and scheme == "primal-smoothing"
        if (
            self.mu is None
            and is_smoothed
            and not (anneal or self.target_gap > MIN_TARGET_GAP)
        ):
            raise ValueError(
                "mu: expected a number, or anneal=True, if tol is 0 or relative, got"
                " None"
            )
        self.lipschitz = (
            None if lipschitz is None else checks.as_positive("lipschitz", lipschitz)
        )
        self.adaptive = checks.as_bool("adaptive", adaptive)
        self.scheme, self.memory, self.loss = scheme, memory, loss
        self.smoothing, self.domain, self.cap = smoothing, domain, cap
        if scheme == "decreasing" and (self.l1 or domain == "simplex"):
            raise ValueError(
                "scheme: expected a scheme other than 'decreasing' with l1 or on the"
                " simplex"
            )
        self.prox, self.anneal = prox, checks.as_bool("anneal", anneal)
        if prox == "data" and (scheme == "decreasing" or smoothing == "entropy"):
            raise ValueError(
                "prox: expected 'uniform' with scheme='decreasing' or"
                " smoothing='entropy', got 'data'"
            )
        if self.anneal and (scheme != "primal-smoothing" or loss != "hinge"):
            raise ValueError(
                "anneal: expected False unless scheme='primal-smoothing' and"
                " loss='hinge', got True"
            )
        self.certify_every = checks.as_positive_int("certify_every", certify_every)

    def solve(
        self,
        problem: Any,
        start: Solution | NDArray[np.float64] | None = None,
        resume: State | None = None,
    ) -> Solution:
        """Minimise until the gap is small enough, or the budget is used up.

        Parameters
        ----------
        problem
            A ``BatchProblem``.
        start
            A solution, or weights, to start from, of ``"primal-smoothing"``; by default
            0, or equal weights on the simplex.
        resume
            The ``state`` of a solution of this solver; the run continues bit for bit.

        Returns
        -------
        Solution
            The best weights so far. Ctrl-C does not raise; it returns the current
            weights.
        """
        if self.scheme == "decreasing":
            return self._solve_with_pragam(problem, start, resume)
        if self.prox == "data":
            problem = ScaledHinge(problem)
        penalty: SimpleTerm = ElasticNet(self.l1, self.lam)
        if self.domain == "simplex":
            penalty = CappedSimplex(problem.num_weights, self.lam, self.cap)
        solver = (_PrimalRun if self.scheme == "primal-smoothing" else _DualRun)(
            self, problem, penalty
        )
        # Listed only if they differ from the defaults: older states have neither.
        defaults = {"smoothing": None, "prox": "uniform"}
        names = [
            *_STATE_SETTINGS,
            *(x for x, y in defaults.items() if getattr(self, x) != y),
        ]
        settings = " ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return run_solver(
            solver, RunMonitor(self._limits, problem), f"AGM {settings}", start, resume
        )

    def _solve_with_pragam(self, problem: Any, start: Any, resume: Any) -> Solution:
        if start is not None:
            raise ValueError("start: expected None for a scheme that starts at 0")
        limits = self._limits
        return Pragam(
            lam=self.lam,
            lipschitz="adaptive" if self.adaptive else self.lipschitz or "fixed",
            tol=limits.tol,
            certify_every=self.certify_every,
            max_passes=limits.max_passes,
            max_seconds=None if math.isinf(limits.max_seconds) else limits.max_seconds,
            callback=limits.callback,
            progress=limits.progress,
        ).solve(problem, resume)


class _AGMRun(Solver):
    certify_on_interrupt = True
    passes = 0

    def __init__(self, settings: AGM, problem: Any, penalty: SimpleTerm) -> None:
        self.settings, self.penalty = settings, penalty
        self.problem = CountedProblem(problem)
        self.size = problem.num_weights
        default_smoothing = getattr(problem, "smoothing", "entropy")
        self.smoothing = settings.smoothing or default_smoothing
        self.best_primal, self.dual = math.inf, -math.inf
        self.best_w = self._initial_weights()
        self.iteration = self._start_method(self.best_w)

    def _initial_weights(self) -> Floats:
        if self.settings.domain == "simplex":
            return np.full(self.size, 1 / self.size)
        return np.zeros(self.size)

    def _start_method(self, w: Floats) -> Iteration:
        raise NotImplementedError

    def _curvature_unless_adaptive(self) -> float | None:
        """Curvature of the binary risk times mu, by power iteration; None if adaptive.

        The Hessian of the smoothed hinge is at most ``X^T diag(c) X / mu``.
        """
        if self.settings.adaptive:
            return None
        problem = self.problem.problem
        p = getattr(problem, "problem", problem)
        if not hasattr(p, "combine"):
            raise ValueError(
                "lipschitz: expected a bound where adaptive is False, got None"
            )
        if isinstance(problem, ScaledHinge):
            return 1.05 * min(problem.constants)

        def apply(v: Floats) -> Floats:
            return np.asarray(p.combine(p.bounds * p.y * p.scores(v)))

        return 1.05 * largest_eigenvalue(apply, self.size)

    def _make_method(self, *arguments: Any) -> Iteration:
        return MEMORIES[self.settings.memory](*arguments)

    @property
    def calls(self) -> int:
        return self.problem.calls

    def advance(self) -> str | None:
        if self.iteration.has_stalled:
            return "no step decreases the objective by more than rounding error"
        self.iteration.step()
        self.passes += 1
        return None

    def due(self) -> bool:
        return self.passes % self.settings.certify_every == 0

    def _update_best(self, w: Floats, primal: float) -> None:
        if primal < self.best_primal:
            self.best_primal, self.best_w = primal, w

    def certify(self) -> tuple[float, float, float]:
        if not self.passes:
            # A budget or Ctrl-C ended the run before its first pass.
            self.advance()
        self._update_bounds()
        return self.best_primal, self.dual, max(self.best_primal - self.dual, 0.0)

    def _update_bounds(self) -> None:
        raise NotImplementedError

    def weights(self) -> Floats:
        return self.best_w.copy()

    def state(self) -> State:
        return {
            **self.iteration.state(),
            "w": self.best_w.copy(),
            "bounds": np.array([self.best_primal, self.dual]),
            "calls": np.array(self.problem.calls),
        }

    def load(self, state: State) -> None:
        (self.best_w,) = checks.fill_from_state(state, w=np.empty(self.size))
        self.iteration.load(state)
        self.best_primal, self.dual = (float(x) for x in state["bounds"])
        self.passes, self.problem.calls = int(state["passes"]), int(state["calls"])


class _PrimalRun(_AGMRun):
    """Run that minimises smoothed risk plus penalty."""

    def __init__(self, settings: AGM, problem: Any, penalty: SimpleTerm) -> None:
        self.mu = self.last_mu = 0.0
        super().__init__(settings, problem, penalty)

    def _start_method(self, w: Floats) -> Iteration:
        settings, problem = self.settings, self.problem
        self.f: Likelihood | SmoothedRisk = Likelihood(problem)
        if settings.loss == "hinge":
            if not self.mu:
                D = max(problem.diameter(self.smoothing), 1e-300)
                # mu = eps / (2 D): smoothing by mu D takes half of the gap, eq. (57).
                self.last_mu = settings.mu or settings.target_gap / (2 * D)
                # At the largest mu, the error mu D is a quarter of the initial risk.
                max_mu = float(problem.risk(w)[0]) / (4 * D)
                self.mu = max(max_mu if settings.anneal else 0.0, self.last_mu)
            self.f = SmoothedRisk(problem, self.mu, self.smoothing)
        start_point = self.penalty.at(w)
        L = settings.lipschitz
        if (
            L is None
            and (curvature_bound := self._curvature_unless_adaptive())
            and self.mu
        ):
            # The same bound holds for both smoothings.
            L = curvature_bound / self.mu
        L = L or estimate_curvature(self.f, w)
        return self._make_method(
            self.f, self.penalty, start_point, L, settings.adaptive
        )

    def begin(self, start: Any) -> None:
        """Start from weights."""
        w = check_start_weights(start, self.size)
        if self.settings.domain == "simplex" and not (
            (w > 0).all() and abs(w.sum() - 1) < 1e-9
        ):
            raise ValueError("start: expected positive weights that sum to 1")
        self.best_w = w
        self.iteration = self._start_method(w)

    def _update_bounds(self) -> None:
        x = self.iteration.x
        self._update_best(x, self.f.exact_risk(x) + self.penalty.at(x).psi)
        self.dual = max(self.dual, self._compute_bound())

    def _compute_bound(self) -> float:
        bound = self.iteration.lower_bound()
        if math.isfinite(bound) or self.settings.domain == "simplex":
            return bound
        # With lambda = 0 the conjugate is finite only for |G| <= l1. The risk is >= 0,
        # so that a tangent scaled by a factor below 1 is a lower bound, too.
        G, offset = self.iteration.model.G, self.iteration.model.offset
        max_gradient = float(np.abs(G).max(initial=0.0))
        return (
            min(1.0, self.settings.l1 / max_gradient) * offset
            if max_gradient
            else offset
        )

    def certify(self) -> tuple[float, float, float]:
        certificate = super().certify()
        error = self.mu * self.problem.diameter(self.smoothing) if self.mu else 0.0
        if self.mu > self.last_mu and certificate[2] <= GAP_TO_ERROR_RATIO * error:
            # The iterate starts a new method: sums of tangents belong to one mu.
            self.mu = max(self.mu / MU_DECREASE, self.last_mu)
            self.iteration = self._start_method(self.iteration.x)
        return certificate

    def state(self) -> State:
        return {**super().state(), "mu": np.array([self.mu, self.last_mu])}

    def load(self, state: State) -> None:
        mu, last = (float(x) for x in state["mu"])
        if mu != self.mu:
            self.mu, self.last_mu = mu, last
            self.iteration = self._start_method(self.best_w)
        super().load(state)


class _DualRun(_AGMRun):
    """Run that maximises the dual; dual variables are stored as tangents."""

    def __init__(self, settings: AGM, problem: Any, penalty: SimpleTerm) -> None:
        if not hasattr(problem, "smoothed_tangent"):
            raise TypeError(
                "problem: expected one with smoothed_tangent(w, mu, smoothing) for a"
                f" dual scheme, got {type(problem).__name__};"
                " scheme='primal-smoothing' takes any BatchProblem"
            )
        super().__init__(settings, problem, penalty)

    def _start_method(self, w: Floats) -> Iteration:
        settings, problem = self.settings, self.problem
        has_more_outputs = getattr(problem, "has_more_outputs", None)
        if (
            self.smoothing == "l2"
            and has_more_outputs is not None
            and has_more_outputs(_TANGENT_OUTPUTS)
        ):
            raise ValueError(
                "smoothing: expected 'entropy' for a dual scheme where an example has"
                f" more than {_TANGENT_OUTPUTS} outputs, got 'l2', whose tangents have"
                f" only the best {_TANGENT_OUTPUTS}; or use scheme='primal-smoothing'"
            )
        mu = 0.0
        if settings.scheme == "dual-smoothing":
            D = max(problem.diameter(self.smoothing), 1e-300)
            mu = settings.mu or settings.target_gap / (2 * D)
        self.f = NegativeDual(self.penalty)
        points = DualSet(problem, self.smoothing, mu)
        # Large smoothing: the start is in the interior of the dual set.
        large_weight = 1e4 * max(float(problem.risk(w)[0]), 1e-300)
        start_point = points.solve(
            np.append(np.zeros(self.size), 1 / large_weight), 1.0, 0.0
        )
        # |a|^2 / lambda at the start is a scale of the curvature |A|^2 / lambda of the
        # dual.
        guess = float(start_point.x[:-1] @ start_point.x[:-1]) / max(
            settings.lam, 1e-300
        )
        L = settings.lipschitz
        if L is None and (curvature_bound := self._curvature_unless_adaptive()):
            L = curvature_bound / settings.lam
        L = L or max(guess, 1e-6 / settings.lam)
        return self._make_method(self.f, points, start_point, L, settings.adaptive)

    def _update_bounds(self) -> None:
        x, model = self.iteration.x, self.iteration.model
        # The gradient of the negative dual is -w.
        w = -model.G[:-1]
        if self.settings.domain == "simplex":
            w = np.maximum(w, 0.0) / max(float(w.sum()), 1e-300)
        self._update_best(w, float(self.problem.risk(w)[0]) + self.penalty.at(w).psi)
        self.dual = max(self.dual, -self.f.value(x))

    def begin(self, start: Any) -> None:
        """Raise an error: weights do not determine dual variables to start from."""
        raise ValueError("start: expected None for a dual scheme")
