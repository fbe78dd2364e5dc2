"""Schemes by which the labels of tokens write down spans; spans read from labels."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Scheme = Literal["BIO", "IOB1", "IOE2", "IOE1", "BIOES", "BILOU", "BMES"]
Alias = Literal["IOB2", "IOBES"]
Span = tuple[str, int, int]


class Shape(NamedTuple):
    """Prefixes of a span of several tokens, from first to last, and of one token."""

    first: str
    inside: str
    last: str
    single: str


SHAPES: dict[Scheme, Shape] = {
    "BIO": Shape("B", "I", "I", "B"),
    "IOB1": Shape("I", "I", "I", "I"),
    "IOE2": Shape("I", "I", "E", "E"),
    "IOE1": Shape("I", "I", "I", "I"),
    "BIOES": Shape("B", "I", "E", "S"),
    "BILOU": Shape("B", "I", "L", "U"),
    "BMES": Shape("B", "M", "E", "S"),
}
ALIASES: dict[str, Scheme] = {"IOB2": "BIO", "IOBES": "BIOES"}
# The prefixes that IOB1 and IOE1 write only between spans of one type that touch.
TOUCHING: dict[Scheme, str] = {"IOB1": "B", "IOE1": "E"}
PREFIXES: dict[Scheme, frozenset[str]] = {
    name: frozenset((*shape, TOUCHING.get(name, shape.first)))
    for name, shape in SHAPES.items()
}
# One letter for each role, whatever the scheme calls it.
ROLES = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S"}


def named(scheme: str) -> Scheme:
    """The scheme that goes by a name.

    Raises
    ------
    ValueError
        For a name that none has.
    """
    scheme = ALIASES.get(scheme, scheme) if isinstance(scheme, str) else scheme
    if scheme not in tuple(SHAPES):
        known = ", ".join((*SHAPES, *ALIASES))
        raise ValueError(f"scheme: expected one of {known}, got {scheme!r}")
    return scheme


def expected(scheme: Scheme) -> str:
    """The labels of a scheme, for messages."""
    order = sorted(PREFIXES[scheme], key=list(ROLES).index)
    return ", ".join(("O", *(f"{prefix}-TYPE" for prefix in order)))


def split(label: str) -> tuple[str, str]:
    """Prefix and type; the type of ``"B"`` is ``"_"``, and outside has none."""
    prefix, _, kind = label.partition("-")
    return (prefix, "") if prefix == "O" else (prefix, kind or "_")


def fitting(prefixes: Iterable[str]) -> list[Scheme]:
    """Schemes that have all of these prefixes, those with the fewest others first."""
    used = set(prefixes) - {"O"}
    found = [name for name, known in PREFIXES.items() if used <= known]
    if used == {"I"}:
        # I alone never begins a span of BIO, nor ends one of IOE2
        found.sort(key=lambda name: name not in TOUCHING)
    return found


def read(labels: Sequence[tuple[str, str]]) -> list[Span]:
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


def well_written(
    prefixes: Sequence[str], spans: Sequence[Span], scheme: Scheme
) -> list[Span]:
    """Those of all spans of a sentence that the scheme writes with these prefixes."""
    found = []
    for number, (kind, first, last) in enumerate(spans):
        before, after = spans[number - 1 : number], spans[number + 1 : number + 2]
        written = write(
            scheme,
            last + 1 - first,
            bool(before) and before[0][0] == kind and before[0][2] == first - 1,
            bool(after) and after[0][0] == kind and after[0][1] == last + 1,
        )
        if prefixes[first : last + 1] == written:
            found.append((kind, first, last))
    return found


def write(scheme: Scheme, size: int, before: bool, after: bool) -> list[str]:
    """Prefixes of a span that touches one of its type before it, after it, or not."""
    shape = SHAPES[scheme]
    found = [shape.first, *[shape.inside] * (size - 2), shape.last]
    if size == 1:
        found = [shape.single]
    if scheme == "IOB1" and before:
        found[0] = TOUCHING[scheme]
    if scheme == "IOE1" and after:
        found[-1] = TOUCHING[scheme]
    return found
