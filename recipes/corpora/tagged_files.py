"""Files of words and tags in any of the usual layouts.

- Columns: a word a line, parted by tabs or spaces, the word first and the tag last or
  in the column that is asked for; a blank line ends a sentence.
- CoNLL-U (``.conllu``): the word is the second of ten columns; comments, ranges and
  empty words are left out; the tag may also be a key of the last column, as ``NER``.
- JSON lines (``.jsonl``): an object a line, with ``words`` (or ``tokens``) and ``tags``
  (or ``ner_tags``, ``labels``), lists of strings.

Any of them may be compressed by gzip.
"""

import gzip
import json
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WORDS, TAGS = ("words", "tokens"), ("tags", "ner_tags", "labels")
COMMENTS = ("# sent_id", "# newdoc", "# global.columns", "# text")


@dataclass(frozen=True)
class Sentence:
    words: list[str]
    tags: list[str]


@dataclass(frozen=True)
class Layout:
    """What a file does not tell by itself."""

    column: str | None = None
    """Where the tag is: a number from 1, from the end if negative, or a key."""
    encoding: str = "utf-8"
    skip_bad: bool = False
    """Leave out sentences that cannot be read, and say how many."""
    unknown: str | None = None
    """What stands for the tag of a word that nobody tagged."""

    def __post_init__(self) -> None:
        if self.unknown is not None and (not self.unknown or is_tag(self.unknown)):
            raise ValueError(
                f"unknown: expected what is no tag, ? say, got {self.unknown!r}"
            )
        if self.column is not None and self.place in (0, 1):
            raise ValueError(
                f"column: expected the number of a column from 2, or a negative one"
                f" from the end, got {self.column}; the first one holds the words"
            )
        try:
            "".encode(self.encoding)
        except LookupError as error:
            raise ValueError(
                f"encoding: expected a name that Python knows, latin-1 say, got"
                f" {self.encoding!r}"
            ) from error

    @property
    def place(self) -> int | None:
        """The number of the column, unless it is a key."""
        try:
            return int(self.column or -1)
        except ValueError:
            return None


AS_USUAL = Layout()


def read(path: str | Path, layout: Layout = AS_USUAL) -> list[Sentence]:
    """Sentences of one file, tags as they stand there.

    ``-DOCSTART-`` lines are dropped. A byte order mark and CRLF line ends are ignored.
    """
    path = Path(path)
    if not path.exists() or path.is_dir():
        found = "a folder" if path.is_dir() else "nothing"
        raise FileNotFoundError(f"{path}: expected a file of tagged words, got {found}")
    lines = lines_of(path.read_bytes(), path, layout.encoding)
    kind = kind_of(path, lines)
    if kind == "json":
        found = _json_sentences(path, lines, layout)
    else:
        found = _column_sentences(path, lines, layout, kind == "conllu")
    sentences, bad, first = [], 0, ""
    for sentence in found:
        if isinstance(sentence, Sentence):
            sentences.append(sentence)
            continue
        if not layout.skip_bad:
            raise ValueError(sentence)
        bad, first = bad + 1, first or sentence
    if bad:
        print(
            f"warning: {path}: left out {bad} of {bad + len(sentences)} sentences that"
            f" could not be read, the first for this: {first}",
            file=sys.stderr,
        )
    if not sentences:
        raise ValueError(
            f"{path}: expected at least one sentence, got none. Is this the right file,"
            " and was it copied whole?"
        )
    return sentences


def kind_of(path: str | Path, lines: list[str]) -> str:
    """Of which layout a file is: json, conllu or columns."""
    name = str(path).removesuffix(".gz")
    if name.endswith((".jsonl", ".ndjson", ".json")):
        return "json"
    first = next((line for line in lines if line.strip()), "")
    if name.endswith((".conllu", ".conllup")) or first.startswith(COMMENTS):
        return "conllu"
    return "columns"


def _json_sentences(
    path: Path, lines: list[str], layout: Layout
) -> Iterator[Sentence | str]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        # brackets may nest deeper than Python calls itself
        except (ValueError, RecursionError) as error:
            yield f"{path}, line {number}: expected a JSON object, got {error}"
            continue
        words, tags = (of_names(row, names) for names in (WORDS, TAGS))
        if not are_strings(words) or not are_strings(tags):
            yield (
                f"{path}, line {number}: expected an object with {' or '.join(WORDS)},"
                f" and {', '.join(TAGS[:-1])} or {TAGS[-1]}, lists of strings, got"
                f" {line.strip()[:60]!r}"
            )
        elif len(words) != len(tags):
            yield (
                f"{path}, line {number}: expected a tag for each word, got {len(words)}"
                f" words and {len(tags)} tags"
            )
        elif wrong := [t for t in tags if t != layout.unknown and not is_tag(t)]:
            yield f"{path}, line {number}: {_no_tag(wrong[0])}"
        elif words:
            yield Sentence(words, tags)


def of_names(row: object, names: tuple[str, ...]) -> object:
    """The value of the first of the names that an object has."""
    known = row if isinstance(row, dict) else {}
    return next((known[name] for name in names if name in known), None)


def are_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(x, str) and x for x in value)


def _column_sentences(
    path: Path, lines: list[str], layout: Layout, conllu: bool
) -> Iterator[Sentence | str]:
    """Each sentence, or what is wrong with it."""
    words, tags, bad = [], [], ""
    columns, first = 0, 0
    for number, line in enumerate([*lines, ""], start=1):
        row = fields_of(line)
        if conllu and line.startswith("#"):
            continue
        if not row or row[0] == "-DOCSTART-":
            if bad:
                yield bad
            elif words:
                yield Sentence(words, tags)
            words, tags, bad = [], [], ""
            continue
        if bad:
            continue
        if not columns:
            columns, first = len(row), number
        if conllu and not row[0].isdigit():
            continue
        try:
            word, tag = _word_and_tag(row, columns, first, layout, conllu, line)
        except ValueError as error:
            bad = f"{path}, line {number}: {error}"
            continue
        words.append(word)
        tags.append(tag)


def _word_and_tag(
    row: list[str], columns: int, first: int, layout: Layout, conllu: bool, line: str
) -> tuple[str, str]:
    shown = line.strip()
    if len(row) != columns:
        raise ValueError(
            f"expected {columns} columns as on line {first}, got {len(row)} ({shown!r})"
            ". Part the columns by one tab or by spaces, word first and tag last, with"
            " no space inside a word"
        )
    if len(row) < 2:
        raise ValueError(
            f"expected 2 columns or more, of which the first is the word and the last"
            f" the tag, got {len(row)} ({shown!r})"
        )
    word = row[1] if conllu else row[0]
    if not word:
        raise ValueError(
            "expected a word in the first column, got an empty one. Write the word, or"
            " leave the whole line blank to end the sentence"
        )
    place = layout.place
    if place is None:
        if not conllu:
            raise ValueError(
                f"expected the number of a column in --column, got {layout.column!r};"
                " keys are those of the last column of CoNLL-U"
            )
        pairs = dict(pair.partition("=")[::2] for pair in row[-1].split("|"))
        tag = pairs.get(str(layout.column), "O")
    else:
        if not -columns <= (place if place < 0 else place - 1) < columns:
            raise ValueError(
                f"expected a column {place} as --column says, got {columns} ({shown!r})"
            )
        tag = row[place] if place < 0 else row[place - 1]
    if tag != layout.unknown and not is_tag(tag):
        raise ValueError(_no_tag(tag, "--column says which" if columns > 2 else ""))
    return word, tag


def _no_tag(found: str, more: str = "") -> str:
    return (
        f"expected the tag in the last column to be O or B-, I-, E- or S- followed by a"
        f" type, got {found!r}. Convert the file to IOB1, BIO or BIOES (from BILOU: L-"
        f" is E-, U- is S-){'; ' + more if more else ''}"
    )


def is_tag(field: str) -> bool:
    return field == "O" or (len(field) > 2 and field[0] in "BIES" and field[1] == "-")


def lines_of(
    content: bytes, name: str | Path, encoding: str | None = None
) -> list[str]:
    """Lines of a text, which gzip may have compressed.

    Without an encoding it is UTF-8, and the recipe has no option for another.
    """
    if content.startswith(b"\x1f\x8b"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(
                f"{name}: expected a whole gzip file, got {error}"
            ) from error
    if encoding and encoding.lower().replace("_", "-") not in ("utf-8", "utf8"):
        try:
            text = content.decode(encoding).removeprefix("\ufeff")
            return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        except UnicodeError as error:
            raise ValueError(
                f"{name}: expected text in {encoding}, got {error}"
            ) from error
    if b"\0" in content:
        number = content[: content.index(b"\0")].count(b"\n") + 1
        raise ValueError(
            f"{name}, line {number}: expected text, got the byte 0x00. Is it another"
            f" kind of file, or of another {'--' if encoding else ''}encoding, utf-16"
            " say?"
        )
    # Not str.splitlines: words may hold U+2028 and its like.
    lines = []
    content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for number, line in enumerate(content.split(b"\n"), start=1):
        try:
            lines.append(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name}, line {number}: expected UTF-8, got the byte"
                f" 0x{line[error.start]:02x}. Save the file as UTF-8"
                f"{', or give its --encoding' if encoding else ''}"
            ) from error
    return lines


def fields_of(line: str) -> list[str]:
    # Only tabs and spaces part columns: words may be other white space, U+00A0 say.
    line = line.rstrip(" \t\r")
    if "\t" in line:
        return [field.strip(" ") for field in line.split("\t")]
    return [field for field in line.split(" ") if field]
