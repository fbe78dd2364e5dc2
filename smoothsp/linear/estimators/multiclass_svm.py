"""A classifier trained as a structured SVM of one label."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if

from smoothsp.linear.descent.sparse_rows import sparse_rows
from smoothsp.linear.engines.solution import Callback
from smoothsp.linear.estimators import classifier
from smoothsp.linear.estimators.tagger import (
    HINGE_DEFAULTS,
    HINGE_SOLVERS,
    classes_of_parts,
    keep_part,
    keep_solution,
    lam_of,
    require_same_data,
    solver_of,
    takes_parts,
    weigh,
)
from smoothsp.linear.inputs import checks
from smoothsp.linear.problems import MulticlassProblem
from smoothsp.linear.solvers import Solution


class MulticlassSVM(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Linear multiclass SVM with costs of confusion, solved as a structured one.

    .. math:: \min_W \tfrac{\lambda}{2} \|W\|^2 + \tfrac{1}{n} \sum_i
        \max_j \Delta(y_i, j) + (w_j - w_{y_i})^\top x_i,
        \qquad \lambda = 1 / (C n)

    Two classes are the binary SVM, :class:`HingeSVC`, with the same C:
    :math:`\tfrac{\lambda}{2} \|w\|^2 + \tfrac1n \sum_i \max(0, \Delta(y_i, j) - s_i
    w^\top x_i)` with :math:`s_i` 1 for the second class and -1 for the first.

    Parameters
    ----------
    C, l2, solver, tol, max_passes, solver_options, random_state, callback, verbose
        As in :class:`ChainSVM`, the defaults of ``"bcfw"``, too.
    cost
        ``(classes, classes)``, from the true class to the guessed one, in the order of
        ``classes_``; by default 1 for a wrong class.
    class_weight
        Multiplies C for the samples of a class: a dict, or ``"balanced"``.
    fit_intercept
        If True, add a constant feature of value 1 for the intercept. Its weights are
        penalised like the others.
    warm_start
        Whether a fit begins where the one before ended: with ``"bcfw"`` at its dual
        variables, which are those of the same data (C may be another), with all other
        solvers at its weights, which need the same classes and number of features.
        Other data are a ValueError. ``"bcfw"`` after another solver begins at 0.

    Attributes
    ----------
    classes_
        The classes, sorted.
    coef_, intercept_
        Weights ``(classes, features)`` and ``(classes,)``; of two classes one row, that
        of the second.
    primal_, dual_, gap_, n_passes_, n_iter_, status_, history_
        Final values and history of the fit; ``n_iter_`` is the number of passes.

    Notes
    -----
    Any cost can be had here, and any solver of ``smoothsp.linear.solvers``;
    ``CrammerSingerSVC`` solves this problem for equal costs, and faster.

    Source: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
    Structured SVMs", equation 1.

    Examples
    --------
    >>> X = [[0.0, 1.0], [1.0, 0.0], [2.0, 0.0]]
    >>> MulticlassSVM().fit(X, ["a", "b", "b"]).predict([[3.0, 0.0]]).tolist()
    ['b']
    """

    SOLVERS: ClassVar[dict[str, Any]] = HINGE_SOLVERS
    DEFAULTS: ClassVar[dict[str, Any]] = HINGE_DEFAULTS

    def __init__(
        self,
        C: float | None = None,
        *,
        l2: float | None = None,
        solver: str = "bcfw",
        tol: float = 1e-3,
        cost: Any = None,
        class_weight: Any = None,
        fit_intercept: bool = True,
        max_passes: int | None = None,
        solver_options: dict[str, Any] | None = None,
        warm_start: bool = False,
        random_state: Any = 0,
        callback: Callback | None = None,
        verbose: bool | None = None,
    ) -> None:
        self.C = C
        self.l2 = l2
        self.solver = solver
        self.tol = tol
        self.cost = cost
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.max_passes = max_passes
        self.solver_options = solver_options
        self.warm_start = warm_start
        self.random_state = random_state
        self.callback = callback
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        resume: Mapping[str, NDArray[Any]] | None = None,
    ) -> "MulticlassSVM":
        """Fit the model.

        Parameters
        ----------
        X
            ``(samples, features)``, dense or sparse.
        y
            ``(samples,)``: classes.
        sample_weight
            ``(samples,)``: multiplies C for a sample, >= 0; as if it were there so many
            times.
        resume
            The ``state`` of a record, as the callback of a fit of the same data and
            parameters had it, ``max_passes`` and ``tol`` apart: goes on from there bit
            for bit. ``numpy.savez(path, **state)`` and ``numpy.load(path)`` keep it.

        Returns
        -------
        self
            Ctrl-C during the solver stops the fit with a warning and keeps the current
            weights and their gap. A second Ctrl-C, or one before the first step,
            raises. After an error the estimator is unchanged.

        Raises
        ------
        ValueError
            For NaN or infinity in X, indices outside of X, samples whose squared norm
            is out of range, fewer than two classes, and parameters out of range.
        """
        with classifier.unchanged_by_errors(self):
            self._fit(X, y, sample_weight, resume)
        return self

    @available_if(takes_parts)  # type: ignore[untyped-decorator]
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> "MulticlassSVM":
        """Make one pass of ``"sgd"`` or ``"svrg"`` over some samples.

        It begins at the weights so far, those of a ``fit`` too. lambda is ``l2``, or
        ``1 / (C n)`` with n the samples of this call; the steps begin anew at the
        solver's ``rate``.

        Parameters
        ----------
        X, y, sample_weight
            As for ``fit``.
        classes
            All classes that will occur; needed in the first call alone.

        Returns
        -------
        self
            ``primal_`` and ``history_`` are of the samples of single calls.
        """
        with classifier.unchanged_by_errors(self):
            self._fit(X, y, sample_weight, None, parts=(classes,))
        return self

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        resume: Any,
        parts: tuple[Any] | None = None,
    ) -> None:
        begins = parts is None or not hasattr(self, "classes_")
        X, y = classifier.read_both(self, X, y, reset=begins)
        if parts is None:
            classes = np.unique(y)
            checks.two_classes(classes)
        else:
            classes = classes_of_parts(self, parts[0], y.tolist())
        labels = np.searchsorted(classes, y)
        constant = checks.flag("fit_intercept", self.fit_intercept)
        warm = checks.flag("warm_start", self.warm_start)
        rows = sparse_rows(X, float(constant))
        # in units of the dual, whose variables add up to 1 for each sample
        n = len(labels)
        factors = checks.class_factors(self.class_weight, classes, y)
        scale, total = weigh(sample_weight, n, factors[labels])
        most = 1.0 if scale is None else float(scale.max())
        # with w = w_2 - w_1 and |W|^2 = |w|^2 / 2 at the optimum
        lam = lam_of(self, total) * (2 if len(classes) == 2 else 1)
        with np.errstate(over="ignore"):
            curvature = 2 * most**2 * rows.squares / (lam * n) / n
        classifier.squares_in_range(np.maximum(curvature, rows.squares), np.float64)
        matrix = sparse.csr_matrix(
            (rows.data, rows.indices, rows.indptr), (n, rows.features)
        )
        cost = checks.costs(self.cost, len(classes))
        problem = MulticlassProblem(
            matrix, labels, num_labels=len(classes), cost=cost, loss_scale=scale
        )
        problem.called = "X"
        start: Any = None
        if parts is not None:
            solver = solver_of(
                self, total, lam=lam, max_passes=1, tol=0.0, progress=False
            )
            start = None if begins else self._reached(constant)
        else:
            solver = solver_of(self, total, lam=lam)
            if warm and resume is None:
                start = self._start(problem, classes)
        with np.errstate(over="ignore", invalid="ignore"):
            solution: Solution = solver.solve(problem, start=start, resume=resume)
        if not np.isfinite(solution.w).all():
            raise ValueError(
                "X: expected features and C for which the weights fit float64; scale "
                "the features, or lower C"
            )
        self.classes_ = classes
        W = solution.w.reshape(-1, len(classes))
        classifier.keep_weights(self, W, float(constant))
        self.__dict__.pop("_solution", None)
        if warm:
            self._solution = solution
        if parts is None:
            keep_solution(self, solution)
        else:
            keep_part(self, solution)

    def _reached(self, constant: bool) -> NDArray[np.float64]:
        """The weights so far, one column a class."""
        rows = [self.coef_.T, self.intercept_[None]] if constant else [self.coef_.T]
        W = np.vstack(rows)
        return (np.hstack([-W / 2, W / 2]) if W.shape[1] == 1 else W).ravel()

    def _start(
        self, problem: MulticlassProblem, classes: NDArray[Any]
    ) -> Solution | None:
        """Start from the previous fit, if the solver supports it."""
        found: Solution | None = getattr(self, "_solution", None)
        if found is None:
            return None
        if not np.array_equal(classes, self.classes_):
            raise ValueError(
                "warm_start: expected the classes of the previous fit"
                f" ({', '.join(map(str, self.classes_[:20]))}), got"
                f" {', '.join(map(str, classes[:20]))}; set warm_start=False, or clone"
            )
        if self.solver == "bcfw":
            if "ell" not in found.state:
                # no dual variables: the fit before had another solver
                return None
            require_same_data(problem, found)
        elif len(found.w) != problem.num_weights:
            raise ValueError(
                "warm_start: expected the features and fit_intercept of the previous "
                "fit; set warm_start=False, or clone"
            )
        return found

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores ``(samples, classes)``; of two classes ``(samples,)``."""
        return classifier.linear_scores(self, X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the highest score; ties go to the first."""
        return classifier.best_class(self, self.decision_function(X))
