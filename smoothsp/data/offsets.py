"""Texts with character spans: of annotation tools, and as tags of words.

Recognised are JSON lines of doccano and Prodigy, the JSON export of Label Studio, and
brat's ``.ann`` files, each beside its ``.txt``.
"""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from smoothsp.data.cutting import TREEBANK, Place, cutter
from smoothsp.data.examples import TaggedSentence
from smoothsp.data.text_files import content_of, lines_of, say, unpacked

__all__ = ["AnnotatedText", "Unaligned", "are_spans", "read_spans", "tag_words"]

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
    words: Sequence[Place] | None = None
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
    tokenizer
        ``"treebank"`` cuts as the Penn Treebank does, by NLTK; ``"blanks"`` at white
        space.

    Returns
    -------
    tuple
        The sentences, and the spans that have no tags in them, with the reason.

    Examples
    --------
    >>> texts = [("Orla Wren left.", [(0, 9, "PER")])]
    >>> sentences, unaligned = tag_words(texts, tokenizer="blanks")
    >>> sentences[0].words, sentences[0].tags, unaligned
    (['Orla', 'Wren', 'left.'], ['B-PER', 'I-PER', 'O'], [])
    """
    cut = cutter(tokenizer)
    sentences: list[TaggedSentence] = []
    unaligned: list[Unaligned] = []
    for number, given in enumerate(texts):
        one = given if isinstance(given, AnnotatedText) else AnnotatedText(*given)
        spans, faults = _apart(one)
        unaligned += [Unaligned(number, span, reason) for span, reason in faults]
        if one.words is None:
            lines = [
                [(line.start() + a, line.start() + b) for a, b in cut(line[0]).places]
                for line in LINE.finditer(one.text)
            ]
        else:
            lines = [list(one.words)]
        for line in filter(None, lines):
            words = line if one.words else list(_cut_at(one.text, line, spans))
            starts, ends = [a for a, _ in words], [b for _, b in words]
            tags: list[str | None] = ["O"] * len(words)
            own = [x for x in spans if x[0] < ends[-1] and x[1] > starts[0]]
            for start, end, label in own:
                first, last = bisect_left(starts, start), bisect_right(ends, end) - 1
                whole = first < len(words) and starts[first] == start
                if whole and last >= first and ends[last] == end:
                    tags[first] = f"B-{label}"
                    tags[first + 1 : last + 1] = [f"I-{label}"] * (last - first)
                    spans.remove((start, end, label))
            found = [one.text[a:b] for a, b in words]
            sentences.append(TaggedSentence(found, tags, number))
        for span in spans:
            over = (
                one.words is None and len(one.text[span[0] : span[1]].splitlines()) > 1
            )
            reason = "reaches over the end of a line" if over else "cuts a word"
            unaligned.append(Unaligned(number, span, reason))
    return sentences, unaligned


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
    text: str, words: Sequence[Place], spans: Sequence[tuple[int, int, str]]
) -> Iterator[Place]:
    """Cut words where a span parts them from punctuation."""
    borders = sorted({x for start, end, _ in spans for x in (start, end)})
    for start, end in words:
        inside = borders[bisect_right(borders, start) : bisect_left(borders, end)]
        pieces = list(pairwise([start, *inside, end]))
        outside = [
            text[a:b]
            for a, b in pieces
            if not any(s < b and a < e for s, e, _ in spans)
        ]
        whole = any(letter.isalnum() for piece in outside for letter in piece)
        yield from [(start, end)] if whole else pieces


# --- files ---


def are_spans(path: str | Path) -> bool:
    """Return whether a file or folder has texts with character spans."""
    path = Path(path)
    if _is_brat(path) or path.is_dir():
        return _is_brat(path) or any(path.glob("*.ann"))
    if not path.is_file():
        return False
    content = unpacked(content_of(path, "a file of texts"), path).lstrip()
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
    """
    path = Path(path)
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
        say(f"{path}: left out {left_out} texts that were rejected or not annotated")
    if not found:
        raise ValueError(f"{path}: expected at least one annotated text, got none")
    return found


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    lines = lines_of(content_of(path, "a file of texts"), path)
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
    values = _objects(x.get("value") for x in _objects(done[0].get("result")))
    values = [value for value in values if "start" in value]
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


def _place(value: Mapping[str, Any]) -> Place:
    numbers = [
        next((value[name] for name in names if name in value), None)
        for names in (START, END)
    ]
    start, end = numbers
    if type(start) is not int or type(end) is not int:
        raise ValueError(f"expected numbers as start and end, got {str(value)[:60]}")
    return start, end


def _text(
    text: str, values: Any, place: str, words: Sequence[Place] | None = None
) -> AnnotatedText:
    spans, faults = [], []
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
        if not isinstance(label, str):
            raise ValueError(f"expected a label of a span, got {str(value)[:60]}")
        start, end = _in_characters(text, start, end, value.get("text"))
        if several:
            faults.append(((start, end, label), "has several labels"))
        else:
            spans.append((start, end, label))
    return AnnotatedText(text, spans, words, place, faults)


def _in_characters(text: str, start: int, end: int, said: object) -> Place:
    """A place that a browser may have counted in UTF-16."""
    if isinstance(said, str) and text[start:end] != said and 0 <= start <= end:
        units = text.encode("utf-16-le", "surrogatepass")
        before, inside = units[: 2 * start], units[2 * start : 2 * end]
        found = inside.decode("utf-16-le", "replace")
        if found == said:
            start = len(before.decode("utf-16-le", "replace"))
            return start, start + len(found)
    return start, end


def _brat(path: Path) -> AnnotatedText:
    """A file of brat, whose numbers count the characters of the text beside it."""
    beside = path.with_suffix(".txt")
    content = unpacked(content_of(beside, f"the text of {path}"), beside)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{beside}: expected UTF-8, got {error}") from error
    spans, faults = [], []
    lines = lines_of(content_of(path, "a file of brat"), path)
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
        else:
            spans.append(span)
    return AnnotatedText(text, spans, None, str(path), faults)
