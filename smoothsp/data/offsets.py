"""Texts with character spans: read from annotation tools, converted to word tags.

Formats: JSON lines of doccano and Prodigy, the JSON export of Label Studio, and
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

TEXT_KEYS, SPAN_KEYS = ("text", "data"), ("spans", "entities", "label", "labels")
START_KEYS, END_KEYS = ("start", "start_offset"), ("end", "end_offset")
LABEL_KEYS = ("label", "labels", "type")
LINE = re.compile(r"[^\r\n]+")
BRAT_SPAN = re.compile(r"T\S*\t(\S+) (\d{1,9} \d{1,9}(?:;\d{1,9} \d{1,9})*)(?:\t(.*))?")


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
    """Character offsets of the words, if the tool stores them."""
    name: str = ""
    """File and line."""
    faults: Sequence[tuple[tuple[int, int, str], str]] = ()
    """Spans of the file that are no contiguous piece of the text, with the reason."""


@dataclass(frozen=True)
class Unaligned:
    """A span that does not consist of whole words.

    Examples
    --------
    >>> tag_words([("Orla left.", [(1, 4, "PER")])], tokenizer="blanks")[1]
    [Unaligned(record=0, span=(1, 4, 'PER'), reason='cuts a word')]
    """

    record: int
    """Index of the text, from 0."""
    span: tuple[int, int, str]
    reason: str


def tag_words(
    texts: Iterable[AnnotatedText | tuple[str, Sequence[tuple[int, int, str]]]],
    *,
    tokenizer: str = TREEBANK,
) -> tuple[list[TaggedSentence], list[Unaligned]]:
    """Split texts into words, and convert their spans to BIO tags.

    Each line of a text becomes a sentence, and each text a document. A word is split
    where a span separates it from punctuation.

    Parameters
    ----------
    texts
        Texts with spans ``(start, end, label)`` in characters, end exclusive. Labels
        have no white space and are not ``O``.
    tokenizer
        ``"treebank"`` splits as the Penn Treebank does, by NLTK; ``"blanks"`` splits
        at white space.

    Returns
    -------
    tuple
        Sentences, and the spans without tags, with the reason.

    Raises
    ------
    TypeError, ValueError
        With the index of the text, from 0, or its file and line.

    Examples
    --------
    >>> texts = [("Orla Wren left.", [(0, 9, "PER")])]
    >>> sentences, unaligned = tag_words(texts, tokenizer="blanks")
    >>> sentences[0].words, sentences[0].tags, unaligned
    (['Orla', 'Wren', 'left.'], ['B-PER', 'I-PER', 'O'], [])
    """
    tokenise = make_tokenizer(tokenizer)
    sentences: list[TaggedSentence] = []
    unaligned: list[Unaligned] = []
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise TypeError(
            f"texts: expected texts with their spans, got {type(texts).__name__}"
        )
    for number, value in enumerate(texts):
        text = _require_annotated_text(value, f"texts[{number}]")
        spans, faults = _trim_spans(text)
        unaligned += [Unaligned(number, span, reason) for span, reason in faults]
        if text.words is None:
            lines = [
                [
                    (line.start() + a, line.start() + b)
                    for a, b in tokenise(line[0]).offsets
                ]
                for line in LINE.finditer(text.text)
            ]
        else:
            lines = [list(text.words)]
        span_starts, span_ends = [x[0] for x in spans], [x[1] for x in spans]
        tagged: set[tuple[int, int, str]] = set()
        for line in filter(None, lines):
            first, last = line[0][0], line[-1][1]
            line_spans = spans[
                bisect_right(span_ends, first) : bisect_left(span_starts, last)
            ]
            words = (
                line
                if text.words
                else list(_split_at_spans(text.text, line, line_spans))
            )
            starts, ends = [a for a, _ in words], [b for _, b in words]
            tags: list[str | None] = ["O"] * len(words)
            for start, end, label in line_spans:
                first, last = bisect_left(starts, start), bisect_right(ends, end) - 1
                starts_at_word = first < len(words) and starts[first] == start
                if starts_at_word and last >= first and ends[last] == end:
                    tags[first] = f"B-{label}"
                    tags[first + 1 : last + 1] = [f"I-{label}"] * (last - first)
                    tagged.add((start, end, label))
            tokens = [text.text[a:b] for a, b in words]
            sentences.append(TaggedSentence(tokens, tags, number))
        for span in spans:
            if span in tagged:
                continue
            crosses_line = (
                text.words is None
                and len(text.text[span[0] : span[1]].splitlines()) > 1
            )
            reason = "reaches over the end of a line" if crosses_line else "cuts a word"
            unaligned.append(Unaligned(number, span, reason))
    return sentences, unaligned


def _require_annotated_text(value: object, location: str) -> AnnotatedText:
    """Return a text as ``AnnotatedText``, after checking the types of its spans."""
    if isinstance(value, AnnotatedText):
        text = value
    else:
        if not isinstance(value, tuple | list) or len(value) != 2:
            raise TypeError(
                f"{location}: expected a text and its spans, got {str(value)[:60]!r}"
            )
        text = AnnotatedText(*value)
    location = text.name or location
    if not isinstance(text.text, str):
        raise TypeError(f"{location}: expected text, got {type(text.text).__name__}")
    if surrogate := find_lone_surrogate(text.text):
        raise ValueError(
            f"{location}: expected text, got half of a surrogate pair, {surrogate!r}"
        )
    if isinstance(text.spans, str) or not isinstance(text.spans, Iterable):
        raise TypeError(
            f"{location}, spans: expected a list, got {type(text.spans).__name__}"
        )
    spans = []
    for span in text.spans:
        if not isinstance(span, tuple | list) or len(span) != 3:
            raise ValueError(
                f"{location}, spans: expected start, end and label, got"
                f" {str(span)[:60]}"
            )
        start, end, label = span
        for number in (start, end):
            if not isinstance(number, Integral) or isinstance(number, bool):
                raise ValueError(
                    f"{location}, spans: expected whole numbers as start and end, got"
                    f" {str(span)[:60]}"
                )
        _require_label(label, location)
        spans.append((int(start), int(end), label))
    return replace(text, spans=spans)


def _require_label(label: object, location: str) -> None:
    """Raise unless ``B-`` and the label are a tag that a column file can hold."""
    is_valid = isinstance(label, str) and label.split() == [label] and label != "O"
    if not is_valid or find_lone_surrogate(str(label)):
        raise ValueError(
            f"{location}, spans: expected labels other than O, of letters without white"
            f" space, got {str(label)[:60]!r}"
        )


def _trim_spans(
    text: AnnotatedText,
) -> tuple[list[tuple[int, int, str]], list[tuple[tuple[int, int, str], str]]]:
    """Return spans without blanks at their ends, and faulty spans with the reason.

    Of overlapping spans the first wins; at the same start, the longest.
    """
    trimmed: list[tuple[int, int, str]] = []
    faults, previous_end = list(text.faults), 0
    for span in sorted(set(text.spans), key=lambda x: (x[0], -x[1], x[2])):
        start, end, label = span
        inside = text.text[max(start, 0) : max(end, 0)]
        begin = start + len(inside) - len(inside.lstrip())
        stop = begin + len(inside.strip())
        if not 0 <= start <= end <= len(text.text):
            faults.append((span, "is outside of the text"))
        elif begin >= stop:
            faults.append((span, "is empty"))
        elif begin < previous_end:
            faults.append((span, "overlaps another"))
        else:
            trimmed.append((begin, stop, label))
            previous_end = stop
    return trimmed, faults


def _split_at_spans(
    text: str, words: Sequence[Offsets], spans: Sequence[tuple[int, int, str]]
) -> Iterator[Offsets]:
    """Yield word offsets, split where a span border separates punctuation.

    Words are not split between letters. Spans are sorted and do not overlap.
    """
    borders = sorted({x for start, end, _ in spans for x in (start, end)})
    ends = [*(end for _, end, _ in spans), len(text)]
    begins = [*(start for start, _, _ in spans), len(text)]
    for start, end in words:
        inside = borders[bisect_right(borders, start) : bisect_left(borders, end)]
        parts = list(pairwise([start, *inside, end]))
        # A part is outside if the first span that ends after its start begins behind
        # it. The appended len(text) stands for no further span.
        outside = [
            text[a:b]
            for a, b in parts
            if begins[bisect_right(ends, a, hi=len(spans))] >= b
        ]
        splits_letters = any(letter.isalnum() for part in outside for letter in part)
        yield from [(start, end)] if splits_letters else parts


# --- files ---


def has_character_spans(path: str | Path) -> bool:
    """Return whether a file or folder holds texts with character spans."""
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
        and _has_any_key(row, TEXT_KEYS)
        and not ({"tokens", "words"} & {*row} and not _has_any_key(row, SPAN_KEYS[:1]))
    )


def _has_any_key(row: Mapping[str, Any], names: Sequence[str]) -> bool:
    return any(name in row for name in names)


def _is_brat(path: Path) -> bool:
    has_annotation = path.suffix == ".txt" and path.with_suffix(".ann").is_file()
    return has_annotation or path.suffix == ".ann"


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
    White space in labels becomes ``_``. A span whose stored words differ from those at
    its offsets is among the faults of its text.
    """
    path = as_path(path)
    if path.is_dir():
        return [_read_brat(text) for text in sorted(path.glob("*.ann"))]
    if _is_brat(path):
        return [_read_brat(path.with_suffix(".ann"))]
    texts: list[AnnotatedText] = []
    num_left_out = 0
    for location, row in _iter_records(path):
        try:
            task = isinstance(row.get("data"), dict)
            text = (
                _parse_label_studio(row, location)
                if task
                else _parse_doccano_or_prodigy(row, location)
            )
        except (TypeError, ValueError) as error:
            raise ValueError(f"{location}: {error}") from error
        if text is None:
            num_left_out += 1
        else:
            texts.append(text)
    if num_left_out:
        print_stderr(
            f"{path}: left out {num_left_out} texts that were rejected or not annotated"
        )
    if not texts:
        raise ValueError(f"{path}: expected at least one annotated text, got none")
    return texts


def _iter_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    lines = decode_lines(read_content(path, "a file of texts"), path)
    if next((x for x in lines if x.strip()), "").lstrip().startswith("["):
        rows = _parse_json("\n".join(lines), str(path))
        locations = (f"{path}, text {n}" for n in range(1, len(rows) + 1))
    else:
        numbered = [(n, x) for n, x in enumerate(lines, 1) if x.strip()]
        locations = (f"{path}, line {n}" for n, _ in numbered)
        rows = (_parse_json(x, f"{path}, line {n}") for n, x in numbered)
    for location, row in zip(locations, rows, strict=True):
        if not isinstance(row, dict):
            raise ValueError(
                f"{location}: expected an object with a text and its spans, got"
                f" {str(row)[:60]}"
            )
        yield location, row


def _parse_json(text: str, location: str) -> Any:
    try:
        return json.loads(text)
    # The decoder is recursive: deep brackets exceed Python's recursion limit.
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{location}: expected JSON, got {error}") from error


def _parse_doccano_or_prodigy(
    row: Mapping[str, Any], location: str
) -> AnnotatedText | None:
    """Parse a record of doccano or Prodigy; None if it was rejected."""
    if row.get("answer", "accept") != "accept":
        return None
    key = next((name for name in SPAN_KEYS if name in row), None)
    if key is None and "answer" not in row:
        raise ValueError(
            f"expected {', '.join(SPAN_KEYS[:-1])} or {SPAN_KEYS[-1]}, got none"
        )
    words = None
    if row.get("tokens"):
        words = [_parse_offsets(token) for token in row["tokens"]]
        ends = [
            0,
            *(x for location in words for x in location),
            len(row.get("text", "")),
        ]
        if ends != sorted(ends):
            raise ValueError("expected tokens one after another within the text")
    return _build_annotated_text(
        _require_text(row), row.get(key or "") or [], location, words
    )


def _parse_label_studio(row: Mapping[str, Any], location: str) -> AnnotatedText | None:
    """Parse a task of Label Studio; None if it has no finished annotation."""
    annotations = _require_objects(
        row.get("annotations") or row.get("completions") or []
    )
    finished = [
        annotation for annotation in annotations if not annotation.get("was_cancelled")
    ]
    if not finished:
        return None
    results = _require_objects(finished[0].get("result") or [])
    values = [x["value"] for x in results if isinstance(x.get("value"), dict)]
    # Relations, choices and ratings have no span.
    values = [x for x in values if "start" in x and _has_any_key(x, LABEL_KEYS)]
    data = row["data"]
    texts = [x for x in data.values() if isinstance(x, str)]
    text = data.get("text", texts[0] if len(texts) == 1 else None)
    return _build_annotated_text(_require_text({"text": text}), values, location)


def _require_objects(values: Any) -> list[dict[str, Any]]:
    objects = list(values)
    if not all(isinstance(value, dict) for value in objects):
        raise ValueError(
            f"expected objects as of Label Studio, got {str(objects)[:60]}"
        )
    return objects


def _require_text(row: Mapping[str, Any]) -> str:
    text = next((row[name] for name in TEXT_KEYS if name in row), None)
    if not isinstance(text, str):
        raise ValueError(f"expected a string as text, got {str(text)[:60]!r}")
    return text


def _parse_offsets(record: Mapping[str, Any]) -> Offsets:
    bounds = [
        next((record[name] for name in names if name in record), None)
        for names in (START_KEYS, END_KEYS)
    ]
    start, end = bounds
    if type(start) is not int or type(end) is not int:
        raise ValueError(f"expected numbers as start and end, got {str(record)[:60]}")
    return start, end


def _build_annotated_text(
    text: str, raw_spans: Any, source: str, words: Sequence[Offsets] | None = None
) -> AnnotatedText:
    spans, faults = [], []
    utf16_offsets: list[int] | None = None
    if not isinstance(raw_spans, list):
        raise ValueError(f"expected a list of spans, got {str(raw_spans)[:60]}")
    for raw_span in raw_spans:
        if isinstance(raw_span, list) and len(raw_span) == 3:
            raw_span = dict(zip(("start", "end", "label"), raw_span, strict=True))
        if not isinstance(raw_span, dict):
            raise ValueError(
                f"expected start, end and label of a span, got {str(raw_span)[:60]}"
            )
        start, end = _parse_offsets(raw_span)
        label = next(
            (raw_span[name] for name in LABEL_KEYS if raw_span.get(name)), None
        )
        has_multiple_labels = isinstance(label, list) and len(label) > 1
        label = label[0] if isinstance(label, list) else label
        label = "_".join(label.split()) if isinstance(label, str) else None
        if not label:
            raise ValueError(f"expected a label of a span, got {str(raw_span)[:60]}")
        quoted = raw_span.get("text")
        if isinstance(quoted, str) and text[max(start, 0) : max(end, 0)] != quoted:
            # JavaScript counts UTF-16 units, two for characters above U+FFFF. Use these
            # offsets only where they match the quoted text.
            if utf16_offsets is None:
                utf16_offsets = [
                    *accumulate((1 + (c > "\uffff") for c in text), initial=0)
                ]
            shifted = bisect_left(utf16_offsets, start), bisect_left(utf16_offsets, end)
            start, end = shifted if text[slice(*shifted)] == quoted else (start, end)
        span = start, end, label
        if has_multiple_labels:
            faults.append((span, "has several labels"))
        elif reason := _find_text_mismatch(text, start, end, quoted):
            faults.append((span, reason))
        else:
            spans.append(span)
    return AnnotatedText(text, spans, words, source, faults)


def _find_text_mismatch(text: str, start: int, end: int, quoted: object) -> str | None:
    """Return the fault of a span whose quoted text differs, or None.

    White space is not compared.
    """
    is_inside = 0 <= start <= end <= len(text)
    if not is_inside or not isinstance(quoted, str):
        return None
    is_same = quoted.split() == text[start:end].split()
    return None if is_same else f"differs from its words in the file, {quoted[:60]!r}"


def _read_brat(path: Path) -> AnnotatedText:
    """Read a brat file; its offsets count the characters of the ``.txt`` file."""
    text_path = path.with_suffix(".txt")
    content = decompress(read_content(text_path, f"the text of {path}"), text_path)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{text_path}: expected UTF-8, got {error}") from error
    spans, faults = [], []
    lines = decode_lines(read_content(path, "a file of brat"), path)
    for number, line in enumerate(lines, 1):
        if not line.startswith("T"):
            continue
        match = BRAT_SPAN.fullmatch(line)
        if not match:
            raise ValueError(
                f"{path}, line {number}: expected T1, a tab, label, start and end, a"
                f" tab and the words, got {line[:60]!r}"
            )
        parts = [[int(x) for x in part.split()] for part in match[2].split(";")]
        span = (parts[0][0], parts[-1][1], match[1])
        if len(parts) > 1:
            faults.append((span, "is discontinuous"))
        elif reason := _find_text_mismatch(text, *span[:2], match[3]):
            faults.append((span, reason))
        else:
            spans.append(span)
    return AnnotatedText(text, spans, None, str(path), faults)
