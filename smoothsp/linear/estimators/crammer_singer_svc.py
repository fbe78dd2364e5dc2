"""The multiclass SVM of Crammer and Singer."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from smoothsp._kernels.multiclass import crammer_singer
from smoothsp.linear.descent.coordinate_descent import descend
from smoothsp.linear.descent.dual_blocks import Blocks, full_at_costliest, take_over
from smoothsp.linear.descent.multiclass_duals import LinearDual
from smoothsp.linear.descent.sparse_rows import sparse_rows
from smoothsp.linear.engines.solution import Certificate
from smoothsp.linear.estimators import classifier
from smoothsp.linear.inputs import checks


class CrammerSingerSVC(classifier.CertifiedClassifier):
    r"""Multiclass SVM with the Crammer-Singer hinge, solved to a certified optimum.

    .. math:: \min_W \tfrac12 \|W\|_F^2
        + C \sum_i \max_j (\Delta_{y_i j} - w_{y_i}^\top x_i + w_j^\top x_i)

    with a margin :math:`\Delta` of 1 to every wrong class: only the worst of them
    costs. Two classes are the binary SVM, :class:`HingeSVC`, with the same C:
    :math:`\tfrac12 \|w\|^2 + C \sum_i \max(0, \Delta - s_i w^\top x_i)`.

    Block coordinate descent in the dual: the block of a sample is a projection onto a
    simplex, in :math:`O(k \log k)` for k classes.

    Parameters
    ----------
    C
        Factor of the losses, > 0.
    tol
        Relative gap at which to stop, >= 0; ``stopping`` defines the reference.
    stopping
        ``"objective"``: when the duality gap is ``tol`` times the dual, so that the
        objective is at most ``1 + tol`` times its minimum. ``"relative_gap"``: when it
        is ``tol`` times what it was after the first epoch. ``"gap"``: when it is
        ``tol``. The fit also stops when rounding hides the remaining gap.
    cost
        ``(class, class)``: the margin to keep between the class of the row and that of
        the column, >= 0, zeros on the diagonal, in the order of ``classes_``. None: 1.
    class_weight
        Multiplies C for the samples of a class: a dict, or ``"balanced"``.
    fit_intercept
        If True, add a constant feature of value ``intercept_scaling`` for the
        intercept. Its weights are penalised like the others.
    intercept_scaling
        The value of that feature, > 0.
    shuffle
        If True, each epoch visits the samples in a new random order.
    shrinking
        If True, epochs skip samples that did not contribute to the last gap, and for up
        to 31 epochs samples that did not move. Gaps always cover all samples and
        reactivate those that contribute.
    random_state
        Seed of the sample orders.
    max_epochs
        Maximum number of passes over the samples.
    certify_every
        Epochs between duality gaps, each of which costs about half an epoch.
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
        For NaN or infinity in X, indices outside of X, an objective that leaves the
        range of the dtype, fewer than two classes, and parameters out of range.
    MemoryError
        Before anything is allocated, if ``(features + samples) * classes`` numbers
        exceed the memory that is left.

    Notes
    -----
    An epoch costs O(nnz k + n k log k).

    Source: Crammer and Singer, "On the Algorithmic Implementation of Multiclass
    Kernel-based Vector Machines", sections 3 and 6; Keerthi et al., "A Sequential Dual
    Method for Large Scale Multi-Class Linear SVMs", section 2.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from smoothsp.linear import CrammerSingerSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = CrammerSingerSVC(random_state=0, fit_intercept=True).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        tol: float = 1e-3,
        stopping: Literal["objective", "relative_gap", "gap"] = "objective",
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
        verbose: bool | None = None,
    ) -> None:
        self.C = C
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
        self.warm_start = warm_start
        self.callback = callback
        self.verbose = verbose

    def _fit(self, X: Any, y: Any, sample_weight: Any, resume: Any) -> None:
        plan = classifier.plan_of(self)
        constant = classifier.constant_feature(self)
        store_dual = checks.flag("store_dual", self.store_dual)
        samples = classifier.read_samples(self, X, y, sample_weight)
        dtype, classes = samples.X.dtype, len(samples.classes)
        costs = checks.costs(self.cost, classes, dtype)
        rows = sparse_rows(samples.X, constant)
        classifier.require_memory(
            classifier.needed_by_linear(samples, rows.features, classes)
        )
        # finite, so that no product with 0 is NaN, and never the largest violation
        padding = -float(np.finfo(dtype).max) / 8
        blocks = Blocks(
            samples.labels,
            samples.bounds,
            classifier.squares_of(rows, constant),
            classes,
            costs,
            padding=padding,
            shrinking=plan.shrinking,
        )
        earlier = classifier.earlier(self, samples)
        if earlier is not None:
            take_over(blocks, earlier, worst_only=True)
        full_at_costliest(blocks)
        problem = LinearDual(
            blocks,
            rows,
            crammer_singer.descend,
            crammer_singer.gaps,
            (blocks.still,),
            blocks.stakes(worst_only=True),
        )
        history: list[Certificate] = []
        status = descend(problem, plan, history, resume)
        classifier.keep_weights(self, problem.table, constant)
        if store_dual:
            classifier.keep_dual(self, blocks.table)
        classifier.keep_outcome(self, samples, status, history)
        classifier.keep_for_later(self, samples, blocks.table)
