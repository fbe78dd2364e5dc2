"""Binary SVMs of losses that belong to the whole set."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from smoothsp.linear.engines.solution import Certificate
from smoothsp.linear.estimators import classifier, whole_set
from smoothsp.linear.inputs import checks
from smoothsp.linear.problems import F1Problem, ROCAreaProblem
from smoothsp.linear.problems.binary import optimal_bias
from smoothsp.linear.solvers import BMRM


class _SetSVC(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """What the two share."""

    def fit(
        self, X: Any, y: Any, resume: Mapping[str, NDArray[Any]] | None = None
    ) -> Any:
        """Solve for the weights.

        Parameters
        ----------
        X
            ``(samples, features)``, dense or CSR, float32 or float64; computed in
            float64.
        y
            ``(samples,)``: labels of any kind that can be sorted, of two classes.
        resume
            The ``state`` of a certificate, as the callback of a fit of the same data
            and parameters had it, ``max_epochs`` and ``tol`` apart.

        Returns
        -------
        self
            Ctrl-C does not raise: it leaves the weights reached, with their gap, and a
            warning. After an error the estimator is what it was before.
        """
        with classifier.unchanged_by_errors(self):
            self._fit(X, y, resume)
        classifier.warn_if_short(self)
        return self

    def _fit(self, X: Any, y: Any, resume: Any) -> None:
        C = checks.positive("C", self.C)
        checks.count("max_epochs", self.max_epochs)
        samples = self._samples(X, y)
        checks.only_two_classes(samples.classes)
        constant = self._constant()
        rows = whole_set.with_constant(samples.X, constant)
        y = whole_set.signs(samples.labels)
        lam = whole_set.lambda_of(C, len(y))
        history: list[Certificate] = []

        def solve(look: Callable[[Certificate], Any]) -> Any:
            solver = BMRM(lam=lam, tol=0, max_passes=self.max_epochs, callback=look)
            return solver.solve(
                self._problem(rows, y), resume=whole_set.resumed(resume)
            )

        w, status = whole_set.fit(self, solve, 1 / lam, history)
        dtype = samples.X.dtype
        classifier.keep_weights(self, w.astype(dtype)[:, None], constant)
        self._place(samples.X, y)
        classifier.keep_outcome(self, samples, status, history)

    def _samples(self, X: Any, y: Any) -> classifier.Samples:
        X, y = classifier.read_both(self, X, y)
        classes, labels = np.unique(y, return_inverse=True)
        checks.two_classes(classes)
        return classifier.Samples(X, labels, classes, np.ones(len(labels)))

    def _place(self, X: Any, y: NDArray[np.float64]) -> None:
        """Set the intercept, where the solver does not."""

    def decision_function(self, X: Any) -> NDArray[Any]:
        """``X @ coef_[0] + intercept_``: above 0 for the second class."""
        return classifier.linear_scores(self, X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the best score, for each sample."""
        return classifier.best_class(self, self.decision_function(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        return tags


class F1SVC(_SetSVC):
    r"""Binary linear SVM that is trained for F1, solved to a certified optimum.

    .. math:: \min_w \tfrac12 \|w\|^2 + C n \max_{y'} \Big[ 1 - F_1(y', y)
        + \tfrac1n \sum_i (y'_i - y_i) \langle x_i, w \rangle \Big]

    over all labellings of the training set, with the second class as the positive one.
    For sets of which few samples are positive: with a hinge of each sample, and a small
    C, all may be called negative. So may they be here where labels are so noisy that
    the maximum says little about F1.

    Parameters
    ----------
    C
        What the loss is multiplied by, > 0; times n, so that it is of the size of that
        of ``HingeSVC``.
    tol
        The objective is at most ``1 + tol`` times its minimum.
    fit_intercept
        Whether to add a constant feature; its weight is penalised as all others.
    intercept_scaling
        The value of that feature, > 0.
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
    Cutting planes; a pass costs O(nnz + n log n + n_+ n_-).

    Source: Joachims, "A Support Vector Method for Multivariate Performance Measures",
    sections 3.1 and 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear import F1SVC
    >>> X = np.array([[3.0], [2.5], [-1.0], [-2.0], [-1.5], [-3.0]])
    >>> F1SVC(C=10.0).fit(X, [1, 1, 0, 0, 0, 0]).predict([[2.8], [-2.2]])
    array([1, 0])
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        tol: float = 1e-3,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        max_epochs: int = 5000,
        callback: Callable[[Certificate], Any] | None = None,
    ) -> None:
        self.C = C
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.max_epochs = max_epochs
        self.callback = callback

    def _constant(self) -> float:
        return classifier.constant_feature(self)

    def _problem(self, X: Any, y: NDArray[np.float64]) -> F1Problem:
        return F1Problem(X, y)


class ROCSVC(_SetSVC):
    r"""Linear SVM that is trained for the area under the ROC curve, and certified.

    .. math:: \min_w \tfrac12 \|w\|^2 + \frac{C n}{n_+ n_-} \sum_{y_i = 1} \sum_{y_j =
        -1} [1 - \langle x_i - x_j, w \rangle]_+

    with the second class as the positive one. It ranks: ``decision_function`` is what
    it is for. Pairs do not know an intercept; for ``predict`` it is the one with the
    least hinge on the training set.

    Parameters
    ----------
    C
        What the mean over pairs is multiplied by, times n, > 0.
    tol
        The objective is at most ``1 + tol`` times its minimum.
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
    Cutting planes; a pass costs O(nnz + n log n), whatever the number of pairs.

    Source: Joachims, "A Support Vector Method for Multivariate Performance Measures",
    section 3.4.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.metrics import roc_auc_score
    >>> from sklearn.preprocessing import scale
    >>> from smoothsp.linear import ROCSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = ROCSVC(C=0.1).fit(scale(X), y)
    >>> bool(roc_auc_score(y, model.decision_function(scale(X))) > 0.99)
    True
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        tol: float = 1e-3,
        max_epochs: int = 5000,
        callback: Callable[[Certificate], Any] | None = None,
    ) -> None:
        self.C = C
        self.tol = tol
        self.max_epochs = max_epochs
        self.callback = callback

    def _constant(self) -> float:
        return 0.0

    def _problem(self, X: Any, y: NDArray[np.float64]) -> ROCAreaProblem:
        return ROCAreaProblem(X, y)

    def _place(self, X: Any, y: NDArray[np.float64]) -> None:
        scores = np.asarray(X @ self.coef_[0], dtype=np.float64)
        bias = optimal_bias(scores, y)
        self.intercept_ = np.array([bias], dtype=self.coef_.dtype)
