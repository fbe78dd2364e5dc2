"""Detection of separators, table headers and unsupported formats.

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
# Names of tag columns, in order of preference. A column with tags of spans goes first.
TAG_COLUMNS = (
    *("ner", "ner_tag", "ner_tags", "named_entity", "entity", "bio", "iob", "bio_tag"),
    *("iob_tag", "bio_tags", "iob_tags", "tag", "tags", "label", "labels"),
)
SENTENCE_COLUMNS = (
    *("sentence", "sentence_id", "sent_id", "sentence_number", "sentence_no", "sent"),
    *("sentence_index", "sentence_idx", "sentid", "sentenceid", "sentence_num"),
)
POS_COLUMNS = ("upos", "pos", "pos_tag", "pos_tags", "xpos")
NUMBER_COLUMNS = (
    "",
    "id",
    "index",
    "token_id",
    "word_id",
    "unnamed_0",
    "doc_id",
    "document",
)
RECOGNISED_COLUMNS = {
    *WORD_COLUMNS,
    *TAG_COLUMNS,
    *SENTENCE_COLUMNS,
    *POS_COLUMNS,
    *NUMBER_COLUMNS,
    "chunk",
    "lemma",
}
FORMAT_NAMES = {"\t": "TSV", ",": "CSV", ";": "CSV with semicolons", " ": "columns"}
QUOTED = re.compile(r'"((?:[^"]|"")*)"')
# Pattern of the beginning, name, and advice for formats that are not supported.
UNSUPPORTED_FORMATS = (
    (r"#FORMAT=WebAnno TSV", "WebAnno TSV", "Export it from there as CoNLL 2002"),
    (r"#begin document", "CoNLL-2012", "Write it as columns of words and tags"),
    (r"T\d+\t\S+ \d+ \d+\t", "brat standoff", "Name it .ann, beside a .txt"),
    (r"<\?xml|<!DOCTYPE|<html", "XML or HTML", "Take the text out of the markup"),
    (r"%PDF-", "PDF", "Save it as text"),
    (r"\{\\rtf", "RTF", "Save it as text"),
)  # fmt: skip


@dataclass(frozen=True)
class Header:
    """Header of a table: column names and their meaning."""

    line: int
    separator: str
    names: tuple[str, ...]
    word: int
    tags: tuple[int, ...]
    """Indices of columns that may hold the tags, in order of preference."""
    sentence: int | None
    """Index of the column that identifies the sentence, or None."""
    numbers: frozenset[int]
    """Indices of columns with numbers only, which are no features of words."""


def refuse_unsupported_format(name: str | Path, lines: Sequence[str]) -> None:
    """Raise ``ValueError`` if a file has a known format that is not supported."""
    first = next((line.lstrip() for line in lines if line.strip()), "")
    for pattern, kind, remedy in UNSUPPORTED_FORMATS:
        if re.match(pattern, first, re.IGNORECASE):
            raise ValueError(
                f"{name}: expected columns of words and tags, or text, got {kind},"
                f" which is not read. {remedy}"
            )


def find_header(name: str | Path, lines: Sequence[str]) -> Header | None:
    """Find the header of a table in its first non-blank line; None without one."""
    number, first = next(
        ((n, x) for n, x in enumerate(lines, 1) if x.strip(" \t")), (1, "")
    )
    for separator in "\t,; ":
        names = split_cells(first, separator) if separator in first else []
        keys = [re.sub(r"\W+", "_", cell.lower()).strip("_") for cell in names]
        # A column "text" may hold words, too.
        word = next((keys.index(x) for x in (*WORD_COLUMNS, "text") if x in keys), None)
        if word is None or len(RECOGNISED_COLUMNS & set(keys)) < 2:
            continue
        if separator == " " and not (
            RECOGNISED_COLUMNS.issuperset(keys) and {*TAG_COLUMNS} & {*keys}
        ):
            continue
        tags = [keys.index(x) for x in (*TAG_COLUMNS, *POS_COLUMNS) if x in keys]
        sentence = next((keys.index(x) for x in SENTENCE_COLUMNS if x in keys), None)
        numbers = frozenset(n for n, key in enumerate(keys) if key in NUMBER_COLUMNS)
        return Header(
            number, separator, tuple(names), word, tuple(tags), sentence, numbers
        )
    is_table = str(name).removesuffix(".gz").endswith((".csv", ".tsv"))
    if is_table and first.strip().strip('"').lower() in WORD_COLUMNS:
        column_name = first.strip().strip('"')
        return Header(number, ",", (column_name,), 0, (), None, frozenset())
    return None


def detect_separator(name: str | Path, lines: Sequence[str]) -> str:
    """Return the separator of the columns of most lines; a blank by default."""
    if 2 * sum("\t" in line for line in lines) > len(lines):
        return "\t"
    if 2 * sum(" " not in line.strip() for line in lines) > len(lines):
        for separator in ",;":
            widths = Counter(len(split_cells(line, separator)) for line in lines)
            width, count = widths.most_common(1)[0]
            if width > 1 and 2 * count > len(lines):
                return separator
    if str(name).removesuffix(".gz").endswith(".csv"):
        raise missing_header_error(name, lines[0])
    return " "


def missing_header_error(name: str | Path, line: str) -> ValueError:
    """Return the error for a table without a header."""
    return ValueError(
        f"{name}, line 1: expected a table with a header such as word,tag or"
        f" sentence_id,word,tag, got {line[:60]!r}. Name its columns, or give plain"
        " text another ending than .csv"
    )


def split_cells(line: str, separator: str) -> list[str]:
    """Split a line into cells.

    Other white space than tabs and blanks, such as U+00A0, may be a word: it neither
    separates cells nor is it stripped.
    """
    if separator == "\t":
        return [field.strip(" ") for field in line.rstrip(" \t").split("\t")]
    if separator == " ":
        fields = line.replace("\t", " ").split(" ")
        return [field for field in fields if field] if "" in fields else fields
    try:
        cells = _read_csv_cells(line, separator)
    except csv.Error:
        # A single quotation mark is a word, not the start of a quoted cell.
        cells = line.split(separator)
    return [field.strip(" ") for field in cells]


def _read_csv_cells(line: str, separator: str) -> list[str]:
    """Parse a CSV line, with cells of any length.

    ``csv`` has a global limit of cell lengths, which is restored.
    """
    limit = csv.field_size_limit()
    if len(line) > limit:
        csv.field_size_limit(len(line))
    try:
        return next(csv.reader([line], delimiter=separator, strict=True), [])
    finally:
        if len(line) > limit:
            csv.field_size_limit(limit)


def unquote(cell: str) -> str:
    """Remove CSV quotes of a cell: spreadsheets also quote tab-separated cells."""
    match = QUOTED.fullmatch(cell) if len(cell) > 2 else None
    return match[1].replace('""', '"') if match else cell
