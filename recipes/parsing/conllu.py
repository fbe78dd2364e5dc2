"""CoNLL-U files: dependency trees read, and written with other heads and labels.

A word is a line of ten columns parted by tabs, numbered from 1 in its sentence; lines
that begin with # are comments, those numbered 3-4 are tokens of several words, those
numbered 8.1 are empty nodes. A blank line ends a sentence. The tree is over the words;
all other lines are kept as they are. The relation of the root is ``root``; a treebank
may have another one, ``ROOT`` say, which is read as ``root``.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from corpora.column_files import blocks, form_of, words_in
from corpora.conllu_rows import words_of
from corpora.text_files import content_of, lines_of, name_of
from runs.failures import Failures

WORD, HEAD, LABEL, ENHANCED = 1, 6, 7, 8
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


def load(
    folder: str | Path, skip_bad: bool = False, root: str | None = None
) -> Treebank:
    """The treebank in a folder: the files that end in ``train`` and ``dev.conllu``."""
    folder = Path(folder)
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise FileNotFoundError(
            f"{folder}: expected a folder with a training and a development file, got"
            f" {found}. Give the folder that holds the files"
        )
    paths = (_only(folder, part) for part in ("train", "dev"))
    return Treebank(*(read(path, skip_bad, root) for path in paths))


def _only(folder: Path, part: str) -> Path:
    found = sorted(folder.glob(f"*{part}.conllu"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise FileNotFoundError(
            f"{folder}: expected one file whose name ends in {part}.conllu, got"
            f" {names}. Keep one treebank in the folder"
        )
    return found[0]


def read(
    path: str | Path, skip_bad: bool = False, root: str | None = None
) -> list[Sentence]:
    """The sentences of a file; with ``skip_bad`` those that are well formed.

    ``root`` is the relation of the root in the file, by default the one that all words
    with head 0 and no others have.
    """
    lines = lines_of(content_of(path, "a CoNLL-U file"), path)
    failures = Failures(skip_bad) if skip_bad else None
    root = root or _root_of(lines)
    if root != ROOT:
        print(
            f"{path}: {root}, the relation of the root, read as root", file=sys.stderr
        )
    found = _parsed(lines, str(path), True, failures, root)
    if failures:
        print(f"{path}: left out {failures.count} sentences", file=sys.stderr)
        failures.end(len(found), "sentences")
    return found


def read_words(source: str | Path, failures: Failures) -> list[Sentence] | list[str]:
    """Sentences to be parsed, from a file or from standard input (``-``).

    CoNLL-U, whose heads and labels are not looked at, or else what ``column_files``
    reads: columns, or running text, one sentence a line, which is returned as it is.
    """
    content = content_of(source, "a file of sentences", "--predict")
    name = name_of(source)
    lines = lines_of(content, name, strict=False)
    form = form_of(name, lines)
    if form.kind == "CoNLL-U" or (form.numbered and form.by == "\t" and not form.names):
        return _parsed(lines, name, False, failures)
    file = words_in(lines, name)
    for wrong in file.bad:
        failures.add(f"{name}, {wrong}")
    return file.texts or [of(s.words) for s in file.sentences]


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


def _parsed(
    lines: Sequence[str],
    name: str,
    trees: bool,
    failures: Failures | None = None,
    root: str = ROOT,
) -> list[Sentence]:
    sentences = []
    for first, block in blocks(lines):
        try:
            sentences.append(_sentence(block, first, trees, root))
        except ValueError as error:
            wrong = f"{name}, {error}"
            if failures is None:
                raise ValueError(wrong) from error
            failures.add(wrong)
    if not sentences and not failures:
        raise ValueError(
            f"{name}: expected at least one sentence, got none. Is this the right file,"
            " and was it copied whole?"
        )
    return sentences


def _root_of(lines: Sequence[str]) -> str:
    """The relation that all words with head 0 have and no others, or else root."""
    at_root, others = set(), set()
    for line in lines:
        fields = line.split("\t")
        if len(fields) > LABEL and fields[0].isdigit():
            own = at_root if fields[HEAD] == "0" else others
            own.add(fields[LABEL].split(":")[0])
    return at_root.pop() if len(at_root) == 1 and not at_root & others else ROOT


def _sentence(
    block: Sequence[str], first: int, trees: bool, root: str = ROOT
) -> Sentence:
    rows = list(words_of(block, first))
    words = [fields[WORD] for _, fields in rows]
    if not trees:
        return Sentence(words, [-1] * len(words), ["_"] * len(words), list(block))
    for number, fields in rows:
        if not NUMBER.fullmatch(fields[HEAD]):
            raise ValueError(
                f"line {number}: expected the number of a head in column {HEAD + 1},"
                f" got {fields[HEAD][:60]!r}"
            )
    where = [f"line {number}" for number, _ in rows]
    heads = [int(fields[HEAD]) for _, fields in rows]
    labels = [fields[LABEL] for _, fields in rows]
    _check_tree(heads, where)
    _check_labels(heads, labels, where, root)
    if root != ROOT:
        labels = [
            ROOT + label.removeprefix(root) if head == 0 else label
            for head, label in zip(heads, labels, strict=True)
        ]
    return Sentence(words, heads, labels, list(block))


def _check_tree(heads: list[int], where: list[str]) -> None:
    for word, head in enumerate(heads, start=1):
        if head > len(heads):
            raise ValueError(
                f"{where[word - 1]}: expected a head from 0 to {len(heads)}, got {head}"
            )
    for word, head in enumerate(heads, start=1):
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


def _check_labels(
    heads: list[int], labels: list[str], where: list[str], root: str
) -> None:
    """A parser gives the label of the root to one word, the other labels to others."""
    for head, label, place in zip(heads, labels, where, strict=True):
        if not label or (label.split(":")[0] == root) != (head == 0):
            expected = repr(root) if head == 0 else f"a label other than {root!r}"
            raise ValueError(
                f"{place}: expected {expected} in column {LABEL + 1} of a word with"
                f" head {head}, got {label!r}. If the relation of the root has another"
                " name, give --root NAME"
            )
