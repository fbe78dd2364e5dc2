"""Tagging schemes: detect the scheme of a corpus, convert tags between schemes.

A scheme encodes spans of tokens as one tag per token. ``metrics.spans`` lists the
schemes. ``"plain"`` means tags that encode no spans, such as parts of speech.
``notation_of`` recognises tags that are not written as ``"B-PER"``.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

__all__ = ["PLAIN", "Notation", "convert", "detect", "notation_of"]

Scheme = Literal["BIO", "IOB1", "IOE2", "IOE1", "BIOES", "BILOU", "BMES", "BMEWO"]
Alias = Literal["IOB2", "IOBES"]
Span = tuple[str, int, int]
PLAIN: Final = "plain"
"""Name of the scheme of tags that write no spans."""


class SpanPrefixes(NamedTuple):
    """Prefixes of a span of several tokens, from first to last, and of one token."""

    first: str
    inside: str
    last: str
    single: str


SPAN_PREFIXES: dict[Scheme, SpanPrefixes] = {
    "BIO": SpanPrefixes("B", "I", "I", "B"),
    "IOB1": SpanPrefixes("I", "I", "I", "I"),
    "IOE2": SpanPrefixes("I", "I", "E", "E"),
    "IOE1": SpanPrefixes("I", "I", "I", "I"),
    "BIOES": SpanPrefixes("B", "I", "E", "S"),
    "BILOU": SpanPrefixes("B", "I", "L", "U"),
    "BMES": SpanPrefixes("B", "M", "E", "S"),
    "BMEWO": SpanPrefixes("B", "M", "E", "W"),
}
ALIASES: dict[str, Scheme] = {"IOB2": "BIO", "IOBES": "BIOES"}
# The prefixes that IOB1 and IOE1 write only between spans of one type that touch.
TOUCHING: dict[Scheme, str] = {"IOB1": "B", "IOE1": "E"}
PREFIXES: dict[Scheme, frozenset[str]] = {
    name: frozenset((*shape, TOUCHING.get(name, shape.first)))
    for name, shape in SPAN_PREFIXES.items()
}
# One letter for each role, whatever the scheme calls it.
CANONICAL_PREFIX = {
    "B": "B",
    "I": "I",
    "M": "I",
    "E": "E",
    "L": "E",
    "S": "S",
    "U": "S",
    "W": "S",
}


def detect(sentences: Iterable[Sequence[str | None]]) -> Scheme | Literal["plain"]:
    """Return the scheme that encodes most of the spans exactly as tagged.

    If several schemes encode equally many spans, the one with the fewest prefixes is
    returned. A few malformed spans therefore do not change the result.

    Parameters
    ----------
    sentences
        Tags of each sentence; None for an unknown tag. Spans next to one are ignored.

    Returns
    -------
    str
        A scheme of ``metrics.spans``, or ``"plain"`` if fewer than one in twenty tags
        other than ``"O"`` have a prefix.

    Examples
    --------
    >>> detect([["I-PER", "I-PER", "O", "I-LOC"]])
    'IOB1'
    >>> detect([["DET", "NOUN", "VERB"]])
    'plain'
    """
    # many sentences have the same tags
    given = Counter(map(tuple, sentences))
    counts: Counter[str | None] = Counter()
    for tags, times in given.items():
        for tag in tags:
            counts[tag] += times
    del counts["O"], counts[None]
    for tag in counts:
        if not isinstance(tag, str):
            raise TypeError(f"sentences: expected tags as strings or None, got {tag!r}")
    parts = {tag: split_tag(tag) for tag in counts if tag is not None}
    typed = sum(counts[tag] for tag in parts if is_tag(tag) and len(tag) > 1)
    bare = counts.keys() <= CANONICAL_PREFIX.keys()
    if counts and not bare and 20 * typed < counts.total():
        return PLAIN
    patterns: Counter[Any] = Counter()
    for tags, times in given.items():
        for pattern in _patterns(tags, parts):
            patterns[pattern] += times
    return max(
        sorted(SPAN_PREFIXES, key=lambda name: len(PREFIXES[name])),
        key=lambda name: sum(
            count
            for (found, before, after), count in patterns.items()
            if list(found) == write(name, len(found), before, after)
        ),
    )


def _patterns(
    tags: Sequence[str | None], parts: dict[str, tuple[str, str]]
) -> Iterable[tuple[tuple[str, ...], bool, bool]]:
    """Prefixes of each span, and whether one of its type touches it on either side."""
    known = [parts.get(tag or "O", ("O", "")) for tag in tags]
    spans = parse_spans(
        [(CANONICAL_PREFIX.get(prefix, "O"), kind) for prefix, kind in known]
    )
    for number, (_, first, last) in enumerate(spans):
        if None in tags[max(0, first - 1) : last + 2]:
            continue
        prefixes = tuple(prefix for prefix, _ in known[first : last + 1])
        yield (prefixes, *_touched(spans, number))


def _touched(spans: Sequence[Span], number: int) -> tuple[bool, bool]:
    """Whether a span of its type ends right before it, and begins right after it."""
    kind, first, last = spans[number]
    before, after = spans[max(0, number - 1) : number], spans[number + 1 : number + 2]
    return (
        [(x[0], x[2]) for x in before] == [(kind, first - 1)],
        [x[:2] for x in after] == [(kind, last + 1)],
    )


def convert(
    tags: Sequence[str], *, source: str, target: str, strict: bool = True
) -> list[str]:
    """Rewrite the tags of one sentence in another scheme.

    Parameters
    ----------
    tags
        ``"O"``, a prefix and a type as in ``"B-PER"``, or a prefix alone. In the scheme
        ``"plain"`` any string; each is a span of one token.
    source, target
        Names of the scheme of ``tags`` and of the new one, as in ``metrics.spans``, or
        ``"plain"``.
    strict
        Whether tags that ``source`` would not write so are an error. If False, spans
        follow the rules of the CoNLL evaluation script; with the same ``source`` and
        ``target`` this repairs tags.

    Raises
    ------
    TypeError
        For a tag that is not a string.
    ValueError
        For an unknown scheme, for a tag that ``source`` does not have, and if
        ``strict`` for one that it would not write at this position.

    Examples
    --------
    >>> tags = ["I-PER", "I-PER", "B-PER", "O"]
    >>> convert(tags, source="IOB1", target="BIOES")
    ['B-PER', 'E-PER', 'S-PER', 'O']
    >>> convert(["O", "I-PER"], source="BIO", target="BIO", strict=False)
    ['O', 'B-PER']
    """
    _check_strings(tags)
    for name, value in (("source", source), ("target", target)):
        if value != PLAIN and ALIASES.get(value, value) not in SPAN_PREFIXES:
            known = ", ".join((*SPAN_PREFIXES, *ALIASES, PLAIN))
            raise ValueError(f"{name}: expected one of {known}, got {value!r}")
    if source == PLAIN:
        spans = [(tag, n, n) for n, tag in enumerate(tags) if tag != "O"]
    else:
        legal = PREFIXES[resolve_scheme(source)]
        for position, tag in enumerate(tags):
            if tag != "O" and not (is_tag(tag) and split_tag(tag)[0] in legal):
                allowed = allowed_tags_text(resolve_scheme(source))
                raise ValueError(
                    f"tags: expected {allowed} for {source}, got {tag!r} at position"
                    f" {position}. detect() finds the scheme"
                )
        spans = parse_spans(
            [(CANONICAL_PREFIX.get(p, p), kind) for p, kind in map(split_tag, tags)]
        )
    if strict and source != PLAIN:
        own = _written(spans, len(tags), resolve_scheme(source))
        for position, (tag, right) in enumerate(zip(tags, own, strict=True)):
            if tag != right and split_tag(tag) != split_tag(right):
                raise ValueError(
                    f"tags: expected {right!r} at position {position} for {source}, got"
                    f" {tag!r}. detect() finds the scheme; strict=False reads malformed"
                    " tags as the CoNLL evaluation script does"
                )
    if target == PLAIN:
        found = ["O"] * len(tags)
        for kind, first, last in spans:
            found[first : last + 1] = [kind] * (last + 1 - first)
        return found
    return _written(spans, len(tags), resolve_scheme(target))


def _check_strings(tags: Sequence[object]) -> None:
    for position, tag in enumerate(tags):
        if not isinstance(tag, str):
            raise TypeError(
                f"tags: expected strings, got {tag!r} at position {position}"
            )


def _written(spans: Sequence[Span], length: int, scheme: Scheme) -> list[str]:
    """Tags of a sentence with these spans."""
    found = ["O"] * length
    for number, (kind, first, last) in enumerate(spans):
        prefixes = write(scheme, last + 1 - first, *_touched(spans, number))
        found[first : last + 1] = [join_tag(prefix, kind) for prefix in prefixes]
    return found


class Notation(NamedTuple):
    """Way to write tags: B-PER, b_per, PER:B, or only types (IO).

    Examples
    --------
    >>> Notation(separator="_", lower=True).normalise("b_PER")
    'B-PER'
    """

    separator: str = "-"
    """Between prefix and type."""
    suffix: bool = False
    """Whether the type comes first, as in ``PER-B``."""
    lower: bool = False
    """Whether prefixes are small letters."""
    lower_types: bool = False
    """Whether types are small letters, as well as prefixes."""
    outside: str = "O"
    """The tag outside of spans."""
    only_types: bool = False
    """Whether there are no prefixes: neighbours of one type are one span."""

    def normalise(self, tag: str) -> str:
        """Return the tag as ``"B-PER"`` or ``"O"``; of another notation, unchanged."""
        if tag == self.outside:
            return "O"
        if self.only_types:
            return tag if tag == "O" else f"I-{tag}"
        if self.lower and tag in LOWER:
            return tag.upper()
        found = self._parts(tag)
        if found is None:
            return tag
        prefix, kind = found
        return f"{prefix.upper()}-{kind.upper() if self.lower_types else kind}"

    def write(self, tag: str) -> str:
        """Return ``"B-PER"`` or ``"O"`` in this notation."""
        prefix, dash, kind = tag.partition("-")
        if tag == "O":
            return self.outside
        if self.only_types:
            return kind
        prefix = prefix.lower() if self.lower else prefix
        kind = kind.lower() if self.lower_types else kind
        if not dash:
            return prefix
        pair = (kind, prefix) if self.suffix else (prefix, kind)
        return self.separator.join(pair)

    def _parts(self, tag: str) -> tuple[str, str] | None:
        """Prefix and type; None if it is not written so."""
        if self.suffix:
            kind, _, prefix = tag.rpartition(self.separator)
        else:
            prefix, _, kind = tag.partition(self.separator)
        known = LOWER if self.lower else CANONICAL_PREFIX
        return (prefix, kind) if prefix in known and kind[:1].isalpha() else None

    def __str__(self) -> str:
        if self.only_types:
            return "types without prefixes (IO)"
        return f"{self.write('B-TYPE')} and {self.outside}"


LOWER = frozenset(map(str.lower, CANONICAL_PREFIX))
DEFAULT_NOTATION: Final = Notation()
NOTATIONS = [
    Notation(separator, suffix, lower)
    for lower in (False, True)
    for suffix in (False, True)
    for separator in "-_:/|."
]


def notation_of(tags: Iterable[str]) -> Notation:
    """Return how the tags of spans are written, by most of them.

    ``B-PER`` and ``O`` unless at least half of the tags that are not outside have
    another separator (``_ : / | .``), the prefix behind the type, or small letters.
    Outside may be ``o`` or ``0`` if there is no ``O``. Types without prefixes (IO) are
    recognised if outside is at least one tag in five.

    Parameters
    ----------
    tags
        Tags of all tokens, or labels of a model.

    Examples
    --------
    >>> notation = notation_of(["b_per", "i_per", "o"])
    >>> notation.normalise("i_per")
    'I-PER'
    >>> notation.write("B-LOC")
    'b_loc'
    """
    tags = list(tags)
    _check_strings(tags)
    counts = Counter(tags)
    outside = next((tag for tag in "Oo0" if counts[tag]), "O")
    away = counts.pop(outside, 0)
    covered = {
        one: sum(n for tag, n in counts.items() if one._parts(tag)) for one in NOTATIONS
    }
    best = max(NOTATIONS, key=covered.__getitem__)
    if covered[best] and (
        best == DEFAULT_NOTATION or 2 * covered[best] >= counts.total()
    ):
        kinds = [parts[1] for tag in counts if (parts := best._parts(tag))]
        lower = best.lower and all(kind == kind.lower() for kind in kinds)
        return best._replace(lower_types=lower, outside=outside)
    if counts and not covered[best]:
        if outside != "O" and (
            counts.keys() <= LOWER or counts.keys() <= CANONICAL_PREFIX.keys()
        ):
            return Notation(lower=counts.keys() <= LOWER, outside=outside)
        bare = any(tag in CANONICAL_PREFIX or not tag[:1].isalpha() for tag in counts)
        # one letter each, such as n, v and o, is rather a part of speech
        bare |= outside != "O" and any(len(tag) == 1 for tag in counts)
        if not bare and 5 * away >= away + counts.total():
            return Notation(outside=outside, only_types=True)
    return DEFAULT_NOTATION


def is_tag(label: str) -> bool:
    """Whether it is O, or a prefix of some scheme, alone or with a type."""
    prefix, dash, kind = label.partition("-")
    return label == "O" or (prefix in CANONICAL_PREFIX and bool(kind or not dash))


def join_tag(prefix: str, kind: str) -> str:
    """Write prefix and type as one label, which ``split`` takes apart."""
    return prefix if kind == "_" else f"{prefix}-{kind}"


def resolve_scheme(scheme: str) -> Scheme:
    """The scheme that goes by a name.

    Raises
    ------
    ValueError
        For a name that none has.
    """
    scheme = ALIASES.get(scheme, scheme) if isinstance(scheme, str) else scheme
    if scheme not in tuple(SPAN_PREFIXES):
        known = ", ".join((*SPAN_PREFIXES, *ALIASES))
        raise ValueError(f"scheme: expected one of {known}, got {scheme!r}")
    return scheme


def allowed_tags_text(scheme: Scheme) -> str:
    """The labels of a scheme, for messages."""
    order = sorted(PREFIXES[scheme], key=list(CANONICAL_PREFIX).index)
    return ", ".join(("O", *(f"{prefix}-TYPE" for prefix in order)))


def split_tag(label: str) -> tuple[str, str]:
    """Prefix and type; the type of ``"B"`` is ``"_"``, and outside has none."""
    prefix, _, kind = label.partition("-")
    return (prefix, "") if prefix == "O" else (prefix, kind or "_")


def compatible_schemes(prefixes: Iterable[str]) -> list[Scheme]:
    """Schemes that have all of these prefixes, those with the fewest others first."""
    used = set(prefixes) - {"O"}
    found = [name for name, known in PREFIXES.items() if used <= known]
    if used == {"I"}:
        # I alone never begins a span of BIO, nor ends one of IOE2
        found.sort(key=lambda name: name not in TOUCHING)
    return found


def parse_spans(labels: Sequence[tuple[str, str]]) -> list[Span]:
    """Spans of one sentence, by the rules of the CoNLL evaluation script.

    ``labels`` have roles and types. A span begins at B or S, and at I or E where the
    type changes or the label before was O, E or S.
    """
    found: list[Span] = []
    open_ = False
    before = ""
    for position, (role, kind) in enumerate(labels):
        if role != "O":
            if open_ and role in "IE" and kind == before:
                found[-1] = (kind, found[-1][1], position)
            else:
                found.append((kind, position, position))
        open_, before = role in "BI", kind
    return found


def well_formed_spans(
    prefixes: Sequence[str], spans: Sequence[Span], scheme: Scheme
) -> list[Span]:
    """Spans of a sentence that the scheme writes with exactly these prefixes."""
    found = []
    for number, (kind, first, last) in enumerate(spans):
        written = write(scheme, last + 1 - first, *_touched(spans, number))
        if prefixes[first : last + 1] == written:
            found.append((kind, first, last))
    return found


def write(scheme: Scheme, size: int, before: bool, after: bool) -> list[str]:
    """Prefixes of a span that touches one of its type before it, after it, or not."""
    shape = SPAN_PREFIXES[scheme]
    found = [shape.first, *[shape.inside] * (size - 2), shape.last]
    if size == 1:
        found = [shape.single]
    if scheme == "IOB1" and before:
        found[0] = TOUCHING[scheme]
    if scheme == "IOE1" and after:
        found[-1] = TOUCHING[scheme]
    return found
