"""The reader of files of words with columns: one word a line, sentences between blanks.

Recognised are CoNLL-2003, CoNLL-2000, CoNLL-U, CoNLL-U Plus, GermEval, and any other
columns parted by tabs, blanks, commas or semicolons, with or without a header; also
JSON lines (``.jsonl``) with ``words`` (or ``tokens``) and ``tags`` (or ``ner_tags``,
``labels``). Any of them may be compressed by gzip. One line on standard error says what
a file was read as. Blanks and tabs are nothing; other white space is part of a word.
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
DOCUMENT, MISSING = "-DOCSTART-", "_"
# A word may be #, or begin with it, too.
COMMENT, PAIR = re.compile(r"#(\s|$)"), re.compile(r"#\s+[\w.:-]+\s+=\s")
PLUS = re.compile(r"#\s*global\.columns\s*=\s*(.*)", re.IGNORECASE)
PARTED = {"\t": "tabs", " ": "blanks", ",": "commas", ";": "semicolons"}
NUMBER, FIRST = re.compile(r"[0-9]+([-.][0-9]+)?"), re.compile(r"[01]([-.][0-9]+)?")
WHOLE = re.compile(r"[0-9]{1,9}")
TYPED = re.compile(r"[BIESLUMW]-[^\d\s].*")
# Prefixes before types that begin with a letter or sign, and with anything.
SIGN, ANY = (
    re.compile(r"\A([BIESLUMW]-)(?=[^\d\s])"),
    re.compile(r"\A([BIESLUMW]-)(?=\S)"),
)
OBJECT = re.compile(r"\s*[\[{]\s*[{\"]")
BARE = frozenset("OBIESLUMW")
# Labels of word pieces and of marks around sentences, which are tags of no word.
EXTRA = ("X", "[CLS]", "[SEP]", "[PAD]")
# Parts of speech of UD and Penn: a column of these is tags, not text.
PARTS_OF_SPEECH = re.compile(
    "ADJ|ADP|ADV|AUX|CCONJ|DET|INTJ|NOUN|NUM|PART|PRON|PROPN|PUNCT|SCONJ|SYM|VERB"
    "|CC|CD|DT|EX|FW|IN|JJ[RS]?|LS|MD|NNP?S?|PDT|POS|PRP[$]?|RB[RS]?|RP|TO|UH|VB[DGNPZ]?"
    "|WDT|WP[$]?|WRB|[#$.,:]|``|''"
)
ENDINGS = (".conll", ".iob", ".iob2", ".bio")
# Lines that are looked at to recognise columns.
SAMPLE = 20_000
# Words of a sentence that is likelier a whole text without blank lines.
LONG = 2_000
# Different tags of a column; one with more has words.
MOST_TAGS = 1_000


@dataclass(frozen=True)
class Layout:
    """Columns, encoding and marks of a file, where they cannot be recognised."""

    column: str | None = None
    """Column of the tags: its number from 1, from the end if negative, or a
    name; in CoNLL-U also a key of the last column, as NER."""
    word_column: str | None = None
    """Column of the words, by number or name."""
    encoding: str | None = None
    """Encoding of the file; UTF-8, or else latin-1, if not given."""
    skip_bad: bool = False
    """Leave out what cannot be read, with a warning that counts it."""
    unknown: str | None = None
    """Tag of words that nobody tagged."""

    def __post_init__(self) -> None:
        if self.unknown is not None and (
            self.unknown in ("", "O") or TYPED.fullmatch(self.unknown)
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
    """Return the name of a column that was given by number or name."""
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
    """A sentence as it stands in a file."""

    words: list[str]
    tags: list[Any]
    """Tag of each word; None where JSON has null."""
    lines: Sequence[int]
    """The line of each word."""
    others: Sequence[Sequence[str]] = ()
    document: int = 0

    def sentence(self, unknown: str | None = None) -> TaggedSentence:
        """Return it without its lines, and None for the tag that is unknown."""
        tags = self.tags
        if unknown is not None:
            tags = [None if x == unknown else x for x in tags]
        return TaggedSentence(self.words, tags or None, self.document, self.others)


@dataclass(frozen=True)
class ParsedFile:
    """Sentences of a file, and its faults."""

    sentences: list[TaggedSentence]
    scheme: str | None = None
    """Scheme of the tags, as ``smoothsp.schemes`` names it; None if there are none."""
    texts: list[str] = field(default_factory=list)
    """Sentences as running text, in place of ``sentences``."""
    bad: list[str] = field(default_factory=list)
    """Fault of each sentence that is left out, from the line's number on."""
    notation: schemes.Notation = schemes.DEFAULT_NOTATION
    """Notation of the tags in the file; in ``sentences`` they are ``B-PER``, ``O``."""


# A sentence, or what is wrong with it.
SentenceOrError = FileSentence | str


def read(path: str | Path, layout: Layout = DEFAULT_LAYOUT) -> ParsedFile:
    """Sentences of one file with their tags.

    Raises
    ------
    ValueError
        For the first sentence that cannot be read, with file and line; with
        ``layout.skip_bad`` only if none can be.
    """
    return _read(path, [layout])[0]


def read_levels(
    path: str | Path, columns: Sequence[str | int] = (), layout: Layout = DEFAULT_LAYOUT
) -> list[ParsedFile]:
    """Read a file once for each of several columns of tags, as GermEval has them.

    Columns are those that are named, or all that have tags of spans.
    With ``layout.skip_bad`` a sentence that is bad in one of them is left out of all.
    """
    content = read_content(path, "a file of tagged words")
    lines = decode_lines(content, path, layout.encoding, strict=False)
    columns = columns or [n + 1 for n in detect_format(path, lines, layout).spans]
    if len(columns) < 2:
        raise ValueError(
            f"{path}: expected 2 columns of tags of spans, or more, got {len(columns)}."
            " Name them with columns"
        )
    own = [as_column_name("columns", column) for column in columns]
    return _read(path, [replace(layout, column=column) for column in own])


def _read(path: str | Path, layouts: Sequence[Layout]) -> list[ParsedFile]:
    """Read a file once for each layout, the same sentences each time."""
    content = read_content(path, "a file of tagged words")
    lines = decode_lines(content, path, layouts[0].encoding, strict=False)
    if not _hold_words(lines):
        raise ValueError(
            f"{path}: expected at least one sentence, got none. Is this the right file,"
            " and was it copied whole?"
        )
    said: list[str] = []
    checked: list[list[SentenceOrError]] = []
    forms: list[tuple[str, schemes.Notation]] = []
    for layout in layouts:
        if _is_json(path, lines):
            kind, found, where = "JSON lines", list(_of_json(lines, tagged=True)), ""
        else:
            form = detect_format(path, lines, layout)
            if form.tag is None and form.key is None:
                raise ValueError(
                    f"{path}, line {form.line}: expected 2 columns or more, a word and"
                    f" its tag at least, got {form.width}"
                )
            kind = f"{form}, tags from column {form.tags}"
            found, where = form.sentences(lines), f" in column {form.tags}"
        found, notation = _normalised(found, layout.unknown)
        rows, scheme = _in_scheme(found, layout.unknown, where)
        scheme_text = "no scheme" if scheme == schemes.PLAIN else f"scheme {scheme}"
        scheme_text += (
            "" if notation == schemes.DEFAULT_NOTATION else f", written as {notation}"
        )
        said.append(f"{path}: read as {kind}, {scheme_text}")
        checked.append(rows)
        forms.append((scheme, notation))
    wrong = [
        next((x for x in same if isinstance(x, str)), None)
        for same in zip(*checked, strict=True)
    ]
    bad = [x for x in wrong if x]
    if bad and not layouts[0].skip_bad:
        raise ValueError(f"{path}, {bad[0]}")
    if bad:
        print_stderr(
            f"warning: {path}: left out {len(bad)} of {len(wrong)} sentences that could"
            f" not be read, the first for this: {bad[0]}"
        )
    if len(bad) == len(wrong):
        raise ValueError(f"{path}: expected at least one sentence, got none")
    for line in said:
        print_stderr(line)
    longest = max(len(x.words) for x in checked[0] if isinstance(x, FileSentence))
    if longest > LONG:
        print_stderr(
            f"warning: {path}: one sentence has {longest:,} words; a blank line, or a"
            " column sentence_id, ends a sentence"
        )
    files = []
    for rows, (scheme, notation) in zip(checked, forms, strict=True):
        good = [x for x, no in zip(rows, wrong, strict=True) if not no]
        sentences = [
            x.sentence(layouts[0].unknown) for x in good if isinstance(x, FileSentence)
        ]
        files.append(ParsedFile(sentences, scheme, bad=bad, notation=notation))
    return files


def read_sentences(source: str | Path, layout: Layout = DEFAULT_LAYOUT) -> ParsedFile:
    """Sentences to be tagged, of a file or of standard input (``-``).

    Beside what ``read`` takes, whose tags only say in which scheme to write: one word a
    line, and running text, one sentence a line.
    """
    content = read_content(source, "a file of text", stdin=True)
    name = display_name(source)
    lines = decode_lines(content, name, layout.encoding, strict=False)
    return parse_sentences(lines, name, layout)


def parse_sentences(
    lines: Sequence[str], name: str, layout: Layout = DEFAULT_LAYOUT
) -> ParsedFile:
    """Sentences of the lines of a file."""
    if not _hold_words(lines):
        raise ValueError(
            f"{name}: expected words, got none. Give one sentence a line, or one"
            " word a line with a blank line after each sentence"
        )
    if _is_json(name, lines):
        said, found, tagged = "JSON lines", list(_of_json(lines, tagged=False)), False
    else:
        form = detect_format(name, lines, layout)
        if form.is_text:
            print_stderr(f"{name}: read as text, one sentence a line")
            return _texts(lines)
        said, found, tagged = str(form), form.sentences(lines), form.in_scheme
    print_stderr(f"{name}: read as {said}")
    if not found:
        raise ValueError(f"{name}: expected at least one sentence, got none")
    scheme, notation = None, schemes.DEFAULT_NOTATION
    if tagged:
        found, notation = _normalised(found, layout.unknown)
        scheme = schemes.detect(x.tags for x in found if isinstance(x, FileSentence))
    good = [x.sentence() for x in found if isinstance(x, FileSentence)]
    bad = [x for x in found if isinstance(x, str)]
    return ParsedFile(good, scheme, bad=bad, notation=notation)


def _hold_words(lines: Sequence[str]) -> bool:
    return any(line.split()[:1] not in ([], [DOCUMENT]) for line in lines)


def _texts(lines: Sequence[str]) -> ParsedFile:
    wrong = {n: describe_bad_byte(line) for n, line in enumerate(lines, 1)}
    texts = [line for n, line in enumerate(lines, 1) if line.strip() and not wrong[n]]
    bad = [f"line {number}: {what}" for number, what in wrong.items() if what]
    return ParsedFile([], None, [x for x in texts if x.strip() != DOCUMENT], bad)


def _normalised(
    found: Sequence[SentenceOrError], unknown: str | None
) -> tuple[list[SentenceOrError], schemes.Notation]:
    """Sentences with tags as ``B-PER`` and ``O``, and how they were written."""
    good = [x.tags for x in found if isinstance(x, FileSentence)]
    nothing = ("", MISSING, unknown, None, *EXTRA)
    notation = _notation_of(
        (tag for tag in chain.from_iterable(good) if tag not in nothing), ANY
    )
    if notation == schemes.DEFAULT_NOTATION:
        return list(found), notation
    known = {x: x if x in nothing else notation.normalise(x) for x in {*chain(*good)}}
    return [
        replace(x, tags=[known[tag] for tag in x.tags])
        if isinstance(x, FileSentence)
        else x
        for x in found
    ], notation


def _notation_of(
    tags: Iterable[str], prefixed: re.Pattern[str] = SIGN
) -> schemes.Notation:
    """Return how tags are written; a type may begin with a sign, as in B-😀."""
    return schemes.notation_of(prefixed.sub(r"\1x", tag) for tag in tags)


def _in_scheme(
    found: Sequence[SentenceOrError], unknown: str | None, where: str
) -> tuple[list[SentenceOrError], str]:
    """Sentences in the scheme that most tags are in, or what is wrong with each."""
    good = [x.tags for x in found if isinstance(x, FileSentence)]
    given: list[list[Any]] = list(good)
    if unknown is not None:
        given = [[None if tag == unknown else tag for tag in tags] for tags in good]
    scheme = schemes.detect(given)
    known = set(chain.from_iterable(good)) - {unknown, None}
    wrong = {tag for tag in known if not _is_of(tag, scheme)}
    if scheme != schemes.PLAIN and any("-" in tag for tag in known):
        wrong |= known & (BARE - {"O"})
    checked: list[SentenceOrError] = []
    for row in found:
        if isinstance(row, str) or wrong.isdisjoint(row.tags):
            checked.append(row)
        else:
            pairs = zip(row.tags, row.lines, strict=True)
            tag, line = next(pair for pair in pairs if pair[0] in wrong)
            remedy = "Write the tag of the word, or delete the line"
            if tag in EXTRA:
                remedy = "Delete lines of word pieces and of marks around sentences"
            of = "" if scheme == schemes.PLAIN else f" of the scheme {scheme} as others"
            checked.append(
                f"line {line}: expected a tag{of}{where}, got {tag!r}. {remedy}"
            )
    return checked, scheme


def _is_of(tag: str, scheme: str) -> bool:
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
    """Content of the lines of a file, column by column."""

    kind: str
    names: Sequence[str]
    """Names of the columns, if they have any."""
    width: int
    line: int
    """The first line with so many columns."""
    by: str
    """Separator."""
    numbered: bool
    """True if the first column counts the words of a sentence."""
    strict: bool
    """True if the rule of CoNLL-U holds."""
    word: int
    tag: int | None
    key: str | None
    """Key in the last column, in place of a column for the tags."""
    in_scheme: bool
    """True if the tags are those of spans."""
    is_text: bool
    """True for running text, without columns."""
    spans: Sequence[int]
    """All columns with the tags of spans."""
    header: formats.Header | None = None

    def __str__(self) -> str:
        return f"{self.kind}: words from column {self.word + 1}"

    @property
    def tags(self) -> str:
        """Column or key of the tags."""
        return self.key or str((self.tag or 0) + 1)

    def sentences(self, lines: Sequence[str]) -> list[SentenceOrError]:
        """Read the sentences of a file."""
        found: list[SentenceOrError] = []
        notes = self._notes(lines)
        starts = [number for number, line in enumerate(lines, 1) if _parts(line)]
        for first, block in self._blocks(lines):
            try:
                numbers, rows = self._words(block, first, notes)
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
                # the collector of garbage passes over tuples of strings and numbers
                others = tuple(columns[n] for n in self._others)
                words, tags = list(columns[self.word]), self._tags_in(columns)
                document = bisect(starts, first)
                found.append(
                    FileSentence(words, tags, tuple(numbers), others, document)
                )
            except ValueError as error:
                found.append(str(error))
        return found

    def _notes(self, lines: Sequence[str]) -> frozenset[str]:
        """Lines that look like words, of which they have as many columns, but are not.

        A comment such as ``# doc1`` is parted by a blank, and stands above sentences
        only. It has no tag that a word has, nor one that looks like them.
        """
        several = self.width > 1 and self.word == 0 and not (self.numbered or self.key)
        if self.tag is None or not several or self.header or self.by != " ":
            return frozenset()
        alike = {x: row for x in lines if COMMENT.match(x)
                 if len(row := split_cells(x, self.by)) == self.width}  # fmt: skip
        if not alike:
            return frozenset()
        rows = (split_cells(x, self.by) for x in lines if not COMMENT.match(x))
        tags = {row[self.tag] for row in rows if len(row) == self.width}
        capitals = not any(TYPED.fullmatch(x) or x != x.upper() for x in tags)
        inside = {
            x
            for _, block in split_blocks(lines)
            for x in dropwhile(COMMENT.match, block)
            if x in alike
        }
        return frozenset(
            x
            for x, row in alike.items()
            if (tag := row[self.tag]) not in tags | {"O", "#"}
            and x not in inside
            and not TYPED.fullmatch(tag)
            and not (
                capitals and (tag.isalpha() or not tag.isalnum()) and tag == tag.upper()
            )
        )

    def _blocks(self, lines: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
        """Yield the lines of sentences, as ``blocks``; of a table its rows."""
        if self.header is None:
            yield from split_blocks(lines)
            return
        # a spreadsheet's empty row
        rows = ["" if {*x} <= {self.by, " "} else x for x in lines]
        rows[: self.header.line] = [""] * self.header.line
        column = self.header.sentence
        for first, block in split_blocks(rows):
            start, before = 0, ""
            for number, line in enumerate(block):
                row = split_cells(line, self.by)
                own = row[column] if column is not None and column < len(row) else ""
                if own and own != before:
                    if number > start:
                        yield first + start, block[start:number]
                    start, before = number, own
            yield first + start, block[start:]

    def _is_comment(self, line: str, begun: bool, notes: frozenset[str]) -> bool:
        if not line.startswith("#") or self.header:
            return False
        if self.numbered:
            return True
        other = len(split_cells(line, self.by)) != self.width
        pattern = COMMENT if other else PAIR
        return not begun and (line in notes or pattern.match(line) is not None)

    def _words(
        self, block: Sequence[str], first: int, notes: frozenset[str]
    ) -> tuple[list[int], list[list[str]]]:
        """Line number and columns of each word of a sentence."""
        if not all(map(str.isascii, block)):
            for number, line in enumerate(block, first):
                if wrong := describe_bad_byte(line):
                    raise ValueError(f"line {number}: {wrong}")
        numbers: list[int] = []
        rows: list[list[str]] = []
        if self.strict:
            for number, row in conllu_rows.iter_word_rows(block, first, self.names):
                numbers.append(number)
                rows.append(row)
            return numbers, rows
        before = None
        for number, line in enumerate(block, first):
            if line[0] == "#" and self._is_comment(line, bool(rows), notes):
                continue
            row = split_cells(line, self.by)
            if self.header and self.by == "\t":
                row = [formats.unquote(x) for x in row]
                # cells at the end may be empty
                row += [""] * (self.width - len(row))
            if len(row) != self.width:
                parted = PARTED[self.by]
                raise ValueError(
                    f"line {number}: expected {self.width} columns parted by {parted}"
                    f" as on line {self.line}, got {len(row)} ({line.strip()[:60]!r})"
                )
            if self.numbered:
                if NUMBER.fullmatch(row[0]) and not row[0].isdecimal():
                    continue
                if not WHOLE.fullmatch(row[0]) or before not in (None, int(row[0]) - 1):
                    after = "" if before is None else f" {before + 1}"
                    raise ValueError(
                        f"line {number}: expected the number{after} of a word in the"
                        f" first column, got {row[0][:60]!r}"
                    )
                before = int(row[0])
            numbers.append(number)
            rows.append(row)
        return numbers, rows

    def _tags_in(self, columns: Sequence[Sequence[str]]) -> list[str]:
        if self.key is not None:
            pairs = [
                [x.partition("=") for x in last.split("|")] for last in columns[-1]
            ]
            known = [{name: value for name, _, value in x} for x in pairs]
            return [values.get(self.key, "O") for values in known]
        return [] if self.tag is None else list(columns[self.tag])

    @property
    def _others(self) -> list[int]:
        """Columns that hold neither numbers nor words nor tags."""
        if self.numbered:
            return []
        left_out = {self.word, self.tag}
        if self.header:
            left_out |= {self.header.sentence, *self.header.numbers}
        return [n for n in range(self.width) if n not in left_out]


def detect_format(
    name: str | Path, lines: Sequence[str], layout: Layout = DEFAULT_LAYOUT
) -> ColumnFormat:
    """Recognise the columns of a file by most of its lines.

    Raises
    ------
    ValueError
        For a file that shows that it has another format.
    """
    formats.refuse_unsupported_format(name, lines)
    filled = [(n, x) for n, x in enumerate(lines[:SAMPLE], 1) if not is_blank(x)]
    filled = [(n, x) for n, x in filled if not _parts(x)]
    if header := formats.find_header(name, lines):
        return _of_table(name, header, filled, layout)
    data = [(n, x) for n, x in filled if not COMMENT.match(x)]
    data = data or filled
    by = formats.detect_separator(name, [x for _, x in data]) if data else " "
    tabs = by == "\t"
    rows = [split_cells(x, by) for _, x in data]
    counts = Counter(map(len, rows))
    width = counts.most_common(1)[0][0] if rows else 1
    line = next((n for (n, _), x in zip(data, rows, strict=True) if len(x) == width), 1)
    columns = list(zip(*[row for row in rows if len(row) == width], strict=True))
    spans = [
        n for n, values in enumerate(columns) if _are_spans(values, layout.unknown)
    ]
    numbered = width > 2 or (width == 2 and tabs and 1 not in spans)
    firsts = [(n, row[0]) for (n, _), row in zip(data, rows, strict=True)]
    numbered = numbered and _count_words(firsts)
    notes = takewhile(lambda x: x.startswith("#"), (x for _, x in filled))
    plus = next(filter(None, map(PLUS.match, notes)), None)
    names: Sequence[str] = []
    kind, strict = "columns", False
    # the tag may stand before the word
    word = int(numbered or (spans == [0] and width > 1))
    if plus:
        kind, names = "CoNLL-U Plus", _names_of_plus(plus[1].split())
        strict = numbered = "ID" in names and "FORM" in names
        word = names.index("FORM") if "FORM" in names else 0
    elif str(name).removesuffix(".gz").endswith(".conllu") or (
        numbered and tabs and width == len(conllu_rows.NAMES)
    ):
        kind, names, word = "CoNLL-U", conllu_rows.NAMES, 1
        strict = numbered = True
    elif numbered and width == 4 and spans[-2:] == [2, 3]:
        kind, names = "GermEval", ["number", "word", "outer", "inner"]
    elif not numbered and width in (3, 4) and width - 1 in spans:
        kind = "CoNLL-2003" if width == 4 else "CoNLL-2000"
        names = ["word", "pos", "chunk", "ner"][:width]
    if names:
        width, by = len(names), "\t" if strict else by
    keys = _keys(lines) if strict and layout.column is not None else []
    word, tag, key = _places(name, layout, width, names, keys, word)
    spans = [n for n in spans if n != word and not (numbered and n == 0)]
    if tag is None and key is None:
        tag = spans[0 if numbered else -1] if spans else width - 1
        if not spans and "UPOS" in names:
            tag = names.index("UPOS")
        if plus:
            tags = [n for n, x in enumerate(names) if x.lower() in formats.TAG_COLUMNS]
            tag = next((n for n in (*tags, tag) if not spans or n in spans), tag)
        tag = None if tag == word else tag
    # of text few lines have equally many words, and end in tags
    columns_all = width > 1 and 2 * counts[width] >= len(data)
    said = layout.column is not None or layout.word_column is not None
    sure = said or numbered or bool(names and plus)
    # a line of text may have a comma
    table = str(name).removesuffix(".gz").endswith((".csv", ".tsv"))
    sure |= by in ",;" and (table or bool(spans))
    # text may be indented
    sure |= 2 * sum("\t" in x.strip() for _, x in data) > len(data) > 0
    sure |= columns_all and bool(spans) and (tabs or width == 2 or len(data) > 1)
    sure |= columns_all and tabs and len(counts) == 1
    # sentences of several lines of equally many words are no text
    parted = sum(1 for _ in split_blocks(lines[:SAMPLE]))
    sure |= columns_all and len(counts) == 1 and 1 < parted <= len(data) / 2
    sure |= columns_all and str(name).removesuffix(".gz").endswith(ENDINGS)
    sure |= not any(n > 1 for n in counts)
    # a plain part of speech ends each line
    alike = len(data) > 1 == len(counts)
    sure |= alike and all(map(PARTS_OF_SPEECH.fullmatch, {*columns[-1]}))
    if width == 1:
        _refuse_other_spaces(name, data)
    elif (
        str(name).removesuffix(".gz").endswith(".csv")
        and not (plus or strict or tag is None)
        and _begin_with_name(columns[tag], layout.unknown)
    ):
        raise formats.missing_header_error(name, data[0][1])
    if tabs and not strict and columns and sure:
        _refuse_sentences(name, line, word, columns[word])
    return ColumnFormat(
        kind, names, width, line, by, numbered, strict, word, tag, key,
        tag in spans or key is not None, not sure, spans,
    )  # fmt: skip


def _refuse_other_spaces(name: str | Path, data: Sequence[tuple[int, str]]) -> None:
    """White space but tabs and blanks parts no columns, though it looks as if."""
    rows = [line.split() for _, line in data]
    several = all(len(row) > 1 for row in rows)
    if several and _look_like_tags([row[-1] for row in rows]):
        number, line = data[0]
        space = next(c for c in line.strip() if c.isspace())
        raise ValueError(
            f"{name}, line {number}: expected columns parted by tabs or blanks, got"
            f" U+{ord(space):04X} in {line.strip()[:60]!r}. Write a tab for it"
        )


def _begin_with_name(tags: Sequence[str], unknown: str | None) -> bool:
    """Return whether the first is the name of a column that nothing else tells of."""
    first, *others = tags
    if first in (unknown, MISSING, "", *EXTRA, *others):
        return False
    if _are_spans(others, unknown):
        return not (_notation_of(others).only_types or _are_spans([first], None))
    return first != first.upper() and _look_like_tags(others)


def _look_like_tags(values: Sequence[str]) -> bool:
    """Return whether most are tags of spans, or all of them parts of speech."""
    return bool(values) and (
        _are_spans(values, None) or all(map(PARTS_OF_SPEECH.fullmatch, values))
    )


def _of_table(
    name: str | Path,
    header: formats.Header,
    filled: Sequence[tuple[int, str]],
    layout: Layout,
) -> ColumnFormat:
    """The form of a file with a header."""
    rows = [split_cells(x, header.by) for n, x in filled if n > header.line]
    width = len(header.names)
    whole = [row for row in rows if len(row) == width]
    columns = list(zip(*whole, strict=True)) or [()] * width
    spans = [n for n, own in enumerate(columns) if _are_spans(own, layout.unknown)]
    word, tag, _ = _places(name, layout, width, header.names, (), header.word)
    spans = [n for n in spans if n not in (word, header.sentence)]
    _refuse_sentences(name, header.line + 1, word, columns[word])
    if tag is None:
        tags = [n for n in (*header.tags, *reversed(spans)) if n != word]
        tag = next((n for n in tags if n in spans), tags[0] if tags else None)
    return ColumnFormat(
        f"{formats.FORMAT_NAMES[header.by]} with a header", header.names, width,
        header.line, header.by, False, False, word, tag, None, tag in spans, False,
        spans, header,
    )  # fmt: skip


def _refuse_sentences(
    name: str | Path, line: int, word: int, values: Sequence[str]
) -> None:
    """A column of sentences is none of words."""
    several = [x for x in values if " " in x]
    if 2 * len(several) > len(values):
        raise ValueError(
            f"{name}, line {line}: expected one word a line in column {word + 1}, got"
            f" {several[0][:60]!r}. Write one word a line, or give the column of"
            " sentences alone as text"
        )


def _names_of_plus(names: Sequence[str]) -> list[str]:
    """The names of CoNLL-U are written in capitals; others are as they stand."""
    return [x.upper() if x.upper() in conllu_rows.NAMES else x for x in names]


def _places(
    name: str | Path,
    layout: Layout,
    width: int,
    names: Sequence[str],
    keys: Sequence[str],
    word: int,
) -> tuple[int, int | None, str | None]:
    """Columns that were named for words and tags, or a key of the last one."""
    numbers = {str(n): n - 1 for n in range(1, width + 1)}
    numbers |= {str(-n): width - n for n in range(1, width + 1)}
    known = numbers | {x.lower(): n for n, x in enumerate(names)}
    listed = [f"{n} ({x})" for n, x in enumerate(names, 1)] or [f"1 to {width}"]

    def place(option: str, wanted: str, keys: Sequence[str] = ()) -> int:
        if wanted.lower() not in known:
            expected = ", ".join([*listed, *keys])
            raise ValueError(
                f"{option}: expected a column of {name}, {expected}, got {wanted!r}"
            )
        return known[wanted.lower()]

    if layout.word_column is not None:
        word = place("word_column", layout.word_column)
    if layout.column is None:
        return word, None, None
    if layout.column in keys and layout.column.lower() not in known:
        return word, None, layout.column
    tag = place("column", layout.column, keys)
    if tag == word:
        raise ValueError(
            f"column: expected another column than that of the words, got"
            f" {layout.column!r}"
        )
    return word, tag, None


def _keys(lines: Sequence[str]) -> list[str]:
    """Keys before = in the last column."""
    rows = (line for line in lines if line and not line.startswith("#"))
    pairs = {pair for x in rows for pair in x.rpartition("\t")[2].split("|")}
    return sorted({pair.partition("=")[0] for pair in pairs if "=" in pair})


def _are_spans(values: Sequence[str], unknown: str | None) -> bool:
    """Return whether most of these are the tags of spans."""
    counts = Counter(values)
    for nothing in (unknown or "", MISSING, "", *EXTRA):
        counts.pop(nothing, None)
    if len(counts) <= MOST_TAGS:
        notation = _notation_of(counts.elements())
        types = (n for x, n in counts.items() if x != notation.outside or x == "O")
        if notation.only_types and max(types) < 2:
            # a line of text may end in O, several in 0
            return False
        own = Counter[str]()
        for tag, times in counts.items():
            own[notation.normalise(tag)] += times
        counts = own
    typed = sum(n for x, n in counts.items() if TYPED.fullmatch(x))
    outside = counts["O"]
    alone = outside > 0 and all(
        set(x) <= BARE and len(x) == 1 for x in counts if counts[x]
    )
    return alone or (typed > 0 and 2 * typed >= counts.total() - outside)


def _count_words(firsts: Sequence[tuple[int, str]]) -> bool:
    """Return whether most of these, each with its line, number words of sentences."""
    begin, steps, before = [], [], (0, "")
    for line, first in firsts:
        if line != before[0] + 1:
            begin.append(first)
        elif WHOLE.fullmatch(first) and WHOLE.fullmatch(before[1]):
            steps.append(int(first) == int(before[1]) + 1)
        before = (line, first)
    counts = _most(FIRST, begin) or 2 * sum(steps) > len(steps)
    return counts and _most(NUMBER, [first for _, first in firsts])


def _most(pattern: re.Pattern[str], values: Sequence[str]) -> bool:
    return 2 * sum(bool(pattern.fullmatch(x)) for x in values) >= len(values)


def split_blocks(lines: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """The lines of each sentence, and the number of the first."""
    start = 0
    for number, line in enumerate([*lines, ""]):
        if is_blank(line) or _parts(line):
            if start < number:
                yield start + 1, lines[start:number]
            start = number + 1


def _parts(line: str) -> bool:
    """Return whether a line is between two documents."""
    return DOCUMENT in line and line.split()[0] == DOCUMENT


# --- JSON lines ---


def _is_json(name: str | Path, lines: Sequence[str]) -> bool:
    stem = str(name).removesuffix(".gz")
    first = next((line for line in lines if line.strip()), "")
    return stem.endswith((".jsonl", ".ndjson", ".json")) or bool(OBJECT.match(first))


def _of_json(lines: Sequence[str], tagged: bool) -> Iterator[SentenceOrError]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        # brackets may nest deeper than Python calls itself
        except (ValueError, RecursionError) as error:
            yield f"line {number}: expected a JSON object, got {error}"
            continue
        words, tags = (_of_names(row, names) for names in (WORD_KEYS, TAG_KEYS))
        if isinstance(words, list) and tags is None and {*TAG_KEYS} & {*row}:
            tags = [None] * len(words)
        known = [x for x in tags if x is not None] if isinstance(tags, list) else tags
        if not _are_strings(words) or (tagged and not _are_strings(known)):
            also = ", and tags, ner_tags or labels" if tagged else ""
            yield (
                f"line {number}: expected an object with words or tokens{also},"
                f" lists of strings of which none is empty or has a"
                f" character that is no text, got {line.strip()[:60]!r}"
            )
        elif isinstance(tags, list) and len(words) != len(tags):
            yield (
                f"line {number}: expected a tag for each word, got {len(words)} words"
                f" and {len(tags)} tags"
            )
        elif not tagged:
            yield FileSentence(words, [], [number] * len(words))
        elif words:
            yield FileSentence(words, tags, [number] * len(words))


def _of_names(row: object, names: tuple[str, ...]) -> Any:
    """The value of the first of the names that an object has."""
    known = row if isinstance(row, dict) else {}
    return next((known[name] for name in names if name in known), None)


def _are_strings(value: Any) -> bool:
    strings = isinstance(value, list) and all(isinstance(x, str) and x for x in value)
    # nor is half of a surrogate pair text
    return strings and not any(
        c == "\0" or 0xD800 <= ord(c) < 0xE000 for x in value for c in x
    )
