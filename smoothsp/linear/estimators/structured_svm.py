"""Linear structured SVM or CRF over any structure, as a scikit-learn estimator."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from smoothsp.linear.engines.solution import Callback, Solution
from smoothsp.linear.estimators.classifier import restore_on_error
from smoothsp.linear.estimators.sequences import Sequences
from smoothsp.linear.estimators.tagger import (
    HINGE_DEFAULTS,
    HINGE_SOLVERS,
    check_solver_options,
    make_solver,
    require_same_data,
    set_solution_attributes,
)
from smoothsp.linear.inputs import checks
from smoothsp.linear.problems import StructureProblem
from smoothsp.linear.solvers import LBFGS


class StructuredSVM(BaseEstimator):  # type: ignore[misc]
    r"""Linear structured SVM, or CRF, over any structure.

    .. math:: \min_w \tfrac{\lambda}{2} \|w\|^2 + \tfrac{1}{n} \sum_i
        \max_y \Delta(y_i, y) + \langle w, \phi(x_i, y) - \phi(x_i, y_i) \rangle,
        \qquad \lambda = 1 / (C n)

    Parameters
    ----------
    build
        ``build(potentials, batch)`` makes a structure of the potentials of some
        examples, as in :class:`~smoothsp.linear.problems.StructureProblem`.
    features
        ``features(X)`` returns the features of a list of examples, a dict from the
        names of potentials to :class:`~smoothsp.linear.problems.Parts` and
        :class:`~smoothsp.linear.problems.Shared`. The features of an example must not
        depend on other examples.
    C
        Factor of the sum of the losses, positive; ``|w|^2 / 2`` has factor 1. None: 1.
    l2
        lambda, positive, in place of C. Setting both is an error.
    loss
        ``"hinge"``, or ``"likelihood"``: a conditional random field, of a structure
        that has ``log_partition``.
    solver
        ``"bcfw"``, which stops at a certified duality gap of the hinge; ``"lbfgs"``,
        which does at one of the likelihood, and for the hinge smooths it over the k
        best outputs; ``"sgd"``; ``"bmrm"``, cutting planes of the hinge; ``"agm"``,
        Nesterov's method, of either loss.
    tol
        The relative gap at which to stop: the objective is then at most ``1 + tol``
        times its minimum. ``"sgd"`` computes no gap of the hinge, and stops when the
        objective has not fallen by that share in two evaluations.
    cost, cost_scale
        As of ``StructureProblem``: Hamming or a function, and ``(n,)`` numbers that
        multiply it.
    max_passes
        Budget, in passes over the examples; a fit that ends there, above ``tol``,
        warns. None: 1,000 with ``"sgd"`` and ``"lbfgs"``, 10,000 with other solvers.
    solver_options
        Further arguments of the solver, a dict: see ``smoothsp.linear.solvers``.
        ``"bcfw"`` has ``steps="pairwise"`` and ``cache=True`` by default.
    warm_start
        Whether a fit begins where the last one ended. ``"bcfw"`` starts from its dual
        variables: the data must be the same, and C may change. All other solvers start
        from its weights.
    random_state
        Seed, generator or None.
    callback
        Called with a record at each certificate; a true return value stops the fit. The
        ``state`` of the record is a checkpoint: continue with
        ``fit(X, y, resume=state)``.
    verbose
        Show a progress bar with the gap. None: on a terminal, if the fit takes longer
        than three seconds.

    Attributes
    ----------
    coef_
        A dict with the weights of each kind of potentials: ``(features,)`` or
        ``(features, states)`` of ``Parts``, the shape itself of ``Shared``.
    weights_
        The same as one vector.
    primal_, dual_, gap_, n_passes_, n_iter_, status_, history_
        Final values and history of the fit; ``n_iter_`` is the number of passes.

    Notes
    -----
    Chains have :class:`ChainSVM`, which is compiled.

    Source: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
    Structured SVMs", equation 1.

    Examples
    --------
    Sentences whose words have one of two tags:

    >>> import numpy as np
    >>> from smoothsp.linear.problems import Parts
    >>> from smoothsp.oracles import Chain
    >>> def features(X):
    ...     return {"scores": Parts.of_examples(X, states=2)}
    >>> def build(potentials, batch):
    ...     zero = potentials["scores"].new_zeros(2, 2)
    ...     lengths = batch.sizes["scores"]
    ...     return Chain(potentials["scores"], zero, lengths=lengths)
    >>> X = [np.eye(2), np.eye(2)[::-1], np.eye(2)[:1]]
    >>> model = StructuredSVM(build, features, C=10.0).fit(X, [[0, 1], [1, 0], [0]])
    >>> [y.tolist() for y in model.predict(X)], model.gap_ <= 1e-3
    ([[0, 1], [1, 0], [0]], True)
    """

    SOLVERS: ClassVar[dict[str, Any]] = {**HINGE_SOLVERS, "lbfgs": LBFGS}
    DEFAULTS: ClassVar[dict[str, Any]] = HINGE_DEFAULTS

    def __init__(
        self,
        build: Callable[..., Any],
        features: Callable[[Any], Any],
        C: float | None = None,
        *,
        l2: float | None = None,
        loss: str = "hinge",
        solver: str = "bcfw",
        tol: float = 1e-3,
        cost: Any = "hamming",
        cost_scale: Any = None,
        max_passes: int | None = None,
        solver_options: dict[str, Any] | None = None,
        warm_start: bool = False,
        random_state: Any = 0,
        callback: Callback | None = None,
        verbose: bool | int | None = None,
    ) -> None:
        self.build = build
        self.features = features
        self.C = C
        self.l2 = l2
        self.loss = loss
        self.solver = solver
        self.tol = tol
        self.cost = cost
        self.cost_scale = cost_scale
        self.max_passes = max_passes
        self.solver_options = solver_options
        self.warm_start = warm_start
        self.random_state = random_state
        self.callback = callback
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any, resume: Mapping[str, NDArray[Any]] | None = None
    ) -> "StructuredSVM":
        """Fit the model.

        Parameters
        ----------
        X
            Examples, as ``features`` takes them.
        y
            A list with the gold output of each, integers in the shape that the
            structure gives them.
        resume
            The ``state`` of a record, from the callback of an earlier fit. Data and
            parameters must be the same, except ``max_passes`` and ``tol``. The result
            equals that of an uninterrupted fit bit for bit. ``numpy.savez(path,
            **state)`` and ``numpy.load(path)`` keep it.

        Returns
        -------
        self
            Ctrl-C during the solver stops the fit with a warning and keeps the current
            weights. A second Ctrl-C, or one before the first step, raises. After an
            error the estimator is unchanged.

        Raises
        ------
        ValueError, TypeError
            As of ``StructureProblem``.
        """
        with restore_on_error(self):
            self._fit(X, y, resume)
        return self

    def _fit(self, X: Any, y: Any, resume: Any) -> None:
        problem = StructureProblem(
            self.build,
            self._compute_features(X),
            y,
            cost=self.cost,
            cost_scale=self.cost_scale,
        )
        solver = self._make_solver(len(problem))
        start = self._load_warm_start(problem) if resume is None else None
        solution = solver.solve(problem, start=start, resume=resume)
        self.weights_ = solution.w
        self.coef_ = {k: w.copy() for k, w in problem.split(solution.w).items()}
        self._solution = solution if self.warm_start else None
        set_solution_attributes(self, solution)

    def _compute_features(self, X: Any) -> Any:
        if not callable(self.features):
            raise TypeError(f"features: expected a function, got {self.features!r}")
        return self.features(X)

    def _make_solver(self, num_examples: int) -> Any:
        checks.require_choice("loss", self.loss, ("hinge", "likelihood"))
        checks.require_choice("solver", self.solver, tuple(self.SOLVERS))
        if self.loss == "likelihood":
            if self.solver in ("bcfw", "bmrm"):
                raise ValueError(
                    f"loss: expected 'hinge' for solver={self.solver!r}, got"
                    " 'likelihood', which solver='lbfgs' minimises"
                )
            return make_solver(self, num_examples, loss="likelihood")
        if self.solver == "lbfgs" and "loss" not in check_solver_options(
            self, LBFGS, {}
        ):
            return make_solver(self, num_examples, loss="hinge-l2")
        return make_solver(self, num_examples)

    def _load_warm_start(
        self, problem: StructureProblem
    ) -> Solution | NDArray[np.float64] | None:
        """Return the solution or weights of the previous fit, or None."""
        warm_start = checks.as_bool("warm_start", self.warm_start)
        if not warm_start or not hasattr(self, "weights_"):
            return None
        if self.solver != "bcfw":
            self._require_num_weights(problem, "warm_start")
            weights: NDArray[np.float64] = self.weights_
            return weights
        previous: Solution | None = self.__dict__.get("_solution")
        if previous is None or "ell" not in previous.state:
            # another solver left no dual variables
            return None
        require_same_data(problem, previous)
        return previous

    def _require_num_weights(self, problem: StructureProblem, name: str) -> None:
        if problem.num_weights != len(self.weights_):
            raise ValueError(
                f"{name}: expected features with {len(self.weights_)} weights, as in"
                f" fit, got {problem.num_weights}"
            )

    def predict(self, X: Any) -> list[NDArray[np.int64]]:
        """Return the output of highest score of each example."""
        check_is_fitted(self)
        problem = StructureProblem(self.build, self._compute_features(X))
        self._require_num_weights(problem, "X")
        return Sequences(problem.decode(self.weights_))

    def score(self, X: Any, y: Any) -> float:
        """Fraction of the entries of all outputs that are correct."""
        predicted = self.predict(X)
        if len(predicted) != len(y):
            raise ValueError(f"y: expected {len(predicted)} outputs, got {len(y)}")
        num_correct = total = 0
        for i, (predicted_output, gold) in enumerate(zip(predicted, y, strict=True)):
            gold_array = np.asarray(gold)
            if gold_array.shape != np.shape(predicted_output):
                raise ValueError(
                    f"y: expected an output of shape {np.shape(predicted_output)} at"
                    f" example {i},"
                    f" got {gold_array.shape}"
                )
            num_correct, total = (
                num_correct + int((gold_array == predicted_output).sum()),
                total + gold_array.size,
            )
        return num_correct / max(total, 1)
