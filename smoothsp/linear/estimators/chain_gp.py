"""Gaussian processes over the potentials of a chain."""

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.metrics.pairwise import kernel_metrics, pairwise_kernels
from sklearn.utils.validation import check_is_fitted

from smoothsp.linear.engines.solution import Callback
from smoothsp.linear.estimators import sequences
from smoothsp.linear.estimators.chain_crf import compute_marginals
from smoothsp.linear.estimators.classifier import restore_on_error
from smoothsp.linear.estimators.tagger import make_solver, set_solution_attributes
from smoothsp.linear.features import KernelFeatures
from smoothsp.linear.inputs import checks
from smoothsp.linear.problems import ChainProblem
from smoothsp.linear.problems._rows import as_rows
from smoothsp.linear.solvers import LBFGS

Floats = NDArray[np.float64]
# Parameters passed to kernels of scikit-learn, if not None.
_KERNEL_PARAMS = ("gamma", "degree", "coef0")


class ChainGP(BaseEstimator):  # type: ignore[misc]
    r"""Gaussian process sequence labelling: potentials with a Gaussian process prior.

    .. math:: \min_f \tfrac12 \|f\|^2 - C \sum_i \log p_f(y_i \mid x_i), \quad
        p_f(y \mid x) \propto \exp \sum_t f(x_t, y_t) + f(x_{t+1}, y_{t+1})
        + f(y_t, y_{t+1})

    over functions f in the reproducing kernel Hilbert space of a kernel on neighbouring
    positions and their labels. It is ``k(x, x')`` plus ``k(x+, x+')`` for equal labels,
    plus 1 for an equal pair of labels. The optimum is the mode of the posterior with
    this kernel as prior covariance.

    Parameters
    ----------
    kernel
        ``"rbf"``, or another name of scikit-learn's ``pairwise_kernels``, or a function
        ``kernel(A, B)`` of positions ``(m, features)`` and ``(n, features)`` that
        returns ``(m, n)``.
    gamma, degree, coef0
        Parameters of named kernels, as in scikit-learn. None: its default.
    C
        Factor of the sum of the losses, positive. None: 1.
    l2
        ``1 / (C n)``, positive, in place of C. Setting both is an error.
    counts
        ``"edges"``: a position counts once per neighbour, as in the source, and once
        without neighbours. ``"positions"``: each position counts once.
    kernel_tol, max_rank
        Accuracy of the kernel's factor: ``tol`` and ``most`` of
        :class:`~smoothsp.linear.features.KernelFeatures`. A rank below that of the
        kernel is the Nystrom approximation.
    tol
        The relative gap at which to stop: the objective is then at most ``1 + tol``
        times its minimum.
    max_passes, solver_options, callback, verbose
        As in :class:`ChainSVM`.

    Attributes
    ----------
    classes_
        The labels, sorted.
    transitions_
        ``(classes, classes)``: from, to.
    features_
        The ``KernelFeatures`` of the positions of the training set.
    weights_
        Of these features and of pairs of labels, as of ``ChainProblem``.
    primal_, dual_, gap_, n_passes_, n_iter_, status_, history_
        Final values and history of the fit; primal and dual are divided by ``C n``.

    Notes
    -----
    Memory and time of a pass are O(positions x rank). The source has dual variables for
    pairs of positions and pairs of labels. This solver has primal weights of kernel
    features and labels, and of pairs of labels. The optimum is the same.

    Source: Saha, Zhang and Vishwanathan, "Lower Bounds for BMRM and Faster Rates for
    Training SVMs", appendix E.2 and equation 32 in its stationary version, at
    ``C=0.5``; Altun, Hofmann and Smola, "Gaussian Process Classification for Segmenting
    and Annotating Sequences".

    Examples
    --------
    Tags that depend on the absolute value of a number:

    >>> import numpy as np
    >>> from smoothsp.linear import ChainGP
    >>> X = [np.array([[0.1], [2.0], [-2.1]]), np.array([[-1.9], [0.2]])]
    >>> y = [["near", "far", "far"], ["far", "near"]]
    >>> model = ChainGP(C=10.0).fit(X, y)
    >>> model.predict([np.array([[1.8], [-0.1], [-2.2]])])[0].tolist()
    ['far', 'near', 'far']
    """

    SOLVERS: ClassVar[dict[str, Any]] = {"lbfgs": LBFGS}
    solver = "lbfgs"

    def __init__(
        self,
        kernel: str | Callable[[Any, Any], Any] = "rbf",
        *,
        gamma: float | None = None,
        degree: float | None = None,
        coef0: float | None = None,
        C: float | None = None,
        l2: float | None = None,
        counts: Literal["edges", "positions"] = "edges",
        kernel_tol: float = 1e-10,
        max_rank: int | None = None,
        tol: float = 1e-3,
        max_passes: int = 1000,
        solver_options: dict[str, Any] | None = None,
        callback: Callback | None = None,
        verbose: bool | int | None = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.C = C
        self.l2 = l2
        self.counts = counts
        self.kernel_tol = kernel_tol
        self.max_rank = max_rank
        self.tol = tol
        self.max_passes = max_passes
        self.solver_options = solver_options
        self.callback = callback
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any, resume: Mapping[str, NDArray[Any]] | None = None
    ) -> "ChainGP":
        """Fit the model.

        Parameters
        ----------
        X
            A list with an array ``(positions, features)`` for each sequence, which may
            be empty; or an array ``(sequences, positions, features)``.
        y
            A list of sequences of tags, strings or integers.
        resume
            The ``state`` of a record, as the callback of a fit of the same data and
            parameters had it, ``max_passes`` and ``tol`` apart.

        Returns
        -------
        self
            Ctrl-C during the solver stops the fit with a warning and keeps the current
            weights and their certificate. A second Ctrl-C, or one before the first
            step, raises. After an error the estimator is unchanged.
        """
        with restore_on_error(self):
            self._fit(X, y, resume)
        return self

    def _fit(self, X: Any, y: Any, resume: Any) -> None:
        has_named_kernel = isinstance(self.kernel, str) and self.kernel != "precomputed"
        if not has_named_kernel and not callable(self.kernel):
            raise TypeError(
                "kernel: expected a function, or the name of a kernel of positions, "
                f"got {self.kernel!r}"
            )
        if has_named_kernel:
            checks.require_choice("kernel", self.kernel, tuple(kernel_metrics()))
        for name in _KERNEL_PARAMS:
            value = getattr(self, name)
            if value is not None and not math.isfinite(checks.as_number(name, value)):
                raise ValueError(f"{name}: expected a finite number, got {value}")
        checks.as_nonnegative("kernel_tol", self.kernel_tol)
        if self.max_rank is not None:
            checks.as_positive_int("max_rank", self.max_rank)
        positions, sizes = self._stack_positions(X, None)
        flat_tags = sequences.flatten_tags(y, sizes)
        if not flat_tags:
            raise ValueError("X: expected at least one position, got none")
        classes = np.unique(np.array(flat_tags))
        checks.require_two_classes(classes)
        kernel_features = KernelFeatures(
            self._compute_kernel, positions, tol=self.kernel_tol, most=self.max_rank
        )
        if not kernel_features.rows.shape[1]:
            raise ValueError("kernel: expected a kernel that is not 0 at all positions")
        problem = ChainProblem(
            self._weight_by_num_neighbours(kernel_features.rows, sizes),
            sequences.encode_tags(flat_tags, classes),
            lengths=sizes,
            num_labels=len(classes),
            boundaries=False,
        )
        solution = self._make_solver(len(problem)).solve(problem, resume=resume)
        self.classes_, self.features_ = classes, kernel_features
        self.n_features_in_ = positions.shape[1]
        self.weights_ = solution.w
        self.transitions_ = problem.split(solution.w)[1].copy()
        set_solution_attributes(self, solution)

    def _make_solver(self, num_examples: int) -> Any:
        return make_solver(self, num_examples, loss="likelihood")

    def _compute_kernel(self, A: Any, B: Any) -> Any:
        if callable(self.kernel):
            return self.kernel(A, B)
        params = {name: getattr(self, name) for name in _KERNEL_PARAMS}
        set_params = {
            name: value for name, value in params.items() if value is not None
        }
        return pairwise_kernels(
            A, B, metric=self.kernel, filter_params=True, **set_params
        )

    def _stack_positions(
        self, X: Any, num_features: int | None
    ) -> tuple[Floats, NDArray[np.int64]]:
        """Stack the positions of all sequences; return them and the lengths."""
        matrix, lengths = sequences.stack_sequences(
            sequences.as_list(X), None, num_features
        )
        if num_features is not None and matrix.shape[1] != num_features:
            raise ValueError(
                f"X: expected {num_features} features, as in fit, got {matrix.shape[1]}"
            )
        return np.asarray(matrix.toarray(), dtype=np.float64), lengths

    def _weight_by_num_neighbours(
        self, rows: Floats, lengths: NDArray[np.int64]
    ) -> Floats:
        checks.require_choice("counts", self.counts, ("edges", "positions"))
        if self.counts == "positions":
            return rows
        counts: Floats = np.full(len(rows), 2.0)
        ends = np.cumsum(lengths)
        for positions in (ends[lengths > 0] - 1, (ends - lengths)[lengths > 0]):
            counts[positions] -= 1
        # a position without neighbours counts once
        return np.asarray(rows * np.maximum(counts, 1.0)[:, None])

    def _make_unlabelled_problem(self, X: Any) -> tuple[ChainProblem, Floats]:
        check_is_fitted(self)
        positions, lengths = self._stack_positions(X, self.n_features_in_)
        rows = as_rows(
            "X",
            self._weight_by_num_neighbours(
                self.features_.transform(positions), lengths
            ),
        )
        problem = ChainProblem.unlabelled(rows, lengths, len(self.classes_))
        # unlabelled problems have start and end scores: set them to 0
        return problem, np.append(self.weights_, np.zeros(2 * len(self.classes_)))

    def predict(self, X: Any) -> list[NDArray[Any]]:
        """Return the tags of highest score of each sequence."""
        problem, weights = self._make_unlabelled_problem(X)
        lengths = np.diff(problem.offsets)
        return sequences.split_by_length(
            self.classes_[problem.decode(weights)], lengths
        )

    def predict_marginals(self, X: Any) -> list[NDArray[Any]]:
        """``(positions, classes)`` for each sequence: probabilities of the tags."""
        return compute_marginals(*self._make_unlabelled_problem(X))

    def score(self, X: Any, y: Any) -> float:
        """Fraction of correct tags; a tag not seen in ``fit`` counts as wrong."""
        problem, weights = self._make_unlabelled_problem(X)
        predicted = self.classes_[problem.decode(weights)]
        return sequences.compute_accuracy(predicted, y, np.diff(problem.offsets))
