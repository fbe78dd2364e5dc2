"""Sequences as users have them, as one sparse matrix and flat labels."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Names = dict[str, int]


def is_named(X: Any) -> bool:
    """Whether tokens say their features by name: as dicts, or as lists of strings."""
    if sparse.issparse(X) or isinstance(X, np.ndarray | str):
        return False
    for x in X:
        if sparse.issparse(x) or isinstance(x, np.ndarray | str):
            return False
        for token in x:
            if isinstance(token, Mapping):
                return True
            if isinstance(token, list | tuple | set | frozenset) and len(token):
                return isinstance(next(iter(token)), str)
            if isinstance(token, str):
                raise TypeError(
                    f"X: expected the features of each token, got the string {token!r}."
                    " Make features of words first, with Templates say"
                )
    return False


def matrix_of(
    X: Any, lengths: Any, names: Names | None
) -> tuple[Any, NDArray[np.int64]]:
    """All positions one below the other, and the lengths of the sentences.

    Parameters
    ----------
    X
        A sequence of matrices or of sequences of tokens, or, with ``lengths``, one
        matrix.
    lengths
        None, or those of the sentences in the matrix.
    names
        Columns of the features of tokens, for those that have names.
    """
    if lengths is not None:
        if not sparse.issparse(X) and np.ndim(X) != 2:
            raise ValueError(
                f"X: expected one matrix with lengths, got {type(X).__name__}"
            )
        return _csr(X, np.asarray(lengths)), np.asarray(lengths)
    if sparse.issparse(X) or isinstance(X, np.ndarray | str):
        raise TypeError(
            f"X: expected a list, a matrix for each sentence, got {type(X).__name__}."
            " Give the lengths of the sentences with a matrix of all of them"
        )
    if not len(X):
        raise ValueError("X: expected at least one sentence, got none")
    sizes = [x.shape[0] if hasattr(x, "shape") else len(x) for x in X]
    if not min(sizes):
        raise ValueError(
            "X: expected at least one position in each sentence, got none in sentence"
            f" {sizes.index(0)}"
        )
    if names is not None:
        return _rows_by_name(X, names, np.array(sizes)), np.array(sizes)
    width = X[0].shape[-1] if hasattr(X[0], "shape") else len(X[0][0])
    parts = []
    for i, x in enumerate(X):
        part = x if sparse.issparse(x) else np.asarray(x)
        if part.ndim != 2 or part.shape[1] != width:
            raise ValueError(
                f"X: expected (positions, {width}) in sentence {i}, got {part.shape}"
            )
        parts.append(sparse.csr_matrix(part))
    return _csr(sparse.vstack(parts, format="csr"), np.array(sizes)), np.array(sizes)


def _csr(X: Any, sizes: NDArray[np.int64]) -> Any:
    X = sparse.csr_matrix(X)
    finite = np.isfinite(X.data) if X.data.dtype.kind == "f" else np.ones(1, np.bool_)
    if not finite.all():
        position = np.searchsorted(X.indptr, finite.argmin(), side="right") - 1
        sentence = np.searchsorted(sizes.cumsum(), position, side="right")
        raise ValueError(
            f"X: expected finite numbers, got NaN or infinity in sentence {sentence}"
        )
    if X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def named(token: Any) -> Iterable[tuple[str, float]]:
    """Names and values of the features of a token.

    A string value becomes part of the name: ``{"word": "a", "length": 1}`` has
    ``word=a`` with 1.0 and ``length`` with 1.0.
    """
    if not isinstance(token, Mapping):
        for name in token:
            if not isinstance(name, str):
                raise TypeError(f"X: expected names of features, got {name!r}")
            yield name, 1.0
        return
    for name, value in token.items():
        if isinstance(value, str):
            yield f"{name}={value}", 1.0
        elif isinstance(value, bool | int | float | np.number | np.bool_):
            yield str(name), float(value)
        else:
            raise TypeError(
                f"X: expected strings and numbers as features, got {value!r} for"
                f" {name!r}"
            )


def names_of(X: Sequence[Sequence[Any]]) -> Names:
    """Every name that occurs, numbered in alphabetical order."""
    found = {name for x in X for token in x for name, _ in named(token)}
    if not found:
        raise ValueError("X: expected at least one feature, got none")
    return {name: n for n, name in enumerate(sorted(found))}


def _rows_by_name(
    X: Sequence[Sequence[Any]], names: Names, sizes: NDArray[np.int64]
) -> Any:
    indptr, indices, values = [0], [], []
    for token in chain.from_iterable(X):
        for name, value in named(token):
            column = names.get(name)
            if column is not None and value:
                indices.append(column)
                values.append(value)
        indptr.append(len(indices))
    shape = (len(indptr) - 1, len(names))
    columns = np.array(indices, dtype=np.int32)
    rows = sparse.csr_matrix((np.array(values, float), columns, indptr), shape)
    return _csr(rows, sizes)


def tags_of(y: Any, lengths: NDArray[np.int64]) -> list[Any]:
    """All tags one after the other, once each sentence has as many as positions."""
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


def numbers_of(
    flat: list[Any], lengths: NDArray[np.int64], classes: NDArray[Any]
) -> NDArray[np.int32]:
    """Place of each tag in ``classes``."""
    place = {tag: n for n, tag in enumerate(classes.tolist())}
    for position, tag in enumerate(flat):
        if tag not in place:
            ends = np.cumsum(lengths)
            i = int(np.searchsorted(ends, position, side="right"))
            known = ", ".join(map(str, classes[:20]))
            raise ValueError(
                f"y: expected tags seen in fit ({known}), got {tag!r} in sentence {i}"
            )
    return np.array([place[tag] for tag in flat], dtype=np.int32)


def cut(flat: NDArray[Any], lengths: NDArray[np.int64]) -> list[NDArray[Any]]:
    """One array for each sentence."""
    return np.split(flat, np.cumsum(lengths)[:-1])
