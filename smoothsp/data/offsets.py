"""Texts with character spans: of annotation tools, and as tags of words.

Recognised are JSON lines of doccano and Prodigy, the JSON export of Label Studio, and
brat's ``.ann`` files, each beside its ``.txt``.
"""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from numbers import Integral
from pathlib import Path
from typing import Any

from smoothsp.data.examples import TaggedSentence
from smoothsp.data.text_files import (
    as_path,
    decode_lines,
    decompress,
    find_lone_surrogate,
    print_stderr,
    read_content,
)
from smoothsp.data.word_tokenizers import TREEBANK, Offsets, make_tokenizer

__all__ = [
    "AnnotatedText",
    "Unaligned",
    "has_character_spans",
    "read_spans",
    "tag_words",
]

TEXT, SPANS = ("text", "data"), ("spans", "entities", "label", "labels")
START, END = ("start", "start_offset"), ("end", "end_offset")
LABEL = ("label", "labels", "type")
LINE = re.compile(r"[^\r\n]+")
BRAT = re.compile(r"T\S*\t(\S+) (\d{1,9} \d{1,9}(?:;\d{1,9} \d{1,9})*)(?:\t(.*))?")


@dataclass(frozen=True)
class AnnotatedText:
    """A text and its spans.

    Examples
    --------
    >>> text = AnnotatedText("Orla left.", [(0, 4, "PER")])
    >>> tag_words([text], tokenizer="blanks")[0][0].tags
    ['B-PER', 'O']
    """

    text: str
    spans: Sequence[tuple[int, int, str]]
    """First character, the first one after it, and the label."""
    words: Sequence[Offsets] | None = None
    """Where each word stands, if the tool cut them."""
    name: str = ""
    """File and line."""
    faults: Sequence[tuple[tuple[int, int, str], str]] = ()
    """Spans that the file does not tell as one piece of the text, and why."""


@dataclass(frozen=True)
class Unaligned:
    """A span that is not a run of whole words.

    Examples
    --------
    >>> tag_words([("Orla left.", [(1, 4, "PER")])], tokenizer="blanks")[1]
    [Unaligned(record=0, span=(1, 4, 'PER'), reason='cuts a word')]
    """

    record: int
    """The number of the text, from 0."""
    span: tuple[int, int, str]
    reason: str


def tag_words(
    texts: Iterable[AnnotatedText | tuple[str, Sequence[tuple[int, int, str]]]],
    *,
    tokenizer: str = TREEBANK,
) -> tuple[list[TaggedSentence], list[Unaligned]]:
    """Cut texts into words, with the tags of their spans in BIO.

    Each line of a text becomes a sentence, and each text a document. A word that a span
    parts from punctuation is cut there.

    Parameters
    ----------
    texts
        Each a text and its spans: first character, the first one after it, and label.
        Labels have no white space; ``O`` is none.
    tokenizer
        ``"treebank"`` cuts as the Penn Treebank does, by NLTK; ``"blanks"`` at white
        space.

    Returns
    -------
    tuple
        The sentences, and the spans that have no tags in them, with the reason.

    Raises
    ------
    TypeError, ValueError
        With the number of the text, from 0, or its file and line.

    Examples
    --------
    >>> texts = [("Orla Wren left.", [(0, 9, "PER")])]
    >>> sentences, unaligned = tag_words(texts, tokenizer="blanks")
    >>> sentences[0].words, sentences[0].tags, unaligned
    (['Orla', 'Wren', 'left.'], ['B-PER', 'I-PER', 'O'], [])
    """
    cut = make_tokenizer(tokenizer)
    sentences: list[TaggedSentence] = []
    unaligned: list[Unaligned] = []
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise TypeError(
            f"texts: expected texts with their spans, got {type(texts).__name__}"
        )
    for number, given in enumerate(texts):
        one = _checked(given, f"texts[{number}]")
        spans, faults = _apart(one)
        unaligned += [Unaligned(number, span, reason) for span, reason in faults]
        if one.words is None:
            lines = [
                [(line.start() + a, line.start() + b) for a, b in cut(line[0]).places]
                for line in LINE.finditer(one.text)
            ]
        else:
            lines = [list(one.words)]
        begins, stops = [x[0] for x in spans], [x[1] for x in spans]
        tagged: set[tuple[int, int, str]] = set()
        for line in filter(None, lines):
            first, last = line[0][0], line[-1][1]
            own = spans[bisect_right(stops, first) : bisect_left(begins, last)]
            words = line if one.words else list(_cut_at(one.text, line, own))
            starts, ends = [a for a, _ in words], [b for _, b in words]
            tags: list[str | None] = ["O"] * len(words)
            for start, end, label in own:
                first, last = bisect_left(starts, start), bisect_right(ends, end) - 1
                whole = first < len(words) and starts[first] == start
                if whole and last >= first and ends[last] == end:
                    tags[first] = f"B-{label}"
                    tags[first + 1 : last + 1] = [f"I-{label}"] * (last - first)
                    tagged.add((start, end, label))
            found = [one.text[a:b] for a, b in words]
            sentences.append(TaggedSentence(found, tags, number))
        for span in spans:
            if span in tagged:
                continue
            over = (
                one.words is None and len(one.text[span[0] : span[1]].splitlines()) > 1
            )
            reason = "reaches over the end of a line" if over else "cuts a word"
            unaligned.append(Unaligned(number, span, reason))
    return sentences, unaligned


def _checked(given: object, place: str) -> AnnotatedText:
    """Return a text whose spans are numbers and labels."""
    if isinstance(given, AnnotatedText):
        one = given
    else:
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise TypeError(
                f"{place}: expected a text and its spans, got {str(given)[:60]!r}"
            )
        one = AnnotatedText(*given)
    place = one.name or place
    if not isinstance(one.text, str):
        raise TypeError(f"{place}: expected text, got {type(one.text).__name__}")
    if half := find_lone_surrogate(one.text):
        raise ValueError(
            f"{place}: expected text, got half of a surrogate pair, {half!r}"
        )
    if isinstance(one.spans, str) or not isinstance(one.spans, Iterable):
        raise TypeError(
            f"{place}, spans: expected a list, got {type(one.spans).__name__}"
        )
    spans = []
    for span in one.spans:
        if not isinstance(span, tuple | list) or len(span) != 3:
            raise ValueError(
                f"{place}, spans: expected start, end and label, got {str(span)[:60]}"
            )
        start, end, label = span
        for number in (start, end):
            if not isinstance(number, Integral) or isinstance(number, bool):
                raise ValueError(
                    f"{place}, spans: expected whole numbers as start and end, got"
                    f" {str(span)[:60]}"
                )
        _check_label(label, place)
        spans.append((int(start), int(end), label))
    return replace(one, spans=spans)


def _check_label(label: object, place: str) -> None:
    """Raise for a label that cannot stand behind B- in a column of tags."""
    whole = isinstance(label, str) and label.split() == [label] and label != "O"
    if not whole or find_lone_surrogate(str(label)):
        raise ValueError(
            f"{place}, spans: expected labels other than O, of letters without white"
            f" space, got {str(label)[:60]!r}"
        )


def _apart(
    one: AnnotatedText,
) -> tuple[list[tuple[int, int, str]], list[tuple[tuple[int, int, str], str]]]:
    """Return the spans without blanks at their ends, and those that are faulty."""
    kept: list[tuple[int, int, str]] = []
    faults, before = list(one.faults), 0
    for span in sorted(set(one.spans), key=lambda x: (x[0], -x[1], x[2])):
        start, end, label = span
        inside = one.text[max(start, 0) : max(end, 0)]
        begin = start + len(inside) - len(inside.lstrip())
        stop = begin + len(inside.strip())
        if not 0 <= start <= end <= len(one.text):
            faults.append((span, "is outside of the text"))
        elif begin >= stop:
            faults.append((span, "is empty"))
        elif begin < before:
            faults.append((span, "overlaps another"))
        else:
            kept.append((begin, stop, label))
            before = stop
    return kept, faults


def _cut_at(
    text: str, words: Sequence[Offsets], spans: Sequence[tuple[int, int, str]]
) -> Iterator[Offsets]:
    """Cut words where a span parts them from punctuation; spans are in order."""
    borders = sorted({x for start, end, _ in spans for x in (start, end)})
    ends = [*(end for _, end, _ in spans), len(text)]
    begins = [*(start for start, _, _ in spans), len(text)]
    for start, end in words:
        inside = borders[bisect_right(borders, start) : bisect_left(borders, end)]
        pieces = list(pairwise([start, *inside, end]))
        # the first span that ends behind the beginning of a piece
        outside = [
            text[a:b]
            for a, b in pieces
            if begins[bisect_right(ends, a, hi=len(spans))] >= b
        ]
        whole = any(letter.isalnum() for piece in outside for letter in piece)
        yield from [(start, end)] if whole else pieces


# --- files ---


def has_character_spans(path: str | Path) -> bool:
    """Return whether a file or folder has texts with character spans."""
    path = as_path(path)
    if _is_brat(path) or path.is_dir():
        return _is_brat(path) or any(path.glob("*.ann"))
    if not path.is_file():
        return False
    content = decompress(read_content(path, "a file of texts"), path).lstrip()
    if content.startswith(b"["):
        return str(path).removesuffix(".gz").endswith(".json")
    first = content[: content.find(b"\n") + 1] or content
    try:
        row = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(row, dict)
        and _named(row, TEXT)
        and not ({"tokens", "words"} & {*row} and not _named(row, SPANS[:1]))
    )


def _named(row: Mapping[str, Any], names: Sequence[str]) -> bool:
    return any(name in row for name in names)


def _is_brat(path: Path) -> bool:
    beside = path.suffix == ".txt" and path.with_suffix(".ann").is_file()
    return beside or path.suffix == ".ann"


def read_spans(path: str | Path) -> list[AnnotatedText]:
    """Read texts with character spans.

    Parameters
    ----------
    path
        JSON lines of doccano or Prodigy, JSON of Label Studio, a file of brat or a
        folder of these.

    Raises
    ------
    ValueError
        For the first record that cannot be read, with file and line.

    Notes
    -----
    White space in labels becomes ``_``. A span whose words in the file differ from
    those at its place is among the faults of its text.
    """
    path = as_path(path)
    if path.is_dir():
        return [_brat(one) for one in sorted(path.glob("*.ann"))]
    if _is_brat(path):
        return [_brat(path.with_suffix(".ann"))]
    found: list[AnnotatedText] = []
    left_out = 0
    for place, row in _records(path):
        try:
            task = isinstance(row.get("data"), dict)
            one = _task(row, place) if task else _row(row, place)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{place}: {error}") from error
        if one is None:
            left_out += 1
        else:
            found.append(one)
    if left_out:
        print_stderr(
            f"{path}: left out {left_out} texts that were rejected or not annotated"
        )
    if not found:
        raise ValueError(f"{path}: expected at least one annotated text, got none")
    return found


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    lines = decode_lines(read_content(path, "a file of texts"), path)
    if next((x for x in lines if x.strip()), "").lstrip().startswith("["):
        rows = _json("\n".join(lines), str(path))
        places = (f"{path}, text {n}" for n in range(1, len(rows) + 1))
    else:
        numbered = [(n, x) for n, x in enumerate(lines, 1) if x.strip()]
        places = (f"{path}, line {n}" for n, _ in numbered)
        rows = (_json(x, f"{path}, line {n}") for n, x in numbered)
    for place, row in zip(places, rows, strict=True):
        if not isinstance(row, dict):
            raise ValueError(
                f"{place}: expected an object with a text and its spans, got"
                f" {str(row)[:60]}"
            )
        yield place, row


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    # brackets may nest deeper than Python calls itself
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: expected JSON, got {error}") from error


def _row(row: Mapping[str, Any], place: str) -> AnnotatedText | None:
    """A record of doccano or Prodigy; None if it was rejected."""
    if row.get("answer", "accept") != "accept":
        return None
    key = next((name for name in SPANS if name in row), None)
    if key is None and "answer" not in row:
        raise ValueError(f"expected {', '.join(SPANS[:-1])} or {SPANS[-1]}, got none")
    words = None
    if row.get("tokens"):
        words = [_place(token) for token in row["tokens"]]
        ends = [0, *(x for place in words for x in place), len(row.get("text", ""))]
        if ends != sorted(ends):
            raise ValueError("expected tokens one after another within the text")
    return _text(_text_of(row), row.get(key or "") or [], place, words)


def _task(row: Mapping[str, Any], place: str) -> AnnotatedText | None:
    """A task of Label Studio; None if nobody finished it."""
    tried = _objects(row.get("annotations") or row.get("completions") or [])
    done = [one for one in tried if not one.get("was_cancelled")]
    if not done:
        return None
    results = _objects(done[0].get("result") or [])
    values = [x["value"] for x in results if isinstance(x.get("value"), dict)]
    # relations, choices and ratings label no part of the text
    values = [x for x in values if "start" in x and _named(x, LABEL)]
    data = row["data"]
    texts = [x for x in data.values() if isinstance(x, str)]
    text = data.get("text", texts[0] if len(texts) == 1 else None)
    return _text(_text_of({"text": text}), values, place)


def _objects(values: Any) -> list[dict[str, Any]]:
    found = list(values)
    if not all(isinstance(value, dict) for value in found):
        raise ValueError(f"expected objects as of Label Studio, got {str(found)[:60]}")
    return found


def _text_of(row: Mapping[str, Any]) -> str:
    found = next((row[name] for name in TEXT if name in row), None)
    if not isinstance(found, str):
        raise ValueError(f"expected a string as text, got {str(found)[:60]!r}")
    return found


def _place(value: Mapping[str, Any]) -> Offsets:
    numbers = [
        next((value[name] for name in names if name in value), None)
        for names in (START, END)
    ]
    start, end = numbers
    if type(start) is not int or type(end) is not int:
        raise ValueError(f"expected numbers as start and end, got {str(value)[:60]}")
    return start, end


def _text(
    text: str, values: Any, place: str, words: Sequence[Offsets] | None = None
) -> AnnotatedText:
    spans, faults = [], []
    units: list[int] | None = None
    if not isinstance(values, list):
        raise ValueError(f"expected a list of spans, got {str(values)[:60]}")
    for value in values:
        if isinstance(value, list) and len(value) == 3:
            value = dict(zip(("start", "end", "label"), value, strict=True))
        if not isinstance(value, dict):
            raise ValueError(
                f"expected start, end and label of a span, got {str(value)[:60]}"
            )
        start, end = _place(value)
        label = next((value[name] for name in LABEL if value.get(name)), None)
        several = isinstance(label, list) and len(label) > 1
        label = label[0] if isinstance(label, list) else label
        label = "_".join(label.split()) if isinstance(label, str) else None
        if not label:
            raise ValueError(f"expected a label of a span, got {str(value)[:60]}")
        said = value.get("text")
        if isinstance(said, str) and text[max(start, 0) : max(end, 0)] != said:
            # a place that a browser may have counted in UTF-16
            if units is None:
                units = [*accumulate((1 + (c > "\uffff") for c in text), initial=0)]
            other = bisect_left(units, start), bisect_left(units, end)
            start, end = other if text[slice(*other)] == said else (start, end)
        span = start, end, label
        if several:
            faults.append((span, "has several labels"))
        elif reason := _differs(text, start, end, said):
            faults.append((span, reason))
        else:
            spans.append(span)
    return AnnotatedText(text, spans, words, place, faults)


def _differs(text: str, start: int, end: int, said: object) -> str | None:
    """Fault of a span for which the file has other words, but for white space."""
    inside = 0 <= start <= end <= len(text)
    if not inside or not isinstance(said, str):
        return None
    same = said.split() == text[start:end].split()
    return None if same else f"differs from its words in the file, {said[:60]!r}"


def _brat(path: Path) -> AnnotatedText:
    """A file of brat, whose numbers count the characters of the text beside it."""
    beside = path.with_suffix(".txt")
    content = decompress(read_content(beside, f"the text of {path}"), beside)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{beside}: expected UTF-8, got {error}") from error
    spans, faults = [], []
    lines = decode_lines(read_content(path, "a file of brat"), path)
    for number, line in enumerate(lines, 1):
        if not line.startswith("T"):
            continue
        found = BRAT.fullmatch(line)
        if not found:
            raise ValueError(
                f"{path}, line {number}: expected T1, a tab, label, start and end, a"
                f" tab and the words, got {line[:60]!r}"
            )
        pieces = [[int(x) for x in piece.split()] for piece in found[2].split(";")]
        span = (pieces[0][0], pieces[-1][1], found[1])
        if len(pieces) > 1:
            faults.append((span, "is discontinuous"))
        elif reason := _differs(text, *span[:2], found[3]):
            faults.append((span, reason))
        else:
            spans.append(span)
    return AnnotatedText(text, spans, None, str(path), faults)
