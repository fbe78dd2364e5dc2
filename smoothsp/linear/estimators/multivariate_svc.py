"""Binary SVMs for multivariate losses: F1 and ROC area of the whole set."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.solution import Certificate
from smoothsp.linear.estimators import batch_fit, classifier
from smoothsp.linear.estimators.binary_classifier import BinaryClassifier
from smoothsp.linear.inputs import arrays, checks
from smoothsp.linear.problems import F1Problem, ROCAreaProblem
from smoothsp.linear.problems.binary import compute_squared_norms, optimal_bias
from smoothsp.linear.solvers import BMRM

Floats = NDArray[np.float64]


class _MultivariateSVC(BinaryClassifier):
    """Base class of SVMs with a multivariate loss of the whole training set."""

    def _fit(self, X: Any, y: Any, sample_weight: Any, resume: Any) -> None:
        C = checks.as_positive("C", self.C)
        max_epochs = checks.as_positive_int("max_epochs", self.max_epochs)
        samples = self._validate_binary(X, y, None)
        y = batch_fit.labels_to_signs(samples.labels)
        weights = None
        if sample_weight is not None:
            weights = checks.as_sample_weight(sample_weight, len(y))
            if len(np.unique(y[weights > 0])) < 2:
                raise ValueError(
                    "sample_weight: expected positive weights in both classes, got one"
                    " class"
                )
        total = len(y) if weights is None else float(weights.sum())
        intercept_value = self._intercept_feature_value()
        lam = batch_fit.lambda_from_C(C, total)
        rows = batch_fit.append_intercept_feature(samples.X, intercept_value)
        with np.errstate(over="ignore"):
            squared_norms = compute_squared_norms(rows.astype(np.float64))
        classifier.require_finite_squared_norms(
            squared_norms, np.float64, intercept_value
        )
        problem = self._make_problem(rows, y, weights)

        def solve(**run_options: Any) -> Any:
            solver = BMRM(lam=lam, max_passes=max_epochs, **run_options)
            return solver.solve(problem, resume=resume)

        self._run_and_store(samples, solve, 1 / lam, intercept_value)
        self._set_intercept(samples.X, y, weights)

    def _intercept_feature_value(self) -> float:
        raise NotImplementedError

    def _make_problem(self, X: Any, y: Floats, weights: Floats | None) -> Any:
        raise NotImplementedError

    def _set_intercept(self, X: Any, y: Floats, weights: Floats | None) -> None:
        """Set ``intercept_`` after the fit; by default the solver has set it."""


class F1SVC(_MultivariateSVC):
    r"""Binary linear SVM that is trained for F1, solved to a certified optimum.

    .. math:: \min_w \tfrac12 \|w\|^2 + C n \max_{y'} \Big[ 1 - F_1(y', y)
        + \tfrac1n \sum_i (y'_i - y_i) \langle x_i, w \rangle \Big]

    over all labellings of the training set, with the second class as positive class.
    Use it if few samples are positive: an SVM with the hinge of each sample and a small
    C may predict only negatives. With very noisy labels this loss, too, may predict
    only negatives, because the maximum is then a loose bound of 1 - F1.

    Parameters
    ----------
    C
        Factor of n times the loss, > 0. The factor n makes values of C comparable with
        those of ``HingeSVC``.
    tol
        The relative gap at which to stop: the objective is then at most ``1 + tol``
        times its minimum.
    fit_intercept
        If True, add a constant feature of value ``intercept_scaling`` for the
        intercept. Its weights are penalised like all weights.
    intercept_scaling
        The value of that feature, > 0.
    max_epochs
        Maximum number of passes over the samples.
    callback, verbose
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
        verbose: bool | int | None = None,
    ) -> None:
        self.C = C
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.max_epochs = max_epochs
        self.callback = callback
        self.verbose = verbose

    def _intercept_feature_value(self) -> float:
        return classifier.intercept_feature_value(self)

    def _make_problem(self, X: Any, y: Floats, weights: Floats | None) -> F1Problem:
        if weights is None:
            return F1Problem(X, y)
        is_fractional = weights != np.round(weights)
        if is_fractional.any():
            i = int(is_fractional.argmax())
            raise ValueError(
                "sample_weight: expected whole numbers, as F1 is not a sum over"
                f" samples, got {weights[i]} at sample {i}"
            )
        total = float(weights.sum())
        required_bytes = int(total * (8 + 12 * X.size / len(y)))
        arrays.require_memory(
            {f"{total:.3g} samples": required_bytes},
            "sample_weight repeats samples: lower it.",
        )
        # F1 is not a sum over samples: a weight of 2 is a repeated row
        repeated = np.repeat(np.arange(len(y)), weights.astype(np.int64))
        return F1Problem(X[repeated], y[repeated])


class ROCSVC(_MultivariateSVC):
    r"""Linear SVM that is trained for the area under the ROC curve, and certified.

    .. math:: \min_w \tfrac12 \|w\|^2 + \frac{C n}{n_+ n_-} \sum_{y_i = 1} \sum_{y_j =
        -1} [1 - \langle x_i - x_j, w \rangle]_+

    with the second class as positive class. Use ``decision_function`` to rank samples.
    Pairs do not determine an intercept. For ``predict``, the intercept minimises the
    hinge on the training set; it is the middle of all minimisers.

    Parameters
    ----------
    C
        Factor of n times the mean over pairs, > 0. n is the sum of ``sample_weight``,
        or the number of samples.
    tol
        The relative gap at which to stop: the objective is then at most ``1 + tol``
        times its minimum.
    max_epochs
        Maximum number of passes over the samples.
    callback, verbose
        As in :class:`HingeSVC`.

    Attributes
    ----------
    classes_, coef_, intercept_, history_, gap_, n_epochs_, n_iter_, status_
        As in :class:`HingeSVC`.

    Notes
    -----
    Cutting planes. A pass costs O(nnz + n log n) for n_+ n_- pairs.

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
        verbose: bool | int | None = None,
    ) -> None:
        self.C = C
        self.tol = tol
        self.max_epochs = max_epochs
        self.callback = callback
        self.verbose = verbose

    def _intercept_feature_value(self) -> float:
        return 0.0

    def _make_problem(
        self, X: Any, y: Floats, weights: Floats | None
    ) -> ROCAreaProblem:
        return ROCAreaProblem(X, y, weights=weights)

    def _set_intercept(self, X: Any, y: Floats, weights: Floats | None) -> None:
        scores = np.asarray(X @ self.coef_[0], dtype=np.float64)
        bias = optimal_bias(scores, y, weights)
        self.intercept_ = np.array([bias], dtype=self.coef_.dtype)
