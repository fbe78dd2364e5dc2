"""Integer codes of token strings, so that each distinct string is processed once."""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.features._template_parser import Source

# Sentences encoded at a time: bounds the memory of an iterator.
_SENTENCES_PER_BATCH = 1 << 12
_REPEATED = re.compile(r"(.)\1+")
_ASCII_SHAPE_TABLE = str.maketrans(
    {
        **dict.fromkeys(map(chr, range(ord("A"), ord("Z") + 1)), "X"),
        **dict.fromkeys(map(chr, range(ord("a"), ord("z") + 1)), "x"),
        **dict.fromkeys("0123456789", "d"),
    }
)


def shape(text: str) -> str:
    """Replace capitals by X, other letters by x and digits by d."""
    if text.isascii():
        return text.translate(_ASCII_SHAPE_TABLE)
    return "".join(
        "X" if c.isupper() else "x" if c.isalpha() else "d" if c.isdigit() else c
        for c in text
    )


def short_shape(text: str) -> str:
    """Return the shape with runs of a character reduced to one."""
    return _REPEATED.sub(r"\1", shape(text))


def _make_prefix_function(length: int) -> Callable[[str], str | None]:
    return lambda text: text[:length] if len(text) >= length else None


def _make_suffix_function(length: int) -> Callable[[str], str | None]:
    return lambda text: text[-length:] if len(text) >= length else None


def make_string_function(name: str, number: int) -> Callable[[str], str | None]:
    """Return the string function ``name``; it returns None for no value."""
    if name == "prefix":
        return _make_prefix_function(number)
    if name == "suffix":
        return _make_suffix_function(number)
    return {"lower": str.lower, "shape": shape, "short_shape": short_shape}[name]


def apply_functions(source: Source, strings: Sequence[str]) -> list[str | None]:
    """Apply the functions of a source to each string; None for no value."""
    values: list[str | None] = list(strings)
    for name, number in source.functions:
        function = make_string_function(name, number)
        values = [None if v is None else function(v) for v in values]
    return values


def stable_hash(text: str) -> int:
    """Return a 64-bit hash that is equal in all processes and machines."""
    # surrogates: undecodable bytes of a file must hash, too
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


class EncodedTokens:
    """Sentences encoded by column: distinct ``strings``, and ``codes`` of positions.

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
        code_chunks: dict[str, list[NDArray[np.int32]]] = {name: [] for name in columns}
        sentence_iterator = iter(
            [sentences] if isinstance(sentences, str) else sentences
        )
        while batch := list(islice(sentence_iterator, _SENTENCES_PER_BATCH)):
            if any(isinstance(s, str) for s in batch):
                raise TypeError(
                    "sentences: expected sequences of tokens, got a string. Split it"
                    " into tokens, and put a single sentence in a list"
                )
            sentence_ends = self.offsets[-1] + np.cumsum(list(map(len, batch)))
            first = int(self.offsets[-1])
            self.offsets = np.concatenate([self.offsets, sentence_ends])
            tokens = list(chain.from_iterable(batch))
            if len(columns) == 1 and any(isinstance(token, str) for token in tokens):
                tokens = [(t,) if isinstance(t, str) else t for t in tokens]
            self._check_field_counts(tokens, columns, first)
            for name, field in zip(columns, zip(*tokens, strict=True), strict=False):
                table, num_previous = tables[name], len(tables[name])
                # setdefault with the size of the table numbers new strings
                code_of = table.setdefault
                codes = [code_of(string, len(table)) for string in field]
                code_chunks[name].append(np.array(codes, dtype=np.int32))
                # only new strings are validated: each distinct string once
                new = islice(table, num_previous, None)
                non_string = next((s for s in new if not isinstance(s, str)), None)
                if non_string is not None:
                    position = first + field.index(non_string)
                    raise TypeError(
                        f"sentences: expected strings, got {non_string!r} as {name} of"
                        f" {self._describe_position(position)}"
                    )
        empty = np.zeros(0, np.int32)
        self.strings = {name: list(table) for name, table in tables.items()}
        self.codes = {
            name: np.concatenate([empty, *chunks])
            for name, chunks in code_chunks.items()
        }

    def _describe_position(self, position: int) -> str:
        sentence = int(np.searchsorted(self.offsets, position, side="right")) - 1
        return f"token {position - int(self.offsets[sentence])} of sentence {sentence}"

    def _check_field_counts(
        self, tokens: list[Any], columns: tuple[str, ...], first_position: int
    ) -> None:
        try:
            sizes = set(map(len, tokens))
        except TypeError:
            sizes = {-1}
        has_strings = any(isinstance(token, str) for token in tokens)
        if sizes <= {len(columns)} and not has_strings:
            return
        expected = f"{len(columns)} strings, one a column ({', '.join(columns)}),"
        for position, token in enumerate(tokens, first_position):
            is_sequence = not isinstance(token, str) and hasattr(token, "__len__")
            if not is_sequence or len(token) != len(columns):
                raise ValueError(
                    f"sentences: expected {expected} in each token, got {token!r} at"
                    f" {self._describe_position(position)}"
                )
