r"""Features that tokens call by name, and the columns of these names.

A feature is a path with a value, as in sklearn-crfsuite: ``{"word": "Ada"}`` and
``{"word": ["Ada"]}`` are the path (word, Ada) with 1, ``{"length": 3}`` is (length)
with 3, ``{"next": {"word": "met", "shape": {"x": 2}}}`` is (next, word, met) with 1 and
(next, shape, x) with 2. A token that is a list of strings has each of them with 1.

The name of a path is its steps joined by ``=``, each ``=`` and ``\`` within a step
after a ``\``: different paths have different names.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from smoothsp.linear.problems._rows import Rows

_SPECIAL = re.compile(r"([=\\])")
_STEP = re.compile(r"(?:[^=\\]|\\.)*", re.DOTALL)
_PLAIN = frozenset({bool, int, float})


class Columns:
    """A step of all paths: the columns of those that end, and the steps that follow."""

    def __init__(self) -> None:
        self.ends: dict[str, int] = {}
        self.onward: dict[str, Columns] = {}

    @classmethod
    def of(cls, names: Iterable[str], escaped: bool) -> "Columns":
        """Columns of names, in their order.

        Names that are not ``escaped`` are those of files from before paths were: such a
        name is one step, and also any two that ``=`` joins to it.
        """
        columns = cls()
        for column, name in enumerate(names):
            paths = [_steps(name)] if escaped else _readings(name)
            for *first, last in paths:
                node = columns
                for step in first:
                    node = node.onward.setdefault(step, cls())
                node.ends[last] = column
        return columns


_NOWHERE = Columns()


class _Numbers(dict[str, int]):
    """A mapping that gives each new key the next number."""

    def __init__(self, following: Iterator[int]) -> None:
        self._following = following

    def get(self, key: str, default: Any = None) -> Any:
        """The number of a key."""
        if key not in self:
            self[key] = next(self._following)
        return self[key]


class _Growing(Columns):
    """Columns, numbered in the order of their first use."""

    def __init__(self, following: Iterator[int]) -> None:
        self._following = following
        self.ends = _Numbers(following)
        self.onward = _Onward(following)

    def paths(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """All paths that were used, and their columns."""
        for step, column in self.ends.items():
            yield (step,), column
        for step, node in self.onward.items():
            assert isinstance(node, _Growing)
            for path, column in node.paths():
                yield (step, *path), column


class _Onward(dict[str, Columns]):
    def __init__(self, following: Iterator[int]) -> None:
        self._following = following

    def get(self, key: str, default: Any = None) -> Any:
        """The node of a key, a new one if there was none."""
        if key not in self:
            self[key] = _Growing(self._following)
        return self[key]


def learn(X: Sequence[Sequence[Any]]) -> tuple[list[str], Rows]:
    """Every name that occurs, in alphabetical order, and the rows of all tokens."""
    following = iter(range(2**31 - 1))
    columns = _Growing(following)
    rows = rows_by_name(X, columns, 0)
    names = {name_of(path): column for path, column in columns.paths()}
    if not names:
        raise ValueError("X: expected at least one feature, got none")
    order = sorted(names)
    place = np.empty(len(order), dtype=np.int32)
    place[[names[name] for name in order]] = np.arange(len(order))
    return order, rows._replace(indices=place[rows.indices], columns=len(order))


def rows_by_name(X: Sequence[Sequence[Any]], columns: Columns, count: int) -> Rows:
    """Rows of ``count`` columns, a token each; what has no column is left out.

    Columns do not rise within a row, and may occur twice.
    """
    indices: list[int] = []
    values: list[float] = []
    indptr = [0]
    for token in chain.from_iterable(X):
        _add(token, columns, indices, values)
        indptr.append(len(indices))
    return Rows(
        np.array(indptr, dtype=np.int64),
        np.array(indices, dtype=np.int32),
        np.array(values, dtype=np.float64),
        count,
    )


def _add(token: Any, columns: Columns, indices: list[int], values: list[float]) -> None:
    ends, onward = columns.ends, columns.onward
    if type(token) is not dict and not isinstance(token, Mapping):
        if isinstance(token, str):
            raise TypeError(f"X: expected the features of each token, got {token!r}")
        for name in token:
            if not isinstance(name, str):
                raise TypeError(f"X: expected names of features, got {name!r}")
            column = ends.get(name)
            if column is not None:
                indices.append(column)
                values.append(1.0)
        return
    for name, value in token.items():
        key = name if type(name) is str else str(name)
        kind = type(value)
        if kind is str:
            column = onward.get(key, _NOWHERE).ends.get(value)
            value = 1.0
        elif kind in _PLAIN or isinstance(value, int | float | np.number | np.bool_):
            column = ends.get(key)
        else:
            inner = (value,) if isinstance(value, str) else value
            if not isinstance(inner, Mapping | list | tuple | set | frozenset):
                raise TypeError(
                    "X: expected a string, a number, a list of strings or a dict as"
                    f" feature, got {value!r} for {name!r}"
                )
            _add(inner, onward.get(key, _NOWHERE), indices, values)
            continue
        if column is not None and value:
            indices.append(column)
            values.append(value)


def name_of(path: Iterable[str]) -> str:
    """The name of a path."""
    return "=".join(_SPECIAL.sub(r"\\\1", step) for step in path)


def _steps(name: str) -> list[str]:
    """The path of a name."""
    steps, at = [], 0
    while at <= len(name):
        found = _STEP.match(name, at)
        assert found is not None
        steps.append(re.sub(r"\\(.)", r"\1", found[0], flags=re.DOTALL))
        at = found.end() + 1
    return steps


def _readings(name: str) -> list[list[str]]:
    """All paths that had this name before names were escaped."""
    cuts = [k for k, letter in enumerate(name) if letter == "="]
    return [[name], *([name[:k], name[k + 1 :]] for k in cuts)]
