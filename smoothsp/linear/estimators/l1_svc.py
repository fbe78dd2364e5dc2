"""The binary SVM with few features: an l1 penalty and a free bias."""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from smoothsp._kernels.compilation.interrupts import uninterrupted
from smoothsp.linear.engines.budget import Budget, limits
from smoothsp.linear.engines.runner import Solver, run
from smoothsp.linear.engines.solution import Certificate, Solution, State
from smoothsp.linear.estimators import whole_set
from smoothsp.linear.estimators.binary_classifier import BinaryClassifier
from smoothsp.linear.inputs import checks
from smoothsp.linear.problems import BinaryProblem
from smoothsp.linear.solvers.accelerated.pragam import spectral_square

Floats = NDArray[np.float64]

# Steps begin again from a point whose gap is this share of that where they last did, or
# where it no longer falls after this share of all steps.
_FALL, _LONG = 0.5, 0.3
# Passes from one certificate, and chance to restart, to the next.
_EVERY = 10


class L1SVC(BinaryClassifier):
    r"""Binary linear SVM with an l1 penalty, solved to a certified optimum.

    .. math:: \min_w \|w\|_1 + C \min_b \sum_i \max(0, 1 - s_i (w^\top x_i + b))

    with :math:`s_i` 1 for the second class and -1 for the first: few weights are not 0,
    and the intercept costs nothing.

    Parameters
    ----------
    C
        What the losses are multiplied by, > 0.
    tol
        Where to stop, >= 0; see ``stopping``.
    stopping
        As in :class:`HingeSVC`.
    class_weight
        Multiplies C for the samples of a class: a dict, or ``"balanced"``.
    fit_intercept
        Whether there is a b.
    max_epochs
        Passes over the samples, at most.
    callback
        As in :class:`HingeSVC`.

    Attributes
    ----------
    classes_, coef_, intercept_, history_, gap_, n_epochs_, n_iter_, status_
        As in :class:`HingeSVC`.

    Notes
    -----
    The primal-dual hybrid gradient method, restarted at the average whenever its gap
    has halved, on columns divided by powers of 2 near their root mean square over all
    samples;
    an epoch costs two products with X. On a problem without curvature it
    converges linearly, where smoothing the hinge takes epochs in proportion to
    1 / ``tol``. Dual variables are scaled by :math:`\min(1, 1 / \|K \alpha\|_\infty)`,
    which keeps them feasible, since their set is convex and has 0 in it: their sum is
    the lower bound.

    Source: Zhang, Saha and Vishwanathan, "Regularized Risk Minimization by Nesterov's
    Accelerated Gradient Methods", example 2, for problem and dual; Applegate, Hinder,
    Lu and Lubin, "Faster First-Order Primal-Dual Methods for Linear Programming using
    Restarts and Sharpness", algorithm 1.

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
    ) -> None:
        self.C = C
        self.tol = tol
        self.stopping = stopping
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.max_epochs = max_epochs
        self.callback = callback

    def _fit(self, X: Any, y: Any, sample_weight: Any, resume: Any) -> None:
        most = checks.count("max_epochs", self.max_epochs)
        free = checks.flag("fit_intercept", self.fit_intercept)
        samples = self._samples(X, y, sample_weight)
        whole_set.require_bounds(samples.bounds)
        signs = whole_set.signs(samples.labels)
        problem = BinaryProblem(samples.X, signs, bias=free, weights=samples.bounds)

        # a state is one of the samples as they are: kept before they are scaled
        _ = problem.checksum
        scales = _scaled(problem)

        def solve(look: Callable[[Certificate], Any]) -> Solution:
            steps = _Steps(problem, 1 / len(signs), scales)
            told = limits("L1SVC", 0, most, None, look, False)
            state = whole_set.resumed(resume)
            return run(steps, Budget(told, problem), f"L1SVC C={self.C!r}", None, state)

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
    """Weights, their scores, and dual variables."""

    w: Floats
    scores: Floats
    alpha: Floats

    def towards(self, other: "_Point", share: float) -> "_Point":
        """The point at a share of the way."""
        pairs = zip(self, other, strict=True)
        return _Point(*(a + share * (b - a) for a, b in pairs))


class _Best(NamedTuple):
    w: Floats
    primal: float
    dual: float


class _Steps(Solver):
    """Steps of both players of the saddle, restarted at their average.

    ``ratio`` is that of the lengths of their steps. Weights are those of columns that
    were divided by ``scales``.
    """

    passes = calls = 0
    certifies_late = True

    def __init__(self, problem: BinaryProblem, lam: float, scales: Floats) -> None:
        self.problem, self.lam, self.scales = problem, lam / scales, scales
        # without features any step will do
        self.norm = math.sqrt(1.05 * spectral_square(problem)) or 1.0
        zero, nothing = np.zeros(problem.num_weights), np.zeros(len(problem))
        self.at = self.first = self.mean = _Point(zero, nothing, nothing)
        self.best = _Best(zero, math.inf, -math.inf)
        self.ratio = 1 / _length(problem.bounds)
        # steps since the restart, the gap there, and the gap last seen
        self.steps, self.goal, self.last = 0, math.inf, math.inf

    def advance(self) -> None:
        problem, at = self.problem, self.at
        step = self.ratio / self.norm
        moved = at.w + step * problem.combine(at.alpha)
        w = np.sign(moved) * np.maximum(np.abs(moved) - step * self.lam, 0.0)
        scores = problem.scores(w)
        short = 1 - problem.y * (2 * scores - at.scores)
        alpha = problem.project(at.alpha + short / (self.ratio * self.norm))
        following = _Point(w, scores, alpha)
        mean = self.mean.towards(following, 1 / (self.steps + 1))
        with uninterrupted():
            self.at, self.mean, self.steps = following, mean, self.steps + 1
            self.passes += 1

    def due(self) -> bool:
        return self.passes % _EVERY == 0

    def certify(self) -> tuple[float, float, float]:
        gaps = [self._look(point) for point in (self.mean, self.at)]
        least = min(gaps)
        worse = self.steps > _LONG * self.passes and self.last < least
        if least <= _FALL * self.goal or (worse and least < self.goal):
            self._restart(self.at if gaps[1] < gaps[0] else self.mean, least)
        else:
            self.last = least
        primal, dual = self.best.primal, self.best.dual
        return primal, dual, max(primal - dual, 0.0)

    def _look(self, point: _Point) -> float:
        """The gap of a point, of which the best weights and bound are kept."""
        problem, (w, least, dual) = self.problem, self.best
        value = problem.risk_of_scores(point.scores)[0]
        primal = float(self.lam @ np.abs(point.w)) + value
        longest = float((np.abs(problem.combine(point.alpha)) / self.lam).max())
        bound = float(point.alpha.sum()) / max(longest, 1.0)
        if primal < least:
            w, least = point.w, primal
        self.best = _Best(w, least, max(dual, bound))
        return primal - bound

    def _restart(self, point: _Point, gap: float) -> None:
        far = float(np.linalg.norm(point.w - self.first.w))
        apart = float(np.linalg.norm(point.alpha - self.first.alpha))
        if far > 0 and apart > 0:
            self.ratio = math.sqrt(self.ratio * far / apart)
        self.at = self.first = self.mean = point
        self.steps, self.goal, self.last = 0, gap, math.inf

    def weights(self) -> Floats:
        return self.best.w / self.scales

    def state(self) -> State:
        found: State = {"w": self.weights()}
        for name in _POINTS:
            found |= {f"{name}_{x}": v.copy() for x, v in _named(getattr(self, name))}
        numbers = [getattr(self, name) for name in _NUMBERS]
        found["numbers"] = np.array([*numbers, self.best.primal, self.best.dual])
        return found

    def load(self, state: State) -> None:
        *numbers, primal, dual = (float(x) for x in state["numbers"])
        points = [
            _Point(*(state[f"{name}_{x}"].copy() for x in _Point._fields))
            for name in _POINTS
        ]
        for (x, found), (_, own) in zip(
            _named(points[0]), _named(self.at), strict=True
        ):
            if found.shape != own.shape:
                raise ValueError(
                    f"resume: expected {x} of {own.shape}, got {found.shape}. Was it"
                    " another problem?"
                )
        self.at, self.first, self.mean = points
        self.ratio, steps, self.goal, self.last = numbers
        self.steps, self.passes = int(steps), int(state["passes"])
        self.best = _Best(state["w"] * self.scales, primal, dual)


def _length(bounds: Floats) -> float:
    """The norm of the bounds of the dual variables, whose squares may be none."""
    most = float(bounds.max())
    return most * float(np.linalg.norm(bounds / most))


_POINTS = ("at", "first", "mean")
_NUMBERS = ("ratio", "steps", "goal", "last")


def _named(point: _Point) -> list[tuple[str, Floats]]:
    return list(zip(_Point._fields, point, strict=True))
