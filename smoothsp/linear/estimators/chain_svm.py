"""A tagger trained as a structured SVM."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.solution import Callback
from smoothsp.linear.estimators.tagger import (
    HINGE_DEFAULTS,
    HINGE_SOLVERS,
    LinearTagger,
)
from smoothsp.linear.inputs import checks
from smoothsp.linear.problems import ChainProblem


class ChainSVM(LinearTagger):
    r"""Linear structured SVM over chains.

    .. math:: \min_w \tfrac{\lambda}{2} \|w\|^2 + \tfrac{1}{n} \sum_i
        \max_y \Delta(y_i, y) + \langle w, \phi(x_i, y) - \phi(x_i, y_i) \rangle,
        \qquad \lambda = 1 / (C n)

    Parameters
    ----------
    C
        Factor of the sum of the losses, positive; ``|w|^2 / 2`` has factor 1. None: 1.
    l2
        lambda, positive, in place of C. Setting both is an error.
    solver
        ``"bcfw"``, which stops at a certified duality gap; ``"sgd"``, the fastest to a
        good tagger; ``"bmrm"``, cutting planes, or ``"agm"``, Nesterov's method, which
        take all sentences in a pass.
    tol
        The relative gap at which to stop: the objective is then at most ``1 + tol``
        times its minimum. ``"sgd"`` computes no gap of the hinge, and stops when the
        objective has not fallen by that share in two evaluations.
    cost
        ``(classes, classes)``, from the true tag to the guessed one, in the order of
        ``classes_``; by default 1 for a wrong tag.
    normalise_cost
        Whether the cost of a sentence is divided by its length.
    class_weight
        Weights of tags, a dict or ``"balanced"``. C is multiplied, for each sentence,
        by the mean weight of its tags.
    all_pairs
        As in :class:`ChainCRF`; False for ``"bmrm"`` and ``"agm"`` alone.
    max_passes
        Maximum number of passes over the sentences; ``fit`` warns if it ends there
        above ``tol``. None: 1,000 with ``"sgd"``, 10,000 with other solvers.
    solver_options
        Further arguments of the solver, a dict: see ``smoothsp.linear.solvers``.
        ``"bcfw"`` has ``steps="pairwise"``, ``cache=True`` and ``sampling="gap"``
        by default, chosen by measurement (benchmarks/tables/solvers.md).
    warm_start
        Whether a fit begins where the last one ended. ``"bcfw"`` starts from its dual
        variables: the data must be the same, and C may change. All other solvers start
        from its weights. Weights of named features are found by name.
    random_state
        Seed, generator or None.
    callback
        Called with a record at each certificate; a true return value stops the fit. The
        ``state`` of the record is a checkpoint: continue with
        ``fit(X, y, resume=state)``.
    verbose
        Show a progress bar with the gap: True or 1, False or 0. None: on a terminal, if
        the fit takes longer than three seconds.

    Attributes
    ----------
    classes_
        The tags, sorted.
    coef_, transitions_, start_, end_
        Weights ``(classes, features)``, ``(from, to)`` and of the first and last tag.
    primal_, dual_, gap_, n_passes_, n_iter_, status_, history_
        Final values and history of the fit; ``n_iter_`` is the number of passes.

    Notes
    -----
    Source: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
    Structured SVMs", equation 1.

    Examples
    --------
    >>> X = [[{"word": "a", "caps": False}, {"word": "Ada", "caps": True}]]
    >>> tagger = ChainSVM(C=10).fit(X, [["O", "PER"]])
    >>> tagger.predict([[{"word": "Bob", "caps": True}]])[0].tolist()
    ['PER']
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
        normalise_cost: bool = False,
        class_weight: Any = None,
        all_pairs: bool = True,
        max_passes: int | None = None,
        solver_options: dict[str, Any] | None = None,
        warm_start: bool = False,
        random_state: Any = 0,
        callback: Callback | None = None,
        verbose: bool | int | None = None,
    ) -> None:
        self.C = C
        self.l2 = l2
        self.solver = solver
        self.tol = tol
        self.cost = cost
        self.normalise_cost = normalise_cost
        self.class_weight = class_weight
        self.all_pairs = all_pairs
        self.max_passes = max_passes
        self.solver_options = solver_options
        self.warm_start = warm_start
        self.random_state = random_state
        self.callback = callback
        self.verbose = verbose

    def _make_problem(
        self,
        matrix: Any,
        labels: Any,
        lengths: Any,
        num_labels: int,
        loss_scale: NDArray[np.float64] | None = None,
    ) -> ChainProblem:
        divides_by_length = checks.as_bool("normalise_cost", self.normalise_cost)
        return ChainProblem(
            matrix,
            labels,
            lengths=lengths,
            num_labels=num_labels,
            cost=checks.as_cost_matrix(self.cost, num_labels),
            cost_scale=1 / np.maximum(lengths, 1) if divides_by_length else None,
            loss_scale=loss_scale,
            all_pairs=self.all_pairs,
        )
