"""The binary SVM."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from smoothsp.linear.descent.binary_dual import BinaryHingeDual
from smoothsp.linear.descent.coordinate_descent import descend
from smoothsp.linear.engines.solution import Certificate
from smoothsp.linear.estimators import classifier
from smoothsp.linear.estimators.binary_classifier import BinaryClassifier
from smoothsp.linear.inputs import checks
from smoothsp.linear.inputs.sparse_matrices import as_sample_rows


class HingeSVC(BinaryClassifier):
    r"""Binary linear SVM, solved to a certified optimum.

    .. math:: \min_w \tfrac12 \|w\|^2 + C \sum_i \max(0, 1 - s_i w^\top x_i)

    with :math:`s_i` 1 for the second class and -1 for the first. With two
    classes, ``WestonWatkinsSVC`` and ``CrammerSingerSVC`` minimise this objective, too.

    Parameters
    ----------
    C
        Factor of the losses, > 0.
    tol
        Relative gap at which to stop, >= 0; ``stopping`` defines the reference.
    stopping
        ``"objective"``: when the duality gap is ``tol`` times the dual, so that the
        objective is at most ``1 + tol`` times its minimum. ``"relative_gap"``: when it
        is ``tol`` times the gap after the first epoch. ``"gap"``: when it is ``tol``.
        The fit also stops when rounding error exceeds the remaining gap.
    class_weight
        Multiplies C for the samples of a class: a dict, or ``"balanced"``.
    fit_intercept
        If True, add a constant feature of value ``intercept_scaling`` for the
        intercept. Its weights are penalised like all weights.
    intercept_scaling
        The value of that feature, > 0.
    shuffle
        If True, each epoch visits the samples in a new random order.
    shrinking
        If True, epochs skip samples that did not contribute to the last gap, and for up
        to 31 epochs samples that did not move. Gaps always cover all samples and
        reactivate samples that contribute.
    random_state
        Seed of the sample orders.
    max_epochs
        Maximum number of passes over the samples.
    certify_every
        Epochs between duality gaps, each of which costs at most about half an epoch.
        ``"auto"``: after the first epoch, and then when the estimated gap of an epoch
        is near the goal or much smaller than the last gap.
    store_dual
        If True, set ``dual_coef_`` and ``support_``.
    warm_start
        If True, a fit starts from the dual variables of the previous fit. The samples
        must be the same in the same order; weights, C and features may change. Another
        number of samples or other classes raise a ValueError.
    callback
        Called with each :class:`~smoothsp.linear.Certificate`; a true return value ends
        the fit. Its ``state`` is a checkpoint: continue with
        ``fit(X, y, resume=state)``.
    verbose
        Progress on stderr: always (True), never (False), or on a terminal if the fit
        takes longer than three seconds (None).

    Attributes
    ----------
    classes_
        The two labels, sorted.
    coef_, intercept_
        ``(1, feature)`` and ``(1,)``.
    dual_coef_, support_
        ``(1, support)`` and ``(support,)``: ``coef_`` is ``dual_coef_ @ X[support_]``.
    history_
        The certificates: epoch, seconds, primal, dual and gap.
    gap_, n_epochs_, n_iter_, status_
        Gap of the weights, number of epochs (twice), and why the fit ended.

    Raises
    ------
    ValueError
        For NaN or infinity in X, indices outside of X, labels that are not of two
        classes, and parameters out of range. Also for an objective that leaves the
        range of the dtype.

    Notes
    -----
    An epoch costs O(nnz). Where half of the numbers in X are not 0, it is kept dense.

    Source: Hsieh et al., "A Dual Coordinate Descent Method for Large-scale Linear SVM",
    algorithm 1.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from smoothsp.linear import HingeSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> HingeSVC(C=0.1, random_state=0).fit(scale(X), y).score(scale(X), y) > 0.97
    True
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        tol: float = 1e-3,
        stopping: Literal["objective", "relative_gap", "gap"] = "objective",
        class_weight: Any = None,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        shuffle: bool = True,
        shrinking: bool = True,
        random_state: Any = None,
        max_epochs: int = 10_000,
        certify_every: int | Literal["auto"] = "auto",
        store_dual: bool = False,
        warm_start: bool = False,
        callback: Callable[[Certificate], Any] | None = None,
        verbose: bool | int | None = None,
    ) -> None:
        self.C = C
        self.tol = tol
        self.stopping = stopping
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.shuffle = shuffle
        self.shrinking = shrinking
        self.random_state = random_state
        self.max_epochs = max_epochs
        self.certify_every = certify_every
        self.store_dual = store_dual
        self.warm_start = warm_start
        self.callback = callback
        self.verbose = verbose

    def _fit(self, X: Any, y: Any, sample_weight: Any, resume: Any) -> None:
        settings = classifier.make_descent_settings(self)
        intercept_value = classifier.intercept_feature_value(self)
        store_dual = checks.as_bool("store_dual", self.store_dual)
        samples = self._validate_binary(X, y, sample_weight)
        rows = as_sample_rows(samples.X, intercept_value)
        dtype = samples.X.dtype
        signs = np.where(samples.labels == 1, dtype.type(1), dtype.type(-1))
        problem = BinaryHingeDual(
            rows,
            signs,
            samples.bounds,
            classifier.compute_squared_norms(rows, intercept_value),
            settings.shrinking,
            classifier.load_warm_start(self, samples),
        )
        history: list[Certificate] = []
        status = descend(problem, settings, history, resume)
        classifier.set_coef(self, problem.weights[:, None], intercept_value)
        if store_dual:
            classifier.set_dual_coef(self, (signs * problem.coefficients)[:, None])
        classifier.set_fit_results(self, samples, status, history)
        classifier.store_warm_start(self, samples, problem.coefficients[:, None])
