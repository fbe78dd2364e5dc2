"""The multiclass SVM of Crammer and Singer."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.metaestimators import available_if

from smoothsp._kernels.svm import crammer_singer
from smoothsp.linear.descent.coordinate_descent import (
    DescentSettings,
    Status,
    descend,
)
from smoothsp.linear.descent.dual_blocks import (
    DualBlocks,
    saturate_costliest_class,
    warm_start_blocks,
)
from smoothsp.linear.descent.multiclass_duals import LinearDual
from smoothsp.linear.engines.solution import Certificate, Solution
from smoothsp.linear.estimators import batch_fit, classifier
from smoothsp.linear.estimators.tagger import (
    HINGE_DEFAULTS,
    HINGE_SOLVERS,
    instantiate_solver,
    require_same_data,
    resolve_max_passes,
    resolve_partial_fit_classes,
    supports_partial_fit,
)
from smoothsp.linear.inputs import checks
from smoothsp.linear.inputs.sparse_matrices import as_sparse_sample_rows
from smoothsp.linear.problems import MulticlassProblem

# Names that solvers have for ``certify_every``, if they differ.
_CERTIFY_OPTION = {
    "bcfw": "refresh_every",
    "sgd": "evaluate_every",
}


class CrammerSingerSVC(classifier.CertifiedClassifier):
    r"""Multiclass SVM with the Crammer-Singer hinge, solved to a certified optimum.

    .. math:: \min_W \tfrac12 \|W\|_F^2
        + C \sum_i \max_j (\Delta_{y_i j} - w_{y_i}^\top x_i + w_j^\top x_i)

    with a margin :math:`\Delta` of 1 to every wrong class: only the worst of them
    costs. Two classes are the binary SVM, :class:`HingeSVC`, with the same C:
    :math:`\tfrac12 \|w\|^2 + C \sum_i \max(0, \Delta - s_i w^\top x_i)`.

    Parameters
    ----------
    C
        Factor of the losses, > 0.
    solver
        ``"dual"``, the fastest: block coordinate descent in the dual. The block of a
        sample is a projection onto a simplex, in :math:`O(k \log k)` for k classes. The
        others are those of ``smoothsp.linear.solvers``: ``"bcfw"`` and ``"bmrm"`` stop
        at a certified gap, too; ``"agm"`` smooths the hinge less and less; ``"sgd"``
        goes from sample to sample. They compute in float64.
    tol
        Relative gap at which to stop, >= 0; ``stopping`` defines the reference.
        ``"sgd"`` computes no gap, and stops when two evaluations have not lowered the
        objective by that share.
    stopping
        ``"objective"``: when the duality gap is ``tol`` times the dual, so that the
        objective is at most ``1 + tol`` times its minimum. ``"relative_gap"``: when it
        is ``tol`` times the gap after the first epoch. ``"gap"``: when it is ``tol``.
        The fit also stops when rounding error exceeds the remaining gap.
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
        If True, each epoch of ``"dual"`` visits the samples in a new random order.
    shrinking
        If True, epochs of ``"dual"`` skip samples that did not contribute to the last
        gap. They also skip samples that did not move, for up to 31 epochs. Gaps always
        cover all samples and reactivate samples that contribute.
    random_state
        Seed of the sample orders.
    max_epochs
        Maximum number of passes over the samples. None: 1,000 with ``"sgd"``,
        10,000 with other solvers.
    certify_every
        Epochs between duality gaps, each of which costs about half an epoch. ``"auto"``
        with ``"dual"``: after the first epoch, and then when the estimated gap is near
        the goal or much smaller than the last gap. ``"auto"`` with another solver is
        the default of that solver.
    store_dual
        If True, set ``dual_coef_`` and ``support_``; with ``"dual"`` only.
    solver_options
        Further arguments of a solver other than ``"dual"``, a dict. ``"bcfw"`` has
        ``steps="pairwise"`` and ``cache=True`` by default.
    warm_start
        If True, a fit starts from the previous fit. ``"dual"`` starts from its dual
        variables: the samples must be the same in the same order; weights, C and
        features may change. ``"bcfw"`` does too, and only C may change. Both start at 0
        after another solver. The other solvers start from the weights, and need the
        same features. Another number of samples or other classes raise a ValueError.
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
        ``(class, support)`` and ``(support,)``: ``coef_`` is
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
        Before anything is allocated, if ``(features + samples) * classes`` numbers
        exceed the memory that is left.

    Notes
    -----
    An epoch costs O(nnz k + n k log k).

    Source: Crammer and Singer, "On the Algorithmic Implementation of Multiclass
    Kernel-based Vector Machines", sections 3 and 6; Keerthi et al., "A Sequential Dual
    Method for Large Scale Multi-Class Linear SVMs", section 2. ``"bcfw"``: Osokin et
    al., "Minding the Gaps for Block Frank-Wolfe Optimization of Structured SVMs",
    equation 1.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from smoothsp.linear import CrammerSingerSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = CrammerSingerSVC(random_state=0, fit_intercept=True).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    """

    SOLVERS: ClassVar[dict[str, Any]] = HINGE_SOLVERS
    DEFAULTS: ClassVar[dict[str, Any]] = HINGE_DEFAULTS

    def __init__(
        self,
        C: float = 1.0,
        *,
        solver: str = "dual",
        tol: float = 1e-3,
        stopping: Literal["objective", "relative_gap", "gap"] = "objective",
        cost: Any = None,
        class_weight: Any = None,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        shuffle: bool = True,
        shrinking: bool = True,
        random_state: Any = None,
        max_epochs: int | None = None,
        certify_every: int | Literal["auto"] = "auto",
        store_dual: bool = False,
        solver_options: dict[str, Any] | None = None,
        warm_start: bool = False,
        callback: Callable[[Certificate], Any] | None = None,
        verbose: bool | int | None = None,
    ) -> None:
        self.C = C
        self.solver = solver
        self.tol = tol
        self.stopping = stopping
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
        self.solver_options = solver_options
        self.warm_start = warm_start
        self.callback = callback
        self.verbose = verbose

    def _fit(self, X: Any, y: Any, sample_weight: Any, resume: Any) -> None:
        checks.require_choice("solver", self.solver, ("dual", *self.SOLVERS))
        settings = classifier.make_descent_settings(
            self, resolve_max_passes(self, self.max_epochs)
        )
        intercept_value = classifier.intercept_feature_value(self)
        store_dual = checks.as_bool("store_dual", self.store_dual)
        samples = classifier.validate_training_data(self, X, y, sample_weight)
        if self.solver != "dual":
            if store_dual:
                raise ValueError("store_dual: expected False, or solver='dual'")
            problem, loss_weights = self._make_problem(samples, intercept_value)
            start = (
                None if resume is not None else self._load_warm_start(problem, samples)
            )
            history: list[Certificate] = []
            status = self._run_solver(
                problem, loss_weights, intercept_value, history, start, resume
            )
            classifier.set_fit_results(self, samples, status, history)
            return
        if self.solver_options:
            raise ValueError(
                "solver_options: expected None for solver='dual', got"
                f" {checks.short_repr(self.solver_options)}"
            )
        self._fit_dual(samples, settings, intercept_value, resume)

    def _fit_dual(
        self,
        samples: classifier.Samples,
        settings: DescentSettings,
        intercept_value: float,
        resume: Any,
    ) -> None:
        dtype, classes = samples.X.dtype, len(samples.classes)
        costs = checks.as_cost_matrix(self.cost, classes, dtype)
        rows = as_sparse_sample_rows(samples.X, intercept_value)
        classifier.require_memory(
            classifier.linear_model_bytes(samples, rows.features, classes)
        )
        # cost of padded classes: finite, so that 0 times it is not NaN, and too low to
        # be the largest violation
        padding = -float(np.finfo(dtype).max) / 8
        blocks = DualBlocks(
            samples.labels,
            samples.bounds,
            classifier.compute_squared_norms(rows, intercept_value),
            classes,
            costs,
            padding_cost=padding,
            shrinking=settings.shrinking,
        )
        previous_duals = classifier.load_warm_start(self, samples)
        if previous_duals is not None:
            # the loss is a maximum over classes: the bound limits the sum of a block
            warm_start_blocks(blocks, previous_duals, max_over_classes=True)
        saturate_costliest_class(blocks)
        problem = LinearDual(
            blocks,
            rows,
            crammer_singer.coordinate_descent,
            crammer_singer.compute_gaps,
            (blocks.zero_violation_tol,),
            blocks.losses_at_zero(max_over_classes=True),
        )
        history: list[Certificate] = []
        status = descend(problem, settings, history, resume)
        classifier.set_coef(self, problem.w, intercept_value)
        if self.store_dual:
            classifier.set_dual_coef(self, blocks.coefficient_matrix)
        classifier.set_fit_results(self, samples, status, history)
        classifier.store_warm_start(self, samples, blocks.coefficient_matrix)
        self._store_solution(problem.w.astype(np.float64).ravel())

    def _make_problem(
        self, samples: classifier.Samples, intercept_value: float
    ) -> tuple[MulticlassProblem, NDArray[np.float64]]:
        """Return the samples as a structured problem, and their loss weights."""
        batch_fit.require_valid_loss_weights(samples.bounds)
        loss_weights = samples.bounds.astype(np.float64)
        n, total = len(loss_weights), float(loss_weights.sum())
        scale = (
            None
            if (loss_weights == loss_weights[0]).all()
            else loss_weights * (n / total)
        )
        max_scale = 1.0 if scale is None else float(scale.max())
        rows = as_sparse_sample_rows(samples.X, intercept_value)
        # curvature of the dual, whose variables sum to 1 for each sample
        with np.errstate(over="ignore"):
            curvature = 2 * max_scale**2 * rows.squared_norms * (total / n) / n
        squared_norms = np.maximum(curvature, rows.squared_norms)
        classifier.require_finite_squared_norms(
            squared_norms, np.float64, intercept_value
        )
        matrix = sparse.csr_matrix(
            (rows.data, rows.indices, rows.indptr), (n, rows.features)
        )
        classes = len(samples.classes)
        problem = MulticlassProblem(
            matrix,
            samples.labels,
            num_labels=classes,
            cost=checks.as_cost_matrix(self.cost, classes),
            loss_scale=scale,
        )
        problem.called = "X"
        return problem, loss_weights

    def _run_solver(
        self,
        problem: MulticlassProblem,
        loss_weights: NDArray[np.float64],
        intercept_value: float,
        history: list[Certificate],
        start: Any,
        resume: Any,
        **overrides: Any,
    ) -> Status:
        """Run the solver and set ``coef_``; ``overrides`` replace its arguments."""
        # factors of mean 1: the objective times their sum is that of the estimator
        scale = float(loss_weights.sum())
        # two classes: w = w_2 - w_1 and |W|^2 = |w|^2 / 2 at the optimum
        lam = (2 if problem.num_labels == 2 else 1) / scale
        overrides = {
            "max_passes": resolve_max_passes(self, self.max_epochs),
            **overrides,
        }
        if self.certify_every != "auto":
            overrides[_CERTIFY_OPTION.get(self.solver, "certify_every")] = (
                self.certify_every
            )
        solution: Solution | None = None

        def solve(**run_options: Any) -> Solution:
            nonlocal solution
            solver = instantiate_solver(
                self, **{"lam": lam, **run_options, **overrides}
            )
            with np.errstate(over="ignore", invalid="ignore"):
                solution = solver.solve(problem, start=start, resume=resume)
            return solution

        w, status = batch_fit.run_batch_solver(
            self, solve, scale, history, overrides["max_passes"]
        )
        if not np.isfinite(w).all():
            raise ValueError(
                "X: expected features and C for which the weights fit float64; scale "
                "the features, or lower C"
            )
        W = w.reshape(-1, problem.num_labels)
        classifier.set_coef(self, W, intercept_value)
        self.__dict__.pop("_warm_start_data", None)
        self._store_solution(solution)
        return status

    def _store_solution(self, solution: Any) -> None:
        """Store a solution or weights if ``warm_start`` is True."""
        self.__dict__.pop("_warm_start_solution", None)
        if self.warm_start:
            self._warm_start_solution = solution

    def _load_warm_start(
        self, problem: MulticlassProblem, samples: classifier.Samples
    ) -> Any:
        """Return the stored solution of the previous fit, or None."""
        previous = self.__dict__.get("_warm_start_solution")
        if not checks.as_bool("warm_start", self.warm_start) or previous is None:
            return None
        if not np.array_equal(samples.classes, self.classes_):
            raise ValueError(
                "warm_start: expected the classes of the previous fit"
                f" ({', '.join(map(str, self.classes_[:20]))}), got"
                f" {', '.join(map(str, samples.classes[:20]))}; set warm_start=False,"
                " or clone"
            )
        if self.solver == "bcfw":
            if not isinstance(previous, Solution) or "ell" not in previous.state:
                # another solver left no dual variables
                return None
            require_same_data(problem, previous)
        elif len(getattr(previous, "w", previous)) != problem.num_weights:
            raise ValueError(
                "warm_start: expected the features and fit_intercept of the previous "
                "fit; set warm_start=False, or clone"
            )
        return previous

    @available_if(supports_partial_fit)  # type: ignore[untyped-decorator]
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> "CrammerSingerSVC":
        """Make one pass of ``"sgd"`` over some samples.

        The pass begins at the weights so far, those of a ``fit`` included. The
        objective is that of the samples of this call, with the same C. The steps begin
        anew at the solver's ``rate``.

        Parameters
        ----------
        X, y, sample_weight
            As for ``fit``.
        classes
            All classes that will occur; required in the first call only.

        Returns
        -------
        self
            ``history_`` has one certificate a call, of the samples of that call.
        """
        with classifier.restore_on_error(self):
            self._partial_fit(X, y, classes, sample_weight)
        return self

    def _partial_fit(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> None:
        C = checks.as_positive("C", self.C)
        intercept_value = classifier.intercept_feature_value(self)
        is_first_call = not hasattr(self, "classes_")
        X, y = classifier.validate_X_y(self, X, y, reset=is_first_call)
        all_classes = resolve_partial_fit_classes(self, classes, y.tolist())
        labels = np.searchsorted(all_classes, y)
        factors = checks.compute_class_weights(self.class_weight, all_classes, y)
        weights = checks.as_sample_weight(sample_weight, len(labels))
        with np.errstate(over="ignore"):
            loss_weights = checks.cast_loss_weights(
                C * factors[labels] * weights, np.float64
            )
        samples = classifier.Samples(X, labels, all_classes, loss_weights)
        problem, loss_weights = self._make_problem(samples, intercept_value)
        history: list[Certificate] = []
        single_pass_options = {"max_passes": 1, "tol": 0.0, "progress": False}
        start = None if is_first_call else self._current_weights(intercept_value)
        previous_history, previous_epochs = (
            getattr(self, "history_", []),
            getattr(self, "n_iter_", 0),
        )
        status = self._run_solver(
            problem,
            loss_weights,
            intercept_value,
            history,
            start,
            None,
            **single_pass_options,
        )
        classifier.set_fit_results(self, samples, status, [*previous_history, *history])
        self.n_iter_ = self.n_epochs_ = previous_epochs + history[-1].epoch

    def _current_weights(self, intercept_value: float) -> NDArray[np.float64]:
        """Return the current weights, flat ``(features * classes,)``."""
        rows = [self.coef_.T]
        if intercept_value:
            rows.append(self.intercept_[None] / intercept_value)
        W = np.vstack(rows).astype(np.float64)
        # coef_ of two classes is w_2 - w_1, and the optimum has w_1 = -w_2
        return (np.hstack([-W / 2, W / 2]) if W.shape[1] == 1 else W).ravel()
