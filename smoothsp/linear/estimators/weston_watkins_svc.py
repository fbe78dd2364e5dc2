"""The multiclass SVM of Weston and Watkins."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.validation import check_is_fitted

from smoothsp._kernels.svm import weston_watkins
from smoothsp.linear.descent.coordinate_descent import DescentSettings, Status, descend
from smoothsp.linear.descent.dual_blocks import (
    DualBlocks,
    saturate_zero_norm_rows,
    warm_start_blocks,
)
from smoothsp.linear.descent.multiclass_duals import GramDual, LinearDual
from smoothsp.linear.engines.solution import Certificate
from smoothsp.linear.estimators import classifier
from smoothsp.linear.estimators.classifier import Samples
from smoothsp.linear.inputs import checks
from smoothsp.linear.inputs.arrays import round_up_to_lanes
from smoothsp.linear.inputs.sparse_matrices import as_sparse_sample_rows

_SOLVERS = ("walrus", "greedy")
_KERNELS = ("linear", "rbf", "precomputed")
# Violation at which the greedy solver leaves a block, relative to the margin.
_GREEDY_TOL = {"float64": 1e-6, "float32": 1e-5}


class WestonWatkinsSVC(classifier.CertifiedClassifier):
    r"""Multiclass SVM with the Weston-Watkins hinge, solved to a certified optimum.

    .. math:: \min_W \tfrac12 \|W\|_F^2
        + C \sum_i \sum_{j \ne y_i} \max(0, 1 - w_{y_i}^\top x_i + w_j^\top x_i)

    Every pair of the right and a wrong class has a margin to keep. Two classes are the
    binary SVM, :class:`HingeSVC`, with the same C:
    :math:`\tfrac12 \|w\|^2 + C \sum_i \max(0, 1 - s_i w^\top x_i)`.

    Block coordinate descent in the dual: the block of a sample is solved exactly, in
    :math:`O(k \log k)` for k classes.

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
    solver
        ``"walrus"``: blocks are solved exactly. ``"greedy"``: by steps along single
        coordinates, as in the Shark library; a baseline, slower for many classes.
    kernel
        ``"linear"``, ``"rbf"``, or ``"precomputed"``: X is then the Gram matrix, and
        for prediction its rows are samples and its columns the training samples. Where
        the diagonal is negative, as after centring, the intercept makes up for it: a
        constant is added to the matrix.
    gamma
        Of the rbf kernel ``exp(-gamma |x - x'|^2)``: a positive number, ``"scale"``
        for ``1 / (n_features * X.var())``, or ``"auto"`` for ``1 / n_features``.
    cost
        ``(class, class)``, in the order of ``classes_``: the margin to keep between the
        class of the row and that of the column. At least 0, and 0 on the diagonal.
        None: 1.
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
        Epochs between duality gaps, each of which costs about half an epoch.
        ``"auto"``: after the first epoch, and then when the estimated gap of an epoch
        is near the goal or much smaller than the last gap.
    store_dual
        Whether to set ``dual_coef_`` and ``support_``; with a kernel they are needed.
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
        The labels, sorted.
    coef_, intercept_
        ``(class, feature)`` and ``(class,)``; for two classes one row, the second
        class minus the first.
    dual_coef_, support_
        ``(class, support)`` and ``(support,)``: for the linear kernel ``coef_`` is
        ``dual_coef_ @ X[support_]``.
    history_
        The certificates: epoch, seconds, primal, dual and gap.
    gap_, n_epochs_, n_iter_, status_
        Gap of the weights, number of epochs (twice), and why the fit ended.

    Raises
    ------
    ValueError
        For NaN or infinity in X, indices outside of X, fewer than two classes, and
        parameters out of range. Also for an objective that leaves the range of the
        dtype.
    MemoryError
        Before anything is allocated, if ``(features + samples) * classes`` numbers, or
        the Gram matrix of a kernel, exceed the memory that is left.

    Notes
    -----
    An epoch costs O(nnz k + n k log k), and for a kernel O(n^2 k). Convergence is
    linear.

    Source: Wang and Scott, "An Exact Solver for the Weston-Watkins SVM Subproblem",
    algorithms 1 and 2, theorem 3.6. Samples of zero length, weights, costs, kernels
    and the intercept are not in the paper.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from smoothsp.linear import WestonWatkinsSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = WestonWatkinsSVC(random_state=0, fit_intercept=True).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        tol: float = 1e-3,
        stopping: Literal["objective", "relative_gap", "gap"] = "objective",
        solver: Literal["walrus", "greedy"] = "walrus",
        kernel: Literal["linear", "rbf", "precomputed"] = "linear",
        gamma: float | Literal["scale", "auto"] = "scale",
        cost: Any = None,
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
        self.solver = solver
        self.kernel = kernel
        self.gamma = gamma
        self.cost = cost
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
        checks.require_choice("solver", self.solver, _SOLVERS)
        checks.require_choice("kernel", self.kernel, _KERNELS)
        settings = classifier.make_descent_settings(self)
        intercept_value = classifier.intercept_feature_value(self)
        samples = classifier.validate_training_data(self, X, y, sample_weight)
        costs = checks.as_cost_matrix(self.cost, len(samples.classes), samples.X.dtype)
        history: list[Certificate] = []
        solve = self._fit_linear if self.kernel == "linear" else self._fit_kernel
        status = solve(samples, costs, intercept_value, settings, history, resume)
        classifier.set_fit_results(self, samples, status, history)

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Scores ``(samples, classes)``; of two classes ``(samples,)``, for the second.

        The scores of the linear kernel are ``X @ coef_.T + intercept_``.
        """
        check_is_fitted(self)
        # the parameter kernel may have changed since the fit
        if hasattr(self, "coef_"):
            return classifier.compute_linear_scores(self, X)
        is_rbf = hasattr(self, "support_vectors_")
        X = classifier.validate_X(self, X, accept_sparse="csr" if is_rbf else False)
        if not len(self.support_):
            # scikit-learn raises for kernels with no rows
            kernel_values = np.zeros((X.shape[0], 0), dtype=self.dual_coef_.dtype)
        elif is_rbf:
            kernel_values = rbf_kernel(X, self.support_vectors_, gamma=self.gamma_)
        else:
            kernel_values = X[:, self.support_]
        with np.errstate(over="ignore", invalid="ignore"):
            scores = kernel_values @ self.dual_coef_.T + self.intercept_
        return classifier.ravel_binary_scores(classifier.require_finite_scores(scores))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.kernel != "precomputed"
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    def _stopping_tolerances(self, blocks: DualBlocks) -> tuple[Any, ...]:
        dtype, is_greedy = blocks.bounds.dtype, self.solver == "greedy"
        greedy_tol = (
            _GREEDY_TOL[dtype.name] * blocks.class_costs.max() if is_greedy else 0.0
        )
        return blocks.zero_violation_tol, dtype.type(greedy_tol)

    def _fit_linear(
        self,
        samples: Samples,
        costs: NDArray[np.float64] | None,
        intercept_value: float,
        settings: DescentSettings,
        history: list[Certificate],
        resume: Any,
    ) -> Status:
        rows = as_sparse_sample_rows(samples.X, intercept_value)
        classifier.require_memory(
            classifier.linear_model_bytes(samples, rows.features, len(samples.classes))
        )
        squared_norms = classifier.compute_squared_norms(rows, intercept_value)
        blocks = self._make_blocks(samples, squared_norms, costs, settings)
        problem = LinearDual(
            blocks,
            rows,
            weston_watkins.coordinate_descent,
            weston_watkins.compute_gaps,
            self._stopping_tolerances(blocks),
            blocks.losses_at_zero(max_over_classes=False),
        )
        status = descend(problem, settings, history, resume)
        classifier.set_coef(self, problem.w, intercept_value)
        if checks.as_bool("store_dual", self.store_dual):
            classifier.set_dual_coef(self, blocks.coefficient_matrix)
        classifier.store_warm_start(self, samples, blocks.coefficient_matrix)
        return status

    def _fit_kernel(
        self,
        samples: Samples,
        costs: NDArray[np.float64] | None,
        intercept_value: float,
        settings: DescentSettings,
        history: list[Certificate],
        resume: Any,
    ) -> Status:
        n, size = len(samples.labels), samples.X.dtype.itemsize
        width = round_up_to_lanes(len(samples.classes), samples.X.dtype)
        classifier.require_memory(
            {
                f"a kernel matrix of {n:,} x {n:,} samples": n * n * size,
                f"coefficients and scores of {n:,} samples": 2 * n * width * size,
            }
        )
        if self.kernel == "rbf":
            # |x - y|^2 is at most 4 max |x|^2: check it in the dtype of X
            max_squared_distances = (
                4 * as_sparse_sample_rows(samples.X, 0.0).squared_norms
            )
            classifier.require_finite_squared_norms(
                max_squared_distances, samples.X.dtype
            )
            self.gamma_ = _resolve_rbf_gamma(self.gamma, samples.X)
            gram = rbf_kernel(samples.X, gamma=self.gamma_)
        else:
            gram = _check_gram_matrix(samples.X)
        # a constant feature of value v adds v^2 to every inner product
        diagonal_shift = _diagonal_shift(float(gram.diagonal().min()), intercept_value)
        gram = np.ascontiguousarray(gram + samples.X.dtype.type(diagonal_shift))
        squared_norms = gram.diagonal().astype(np.float64)
        classifier.require_finite_squared_norms(
            squared_norms, samples.X.dtype, intercept_value
        )
        blocks = self._make_blocks(samples, squared_norms, costs, settings)
        losses_at_zero = blocks.losses_at_zero(max_over_classes=False)
        problem = GramDual(
            blocks, gram, self._stopping_tolerances(blocks), losses_at_zero
        )
        status = descend(problem, settings, history, resume)
        classifier.set_dual_coef(self, blocks.coefficient_matrix)
        classifier.store_warm_start(self, samples, blocks.coefficient_matrix)
        # the weight of the constant feature times its value: v^2 sum_i a_i
        self.intercept_ = diagonal_shift * self.dual_coef_.sum(axis=1)
        if self.kernel == "rbf":
            self.support_vectors_ = samples.X[self.support_]
        return status

    def _make_blocks(
        self,
        samples: Samples,
        squared_norms: NDArray[np.float64],
        costs: NDArray[np.float64] | None,
        settings: DescentSettings,
    ) -> DualBlocks:
        blocks = DualBlocks(
            samples.labels,
            samples.bounds,
            squared_norms,
            len(samples.classes),
            costs,
            padding_cost=0.0,
            shrinking=settings.shrinking,
        )
        previous_duals = classifier.load_warm_start(self, samples)
        if previous_duals is not None:
            # the loss sums over classes: blocks are bounded entry by entry
            warm_start_blocks(blocks, previous_duals, max_over_classes=False)
        # their optimum does not depend on w; sweeps never visit them
        saturate_zero_norm_rows(blocks)
        return blocks


def _check_gram_matrix(X: NDArray[Any]) -> NDArray[Any]:
    """Return X; raise ValueError unless it is square and symmetric."""
    if X.shape[0] != X.shape[1]:
        raise ValueError(
            "X: expected a Gram matrix (samples, samples) for "
            f'kernel="precomputed", got {X.shape}'
        )
    if not np.allclose(X, X.T):
        raise ValueError(
            "X: expected a symmetric Gram matrix, which does not depend on the classes"
        )
    return X


def _diagonal_shift(min_diagonal: float, intercept_value: float) -> float:
    """Return the number added to the Gram matrix: the squared intercept feature.

    A negative diagonal adds its absolute value, so that no squared norm is negative.
    """
    if min_diagonal >= 0:
        return intercept_value**2
    if not intercept_value:
        raise ValueError(
            f"X: expected a Gram matrix with a diagonal of at least 0, got"
            f" {min_diagonal:.3g};"
            " fit_intercept=True adds a constant to it"
        )
    return intercept_value**2 - min_diagonal


def _resolve_rbf_gamma(gamma: object, X: Any) -> float:
    """Return gamma as a number; ``"scale"`` and ``"auto"`` as in scikit-learn."""
    if not isinstance(gamma, str):
        return checks.as_positive("gamma", gamma)
    checks.require_choice("gamma", gamma, ("scale", "auto"))
    if gamma == "auto":
        return 1 / int(X.shape[1])
    max_abs = float(abs(X).max())
    if not max_abs:
        return 1.0
    # variance of X / max |X|, whose squares cannot overflow
    # the variance without centring: sparse X stays sparse
    scaled = X.astype(np.float64) / max_abs
    squared = scaled.multiply(scaled) if sparse.issparse(X) else np.square(scaled)
    variance = float(squared.mean() - scaled.mean() ** 2)
    if variance <= 0:
        return 1.0
    with np.errstate(over="ignore", divide="ignore"):
        value = float(np.float64(1 / (int(X.shape[1]) * variance)) / max_abs / max_abs)
    if not 0 < value <= float(np.finfo(X.dtype).max):
        raise ValueError(
            "X: expected features for which gamma, one over their number times their"
            f" variance, fits {X.dtype}, got {value:.3g}; scale the features, or give"
            " gamma"
        )
    return value
