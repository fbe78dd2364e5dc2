"""Corpora of tagged words: their files, their tagging schemes, and words to be tagged.

``tagged_files`` says what a file may look like. Three schemes are understood, all read
as conlleval reads them:

- ``IOB1``: ``I-`` throughout; ``B-`` only where a span touches another of its type;
- ``BIO`` (IOB2): ``B-`` on the first word of every span, ``I-`` on the others;
- ``BIOES``: as BIO, with ``E-`` on the last word and ``S-`` on a span of one word.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from corpora import partial_tags
from corpora.tagged_files import (
    AS_USUAL,
    WORDS,
    Layout,
    Sentence,
    are_strings,
    fields_of,
    is_tag,
    kind_of,
    lines_of,
    of_names,
    read,
)

PREFIXES = {"IOB1": "BI", "BIO": "BI", "BIOES": "BIES"}
ENDINGS = ("", ".txt", ".conll", ".tsv", ".iob", ".bio")
FAMILIES = [
    ("eng.train", "eng.testa", "eng.testb"),
    ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
    *(
        (f"train{ending}", f"{dev}{ending}", f"test{ending}")
        for ending in ENDINGS
        for dev in ("dev", "valid")
    ),
]


@dataclass(frozen=True)
class SplitFiles:
    train: Path
    dev: Path
    test: Path | None


@dataclass(frozen=True)
class Splits:
    """A corpus whose tags are all in one scheme."""

    train: list[Sentence]
    dev: list[Sentence]
    test: list[Sentence] | None
    scheme: str

    @property
    def labels(self) -> list[str]:
        """``O``, then every prefix of the scheme with every type seen in training."""
        tags = {one for s in self.train for tag in s.tags for one in tag.split("\t")}
        types = {_type(tag) for tag in tags - {"O", ""}}
        prefixes = PREFIXES[self.scheme]
        return ["O", *(f"{p}-{kind}" for kind in sorted(types) for p in prefixes)]


def read_words(source: str | Path, layout: Layout = AS_USUAL) -> list[list[str]]:
    """Sentences to be tagged, from a file or from standard input (``-``).

    JSON lines and CoNLL-U are known by their names, and other columns than two or four
    by ``layout.column``; tags are ignored. Otherwise the layout is told from all
    non-blank lines together, by the first rule that fits:

    1. each has 2 or 4 columns and ends in a tag: a CoNLL file;
    2. each is a single word: one word a line, with blank lines between sentences;
    3. otherwise: one sentence a line, its words parted by spaces or tabs.
    """
    if str(source) == "-":
        name, content = "standard input", sys.stdin.buffer.read()
    else:
        name = str(source)
        # what a shell's <(...) makes is no regular file
        if not Path(source).exists() or Path(source).is_dir():
            found = "a folder" if Path(source).is_dir() else "nothing"
            raise FileNotFoundError(
                f"predict: expected a file of text to tag, got {found} at {name}. Give"
                " a file, or - for standard input"
            )
        content = Path(source).read_bytes()
    lines = lines_of(content, name, layout.encoding)
    kind = kind_of(name, lines)
    if kind == "json":
        return _words_of_json(name, lines)
    rows = [fields_of(line) for line in lines]
    if kind == "conllu":
        return _paragraphs(_words_of_conllu(name, rows))
    rows = [[] if row[:1] == ["-DOCSTART-"] else row for row in rows]
    filled = [row for row in rows if row]
    if not filled:
        raise ValueError(
            f"{name}: expected words to tag, got none. Give one sentence a line, or one"
            " word a line with a blank line after each sentence"
        )
    in_columns = {len(row) for row in filled} in ({2}, {4})
    tagged = in_columns and all(is_tag(row[-1]) and row[0] for row in filled)
    if tagged or layout.column is not None:
        return _paragraphs([row[:1] for row in rows])
    rows = [[word for field in row for word in field.split()] for row in rows]
    if all(len(row) <= 1 for row in rows):
        return _paragraphs(rows)
    return [row for row in rows if row]


def detect_scheme(sentences: list[Sentence], unknown: str | None = None) -> str:
    """The scheme of the tags: ``"IOB1"``, ``"BIO"`` or ``"BIOES"``.

    IOB1 and BIO differ in the first tag of a span that touches no other of its type.
    The more frequent prefix decides, since real files hold slips: two tags of
    CoNLL-2003's own training file are BIO among 23,000 that are IOB1.
    """
    firsts = {"B": 0, "I": 0}
    for sentence in sentences:
        previous = "O"
        for tag in sentence.tags:
            if tag[0] in "ES" and tag != unknown:
                return "BIOES"
            told = tag != "O" and unknown not in (tag, previous)
            if told and _type(tag) != _type(previous):
                firsts[tag[0]] += 1
            previous = tag
    return "IOB1" if firsts["I"] > firsts["B"] else "BIO"


def convert(tags: list[str], to: str, scheme: str) -> list[str]:
    """The tags of one sentence, given in ``scheme``, rewritten in the scheme ``to``.

    The spans are those that conlleval counts: ``I-`` or ``E-`` after ``O``, after
    another type or after the end of a span begins one. So the result is well formed
    even where ``tags`` are not.
    """
    for name, value in (("to", to), ("scheme", scheme)):
        if value not in PREFIXES:
            raise ValueError(f"{name}: expected IOB1, BIO or BIOES, got {value!r}")
    for position, tag in enumerate(tags):
        if tag != "O" and not (is_tag(tag) and tag[0] in PREFIXES[scheme]):
            raise ValueError(
                f"tags: expected O or one of {', '.join(PREFIXES[scheme])} with a type"
                f" (scheme {scheme}), got {tag!r} at position {position}. Find the"
                " scheme with detect_scheme()"
            )
    result = ["O"] * len(tags)
    type_before, end_before = "", -1
    for kind, first, last in _spans(tags):
        touches = kind == type_before and first == end_before + 1
        begin = "I" if to == "IOB1" and not touches else "B"
        result[first : last + 1] = [f"I-{kind}"] * (last + 1 - first)
        result[first] = f"{begin}-{kind}"
        if to == "BIOES":
            result[last] = f"{'S' if first == last else 'E'}-{kind}"
        type_before, end_before = kind, last
    return result


def find_splits(folder: str | Path) -> SplitFiles:
    """The files of a corpus, by the names such files usually have.

    The first family of names of which ``folder`` holds both training and development
    file is taken; its test file may be missing.
    """
    folder = Path(folder)
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise FileNotFoundError(
            f"{folder}: expected a folder with a training and a development file,"
            f" got {found}. Give the folder that holds the files"
        )
    for names in FAMILIES:
        train, dev, test = (folder / name for name in names)
        if train.is_file() and dev.is_file():
            return SplitFiles(train, dev, test if test.is_file() else None)
    held = sorted(path.name for path in folder.iterdir())
    shown = ", ".join(held[:20]) + (", ..." if len(held) > 20 else "")
    endings = ", ".join(ending or "no ending" for ending in ENDINGS)
    raise FileNotFoundError(
        f"{folder}: expected a training and a development file, got"
        f" {shown or 'an empty folder'}. Looked for eng.train with eng.testa;"
        " wnut17train.conll with emerging.dev.conll; train with dev or valid, both"
        f" with the same ending ({endings}). Rename the files to one of these"
    )


def load(
    folder: str | Path, scheme: str = "BIOES", layout: Layout = AS_USUAL
) -> Splits:
    """The corpus in ``folder``, all tags converted to ``scheme``."""
    return load_files(find_splits(folder), scheme, layout)


def load_files(
    files: SplitFiles, scheme: str = "BIOES", layout: Layout = AS_USUAL
) -> Splits:
    """The corpus in these files, all tags converted to ``scheme``."""
    return Splits(
        read_as(files.train, scheme, layout, partial=True),
        read_as(files.dev, scheme, layout),
        read_as(files.test, scheme, layout) if files.test else None,
        scheme,
    )


def read_as(
    path: Path, scheme: str, layout: Layout = AS_USUAL, partial: bool = False
) -> list[Sentence]:
    """The sentences of a file, their tags converted to ``scheme``.

    ``partial`` allows words without a tag, as ``layout.unknown`` says; in sentences
    that have one, tags are the labels that a word may have, as ``partial_tags`` writes
    them.
    """
    sentences, unknown = read(path, layout), layout.unknown
    found = detect_scheme(sentences, unknown)
    if unknown is None or all(unknown not in s.tags for s in sentences):
        return [Sentence(s.words, convert(s.tags, scheme, found)) for s in sentences]
    if not partial or scheme != "BIOES":
        number = next(n for n, s in enumerate(sentences, 1) if unknown in s.tags)
        raise ValueError(
            f"{path}: expected a tag for each word, got {unknown!r} in sentence"
            f" {number}; only training files may leave tags unknown"
        )
    return [
        Sentence(s.words, partial_tags.possible(s.tags, found, unknown))
        if unknown in s.tags
        else Sentence(s.words, convert(s.tags, scheme, found))
        for s in sentences
    ]


def _type(tag: str) -> str:
    return tag[2:]


def _spans(tags: list[str]) -> list[tuple[str, int, int]]:
    spans = []
    previous = "O"
    for position, tag in enumerate(tags):
        if tag != "O":
            begins = tag[0] in "BS" or previous[0] in "OES"
            if begins or _type(tag) != _type(previous):
                spans.append((_type(tag), position, position))
            else:
                spans[-1] = (spans[-1][0], spans[-1][1], position)
        previous = tag
    return spans


def _paragraphs(rows: list[list[str]]) -> list[list[str]]:
    sentences: list[list[str]] = [[]]
    for row in rows:
        if row:
            sentences[-1].append(row[0])
        elif sentences[-1]:
            sentences.append([])
    return [sentence for sentence in sentences if sentence]


def _words_of_conllu(name: str, rows: list[list[str]]) -> list[list[str]]:
    found = []
    for number, row in enumerate(rows, start=1):
        if row and not row[0].isdigit():
            continue
        if row and not any(row[1:2]):
            raise ValueError(
                f"{name}, line {number}: expected a word in the second column, got none"
            )
        found.append(row[1:2])
    return found


def _words_of_json(name: str, lines: list[str]) -> list[list[str]]:
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            words = of_names(json.loads(line), WORDS)
        except (ValueError, RecursionError):
            words = None
        if not are_strings(words):
            raise ValueError(
                f"{name}, line {number}: expected an object with {' or '.join(WORDS)},"
                f" a list of strings of which none is empty, got"
                f" {line.strip()[:60]!r}"
            )
        found.append(words)
    return found
