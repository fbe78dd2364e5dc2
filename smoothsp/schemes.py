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
"""Name of the scheme of tags that encode no spans."""


class SpanPrefixes(NamedTuple):
    """Prefixes of the first, inner and last token of a span, and of a single token."""

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
# Prefix that IOB1 and IOE1 use only where two spans of one type are adjacent.
BOUNDARY_PREFIX: dict[Scheme, str] = {"IOB1": "B", "IOE1": "E"}
PREFIXES: dict[Scheme, frozenset[str]] = {
    name: frozenset((*shape, BOUNDARY_PREFIX.get(name, shape.first)))
    for name, shape in SPAN_PREFIXES.items()
}
# Prefix of each role in BIOES, for the prefixes of all schemes.
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
    # many sentences have the same tags: count them once
    sentence_counts = Counter(map(tuple, sentences))
    counts: Counter[str | None] = Counter()
    for tags, occurrences in sentence_counts.items():
        for tag in tags:
            counts[tag] += occurrences
    del counts["O"], counts[None]
    for tag in counts:
        if not isinstance(tag, str):
            raise TypeError(f"sentences: expected tags as strings or None, got {tag!r}")
    parts = {tag: split_tag(tag) for tag in counts if tag is not None}
    typed = sum(counts[tag] for tag in parts if is_tag(tag) and len(tag) > 1)
    is_bare = counts.keys() <= CANONICAL_PREFIX.keys()
    if counts and not is_bare and 20 * typed < counts.total():
        return PLAIN
    patterns: Counter[Any] = Counter()
    for tags, occurrences in sentence_counts.items():
        for pattern in _span_patterns(tags, parts):
            patterns[pattern] += occurrences
    return max(
        sorted(SPAN_PREFIXES, key=lambda name: len(PREFIXES[name])),
        key=lambda name: sum(
            count
            for (prefixes, before, after), count in patterns.items()
            if list(prefixes) == span_prefixes(name, len(prefixes), before, after)
        ),
    )


def _span_patterns(
    tags: Sequence[str | None], parts: dict[str, tuple[str, str]]
) -> Iterable[tuple[tuple[str, ...], bool, bool]]:
    """Yield the prefixes of each span, and its ``_adjacent_sides``."""
    split_tags = [parts.get(tag or "O", ("O", "")) for tag in tags]
    spans = parse_spans(
        [(CANONICAL_PREFIX.get(prefix, "O"), kind) for prefix, kind in split_tags]
    )
    for index, (_, first, last) in enumerate(spans):
        if None in tags[max(0, first - 1) : last + 2]:
            continue
        prefixes = tuple(prefix for prefix, _ in split_tags[first : last + 1])
        yield (prefixes, *_adjacent_sides(spans, index))


def _adjacent_sides(spans: Sequence[Span], index: int) -> tuple[bool, bool]:
    """Return whether a span of its type ends just before it, or begins just after."""
    kind, first, last = spans[index]
    before, after = spans[max(0, index - 1) : index], spans[index + 1 : index + 2]
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
        Whether malformed tags of ``source`` raise an error. If False, spans follow the
        rules of the CoNLL evaluation script; with equal ``source`` and ``target`` this
        repairs the tags.

    Raises
    ------
    TypeError
        For a tag that is not a string.
    ValueError
        For an unknown scheme or a tag that ``source`` does not have. With ``strict``
        also for a tag that is malformed at its position.

    Examples
    --------
    >>> tags = ["I-PER", "I-PER", "B-PER", "O"]
    >>> convert(tags, source="IOB1", target="BIOES")
    ['B-PER', 'E-PER', 'S-PER', 'O']
    >>> convert(["O", "I-PER"], source="BIO", target="BIO", strict=False)
    ['O', 'B-PER']
    """
    _require_strings(tags)
    for name, value in (("source", source), ("target", target)):
        if value != PLAIN and ALIASES.get(value, value) not in SPAN_PREFIXES:
            names = ", ".join((*SPAN_PREFIXES, *ALIASES, PLAIN))
            raise ValueError(f"{name}: expected one of {names}, got {value!r}")
    if source == PLAIN:
        spans = [(tag, n, n) for n, tag in enumerate(tags) if tag != "O"]
    else:
        allowed_prefixes = PREFIXES[resolve_scheme(source)]
        for position, tag in enumerate(tags):
            if tag != "O" and not (
                is_tag(tag) and split_tag(tag)[0] in allowed_prefixes
            ):
                allowed = allowed_tags_text(resolve_scheme(source))
                raise ValueError(
                    f"tags: expected {allowed} for {source}, got {tag!r} at position"
                    f" {position}. detect() finds the scheme"
                )
        spans = parse_spans(
            [(CANONICAL_PREFIX.get(p, p), kind) for p, kind in map(split_tag, tags)]
        )
    if strict and source != PLAIN:
        rewritten = _tags_from_spans(spans, len(tags), resolve_scheme(source))
        for position, (tag, right) in enumerate(zip(tags, rewritten, strict=True)):
            if tag != right and split_tag(tag) != split_tag(right):
                raise ValueError(
                    f"tags: expected {right!r} at position {position} for {source}, got"
                    f" {tag!r}. detect() finds the scheme; strict=False reads malformed"
                    " tags as the CoNLL evaluation script does"
                )
    if target == PLAIN:
        converted = ["O"] * len(tags)
        for kind, first, last in spans:
            converted[first : last + 1] = [kind] * (last + 1 - first)
        return converted
    return _tags_from_spans(spans, len(tags), resolve_scheme(target))


def _require_strings(tags: Sequence[object]) -> None:
    for position, tag in enumerate(tags):
        if not isinstance(tag, str):
            raise TypeError(
                f"tags: expected strings, got {tag!r} at position {position}"
            )


def _tags_from_spans(spans: Sequence[Span], length: int, scheme: Scheme) -> list[str]:
    """Return the tags of a sentence of ``length`` tokens with these spans."""
    tags = ["O"] * length
    for index, (kind, first, last) in enumerate(spans):
        prefixes = span_prefixes(
            scheme, last + 1 - first, *_adjacent_sides(spans, index)
        )
        tags[first : last + 1] = [join_tag(prefix, kind) for prefix in prefixes]
    return tags


class Notation(NamedTuple):
    """Notation of tags: B-PER, b_per, PER:B, or types alone (IO).

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
    """Whether prefixes are lower case."""
    lower_types: bool = False
    """Whether types are lower case, too."""
    outside: str = "O"
    """The tag outside of spans."""
    only_types: bool = False
    """Whether there are no prefixes: neighbours of one type are one span."""

    def normalise(self, tag: str) -> str:
        """Return the tag as ``"B-PER"`` or ``"O"``; unchanged in another notation."""
        if tag == self.outside:
            return "O"
        if self.only_types:
            return tag if tag == "O" else f"I-{tag}"
        if self.lower and tag in LOWER:
            return tag.upper()
        parts = self._split_tag(tag)
        if parts is None:
            return tag
        prefix, kind = parts
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

    def _split_tag(self, tag: str) -> tuple[str, str] | None:
        """Return prefix and type, or None if the tag is in another notation."""
        if self.suffix:
            kind, _, prefix = tag.rpartition(self.separator)
        else:
            prefix, _, kind = tag.partition(self.separator)
        prefixes = LOWER if self.lower else CANONICAL_PREFIX
        return (prefix, kind) if prefix in prefixes and kind[:1].isalpha() else None

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
    """Return the notation of most of the tags.

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
    _require_strings(tags)
    counts = Counter(tags)
    outside = next((tag for tag in "Oo0" if counts[tag]), "O")
    num_outside = counts.pop(outside, 0)
    num_covered = {
        notation: sum(n for tag, n in counts.items() if notation._split_tag(tag))
        for notation in NOTATIONS
    }
    best = max(NOTATIONS, key=num_covered.__getitem__)
    if num_covered[best] and (
        best == DEFAULT_NOTATION or 2 * num_covered[best] >= counts.total()
    ):
        kinds = [parts[1] for tag in counts if (parts := best._split_tag(tag))]
        lower = best.lower and all(kind == kind.lower() for kind in kinds)
        return best._replace(lower_types=lower, outside=outside)
    if counts and not num_covered[best]:
        if outside != "O" and (
            counts.keys() <= LOWER or counts.keys() <= CANONICAL_PREFIX.keys()
        ):
            return Notation(lower=counts.keys() <= LOWER, outside=outside)
        is_bare = any(
            tag in CANONICAL_PREFIX or not tag[:1].isalpha() for tag in counts
        )
        # single letters such as n, v and o are probably parts of speech
        is_bare |= outside != "O" and any(len(tag) == 1 for tag in counts)
        if not is_bare and 5 * num_outside >= num_outside + counts.total():
            return Notation(outside=outside, only_types=True)
    return DEFAULT_NOTATION


def is_tag(label: str) -> bool:
    """Return whether a label is O, or a prefix of some scheme, with or without type."""
    prefix, dash, kind = label.partition("-")
    return label == "O" or (prefix in CANONICAL_PREFIX and bool(kind or not dash))


def join_tag(prefix: str, kind: str) -> str:
    """Return the label of a prefix and a type: the inverse of ``split_tag``."""
    return prefix if kind == "_" else f"{prefix}-{kind}"


def resolve_scheme(scheme: str) -> Scheme:
    """Return the scheme of a name or an alias.

    Raises
    ------
    ValueError
        For an unknown name.
    """
    scheme = ALIASES.get(scheme, scheme) if isinstance(scheme, str) else scheme
    if scheme not in tuple(SPAN_PREFIXES):
        names = ", ".join((*SPAN_PREFIXES, *ALIASES))
        raise ValueError(f"scheme: expected one of {names}, got {scheme!r}")
    return scheme


def allowed_tags_text(scheme: Scheme) -> str:
    """Return a list of the labels of a scheme, for messages."""
    order = sorted(PREFIXES[scheme], key=list(CANONICAL_PREFIX).index)
    return ", ".join(("O", *(f"{prefix}-TYPE" for prefix in order)))


def split_tag(label: str) -> tuple[str, str]:
    """Return prefix and type: ``"_"`` for ``"B"`` alone, empty for ``"O"``."""
    prefix, _, kind = label.partition("-")
    return (prefix, "") if prefix == "O" else (prefix, kind or "_")


def compatible_schemes(prefixes: Iterable[str]) -> list[Scheme]:
    """Return the schemes that have all of these prefixes, BIO first."""
    used = set(prefixes) - {"O"}
    compatible = [name for name, allowed in PREFIXES.items() if used <= allowed]
    if used == {"I"}:
        # tags with I only: no span begins in BIO or ends in IOE2, so prefer IOB1, IOE1
        compatible.sort(key=lambda name: name not in BOUNDARY_PREFIX)
    return compatible


def parse_spans(labels: Sequence[tuple[str, str]]) -> list[Span]:
    """Return the spans of one sentence by the rules of the CoNLL evaluation script.

    ``labels`` are pairs of a canonical prefix and a type. A span begins at B or S, and
    at I or E if the type changes or the previous label is O, E or S.
    """
    spans: list[Span] = []
    is_open = False
    previous_type = ""
    for position, (role, kind) in enumerate(labels):
        if role != "O":
            if is_open and role in "IE" and kind == previous_type:
                spans[-1] = (kind, spans[-1][1], position)
            else:
                spans.append((kind, position, position))
        is_open, previous_type = role in "BI", kind
    return spans


def well_formed_spans(
    prefixes: Sequence[str], spans: Sequence[Span], scheme: Scheme
) -> list[Span]:
    """Return the spans whose prefixes are exactly those that the scheme prescribes."""
    well_formed = []
    for index, (kind, first, last) in enumerate(spans):
        written = span_prefixes(
            scheme, last + 1 - first, *_adjacent_sides(spans, index)
        )
        if prefixes[first : last + 1] == written:
            well_formed.append((kind, first, last))
    return well_formed


def span_prefixes(scheme: Scheme, size: int, before: bool, after: bool) -> list[str]:
    """Return the prefixes of a span of ``size`` tokens.

    ``before`` and ``after``: whether a span of its type is adjacent on that side.
    """
    shape = SPAN_PREFIXES[scheme]
    prefixes = [shape.first, *[shape.inside] * (size - 2), shape.last]
    if size == 1:
        prefixes = [shape.single]
    if scheme == "IOB1" and before:
        prefixes[0] = BOUNDARY_PREFIX[scheme]
    if scheme == "IOE1" and after:
        prefixes[-1] = BOUNDARY_PREFIX[scheme]
    return prefixes
