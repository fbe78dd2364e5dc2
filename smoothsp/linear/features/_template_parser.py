r"""Recursive-descent parser of feature templates.

A template is pieces joined by ``&``; a piece is a source and a range of offsets::

    template := piece { "&" piece }  |  "bias"
    piece    := source [ "[" range "]" ]
    source   := column  |  function "(" source [ "," range ] ")"
    range    := integer [ ".." integer ]

Ranges include both ends; without one, the offset is 0. Each combination of numbers in
ranges is a separate template: ``word[-1..1]`` is three.
"""

import itertools
import re
from dataclasses import dataclass

# Functions of a string, and whether they have a number as second argument.
FUNCTIONS = {
    "lower": False,
    "shape": False,
    "short_shape": False,
    "prefix": True,
    "suffix": True,
}
_TOKEN = re.compile(r"\s*(-?\d+|\.\.|[\w-]*[^\W\d][\w-]*|[\[\](),&])")


@dataclass(frozen=True)
class Source:
    """A column, and the functions its strings pass through, first to last."""

    column: str
    functions: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        text = self.column
        for name, number in self.functions:
            text = f"{name}({text}, {number})" if FUNCTIONS[name] else f"{name}({text})"
        return text


@dataclass(frozen=True)
class Piece:
    """Value of a source at ``offset`` positions from the current one."""

    source: Source
    offset: int

    def __str__(self) -> str:
        return f"{self.source}[{self.offset}]"


# A template is the conjunction of its pieces; the empty one is the bias.
Template = tuple[Piece, ...]


def template_to_text(template: Template) -> str:
    """Return the text of a template, which parses to it."""
    return " & ".join(map(str, template)) or "bias"


def parse_template(text: str, columns: tuple[str, ...]) -> list[Template]:
    """Parse ``text`` into templates, in the order of its ranges."""
    if not isinstance(text, str):
        raise TypeError(f"templates: expected strings, got {text!r}")
    parser = _TemplateParser(text, columns)
    if parser.tokens == ["bias", ""]:
        return [()]
    pieces = [parser.parse_piece()]
    while parser.accept("&"):
        pieces.append(parser.parse_piece())
    if parser.next_token:
        parser.raise_unexpected("& or the end")
    return list(itertools.product(*pieces))


class _TemplateParser:
    """Parser of one template; its methods consume tokens from left to right."""

    def __init__(self, text: str, columns: tuple[str, ...]) -> None:
        self.text = text
        self.columns = columns
        self.tokens: list[str] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise ValueError(
                    f"templates: expected names, numbers and [ ] ( ) , .. & in"
                    f" {text!r}, got {text[position:].strip()!r}"
                )
            self.tokens.append(match[1])
            position = match.end()
        self.tokens.append("")

    @property
    def next_token(self) -> str:
        return self.tokens[0]

    def accept(self, token: str) -> bool:
        """Consume the next token if it equals ``token``; return whether it did."""
        if self.next_token != token:
            return False
        self.tokens.pop(0)
        return True

    def raise_unexpected(self, expected: str) -> None:
        """Raise a ValueError that names the next token."""
        actual = repr(self.next_token) if self.next_token else "the end"
        raise ValueError(
            f"templates: expected {expected} in template {self.text!r}, got {actual}"
        )

    def expect(self, token: str) -> None:
        """Consume ``token``, or raise."""
        if not self.accept(token):
            self.raise_unexpected(token)

    def parse_piece(self) -> list[Piece]:
        sources = self.parse_source()
        offsets = [0]
        if self.accept("["):
            offsets = self.parse_range()
            self.expect("]")
        return [Piece(s, o) for o in offsets for s in sources]

    def parse_source(self) -> list[Source]:
        name = self.next_token
        if self.tokens[1:2] == ["("]:
            if name not in FUNCTIONS:
                self.raise_unexpected(f"a function ({', '.join(FUNCTIONS)})")
            self.tokens.pop(0)
            self.expect("(")
            inner = self.parse_source()
            numbers = [0]
            if FUNCTIONS[name]:
                self.expect(",")
                numbers = self.parse_range()
                if min(numbers) < 1:
                    raise ValueError(
                        f"templates: expected lengths of at least 1 in {self.text!r},"
                        f" got {min(numbers)}"
                    )
            self.expect(")")
            return [
                Source(s.column, (*s.functions, (name, number)))
                for number in numbers
                for s in inner
            ]
        if name not in self.columns:
            self.raise_unexpected(f"a column ({', '.join(self.columns)})")
        self.tokens.pop(0)
        return [Source(name)]

    def parse_range(self) -> list[int]:
        first = self.parse_integer()
        last = self.parse_integer() if self.accept("..") else first
        if last < first:
            raise ValueError(
                f"templates: expected a range from low to high in {self.text!r}, got"
                f" {first}..{last}"
            )
        return list(range(first, last + 1))

    def parse_integer(self) -> int:
        if not self.next_token.lstrip("-").isdecimal():
            self.raise_unexpected("an integer")
        return int(self.tokens.pop(0))
