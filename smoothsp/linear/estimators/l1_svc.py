"""Binary SVM with an l1 penalty, by a proximal method of multipliers."""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from smoothsp._kernels.compilation.interrupts import defer_sigint
from smoothsp._kernels.linear import elastic_net
from smoothsp.linear.engines.run_monitor import RunMonitor, check_limits
from smoothsp.linear.engines.runner import Solver, run_solver
from smoothsp.linear.engines.solution import Certificate, Solution, State
from smoothsp.linear.estimators import batch_fit
from smoothsp.linear.estimators.binary_classifier import BinaryClassifier
from smoothsp.linear.inputs import checks
from smoothsp.linear.problems import BinaryProblem

Floats = NDArray[np.float64]

# First penalty of the augmented Lagrangian, relative to the largest multiplier bound.
_INITIAL_PENALTY = 0.1
# First proximal weight, relative to the curvature of a feature of mean square 1.
_INITIAL_PROX_WEIGHT = 0.01
# Relative optimality violation accepted in the first inner problem, its factor for each
# later one, and its lower limit.
_INITIAL_TOL, _TOL_DECAY, _MIN_TOL = 0.1, 0.4, 1e-9
# Inner problems with fewer Newton steps than the first number double the penalty; the
# second number is the maximum.
_FEW_NEWTON_STEPS, _MAX_NEWTON_STEPS = 6, 30
# Factors of the penalty after the maximum of Newton steps, and after a first step that
# rounding errors prevented.
_PENALTY_BACKOFF, _ROUNDING_BACKOFF = 1 / 2, 1 / 16
# Maximum number of weights in a Newton step; maximum number of sweeps of coordinate
# descent for it; and their tolerance, relative to the remaining gain after the first.
_MAX_ACTIVE, _MAX_CD_SWEEPS, _CD_TOL = 1000, 50, 1e-6
# Gain below which a step is rounding error, relative to the objective; and relative
# ridge on the Hessian that makes it regular.
_MIN_RELATIVE_GAIN, _RIDGE = 1e-15, 1e-12
# Passes between certificates, and certificates without a smaller gap after which the
# gap is rounding error.
_CERTIFICATE_PERIOD, _MAX_STALLED = 10, 40

# Keys of the arrays of an ``_Iterate`` in saved states, in the order of its fields.
_STATE_KEYS = ("point", "bias", "centre", "middle", "alpha", "beta")


class L1SVC(BinaryClassifier):
    r"""Binary linear SVM with an l1 penalty, solved to a certified optimum.

    .. math:: \min_w \|w\|_1 + C \min_b \sum_i \max(0, 1 - s_i (w^\top x_i + b))

    with :math:`s_i` 1 for the second class and -1 for the first. Few weights differ
    from 0. The intercept is not penalised; of an interval of optimal intercepts, the
    model has the middle.

    Parameters
    ----------
    C
        Factor of the losses, > 0.
    tol
        Relative gap at which to stop, >= 0; ``stopping`` defines the reference.
    stopping
        As in :class:`HingeSVC`.
    class_weight
        Multiplies C for the samples of a class: a dict, or ``"balanced"``.
    fit_intercept
        If True, learn the intercept b, which is not penalised.
    max_epochs
        Maximum number of Newton steps. Each takes a few passes over the samples.
    callback, verbose
        As in :class:`HingeSVC`.

    Attributes
    ----------
    classes_, coef_, intercept_, history_, gap_, n_epochs_, n_iter_, status_
        As in :class:`HingeSVC`: ``coef_`` is ``(1, features)``.

    Raises
    ------
    ValueError
        For NaN or infinity in X, an objective that leaves float64, labels that are not
        of two classes, and parameters out of range.

    Notes
    -----
    The proximal method of multipliers solves a sequence of inner problems. Each smooths
    the hinge around the multipliers of the samples, and adds a proximal term around the
    current weights. Both smoothing and proximal weight decrease.

    Newton steps solve an inner problem, with the absolute values unsmoothed. A step
    moves at most 1000 weights, those with the largest possible gain. Few samples are on
    the smooth part of their hinge, so a step costs a few products with X. Columns are
    divided by powers of 2 near their root mean square.

    The lower bound is the sum of the dual variables, scaled by
    :math:`\min(1, 1 / \|K \alpha\|_\infty)` to be feasible. The dual set is convex and
    contains 0, so scaling down stays inside.

    Source: Zhang, Saha and Vishwanathan, "Regularized Risk Minimization by Nesterov's
    Accelerated Gradient Methods", example 2, for problem and dual; Rockafellar,
    "Augmented Lagrangians and Applications of the Proximal Point Algorithm in Convex
    Programming", section 5, for the method.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from smoothsp.linear import L1SVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = L1SVC(C=0.05).fit(scale(X), y)
    >>> int((model.coef_ != 0).sum()) < 15, model.score(scale(X), y) > 0.96
    (True, True)
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        tol: float = 1e-3,
        stopping: Literal["objective", "relative_gap", "gap"] = "objective",
        class_weight: Any = None,
        fit_intercept: bool = True,
        max_epochs: int = 20_000,
        callback: Callable[[Certificate], Any] | None = None,
        verbose: bool | int | None = None,
    ) -> None:
        self.C = C
        self.tol = tol
        self.stopping = stopping
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.max_epochs = max_epochs
        self.callback = callback
        self.verbose = verbose

    def _fit(self, X: Any, y: Any, sample_weight: Any, resume: Any) -> None:
        max_epochs = checks.as_positive_int("max_epochs", self.max_epochs)
        has_bias = checks.as_bool("fit_intercept", self.fit_intercept)
        samples = self._validate_binary(X, y, sample_weight)
        batch_fit.require_valid_loss_weights(samples.bounds)
        signs = batch_fit.labels_to_signs(samples.labels)
        problem = BinaryProblem(samples.X, signs, bias=has_bias, weights=samples.bounds)

        # cache the checksum of the samples before scaling changes them in place
        _ = problem.checksum
        scales = _scale_columns(problem)

        def solve(tol: Any, callback: Any, progress: Any) -> Solution:
            method = _MultiplierMethod(problem, 1 / len(signs), scales)
            budget = check_limits("L1SVC", tol, max_epochs, None, callback, progress)
            settings_key = f"L1SVC C={self.C!r}"
            return run_solver(
                method, RunMonitor(budget, problem), settings_key, None, resume
            )

        w = self._run_and_store(samples, solve, len(signs), 0.0)
        bias = problem.optimal_bias(w * scales)
        self.intercept_ = np.array([bias], dtype=samples.X.dtype)


def _scale_columns(problem: BinaryProblem) -> Floats:
    """Divide each column of X by a power of 2, in place; return these powers.

    Root mean squares are then about 1, so that one proximal weight suits all columns.
    Powers of 2 are exact.
    """
    X = problem.X
    dense = not sparse.issparse(X)
    entries: Floats = X if dense else X.data
    columns: Any = slice(None) if dense else X.indices
    max_abs = np.zeros(problem.num_weights)
    if dense:
        max_abs = np.abs(X).max(axis=0)
    else:
        np.maximum.at(max_abs, columns, np.abs(entries))
    # first by the largest entry: squares of the original entries could overflow
    exponents = np.frexp(max_abs)[1]
    entries[:] = np.ldexp(entries, -exponents[columns])
    squared = X**2 if dense else X.power(2)
    mean_squares = np.asarray(squared.sum(axis=0)).ravel() / X.shape[0]
    second_exponents = np.round(
        np.log2(mean_squares, where=mean_squares > 0, out=np.zeros(len(mean_squares)))
        / 2
    )
    second_exponents = second_exponents.astype(np.int64)
    entries[:] = np.ldexp(entries, -second_exponents[columns])
    return np.asarray(
        np.ldexp(np.ones(len(second_exponents)), exponents + second_exponents)
    )


class _Iterate(NamedTuple):
    """Weights and bias, their proximal centre, multipliers and next multipliers."""

    w: Floats
    bias: Floats
    prox_centre: Floats
    prox_bias: Floats
    alpha: Floats
    beta: Floats


class _InnerSettings(NamedTuple):
    """Penalty, proximal weight and tolerance of an inner problem.

    ``num_newton_steps`` counts steps since the multipliers last changed, and
    ``num_stalled`` certificates since the gap last fell.
    """

    penalty: float
    prox_weight: float
    tol: float
    num_newton_steps: int = 0
    num_stalled: int = 0

    def next_settings(self, solved: bool) -> "_InnerSettings":
        """Return the settings of the next inner problem: easier if this one failed."""
        factor = 2.0 if self.num_newton_steps < _FEW_NEWTON_STEPS else 1.0
        if not solved and self.num_newton_steps == 0:
            factor = _ROUNDING_BACKOFF
        elif not solved and self.num_newton_steps == _MAX_NEWTON_STEPS:
            factor = _PENALTY_BACKOFF
        prox_weight, tol = (
            self.prox_weight / factor,
            max(self.tol * _TOL_DECAY, _MIN_TOL),
        )
        return _InnerSettings(
            self.penalty * factor, prox_weight, tol, 0, self.num_stalled
        )


class _BestSolution(NamedTuple):
    """Weights of least primal value, and the best bounds."""

    w: Floats
    primal: float
    dual: float


class _MultiplierMethod(Solver):
    r"""Outer loop: Newton steps on ``lam |w|_1``, a proximal term and smoothed hinges.

    .. math:: \max_{0 \le \beta_i \le c_i / n}
        \beta_i m_i - \tfrac{1}{2 \sigma} (\beta_i - \alpha_i)^2,
        \qquad m_i = 1 - y_i (\langle x_i, w \rangle + b)

    Weights are those of columns that were divided by ``scales``.
    """

    passes = calls = 0
    certify_on_interrupt = True

    def __init__(self, problem: BinaryProblem, lam: float, scales: Floats) -> None:
        self.problem, self.lam, self.scales = problem, lam / scales, scales
        zero, zero_duals = np.zeros(problem.num_weights), np.zeros(len(problem))
        zero_bias = np.zeros(1)
        self.iterate = _Iterate(
            zero, zero_bias, zero, zero_bias, zero_duals, zero_duals
        )
        self.best = _BestSolution(zero, math.inf, -math.inf)
        penalty = _INITIAL_PENALTY * float(problem.bounds.max())
        prox_weight = _INITIAL_PROX_WEIGHT * penalty * len(problem)
        self.settings = _InnerSettings(penalty, prox_weight, _INITIAL_TOL)

    def advance(self) -> str | None:
        iterate, settings = self.iterate, self.settings
        if settings.num_stalled >= _MAX_STALLED:
            return "the remaining gap is below rounding error"
        value, beta, is_smooth = self._inner_objective(iterate.w, iterate.bias)
        step, solved = None, False
        if settings.num_newton_steps < _MAX_NEWTON_STEPS:
            step, solved = self._newton_step(value, beta, is_smooth)
        if step is None:
            iterate = _Iterate(
                iterate.w, iterate.bias, iterate.w, iterate.bias, beta, beta
            )
            settings = settings.next_settings(solved)
        else:
            iterate = iterate._replace(w=step[0], bias=step[1], beta=beta)
            settings = settings._replace(num_newton_steps=settings.num_newton_steps + 1)
        with defer_sigint():
            self.iterate, self.settings, self.passes = (
                iterate,
                settings,
                self.passes + 1,
            )
        return None

    def _inner_objective(self, w: Floats, bias: Floats) -> tuple[float, Floats, Any]:
        """Return the inner objective, its multipliers, and a mask of smooth hinges."""
        problem, iterate, (penalty, prox_weight, *_) = (
            self.problem,
            self.iterate,
            self.settings,
        )
        self.calls += len(problem)
        margin_deficits = 1 - problem.y * (problem.scores(w) + bias)
        # the maximiser of the concave quadratic in beta, clipped to its bounds
        unclipped = iterate.alpha + penalty * margin_deficits
        beta = np.clip(unclipped, 0.0, problem.bounds)
        difference = beta - iterate.alpha
        value = float(beta @ margin_deficits - (difference / penalty) @ difference / 2)
        w_offset, bias_offset = w - iterate.prox_centre, bias - iterate.prox_bias
        value += prox_weight / 2 * float(
            w_offset @ w_offset + bias_offset @ bias_offset
        ) + float(self.lam @ np.abs(w))
        return value, beta, (unclipped > 0) & (unclipped < problem.bounds)

    def _newton_step(
        self, value: float, beta: Floats, is_smooth: Any
    ) -> tuple[tuple[Floats, Floats] | None, bool]:
        """Return weights and bias after a Newton step, or None; and whether solved.

        ``is_smooth`` masks the samples whose hinge has curvature.
        """
        problem, iterate, settings, lam = (
            self.problem,
            self.iterate,
            self.settings,
            self.lam,
        )
        gradient, violations, bias_gradient, relative_violation = (
            self._optimality_violations(iterate.w, iterate.bias, beta)
        )
        if relative_violation <= settings.tol:
            return None, True
        active = np.flatnonzero((violations > 0) | (iterate.w != 0))
        if len(active) > _MAX_ACTIVE:
            # the most violating weights: a Newton system of all weights may not fit
            # memory
            active = np.sort(np.argpartition(violations, -_MAX_ACTIVE)[-_MAX_ACTIVE:])
        width = len(active) + problem.bias
        rows = problem.X[is_smooth][:, active]
        # second derivatives: penalty X'X over smooth samples, plus the proximal weight
        hessian = np.zeros((width, width))
        gram = rows.T @ rows
        num_active = len(active)
        hessian[:num_active, :num_active] = (
            gram.toarray() if sparse.issparse(gram) else gram
        )
        start, l1_weights, negative_gradient = (np.zeros(width) for _ in range(3))
        start[:num_active], l1_weights[:num_active], negative_gradient[:num_active] = (
            iterate.w[active],
            lam[active],
            -gradient[active],
        )
        if problem.bias:
            hessian[num_active, :num_active] = hessian[:num_active, num_active] = (
                np.asarray(rows.sum(axis=0)).ravel()
            )
            hessian[num_active, num_active] = (
                len(rows) if not sparse.issparse(rows) else rows.shape[0]
            )
            start[num_active], negative_gradient[num_active] = (
                iterate.bias[0],
                bias_gradient,
            )
        hessian *= settings.penalty
        diagonal = np.diag_indices(width)
        hessian[diagonal] += settings.prox_weight + _RIDGE * hessian[diagonal]
        minimiser = _minimise_l1_quadratic(
            hessian, negative_gradient, start, l1_weights
        )
        step = minimiser - start
        gain = (
            l1_weights @ (np.abs(start) - np.abs(minimiser)) + negative_gradient @ step
        )
        if not gain > _MIN_RELATIVE_GAIN * abs(value):
            # values agree to rounding near the optimum: compare gradients instead
            w, bias = iterate.w.copy(), iterate.bias + step[num_active:].sum()
            w[active] += step[:num_active]
            is_closer = (
                self._optimality_violations(w, bias, self._inner_objective(w, bias)[1])[
                    3
                ]
                < relative_violation / 2
            )
            return ((w, bias) if is_closer else None), False
        # Armijo line search; gain is the predicted decrease
        step_size = 1.0
        while step_size > 1e-9:
            w, bias = iterate.w.copy(), iterate.bias.copy()
            w[active] += step_size * step[:num_active]
            bias += step_size * step[num_active:].sum()
            if self._inner_objective(w, bias)[0] <= value - 1e-4 * step_size * gain:
                return (w, bias), False
            step_size /= 2
        return None, False

    def _optimality_violations(
        self, w: Floats, bias: Floats, beta: Floats
    ) -> tuple[Floats, Floats, float, float]:
        """Return the smooth gradient, violations, bias gradient and largest violation.

        Violations are distances of 0 from the subdifferential. The largest is relative
        to the l1 penalty, or to the sum of the multipliers for the bias.
        """
        problem, iterate, prox_weight, lam = (
            self.problem,
            self.iterate,
            self.settings.prox_weight,
            self.lam,
        )
        gradient = prox_weight * (w - iterate.prox_centre) - problem.combine(beta)
        violations = np.abs(gradient + lam * np.sign(w))
        violations = np.where(
            w != 0, violations, np.maximum(np.abs(gradient) - lam, 0.0)
        )
        max_violation, bias_gradient = float((violations / lam).max()), 0.0
        if problem.bias:
            bias_gradient = float(problem.y @ beta) - prox_weight * float(
                bias[0] - iterate.prox_bias[0]
            )
            max_violation = max(
                max_violation, abs(bias_gradient) / (float(beta.sum()) or 1.0)
            )
        return gradient, violations, bias_gradient, max_violation

    def due(self) -> bool:
        return (
            self.settings.num_newton_steps == 0
            or self.passes % _CERTIFICATE_PERIOD == 0
        )

    def certify(self) -> tuple[float, float, float]:
        problem, iterate, previous = self.problem, self.iterate, self.best
        self.calls += len(problem)
        value, alpha = problem.risk_of_scores(problem.scores(iterate.w))
        primal = float(self.lam @ np.abs(iterate.w)) + value
        # the subgradient at the iterate and the multipliers of the method both give
        # bounds
        dual = max(
            previous.dual,
            self._dual_bound(alpha),
            self._dual_bound(self._balance_classes(iterate.beta)),
        )
        is_better = primal < previous.primal
        best = (
            _BestSolution(iterate.w, primal, dual)
            if is_better
            else previous._replace(dual=dual)
        )
        has_improved = best.primal - best.dual < previous.primal - previous.dual
        with defer_sigint():
            num_stalled = 0 if has_improved else self.settings.num_stalled + 1
            self.best, self.settings = (
                best,
                self.settings._replace(num_stalled=num_stalled),
            )
        return best.primal, best.dual, max(best.primal - best.dual, 0.0)

    def _dual_bound(self, alpha: Floats) -> float:
        """Return the dual value of multipliers after scaling them to be feasible."""
        max_ratio = float((np.abs(self.problem.combine(alpha)) / self.lam).max())
        return float(alpha.sum()) / max(max_ratio, 1.0)

    def _balance_classes(self, alpha: Floats) -> Floats:
        """Scale down one class until ``sum_i y_i alpha_i = 0``, if there is a bias."""
        if not self.problem.bias:
            return alpha
        class_masks = [self.problem.y > 0, self.problem.y < 0]
        class_sums = [float(alpha[mask].sum()) for mask in class_masks]
        min_sum = min(class_sums)
        if not min_sum > 0:
            return np.zeros_like(alpha)
        factors = [min_sum / class_sum for class_sum in class_sums]
        return np.where(class_masks[0], factors[0], factors[1]) * alpha

    def weights(self) -> Floats:
        return self.best.w / self.scales

    def state(self) -> State:
        state: State = {"w": self.weights(), "calls": np.array(self.calls)}
        state |= {
            key: x.copy() for key, x in zip(_STATE_KEYS, self.iterate, strict=True)
        }
        state["numbers"] = np.array([*self.settings, self.best.primal, self.best.dual])
        return state

    def load(self, state: State) -> None:
        buffers = {
            key: np.empty_like(x)
            for key, x in zip(_STATE_KEYS, self.iterate, strict=True)
        }
        iterate = _Iterate(*checks.fill_from_state(state, **buffers))
        *settings, num_newton_steps, num_stalled, primal, dual = (
            float(x) for x in state["numbers"]
        )
        penalty, prox_weight, tol = settings
        self.iterate = iterate
        self.settings = _InnerSettings(
            penalty, prox_weight, tol, int(num_newton_steps), int(num_stalled)
        )
        self.passes, self.calls = int(state["passes"]), int(state["calls"])
        self.best = _BestSolution(state["w"] * self.scales, primal, dual)


def _minimise_l1_quadratic(
    hessian: Floats, negative_gradient: Floats, start: Floats, l1_weights: Floats
) -> Floats:
    r"""Minimise a quadratic with l1 penalty, starting at ``start``.

    .. math:: \tfrac12 (w - s)^\top H (w - s) - \langle g, w - s \rangle
        + \sum_j \lambda_j |w_j|

    with s the start and g the negative gradient there. Alternates coordinate descent
    with Newton steps on the nonzero coordinates, cut where the first changes sign.
    """
    w, residual = start.copy(), negative_gradient.copy()
    empty, zero, sweeps = np.zeros(0), np.zeros(1), np.ones(1, dtype=np.int64)
    index, curvature = np.zeros(len(w) + 1, dtype=np.int32), np.diag(hessian).copy()
    first_gain = math.inf
    for _ in range(_MAX_CD_SWEEPS):
        elastic_net.coordinate_descent(
            hessian, index, index, empty, curvature, 1.0, l1_weights, 0.0, 5, zero, w,
            residual, sweeps,
        )  # fmt: skip
        free = np.flatnonzero((w != 0) | (l1_weights == 0))
        free_gradient = residual[free] - l1_weights[free] * np.sign(w[free])
        remaining_gain = float((free_gradient**2 / curvature[free]).sum())
        first_gain = min(first_gain, remaining_gain)
        step = np.linalg.solve(hessian[np.ix_(free, free)], free_gradient)
        free_w, crosses_zero = w[free], (l1_weights[free] > 0) & (step * w[free] < 0)
        step_sizes = np.where(
            crosses_zero, -free_w / np.where(crosses_zero, step, 1.0), math.inf
        )
        # the first coordinate to change sign limits the step; it becomes exactly 0
        step_size = min(1.0, float(step_sizes.min(initial=math.inf)))
        change = np.where(step_sizes <= step_size, -free_w, step_size * step)
        w[free] += change
        residual -= hessian[:, free] @ change
        # coordinates at 0 are optimal if their gradient is at most the penalty
        excess = np.maximum(np.abs(residual) - l1_weights, 0.0)
        excess[free] = 0.0
        if (
            step_size == 1.0
            and float((excess**2 / curvature).sum()) <= _CD_TOL * first_gain
        ):
            break
    return w
