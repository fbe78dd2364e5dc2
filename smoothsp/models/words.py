"""Texts cut into words, each with its place in the text."""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

__all__ = ["TOKENIZERS", "Words", "cutter", "words_of"]

Place = tuple[int, int]
TREEBANK = "treebank"
TOKENIZERS = (TREEBANK, "blanks")


class Words(NamedTuple):
    """The words of a sentence, and where each stands in its text."""

    text: str
    words: list[str]
    places: list[Place]
    """First character, and the first one after it: ``text[start:end]`` is the word."""


def cutter(tokenizer: str) -> Callable[[str], Words]:
    """Return the function that cuts a text into words.

    ``"treebank"`` cuts as the Penn Treebank does, by NLTK's ``NLTKWordTokenizer``;
    ``"blanks"`` cuts at white space.
    """
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


def _cut(text: str, places: list[Place]) -> Words:
    return Words(text, [text[start:end] for start, end in places], places)


def _at_blanks(text: str) -> list[Place]:
    places, end = [], 0
    for word in text.split():
        start = text.index(word, end)
        end = start + len(word)
        places.append((start, end))
    return places


def _joined(words: list[str]) -> Words:
    """Words of no text: that of the words with a blank between them."""
    places, start = [], 0
    for word in words:
        places.append((start, start + len(word)))
        start += len(word) + 1
    return Words(" ".join(words), words, places)


def words_of(sentence: Any, number: int, cut: Callable[[str], Words] | None) -> Words:
    """Check a sentence, and cut it if it is a text.

    ``number`` is its place among all, for messages; ``cut`` is None where all have to
    be lists of words.
    """
    if isinstance(sentence, str) and cut is not None:
        found = cut(sentence)
    else:
        found = _joined(_checked(sentence, number))
    try:
        found.text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            "sentences: expected text, got half of a surrogate pair, "
            f"{error.object[error.start]!r}, at sentence {number}"
        ) from error
    return found


def _checked(sentence: Any, number: int) -> list[str]:
    if isinstance(sentence, str | Mapping) or not isinstance(sentence, Sequence):
        raise TypeError(
            "sentences: expected all of them lists of words, or all texts, got "
            f"{type(sentence).__name__} at sentence {number}"
        )
    for place, word in enumerate(sentence):
        if not isinstance(word, str):
            raise TypeError(
                f"sentences: expected words, got {type(word).__name__} at sentence "
                f"{number}, word {place}"
            )
        if not word:
            raise ValueError(
                "sentences: expected words, got an empty one at sentence "
                f"{number}, word {place}; leave it out"
            )
    return list(sentence)
