"""Texts cut into words, each with its place in the text."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from smoothsp.data.word_tokenizers import (
    TOKENIZERS,
    TREEBANK,
    TokenisedText,
    make_tokenizer,
)
from smoothsp.oracles._inference import checks

__all__ = [
    "MAX_LISTED",
    "TOKENIZERS",
    "TREEBANK",
    "TokenisedText",
    "as_list",
    "make_tokenizer",
    "tokenise_chunks",
]
__all__ += ["require_count", "tokenise_sentence"]

# Memory for so many answers is taken before it is known how many there are.
MAX_LISTED, MOST_ROWS = 10**6, 2**63 - 1
# Batches of sentences that are taken from an iterable at once.
PART = 32


def _joined(words: list[str]) -> TokenisedText:
    """Words of no text: that of the words with a blank between them."""
    places, start = [], 0
    for word in words:
        places.append((start, start + len(word)))
        start += len(word) + 1
    return TokenisedText(" ".join(words), words, places)


def as_list(sentences: str | Iterable[Any]) -> list[Any]:
    """Return sentences as a list: of one text, of texts, or of lists of words.

    Raises
    ------
    TypeError
        For values other than words and texts.
    ValueError
        For a list of single words, which might be one sentence or many.
    """
    given = [sentences] if isinstance(sentences, str) else sentences
    if isinstance(given, Mapping | bytes) or not hasattr(given, "__iter__"):
        found = type(given).__name__
        raise TypeError(f"sentences: expected lists of words or texts, got {found}")
    listed = list(given)
    if len(listed) > 1 and all(
        isinstance(text, str) and len(text.split()) < 2 for text in listed
    ):
        raise ValueError(
            "sentences: expected sentences, got a list of single words; write "
            "[words] for one sentence, [[word], ...] for sentences of a word each"
        )
    return listed


def require_count(name: str, value: int, most: int = MOST_ROWS) -> None:
    """Raise unless the value is an integer from 1 to ``most``."""
    if checks.as_positive_int(name, value) > most:
        got = value if value <= MOST_ROWS else "more than 64 bits hold"
        raise ValueError(f"{name}: expected at most {most}, got {got}")


def tokenise_chunks(
    sentences: Iterator[Any], tokenizer: str, batch_size: int
) -> Iterator[list[TokenisedText]]:
    """Yield the words of sentences, of so many at once as fill 32 batches."""
    cut, texts, number = None, None, 0
    while part := list(islice(sentences, min(PART * batch_size, MAX_LISTED))):
        if texts is None:
            texts = all(isinstance(sentence, str) for sentence in part)
            cut = make_tokenizer(tokenizer) if texts else None
        yield [tokenise_sentence(x, n, cut) for n, x in enumerate(part, start=number)]
        number += len(part)


def tokenise_sentence(
    sentence: Any, number: int, cut: Callable[[str], TokenisedText] | None
) -> TokenisedText:
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
