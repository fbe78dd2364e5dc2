"""Sequences as users have them, as one sparse matrix and flat labels."""

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
    """Whether tokens say their features by name: as dicts, or as lists of strings.

    None where there is no token to tell.
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
        # a table of pandas, say, whose entries are its columns' names
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
    """Sentences of an iterator and their tags, to be read once.

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
        self._sizes: list[int] = []
        first: list[Any] = []
        # empty ones do not say what their tokens are
        for x in X:
            first.append(x)
            if has_named_features([x]) is not None:
                break
        self.named = has_named_features(first)
        self._X = chain(first, X)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Positions of the sentences so far."""
        return np.array(self._sizes, dtype=np.int64)

    def __iter__(self) -> Iterator[Any]:
        y = None if self._y is None else iter(self._y)
        for i, x in enumerate(self._X):
            self._sizes.append(_positions(x, i))
            if y is not None:
                # what is missing is counted and refused with the tags
                self.tags += [list(tags) for tags in islice(y, 1)]
            yield x
        if y is not None:
            self.tags += [list(tags) for tags in islice(y, 1)]


def as_list(X: Any) -> Any:
    """An array of sentences as a list of them; all else as it is.

    An array ``(sentences, positions, features)``, or one of objects.
    """
    if not isinstance(X, np.ndarray) or not (X.dtype == object or X.ndim == 3):
        return X
    return list(X) if X.dtype.kind in "fiub" else X.tolist()


def compute_lengths(X: Any) -> NDArray[np.int64]:
    """Positions of each sentence."""
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
    return np.array([_positions(x, i) for i, x in enumerate(X)], dtype=np.int64)


def _positions(x: Any, i: int) -> int:
    shape = getattr(x, "shape", None)
    if shape is None and hasattr(x, "__len__"):
        return len(x)
    if not shape:
        raise TypeError(
            "X: expected a matrix (positions, features) or a list of tokens in"
            f" sentence {i}, got {type(x).__name__}"
        )
    return int(shape[0])


def stack_sequences(
    X: Any, lengths: Any, width: int | None
) -> tuple[Any, NDArray[np.int64]]:
    """All positions one below the other, and the lengths of the sentences.

    Parameters
    ----------
    X
        A sequence of matrices or of sequences of rows, or, with ``lengths``, one
        matrix; or ``Words``, which know them.
    lengths
        None, or those of the sentences in the matrix.
    width
        How many features there are where no sentence tells.
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
        sizes = _lengths(lengths, np.shape(X)[0])
        X = validate_sparse(X) if sparse.issparse(X) else sparse.csr_matrix(X)
        require_finite(X.indptr, X.data, sizes)
        return _with_columns(X), sizes
    sizes = compute_lengths(X)
    # in the order in which they come: a Series counts by the names of its rows
    X = list(X)
    # an empty list does not say how many features there are
    sized = [i for i, x in enumerate(X) if hasattr(x, "shape") or len(x)]
    parts = [_matrix(X[i], i) for i in sized]
    if parts:
        width = parts[0].shape[1]
    for i, part in zip(sized, parts, strict=True):
        if part.shape[1] != width:
            raise ValueError(
                f"X: expected (positions, {width}) in sentence {i}, got {part.shape}"
            )
    empty = sparse.csr_matrix((0, width or 1))
    whole = sparse.vstack(parts or [empty], format="csr")
    require_finite(whole.indptr, whole.data, sizes)
    return _with_columns(whole), sizes


def _lengths(lengths: Any, positions: int) -> NDArray[np.int64]:
    """Lengths of sentences in one matrix."""
    found = np.asarray(lengths)
    expected = f"lengths: expected ints of at least 0 that sum to {positions}, the rows"
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise ValueError(f"{expected} of X, got {found.dtype} of shape {found.shape}")
    sizes = found.astype(np.int64)
    if (sizes < 0).any() or sizes.sum() != positions:
        raise ValueError(
            f"{expected} of X, got a sum of {sizes.sum()} and at least"
            f" {sizes.min(initial=0)}"
        )
    return sizes


def _with_columns(X: Any) -> Any:
    if not np.shape(X)[1]:
        raise ValueError("X: expected at least one feature, got none")
    return X


def _matrix(x: Any, i: int) -> Any:
    """A sentence as a CSR matrix of numbers."""
    expected = f"X: expected a matrix (positions, features) of numbers in sentence {i}"
    if isinstance(x, list | tuple):
        widths = sorted({np.size(row) for row in x})
        if len(widths) > 1:
            raise ValueError(f"{expected}, got rows of {widths[0]} and of {widths[-1]}")
    x = validate_sparse(x, f"X[{i}]")
    try:
        part = x if sparse.issparse(x) else np.asarray(x)
        if part.dtype.kind == "O":
            part = part.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{expected}, got rows that are none ({error})") from error
    if part.ndim != 2 or part.dtype.kind not in "fiub":
        raise ValueError(f"{expected}, got {part.dtype} of shape {part.shape}")
    return sparse.csr_matrix(part)


def require_finite(
    indptr: NDArray[Any], data: NDArray[Any], sizes: NDArray[np.int64]
) -> None:
    """Refuse NaN and infinity among the entries of rows."""
    finite = np.isfinite(data) if data.dtype.kind == "f" else np.ones(1, np.bool_)
    if not finite.all():
        position = np.searchsorted(indptr, finite.argmin(), side="right") - 1
        sentence = np.searchsorted(sizes.cumsum(), position, side="right")
        raise ValueError(
            f"X: expected finite numbers, got NaN or infinity in sentence {sentence}"
        )


def flatten_tags(y: Any, lengths: NDArray[np.int64]) -> list[Any]:
    """All tags one after the other, once each sentence has as many as positions."""
    if not hasattr(y, "__len__"):
        raise TypeError(f"y: expected a list of tags, got {type(y).__name__}")
    if len(y) != len(lengths):
        raise ValueError(
            f"y: expected as many sequences as X has sentences, {len(lengths)}, got"
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


def encode_tags(flat: list[Any], classes: NDArray[Any]) -> NDArray[np.int32]:
    """Place of each tag in ``classes``."""
    place = {tag: n for n, tag in enumerate(classes.tolist())}
    return np.array([place[tag] for tag in flat], dtype=np.int32)


def compute_accuracy(
    found: NDArray[Any],
    y: Any,
    lengths: NDArray[np.int64],
    sample_weight: Any = None,
) -> float:
    """Share of the tags in ``y`` that are equal to those found, one after the other.

    A tag that was not in the training set is never found, and counts as wrong.
    """
    wanted = flatten_tags(y, lengths)
    right = [a == b for a, b in zip(found.tolist(), wanted, strict=True)]
    each = np.repeat(checks.as_sample_weight(sample_weight, len(lengths)), lengths)
    total = each.sum()
    return float(each[np.array(right, dtype=bool)].sum() / total) if total else 0.0


def split_by_length(flat: NDArray[Any], lengths: NDArray[np.int64]) -> "Sequences":
    """One array for each sentence."""
    ends = np.cumsum(lengths).tolist()
    return Sequences(flat[i:j] for i, j in pairwise([0, *ends]))


class Sequences(list[NDArray[Any]]):
    """A list of arrays, which numpy takes for one array of objects.

    numpy makes a table of a plain list of arrays if their lengths are equal, and raises
    an error if not. scikit-learn's ``cross_val_predict`` joins predictions by
    ``numpy.concatenate``.
    """

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        found = np.empty(len(self), dtype=object)
        for i, sequence in enumerate(self):
            found[i] = sequence
        return found if dtype is None else found.astype(dtype)
