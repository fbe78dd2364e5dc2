"""Evidence of what a file is: separators, headers of tables, formats that are not read.

A header is a first line of names such as ``word,tag``. Separators are tabs, blanks,
commas and semicolons; cells between the last two may be quoted as in CSV.
"""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "FORMAT_NAMES",
    "TAG_COLUMNS",
    "Header",
    "find_header",
    "missing_header_error",
    "split_cells",
]
__all__ += ["detect_separator", "refuse_unsupported_format", "unquote"]

WORD_COLUMNS = ("word", "words", "token", "tokens", "form", "word_form", "surface")
# Of these the first that is there, or one whose column has tags of spans.
TAG_COLUMNS = (
    *("ner", "ner_tag", "ner_tags", "named_entity", "entity", "bio", "iob", "bio_tag"),
    *("iob_tag", "bio_tags", "iob_tags", "tag", "tags", "label", "labels"),
)
SENTENCES = (
    *("sentence", "sentence_id", "sent_id", "sentence_number", "sentence_no", "sent"),
    *("sentence_index", "sentence_idx", "sentid", "sentenceid", "sentence_num"),
)
PARTS_OF_SPEECH = ("upos", "pos", "pos_tag", "pos_tags", "xpos")
NUMBERS = ("", "id", "index", "token_id", "word_id", "unnamed_0", "doc_id", "document")
RECOGNISED_COLUMNS = {
    *WORD_COLUMNS,
    *TAG_COLUMNS,
    *SENTENCES,
    *PARTS_OF_SPEECH,
    *NUMBERS,
    "chunk",
    "lemma",
}
FORMAT_NAMES = {"\t": "TSV", ",": "CSV", ";": "CSV with semicolons", " ": "columns"}
QUOTED = re.compile(r'"((?:[^"]|"")*)"')
# How files begin that hold words, but not as columns; and the remedy.
FOREIGN = (
    (r"#FORMAT=WebAnno TSV", "WebAnno TSV", "Export it from there as CoNLL 2002"),
    (r"#begin document", "CoNLL-2012", "Write it as columns of words and tags"),
    (r"T\d+\t\S+ \d+ \d+\t", "brat standoff", "Name it .ann, beside a .txt"),
    (r"<\?xml|<!DOCTYPE|<html", "XML or HTML", "Take the text out of the markup"),
    (r"%PDF-", "PDF", "Save it as text"),
    (r"\{\\rtf", "RTF", "Save it as text"),
)  # fmt: skip


@dataclass(frozen=True)
class Header:
    """The first line of a table, and which columns it names."""

    line: int
    by: str
    names: tuple[str, ...]
    word: int
    tags: tuple[int, ...]
    """Columns that may have the tags, the likeliest first."""
    sentence: int | None
    """The column whose cells tell sentences apart."""
    numbers: frozenset[int]
    """Columns without a meaning for words."""


def refuse_unsupported_format(name: str | Path, lines: Sequence[str]) -> None:
    """Raise ``ValueError`` for a file that shows that it is no columns nor text."""
    first = next((line.lstrip() for line in lines if line.strip()), "")
    for pattern, kind, remedy in FOREIGN:
        if re.match(pattern, first, re.IGNORECASE):
            raise ValueError(
                f"{name}: expected columns of words and tags, or text, got {kind},"
                f" which is not read. {remedy}"
            )


def find_header(name: str | Path, lines: Sequence[str]) -> Header | None:
    """Return the header of a table, or None if there is none."""
    number, first = next(
        ((n, x) for n, x in enumerate(lines, 1) if x.strip(" \t")), (1, "")
    )
    for by in "\t,; ":
        names = split_cells(first, by) if by in first else []
        keys = [re.sub(r"\W+", "_", cell.lower()).strip("_") for cell in names]
        # sentences of several words have no column of their own
        word = next((keys.index(x) for x in (*WORD_COLUMNS, "text") if x in keys), None)
        if word is None or len(RECOGNISED_COLUMNS & set(keys)) < 2:
            continue
        if by == " " and not (
            RECOGNISED_COLUMNS.issuperset(keys) and {*TAG_COLUMNS} & {*keys}
        ):
            continue
        tags = [keys.index(x) for x in (*TAG_COLUMNS, *PARTS_OF_SPEECH) if x in keys]
        sentence = next((keys.index(x) for x in SENTENCES if x in keys), None)
        numbers = frozenset(n for n, key in enumerate(keys) if key in NUMBERS)
        return Header(number, by, tuple(names), word, tuple(tags), sentence, numbers)
    table = str(name).removesuffix(".gz").endswith((".csv", ".tsv"))
    if table and first.strip().strip('"').lower() in WORD_COLUMNS:
        one = first.strip().strip('"')
        return Header(number, ",", (one,), 0, (), None, frozenset())
    return None


def detect_separator(name: str | Path, lines: Sequence[str]) -> str:
    """Separator of the columns of most lines; a blank without any."""
    if 2 * sum("\t" in line for line in lines) > len(lines):
        return "\t"
    if 2 * sum(" " not in line.strip() for line in lines) > len(lines):
        for by in ",;":
            widths = Counter(len(split_cells(line, by)) for line in lines)
            width, times = widths.most_common(1)[0]
            if width > 1 and 2 * times > len(lines):
                return by
    if str(name).removesuffix(".gz").endswith(".csv"):
        raise missing_header_error(name, lines[0])
    return " "


def missing_header_error(name: str | Path, line: str) -> ValueError:
    """Return the error of a table without names of columns."""
    return ValueError(
        f"{name}, line 1: expected a table with a header such as word,tag or"
        f" sentence_id,word,tag, got {line[:60]!r}. Name its columns, or give plain"
        " text another ending than .csv"
    )


def split_cells(line: str, by: str) -> list[str]:
    """Columns of a line.

    Only tabs and blanks part columns of words, which may be other white space, U+00A0
    say, and only these are cut off at the ends.
    """
    if by == "\t":
        return [field.strip(" ") for field in line.rstrip(" \t").split("\t")]
    if by == " ":
        fields = line.replace("\t", " ").split(" ")
        return [field for field in fields if field] if "" in fields else fields
    try:
        found = _fields(line, by)
    except csv.Error:
        # a quotation mark that is a word
        found = line.split(by)
    return [field.strip(" ") for field in found]


def _fields(line: str, by: str) -> list[str]:
    """Cells of a line of CSV, also those that are longer than the limit of ``csv``."""
    limit = csv.field_size_limit()
    if len(line) > limit:
        csv.field_size_limit(len(line))
    try:
        return next(csv.reader([line], delimiter=by, strict=True), [])
    finally:
        if len(line) > limit:
            csv.field_size_limit(limit)


def unquote(cell: str) -> str:
    """Cell of a table with tabs; tables of spreadsheets quote as in CSV."""
    found = QUOTED.fullmatch(cell) if len(cell) > 2 else None
    return found[1].replace('""', '"') if found else cell
