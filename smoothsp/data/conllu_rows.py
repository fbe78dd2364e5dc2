"""The rule of CoNLL-U for the lines of a sentence: which are words, in which order.

Comments come first. Words are numbered from 1; 3-4 numbers a token of several words,
8.1 an empty node. Readers of tags and of trees share this rule.
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
RANGE = re.compile(r"([1-9][0-9]{0,8})-([1-9][0-9]{0,8})")
EMPTY = re.compile(r"([0-9]{1,9})\.([1-9][0-9]{0,8})")


def iter_word_rows(
    block: Sequence[str], first: int, names: Sequence[str] = NAMES
) -> Iterator[tuple[int, list[str]]]:
    """Yield line and columns of each word of a sentence that begins on ``first``.

    Raises
    ------
    ValueError
        For a line that breaks the rule; the message begins with the line's number.
    """
    words, last, nodes, begun = 0, 0, 0, False
    identity, form = names.index("ID"), names.index("FORM")
    for number, line in enumerate(block, start=first):
        if line.startswith("#"):
            if begun:
                raise ValueError(
                    f"line {number}: expected comments before the first word only, got"
                    f" {line[:60]!r}"
                )
            continue
        begun = True
        fields = line.split("\t")
        if len(fields) != len(names):
            raise ValueError(
                f"line {number}: expected {len(names)} columns parted by tabs, got"
                f" {len(fields)} ({line[:60]!r})"
            )
        found = fields[identity]
        if several := RANGE.fullmatch(found):
            begin, end = map(int, several.groups())
            if not (last < begin == words + 1 < end):
                raise ValueError(
                    f"line {number}: expected a token that begins with word"
                    f" {words + 1}, got {found}"
                )
            last, nodes = end, 0
        elif empty := EMPTY.fullmatch(found):
            if (int(empty[1]), int(empty[2])) != (words, nodes + 1):
                raise ValueError(
                    f"line {number}: expected an empty node {words}.{nodes + 1}, got"
                    f" {found}"
                )
            nodes += 1
        elif found != str(words + 1):
            raise ValueError(
                f"line {number}: expected word {words + 1}, got {found[:60]!r}"
            )
        elif not fields[form].strip(" "):
            raise ValueError(f"line {number}: expected a word, got an empty column")
        else:
            words, nodes = words + 1, 0
            yield number, fields
    if last > words:
        raise ValueError(
            f"line {first + len(block) - 1}: expected word {words + 1} of a token that"
            f" ends with word {last}, got the end of the sentence"
        )
    if not words:
        raise ValueError(f"line {first}: expected the words of a sentence, got none")
