"""Base class of linear taggers, and solvers made from estimator parameters."""

import math
import os
from collections.abc import Iterator, Mapping
from inspect import signature
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from smoothsp.linear.estimators import classifier, persistence, sequences
from smoothsp.linear.estimators.named_features import (
    ColumnIndex,
    build_rows,
    fit_columns,
)
from smoothsp.linear.estimators.named_weights import NamedWeights
from smoothsp.linear.inputs import checks
from smoothsp.linear.problems import ChainProblem
from smoothsp.linear.problems._rows import Rows, as_rows
from smoothsp.linear.solvers import AGM, BCFW, BMRM, SGD, Solution
from smoothsp.linear.solvers.sdca import has_duals_for

# Solvers of the structural hinge, by the value of the parameter ``solver``.
HINGE_SOLVERS: dict[str, Any] = {
    "bcfw": BCFW,
    "sgd": SGD,
    "bmrm": BMRM,
    "agm": AGM,
}
# Their default options, chosen by measurement.
HINGE_DEFAULTS: dict[str, Any] = {"bcfw": {"steps": "pairwise", "cache": True}}
# Maximum number of passes if ``max_passes`` is None, by default and by solver.
_DEFAULT_MAX_PASSES = 10_000
_MAX_PASSES_BY_SOLVER = {"sgd": 1000, "lbfgs": 1000}
# Fitted numbers in saved files.
_SAVED_NUMBERS = ("primal_", "dual_", "gap_", "n_passes_")


def normalise_sample_weight(
    sample_weight: Any, num_examples: int, factors: NDArray[np.float64] | float = 1.0
) -> tuple[NDArray[np.float64] | None, float]:
    """Return loss factors ``(n,)`` of mean 1, and the sum of the weights.

    The weighted mean of losses then equals the mean over repeated examples. The factors
    are None if all weights are equal.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        weights = checks.as_sample_weight(sample_weight, num_examples) * factors
        total = float(weights.sum())
    if not 0 < total < math.inf:
        raise ValueError(
            "sample_weight: expected weights that, times those of the classes, have a"
            f" positive finite sum, got {total}"
        )
    if (weights == weights[0]).all():
        return None, total
    # mean 1, so that lambda = 1 / (C n) with n the sum of weights keeps its meaning
    return weights * (num_examples / total), total


def resolve_lambda(estimator: Any, num_examples: float) -> float:
    """Return lambda: ``l2``, or ``1 / (C num_examples)``."""
    if estimator.l2 is not None:
        if estimator.C is not None:
            raise ValueError(
                f"C: expected None beside l2={estimator.l2!r}, got {estimator.C!r}:"
                " lambda is either l2 or 1 / (C n)"
            )
        return checks.as_positive("l2", estimator.l2)
    C = 1.0 if estimator.C is None else checks.as_positive("C", estimator.C)
    if not math.inf > 1 / (C * num_examples) > 0:
        raise ValueError(
            f"C: expected a number for which lambda = 1 / (C n) fits float64, got {C}"
        )
    return 1 / (C * num_examples)


def resolve_max_passes(estimator: Any, max_passes: int | None) -> int:
    """Return ``max_passes``, or the default of the solver if it is None."""
    if max_passes is None:
        return _MAX_PASSES_BY_SOLVER.get(estimator.solver, _DEFAULT_MAX_PASSES)
    return max_passes


def make_solver(estimator: Any, num_examples: float, **overrides: Any) -> Any:
    """Create the solver of an estimator from its parameters; ``overrides`` win."""
    checks.require_choice("solver", estimator.solver, tuple(estimator.SOLVERS))
    max_passes = resolve_max_passes(estimator, estimator.max_passes)
    arguments = {
        "lam": resolve_lambda(estimator, num_examples),
        "tol": classifier.make_tolerance(estimator),
        "max_passes": checks.as_positive_int("max_passes", max_passes),
        "callback": estimator.callback,
        "progress": checks.as_optional_bool("verbose", estimator.verbose),
        **overrides,
    }
    return instantiate_solver(estimator, **arguments)


def instantiate_solver(estimator: Any, **arguments: Any) -> Any:
    """Create the estimator's solver from arguments, defaults and solver_options."""
    solver_class = estimator.SOLVERS[estimator.solver]
    defaults = getattr(estimator, "DEFAULTS", {}).get(estimator.solver, {})
    if "seed" in signature(solver_class).parameters:
        rng = checks.as_random_state(estimator.random_state)
        arguments["seed"] = int(rng.randint(2**31 - 1))
    return solver_class(
        **{
            **defaults,
            **arguments,
            **check_solver_options(estimator, solver_class, arguments),
        }
    )


def supports_partial_fit(estimator: Any) -> bool:
    """Whether the solver visits single examples, as ``partial_fit`` requires."""
    return bool(estimator.solver == "sgd")


def resolve_partial_fit_classes(
    estimator: Any, classes: Any, labels: list[Any]
) -> NDArray[Any]:
    """Return the classes of ``partial_fit``: of this call, or of the previous one."""
    previous: NDArray[Any] | None = getattr(estimator, "classes_", None)
    if estimator.class_weight == "balanced":
        raise ValueError(
            "class_weight: expected a dict or None for partial_fit, got 'balanced',"
            " which counts all examples"
        )
    if classes is not None:
        all_classes = np.unique(np.asarray(classes))
    elif previous is not None:
        all_classes = previous
    else:
        raise ValueError(
            "classes: expected all classes in the first call of partial_fit, got None"
        )
    if previous is not None and not np.array_equal(all_classes, previous):
        raise ValueError(
            "classes: expected those of the previous call "
            f"({', '.join(map(str, previous))}), got {', '.join(map(str, all_classes))}"
        )
    checks.require_two_classes(all_classes)
    unknown_labels = sorted(set(labels) - set(all_classes.tolist()))
    if unknown_labels:
        raise ValueError(
            f"y: expected some of classes ({', '.join(map(str, all_classes))}), got"
            f" {unknown_labels[0]!r}"
        )
    return all_classes


def set_partial_fit_results(estimator: Any, solution: Solution) -> None:
    """Set history, status and values after a call of ``partial_fit``."""
    estimator.history_ = [*getattr(estimator, "history_", []), *solution.history]
    estimator.status_ = solution.status
    estimator.primal_, estimator.dual_ = solution.primal, solution.dual
    estimator.gap_ = solution.gap
    estimator.n_iter_ = getattr(estimator, "n_iter_", 0) + solution.passes
    estimator.n_passes_ = estimator.n_iter_


def check_solver_options(
    estimator: Any, solver_class: Any, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return ``solver_options``; raise for unknown arguments and for parameters."""
    solver_options = estimator.solver_options
    if solver_options is not None and not isinstance(solver_options, Mapping):
        raise TypeError(
            "solver_options: expected a dict of further arguments of the solver, got"
            f" {checks.short_repr(solver_options)}"
        )
    options = dict(solver_options or {})
    parameters = signature(solver_class).parameters
    unknown_options = [name for name in options if name not in parameters]
    if unknown_options:
        raise ValueError(
            f"solver_options: expected some of {', '.join(parameters)}, got"
            f" {unknown_options[0]!r}"
        )
    duplicates = sorted(arguments.keys() & options.keys())
    if duplicates:
        raise ValueError(
            f"solver_options: expected none that are parameters, got {duplicates}"
        )
    return options


def set_solution_attributes(estimator: Any, solution: Solution) -> None:
    """Set history, status and values of a fit; warn if it stopped above ``tol``."""
    estimator.history_ = solution.history
    estimator.status_ = solution.status
    estimator.primal_, estimator.dual_ = solution.primal, solution.dual
    estimator.gap_ = solution.gap
    estimator.n_passes_ = estimator.n_iter_ = solution.passes
    advice = "Raise max_passes or tol, or scale the features."
    if solution.interrupted or "callback" in solution.status:
        advice = "Continue with fit(X, y, resume=state), the state of a certificate."
    if not solution.converged:
        last = (solution.primal, solution.gap, solution.passes)
        classifier.warn_not_converged(estimator, solution.status, last, advice)


def require_same_data(problem: Any, previous: Solution) -> None:
    """Raise ValueError if a solution has dual variables of other data."""
    if previous.state["examples"] != problem.checksum:
        raise ValueError(
            "warm_start: expected the features, labels and costs of the previous fit, "
            "since bcfw starts from its dual variables; set warm_start=False, or "
            "choose a solver that starts from weights, such as sgd"
        )


class LinearTagger(NamedWeights, BaseEstimator):  # type: ignore[misc]
    """Base class of estimators of linear chains."""

    warm_start: bool
    class_weight: Any
    all_pairs: bool
    SOLVERS: ClassVar[dict[str, Any]] = {}

    def fit(
        self,
        X: Any,
        y: Any,
        lengths: Any = None,
        sample_weight: Any = None,
        resume: Mapping[str, NDArray[Any]] | None = None,
    ) -> "LinearTagger":
        r"""Fit the model.

        Parameters
        ----------
        X
            A list with, for each sentence, a CSR matrix or an array ``(positions,
            features)``, or a list of tokens. Also an array ``(sentences, positions,
            features)``, one matrix of all positions, with ``lengths``, or the output of
            :class:`Templates`. A token is a list of names of features, or a dict from
            names to numbers, strings, lists of strings or dicts again: ``{"a": "b"}``,
            ``{"a": ["b"]}`` and ``{"a": {"b": 1}}`` are the same, the feature ``a=b``
            with 1. So is ``[("a", "b")]``, a list of pairs. A ``=`` in a name is
            written ``\=`` in ``feature_names_``. A sentence may be empty. Sentences of
            named features may come from an iterator, which is read once; only the
            numbers of their features are kept in memory.
        y
            A list with the tags of each sentence, strings or integers. If X is an
            iterator, also an iterator.
        lengths
            Lengths of the sentences in a single matrix.
        sample_weight
            ``(sentences,)``, >= 0: multiplies C for a sentence. A weight of 2 equals
            two copies of the sentence.
        resume
            The ``state`` of a record, from the callback of an earlier fit. Data and
            parameters must be the same, except ``max_passes`` and ``tol``. The result
            equals that of an uninterrupted fit bit for bit. ``numpy.savez(path,
            **state)`` and ``numpy.load(path)`` keep it.

        Returns
        -------
        self
            Ctrl-C during the solver stops the fit with a warning and keeps the current
            weights and their certificate. A second Ctrl-C, or one before the first
            step, raises. After an error the estimator is unchanged.

        Raises
        ------
        ValueError
            For lengths, shapes or numbers that do not fit; the message names the
            sentence.
        TypeError
            If the tags or the features of a sentence are not a sequence.
        """
        before = dict(vars(self))
        try:
            self._fit(X, y, lengths, sample_weight, resume)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    @available_if(supports_partial_fit)  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        lengths: Any = None,
        sample_weight: Any = None,
    ) -> "LinearTagger":
        """Make one pass of ``"sgd"`` over some sentences.

        The pass starts from the current weights, also after ``fit``. lambda is ``l2``,
        or ``1 / (C n)`` for n sentences in this call. The step sizes begin anew at the
        solver's ``rate``.

        Parameters
        ----------
        X, y, lengths, sample_weight
            As for ``fit``. Features by name may be new ones.
        classes
            All tags that will occur; needed in the first call alone.

        Returns
        -------
        self
            ``primal_`` and ``history_`` are of the sentences of single calls.
        """
        with classifier.restore_on_error(self):
            self._fit(X, y, lengths, sample_weight, None, partial_fit_args=(classes,))
        return self

    def _fit(
        self,
        X: Any,
        y: Any,
        lengths: Any,
        sample_weight: Any,
        resume: Any,
        partial_fit_args: tuple[Any] | None = None,
    ) -> None:
        names = None
        stream = None
        X = sequences.as_list(X)
        if isinstance(X, Iterator):
            stream = sequences.OneShotSequences(X, y)
            # an iterator of matrices is read at once; only named features are streamed
            if not stream.has_names:
                X, y, stream = list(stream), stream.tags, None
        if stream is not None or (lengths is None and sequences.has_named_features(X)):
            names, rows = fit_columns(X if stream is None else stream)
            sizes = sequences.compute_lengths(X) if stream is None else stream.lengths
            y = y if stream is None else stream.tags
            if partial_fit_args is not None:
                names, rows = self._extend_columns(names, rows)
            arrays = (rows.values, rows.indices, rows.indptr)
            shape = (len(rows.indptr) - 1, rows.columns)
            sequences.require_finite(rows.indptr, rows.values, sizes)
            matrix = sparse.csr_matrix(arrays, shape)
        else:
            matrix, sizes = sequences.stack_sequences(X, lengths, None)
            if partial_fit_args is not None:
                self._require_same_features(matrix)
        if not len(sizes):
            raise ValueError("X: expected at least one sentence, got none")
        flat = sequences.flatten_tags(y, sizes)
        if not flat:
            raise ValueError("X: expected at least one position, got none")
        if partial_fit_args is None:
            classes = np.unique(np.array(flat))
            checks.require_two_classes(classes)
        else:
            classes = resolve_partial_fit_classes(self, partial_fit_args[0], flat)
        labels = sequences.encode_tags(flat, classes)
        each = self._mean_class_weights(classes, flat, labels, sizes)
        scale, total = normalise_sample_weight(sample_weight, len(sizes), each)
        problem = self._make_problem(matrix, labels, sizes, len(classes), scale)
        problem.called = "X"
        if partial_fit_args is None:
            start = (
                self._load_warm_start(problem, names, classes)
                if resume is None
                else None
            )
            solver = self._make_solver(total)
        else:
            start = self._pad_current_weights(problem)
            solver = self._make_solver(total, max_passes=1, tol=0.0, progress=False)
        with np.errstate(over="ignore", invalid="ignore"):
            solution = solver.solve(problem, start=start, resume=resume)
        # duals and the pairs of L-BFGS may be as large as the data
        self._solution = solution if self.warm_start else None
        self.classes_ = classes
        self.feature_names_ = names
        self._feature_index = getattr(X, "dictionary", None)
        self.n_features_in_ = problem.num_features
        self.weights_ = solution.w
        self._set_coef(problem)
        if partial_fit_args is None:
            set_solution_attributes(self, solution)
        else:
            set_partial_fit_results(self, solution)

    def _extend_columns(self, names: list[str], rows: Rows) -> tuple[list[str], Rows]:
        """Append new names to the columns of previous calls; renumber the rows."""
        previous_names = getattr(self, "feature_names_", [])
        if previous_names is None:
            raise TypeError("X: expected matrices, as before, got named features")
        column_of = {name: n for n, name in enumerate(previous_names)}
        new_columns = [column_of.setdefault(name, len(column_of)) for name in names]
        columns = np.array(new_columns, dtype=np.int32)[rows.indices]
        return list(column_of), rows._replace(indices=columns, columns=len(column_of))

    def _require_same_features(self, matrix: Any) -> None:
        if not hasattr(self, "weights_"):
            return
        if self.feature_names_ is not None:
            raise TypeError("X: expected named features, as before, got matrices")
        if matrix.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X: expected {self.n_features_in_} features, as before, got"
                f" {matrix.shape[1]}"
            )

    def _pad_current_weights(self, problem: ChainProblem) -> NDArray[np.float64] | None:
        """Return the current weights with zeros for new features; None before a fit."""
        if not hasattr(self, "weights_"):
            return None
        previous = self.weights_.reshape(-1, problem.num_labels)
        num_previous = self.n_features_in_
        zeros = np.zeros((problem.num_features - num_previous, problem.num_labels))
        # new features begin at 0; transitions and boundaries follow the features
        return np.vstack(
            [previous[:num_previous], zeros, previous[num_previous:]]
        ).ravel()

    def _mean_class_weights(
        self, classes: NDArray[Any], tags: list[Any], labels: Any, lengths: Any
    ) -> NDArray[np.float64]:
        """``(n,)``: mean class weight of the tags of a sentence; 1 if it is empty."""
        factors = checks.compute_class_weights(
            self.class_weight, classes, np.array(tags)
        )
        sentence = np.repeat(np.arange(len(lengths)), lengths)
        sums = np.bincount(sentence, factors[labels], len(lengths))
        return np.where(lengths > 0, sums / np.maximum(lengths, 1), 1.0)

    def _make_problem(
        self,
        matrix: Any,
        labels: Any,
        lengths: Any,
        num_labels: int,
        loss_scale: NDArray[np.float64] | None = None,
    ) -> ChainProblem:
        return ChainProblem(
            matrix,
            labels,
            lengths=lengths,
            num_labels=num_labels,
            loss_scale=loss_scale,
            all_pairs=self.all_pairs,
        )

    def _make_solver(self, num_examples: float, **overrides: Any) -> Any:
        return make_solver(self, num_examples, **overrides)

    def _load_warm_start(
        self, problem: ChainProblem, names: list[str] | None, classes: NDArray[Any]
    ) -> Solution | NDArray[np.float64] | None:
        """Return solution or weights of the previous fit, in columns of this fit."""
        if not checks.as_bool("warm_start", self.warm_start) or not hasattr(
            self, "weights_"
        ):
            return None
        if not np.array_equal(classes, self.classes_):
            raise ValueError(
                "warm_start: expected the tags of the previous fit"
                f" ({', '.join(map(str, self.classes_[:20]))}), got"
                f" {', '.join(map(str, classes[:20]))}; set warm_start=False, or clone"
            )
        previous: Solution | None = self.__dict__.get("_solution")
        if self.solver == "sdca" and has_duals_for(problem, previous):
            return previous
        if self.solver == "bcfw":
            if previous is None or "ell" not in previous.state:
                # another solver left no dual variables
                return None
            require_same_data(problem, previous)
            return previous
        previous_table = self.weights_.reshape(-1, len(classes))
        if names is None or self.feature_names_ is None:
            if (
                names is not self.feature_names_
                or len(previous_table) != problem.num_rows
            ):
                raise ValueError(
                    "warm_start: expected the features of the previous fit; set"
                    " warm_start=False, or clone"
                )
            return problem.without_unseen(self.weights_)
        table = np.zeros((problem.num_rows, len(classes)))
        table[problem.num_features :] = previous_table[self.n_features_in_ :]
        previous_row = {name: row for row, name in enumerate(self.feature_names_)}
        for row, name in enumerate(names):
            if name in previous_row:
                table[row] = previous_table[previous_row[name]]
        return problem.without_unseen(table.ravel())

    def _set_coef(self, problem: ChainProblem) -> None:
        W, A, start, end = problem.split(self.weights_)
        self.coef_, self.transitions_ = W.T, A
        self.start_, self.end_ = start, end

    def _make_unlabelled_problem(
        self, X: Any, lengths: Any
    ) -> tuple[ChainProblem, NDArray[np.int64]]:
        """Return the problem of sentences to tag, with labels 0, and their lengths."""
        X = list(X) if isinstance(X, Iterator) else sequences.as_list(X)
        if not hasattr(self, "weights_"):
            check_is_fitted(self)
        if self.feature_names_ is not None:
            rows, sizes = self._build_named_rows(X, lengths)
        else:
            if lengths is None and sequences.has_named_features(X):
                raise TypeError("X: expected matrices, as in fit, got named features")
            matrix, sizes = sequences.stack_sequences(X, lengths, self.n_features_in_)
            rows = as_rows("X", matrix)
        if rows.columns != self.n_features_in_:
            raise ValueError(
                f"X: expected {self.n_features_in_} features, as in fit, got"
                f" {rows.columns}"
            )
        problem = ChainProblem.unlabelled(rows, sizes, len(self.classes_))
        return problem, sizes

    def _build_named_rows(self, X: Any, lengths: Any) -> tuple[Rows, NDArray[np.int64]]:
        if lengths is not None or sequences.has_named_features(X) is False:
            raise TypeError(
                "X: expected tokens with named features, as in fit, got"
                f" {type(X).__name__}"
            )
        names: list[str] = self.feature_names_ or []
        cached = self.__dict__.get("_column_index")
        if cached is None or cached[0] is not names:
            # features of large weight occur often: insert them first
            order = np.argsort(-np.abs(self.coef_).sum(axis=0), kind="stable").tolist()
            cached = self._column_index = names, ColumnIndex.from_names(names, order)
        rows = build_rows(X, cached[1], len(names))
        lengths_of_sentences = sequences.compute_lengths(X)
        sequences.require_finite(rows.indptr, rows.values, lengths_of_sentences)
        return rows, lengths_of_sentences

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        state.pop("_column_index", None)
        return state

    def predict(self, X: Any, lengths: Any = None) -> list[NDArray[Any]]:
        """Return the tags of highest score of each sentence."""
        problem, sizes = self._make_unlabelled_problem(X, lengths)
        tags = self.classes_[problem.decode(self.weights_)]
        return sequences.split_by_length(tags, sizes)

    def decision_function(self, X: Any, lengths: Any = None) -> list[NDArray[Any]]:
        """``(positions, classes)`` for each sentence: scores without transitions."""
        problem, sizes = self._make_unlabelled_problem(X, lengths)
        W, _, start, end = problem.split(self.weights_)
        rows = (problem.values, problem.indices, problem.indptr)
        shape = (len(problem.labels), problem.num_features)
        scores = sparse.csr_matrix(rows, shape=shape) @ W
        is_nonempty = sizes > 0
        scores[problem.offsets[:-1][is_nonempty]] += start
        scores[problem.offsets[1:][is_nonempty] - 1] += end
        return sequences.split_by_length(scores, sizes)

    def score(
        self, X: Any, y: Any, lengths: Any = None, sample_weight: Any = None
    ) -> float:
        """Fraction of correct tags; a tag not seen in ``fit`` counts as wrong.

        ``sample_weight`` has a weight for all tags of each sentence.
        """
        problem, sizes = self._make_unlabelled_problem(X, lengths)
        tags = self.classes_[problem.decode(self.weights_)]
        return sequences.compute_accuracy(tags, y, sizes, sample_weight)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a fitted tagger to a file of numpy arrays and JSON (``.npz``)."""
        check_is_fitted(self)
        arrays = {"weights": self.weights_, "classes": self.classes_}
        metadata = {
            **{name: getattr(self, name) for name in _SAVED_NUMBERS},
            "status_": self.status_,
            "n_features_in_": self.n_features_in_,
            "feature_names_": self.feature_names_,
        }
        persistence.save(self, path, arrays, metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Any:
        """Load a tagger from a file of ``save``; runs no code of the file.

        Raises
        ------
        ValueError
            If the file is of another kind, damaged or inconsistent.
        """
        metadata_keys = (*_SAVED_NUMBERS, "status_", "n_features_in_", "feature_names_")
        tagger, arrays, metadata = persistence.load(
            cls, path, ("classes", "weights"), metadata_keys
        )
        for name in metadata_keys:
            setattr(tagger, name, metadata[name])
        tagger.classes_, tagger.weights_ = arrays["classes"], arrays["weights"]
        tagger.history_, tagger.n_iter_ = [], tagger.n_passes_
        try:
            tagger._validate_loaded()
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"{path}: expected parts that fit together, as {cls.__name__}.save"
                f" writes them, got {error}"
            ) from error
        return tagger

    def _validate_loaded(self) -> None:
        """Set ``coef_`` and others from loaded weights; raise if inconsistent."""
        labels, num_features = self.classes_, self.n_features_in_
        if labels.ndim != 1 or labels.dtype.kind not in "biU" or len(labels) < 2:
            raise ValueError(f"classes {labels.dtype} of shape {labels.shape}")
        if (labels[1:] <= labels[:-1]).any():
            raise ValueError("classes that do not rise")
        if self.weights_.dtype.kind != "f":
            raise ValueError(f"weights of {self.weights_.dtype}")
        if type(num_features) is not int or not 0 < num_features <= self.weights_.size:
            raise ValueError(
                f"{num_features!r} features for {self.weights_.size} weights"
            )
        num_classes = len(labels)
        # a problem of one empty position: its layout defines the expected weights
        empty_row = sparse.csr_matrix((1, num_features))
        problem = self._make_problem(empty_row, np.zeros(1, np.int32), [1], num_classes)
        if self.weights_.shape != (problem.num_weights,):
            raise ValueError(
                f"weights {self.weights_.shape} for {num_features} features and"
                f" {num_classes} classes,"
                f" which have {problem.num_weights}"
            )
        names = self.feature_names_
        if names is not None and len(set(names)) != num_features:
            raise ValueError(f"{len(set(names))} names of {num_features} features")
        if names is not None and not all(isinstance(name, str) for name in names):
            raise ValueError("names that are not strings")
        self._set_coef(problem)
