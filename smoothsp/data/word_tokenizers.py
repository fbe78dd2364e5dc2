"""Texts cut into words, each with its place in the text."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

__all__ = [
    "TOKENIZERS",
    "TREEBANK",
    "Offsets",
    "TokenisedText",
    "check_tokenizer",
    "make_tokenizer",
]

Offsets = tuple[int, int]
TREEBANK = "treebank"
TOKENIZERS = (TREEBANK, "blanks")


class TokenisedText(NamedTuple):
    """The words of a sentence, and where each stands in its text."""

    text: str
    words: list[str]
    places: list[Offsets]
    """First character, and the first one after it: ``text[start:end]`` is the word."""


def check_tokenizer(tokenizer: object) -> None:
    """Raise unless it names a way to cut texts."""
    if tokenizer not in TOKENIZERS:
        raise ValueError(
            f"tokenizer: expected {' or '.join(TOKENIZERS)}, got {tokenizer!r}"
        )


def make_tokenizer(tokenizer: str) -> Callable[[str], TokenisedText]:
    """Return the function that cuts a text into words.

    ``"treebank"`` cuts as the Penn Treebank does, by NLTK's ``NLTKWordTokenizer``;
    ``"blanks"`` cuts at white space.
    """
    check_tokenizer(tokenizer)
    if tokenizer != TREEBANK:
        return lambda text: _cut(text, _at_blanks(text))
    if find_spec("nltk") is None:
        raise ModuleNotFoundError(
            "sentences: expected lists of words, got text, which nltk cuts into words: "
            'pip install "smoothsp[models]"',
            name="nltk",
        )
    from nltk.tokenize import NLTKWordTokenizer

    spans = NLTKWordTokenizer().span_tokenize
    return lambda text: _cut(text, list(spans(text)))


def _cut(text: str, places: list[Offsets]) -> TokenisedText:
    return TokenisedText(text, [text[start:end] for start, end in places], places)


def _at_blanks(text: str) -> list[Offsets]:
    places, end = [], 0
    for word in text.split():
        start = text.index(word, end)
        end = start + len(word)
        places.append((start, end))
    return places
