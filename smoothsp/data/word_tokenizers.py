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
    offsets: list[Offsets]
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
        return lambda text: _tokenise_at(text, _find_blank_separated_words(text))
    if find_spec("nltk") is None:
        raise ModuleNotFoundError(
            "sentences: expected lists of words, got text, which nltk cuts into words: "
            'pip install "smoothsp[models]"',
            name="nltk",
        )
    from nltk.tokenize import NLTKWordTokenizer

    spans = NLTKWordTokenizer().span_tokenize
    return lambda text: _tokenise_at(text, list(spans(text)))


def _tokenise_at(text: str, offsets: list[Offsets]) -> TokenisedText:
    return TokenisedText(text, [text[start:end] for start, end in offsets], offsets)


def _find_blank_separated_words(text: str) -> list[Offsets]:
    offsets, end = [], 0
    for word in text.split():
        start = text.index(word, end)
        end = start + len(word)
        offsets.append((start, end))
    return offsets
