"""CoNLL-U rules for the lines of a sentence: comments, words, tokens, empty nodes.

Comments come first. Words are numbered from 1; ``3-4`` is a multi-word token, ``8.1``
an empty node. Readers of tags and of trees share these rules.
"""

import re
from collections.abc import Iterator, Sequence

__all__ = ["NAMES", "iter_word_rows"]

NAMES = (
    "ID",
    "FORM",
    "LEMMA",
    "UPOS",
    "XPOS",
    "FEATS",
    "HEAD",
    "DEPREL",
    "DEPS",
    "MISC",
)
TOKEN_RANGE = re.compile(r"([1-9][0-9]{0,8})-([1-9][0-9]{0,8})")
EMPTY_NODE = re.compile(r"([0-9]{1,9})\.([1-9][0-9]{0,8})")


def iter_word_rows(
    block: Sequence[str], first: int, names: Sequence[str] = NAMES
) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and columns of each word of a sentence.

    ``first`` is the line number of the block.

    Raises
    ------
    ValueError
        For a line that breaks the rules; the message begins with the line number.
    """
    num_words, last_of_token, num_empty_nodes, has_started = 0, 0, 0, False
    identity, form = names.index("ID"), names.index("FORM")
    for number, line in enumerate(block, start=first):
        if line.startswith("#"):
            if has_started:
                raise ValueError(
                    f"line {number}: expected comments before the first word only, got"
                    f" {line[:60]!r}"
                )
            continue
        has_started = True
        fields = line.split("\t")
        if len(fields) != len(names):
            raise ValueError(
                f"line {number}: expected {len(names)} columns separated by tabs, got"
                f" {len(fields)} ({line[:60]!r})"
            )
        identifier = fields[identity]
        # A token must start at the next word, after the end of the previous token.
        if token_range := TOKEN_RANGE.fullmatch(identifier):
            begin, end = map(int, token_range.groups())
            if not (last_of_token < begin == num_words + 1 < end):
                raise ValueError(
                    f"line {number}: expected a token that begins with word"
                    f" {num_words + 1}, got {identifier}"
                )
            last_of_token, num_empty_nodes = end, 0
        elif empty_node := EMPTY_NODE.fullmatch(identifier):
            if (int(empty_node[1]), int(empty_node[2])) != (
                num_words,
                num_empty_nodes + 1,
            ):
                raise ValueError(
                    f"line {number}: expected an empty node"
                    f" {num_words}.{num_empty_nodes + 1}, got {identifier}"
                )
            num_empty_nodes += 1
        elif identifier != str(num_words + 1):
            raise ValueError(
                f"line {number}: expected word {num_words + 1}, got {identifier[:60]!r}"
            )
        elif not fields[form].strip(" "):
            raise ValueError(f"line {number}: expected a word, got an empty column")
        else:
            num_words, num_empty_nodes = num_words + 1, 0
            yield number, fields
    if last_of_token > num_words:
        raise ValueError(
            f"line {first + len(block) - 1}: expected word {num_words + 1} of a token"
            f" that ends with word {last_of_token}, got the end of the sentence"
        )
    if not num_words:
        raise ValueError(f"line {first}: expected the words of a sentence, got none")
