"""The reader of files of words with columns: one word a line, sentences between blanks.

Recognised are CoNLL-2003, CoNLL-2000, CoNLL-U, CoNLL-U Plus, GermEval, and any other
columns parted by tabs or blanks; also JSON lines (``.jsonl``) with ``words`` (or
``tokens``) and ``tags`` (or ``ner_tags``, ``labels``). Any of them may be compressed by
gzip. One line on standard error says what a file was read as.
"""

import json
import re
import sys
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from corpora import conllu_rows
from corpora.text_files import bad_byte, content_of, lines_of, name_of
from smoothsp import schemes

WORDS, TAGS = ("words", "tokens"), ("tags", "ner_tags", "labels")
DOCUMENT, MISSING = "-DOCSTART-", "_"
# A word may be #, or begin with it, too.
COMMENT, PAIR = re.compile(r"#(\s|$)"), re.compile(r"#\s+[\w.:-]+\s+=\s")
PLUS = re.compile(r"#\s*global\.columns\s*=\s*(.*)")
NUMBER, FIRST = re.compile(r"[0-9]+([-.][0-9]+)?"), re.compile(r"[01]([-.][0-9]+)?")
TYPED = re.compile(r"[BIESLUMW]-[^\W\d].*")
OBJECT = re.compile(r"\s*[\[{]\s*[{\"]")
BARE = frozenset("OBIESLUMW")
ENDINGS = (".conll", ".iob", ".iob2", ".bio")
# Lines that are looked at to recognise columns.
SAMPLE = 20_000


@dataclass(frozen=True)
class Layout:
    """What a user says of a file beside what it tells by itself."""

    column: str | None = None
    """Where the tags are: the number of a column from 1, from the end if negative, or a
    name; in CoNLL-U also a key of the last column, as NER."""
    word_column: str | None = None
    """Where the words are: the number or name of a column."""
    encoding: str | None = None
    """Of files of words; UTF-8, or else latin-1, if not given."""
    skip_bad: bool = False
    """Leave out what cannot be read, with a warning that counts it."""
    unknown: str | None = None
    """What stands for the tag of a word that nobody tagged."""

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


AS_USUAL = Layout()


@dataclass(frozen=True)
class Sentence:
    words: list[str]
    tags: list[str]
    """As they stand in the file."""
    others: Sequence[Sequence[str]] = field(default=(), repr=False, compare=False)
    """The other columns but numbers, from top to bottom."""
    document: int = field(default=0, repr=False, compare=False)
    """How many lines with -DOCSTART- stand before it."""

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """All columns of each word but numbers and tags, the word first."""
        return list(zip(self.words, *self.others, strict=True))


@dataclass(frozen=True)
class File:
    """What was read, and what could not be."""

    sentences: list[Sentence]
    scheme: str | None = None
    """Of the tags, as ``smoothsp.schemes`` names it; None if there are none."""
    texts: list[str] = field(default_factory=list)
    """Sentences as running text, in place of ``sentences``."""
    bad: list[str] = field(default_factory=list)
    """What is wrong with each sentence that is left out, from the line's number on."""


# A sentence with the line of each word, or what is wrong with it.
Found = tuple[Sentence, Sequence[int]] | str


def read(path: str | Path, layout: Layout = AS_USUAL) -> File:
    """Sentences of one file with their tags.

    Raises
    ------
    ValueError
        For the first sentence that cannot be read, with file and line; with
        ``layout.skip_bad`` only if none can be.
    """
    return _read(path, [layout])[0]


def read_levels(
    path: str | Path, columns: Sequence[str] = (), layout: Layout = AS_USUAL
) -> list[File]:
    """What ``read`` returns for each of several columns of tags, of which GermEval has
    an outer and an inner one: those that are named, or all that have tags of spans.
    With ``layout.skip_bad`` a sentence that is bad in one of them is left out of all.
    """
    content = content_of(path, "a file of tagged words")
    lines = lines_of(content, path, layout.encoding, strict=False)
    columns = columns or [str(n + 1) for n in form_of(path, lines, layout).spans]
    if len(columns) < 2:
        raise ValueError(
            f"{path}: expected 2 columns of tags of spans, or more, got {len(columns)}."
            " Name them with --columns"
        )
    return _read(path, [replace(layout, column=column) for column in columns])


def _read(path: str | Path, layouts: Sequence[Layout]) -> list[File]:
    """The same sentences as each of the layouts has them."""
    content = content_of(path, "a file of tagged words")
    lines = lines_of(content, path, layouts[0].encoding, strict=False)
    if not _hold_words(lines):
        raise ValueError(
            f"{path}: expected at least one sentence, got none. Is this the right file,"
            " and was it copied whole?"
        )
    said, checked, known = [], [], []
    for layout in layouts:
        if _is_json(path, lines):
            kind, found, where = "JSON lines", list(_of_json(lines, tagged=True)), ""
        else:
            form = form_of(path, lines, layout)
            if form.tag is None and form.key is None:
                raise ValueError(
                    f"{path}, line {form.line}: expected 2 columns or more, a word and"
                    f" its tag at least, got {form.width}"
                )
            kind = f"{form}, tags from column {form.tags}"
            found, where = form.sentences(lines), f" in column {form.tags}"
        sentences, scheme = _in_scheme(found, layout.unknown, where)
        named = "no scheme" if scheme == schemes.PLAIN else f"scheme {scheme}"
        said.append(f"{path}: read as {kind}, {named}")
        checked.append(sentences)
        known.append(scheme)
    rows = list(zip(*checked, strict=True))
    wrong = [[x for x in row if isinstance(x, str)] for row in rows]
    bad = [x[0] for x in wrong if x]
    if bad and not layouts[0].skip_bad:
        raise ValueError(f"{path}, {bad[0]}")
    if bad:
        print(
            f"warning: {path}: left out {len(bad)} of {len(rows)} sentences that could"
            f" not be read, the first for this: {bad[0]}",
            file=sys.stderr,
        )
    if len(bad) == len(rows):
        raise ValueError(f"{path}: expected at least one sentence, got none")
    for line in said:
        print(line, file=sys.stderr)
    return [
        File([x for x, no in zip(own, wrong, strict=True) if not no], scheme, bad=bad)
        for own, scheme in zip(checked, known, strict=True)
    ]


def read_words(source: str | Path, layout: Layout = AS_USUAL) -> File:
    """Sentences to be tagged, of a file or of standard input (``-``).

    Beside what ``read`` takes, whose tags only say in which scheme to write: one word a
    line, and running text, one sentence a line.
    """
    content = content_of(source, "a file of text", "--predict")
    name = name_of(source)
    lines = lines_of(content, name, layout.encoding, strict=False)
    return words_in(lines, name, layout)


def words_in(lines: Sequence[str], name: str, layout: Layout = AS_USUAL) -> File:
    """Sentences of the lines of a file."""
    if not _hold_words(lines):
        raise ValueError(
            f"{name}: expected words, got none. Give one sentence a line, or one"
            " word a line with a blank line after each sentence"
        )
    if _is_json(name, lines):
        said, found, tagged = "JSON lines", list(_of_json(lines, tagged=False)), False
    else:
        form = form_of(name, lines, layout)
        if form.is_text:
            print(f"{name}: read as text, one sentence a line", file=sys.stderr)
            return _texts(lines)
        said, found, tagged = str(form), form.sentences(lines), form.in_scheme
    print(f"{name}: read as {said}", file=sys.stderr)
    good = [x[0] for x in found if not isinstance(x, str)]
    scheme = schemes.detect(s.tags for s in good) if tagged else None
    return File(good, scheme, bad=[x for x in found if isinstance(x, str)])


def _hold_words(lines: Sequence[str]) -> bool:
    return any(line.split()[:1] not in ([], [DOCUMENT]) for line in lines)


def _texts(lines: Sequence[str]) -> File:
    wrong = {n: bad_byte(line) for n, line in enumerate(lines, 1)}
    texts = [line for n, line in enumerate(lines, 1) if line.strip() and not wrong[n]]
    bad = [f"line {number}: {what}" for number, what in wrong.items() if what]
    return File([], None, [x for x in texts if x.strip() != DOCUMENT], bad)


def _in_scheme(
    found: Sequence[Found], unknown: str | None, where: str
) -> tuple[list[Sentence | str], str]:
    """Sentences in the scheme that most tags are in, or what is wrong with each."""
    good = [x[0].tags for x in found if not isinstance(x, str)]
    given = good
    if unknown is not None:
        given = [[None if tag == unknown else tag for tag in tags] for tags in good]
    scheme = schemes.detect(given)
    known = set(chain.from_iterable(good)) - {unknown}
    wrong = {tag for tag in known if not _is_of(tag, scheme)}
    if scheme != schemes.PLAIN and any("-" in tag for tag in known):
        wrong |= known & (BARE - {"O"})
    checked: list[Sentence | str] = []
    for one in found:
        if isinstance(one, str):
            checked.append(one)
            continue
        sentence, lines = one
        if wrong.isdisjoint(sentence.tags):
            checked.append(sentence)
        else:
            pairs = zip(sentence.tags, lines, strict=True)
            tag, line = next(pair for pair in pairs if pair[0] in wrong)
            of = "" if scheme == schemes.PLAIN else f" of the scheme {scheme} as others"
            checked.append(f"line {line}: expected a tag{of}{where}, got {tag!r}")
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
class Form:
    """What the lines of a file hold, column by column."""

    kind: str
    names: Sequence[str]
    """Of the columns, if they have names."""
    width: int
    line: int
    """The first line with so many columns."""
    tabs: bool
    numbered: bool
    """Does the first column count the words of a sentence?"""
    strict: bool
    """Does the rule of CoNLL-U hold?"""
    word: int
    tag: int | None
    key: str | None
    """Of the last column, in place of a column for the tags."""
    in_scheme: bool
    """Are the tags those of spans?"""
    is_text: bool
    """Is it running text, no columns at all?"""
    spans: Sequence[int]
    """All columns with the tags of spans."""

    def __str__(self) -> str:
        return f"{self.kind}: words from column {self.word + 1}"

    @property
    def tags(self) -> str:
        """Where they are."""
        return self.key or str((self.tag or 0) + 1)

    def sentences(self, lines: Sequence[str]) -> list[Found]:
        found: list[Found] = []
        starts = [number for number, line in enumerate(lines, 1) if _parts(line)]
        for first, block in blocks(lines):
            try:
                numbers, rows = self._words(block, first)
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
                sentence = Sentence(
                    list(columns[self.word]),
                    self._tags_in(columns),
                    others,
                    bisect(starts, first),
                )
                found.append((sentence, tuple(numbers)))
            except ValueError as error:
                found.append(str(error))
        return found

    def is_comment(self, line: str, begun: bool) -> bool:
        if not line.startswith("#"):
            return False
        if self.numbered:
            return True
        other = len(_fields(line, self.tabs)) != self.width
        pattern = COMMENT if other else PAIR
        return not begun and pattern.match(line) is not None

    def _words(
        self, block: Sequence[str], first: int
    ) -> tuple[list[int], list[list[str]]]:
        """Line number and columns of each word of a sentence."""
        if not all(map(str.isascii, block)):
            for number, line in enumerate(block, first):
                if wrong := bad_byte(line):
                    raise ValueError(f"line {number}: {wrong}")
        numbers: list[int] = []
        rows: list[list[str]] = []
        if self.strict:
            for number, row in conllu_rows.words_of(block, first, self.names):
                numbers.append(number)
                rows.append(row)
            return numbers, rows
        before = None
        for number, line in enumerate(block, first):
            if line[0] == "#" and self.is_comment(line, begun=bool(rows)):
                continue
            row = _fields(line, self.tabs)
            if len(row) != self.width:
                parted = "tabs" if self.tabs else "blanks"
                raise ValueError(
                    f"line {number}: expected {self.width} columns parted by {parted}"
                    f" as on line {self.line}, got {len(row)} ({line.strip()[:60]!r})"
                )
            if self.numbered:
                if NUMBER.fullmatch(row[0]) and not row[0].isdecimal():
                    continue
                if not row[0].isdecimal() or before not in (None, int(row[0]) - 1):
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
        return [""] * len(columns[0]) if self.tag is None else list(columns[self.tag])

    @property
    def _others(self) -> list[int]:
        """Columns that hold neither numbers nor words nor tags."""
        if self.numbered:
            return []
        return [n for n in range(self.width) if n not in (self.word, self.tag)]


def form_of(name: str | Path, lines: Sequence[str], layout: Layout = AS_USUAL) -> Form:
    """Recognise the columns of a file by most of its lines."""
    filled = [(n, x) for n, x in enumerate(lines[:SAMPLE], 1) if x.strip()]
    filled = [(n, x) for n, x in filled if x.split()[0] != DOCUMENT]
    data = [(n, x) for n, x in filled if not COMMENT.match(x)]
    data = data or filled
    tabs = 2 * sum("\t" in x for _, x in data) > len(data)
    rows = [_fields(x, tabs) for _, x in data]
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
    plus = PLUS.match(filled[0][1]) if filled else None
    kind, names, strict = "columns", [], False
    # the tag may stand before the word
    word = int(numbered or (spans == [0] and width > 1))
    if plus:
        kind, names = "CoNLL-U Plus", plus[1].split()
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
        width, tabs = len(names), tabs or strict
    keys = _keys(lines) if strict and layout.column is not None else []
    word, tag, key = _places(name, layout, width, names, keys, word)
    spans = [n for n in spans if n != word and not (numbered and n == 0)]
    if tag is None and key is None:
        tag = spans[0 if numbered else -1] if spans else width - 1
        if not spans and "UPOS" in names:
            tag = names.index("UPOS")
        tag = None if tag == word else tag
    # of text few lines have equally many words, and end in tags
    columns_all = width > 1 and 2 * counts[width] >= len(data)
    said = layout.column is not None or layout.word_column is not None
    sure = said or numbered or bool(names and plus)
    sure |= columns_all and bool(spans) and (tabs or width == 2 or len(data) > 1)
    sure |= columns_all and tabs and len(counts) == 1
    # sentences of several lines of equally many words are no text
    parted = sum(1 for _ in blocks(lines[:SAMPLE]))
    sure |= columns_all and len(counts) == 1 and 1 < parted <= len(data) / 2
    sure |= columns_all and str(name).removesuffix(".gz").endswith(ENDINGS)
    sure |= not any(n > 1 for n in counts)
    return Form(
        kind, names, width, line, tabs, numbered, strict, word, tag, key,
        tag in spans or key is not None, not sure, spans,
    )  # fmt: skip


def _places(
    name: str | Path,
    layout: Layout,
    width: int,
    names: Sequence[str],
    keys: Sequence[str],
    word: int,
) -> tuple[int, int | None, str | None]:
    """Columns of words and tags, as far as they are asked for; a key of the last."""
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
        word = place("--word-column", layout.word_column)
    if layout.column is None:
        return word, None, None
    if layout.column in keys and layout.column.lower() not in known:
        return word, None, layout.column
    tag = place("--column", layout.column, keys)
    if tag == word:
        raise ValueError(
            f"--column: expected another column than that of the words, got"
            f" {layout.column!r}"
        )
    return word, tag, None


def _keys(lines: Sequence[str]) -> list[str]:
    """What may stand before = in the last column."""
    rows = (line for line in lines if line and not line.startswith("#"))
    pairs = {pair for x in rows for pair in x.rpartition("\t")[2].split("|")}
    return sorted({pair.partition("=")[0] for pair in pairs if "=" in pair})


def _are_spans(values: Sequence[str], unknown: str | None) -> bool:
    """Are most of these the tags of spans?"""
    counts = Counter(values)
    for nothing in (unknown, MISSING):
        counts.pop(nothing, None)
    typed = sum(n for x, n in counts.items() if TYPED.fullmatch(x))
    outside = counts["O"]
    alone = outside > 0 and all(
        set(x) <= BARE and len(x) == 1 for x in counts if counts[x]
    )
    return alone or (typed > 0 and 2 * typed >= counts.total() - outside)


def _count_words(firsts: Sequence[tuple[int, str]]) -> bool:
    """Whether most of these, each with its line, count the words of sentences."""
    begin, steps, before = [], [], (0, "")
    for line, first in firsts:
        if line != before[0] + 1:
            begin.append(first)
        elif first.isdecimal() and before[1].isdecimal():
            steps.append(int(first) == int(before[1]) + 1)
        before = (line, first)
    counts = _most(FIRST, begin) or 2 * sum(steps) > len(steps)
    return counts and _most(NUMBER, [first for _, first in firsts])


def _most(pattern: re.Pattern[str], values: Sequence[str]) -> bool:
    return 2 * sum(bool(pattern.fullmatch(x)) for x in values) >= len(values)


def blocks(lines: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """The lines of each sentence, and the number of the first."""
    start = 0
    for number, line in enumerate([*lines, ""]):
        if not line.strip() or _parts(line):
            if start < number:
                yield start + 1, lines[start:number]
            start = number + 1


def _parts(line: str) -> bool:
    """Whether it is between two documents."""
    return DOCUMENT in line and line.split()[0] == DOCUMENT


def _fields(line: str, tabs: bool) -> list[str]:
    # Only tabs and blanks part columns: words may be other white space, U+00A0 say.
    if tabs:
        return [field.strip(" ") for field in line.rstrip(" \t").split("\t")]
    fields = line.replace("\t", " ").split(" ")
    return [field for field in fields if field] if "" in fields else fields


# --- JSON lines ---


def _is_json(name: str | Path, lines: Sequence[str]) -> bool:
    stem = str(name).removesuffix(".gz")
    first = next((line for line in lines if line.strip()), "")
    return stem.endswith((".jsonl", ".ndjson", ".json")) or bool(OBJECT.match(first))


def _of_json(lines: Sequence[str], tagged: bool) -> Iterator[Found]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        # brackets may nest deeper than Python calls itself
        except (ValueError, RecursionError) as error:
            yield f"line {number}: expected a JSON object, got {error}"
            continue
        words, tags = (_of_names(row, names) for names in (WORDS, TAGS))
        if not _are_strings(words) or (tagged and not _are_strings(tags)):
            also = f", and {', '.join(TAGS[:-1])} or {TAGS[-1]}" if tagged else ""
            yield (
                f"line {number}: expected an object with {' or '.join(WORDS)}{also},"
                f" lists of strings of which none is empty, got {line.strip()[:60]!r}"
            )
        elif not tagged:
            yield Sentence(words, []), [number] * len(words)
        elif len(words) != len(tags):
            yield (
                f"line {number}: expected a tag for each word, got {len(words)} words"
                f" and {len(tags)} tags"
            )
        elif words:
            yield Sentence(words, tags), [number] * len(words)


def _of_names(row: object, names: tuple[str, ...]) -> object:
    """The value of the first of the names that an object has."""
    known = row if isinstance(row, dict) else {}
    return next((known[name] for name in names if name in known), None)


def _are_strings(value: object) -> bool:
    strings = isinstance(value, list) and all(isinstance(x, str) and x for x in value)
    # half of a surrogate pair is no text
    return strings and not any(0xD800 <= ord(c) < 0xE000 for x in value for c in x)
