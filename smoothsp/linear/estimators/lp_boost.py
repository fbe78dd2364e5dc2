"""Boosting as a game of samples against hypotheses, with a certificate."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from smoothsp._kernels.compilation import clock
from smoothsp.linear.engines.run_monitor import make_progress_bar
from smoothsp.linear.engines.solution import Certificate
from smoothsp.linear.estimators import classifier
from smoothsp.linear.estimators.binary_classifier import BinaryClassifier
from smoothsp.linear.estimators.stumps import StumpLearner
from smoothsp.linear.inputs import checks

Floats = NDArray[np.float64]

# Of the gap to stop at: how exactly the weights of the hypotheses so far are found.
_INNER = 0.25
_MOST_STEPS = 100_000
# An optimum below this counts as this much: margins are from -1 to 1.
_LEAST = 1e-3


class LPBoostClassifier(BinaryClassifier):
    r"""Entropy-regularised LPBoost of binary classifiers, to a certified optimum.

    .. math:: \min_d \lambda \, \mathrm{KL}(d \,\|\, 1/n)
        + \max_j \sum_i d_i y_i h_j(x_i), \qquad
        0 \le d_i \le \frac{1}{\nu n}, \; \sum_i d_i = 1

    over weights of samples; the weights of the hypotheses are the dual variables. Each
    round asks the base estimator for a hypothesis of large edge under d, and then
    weighs all hypotheses anew.

    Parameters
    ----------
    estimator
        A classifier that takes ``sample_weight``. By default the decision stump of
        largest edge, which is found exactly. If your own classifier finds the
        hypothesis of largest edge under any weights, set its attribute ``maximises_edge
        = True``. Without it the fit has no certificate, and ``gap_`` is NaN.
    n_estimators
        Hypotheses, at most.
    lam
        lambda, > 0: the smaller, the closer to the largest soft margin.
    nu
        From 1 / n to 1: about the share of samples that may have less than the margin;
        None for a hard margin.
    tol
        The relative gap at which to stop, > 0: the objective is at most ``1 + tol``
        times its minimum (a minimum below 0.001 counts as 0.001).
    random_state
        Seed of the base estimators.
    verbose
        Show a progress bar with the gap. None: on a terminal, if the fit takes longer
        than three seconds.

    Attributes
    ----------
    classes_
        The two labels, sorted.
    estimators_, estimator_weights_
        Hypotheses and their weights, which sum to 1.
    sample_weights_
        ``(samples,)``: d.
    history_, gap_, n_iter_
        Primal, dual and gap of each round, the last gap, and the rounds.
    status_
        How the fit ended, and whether the result is certified, in a sentence.

    Notes
    -----
    Given its hypotheses, a round minimises with Nesterov's method in the entropic
    geometry: O(sqrt(log(t) / (lam tol))) steps of O(n t) for t of them.

    Source: Zhang, Saha and Vishwanathan, "Regularized Risk Minimization by Nesterov's
    Accelerated Gradient Methods", example 5; Warmuth, Glocer and Vishwanathan, "Entropy
    Regularized LPBoost", algorithm 1.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from smoothsp.linear import LPBoostClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> LPBoostClassifier(tol=0.1).fit(X, y).score(X, y) > 0.95
    True
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_estimators: int = 200,
        lam: float = 0.01,
        nu: float | None = 0.1,
        tol: float = 0.01,
        random_state: Any = None,
        verbose: bool | int | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.lam = lam
        self.nu = nu
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def fit(  # type: ignore[override]
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> "LPBoostClassifier":
        """Add hypotheses until none has a larger edge.

        Parameters
        ----------
        X
            ``(samples, features)``, dense or CSR, float32 or float64.
        y
            ``(samples,)``: labels of any kind that can be sorted, of two classes.
        sample_weight
            ``(samples,)``, at least 0: a sample of weight 2 is the same as two samples,
            for a base estimator to which it is, too.

        Returns
        -------
        self
            With a warning if ``n_estimators`` were not enough. After an error the
            estimator is what it was before.
        """
        with classifier.restore_on_error(self):
            converged = self._boost(X, y, sample_weight)
        if not converged:
            self._warn_of_budget()
        return self

    def _warn_of_budget(self) -> None:
        found = self.history_[-1].primal, self.history_[-1].gap, self.n_iter_
        advice = "Raise n_estimators, tol or lam."
        classifier.warn_not_converged(self, self.status_, found, advice, "rounds")

    def _boost(self, X: Any, y: Any, sample_weight: Any) -> bool:
        lam, tol = (
            checks.as_positive("lam", self.lam),
            checks.as_positive("tol", self.tol),
        )
        if lam < np.finfo(np.float64).tiny:
            raise ValueError(f"lam: expected a number with an inverse, got {lam}")
        rounds = checks.as_positive_int("n_estimators", self.n_estimators)
        X, y = classifier.validate_X_y(self, X, y)
        classes, labels = np.unique(y, return_inverse=True)
        checks.require_two_classes(classes)
        checks.require_binary(classes)
        counts = checks.as_sample_weight(sample_weight, len(labels))
        n = _total(counts)
        # shares that are rounded to 0 are 0
        used = counts / n > 0
        X, labels, counts = _for_trees(X[used]), labels[used], counts[used]
        prior = counts / n
        nu = None if self.nu is None else checks.as_positive("nu", self.nu)
        if nu is not None and nu > 1:
            raise ValueError(f"nu: expected at most 1, got {self.nu}")
        cap = np.ones(len(prior)) if nu is None else prior / nu
        signs = np.where(labels == 1, 1.0, -1.0)
        learn, exact = self._learner(
            X, signs, checks.as_random_state(self.random_state)
        )
        weights, votes = prior, np.zeros((0, len(prior)))
        alpha, dual, spread = np.zeros(0), -math.inf, 0.0
        self.estimators_: list[Any] = []
        self.history_: list[Certificate] = []
        began = clock.seconds_without_compilation()
        solved, close = True, False
        bar = make_progress_bar(
            checks.as_optional_bool("verbose", self.verbose),
            "LPBoostClassifier",
            unit=" rounds",
        )
        for _ in range(rounds):
            found = learn(n * weights)
            vote = signs * (2.0 * found.predict(X) - 1)
            largest = float((np.vstack([votes, vote]) @ weights).max())
            primal = lam * spread + largest
            gap = max(primal - dual, 0.0)
            number, known = len(self.history_) + 1, (gap if exact else math.nan)
            seconds = clock.seconds_without_compilation() - began
            self.history_.append(
                Certificate(number, number, seconds, primal, dual, known)
            )
            close = gap <= _goal(tol, dual)
            if bar is not None:
                shown = f"objective {primal:.5g}, gap {gap:.2e}"
                bar.set_postfix_str(f"{shown}, goal {_goal(tol, dual):.2e}", False)
                bar.update()
            if close or not solved:
                break
            self.estimators_.append(found)
            votes = np.vstack([votes, vote])
            start = np.append(alpha, 0.0) if len(alpha) else np.ones(1)
            game = EntropicGame(votes, lam, cap, prior)
            # more hypotheses only raise the optimum
            near = _INNER * _goal(tol, dual)
            alpha, weights, dual = game.solve(start, near)
            spread = game.divergence(weights)
            # more hypotheses would only ask for more steps
            solved = game.primal(weights) - dual <= near
        if bar is not None:
            bar.close()
        self.classes_ = classes
        self.estimator_weights_ = alpha
        self.sample_weights_ = np.zeros(len(used))
        self.sample_weights_[used] = weights
        self.gap_, self.n_iter_ = self.history_[-1].gap, len(self.history_)
        if close:
            self.status_ = f"the gap is at most tol = {tol:.3g}"
        elif solved:
            self.status_ = f"n_estimators = {rounds} rounds are used up"
        else:
            self.status_ = f"a round takes more than {_MOST_STEPS:,} steps"
        if not exact:
            self.status_ += (
                ", among the hypotheses that the estimator found; there is no"
                " certificate, since it does not promise the largest edge"
            )
        return close

    def _learner(
        self, X: Any, signs: Floats, stream: Any
    ) -> tuple[Callable[[Floats], Any], bool]:
        """A hypothesis for weights of samples, and whether its edge is the largest."""
        if self.estimator is None:
            stumps = StumpLearner(X)
            return lambda weights: stumps.best(signs * weights), True
        if not _takes_weights(self.estimator):
            raise TypeError(
                "estimator: expected a classifier of scikit-learn that takes"
                f" sample_weight, got {checks.short_repr(self.estimator)}"
            )
        labels = (signs > 0).astype(np.intp)

        def learn(weights: Floats) -> Any:
            found = clone(self.estimator)
            if "random_state" in found.get_params():
                found.set_params(random_state=int(stream.randint(2**31 - 1)))
            return found.fit(X, labels, sample_weight=weights)

        return learn, bool(getattr(self.estimator, "maximises_edge", False))

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Votes for the second class minus those for the first, from -1 to 1."""
        check_is_fitted(self)
        X = _for_trees(classifier.validate_X(self, X))
        score = np.zeros(X.shape[0])
        for found, weight in zip(
            self.estimators_, self.estimator_weights_, strict=True
        ):
            if weight > 0:
                score += weight * (2.0 * found.predict(X) - 1)
        return score


def _goal(tol: float, dual: float) -> float:
    """The gap at which to stop."""
    return tol * max(dual, _LEAST)


def _total(counts: Floats) -> float:
    """The sum of the weights of samples, if it is a number."""
    with np.errstate(over="ignore"):
        total = float(counts.sum())
    if math.isinf(total):
        raise ValueError(
            "sample_weight: expected weights whose sum fits float64, got up to"
            f" {counts.max():.3g}"
        )
    return total


def _for_trees(X: Any) -> Any:
    """X with indices of int32, the only ones that trees of scikit-learn take."""
    if not sparse.issparse(X) or X.nnz >= 2**31 or max(X.shape) >= 2**31:
        return X
    found = X.copy()
    found.indices = X.indices.astype(np.int32)
    found.indptr = X.indptr.astype(np.int32)
    return found


def _takes_weights(estimator: Any) -> bool:
    made = hasattr(estimator, "get_params") and not isinstance(estimator, type)
    return made and has_fit_parameter(estimator, "sample_weight")


class EntropicGame:
    r""":math:`\min_d \lambda KL(d | p) + \max_j \langle u_j, d \rangle`, d capped."""

    def __init__(
        self, votes: Floats, lam: float, cap: Any, prior: Floats | None = None
    ) -> None:
        self.votes, self.lam, self.cap = votes, lam, cap
        n = votes.shape[1]
        self.prior = np.full(n, 1 / n) if prior is None else prior

    def answer(self, alpha: Floats) -> Floats:
        """The weights of samples that are best against weights of hypotheses."""
        return capped_softmax(-(alpha @ self.votes) / self.lam, self.cap, self.prior)

    def divergence(self, d: Floats) -> float:
        """Divergence from the prior."""
        used = d > 0
        return float(d[used] @ np.log(d[used] / self.prior[used]))

    def dual(self, alpha: Floats) -> float:
        """A lower bound of the minimum."""
        d = self.answer(alpha)
        return self.lam * self.divergence(d) + float(alpha @ (self.votes @ d))

    def primal(self, d: Floats) -> float:
        """The objective."""
        return self.lam * self.divergence(d) + float((self.votes @ d).max())

    def solve(self, start: Floats, tol: float) -> tuple[Floats, Floats, float]:
        """Weights of hypotheses and of samples with a gap of ``tol``, and the bound.

        Notes
        -----
        Entropy makes the dual smooth with a constant of ``max |u|^2 / lam``.
        """
        t = len(start)
        L = float(np.abs(self.votes).max()) ** 2 / self.lam
        alpha, logs = start, np.log(0.9 * start + 0.1 / t)
        z, weights = np.exp(logs), np.zeros(self.votes.shape[1])
        best, bound, kept, held = math.inf, -math.inf, weights, alpha
        for k in range(_MOST_STEPS):
            share = 2 / (k + 2)
            d = self.answer((1 - share) * alpha + share * z)
            weights = (1 - share) * weights + share * d
            logs = logs + self.votes @ d / (share * L)
            logs -= logs.max() + math.log(float(np.exp(logs - logs.max()).sum()))
            z = np.exp(logs)
            alpha = (1 - share) * alpha + share * z
            if k & (k + 1) and k % 8:
                continue
            # rounding must not leave the simplex
            alpha = alpha / alpha.sum()
            for point in (weights, d):
                reached = self.primal(point)
                if reached < best:
                    best, kept = reached, point
            low = self.dual(alpha)
            if low > bound:
                bound, held = low, alpha
            if best - bound <= tol:
                break
        return held, kept, bound


def capped_softmax(z: Floats, cap: Any, prior: Floats | None = None) -> Floats:
    r""":math:`\arg\min KL(d | p e^z)` on the simplex, each d at most its ``cap``.

    Those that are largest by their caps are at them, and the others share the rest in
    proportion to :math:`p e^z`.
    """
    z = z if prior is None else z + np.log(prior)
    logs = np.broadcast_to(np.log(cap), z.shape)
    order = np.argsort(logs - z, kind="stable")
    s, logs = z[order], logs[order]
    # logs of the sums from each on
    rest = np.logaddexp.accumulate(s[::-1])[::-1]
    caps = np.exp(logs)
    left = 1 - (np.cumsum(caps) - caps)
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(left > 0, np.log(np.maximum(left, 0.0)), -np.inf) + s - rest
    good = first <= logs + 1e-15
    k = int(good.argmax()) if good.any() else len(s)
    found = caps.copy()
    if k < len(s):
        found[k:] = max(left[k], 0.0) * np.exp(s[k:] - rest[k])
    out = np.empty(len(s))
    out[order] = found
    return np.asarray(out / out.sum())
