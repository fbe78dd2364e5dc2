"""Entropy-regularised LPBoost with a certified gap."""

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

# Tolerance of the inner problem, relative to the gap at which boosting stops.
_INNER_GAP_FRACTION = 0.25
# Maximum number of Nesterov steps in an inner problem.
_MAX_INNER_STEPS = 100_000
# Lower limit of the optimum in relative gaps: margins are from -1 to 1.
_MIN_OPTIMUM = 1e-3


class LPBoostClassifier(BinaryClassifier):
    r"""Entropy-regularised LPBoost of binary classifiers, to a certified optimum.

    .. math:: \min_d \lambda \, \mathrm{KL}(d \,\|\, 1/n)
        + \max_j \sum_i d_i y_i h_j(x_i), \qquad
        0 \le d_i \le \frac{1}{\nu n}, \; \sum_i d_i = 1

    over sample weights d; hypothesis weights are the dual variables. Each round fits
    the base estimator with weights d, which adds a hypothesis of large edge, and then
    recomputes the weights of all hypotheses.

    Parameters
    ----------
    estimator
        A classifier that takes ``sample_weight``. By default the decision stump of
        largest edge, which is found exactly. If your own classifier finds the
        hypothesis of largest edge under any weights, set its attribute ``maximises_edge
        = True``. Without it the fit has no certificate, and ``gap_`` is NaN.
    n_estimators
        Maximum number of hypotheses.
    lam
        lambda, > 0. As lambda decreases, the margin approaches the largest soft margin.
    nu
        From 1 / n to 1: approximate fraction of samples below the margin. None for a
        hard margin.
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
            ``(samples,)``, at least 0: a sample of weight 2 equals two samples, if this
            holds for the base estimator.

        Returns
        -------
        self
            A warning is issued if ``n_estimators`` did not suffice. After an error the
            estimator is unchanged.
        """
        with classifier.restore_on_error(self):
            converged = self._fit_boosting(X, y, sample_weight)
        if not converged:
            self._warn_not_converged()
        return self

    def _warn_not_converged(self) -> None:
        last_values = self.history_[-1].primal, self.history_[-1].gap, self.n_iter_
        advice = "Raise n_estimators, tol or lam."
        classifier.warn_not_converged(self, self.status_, last_values, advice, "rounds")

    def _fit_boosting(self, X: Any, y: Any, sample_weight: Any) -> bool:
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
        n = _finite_sum(counts)
        # weights that underflow after normalisation count as 0
        has_weight = counts / n > 0
        X, labels, counts = (
            _with_int32_indices(X[has_weight]),
            labels[has_weight],
            counts[has_weight],
        )
        prior = counts / n
        nu = None if self.nu is None else checks.as_positive("nu", self.nu)
        if nu is not None and nu > 1:
            raise ValueError(f"nu: expected at most 1, got {self.nu}")
        # the cap of LPBoost, 1 / (nu n) for equal weights
        max_weights = np.ones(len(prior)) if nu is None else prior / nu
        signs = np.where(labels == 1, 1.0, -1.0)
        fit_hypothesis, is_exact = self._make_learner(
            X, signs, checks.as_random_state(self.random_state)
        )
        weights, margins = prior, np.zeros((0, len(prior)))
        alpha, dual, divergence = np.zeros(0), -math.inf, 0.0
        self.estimators_: list[Any] = []
        self.history_: list[Certificate] = []
        began = clock.seconds_without_compilation()
        solved, has_converged = True, False
        bar = make_progress_bar(
            checks.as_optional_bool("verbose", self.verbose),
            "LPBoostClassifier",
            unit=" rounds",
        )
        for _ in range(rounds):
            hypothesis = fit_hypothesis(n * weights)
            margins_of_hypothesis = signs * (2.0 * hypothesis.predict(X) - 1)
            largest = float(
                (np.vstack([margins, margins_of_hypothesis]) @ weights).max()
            )
            primal = lam * divergence + largest
            # an upper bound for all hypotheses only if this one has the largest edge
            gap = max(primal - dual, 0.0)
            round_number, certified_gap = (
                len(self.history_) + 1,
                (gap if is_exact else math.nan),
            )
            seconds = clock.seconds_without_compilation() - began
            self.history_.append(
                Certificate(
                    round_number, round_number, seconds, primal, dual, certified_gap
                )
            )
            has_converged = gap <= _gap_threshold(tol, dual)
            if bar is not None:
                text = f"objective {primal:.5g}, gap {gap:.2e}"
                bar.set_postfix_str(
                    f"{text}, goal {_gap_threshold(tol, dual):.2e}", False
                )
                bar.update()
            if has_converged or not solved:
                break
            self.estimators_.append(hypothesis)
            margins = np.vstack([margins, margins_of_hypothesis])
            # the new hypothesis starts with weight 0
            start = np.append(alpha, 0.0) if len(alpha) else np.ones(1)
            game = EntropicGame(margins, lam, max_weights, prior)
            # the optimum grows with more hypotheses, so this threshold is safe
            inner_tol = _INNER_GAP_FRACTION * _gap_threshold(tol, dual)
            alpha, weights, dual = game.solve(start, inner_tol)
            divergence = game.divergence(weights)
            # an unsolved inner problem ends boosting: later ones would be harder
            solved = game.primal(weights) - dual <= inner_tol
        if bar is not None:
            bar.close()
        self.classes_ = classes
        self.estimator_weights_ = alpha
        self.sample_weights_ = np.zeros(len(has_weight))
        self.sample_weights_[has_weight] = weights
        self.gap_, self.n_iter_ = self.history_[-1].gap, len(self.history_)
        if has_converged:
            self.status_ = f"the gap is at most tol = {tol:.3g}"
        elif solved:
            self.status_ = f"n_estimators = {rounds} rounds are used up"
        else:
            self.status_ = f"a round takes more than {_MAX_INNER_STEPS:,} steps"
        if not is_exact:
            self.status_ += (
                ", among the hypotheses of the estimator; there is no certificate,"
                " since the estimator need not maximise the edge"
            )
        return has_converged

    def _make_learner(
        self, X: Any, signs: Floats, rng: Any
    ) -> tuple[Callable[[Floats], Any], bool]:
        """Return a function from sample weights to hypotheses, and whether it is exact.

        Exact means that the hypothesis has the largest edge, as a certificate needs.
        """
        if self.estimator is None:
            stumps = StumpLearner(X)
            return lambda weights: stumps.best(signs * weights), True
        if not _supports_sample_weight(self.estimator):
            raise TypeError(
                "estimator: expected a classifier of scikit-learn that takes"
                f" sample_weight, got {checks.short_repr(self.estimator)}"
            )
        labels = (signs > 0).astype(np.intp)

        def fit_hypothesis(weights: Floats) -> Any:
            hypothesis = clone(self.estimator)
            if "random_state" in hypothesis.get_params():
                hypothesis.set_params(random_state=int(rng.randint(2**31 - 1)))
            return hypothesis.fit(X, labels, sample_weight=weights)

        return fit_hypothesis, bool(getattr(self.estimator, "maximises_edge", False))

    def decision_function(self, X: Any) -> NDArray[Any]:
        """``(samples,)``: weighted vote for the second class, from -1 to 1."""
        check_is_fitted(self)
        X = _with_int32_indices(classifier.validate_X(self, X))
        score = np.zeros(X.shape[0])
        for hypothesis, weight in zip(
            self.estimators_, self.estimator_weights_, strict=True
        ):
            if weight > 0:
                score += weight * (2.0 * hypothesis.predict(X) - 1)
        return score


def _gap_threshold(tol: float, dual: float) -> float:
    """Return the gap at which boosting stops."""
    return tol * max(dual, _MIN_OPTIMUM)


def _finite_sum(counts: Floats) -> float:
    """Return the sum of sample weights; raise ValueError if it overflows."""
    with np.errstate(over="ignore"):
        total = float(counts.sum())
    if math.isinf(total):
        raise ValueError(
            "sample_weight: expected weights whose sum fits float64, got up to"
            f" {counts.max():.3g}"
        )
    return total


def _with_int32_indices(X: Any) -> Any:
    """Return X with int32 indices, which trees of scikit-learn require."""
    if not sparse.issparse(X) or X.nnz >= 2**31 or max(X.shape) >= 2**31:
        return X
    converted = X.copy()
    converted.indices = X.indices.astype(np.int32)
    converted.indptr = X.indptr.astype(np.int32)
    return converted


def _supports_sample_weight(estimator: Any) -> bool:
    """Whether ``fit`` of an estimator object accepts ``sample_weight``."""
    is_instance = hasattr(estimator, "get_params") and not isinstance(estimator, type)
    return is_instance and has_fit_parameter(estimator, "sample_weight")


class EntropicGame:
    r"""Game :math:`\min_d \lambda KL(d | p) + \max_j \langle u_j, d \rangle`, d capped.

    The rows :math:`u_j` are the margins of hypothesis j.
    """

    def __init__(
        self, margins: Floats, lam: float, max_weights: Any, prior: Floats | None = None
    ) -> None:
        self.margins, self.lam, self.max_weights = margins, lam, max_weights
        n = margins.shape[1]
        self.prior = np.full(n, 1 / n) if prior is None else prior

    def best_response(self, alpha: Floats) -> Floats:
        """Return the sample weights d that minimise the game for hypothesis weights."""
        return capped_softmax(
            -(alpha @ self.margins) / self.lam, self.max_weights, self.prior
        )

    def divergence(self, d: Floats) -> float:
        """Kullback-Leibler divergence ``KL(d | prior)``."""
        used = d > 0
        return float(d[used] @ np.log(d[used] / self.prior[used]))

    def dual(self, alpha: Floats) -> float:
        """Lower bound of the minimum, from hypothesis weights alpha."""
        d = self.best_response(alpha)
        return self.lam * self.divergence(d) + float(alpha @ (self.margins @ d))

    def primal(self, d: Floats) -> float:
        """Objective at sample weights d."""
        return self.lam * self.divergence(d) + float((self.margins @ d).max())

    def solve(self, start: Floats, tol: float) -> tuple[Floats, Floats, float]:
        """Return hypothesis and sample weights with gap ``tol``, and the lower bound.

        Notes
        -----
        Entropy makes the dual smooth with a constant of ``max |u|^2 / lam``.
        """
        num_hypotheses = len(start)
        L = float(np.abs(self.margins).max()) ** 2 / self.lam
        # mixed with the uniform distribution: multiplicative updates never leave 0
        alpha, logs = start, np.log(0.9 * start + 0.1 / num_hypotheses)
        z, weights = np.exp(logs), np.zeros(self.margins.shape[1])
        best, bound, best_weights, best_alpha = math.inf, -math.inf, weights, alpha
        for k in range(_MAX_INNER_STEPS):
            # accelerated mirror descent: z by multiplicative updates, alpha an average
            step_weight = 2 / (k + 2)
            d = self.best_response((1 - step_weight) * alpha + step_weight * z)
            weights = (1 - step_weight) * weights + step_weight * d
            logs = logs + self.margins @ d / (step_weight * L)
            logs -= logs.max() + math.log(float(np.exp(logs - logs.max()).sum()))
            z = np.exp(logs)
            alpha = (1 - step_weight) * alpha + step_weight * z
            # bounds cost as much as a step: compute them at 2^j - 1 and multiples of 8
            if k & (k + 1) and k % 8:
                continue
            # renormalise, since rounding errors accumulate
            alpha = alpha / alpha.sum()
            for candidate in (weights, d):
                value = self.primal(candidate)
                if value < best:
                    best, best_weights = value, candidate
            lower_bound = self.dual(alpha)
            if lower_bound > bound:
                bound, best_alpha = lower_bound, alpha
            if best - bound <= tol:
                break
        return best_alpha, best_weights, bound


def capped_softmax(z: Floats, max_weights: Any, prior: Floats | None = None) -> Floats:
    r"""Return :math:`\arg\min KL(d | p e^z)` on the simplex with ``d <= max_weights``.

    The entries with the largest ratio of :math:`p e^z` to their maximum attain it. The
    remaining mass is distributed in proportion to :math:`p e^z`.
    """
    z = z if prior is None else z + np.log(prior)
    log_caps = np.broadcast_to(np.log(max_weights), z.shape)
    order = np.argsort(log_caps - z, kind="stable")
    sorted_z, log_caps = z[order], log_caps[order]
    # log of the sum of each entry and all later ones
    log_tail_sums = np.logaddexp.accumulate(sorted_z[::-1])[::-1]
    sorted_caps = np.exp(log_caps)
    remaining_mass = 1 - (np.cumsum(sorted_caps) - sorted_caps)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_scaled = (
            np.where(
                remaining_mass > 0, np.log(np.maximum(remaining_mass, 0.0)), -np.inf
            )
            + sorted_z
            - log_tail_sums
        )
    is_feasible = log_scaled <= log_caps + 1e-15
    num_capped = int(is_feasible.argmax()) if is_feasible.any() else len(sorted_z)
    sorted_weights = sorted_caps.copy()
    if num_capped < len(sorted_z):
        sorted_weights[num_capped:] = max(remaining_mass[num_capped], 0.0) * np.exp(
            sorted_z[num_capped:] - log_tail_sums[num_capped]
        )
    out = np.empty(len(sorted_z))
    out[order] = sorted_weights
    return np.asarray(out / out.sum())
