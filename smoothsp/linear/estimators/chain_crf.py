"""A tagger trained as a conditional random field."""

from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.compiled_objective import ChainObjective, Loss
from smoothsp.linear.engines.solution import Callback
from smoothsp.linear.estimators import sequences
from smoothsp.linear.estimators.tagger import LinearTagger, make_solver
from smoothsp.linear.problems import ChainProblem
from smoothsp.linear.solvers import LBFGS, SDCA, SGD

# Hints for parameters of sklearn-crfsuite, by name.
_CRFSUITE_HINTS = {
    "algorithm": "write solver='lbfgs', or solver='sgd' for 'l2sgd'; of 'ap', 'pa' and "
    "'arow' the nearest is ChainSVM(solver='sgd')",
    "c1": "there is no L1 penalty: leave c1 out",
    "c2": "write C=1 / (2 * c2)",
    "max_iterations": "write max_passes=...",
    "epsilon": "write tol=..., the relative gap",
    "all_possible_states": "write all_pairs=True or False for both states and "
    "transitions",
    "all_possible_transitions": "write all_pairs=True or False for both states and "
    "transitions",
    **dict.fromkeys(
        [
            "averaging",
            "calibration_candidates",
            "calibration_eta",
            "calibration_max_trials",
            "calibration_rate",
            "calibration_samples",
            "delta",
            "error_sensitive",
            "gamma",
            "keep_tempfiles",
            "linesearch",
            "max_linesearch",
            "min_freq",
            "model_filename",
            "num_memories",
            "pa_type",
            "period",
            "trainer_cls",
            "variance",
        ],
        "it has no equivalent; remove it",
    ),
}


class ChainCRF(LinearTagger):
    r"""Linear conditional random field over chains.

    .. math:: \min_w \tfrac{\lambda}{2} \|w\|^2 - \tfrac{1}{n} \sum_i
        \log p_w(y_i \mid x_i), \quad
        p_w(y \mid x) \propto e^{\langle w, \phi(x, y) \rangle},
        \quad \lambda = 1 / (C n)

    Parameters
    ----------
    C
        Factor of the sum of the losses, positive; ``|w|^2 / 2`` has factor 1. None: 1.
    l2
        lambda, positive, in place of C. Setting both is an error.
    solver
        ``"lbfgs"``; ``"sdca"``, dual coordinate ascent, which needs fewer passes and
        stores a probability for each two tags at each two neighbouring positions;
        ``"sgd"``.
    tol
        The relative gap at which to stop: the objective is then at most ``1 + tol``
        times its minimum.
    all_pairs
        Whether every feature has a weight for every tag, and every two tags one for
        their transition. False: only pairs that occur in the training set have one, as
        with CRFsuite's ``feature.possible_states=False`` and
        ``feature.possible_transitions=False``; all others stay 0. A pass of
        ``"lbfgs"`` then takes less time. ``"lbfgs"`` and ``"sdca"`` alone have it.
    warm_start
        Whether a fit begins where the last one ended. ``"sdca"`` starts from its dual
        variables if the data are the same and only C changed, else from weights, as the
        other solvers do. Weights of named features are found by name.
    class_weight, max_passes, solver_options, random_state, callback
        As in :class:`ChainSVM`.
    verbose
        As in :class:`ChainSVM`.

    Attributes
    ----------
    classes_, coef_, transitions_, start_, end_
        As in :class:`ChainSVM`.
    primal_, dual_, gap_, n_passes_, n_iter_, status_, history_
        Final values and history of the fit; ``n_iter_`` is the number of passes.

    Notes
    -----
    ``gap_`` is a duality gap with every solver: ``primal_ - gap_`` is the dual
    objective at a distribution over the labellings of each sentence. ``"sdca"`` stores
    these distributions. With the other solvers they are the model's own, and ``gap_``
    is exactly ``|gradient|^2 / (2 lambda)``.

    Source: Lafferty, McCallum and Pereira, "Conditional Random Fields" (2001). The
    dual is that of Le Priol, Piché and Lacoste-Julien, "Adaptive Stochastic Dual
    Coordinate Ascent for Conditional Random Fields" (2018), section 2.

    Examples
    --------
    >>> X = [[["word=a"], ["word=Ada", "caps"]]]
    >>> tagger = ChainCRF(C=10).fit(X, [["O", "PER"]])
    >>> tagger.predict([[["word=Bob", "caps"]]])[0].tolist()
    ['PER']
    """

    SOLVERS: ClassVar[dict[str, Any]] = {
        "lbfgs": LBFGS,
        "sdca": SDCA,
        "sgd": SGD,
    }

    def __init__(
        self,
        C: float | None = None,
        *,
        l2: float | None = None,
        solver: str = "lbfgs",
        tol: float = 1e-3,
        class_weight: Any = None,
        all_pairs: bool = True,
        max_passes: int = 500,
        solver_options: dict[str, Any] | None = None,
        warm_start: bool = False,
        random_state: Any = 0,
        callback: Callback | None = None,
        verbose: bool | int | None = None,
        **unknown: NoReturn,
    ) -> None:
        for name in unknown:
            hint = _CRFSUITE_HINTS.get(name)
            raise TypeError(
                f"ChainCRF: expected parameters of its own, got {name!r}"
                + (f" of sklearn-crfsuite; {hint}" if hint else "")
            )
        self.C = C
        self.l2 = l2
        self.solver = solver
        self.tol = tol
        self.class_weight = class_weight
        self.all_pairs = all_pairs
        self.max_passes = max_passes
        self.solver_options = solver_options
        self.warm_start = warm_start
        self.random_state = random_state
        self.callback = callback
        self.verbose = verbose

    def set_params(self, **params: Any) -> "ChainCRF":
        """Set parameters, and return the estimator."""
        for name in params.keys() & _CRFSUITE_HINTS.keys():
            raise ValueError(
                f"ChainCRF: expected parameters of its own, got {name!r} of "
                f"sklearn-crfsuite; {_CRFSUITE_HINTS[name]}"
            )
        super().set_params(**params)
        return self

    def _make_solver(self, num_examples: float, **options: Any) -> Any:
        if self.solver != "sdca":
            options["loss"] = "likelihood"
        return make_solver(self, num_examples, **options)

    def predict_marginals(self, X: Any, lengths: Any = None) -> list[NDArray[Any]]:
        """``(positions, classes)`` for each sentence: probabilities of the tags."""
        problem, _ = self._make_unlabelled_problem(X, lengths)
        return compute_marginals(problem, self.weights_)

    def predict_marginals_single(self, x: Any) -> list[dict[Any, float]]:
        """Probability of every tag by name, for each position of one sentence."""
        [marginals] = self.predict_marginals([x])
        tags = self.classes_.tolist()
        return [dict(zip(tags, row, strict=True)) for row in marginals.tolist()]


def compute_marginals(
    problem: ChainProblem, w: NDArray[np.float64]
) -> list[NDArray[Any]]:
    """``(positions, labels)`` for each sequence of an unlabelled problem."""
    if not len(problem.labels):
        return sequences.split_by_length(
            np.zeros((0, problem.num_labels)), np.diff(problem.offsets)
        )
    objective = ChainObjective(problem, Loss("likelihood"), 1.0)
    flat = problem.padded_weights(w)
    _, node_marginals, _ = objective.gradient(
        flat, 1.0, objective.zero_buffer(), per_example=True
    )
    shape = len(problem.labels), problem.row_width
    probabilities = node_marginals.reshape(shape)[:, : problem.num_labels].copy()
    # the gradient is marginals minus gold indicators, and all gold labels are 0
    probabilities[:, 0] += 1
    return sequences.split_by_length(
        np.clip(probabilities, 0.0, 1.0), np.diff(problem.offsets)
    )
