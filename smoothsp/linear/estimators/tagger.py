"""Base of the linear taggers: sequences in, labels out."""

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
from smoothsp.linear.solvers import AGM, BCFW, BMRM, SGD, SVRG, CasimirSVRG, Solution
from smoothsp.linear.solvers.sdca import has_duals_for

# Those of the structural hinge, by the names that estimators have for them.
HINGE_SOLVERS: dict[str, Any] = {
    "bcfw": BCFW,
    "sgd": SGD,
    "svrg": SVRG,
    "casimir": CasimirSVRG,
    "bmrm": BMRM,
    "agm": AGM,
}
# Their default options, chosen by measurement.
HINGE_DEFAULTS: dict[str, Any] = {"bcfw": {"steps": "pairwise", "cache": True}}
# Passes where ``max_passes`` is None.
_PASSES = 10_000
_PASSES_OF = {"sgd": 1000, "svrg": 1000, "casimir": 1000, "lbfgs": 1000}
# Stored with a fitted tagger, besides its weights.
_NUMBERS = ("primal_", "dual_", "gap_", "n_passes_")


def normalise_sample_weight(
    sample_weight: Any, n: int, factors: NDArray[np.float64] | float = 1.0
) -> tuple[NDArray[np.float64] | None, float]:
    """Factor of the loss of each example, with mean 1, and the sum of weights.

    Then the mean over all examples is that of examples repeated as their weights say.
    None for weights that are all the same.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        weights = checks.as_sample_weight(sample_weight, n) * factors
        total = float(weights.sum())
    if not 0 < total < math.inf:
        raise ValueError(
            "sample_weight: expected weights that, times those of the classes, have a"
            f" positive finite sum, got {total}"
        )
    if (weights == weights[0]).all():
        return None, total
    return weights * (n / total), total


def resolve_lambda(estimator: Any, n: float) -> float:
    """The lambda of the mean over n examples, from ``l2`` or from ``C`` of the sum."""
    if estimator.l2 is not None:
        if estimator.C is not None:
            raise ValueError(
                f"C: expected None beside l2={estimator.l2!r}, got {estimator.C!r}:"
                " lambda is either l2 or 1 / (C n)"
            )
        return checks.as_positive("l2", estimator.l2)
    C = 1.0 if estimator.C is None else checks.as_positive("C", estimator.C)
    if not math.inf > 1 / (C * n) > 0:
        raise ValueError(
            f"C: expected a number for which lambda = 1 / (C n) fits float64, got {C}"
        )
    return 1 / (C * n)


def resolve_max_passes(estimator: Any, asked: int | None) -> int:
    """The most passes of a fit: those asked for, or the default of its solver."""
    if asked is None:
        return _PASSES_OF.get(estimator.solver, _PASSES)
    return asked


def make_solver(estimator: Any, n: float, **more: Any) -> Any:
    """The solver that the parameters of an estimator ask for."""
    checks.require_choice("solver", estimator.solver, tuple(estimator.SOLVERS))
    most = resolve_max_passes(estimator, estimator.max_passes)
    given = {
        "lam": resolve_lambda(estimator, n),
        "tol": classifier.make_tolerance(estimator),
        "max_passes": checks.as_positive_int("max_passes", most),
        "callback": estimator.callback,
        "progress": checks.as_optional_bool("verbose", estimator.verbose),
        **more,
    }
    return instantiate_solver(estimator, **given)


def instantiate_solver(estimator: Any, **given: Any) -> Any:
    """The estimator's solver with these arguments, its defaults and options."""
    make = estimator.SOLVERS[estimator.solver]
    defaults = getattr(estimator, "DEFAULTS", {}).get(estimator.solver, {})
    if "seed" in signature(make).parameters:
        stream = checks.as_random_state(estimator.random_state)
        given["seed"] = int(stream.randint(2**31 - 1))
    return make(**{**defaults, **given, **check_solver_options(estimator, make, given)})


def supports_partial_fit(estimator: Any) -> bool:
    """Whether the solver goes from example to example, as ``partial_fit`` needs it."""
    return estimator.solver in ("sgd", "svrg")


def resolve_partial_fit_classes(
    estimator: Any, classes: Any, labels: list[Any]
) -> NDArray[Any]:
    """All classes that ``partial_fit`` will meet, with those of ``labels`` in them."""
    known: NDArray[Any] | None = getattr(estimator, "classes_", None)
    if estimator.class_weight == "balanced":
        raise ValueError(
            "class_weight: expected a dict or None for partial_fit, got 'balanced',"
            " which counts all examples"
        )
    if classes is not None:
        found = np.unique(np.asarray(classes))
    elif known is not None:
        found = known
    else:
        raise ValueError(
            "classes: expected all classes in the first call of partial_fit, got None"
        )
    if known is not None and not np.array_equal(found, known):
        raise ValueError(
            "classes: expected those of the previous call "
            f"({', '.join(map(str, known))}), got {', '.join(map(str, found))}"
        )
    checks.require_two_classes(found)
    strange = sorted(set(labels) - set(found.tolist()))
    if strange:
        raise ValueError(
            f"y: expected some of classes ({', '.join(map(str, found))}), got"
            f" {strange[0]!r}"
        )
    return found


def set_partial_fit_results(estimator: Any, solution: Solution) -> None:
    """Set what is known after a pass over some of the examples."""
    estimator.history_ = [*getattr(estimator, "history_", []), *solution.history]
    estimator.status_ = solution.status
    estimator.primal_, estimator.dual_ = solution.primal, solution.dual
    estimator.gap_ = solution.gap
    estimator.n_iter_ = getattr(estimator, "n_iter_", 0) + solution.passes
    estimator.n_passes_ = estimator.n_iter_


def check_solver_options(
    estimator: Any, make: Any, given: Mapping[str, Any]
) -> dict[str, Any]:
    """``solver_options``: arguments that the solver knows, and that are not given."""
    asked = estimator.solver_options
    if asked is not None and not isinstance(asked, Mapping):
        raise TypeError(
            "solver_options: expected a dict of further arguments of the solver, got"
            f" {checks.short_repr(asked)}"
        )
    options = dict(asked or {})
    known = signature(make).parameters
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ValueError(
            f"solver_options: expected some of {', '.join(known)}, got {unknown[0]!r}"
        )
    twice = sorted(given.keys() & options.keys())
    if twice:
        raise ValueError(
            f"solver_options: expected none that are parameters, got {twice}"
        )
    return options


def set_solution_attributes(estimator: Any, solution: Solution) -> None:
    """Set what is known about a fit; warn if it stopped above ``tol``."""
    estimator.history_ = solution.history
    estimator.status_ = solution.status
    estimator.primal_, estimator.dual_ = solution.primal, solution.dual
    estimator.gap_ = solution.gap
    estimator.n_passes_ = estimator.n_iter_ = solution.passes
    advice = "Raise max_passes or tol, or scale the features."
    if solution.interrupted or "callback" in solution.status:
        advice = "fit(X, y, resume=state) of a callback's record goes on from there."
    if not solution.converged:
        last = (solution.primal, solution.gap, solution.passes)
        classifier.warn_not_converged(estimator, solution.status, last, advice)


def require_same_data(problem: Any, found: Solution) -> None:
    """Refuse dual variables of other data."""
    if found.state["examples"] != problem.checksum:
        raise ValueError(
            "warm_start: expected the features, labels and costs of the previous fit, "
            "since bcfw starts from its dual variables; set warm_start=False, or "
            "choose a solver that starts from weights, such as sgd"
        )


class LinearTagger(NamedWeights, BaseEstimator):  # type: ignore[misc]
    """A linear chain over sequences."""

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
        """Make one pass of ``"sgd"`` or ``"svrg"`` over some sentences.

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
            self._fit(X, y, lengths, sample_weight, None, parts=(classes,))
        return self

    def _fit(
        self,
        X: Any,
        y: Any,
        lengths: Any,
        sample_weight: Any,
        resume: Any,
        parts: tuple[Any] | None = None,
    ) -> None:
        names = None
        stream = None
        X = sequences.as_list(X)
        if isinstance(X, Iterator):
            stream = sequences.OneShotSequences(X, y)
            if not stream.named:
                X, y, stream = list(stream), stream.tags, None
        if stream is not None or (lengths is None and sequences.has_named_features(X)):
            names, rows = fit_columns(X if stream is None else stream)
            sizes = sequences.compute_lengths(X) if stream is None else stream.sizes
            y = y if stream is None else stream.tags
            if parts is not None:
                names, rows = self._with_known(names, rows)
            arrays = (rows.values, rows.indices, rows.indptr)
            shape = (len(rows.indptr) - 1, rows.columns)
            sequences.require_finite(rows.indptr, rows.values, sizes)
            matrix = sparse.csr_matrix(arrays, shape)
        else:
            matrix, sizes = sequences.stack_sequences(X, lengths, None)
            if parts is not None:
                self._require_same_features(matrix)
        if not len(sizes):
            raise ValueError("X: expected at least one sentence, got none")
        flat = sequences.flatten_tags(y, sizes)
        if not flat:
            raise ValueError("X: expected at least one position, got none")
        if parts is None:
            classes = np.unique(np.array(flat))
            checks.require_two_classes(classes)
        else:
            classes = resolve_partial_fit_classes(self, parts[0], flat)
        labels = sequences.encode_tags(flat, classes)
        each = self._class_means(classes, flat, labels, sizes)
        scale, total = normalise_sample_weight(sample_weight, len(sizes), each)
        problem = self._problem(matrix, labels, sizes, len(classes), scale)
        problem.called = "X"
        if parts is None:
            start = self._start(problem, names, classes) if resume is None else None
            solver = self._solver(total)
        else:
            start = self._reached(problem)
            solver = self._solver(total, max_passes=1, tol=0.0, progress=False)
        with np.errstate(over="ignore", invalid="ignore"):
            solution = solver.solve(problem, start=start, resume=resume)
        self._solution = solution if self.warm_start else None
        self.classes_ = classes
        self.feature_names_ = names
        self._dictionary = getattr(X, "dictionary", None)
        self.n_features_in_ = problem.num_features
        self.weights_ = solution.w
        self._split(problem)
        if parts is None:
            set_solution_attributes(self, solution)
        else:
            set_partial_fit_results(self, solution)

    def _with_known(self, names: list[str], rows: Rows) -> tuple[list[str], Rows]:
        """Columns of the calls before, then those of new names."""
        before = getattr(self, "feature_names_", [])
        if before is None:
            raise TypeError("X: expected matrices, as before, got named features")
        place = {name: n for n, name in enumerate(before)}
        moved = [place.setdefault(name, len(place)) for name in names]
        columns = np.array(moved, dtype=np.int32)[rows.indices]
        return list(place), rows._replace(indices=columns, columns=len(place))

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

    def _reached(self, problem: ChainProblem) -> NDArray[np.float64] | None:
        """The weights so far, with zeros for new features."""
        if not hasattr(self, "weights_"):
            return None
        old = self.weights_.reshape(-1, problem.num_labels)
        known = self.n_features_in_
        new = np.zeros((problem.num_features - known, problem.num_labels))
        return np.vstack([old[:known], new, old[known:]]).ravel()

    def _class_means(
        self, classes: NDArray[Any], flat: list[Any], labels: Any, sizes: Any
    ) -> NDArray[np.float64]:
        """Mean class weight of the tags of each sentence; 1 without weights."""
        factors = checks.compute_class_weights(
            self.class_weight, classes, np.array(flat)
        )
        owner = np.repeat(np.arange(len(sizes)), sizes)
        sums = np.bincount(owner, factors[labels], len(sizes))
        return np.where(sizes > 0, sums / np.maximum(sizes, 1), 1.0)

    def _problem(
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

    def _solver(self, n: float, **more: Any) -> Any:
        return make_solver(self, n, **more)

    def _start(
        self, problem: ChainProblem, names: list[str] | None, classes: NDArray[Any]
    ) -> Solution | NDArray[np.float64] | None:
        """Start from the previous fit, in the columns of this fit."""
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
        found: Solution | None = self.__dict__.get("_solution")
        if self.solver == "sdca" and has_duals_for(problem, found):
            return found
        if self.solver == "bcfw":
            if found is None or "ell" not in found.state:
                # no dual variables: the fit before had another solver
                return None
            require_same_data(problem, found)
            return found
        old = self.weights_.reshape(-1, len(classes))
        if names is None or self.feature_names_ is None:
            if names is not self.feature_names_ or len(old) != problem.num_rows:
                raise ValueError(
                    "warm_start: expected the features of the previous fit; set"
                    " warm_start=False, or clone"
                )
            return problem.without_unseen(self.weights_)
        table = np.zeros((problem.num_rows, len(classes)))
        table[problem.num_features :] = old[self.n_features_in_ :]
        place = {name: row for row, name in enumerate(self.feature_names_)}
        for row, name in enumerate(names):
            if name in place:
                table[row] = old[place[name]]
        return problem.without_unseen(table.ravel())

    def _split(self, problem: ChainProblem) -> None:
        W, A, start, end = problem.split(self.weights_)
        self.coef_, self.transitions_ = W.T, A
        self.start_, self.end_ = start, end

    def _read(self, X: Any, lengths: Any) -> tuple[ChainProblem, NDArray[np.int64]]:
        """Sentences to be tagged, with the first class as their labels."""
        X = list(X) if isinstance(X, Iterator) else sequences.as_list(X)
        if not hasattr(self, "weights_"):
            check_is_fitted(self)
        if self.feature_names_ is not None:
            rows, sizes = self._rows_by_name(X, lengths)
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

    def _rows_by_name(self, X: Any, lengths: Any) -> tuple[Rows, NDArray[np.int64]]:
        if lengths is not None or sequences.has_named_features(X) is False:
            raise TypeError(
                "X: expected tokens with named features, as in fit, got"
                f" {type(X).__name__}"
            )
        names: list[str] = self.feature_names_ or []
        known = self.__dict__.get("_columns")
        if known is None or known[0] is not names:
            # features that occur often have large weights
            first = np.argsort(-np.abs(self.coef_).sum(axis=0), kind="stable").tolist()
            known = self._columns = names, ColumnIndex.of(names, first)
        rows = build_rows(X, known[1], len(names))
        sizes = sequences.compute_lengths(X)
        sequences.require_finite(rows.indptr, rows.values, sizes)
        return rows, sizes

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        state.pop("_columns", None)
        return state

    def predict(self, X: Any, lengths: Any = None) -> list[NDArray[Any]]:
        """The best tags of each sentence; arguments as those of ``fit``."""
        problem, sizes = self._read(X, lengths)
        tags = self.classes_[problem.decode(self.weights_)]
        return sequences.split_by_length(tags, sizes)

    def decision_function(self, X: Any, lengths: Any = None) -> list[NDArray[Any]]:
        """``(positions, classes)`` for each sentence: scores but for transitions."""
        problem, sizes = self._read(X, lengths)
        W, _, start, end = problem.split(self.weights_)
        rows = (problem.values, problem.indices, problem.indptr)
        shape = (len(problem.labels), problem.num_features)
        scores = sparse.csr_matrix(rows, shape=shape) @ W
        some = sizes > 0
        scores[problem.offsets[:-1][some]] += start
        scores[problem.offsets[1:][some] - 1] += end
        return sequences.split_by_length(scores, sizes)

    def score(
        self, X: Any, y: Any, lengths: Any = None, sample_weight: Any = None
    ) -> float:
        """Share of tags that are right; a tag not seen in ``fit`` counts as wrong.

        ``sample_weight`` has a weight for all tags of each sentence.
        """
        problem, sizes = self._read(X, lengths)
        tags = self.classes_[problem.decode(self.weights_)]
        return sequences.compute_accuracy(tags, y, sizes, sample_weight)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a fitted tagger to a file of numpy arrays and JSON (``.npz``)."""
        check_is_fitted(self)
        arrays = {"weights": self.weights_, "classes": self.classes_}
        facts = {
            **{name: getattr(self, name) for name in _NUMBERS},
            "status_": self.status_,
            "n_features_in_": self.n_features_in_,
            "feature_names_": self.feature_names_,
        }
        persistence.save(self, path, arrays, facts)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Any:
        """A tagger from a file that ``save`` wrote; no code in it is run.

        Raises
        ------
        ValueError
            If the file is no such file, is damaged, or does not fit together.
        """
        about = (*_NUMBERS, "status_", "n_features_in_", "feature_names_")
        tagger, arrays, facts = persistence.load(
            cls, path, ("classes", "weights"), about
        )
        for name in about:
            setattr(tagger, name, facts[name])
        tagger.classes_, tagger.weights_ = arrays["classes"], arrays["weights"]
        tagger.history_, tagger.n_iter_ = [], tagger.n_passes_
        try:
            tagger._restore()
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"{path}: expected parts that fit together, as {cls.__name__}.save"
                f" writes them, got {error}"
            ) from error
        return tagger

    def _restore(self) -> None:
        """Cut the weights into what they mean; raise if they cannot be."""
        known, n = self.classes_, self.n_features_in_
        if known.ndim != 1 or known.dtype.kind not in "biU" or len(known) < 2:
            raise ValueError(f"classes {known.dtype} of shape {known.shape}")
        if (known[1:] <= known[:-1]).any():
            raise ValueError("classes that do not rise")
        if self.weights_.dtype.kind != "f":
            raise ValueError(f"weights of {self.weights_.dtype}")
        if type(n) is not int or not 0 < n <= self.weights_.size:
            raise ValueError(f"{n!r} features for {self.weights_.size} weights")
        classes = len(known)
        one = sparse.csr_matrix((1, n))
        problem = self._problem(one, np.zeros(1, np.int32), [1], classes)
        if self.weights_.shape != (problem.num_weights,):
            raise ValueError(
                f"weights {self.weights_.shape} for {n} features and {classes} classes,"
                f" which have {problem.num_weights}"
            )
        names = self.feature_names_
        if names is not None and len(set(names)) != n:
            raise ValueError(f"{len(set(names))} names of {n} features")
        if names is not None and not all(isinstance(name, str) for name in names):
            raise ValueError("names that are no strings")
        self._split(problem)
