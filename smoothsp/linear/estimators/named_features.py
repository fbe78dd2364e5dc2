r"""Named features: tokens given as dicts or strings, and the index from name to column.

A feature is a path with a value, as in sklearn-crfsuite: ``{"word": "Ada"}`` and
``{"word": ["Ada"]}`` are the path (word, Ada) with 1, ``{"length": 3}`` is (length)
with 3, ``{"next": {"word": "met", "shape": {"x": 2}}}`` is (next, word, met) with 1 and
(next, shape, x) with 2. A token that is a list of strings has each of them with 1. A
pair in such a list is an entry of a dict.

The name of a path is its steps joined by ``=``. Within a step, ``\`` stands before each
``=`` and ``\``: different paths have different names.

Batches of tokens are first converted to lists of paths and values, without a Python
loop if all tokens are lists of strings, or all are flat dicts. A single ``map`` then
looks up the columns.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.problems._rows import Rows

# Tokens converted at a time: bounds the memory of an iterator.
_TOKENS_PER_BATCH = 1 << 14
_NUMBERS = (int, float, np.number, np.bool_)

# A path of one step is a string, longer ones are tuples.
Path = str | tuple[str, ...]


class ColumnIndex(dict[Path, int]):
    """Dict from feature path to column."""

    @classmethod
    def from_names(
        cls, names: Sequence[str], column_order: Sequence[int] | None = None
    ) -> "ColumnIndex":
        """Create the index of a list of names: names[j] has column j.

        Parameters
        ----------
        column_order
            Order of insertion: a permutation of the columns, the most frequent first.
            Their entries are then adjacent in memory, which halves the time of a
            look-up.
        """
        column_order = range(len(names)) if column_order is None else column_order
        ordered_names = map(names.__getitem__, column_order)
        return cls(zip(map(name_to_path, ordered_names), column_order, strict=True))

    def find_columns(self, paths: Iterable[Path]) -> Iterator[int]:
        """Return an iterator of the column of each path, -1 for unknown ones."""
        return map(self.get, paths, repeat(-1))


class _GrowingColumnIndex(ColumnIndex):
    """Index that numbers new paths in the order of their first look-up."""

    def __missing__(self, path: Path) -> int:
        self[path] = column = len(self)
        return column

    def find_columns(self, paths: Iterable[Path]) -> Iterator[int]:
        """Return an iterator of the column of each path; new paths get a new column."""
        return map(self.__getitem__, paths)


def fit_columns(X: Iterable[Sequence[Any]]) -> tuple[list[str], Rows]:
    """Return all names in alphabetical order, and the rows of all tokens."""
    columns = _GrowingColumnIndex()
    rows = build_rows(X, columns, 0)
    names = list(map(path_to_name, columns))
    if not names:
        raise ValueError("X: expected at least one feature, got none")
    # alphabetical columns do not depend on the order of the sentences
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order))
    sorted_rows = rows._replace(indices=rank[rows.indices], columns=len(order))
    return [names[column] for column in order], sorted_rows


def build_rows(
    X: Iterable[Sequence[Any]], columns: ColumnIndex, num_columns: int
) -> Rows:
    """Return a row of features for each token; unknown features are dropped.

    Columns are unsorted within a row and may be repeated.
    """
    tokens = chain.from_iterable(X)
    batches: list[tuple[NDArray[Any], ...]] = []
    while batch := list(islice(tokens, _TOKENS_PER_BATCH)):
        if not all(map(_is_feature_container, set(map(type, batch)))):
            raise TypeError(
                _describe_missing_features(X, batch, len(batches) * _TOKENS_PER_BATCH)
            )
        batches.append(_encode_tokens(batch, columns))
    row_lengths, indices, values = (
        zip(*batches, strict=True) if batches else ((), (), ())
    )
    indptr = np.cumsum(np.concatenate([np.zeros(1, np.int64), *row_lengths]))
    return Rows(
        indptr,
        np.concatenate([np.zeros(0, np.int32), *indices]),
        np.concatenate([np.zeros(0), *values]),
        num_columns,
    )


def _is_feature_container(token_type: type) -> bool:
    return issubclass(token_type, Iterable) and not issubclass(token_type, str)


def _describe_missing_features(
    X: Any, tokens: Sequence[Any], first_position: int
) -> str:
    """Return the message for the first token that has no features."""
    token_index, token = next(
        x for x in enumerate(tokens) if not _is_feature_container(type(x[1]))
    )
    sizes = X.lengths if hasattr(X, "lengths") else [len(x) for x in X]
    starts = np.cumsum([0, *sizes])
    sentence = (
        int(np.searchsorted(starts, first_position + token_index, side="right")) - 1
    )
    return (
        f"X: expected the features of each token, got {token!r} at position "
        f"{first_position + token_index - starts[sentence]} of sentence {sentence}"
    )


def _encode_tokens(
    tokens: Sequence[Any], columns: ColumnIndex
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
    """Return the number of entries of each token, their columns and values."""
    paths, values, counts = _flatten_features(tokens)
    indices = np.fromiter(columns.find_columns(paths), np.int32, sum(counts))
    has_column = indices >= 0
    if values is not None:
        amounts = np.array(values, dtype=np.float64)
        # a value of 0 is an absent feature: drop it, as scipy would store it
        has_column &= amounts != 0
    bounds = np.cumsum([0, *counts])
    # number of kept entries of each token, from differences of their prefix sums
    row_lengths = np.diff(np.concatenate([[0], np.cumsum(has_column)])[bounds])
    amounts = np.ones(int(row_lengths.sum())) if values is None else amounts[has_column]
    return row_lengths, indices[has_column], amounts


def _flatten_features(
    tokens: Sequence[Any],
) -> tuple[Iterable[Path], list[Any] | None, list[int]]:
    """Return paths and values of all features, and their number for each token.

    Values are None if all are 1.
    """
    token_types = set(map(type, tokens))
    # fast paths without a Python loop: lists of strings, and flat dicts
    if token_types <= {list, tuple}:
        names = list(chain.from_iterable(tokens))
        if set(map(type, names)) <= {str}:
            return names, None, list(map(len, tokens))
    elif token_types == {dict}:
        keys = list(chain.from_iterable(tokens))
        values = list(chain.from_iterable(map(dict.values, tokens)))
        # bool is a subclass of int: exact types keep the values of numbers
        value_types = set(map(type, values))
        if set(map(type, keys)) <= {str} and value_types <= {str, bool, int, float}:
            counts = list(map(len, tokens))
            if value_types <= {str}:
                return zip(keys, values, strict=True), None, counts
            pairs = list(zip(keys, values, strict=True))
            strings = [type(value) is str for value in values]
            paths = [p if s else p[0] for p, s in zip(pairs, strings, strict=True)]
            amounts = [1 if s else p[1] for p, s in zip(pairs, strings, strict=True)]
            return paths, amounts, counts
    entries: list[tuple[Path, Any]] = []
    counts = []
    for token in tokens:
        num_before = len(entries)
        entries.extend(_iter_features(token, ()))
        counts.append(len(entries) - num_before)
    return [path for path, _ in entries], [value for _, value in entries], counts


def _iter_features(token: Any, prefix: tuple[str, ...]) -> Iterator[tuple[Path, Any]]:
    """Yield paths and values of a token, or of a nested value after ``prefix``."""
    if not isinstance(token, Mapping):
        for name in token:
            if isinstance(name, str):
                yield (*prefix, name) if prefix else name, 1.0
            elif isinstance(name, tuple) and len(name) == 2 and not prefix:
                yield from _iter_features(dict([name]), prefix)
            else:
                raise TypeError(
                    "X: expected names of features, or pairs of a name and a value,"
                    f" got {name!r}"
                )
        return
    for name, value in token.items():
        steps = (*prefix, str(name))
        if isinstance(value, str):
            yield (*steps, value), 1.0
        elif isinstance(value, _NUMBERS):
            yield steps if prefix else steps[0], value
        elif isinstance(value, Mapping | list | tuple | set | frozenset):
            yield from _iter_features(value, steps)
        else:
            raise TypeError(
                "X: expected a string, a number, a list of strings or a dict as"
                f" feature, got {value!r} for {name!r}"
            )


def path_to_name(path: Path) -> str:
    """Return the name of a path: steps joined by ``=``, with escapes."""
    steps = (path,) if isinstance(path, str) else path
    return "=".join([x.replace("\\", "\\\\").replace("=", "\\=") for x in steps])


def name_to_path(name: str) -> Path:
    """Return the path of a name, the inverse of ``path_to_name``."""
    if "\\" not in name:
        steps = name.split("=")
        return steps[0] if len(steps) == 1 else tuple(steps)
    steps = [""]
    # split at doubled backslashes first: the rest escapes only ``=``
    for i, part in enumerate(name.split("\\\\")):
        steps[-1] += "\\" if i else ""
        for j, piece in enumerate(part.split("\\=")):
            first, *more = piece.split("=")
            steps[-1] += "=" + first if j else first
            steps += more
    return steps[0] if len(steps) == 1 else tuple(steps)
