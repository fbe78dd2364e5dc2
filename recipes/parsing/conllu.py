"""CoNLL-U files: dependency trees read, and written with other heads and labels.

A word is a line of ten columns parted by tabs, numbered from 1 in its sentence; lines
that begin with # are comments, those numbered 3-4 are tokens of several words, those
numbered 8.1 are empty nodes. A blank line ends a sentence. The tree is over the words;
all other lines are kept as they are.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from corpora.tagged_files import lines_of

COLUMNS = 10
WORD, HEAD, LABEL, ENHANCED = 1, 6, 7, 8
RANGE = re.compile(r"([1-9][0-9]{0,8})-([1-9][0-9]{0,8})")
EMPTY = re.compile(r"([0-9]{1,9})\.[1-9][0-9]*")
NUMBER = re.compile(r"[0-9]{1,9}")
ROOT = "root"


@dataclass(frozen=True)
class Sentence:
    """Words from 1 on, their heads (0 is the root), and the labels of these arcs."""

    words: list[str]
    heads: list[int]
    labels: list[str]
    lines: list[str]
    """As in the file, without line ends."""


@dataclass(frozen=True)
class Treebank:
    train: list[Sentence]
    dev: list[Sentence]


def load(folder: str | Path) -> Treebank:
    """The treebank in a folder: the files that end in ``train`` and ``dev.conllu``."""
    folder = Path(folder)
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise FileNotFoundError(
            f"{folder}: expected a folder with a training and a development file, got"
            f" {found}. Give the folder that holds the files"
        )
    return Treebank(*(read(_only(folder, part)) for part in ("train", "dev")))


def _only(folder: Path, part: str) -> Path:
    found = sorted(folder.glob(f"*{part}.conllu"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise FileNotFoundError(
            f"{folder}: expected one file whose name ends in {part}.conllu, got"
            f" {names}. Keep one treebank in the folder"
        )
    return found[0]


def read(path: str | Path, trees: bool = True) -> list[Sentence]:
    """The sentences of a file; with ``trees=False`` heads may be missing."""
    path = Path(path)
    return parse(path.read_bytes(), str(path), trees)


def read_words(source: str | Path) -> list[Sentence]:
    """Sentences to be parsed, from a file or from standard input (``-``).

    CoNLL-U, whose heads and labels are not looked at, or else one sentence a line, its
    words parted by spaces.
    """
    if str(source) == "-":
        name, content = "standard input", sys.stdin.buffer.read()
    else:
        name = str(source)
        if not Path(source).exists() or Path(source).is_dir():
            found = "a folder" if Path(source).is_dir() else "nothing"
            raise FileNotFoundError(
                f"predict: expected a file of sentences, got {found} at {name}. Give a"
                " file, or - for standard input"
            )
        content = Path(source).read_bytes()
    lines = lines_of(content, name)
    if any("\t" in line for line in lines):
        return _parsed(lines, name, trees=False)
    found = [of(words) for words in map(str.split, lines) if words]
    if not found:
        raise ValueError(f"{name}: expected sentences, got none. Give one a line")
    return found


def of(words: Sequence[str], heads: Sequence[int] = (), labels=()) -> Sentence:
    """A sentence that comes from no file."""
    lines = [
        "\t".join([str(number), word, *"________"])
        for number, word in enumerate(words, start=1)
    ]
    heads = heads or [-1] * len(words)
    labels = labels or ["_"] * len(words)
    sentence = Sentence(list(words), list(heads), list(labels), lines)
    return with_tree(sentence, heads, labels) if heads[0] >= 0 else sentence


def with_tree(
    sentence: Sentence, heads: Sequence[int], labels: Sequence[str]
) -> Sentence:
    """The same with another tree. Enhanced dependencies, which it has not, go."""
    pairs = iter(zip(heads, labels, strict=True))
    lines = []
    for line in sentence.lines:
        fields = line.split("\t")
        if not fields[0].isdigit():
            lines.append(line)
            continue
        head, label = next(pairs)
        if (fields[HEAD], fields[LABEL]) != (str(head), label):
            fields[HEAD], fields[LABEL], fields[ENHANCED] = str(head), label, "_"
        lines.append("\t".join(fields))
    return Sentence(sentence.words, list(heads), list(labels), lines)


def text(sentences: Sequence[Sentence]) -> str:
    """As it stands in a file."""
    return "".join("\n".join([*s.lines, "", ""]) for s in sentences)


def parse(content: bytes, name: str, trees: bool = True) -> list[Sentence]:
    return _parsed(lines_of(content, name), name, trees)


def _parsed(lines: Sequence[str], name: str, trees: bool) -> list[Sentence]:
    sentences, block, first = [], [], 1
    for number, line in enumerate([*lines, ""], start=1):
        if line.strip():
            block.append(line)
            continue
        if any(not row.startswith("#") for row in block):
            sentences.append(_sentence(block, name, first, trees))
        elif block:
            raise ValueError(
                f"{name}, line {first}: expected words after the comments, got a blank"
                " line"
            )
        block, first = [], number + 1
    if not sentences:
        raise ValueError(
            f"{name}: expected at least one sentence, got none. Is this the right file,"
            " and was it copied whole?"
        )
    return sentences


def _sentence(block: list[str], name: str, first: int, trees: bool) -> Sentence:
    words, heads, labels, where = [], [], [], []
    last = 0  # the last word of a token of several words
    for number, line in enumerate(block, start=first):
        if line.startswith("#"):
            continue
        place = f"{name}, line {number}"
        fields = line.split("\t")
        if len(fields) != COLUMNS:
            raise ValueError(
                f"{place}: expected {COLUMNS} columns parted by tabs, got {len(fields)}"
                f" ({line[:60]!r})"
            )
        if several := RANGE.fullmatch(fields[0]):
            begin, end = map(int, several.groups())
            if not (last < begin == len(words) + 1 <= end):
                raise ValueError(
                    f"{place}: expected a token that begins with word"
                    f" {len(words) + 1}, got {fields[0]}"
                )
            last = end
            continue
        if empty := EMPTY.fullmatch(fields[0]):
            if int(empty[1]) != len(words):
                raise ValueError(
                    f"{place}: expected an empty node {len(words)}.x, got {fields[0]}"
                )
            continue
        if fields[0] != str(len(words) + 1):
            raise ValueError(
                f"{place}: expected word {len(words) + 1}, got {fields[0]!r}"
            )
        if not fields[WORD]:
            raise ValueError(f"{place}: expected a word, got an empty column")
        if trees and not NUMBER.fullmatch(fields[HEAD]):
            raise ValueError(
                f"{place}: expected the number of a head in column {HEAD + 1}, got"
                f" {fields[HEAD][:60]!r}"
            )
        words.append(fields[WORD])
        heads.append(int(fields[HEAD]) if trees else -1)
        labels.append(fields[LABEL] if trees else "_")
        where.append(place)
    if last > len(words):
        raise ValueError(
            f"{name}, line {first + len(block) - 1}: expected word {len(words) + 1} of"
            f" a token that ends with word {last}, got the end of the sentence"
        )
    if trees:
        _check_tree(heads, where)
        _check_labels(heads, labels, where)
    return Sentence(words, heads, labels, block)


def _check_tree(heads: list[int], where: list[str]) -> None:
    for word, head in enumerate(heads, start=1):
        if head > len(heads):
            raise ValueError(
                f"{where[word - 1]}: expected a head from 0 to {len(heads)}, got {head}"
            )
        above = head
        for _ in heads:
            if above:
                above = heads[above - 1]
        if above:
            raise ValueError(
                f"{where[word - 1]}: expected heads that lead to the root, got a cycle"
                f" that word {word} hangs from"
            )
    roots = [word for word, head in enumerate(heads, start=1) if head == 0]
    if len(roots) != 1:
        raise ValueError(
            f"{where[roots[1] - 1]}: expected one word with head 0, got {len(roots)}"
        )


def _check_labels(heads: list[int], labels: list[str], where: list[str]) -> None:
    """A parser gives the label of the root to one word, the other labels to others."""
    for head, label, place in zip(heads, labels, where, strict=True):
        if not label or (label.split(":")[0] == ROOT) != (head == 0):
            expected = repr(ROOT) if head == 0 else f"a label other than {ROOT!r}"
            raise ValueError(
                f"{place}: expected {expected} in column {LABEL + 1} of a word with"
                f" head {head}, got {label!r}"
            )
