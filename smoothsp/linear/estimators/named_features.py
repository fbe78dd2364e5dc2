r"""Features that tokens call by name, and the columns of these names.

A feature is a path with a value, as in sklearn-crfsuite: ``{"word": "Ada"}`` and
``{"word": ["Ada"]}`` are the path (word, Ada) with 1, ``{"length": 3}`` is (length)
with 3, ``{"next": {"word": "met", "shape": {"x": 2}}}`` is (next, word, met) with 1 and
(next, shape, x) with 2. A token that is a list of strings has each of them with 1. A
pair in such a list is an entry of a dict.

The name of a path is its steps joined by ``=``. Within a step, ``\`` stands before each
``=`` and ``\``: different paths have different names.

Tokens become lists of paths and values first, many tokens at a time, and without a loop
in Python where all are lists of strings, or all dicts. Then one ``map`` finds the
columns.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.problems._rows import Rows

# Tokens that are looked up at once.
_AT_ONCE = 1 << 14
_NUMBERS = (int, float, np.number, np.bool_)

# Of one step a string, else a tuple.
Path = str | tuple[str, ...]


class ColumnIndex(dict[Path, int]):
    """Columns by path."""

    @classmethod
    def of(
        cls, names: Sequence[str], first: Sequence[int] | None = None
    ) -> "ColumnIndex":
        """Columns of names.

        Parameters
        ----------
        first
            All columns, the most frequent first: side by side they
            stay in the cache, which halves the time of a look-up.
        """
        order = range(len(names)) if first is None else first
        chosen = map(names.__getitem__, order)
        return cls(zip(map(name_to_path, chosen), order, strict=True))

    def find(self, paths: Iterable[Path]) -> Iterator[int]:
        """The column of each path, -1 where there is none."""
        return map(self.get, paths, repeat(-1))


class _GrowingColumnIndex(ColumnIndex):
    """Columns, numbered in the order of their first use."""

    def __missing__(self, path: Path) -> int:
        self[path] = column = len(self)
        return column

    def find(self, paths: Iterable[Path]) -> Iterator[int]:
        """The column of each path, a new one where there was none."""
        return map(self.__getitem__, paths)


def fit_columns(X: Iterable[Sequence[Any]]) -> tuple[list[str], Rows]:
    """Every name that occurs, in alphabetical order, and the rows of all tokens."""
    columns = _GrowingColumnIndex()
    rows = build_rows(X, columns, 0)
    names = list(map(path_to_name, columns))
    if not names:
        raise ValueError("X: expected at least one feature, got none")
    order = sorted(range(len(names)), key=names.__getitem__)
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order))
    found = rows._replace(indices=place[rows.indices], columns=len(order))
    return [names[column] for column in order], found


def build_rows(X: Iterable[Sequence[Any]], columns: ColumnIndex, count: int) -> Rows:
    """Rows of ``count`` columns, a token each; what has no column is left out.

    Columns do not rise within a row, and may occur twice.
    """
    tokens = chain.from_iterable(X)
    parts: list[tuple[NDArray[Any], ...]] = []
    while some := list(islice(tokens, _AT_ONCE)):
        if not all(map(_has_features, set(map(type, some)))):
            raise TypeError(_without_features(X, some, len(parts) * _AT_ONCE))
        parts.append(_rows(some, columns))
    sizes, indices, values = zip(*parts, strict=True) if parts else ((), (), ())
    ends = np.cumsum(np.concatenate([np.zeros(1, np.int64), *sizes]))
    return Rows(
        ends,
        np.concatenate([np.zeros(0, np.int32), *indices]),
        np.concatenate([np.zeros(0), *values]),
        count,
    )


def _has_features(kind: type) -> bool:
    return issubclass(kind, Iterable) and not issubclass(kind, str)


def _without_features(X: Any, tokens: Sequence[Any], before: int) -> str:
    """Message about the first token that has no features, with its place."""
    n, token = next(x for x in enumerate(tokens) if not _has_features(type(x[1])))
    sizes = X.sizes if hasattr(X, "sizes") else [len(x) for x in X]
    starts = np.cumsum([0, *sizes])
    sentence = int(np.searchsorted(starts, before + n, side="right")) - 1
    return (
        f"X: expected the features of each token, got {token!r} at position "
        f"{before + n - starts[sentence]} of sentence {sentence}"
    )


def _rows(
    tokens: Sequence[Any], columns: ColumnIndex
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
    """Entries of each token, their columns and their values."""
    paths, values, counts = _entries(tokens)
    found = np.fromiter(columns.find(paths), np.int32, sum(counts))
    known = found >= 0
    if values is not None:
        amounts = np.array(values, dtype=np.float64)
        known &= amounts != 0
    ends = np.cumsum([0, *counts])
    sizes = np.diff(np.concatenate([[0], np.cumsum(known)])[ends])
    amounts = np.ones(int(sizes.sum())) if values is None else amounts[known]
    return sizes, found[known], amounts


def _entries(
    tokens: Sequence[Any],
) -> tuple[Iterable[Path], list[Any] | None, list[int]]:
    """Paths and values of the features of tokens, how many each has; None: all 1."""
    kinds = set(map(type, tokens))
    if kinds <= {list, tuple}:
        names = list(chain.from_iterable(tokens))
        if set(map(type, names)) <= {str}:
            return names, None, list(map(len, tokens))
    elif kinds == {dict}:
        keys = list(chain.from_iterable(tokens))
        values = list(chain.from_iterable(map(dict.values, tokens)))
        of = set(map(type, values))
        if set(map(type, keys)) <= {str} and of <= {str, bool, int, float}:
            counts = list(map(len, tokens))
            if of <= {str}:
                return zip(keys, values, strict=True), None, counts
            pairs = list(zip(keys, values, strict=True))
            strings = [type(value) is str for value in values]
            paths = [p if s else p[0] for p, s in zip(pairs, strings, strict=True)]
            amounts = [1 if s else p[1] for p, s in zip(pairs, strings, strict=True)]
            return paths, amounts, counts
    found: list[tuple[Path, Any]] = []
    counts = []
    for token in tokens:
        before = len(found)
        found.extend(_features(token, ()))
        counts.append(len(found) - before)
    return [path for path, _ in found], [value for _, value in found], counts


def _features(token: Any, before: tuple[str, ...]) -> Iterator[tuple[Path, Any]]:
    """Paths and values of a token, or of what stands in it after some steps."""
    if not isinstance(token, Mapping):
        for name in token:
            if isinstance(name, str):
                yield (*before, name) if before else name, 1.0
            elif isinstance(name, tuple) and len(name) == 2 and not before:
                yield from _features(dict([name]), before)
            else:
                raise TypeError(
                    "X: expected names of features, or pairs of a name and a value,"
                    f" got {name!r}"
                )
        return
    for name, value in token.items():
        steps = (*before, str(name))
        if isinstance(value, str):
            yield (*steps, value), 1.0
        elif isinstance(value, _NUMBERS):
            yield steps if before else steps[0], value
        elif isinstance(value, Mapping | list | tuple | set | frozenset):
            yield from _features(value, steps)
        else:
            raise TypeError(
                "X: expected a string, a number, a list of strings or a dict as"
                f" feature, got {value!r} for {name!r}"
            )


def path_to_name(path: Path) -> str:
    """The name of a path."""
    steps = (path,) if isinstance(path, str) else path
    return "=".join([x.replace("\\", "\\\\").replace("=", "\\=") for x in steps])


def name_to_path(name: str) -> Path:
    """The path of a name."""
    if "\\" not in name:
        steps = name.split("=")
        return steps[0] if len(steps) == 1 else tuple(steps)
    steps = [""]
    for i, part in enumerate(name.split("\\\\")):
        steps[-1] += "\\" if i else ""
        for j, piece in enumerate(part.split("\\=")):
            first, *more = piece.split("=")
            steps[-1] += "=" + first if j else first
            steps += more
    return steps[0] if len(steps) == 1 else tuple(steps)
