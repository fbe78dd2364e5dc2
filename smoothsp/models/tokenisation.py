"""Tokenisation of user input: words with character offsets, in chunks."""

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

# k-best decoding allocates memory for k outputs, however many exist.
MAX_LISTED, MAX_INT64 = 10**6, 2**63 - 1
# Number of batches that are taken from an iterable at once.
BATCHES_PER_CHUNK = 32


def _join_with_blanks(words: list[str]) -> TokenisedText:
    """Join words by blanks to a text, with their offsets."""
    offsets, start = [], 0
    for word in words:
        offsets.append((start, start + len(word)))
        start += len(word) + 1
    return TokenisedText(" ".join(words), words, offsets)


def as_list(sentences: str | Iterable[Any]) -> list[Any]:
    """Return sentences as a list: one text, texts, or lists of words.

    Raises
    ------
    TypeError
        For values other than words and texts.
    ValueError
        For a list of single words, which might be one sentence or many.
    """
    iterable = [sentences] if isinstance(sentences, str) else sentences
    if isinstance(iterable, Mapping | bytes) or not hasattr(iterable, "__iter__"):
        type_name = type(iterable).__name__
        raise TypeError(f"sentences: expected lists of words or texts, got {type_name}")
    listed = list(iterable)
    if len(listed) > 1 and all(
        isinstance(text, str) and len(text.split()) < 2 for text in listed
    ):
        raise ValueError(
            "sentences: expected sentences, got a list of single words; write "
            "[words] for one sentence, [[word], ...] for sentences of a word each"
        )
    return listed


def require_count(name: str, value: int, max_value: int = MAX_INT64) -> None:
    """Raise unless the value is an integer from 1 to ``max_value``."""
    if checks.as_positive_int(name, value) > max_value:
        got = value if value <= MAX_INT64 else "more than 64 bits hold"
        raise ValueError(f"{name}: expected at most {max_value}, got {got}")


def tokenise_chunks(
    sentences: Iterator[Any], tokenizer: str, batch_size: int
) -> Iterator[list[TokenisedText]]:
    """Yield tokenised sentences in chunks of 32 batches."""
    tokenise, are_texts, number = None, None, 0
    while chunk := list(
        islice(sentences, min(BATCHES_PER_CHUNK * batch_size, MAX_LISTED))
    ):
        if are_texts is None:
            are_texts = all(isinstance(sentence, str) for sentence in chunk)
            tokenise = make_tokenizer(tokenizer) if are_texts else None
        yield [
            tokenise_sentence(x, n, tokenise) for n, x in enumerate(chunk, start=number)
        ]
        number += len(chunk)


def tokenise_sentence(
    sentence: Any, number: int, tokenise: Callable[[str], TokenisedText] | None
) -> TokenisedText:
    """Check a sentence, and tokenise it if it is a text.

    ``number`` is its index for error messages. If ``tokenise`` is None, only lists of
    words are accepted.
    """
    if isinstance(sentence, str) and tokenise is not None:
        tokenised = tokenise(sentence)
    else:
        tokenised = _join_with_blanks(_require_word_list(sentence, number))
    try:
        tokenised.text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            "sentences: expected text, got half of a surrogate pair, "
            f"{error.object[error.start]!r}, at sentence {number}"
        ) from error
    return tokenised


def _require_word_list(sentence: Any, number: int) -> list[str]:
    if isinstance(sentence, str | Mapping) or not isinstance(sentence, Sequence):
        raise TypeError(
            "sentences: expected all of them lists of words, or all texts, got "
            f"{type(sentence).__name__} at sentence {number}"
        )
    for index, word in enumerate(sentence):
        if not isinstance(word, str):
            raise TypeError(
                f"sentences: expected words, got {type(word).__name__} at sentence "
                f"{number}, word {index}"
            )
        if not word:
            raise ValueError(
                "sentences: expected words, got an empty one at sentence "
                f"{number}, word {index}; leave it out"
            )
    return list(sentence)
