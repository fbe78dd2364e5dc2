"""The binary SVM with few features: an l1 penalty and a free bias."""

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

# Of the largest bound of a multiplier, and of the curvature of a feature whose mean
# square is 1: how sharp the hinge is at first, and how firmly weights are held.
_SHARP, _HELD = 0.1, 0.01
# What multipliers of the first inner problem may be short of feasible, relative; how
# much less those of each later one, and of the last ones.
_CLOSE, _CLOSER, _CLOSEST = 0.1, 0.4, 1e-9
# Newton steps of an inner problem: so few, and the next one is harder; at most so many.
_EASY, _MANY = 6, 30
# How much sharper the hinge is after a problem that took more steps than that, and
# after one whose first step rounding hid.
_SOFTER, _BLURRED = 1 / 2, 1 / 16
# Weights that a Newton step moves, at most; sweeps for it; how close, of what is left
# of the gain after the first.
_MOVED, _SWEEPS, _EXACT = 1000, 50, 1e-6
# What a gain may lose of the objective; so little more on a diagonal makes it regular.
_ROUNDING, _RIDGE = 1e-15, 1e-12
# Passes from one certificate to the next, and certificates without a smaller gap after
# which the rest is rounding.
_EVERY, _PATIENCE = 10, 40


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
    the hinge around the multipliers of the samples, and adds a quadratic penalty for
    leaving the current weights. Both smoothing and penalty decrease.

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
        most = checks.as_positive_int("max_epochs", self.max_epochs)
        free = checks.as_bool("fit_intercept", self.fit_intercept)
        samples = self._samples(X, y, sample_weight)
        batch_fit.require_valid_loss_weights(samples.bounds)
        signs = batch_fit.labels_to_signs(samples.labels)
        problem = BinaryProblem(samples.X, signs, bias=free, weights=samples.bounds)

        # a state is one of the samples as they are: kept before they are scaled
        _ = problem.checksum
        scales = _scaled(problem)

        def solve(tol: Any, callback: Any, progress: Any) -> Solution:
            steps = _Steps(problem, 1 / len(signs), scales)
            budget = check_limits("L1SVC", tol, most, None, callback, progress)
            said = f"L1SVC C={self.C!r}"
            return run_solver(steps, RunMonitor(budget, problem), said, None, resume)

        w = self._keep(samples, solve, len(signs), 0.0)
        bias = problem.optimal_bias(w * scales)
        self.intercept_ = np.array([bias], dtype=samples.X.dtype)


def _scaled(problem: BinaryProblem) -> Floats:
    """Divide each column by a power of 2, in place; by which each was.

    Its root mean square over all samples is about 1 then: a feature of few samples
    takes steps that are as much longer.
    """
    X = problem.X
    dense = not sparse.issparse(X)
    entries: Floats = X if dense else X.data
    columns: Any = slice(None) if dense else X.indices
    largest = np.zeros(problem.num_weights)
    if dense:
        largest = np.abs(X).max(axis=0)
    else:
        np.maximum.at(largest, columns, np.abs(entries))
    # two times, for squares may leave the range
    powers = np.frexp(largest)[1]
    entries[:] = np.ldexp(entries, -powers[columns])
    squares = X**2 if dense else X.power(2)
    means = np.asarray(squares.sum(axis=0)).ravel() / X.shape[0]
    more = np.round(np.log2(means, where=means > 0, out=np.zeros(len(means))) / 2)
    more = more.astype(np.int64)
    entries[:] = np.ldexp(entries, -more[columns])
    return np.asarray(np.ldexp(np.ones(len(more)), powers + more))


class _Point(NamedTuple):
    """Weights and bias, those that they are held at, multipliers, and the next ones."""

    point: Floats
    bias: Floats
    centre: Floats
    middle: Floats
    alpha: Floats
    beta: Floats


class _Pace(NamedTuple):
    """Smoothing of the hinge, proximal weight and tolerance of a problem.

    ``tries`` are the Newton steps since multipliers last changed, ``idle`` the
    certificates since the gap last fell.
    """

    sharp: float
    held: float
    close: float
    tries: int = 0
    idle: int = 0

    def after(self, solved: bool) -> "_Pace":
        """Settings of the next problem, softer if this one was not solved."""
        times = 2.0 if self.tries < _EASY else 1.0
        if not solved and self.tries == 0:
            times = _BLURRED
        elif not solved and self.tries == _MANY:
            times = _SOFTER
        held, close = self.held / times, max(self.close * _CLOSER, _CLOSEST)
        return _Pace(self.sharp * times, held, close, 0, self.idle)


class _Best(NamedTuple):
    w: Floats
    primal: float
    dual: float


class _Steps(Solver):
    r"""Newton steps for ``lam |w|_1``, weights held at a centre, and smoothed hinges.

    .. math:: \max_{0 \le \beta_i \le c_i / n}
        \beta_i m_i - \tfrac{1}{2 \sigma} (\beta_i - \alpha_i)^2,
        \qquad m_i = 1 - y_i (\langle x_i, w \rangle + b)

    Weights are those of columns that were divided by ``scales``.
    """

    passes = calls = 0
    certify_on_interrupt = True

    def __init__(self, problem: BinaryProblem, lam: float, scales: Floats) -> None:
        self.problem, self.lam, self.scales = problem, lam / scales, scales
        zero, nothing = np.zeros(problem.num_weights), np.zeros(len(problem))
        none = np.zeros(1)
        self.at = _Point(zero, none, zero, none, nothing, nothing)
        self.best = _Best(zero, math.inf, -math.inf)
        sharp = _SHARP * float(problem.bounds.max())
        held = _HELD * sharp * len(problem)
        self.pace = _Pace(sharp, held, _CLOSE)

    def advance(self) -> str | None:
        at, pace = self.at, self.pace
        if pace.idle >= _PATIENCE:
            return "the gap does not fall any more: it is rounding"
        value, beta, tight = self._inner(at.point, at.bias)
        moved, solved = None, False
        if pace.tries < _MANY:
            moved, solved = self._newton(value, beta, tight)
        if moved is None:
            at = _Point(at.point, at.bias, at.point, at.bias, beta, beta)
            pace = pace.after(solved)
        else:
            at = at._replace(point=moved[0], bias=moved[1], beta=beta)
            pace = pace._replace(tries=pace.tries + 1)
        with defer_sigint():
            self.at, self.pace, self.passes = at, pace, self.passes + 1
        return None

    def _inner(self, w: Floats, bias: Floats) -> tuple[float, Floats, Any]:
        """The inner objective, its multipliers, and where hinges are smooth."""
        problem, at, (sharp, held, *_) = self.problem, self.at, self.pace
        self.calls += len(problem)
        short = 1 - problem.y * (problem.scores(w) + bias)
        free = at.alpha + sharp * short
        beta = np.clip(free, 0.0, problem.bounds)
        apart = beta - at.alpha
        value = float(beta @ short - (apart / sharp) @ apart / 2)
        far, off = w - at.centre, bias - at.middle
        value += held / 2 * float(far @ far + off @ off) + float(self.lam @ np.abs(w))
        return value, beta, (free > 0) & (free < problem.bounds)

    def _newton(
        self, value: float, beta: Floats, smooth: Any
    ) -> tuple[tuple[Floats, Floats] | None, bool]:
        """Weights and bias after a step, or none; and whether they are near enough."""
        problem, at, pace, lam = self.problem, self.at, self.pace, self.lam
        slope, steep, pull, wrong = self._slopes(at.point, at.bias, beta)
        if wrong <= pace.close:
            return None, True
        chosen = np.flatnonzero((steep > 0) | (at.point != 0))
        if len(chosen) > _MOVED:
            chosen = np.sort(np.argpartition(steep, -_MOVED)[-_MOVED:])
        width = len(chosen) + problem.bias
        rows = problem.X[smooth][:, chosen]
        bends = np.zeros((width, width))
        square = rows.T @ rows
        d = len(chosen)
        bends[:d, :d] = square.toarray() if sparse.issparse(square) else square
        start, shrink, ascent = (np.zeros(width) for _ in range(3))
        start[:d], shrink[:d], ascent[:d] = (
            at.point[chosen],
            lam[chosen],
            -slope[chosen],
        )
        if problem.bias:
            bends[d, :d] = bends[:d, d] = np.asarray(rows.sum(axis=0)).ravel()
            bends[d, d] = len(rows) if not sparse.issparse(rows) else rows.shape[0]
            start[d], ascent[d] = at.bias[0], pull
        bends *= pace.sharp
        diagonal = np.diag_indices(width)
        bends[diagonal] += pace.held + _RIDGE * bends[diagonal]
        found = _lowest(bends, ascent, start, shrink)
        step = found - start
        gain = shrink @ (np.abs(start) - np.abs(found)) + ascent @ step
        if not gain > _ROUNDING * abs(value):
            # slopes still tell where values do not
            w, bias = at.point.copy(), at.bias + step[d:].sum()
            w[chosen] += step[:d]
            less = self._slopes(w, bias, self._inner(w, bias)[1])[3] < wrong / 2
            return ((w, bias) if less else None), False
        share = 1.0
        while share > 1e-9:
            w, bias = at.point.copy(), at.bias.copy()
            w[chosen] += share * step[:d]
            bias += share * step[d:].sum()
            if self._inner(w, bias)[0] <= value - 1e-4 * share * gain:
                return (w, bias), False
            share /= 2
        return None, False

    def _slopes(
        self, w: Floats, bias: Floats, beta: Floats
    ) -> tuple[Floats, Floats, float, float]:
        """Slopes of the smooth part, how far from level, the bias's; the worst of all.

        The worst one is relative, to the penalty or to the sum of the multipliers.
        """
        problem, at, held, lam = self.problem, self.at, self.pace.held, self.lam
        slope = held * (w - at.centre) - problem.combine(beta)
        steep = np.abs(slope + lam * np.sign(w))
        steep = np.where(w != 0, steep, np.maximum(np.abs(slope) - lam, 0.0))
        wrong, pull = float((steep / lam).max()), 0.0
        if problem.bias:
            pull = float(problem.y @ beta) - held * float(bias[0] - at.middle[0])
            wrong = max(wrong, abs(pull) / (float(beta.sum()) or 1.0))
        return slope, steep, pull, wrong

    def due(self) -> bool:
        return self.pace.tries == 0 or self.passes % _EVERY == 0

    def certify(self) -> tuple[float, float, float]:
        problem, at, before = self.problem, self.at, self.best
        self.calls += len(problem)
        value, own = problem.risk_of_scores(problem.scores(at.point))
        primal = float(self.lam @ np.abs(at.point)) + value
        dual = max(before.dual, self._bound(own), self._bound(self._balanced(at.beta)))
        better = primal < before.primal
        best = _Best(at.point, primal, dual) if better else before._replace(dual=dual)
        fallen = best.primal - best.dual < before.primal - before.dual
        with defer_sigint():
            idle = 0 if fallen else self.pace.idle + 1
            self.best, self.pace = best, self.pace._replace(idle=idle)
        return best.primal, best.dual, max(best.primal - best.dual, 0.0)

    def _bound(self, alpha: Floats) -> float:
        """The dual value of multipliers, made so small that they are feasible."""
        longest = float((np.abs(self.problem.combine(alpha)) / self.lam).max())
        return float(alpha.sum()) / max(longest, 1.0)

    def _balanced(self, alpha: Floats) -> Floats:
        """Less of the heavier class, as a free bias wants it."""
        if not self.problem.bias:
            return alpha
        sides = [self.problem.y > 0, self.problem.y < 0]
        masses = [float(alpha[side].sum()) for side in sides]
        least = min(masses)
        if not least > 0:
            return np.zeros_like(alpha)
        shares = [least / mass for mass in masses]
        return np.where(sides[0], shares[0], shares[1]) * alpha

    def weights(self) -> Floats:
        return self.best.w / self.scales

    def state(self) -> State:
        found: State = {"w": self.weights(), "calls": np.array(self.calls)}
        found |= {name: x.copy() for name, x in self.at._asdict().items()}
        found["numbers"] = np.array([*self.pace, self.best.primal, self.best.dual])
        return found

    def load(self, state: State) -> None:
        rooms = {name: np.empty_like(x) for name, x in self.at._asdict().items()}
        point = _Point(*checks.fill_from_state(state, **rooms))
        *pace, tries, idle, primal, dual = (float(x) for x in state["numbers"])
        sharp, held, close = pace
        self.at = point
        self.pace = _Pace(sharp, held, close, int(tries), int(idle))
        self.passes, self.calls = int(state["passes"]), int(state["calls"])
        self.best = _Best(state["w"] * self.scales, primal, dual)


def _lowest(bends: Floats, ascent: Floats, start: Floats, shrink: Floats) -> Floats:
    """Minimum of a quadratic with ``shrink |w|``, from the start.

    Sweeps over the coordinates, and Newton steps of those that are not 0, up to where
    the first changes its sign.
    """
    w, rest = start.copy(), ascent.copy()
    none, zero, sweeps = np.zeros(0), np.zeros(1), np.ones(1, dtype=np.int64)
    index, squares = np.zeros(len(w) + 1, dtype=np.int32), np.diag(bends).copy()
    first = math.inf
    for _ in range(_SWEEPS):
        elastic_net.coordinate_descent(
            bends, index, index, none, squares, 1.0, shrink, 0.0, 5, zero, w, rest,
            sweeps,
        )  # fmt: skip
        used = np.flatnonzero((w != 0) | (shrink == 0))
        pull = rest[used] - shrink[used] * np.sign(w[used])
        left = float((pull**2 / squares[used]).sum())
        first = min(first, left)
        step = np.linalg.solve(bends[np.ix_(used, used)], pull)
        at, kinks = w[used], (shrink[used] > 0) & (step * w[used] < 0)
        shares = np.where(kinks, -at / np.where(kinks, step, 1.0), math.inf)
        share = min(1.0, float(shares.min(initial=math.inf)))
        moved = np.where(shares <= share, -at, share * step)
        w[used] += moved
        rest -= bends[:, used] @ moved
        outside = np.maximum(np.abs(rest) - shrink, 0.0)
        outside[used] = 0.0
        if share == 1.0 and float((outside**2 / squares).sum()) <= _EXACT * first:
            break
    return w
