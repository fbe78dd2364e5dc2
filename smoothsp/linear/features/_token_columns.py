"""Columns of strings as codes, and what functions make of each distinct string once."""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.features._template_parser import Source

# Sentences that are read at once.
_AT_ONCE = 1 << 12
_RUN = re.compile(r"(.)\1+")
_PLAIN = str.maketrans(
    {
        **dict.fromkeys(map(chr, range(ord("A"), ord("Z") + 1)), "X"),
        **dict.fromkeys(map(chr, range(ord("a"), ord("z") + 1)), "x"),
        **dict.fromkeys("0123456789", "d"),
    }
)


def shape(text: str) -> str:
    """Capitals as X, other letters as x, digits as d; the rest stays."""
    if text.isascii():
        return text.translate(_PLAIN)
    return "".join(
        "X" if c.isupper() else "x" if c.isalpha() else "d" if c.isdigit() else c
        for c in text
    )


def short_shape(text: str) -> str:
    """The shape with each run of one character as a single one."""
    return _RUN.sub(r"\1", shape(text))


def _prefix(length: int) -> Callable[[str], str | None]:
    return lambda text: text[:length] if len(text) >= length else None


def _suffix(length: int) -> Callable[[str], str | None]:
    return lambda text: text[-length:] if len(text) >= length else None


def function(name: str, number: int) -> Callable[[str], str | None]:
    """The function of a template; None is no value."""
    if name == "prefix":
        return _prefix(number)
    if name == "suffix":
        return _suffix(number)
    return {"lower": str.lower, "shape": shape, "short_shape": short_shape}[name]


def apply_functions(source: Source, strings: Sequence[str]) -> list[str | None]:
    """Values of the source's functions for each string of its column."""
    values: list[str | None] = list(strings)
    for name, number in source.functions:
        of = function(name, number)
        values = [None if v is None else of(v) for v in values]
    return values


def stable_hash(text: str) -> int:
    """64 bits that depend on the text alone, the same in every process."""
    found = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(found.digest(), "little")


class EncodedTokens:
    """Sentences as codes: of each column its distinct strings, and which where.

    Parameters
    ----------
    sentences
        Sequences of tokens, or an iterator of such. A token has one string a column;
        with one column it may be the string itself.
    columns
        Their names.
    """

    def __init__(
        self, sentences: Iterable[Sequence[Any]], columns: tuple[str, ...]
    ) -> None:
        self.offsets: NDArray[np.int64] = np.zeros(1, np.int64)
        tables: dict[str, dict[str, int]] = {name: {} for name in columns}
        parts: dict[str, list[NDArray[np.int32]]] = {name: [] for name in columns}
        several = iter([sentences] if isinstance(sentences, str) else sentences)
        while some := list(islice(several, _AT_ONCE)):
            if any(isinstance(s, str) for s in some):
                raise TypeError(
                    "sentences: expected sequences of tokens, got a string. Split it"
                    " into tokens, and put a single sentence in a list"
                )
            ends = self.offsets[-1] + np.cumsum(list(map(len, some)))
            first = int(self.offsets[-1])
            self.offsets = np.concatenate([self.offsets, ends])
            tokens = list(chain.from_iterable(some))
            if len(columns) == 1 and any(isinstance(token, str) for token in tokens):
                tokens = [(t,) if isinstance(t, str) else t for t in tokens]
            self._check(tokens, columns, first)
            for name, field in zip(columns, zip(*tokens, strict=True), strict=False):
                table, known = tables[name], len(tables[name])
                number = table.setdefault
                codes = [number(string, len(table)) for string in field]
                parts[name].append(np.array(codes, dtype=np.int32))
                new = islice(table, known, None)
                strange = next((s for s in new if not isinstance(s, str)), None)
                if strange is not None:
                    at = first + field.index(strange)
                    raise TypeError(
                        f"sentences: expected strings, got {strange!r} as {name} of"
                        f" {self._place(at)}"
                    )
        none = np.zeros(0, np.int32)
        self.strings = {name: list(table) for name, table in tables.items()}
        self.codes = {n: np.concatenate([none, *found]) for n, found in parts.items()}

    def _place(self, position: int) -> str:
        sentence = int(np.searchsorted(self.offsets, position, side="right")) - 1
        return f"token {position - int(self.offsets[sentence])} of sentence {sentence}"

    def _check(self, tokens: list[Any], columns: tuple[str, ...], first: int) -> None:
        try:
            sizes = set(map(len, tokens))
        except TypeError:
            sizes = {-1}
        texts = any(isinstance(token, str) for token in tokens)
        if sizes <= {len(columns)} and not texts:
            return
        wanted = f"{len(columns)} strings, one a column ({', '.join(columns)}),"
        for position, token in enumerate(tokens, first):
            fine = not isinstance(token, str) and hasattr(token, "__len__")
            if not fine or len(token) != len(columns):
                raise ValueError(
                    f"sentences: expected {wanted} in each token, got {token!r} at"
                    f" {self._place(position)}"
                )
