"""Conversion of users' sequences to one sparse matrix and flat labels."""

from collections.abc import Iterator, Mapping
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from smoothsp.linear.features import Words
from smoothsp.linear.inputs import checks
from smoothsp.linear.inputs.sparse_matrices import validate_sparse


def has_named_features(X: Any) -> bool | None:
    """Whether tokens have named features: dicts, or lists of strings.

    None if there is no token.
    """
    if sparse.issparse(X) or isinstance(X, np.ndarray | str):
        return False
    if not hasattr(X, "__iter__") or not hasattr(X, "__len__"):
        raise TypeError(f"X: expected a list of sentences, got {type(X).__name__}")
    for x in X:
        if isinstance(x, Mapping):
            raise TypeError(
                "X: expected sentences, each a list of tokens, got a dict, which is a "
                "token, in place of a sentence; write [sentence] for one"
            )
        if sparse.issparse(x) or isinstance(x, np.ndarray | str):
            return False
        # iterating over a pandas table would yield names of columns
        if len(getattr(x, "shape", ())) == 2:
            return False
        if not hasattr(x, "__iter__"):
            raise TypeError(
                "X: expected sentences, each a matrix or a list of tokens, got"
                f" {type(x).__name__}"
            )
        for token in x:
            if isinstance(token, Mapping):
                return True
            if isinstance(token, list | tuple | set | frozenset):
                if len(token):
                    return isinstance(next(iter(token)), str | list | tuple)
            elif isinstance(token, str):
                raise TypeError(
                    f"X: expected the features of each token, got the string {token!r}."
                    " Make features of words first, for example with Templates"
                )
            else:
                return False
    return None


class OneShotSequences:
    """Sentences of an iterator and their tags, which can be read once.

    Parameters
    ----------
    X
        The sentences.
    y
        Their tags: a sequence, or an iterator that is read as X is.
    """

    def __init__(self, X: Iterator[Any], y: Any) -> None:
        self._y = None if hasattr(y, "__len__") or not hasattr(y, "__iter__") else y
        self.tags: Any = y if self._y is None else []
        self._lengths: list[int] = []
        prefix: list[Any] = []
        # empty sentences do not determine the kind of tokens: read on
        for x in X:
            prefix.append(x)
            if has_named_features([x]) is not None:
                break
        self.has_names = has_named_features(prefix)
        self._X = chain(prefix, X)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Lengths of the sentences read so far."""
        return np.array(self._lengths, dtype=np.int64)

    def __iter__(self) -> Iterator[Any]:
        y = None if self._y is None else iter(self._y)
        # an iterator of tags is read in step with the sentences
        for i, x in enumerate(self._X):
            self._lengths.append(_num_positions(x, i))
            if y is not None:
                # a missing sequence is reported later, by ``flatten_tags``
                self.tags += [list(tags) for tags in islice(y, 1)]
            yield x
        if y is not None:
            self.tags += [list(tags) for tags in islice(y, 1)]


def as_list(X: Any) -> Any:
    """Return an array of sentences as a list; other types unchanged.

    An array ``(sentences, positions, features)``, or one of objects.
    """
    if not isinstance(X, np.ndarray) or not (X.dtype == object or X.ndim == 3):
        return X
    return list(X) if X.dtype.kind in "fiub" else X.tolist()


def compute_lengths(X: Any) -> NDArray[np.int64]:
    """``(n,)`` int64: number of positions of each sentence."""
    if (
        not hasattr(X, "__iter__")
        or not hasattr(X, "__len__")
        or sparse.issparse(X)
        or isinstance(X, np.ndarray | str | Mapping)
    ):
        raise TypeError(
            f"X: expected a list, a matrix for each sentence, got {type(X).__name__}."
            " Give the lengths of the sentences with a matrix of all of them"
        )
    return np.array([_num_positions(x, i) for i, x in enumerate(X)], dtype=np.int64)


def _num_positions(x: Any, sentence_index: int) -> int:
    shape = getattr(x, "shape", None)
    if shape is None and hasattr(x, "__len__"):
        return len(x)
    if not shape:
        raise TypeError(
            "X: expected a matrix (positions, features) or a list of tokens in"
            f" sentence {sentence_index}, got {type(x).__name__}"
        )
    return int(shape[0])


def stack_sequences(
    X: Any, lengths: Any, num_features: int | None
) -> tuple[Any, NDArray[np.int64]]:
    """Return one CSR matrix of all positions, and the lengths of the sentences.

    Parameters
    ----------
    X
        A sequence of matrices or of sequences of rows; one matrix with ``lengths``; or
        ``Words``, which have lengths.
    lengths
        None, or those of the sentences in the matrix.
    num_features
        Number of features if all sentences are empty lists.
    """
    if lengths is None and isinstance(X, Words):
        lengths = X.lengths
    if lengths is not None:
        if not sparse.issparse(X) and (
            np.ndim(X) != 2 or np.asarray(X).dtype.kind not in "fiub"
        ):
            raise ValueError(
                f"X: expected one matrix with lengths, got {type(X).__name__}; omit "
                "lengths, and pass other arguments by name: sample_weight=..."
            )
        lengths_array = _check_lengths(lengths, np.shape(X)[0])
        X = validate_sparse(X) if sparse.issparse(X) else sparse.csr_matrix(X)
        require_finite(X.indptr, X.data, lengths_array)
        return _require_columns(X), lengths_array
    lengths_array = compute_lengths(X)
    # a pandas Series would be indexed by its labels, not by position
    X = list(X)
    # an empty list has no number of features
    nonempty = [i for i, x in enumerate(X) if hasattr(x, "shape") or len(x)]
    parts = [_as_csr_matrix(X[i], i) for i in nonempty]
    if parts:
        num_features = parts[0].shape[1]
    for i, part in zip(nonempty, parts, strict=True):
        if part.shape[1] != num_features:
            raise ValueError(
                f"X: expected (positions, {num_features}) in sentence {i}, got"
                f" {part.shape}"
            )
    empty = sparse.csr_matrix((0, num_features or 1))
    stacked = sparse.vstack(parts or [empty], format="csr")
    require_finite(stacked.indptr, stacked.data, lengths_array)
    return _require_columns(stacked), lengths_array


def _check_lengths(lengths: Any, num_positions: int) -> NDArray[np.int64]:
    """Validate lengths of the sentences in one matrix."""
    values = np.asarray(lengths)
    expected = (
        f"lengths: expected ints of at least 0 that sum to {num_positions}, the rows"
    )
    if values.ndim != 1 or (values.size and values.dtype.kind not in "iu"):
        raise ValueError(f"{expected} of X, got {values.dtype} of shape {values.shape}")
    checked_lengths = values.astype(np.int64)
    if (checked_lengths < 0).any() or checked_lengths.sum() != num_positions:
        raise ValueError(
            f"{expected} of X, got a sum of {checked_lengths.sum()} and at least"
            f" {checked_lengths.min(initial=0)}"
        )
    return checked_lengths


def _require_columns(X: Any) -> Any:
    if not np.shape(X)[1]:
        raise ValueError("X: expected at least one feature, got none")
    return X


def _as_csr_matrix(x: Any, sentence_index: int) -> Any:
    """Return a sentence as a CSR matrix of numbers."""
    expected = (
        "X: expected a matrix (positions, features) of numbers in sentence"
        f" {sentence_index}"
    )
    if isinstance(x, list | tuple):
        widths = sorted({np.size(row) for row in x})
        if len(widths) > 1:
            raise ValueError(f"{expected}, got rows of {widths[0]} and of {widths[-1]}")
    x = validate_sparse(x, f"X[{sentence_index}]")
    try:
        matrix = x if sparse.issparse(x) else np.asarray(x)
        if matrix.dtype.kind == "O":
            matrix = matrix.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{expected}, got rows that are none ({error})") from error
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
        raise ValueError(f"{expected}, got {matrix.dtype} of shape {matrix.shape}")
    return sparse.csr_matrix(matrix)


def require_finite(
    indptr: NDArray[Any], data: NDArray[Any], lengths: NDArray[np.int64]
) -> None:
    """Raise ValueError for NaN or infinity, naming the sentence."""
    finite = np.isfinite(data) if data.dtype.kind == "f" else np.ones(1, np.bool_)
    if not finite.all():
        position = np.searchsorted(indptr, finite.argmin(), side="right") - 1
        sentence = np.searchsorted(lengths.cumsum(), position, side="right")
        raise ValueError(
            f"X: expected finite numbers, got NaN or infinity in sentence {sentence}"
        )


def flatten_tags(y: Any, lengths: NDArray[np.int64]) -> list[Any]:
    """Return the tags of all sentences in one list; check their numbers and types."""
    if not hasattr(y, "__len__"):
        raise TypeError(f"y: expected a list of tags, got {type(y).__name__}")
    if len(y) != len(lengths):
        raise ValueError(
            f"y: expected {len(lengths)} sequences, one for each sentence of X, got"
            f" {len(y)}"
        )
    for i, (tags, length) in enumerate(zip(y, lengths, strict=True)):
        if isinstance(tags, str) or not hasattr(tags, "__len__"):
            raise TypeError(
                f"y: expected a sequence of tags for sentence {i}, got {tags!r}"
            )
        if len(tags) != length:
            raise ValueError(
                f"y: expected {length} tags for sentence {i}, one a position, got"
                f" {len(tags)}"
            )
    flat = [t.item() if isinstance(t, np.generic) else t for s in y for t in s]
    kinds = {type(t) for t in flat}
    if not kinds <= {str} and not kinds <= {int} and not kinds <= {bool}:
        raise TypeError(
            "y: expected tags that are all strings or all integers, got"
            f" {', '.join(sorted(kind.__name__ for kind in kinds))}"
        )
    return flat


def encode_tags(tags: list[Any], classes: NDArray[Any]) -> NDArray[np.int32]:
    """Index of each tag in ``classes``, int32."""
    index_of = {tag: index for index, tag in enumerate(classes.tolist())}
    return np.array([index_of[tag] for tag in tags], dtype=np.int32)


def compute_accuracy(
    predicted: NDArray[Any],
    y: Any,
    lengths: NDArray[np.int64],
    sample_weight: Any = None,
) -> float:
    """Fraction of the tags in ``y`` that equal the flat array ``predicted``.

    ``sample_weight`` weights sentences. Tags not seen in training count as wrong.
    """
    gold = flatten_tags(y, lengths)
    # Python scalars: unseen tags may be of another type or longer strings
    is_correct = [a == b for a, b in zip(predicted.tolist(), gold, strict=True)]
    token_weights = np.repeat(
        checks.as_sample_weight(sample_weight, len(lengths)), lengths
    )
    total = token_weights.sum()
    return (
        float(token_weights[np.array(is_correct, dtype=bool)].sum() / total)
        if total
        else 0.0
    )


def split_by_length(flat: NDArray[Any], lengths: NDArray[np.int64]) -> "Sequences":
    """Split a flat array into one array for each sentence."""
    ends = np.cumsum(lengths).tolist()
    return Sequences(flat[begin:end] for begin, end in pairwise([0, *ends]))


class Sequences(list[NDArray[Any]]):
    """List of arrays that numpy converts to a one-dimensional object array.

    numpy makes a table of a plain list of arrays if their lengths are equal, and raises
    an error if not. scikit-learn's ``cross_val_predict`` joins predictions by
    ``numpy.concatenate``.
    """

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        objects = np.empty(len(self), dtype=object)
        for i, sequence in enumerate(self):
            objects[i] = sequence
        return objects if dtype is None else objects.astype(dtype)
