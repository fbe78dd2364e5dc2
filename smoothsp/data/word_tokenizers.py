"""Word tokenizers: words of a text with their character offsets."""

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
    """A text, its words and their character offsets."""

    text: str
    words: list[str]
    offsets: list[Offsets]
    """Start and end of each word: ``text[start:end]`` is the word."""


def check_tokenizer(tokenizer: object) -> None:
    """Raise unless ``tokenizer`` names a word tokenizer."""
    if tokenizer not in TOKENIZERS:
        raise ValueError(
            f"tokenizer: expected {' or '.join(TOKENIZERS)}, got {tokenizer!r}"
        )


def make_tokenizer(tokenizer: str) -> Callable[[str], TokenisedText]:
    """Return the function that splits a text into words.

    ``"treebank"`` splits by NLTK's ``NLTKWordTokenizer``, as the Penn Treebank does;
    ``"blanks"`` splits at white space.
    """
    check_tokenizer(tokenizer)
    if tokenizer != TREEBANK:
        return lambda text: _tokenise_at(text, _split_at_blanks(text))
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


def _split_at_blanks(text: str) -> list[Offsets]:
    offsets, end = [], 0
    for word in text.split():
        start = text.index(word, end)
        end = start + len(word)
        offsets.append((start, end))
    return offsets
