"""Reader of column files: one word a line, blank lines between sentences.

Formats: CoNLL-2003, CoNLL-2000, CoNLL-U, CoNLL-U Plus, GermEval, and any other columns
separated by tabs, blanks, commas or semicolons, with or without a header. Also JSON
lines (``.jsonl``) with ``words`` (or ``tokens``) and ``tags`` (or ``ner_tags``,
``labels``). Files may be compressed by gzip. The detected format is printed to standard
error. Only blanks and tabs separate; other white space is part of a word.
"""

import json
import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, dropwhile, takewhile
from pathlib import Path
from typing import Any

from smoothsp import schemes
from smoothsp.data import conllu_rows, formats
from smoothsp.data.examples import TaggedSentence
from smoothsp.data.formats import split_cells
from smoothsp.data.text_files import (
    decode_lines,
    describe_bad_byte,
    display_name,
    is_blank,
    print_stderr,
    read_content,
)

__all__ = [
    "DEFAULT_LAYOUT",
    "ColumnFormat",
    "Layout",
    "ParsedFile",
    "detect_format",
    "read",
    "split_blocks",
]
__all__ += ["as_column_name", "parse_sentences", "read_levels", "read_sentences"]

WORD_KEYS, TAG_KEYS = ("words", "tokens"), ("tags", "ner_tags", "labels")
DOCUMENT_MARK, MISSING = "-DOCSTART-", "_"
# Words may also be # or begin with it, so a comment needs a blank after the sign.
COMMENT, METADATA_COMMENT = re.compile(r"#(\s|$)"), re.compile(r"#\s+[\w.:-]+\s+=\s")
PLUS_HEADER = re.compile(r"#\s*global\.columns\s*=\s*(.*)", re.IGNORECASE)
SEPARATOR_NAMES = {"\t": "tabs", " ": "blanks", ",": "commas", ";": "semicolons"}
WORD_NUMBER, FIRST_NUMBER = (
    re.compile(r"[0-9]+([-.][0-9]+)?"),
    re.compile(r"[01]([-.][0-9]+)?"),
)
INTEGER = re.compile(r"[0-9]{1,9}")
TYPED_TAG = re.compile(r"[BIESLUMW]-[^\d\s].*")
# Prefixes before types that begin with a letter or sign, and before any type.
PREFIX_OF_NAME, PREFIX_OF_ANY = (
    re.compile(r"\A([BIESLUMW]-)(?=[^\d\s])"),
    re.compile(r"\A([BIESLUMW]-)(?=\S)"),
)
JSON_START = re.compile(r"\s*[\[{]\s*[{\"]")
BARE_PREFIXES = frozenset("OBIESLUMW")
# Labels that tools write for sub-words and sentence marks: they tag no word.
SPECIAL_TAGS = ("X", "[CLS]", "[SEP]", "[PAD]")
# Parts of speech of UD and Penn: a column of these holds tags, not text.
PARTS_OF_SPEECH = re.compile(
    "ADJ|ADP|ADV|AUX|CCONJ|DET|INTJ|NOUN|NUM|PART|PRON|PROPN|PUNCT|SCONJ|SYM|VERB"
    "|CC|CD|DT|EX|FW|IN|JJ[RS]?|LS|MD|NNP?S?|PDT|POS|PRP[$]?|RB[RS]?|RP|TO|UH|VB[DGNPZ]?"
    "|WDT|WP[$]?|WRB|[#$.,:]|``|''"
)
COLUMN_SUFFIXES = (".conll", ".iob", ".iob2", ".bio")
# Number of lines that format detection reads.
MAX_SAMPLE_LINES = 20_000
# A sentence with more words is probably a whole text without blank lines.
LONG_SENTENCE = 2_000
# A column with more distinct values holds words.
MAX_TAGS = 1_000


@dataclass(frozen=True)
class Layout:
    """Columns, encoding and special tags of a file, to override detection."""

    column: str | None = None
    """Column of the tags: its number from 1, from the end if negative, or a
    name; in CoNLL-U also a key of the last column, as NER."""
    word_column: str | None = None
    """Column of the words, by number or name."""
    encoding: str | None = None
    """Encoding of the file; if None, UTF-8 or else latin-1."""
    skip_bad: bool = False
    """Leave out malformed sentences, with a warning that counts them."""
    unknown: str | None = None
    """Tag that stands for an unknown tag."""

    def __post_init__(self) -> None:
        if self.unknown is not None and (
            self.unknown in ("", "O") or TYPED_TAG.fullmatch(self.unknown)
        ):
            raise ValueError(
                f"unknown: expected a string that is not a tag, such as ?, got"
                f" {self.unknown!r}"
            )
        try:
            "".encode(self.encoding or "utf-8")
        except LookupError as error:
            raise ValueError(
                f"encoding: expected an encoding of Python, such as latin-1, got"
                f" {self.encoding!r}"
            ) from error


DEFAULT_LAYOUT = Layout()


def as_column_name(option: str, column: object) -> str | None:
    """Return a column as a string, from a number or name; None stays None."""
    if column is None or isinstance(column, str):
        return column
    if type(column) is not int:
        raise TypeError(
            f"{option}: expected the number of a column, from 1, or its name, got"
            f" {column!r}"
        )
    return str(column)


@dataclass(frozen=True)
class FileSentence:
    """A sentence of a file, with the line numbers of its words."""

    words: list[str]
    tags: list[Any]
    """Tag of each word; None where JSON has null."""
    lines: Sequence[int]
    """The line of each word."""
    others: Sequence[Sequence[str]] = ()
    document: int = 0

    def sentence(self, unknown: str | None = None) -> TaggedSentence:
        """Return the sentence without line numbers; ``unknown`` tags become None."""
        tags = self.tags
        if unknown is not None:
            tags = [None if x == unknown else x for x in tags]
        return TaggedSentence(self.words, tags or None, self.document, self.others)


@dataclass(frozen=True)
class ParsedFile:
    """Sentences of a file, and errors of malformed ones."""

    sentences: list[TaggedSentence]
    scheme: str | None = None
    """Scheme of the tags, as ``smoothsp.schemes`` names it; None if there are none."""
    texts: list[str] = field(default_factory=list)
    """Running text, one sentence each, in place of ``sentences``."""
    bad: list[str] = field(default_factory=list)
    """Error of each sentence that was left out; begins with the line number."""
    notation: schemes.Notation = schemes.DEFAULT_NOTATION
    """Notation of the tags in the file; in ``sentences`` they are ``B-PER``, ``O``."""


# A sentence, or the error message if it is malformed.
SentenceOrError = FileSentence | str


def read(path: str | Path, layout: Layout = DEFAULT_LAYOUT) -> ParsedFile:
    """Read the tagged sentences of a file.

    Raises
    ------
    ValueError
        For the first sentence that cannot be read, with file and line; with
        ``layout.skip_bad`` only if none can be.
    """
    return _read_with_layouts(path, [layout])[0]


def read_levels(
    path: str | Path, columns: Sequence[str | int] = (), layout: Layout = DEFAULT_LAYOUT
) -> list[ParsedFile]:
    """Read a file once for each of several tag columns, as in GermEval.

    Without ``columns``, all columns with tags of spans are read. With
    ``layout.skip_bad`` a sentence that is malformed in one column is left out of all.
    """
    content = read_content(path, "a file of tagged words")
    lines = decode_lines(content, path, layout.encoding, strict=False)
    columns = columns or [
        n + 1 for n in detect_format(path, lines, layout).span_columns
    ]
    if len(columns) < 2:
        raise ValueError(
            f"{path}: expected 2 columns of tags of spans, or more, got {len(columns)}."
            " Name them with columns"
        )
    column_names = [as_column_name("columns", column) for column in columns]
    return _read_with_layouts(
        path, [replace(layout, column=column) for column in column_names]
    )


def _read_with_layouts(path: str | Path, layouts: Sequence[Layout]) -> list[ParsedFile]:
    """Read a file once for each layout; all results have the same sentences."""
    content = read_content(path, "a file of tagged words")
    lines = decode_lines(content, path, layouts[0].encoding, strict=False)
    if not _has_sentences(lines):
        raise ValueError(
            f"{path}: expected at least one sentence, got none. Is this the right file,"
            " and was it copied whole?"
        )
    messages: list[str] = []
    # One list a layout: levels must stay parallel, so a sentence that is malformed in
    # one layout is dropped from all.
    checked_entries: list[list[SentenceOrError]] = []
    schemes_and_notations: list[tuple[str, schemes.Notation]] = []
    for layout in layouts:
        if _is_json_lines(path, lines):
            kind, entries, where = (
                "JSON lines",
                list(_iter_json_sentences(lines, with_tags=True)),
                "",
            )
        else:
            form = detect_format(path, lines, layout)
            if form.tag is None and form.tag_key is None:
                raise ValueError(
                    f"{path}, line {form.line}: expected 2 columns or more, a word and"
                    f" its tag at least, got {form.width}"
                )
            kind = f"{form}, tags from column {form.tags}"
            entries, where = form.sentences(lines), f" in column {form.tags}"
        entries, notation = _normalise_tags(entries, layout.unknown)
        rows, scheme = _check_scheme(entries, layout.unknown, where)
        scheme_text = "no scheme" if scheme == schemes.PLAIN else f"scheme {scheme}"
        scheme_text += (
            "" if notation == schemes.DEFAULT_NOTATION else f", written as {notation}"
        )
        messages.append(f"{path}: read as {kind}, {scheme_text}")
        checked_entries.append(rows)
        schemes_and_notations.append((scheme, notation))
    faults = [
        next((x for x in versions if isinstance(x, str)), None)
        for versions in zip(*checked_entries, strict=True)
    ]
    rejected = [x for x in faults if x]
    if rejected and not layouts[0].skip_bad:
        raise ValueError(f"{path}, {rejected[0]}")
    if rejected:
        print_stderr(
            f"warning: {path}: left out {len(rejected)} of {len(faults)} sentences that"
            f" could not be read, the first for this: {rejected[0]}"
        )
    if len(rejected) == len(faults):
        raise ValueError(f"{path}: expected at least one sentence, got none")
    for line in messages:
        print_stderr(line)
    longest = max(
        len(x.words) for x in checked_entries[0] if isinstance(x, FileSentence)
    )
    if longest > LONG_SENTENCE:
        print_stderr(
            f"warning: {path}: one sentence has {longest:,} words; a blank line, or a"
            " column sentence_id, ends a sentence"
        )
    files = []
    for rows, (scheme, notation) in zip(
        checked_entries, schemes_and_notations, strict=True
    ):
        accepted = [x for x, fault in zip(rows, faults, strict=True) if not fault]
        sentences = [
            x.sentence(layouts[0].unknown)
            for x in accepted
            if isinstance(x, FileSentence)
        ]
        files.append(ParsedFile(sentences, scheme, bad=rejected, notation=notation))
    return files


def read_sentences(source: str | Path, layout: Layout = DEFAULT_LAYOUT) -> ParsedFile:
    """Read sentences to be tagged, from a file or standard input (``-``).

    Accepts the formats of ``read``, whose tags only determine the output scheme; also
    one word a line, and running text with one sentence a line.
    """
    content = read_content(source, "a file of text", stdin=True)
    name = display_name(source)
    lines = decode_lines(content, name, layout.encoding, strict=False)
    return parse_sentences(lines, name, layout)


def parse_sentences(
    lines: Sequence[str], name: str, layout: Layout = DEFAULT_LAYOUT
) -> ParsedFile:
    """Parse lines as sentences to be tagged; see ``read_sentences``."""
    if not _has_sentences(lines):
        raise ValueError(
            f"{name}: expected words, got none. Give one sentence a line, or one"
            " word a line with a blank line after each sentence"
        )
    if _is_json_lines(name, lines):
        kind, entries, tagged = (
            "JSON lines",
            list(_iter_json_sentences(lines, with_tags=False)),
            False,
        )
    else:
        form = detect_format(name, lines, layout)
        if form.is_text:
            print_stderr(f"{name}: read as text, one sentence a line")
            return _parse_texts(lines)
        kind, entries, tagged = str(form), form.sentences(lines), form.has_span_tags
    print_stderr(f"{name}: read as {kind}")
    if not entries:
        raise ValueError(f"{name}: expected at least one sentence, got none")
    scheme, notation = None, schemes.DEFAULT_NOTATION
    if tagged:
        entries, notation = _normalise_tags(entries, layout.unknown)
        scheme = schemes.detect(x.tags for x in entries if isinstance(x, FileSentence))
    accepted = [x.sentence() for x in entries if isinstance(x, FileSentence)]
    rejected = [x for x in entries if isinstance(x, str)]
    return ParsedFile(accepted, scheme, bad=rejected, notation=notation)


def _has_sentences(lines: Sequence[str]) -> bool:
    return any(line.split()[:1] not in ([], [DOCUMENT_MARK]) for line in lines)


def _parse_texts(lines: Sequence[str]) -> ParsedFile:
    faults = {n: describe_bad_byte(line) for n, line in enumerate(lines, 1)}
    texts = [line for n, line in enumerate(lines, 1) if line.strip() and not faults[n]]
    bad = [f"line {number}: {what}" for number, what in faults.items() if what]
    return ParsedFile([], None, [x for x in texts if x.strip() != DOCUMENT_MARK], bad)


def _normalise_tags(
    entries: Sequence[SentenceOrError], unknown: str | None
) -> tuple[list[SentenceOrError], schemes.Notation]:
    """Return sentences with tags as ``B-PER`` and ``O``, and the original notation."""
    tag_rows = [x.tags for x in entries if isinstance(x, FileSentence)]
    untagged = ("", MISSING, unknown, None, *SPECIAL_TAGS)
    notation = _detect_notation(
        (tag for tag in chain.from_iterable(tag_rows) if tag not in untagged),
        PREFIX_OF_ANY,
    )
    if notation == schemes.DEFAULT_NOTATION:
        return list(entries), notation
    normalised = {
        x: x if x in untagged else notation.normalise(x) for x in {*chain(*tag_rows)}
    }
    return [
        replace(x, tags=[normalised[tag] for tag in x.tags])
        if isinstance(x, FileSentence)
        else x
        for x in entries
    ], notation


def _detect_notation(
    tags: Iterable[str], prefix_pattern: re.Pattern[str] = PREFIX_OF_NAME
) -> schemes.Notation:
    """Detect the notation of tags; a type may begin with a sign, as in B-😀."""
    return schemes.notation_of(prefix_pattern.sub(r"\1x", tag) for tag in tags)


def _check_scheme(
    entries: Sequence[SentenceOrError], unknown: str | None, location: str
) -> tuple[list[SentenceOrError], str]:
    """Return the scheme of most tags, and errors in place of sentences outside it."""
    tag_rows = [x.tags for x in entries if isinstance(x, FileSentence)]
    tags_or_none: list[list[Any]] = list(tag_rows)
    if unknown is not None:
        tags_or_none = [
            [None if tag == unknown else tag for tag in tags] for tags in tag_rows
        ]
    scheme = schemes.detect(tags_or_none)
    distinct = set(chain.from_iterable(tag_rows)) - {unknown, None}
    wrong = {tag for tag in distinct if not _is_tag_of_scheme(tag, scheme)}
    if scheme != schemes.PLAIN and any("-" in tag for tag in distinct):
        wrong |= distinct & (BARE_PREFIXES - {"O"})
    checked: list[SentenceOrError] = []
    for row in entries:
        if isinstance(row, str) or wrong.isdisjoint(row.tags):
            checked.append(row)
        else:
            pairs = zip(row.tags, row.lines, strict=True)
            tag, line = next(pair for pair in pairs if pair[0] in wrong)
            remedy = "Write the tag of the word, or delete the line"
            if tag in SPECIAL_TAGS:
                remedy = "Delete lines of word pieces and of marks around sentences"
            scheme_text = (
                "" if scheme == schemes.PLAIN else f" of the scheme {scheme} as others"
            )
            checked.append(
                f"line {line}: expected a tag{scheme_text}{location}, got {tag!r}."
                f" {remedy}"
            )
    return checked, scheme


def _is_tag_of_scheme(tag: str, scheme: str) -> bool:
    if scheme == schemes.PLAIN:
        return tag not in ("", MISSING)
    try:
        schemes.convert([tag], source=scheme, target=scheme, strict=False)
    except ValueError:
        return False
    return True


# --- columns ---


@dataclass(frozen=True)
class ColumnFormat:
    """Meaning of the columns of a file."""

    kind: str
    names: Sequence[str]
    """Names of the columns, or empty."""
    width: int
    line: int
    """Number of the first line with ``width`` columns."""
    separator: str
    """Separator."""
    has_word_numbers: bool
    """True if the first column numbers the words of a sentence."""
    strict: bool
    """True if lines follow the CoNLL-U rules of ``conllu_rows``."""
    word: int
    tag: int | None
    tag_key: str | None
    """Key of the tags in the last column, in place of ``tag``."""
    has_span_tags: bool
    """True if the tags are those of spans."""
    is_text: bool
    """True for running text, without columns."""
    span_columns: Sequence[int]
    """All columns with the tags of spans."""
    header: formats.Header | None = None

    def __str__(self) -> str:
        return f"{self.kind}: words from column {self.word + 1}"

    @property
    def tags(self) -> str:
        """Column or key of the tags."""
        return self.tag_key or str((self.tag or 0) + 1)

    def sentences(self, lines: Sequence[str]) -> list[SentenceOrError]:
        """Read the sentences of a file."""
        entries: list[SentenceOrError] = []
        comments = self._find_comments(lines)
        starts = [
            number for number, line in enumerate(lines, 1) if _is_document_mark(line)
        ]
        for first, block in self._split_sentences(lines):
            try:
                numbers, rows = self._parse_rows(block, first, comments)
                if not rows:
                    continue
                columns = list(zip(*rows, strict=True))
                for number, word in zip(numbers, columns[self.word], strict=True):
                    if not word.strip(" "):
                        raise ValueError(
                            f"line {number}: expected a word in column {self.word + 1},"
                            " got an empty one. Write the word, or leave the whole line"
                            " blank to end the sentence"
                        )
                # Tuples of strings are untracked by the garbage collector, which makes
                # reading large files faster.
                others = tuple(columns[n] for n in self._other_columns)
                words, tags = list(columns[self.word]), self._extract_tags(columns)
                document = bisect(starts, first)
                entries.append(
                    FileSentence(words, tags, tuple(numbers), others, document)
                )
            except ValueError as error:
                entries.append(str(error))
        return entries

    def _find_comments(self, lines: Sequence[str]) -> frozenset[str]:
        """Return comment lines with as many columns as the words have.

        A comment such as ``# doc1`` has two columns. It differs from a word ``#`` with
        a tag: it stands only before the words of a sentence, and its last column is
        neither a tag of the file nor similar to one.
        """
        has_word_first = (
            self.width > 1
            and self.word == 0
            and not (self.has_word_numbers or self.tag_key)
        )
        if (
            self.tag is None
            or not has_word_first
            or self.header
            or self.separator != " "
        ):
            return frozenset()
        candidates = {
            x: row
            for x in lines
            if COMMENT.match(x)
            if len(row := split_cells(x, self.separator)) == self.width
        }
        if not candidates:
            return frozenset()
        rows = (split_cells(x, self.separator) for x in lines if not COMMENT.match(x))
        tags = {row[self.tag] for row in rows if len(row) == self.width}
        are_capitals = not any(TYPED_TAG.fullmatch(x) or x != x.upper() for x in tags)
        after_first_word = {
            x
            for _, block in split_blocks(lines)
            for x in dropwhile(COMMENT.match, block)
            if x in candidates
        }
        return frozenset(
            x
            for x, row in candidates.items()
            if (tag := row[self.tag]) not in tags | {"O", "#"}
            and x not in after_first_word
            and not TYPED_TAG.fullmatch(tag)
            and not (
                are_capitals
                and (tag.isalpha() or not tag.isalnum())
                and tag == tag.upper()
            )
        )

    def _split_sentences(
        self, lines: Sequence[str]
    ) -> Iterator[tuple[int, Sequence[str]]]:
        """Yield first line number and lines of each sentence.

        In a table with a sentence column, a new value starts a sentence.
        """
        if self.header is None:
            yield from split_blocks(lines)
            return
        # An empty row of a spreadsheet consists of separators.
        rows = ["" if {*x} <= {self.separator, " "} else x for x in lines]
        rows[: self.header.line] = [""] * self.header.line
        column = self.header.sentence
        for first, block in split_blocks(rows):
            start, previous_id = 0, ""
            for number, line in enumerate(block):
                row = split_cells(line, self.separator)
                sentence_id = (
                    row[column] if column is not None and column < len(row) else ""
                )
                if sentence_id and sentence_id != previous_id:
                    if number > start:
                        yield first + start, block[start:number]
                    start, previous_id = number, sentence_id
            yield first + start, block[start:]

    def _is_comment(
        self, line: str, has_started: bool, comments: frozenset[str]
    ) -> bool:
        if not line.startswith("#") or self.header:
            return False
        if self.has_word_numbers:
            return True
        has_other_width = len(split_cells(line, self.separator)) != self.width
        pattern = COMMENT if has_other_width else METADATA_COMMENT
        return not has_started and (line in comments or pattern.match(line) is not None)

    def _parse_rows(
        self, block: Sequence[str], first_line: int, comments: frozenset[str]
    ) -> tuple[list[int], list[list[str]]]:
        """Return line numbers and columns of the words of a sentence."""
        if not all(map(str.isascii, block)):
            for number, line in enumerate(block, first_line):
                if fault := describe_bad_byte(line):
                    raise ValueError(f"line {number}: {fault}")
        numbers: list[int] = []
        rows: list[list[str]] = []
        if self.strict:
            for number, row in conllu_rows.iter_word_rows(
                block, first_line, self.names
            ):
                numbers.append(number)
                rows.append(row)
            return numbers, rows
        previous_number = None
        for number, line in enumerate(block, first_line):
            if line[0] == "#" and self._is_comment(line, bool(rows), comments):
                continue
            row = split_cells(line, self.separator)
            if self.header and self.separator == "\t":
                row = [formats.unquote(x) for x in row]
                # Trailing empty cells may lack their tabs.
                row += [""] * (self.width - len(row))
            if len(row) != self.width:
                separator_name = SEPARATOR_NAMES[self.separator]
                raise ValueError(
                    f"line {number}: expected {self.width} columns separated by"
                    f" {separator_name} as on line {self.line}, got {len(row)}"
                    f" ({line.strip()[:60]!r})"
                )
            if self.has_word_numbers:
                if WORD_NUMBER.fullmatch(row[0]) and not row[0].isdecimal():
                    continue
                if not INTEGER.fullmatch(row[0]) or previous_number not in (
                    None,
                    int(row[0]) - 1,
                ):
                    after = "" if previous_number is None else f" {previous_number + 1}"
                    raise ValueError(
                        f"line {number}: expected the number{after} of a word in the"
                        f" first column, got {row[0][:60]!r}"
                    )
                previous_number = int(row[0])
            numbers.append(number)
            rows.append(row)
        return numbers, rows

    def _extract_tags(self, columns: Sequence[Sequence[str]]) -> list[str]:
        if self.tag_key is not None:
            pairs = [
                [x.partition("=") for x in last.split("|")] for last in columns[-1]
            ]
            attributes = [{name: value for name, _, value in x} for x in pairs]
            return [values.get(self.tag_key, "O") for values in attributes]
        return [] if self.tag is None else list(columns[self.tag])

    @property
    def _other_columns(self) -> list[int]:
        """Columns that hold neither numbers nor words nor tags."""
        if self.has_word_numbers:
            return []
        used = {self.word, self.tag}
        if self.header:
            used |= {self.header.sentence, *self.header.numbers}
        return [n for n in range(self.width) if n not in used]


def detect_format(
    name: str | Path, lines: Sequence[str], layout: Layout = DEFAULT_LAYOUT
) -> ColumnFormat:
    """Detect the format of a file from the majority of its lines.

    Evidence counts in this order: a header, options of ``layout``, the CoNLL-U Plus
    comment, the file name, numbered words, columns whose values are tags. Without
    evidence of columns the file is text.

    Raises
    ------
    ValueError
        For a file in a known format that is not supported.
    """
    formats.refuse_unsupported_format(name, lines)
    numbered_lines = [
        (n, x) for n, x in enumerate(lines[:MAX_SAMPLE_LINES], 1) if not is_blank(x)
    ]
    numbered_lines = [(n, x) for n, x in numbered_lines if not _is_document_mark(x)]
    if header := formats.find_header(name, lines):
        return _detect_table_format(name, header, numbered_lines, layout)
    data = [(n, x) for n, x in numbered_lines if not COMMENT.match(x)]
    data = data or numbered_lines
    separator = formats.detect_separator(name, [x for _, x in data]) if data else " "
    is_tabbed = separator == "\t"
    rows = [split_cells(x, separator) for _, x in data]
    counts = Counter(map(len, rows))
    width = counts.most_common(1)[0][0] if rows else 1
    line = next((n for (n, _), x in zip(data, rows, strict=True) if len(x) == width), 1)
    columns = list(zip(*[row for row in rows if len(row) == width], strict=True))
    spans = [
        n for n, values in enumerate(columns) if _are_span_tags(values, layout.unknown)
    ]
    numbered = width > 2 or (width == 2 and is_tabbed and 1 not in spans)
    first_cells = [(n, row[0]) for (n, _), row in zip(data, rows, strict=True)]
    numbered = numbered and _are_word_numbers(first_cells)
    notes = takewhile(lambda x: x.startswith("#"), (x for _, x in numbered_lines))
    plus_header = next(filter(None, map(PLUS_HEADER.match, notes)), None)
    names: Sequence[str] = []
    kind, strict = "columns", False
    # The tag may stand before the word.
    word = int(numbered or (spans == [0] and width > 1))
    if plus_header:
        kind, names = "CoNLL-U Plus", _normalise_column_names(plus_header[1].split())
        strict = numbered = "ID" in names and "FORM" in names
        word = names.index("FORM") if "FORM" in names else 0
    elif str(name).removesuffix(".gz").endswith(".conllu") or (
        numbered and is_tabbed and width == len(conllu_rows.NAMES)
    ):
        kind, names, word = "CoNLL-U", conllu_rows.NAMES, 1
        strict = numbered = True
    elif numbered and width == 4 and spans[-2:] == [2, 3]:
        kind, names = "GermEval", ["number", "word", "outer", "inner"]
    elif not numbered and width in (3, 4) and width - 1 in spans:
        kind = "CoNLL-2003" if width == 4 else "CoNLL-2000"
        names = ["word", "pos", "chunk", "ner"][:width]
    if names:
        width, separator = len(names), "\t" if strict else separator
    keys = _list_attribute_keys(lines) if strict and layout.column is not None else []
    word, tag, key = _resolve_columns(name, layout, width, names, keys, word)
    spans = [n for n in spans if n != word and not (numbered and n == 0)]
    if tag is None and key is None:
        tag = spans[0 if numbered else -1] if spans else width - 1
        if not spans and "UPOS" in names:
            tag = names.index("UPOS")
        if plus_header:
            tags = [n for n, x in enumerate(names) if x.lower() in formats.TAG_COLUMNS]
            tag = next((n for n in (*tags, tag) if not spans or n in spans), tag)
        tag = None if tag == word else tag
    # Lines of text rarely have equal numbers of words or end in tags.
    is_mostly_columns = width > 1 and 2 * counts[width] >= len(data)
    is_explicit = layout.column is not None or layout.word_column is not None
    is_columns = is_explicit or numbered or bool(names and plus_header)
    # A line of text may contain commas, so they need further evidence.
    is_table = str(name).removesuffix(".gz").endswith((".csv", ".tsv"))
    is_columns |= separator in ",;" and (is_table or bool(spans))
    # Text may be indented by tabs, so only tabs inside of lines count.
    is_columns |= 2 * sum("\t" in x.strip() for _, x in data) > len(data) > 0
    is_columns |= (
        is_mostly_columns and bool(spans) and (is_tabbed or width == 2 or len(data) > 1)
    )
    is_columns |= is_mostly_columns and is_tabbed and len(counts) == 1
    # Blocks of lines with equal numbers of words are columns.
    num_sentences = sum(1 for _ in split_blocks(lines[:MAX_SAMPLE_LINES]))
    is_columns |= (
        is_mostly_columns and len(counts) == 1 and 1 < num_sentences <= len(data) / 2
    )
    is_columns |= is_mostly_columns and str(name).removesuffix(".gz").endswith(
        COLUMN_SUFFIXES
    )
    is_columns |= not any(n > 1 for n in counts)
    # Every line ends in a part of speech.
    is_uniform = len(data) > 1 == len(counts)
    is_columns |= is_uniform and all(map(PARTS_OF_SPEECH.fullmatch, {*columns[-1]}))
    if width == 1:
        _require_tabs_or_blanks(name, data)
    elif (
        str(name).removesuffix(".gz").endswith(".csv")
        and not (plus_header or strict or tag is None)
        and _starts_with_column_name(columns[tag], layout.unknown)
    ):
        raise formats.missing_header_error(name, data[0][1])
    if is_tabbed and not strict and columns and is_columns:
        _require_word_column(name, line, word, columns[word])
    return ColumnFormat(
        kind, names, width, line, separator, numbered, strict, word, tag, key,
        tag in spans or key is not None, not is_columns, spans,
    )  # fmt: skip


def _require_tabs_or_blanks(
    name: str | Path, numbered_lines: Sequence[tuple[int, str]]
) -> None:
    """Raise if columns are separated by other white space than tabs and blanks."""
    rows = [line.split() for _, line in numbered_lines]
    has_multiple_fields = all(len(row) > 1 for row in rows)
    if has_multiple_fields and _are_tags([row[-1] for row in rows]):
        number, line = numbered_lines[0]
        space = next(c for c in line.strip() if c.isspace())
        raise ValueError(
            f"{name}, line {number}: expected columns separated by tabs or blanks, got"
            f" U+{ord(space):04X} in {line.strip()[:60]!r}. Write a tab for it"
        )


def _starts_with_column_name(tags: Sequence[str], unknown: str | None) -> bool:
    """Return whether the first value is a column name rather than a tag."""
    first, *other_tags = tags
    if first in (unknown, MISSING, "", *SPECIAL_TAGS, *other_tags):
        return False
    if _are_span_tags(other_tags, unknown):
        return not (
            _detect_notation(other_tags).only_types or _are_span_tags([first], None)
        )
    return first != first.upper() and _are_tags(other_tags)


def _are_tags(values: Sequence[str]) -> bool:
    """Return whether most values are span tags, or all are parts of speech."""
    return bool(values) and (
        _are_span_tags(values, None) or all(map(PARTS_OF_SPEECH.fullmatch, values))
    )


def _detect_table_format(
    name: str | Path,
    header: formats.Header,
    numbered_lines: Sequence[tuple[int, str]],
    layout: Layout,
) -> ColumnFormat:
    """Return the format of a table with a header."""
    rows = [
        split_cells(x, header.separator) for n, x in numbered_lines if n > header.line
    ]
    width = len(header.names)
    complete = [row for row in rows if len(row) == width]
    columns = list(zip(*complete, strict=True)) or [()] * width
    spans = [
        n for n, values in enumerate(columns) if _are_span_tags(values, layout.unknown)
    ]
    word, tag, _ = _resolve_columns(name, layout, width, header.names, (), header.word)
    spans = [n for n in spans if n not in (word, header.sentence)]
    _require_word_column(name, header.line + 1, word, columns[word])
    if tag is None:
        tags = [n for n in (*header.tags, *reversed(spans)) if n != word]
        tag = next((n for n in tags if n in spans), tags[0] if tags else None)
    return ColumnFormat(
        f"{formats.FORMAT_NAMES[header.separator]} with a header", header.names, width,
        header.line, header.separator, False, False, word, tag, None, tag in spans,
        False, spans, header,
    )  # fmt: skip


def _require_word_column(
    name: str | Path, line: int, column: int, values: Sequence[str]
) -> None:
    """Raise if the word column holds sentences rather than words."""
    phrases = [x for x in values if " " in x]
    if 2 * len(phrases) > len(values):
        raise ValueError(
            f"{name}, line {line}: expected one word a line in column {column + 1}, got"
            f" {phrases[0][:60]!r}. Write one word a line, or give the column of"
            " sentences alone as text"
        )


def _normalise_column_names(names: Sequence[str]) -> list[str]:
    """Return CoNLL-U names in capitals, and other names unchanged."""
    return [x.upper() if x.upper() in conllu_rows.NAMES else x for x in names]


def _resolve_columns(
    name: str | Path,
    layout: Layout,
    width: int,
    names: Sequence[str],
    keys: Sequence[str],
    word: int,
) -> tuple[int, int | None, str | None]:
    """Resolve the columns of a layout to (word index, tag index, tag key).

    At most one of tag index and tag key is set; ``word`` is the default word index.
    """
    numbers = {str(n): n - 1 for n in range(1, width + 1)}
    numbers |= {str(-n): width - n for n in range(1, width + 1)}
    index_by_name = numbers | {x.lower(): n for n, x in enumerate(names)}
    listed = [f"{n} ({x})" for n, x in enumerate(names, 1)] or [f"1 to {width}"]

    def find_column(option: str, requested: str, keys: Sequence[str] = ()) -> int:
        if requested.lower() not in index_by_name:
            expected = ", ".join([*listed, *keys])
            raise ValueError(
                f"{option}: expected a column of {name}, {expected}, got {requested!r}"
            )
        return index_by_name[requested.lower()]

    if layout.word_column is not None:
        word = find_column("word_column", layout.word_column)
    if layout.column is None:
        return word, None, None
    if layout.column in keys and layout.column.lower() not in index_by_name:
        return word, None, layout.column
    tag = find_column("column", layout.column, keys)
    if tag == word:
        raise ValueError(
            f"column: expected another column than that of the words, got"
            f" {layout.column!r}"
        )
    return word, tag, None


def _list_attribute_keys(lines: Sequence[str]) -> list[str]:
    """Return the sorted keys of ``key=value`` pairs in the last column."""
    rows = (line for line in lines if line and not line.startswith("#"))
    pairs = {pair for x in rows for pair in x.rpartition("\t")[2].split("|")}
    return sorted({pair.partition("=")[0] for pair in pairs if "=" in pair})


def _are_span_tags(values: Sequence[str], unknown: str | None) -> bool:
    """Return whether most values are tags of spans."""
    counts = Counter(values)
    for ignored in (unknown or "", MISSING, "", *SPECIAL_TAGS):
        counts.pop(ignored, None)
    if len(counts) <= MAX_TAGS:
        notation = _detect_notation(counts.elements())
        types = (n for x, n in counts.items() if x != notation.outside or x == "O")
        if notation.only_types and max(types) < 2:
            # Bare types need repetition: a line of text may end in O, several in 0.
            return False
        normalised = Counter[str]()
        for tag, times in counts.items():
            normalised[notation.normalise(tag)] += times
        counts = normalised
    typed = sum(n for x, n in counts.items() if TYPED_TAG.fullmatch(x))
    outside = counts["O"]
    is_bare = outside > 0 and all(
        set(x) <= BARE_PREFIXES and len(x) == 1 for x in counts if counts[x]
    )
    return is_bare or (typed > 0 and 2 * typed >= counts.total() - outside)


def _are_word_numbers(first_cells: Sequence[tuple[int, str]]) -> bool:
    """Return whether (line number, first cell) pairs number the words of sentences."""
    starts, steps, previous = [], [], (0, "")
    for line, first in first_cells:
        if line != previous[0] + 1:
            starts.append(first)
        elif INTEGER.fullmatch(first) and INTEGER.fullmatch(previous[1]):
            steps.append(int(first) == int(previous[1]) + 1)
        previous = (line, first)
    counts = _majority_matches(FIRST_NUMBER, starts) or 2 * sum(steps) > len(steps)
    return counts and _majority_matches(
        WORD_NUMBER, [first for _, first in first_cells]
    )


def _majority_matches(pattern: re.Pattern[str], values: Sequence[str]) -> bool:
    return 2 * sum(bool(pattern.fullmatch(x)) for x in values) >= len(values)


def split_blocks(lines: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield first line number and lines of each run of non-blank lines."""
    start = 0
    for number, line in enumerate([*lines, ""]):
        if is_blank(line) or _is_document_mark(line):
            if start < number:
                yield start + 1, lines[start:number]
            start = number + 1


def _is_document_mark(line: str) -> bool:
    """Return whether a line separates documents, as ``-DOCSTART-``."""
    return DOCUMENT_MARK in line and line.split()[0] == DOCUMENT_MARK


# --- JSON lines ---


def _is_json_lines(name: str | Path, lines: Sequence[str]) -> bool:
    stem = str(name).removesuffix(".gz")
    first = next((line for line in lines if line.strip()), "")
    return stem.endswith((".jsonl", ".ndjson", ".json")) or bool(
        JSON_START.match(first)
    )


def _iter_json_sentences(
    lines: Sequence[str], with_tags: bool
) -> Iterator[SentenceOrError]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        # The decoder is recursive: deep brackets exceed Python's recursion limit.
        except (ValueError, RecursionError) as error:
            yield f"line {number}: expected a JSON object, got {error}"
            continue
        words, tags = (_find_first_value(row, names) for names in (WORD_KEYS, TAG_KEYS))
        if isinstance(words, list) and tags is None and {*TAG_KEYS} & {*row}:
            tags = [None] * len(words)
        labelled = (
            [x for x in tags if x is not None] if isinstance(tags, list) else tags
        )
        if not _are_text_strings(words) or (
            with_tags and not _are_text_strings(labelled)
        ):
            tag_keys = ", and tags, ner_tags or labels" if with_tags else ""
            yield (
                f"line {number}: expected an object with words or tokens{tag_keys},"
                f" lists of strings of which none is empty or has a"
                f" character that is no text, got {line.strip()[:60]!r}"
            )
        elif isinstance(tags, list) and len(words) != len(tags):
            yield (
                f"line {number}: expected a tag for each word, got {len(words)} words"
                f" and {len(tags)} tags"
            )
        elif not with_tags:
            yield FileSentence(words, [], [number] * len(words))
        elif words:
            yield FileSentence(words, tags, [number] * len(words))


def _find_first_value(row: object, keys: tuple[str, ...]) -> Any:
    """Return the value of the first key that an object has, or None."""
    mapping = row if isinstance(row, dict) else {}
    return next((mapping[name] for name in keys if name in mapping), None)


def _are_text_strings(value: Any) -> bool:
    strings = isinstance(value, list) and all(isinstance(x, str) and x for x in value)
    # Lone surrogates cannot be encoded, so no file can hold them.
    return strings and not any(
        c == "\0" or 0xD800 <= ord(c) < 0xE000 for x in value for c in x
    )
