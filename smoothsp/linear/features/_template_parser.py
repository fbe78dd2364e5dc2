r"""The language of templates, and what a template in it stands for.

A template is pieces joined by ``&``; a piece is a source and where to look::

    template := piece { "&" piece }  |  "bias"
    piece    := source [ "[" range "]" ]
    source   := column  |  function "(" source [ "," range ] ")"
    range    := integer [ ".." integer ]

Both ends of a range belong to it, and without one a piece looks at the position itself.
Each combination of the numbers in its ranges is a template of its own:
``word[-1..1]`` is three.
"""

import itertools
import re
from dataclasses import dataclass

# Functions of a string, and whether they take a number.
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
    """The value of a source, some positions away."""

    source: Source
    offset: int

    def __str__(self) -> str:
        return f"{self.source}[{self.offset}]"


# All pieces together are one feature; no pieces are always there: the bias.
Template = tuple[Piece, ...]


def template_to_text(template: Template) -> str:
    """A template in its own language."""
    return " & ".join(map(str, template)) or "bias"


def parse_template(text: str, columns: tuple[str, ...]) -> list[Template]:
    """The templates that ``text`` stands for, in the order of its ranges."""
    if not isinstance(text, str):
        raise TypeError(f"templates: expected strings, got {text!r}")
    reader = _Reader(text, columns)
    if reader.tokens == ["bias", ""]:
        return [()]
    pieces = [reader.piece()]
    while reader.take("&"):
        pieces.append(reader.piece())
    if reader.next:
        reader.refuse("& or the end")
    return list(itertools.product(*pieces))


class _Reader:
    """The tokens of one template, taken from left to right."""

    def __init__(self, text: str, columns: tuple[str, ...]) -> None:
        self.text = text
        self.columns = columns
        self.tokens: list[str] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(
                    f"templates: expected names, numbers and [ ] ( ) , .. & in"
                    f" {text!r}, got {text[at:].strip()!r}"
                )
            self.tokens.append(found[1])
            at = found.end()
        self.tokens.append("")

    @property
    def next(self) -> str:
        return self.tokens[0]

    def take(self, token: str) -> bool:
        """Whether the next token is this one, which is then taken."""
        if self.next != token:
            return False
        self.tokens.pop(0)
        return True

    def refuse(self, expected: str) -> None:
        found = repr(self.next) if self.next else "the end"
        raise ValueError(
            f"templates: expected {expected} in template {self.text!r}, got {found}"
        )

    def need(self, token: str) -> None:
        if not self.take(token):
            self.refuse(token)

    def piece(self) -> list[Piece]:
        sources = self.source()
        offsets = [0]
        if self.take("["):
            offsets = self.range()
            self.need("]")
        return [Piece(s, o) for o in offsets for s in sources]

    def source(self) -> list[Source]:
        name = self.next
        if self.tokens[1:2] == ["("]:
            if name not in FUNCTIONS:
                self.refuse(f"a function ({', '.join(FUNCTIONS)})")
            self.tokens.pop(0)
            self.need("(")
            inner = self.source()
            numbers = [0]
            if FUNCTIONS[name]:
                self.need(",")
                numbers = self.range()
                if min(numbers) < 1:
                    raise ValueError(
                        f"templates: expected lengths of at least 1 in {self.text!r},"
                        f" got {min(numbers)}"
                    )
            self.need(")")
            return [
                Source(s.column, (*s.functions, (name, number)))
                for number in numbers
                for s in inner
            ]
        if name not in self.columns:
            self.refuse(f"a column ({', '.join(self.columns)})")
        self.tokens.pop(0)
        return [Source(name)]

    def range(self) -> list[int]:
        first = self.integer()
        last = self.integer() if self.take("..") else first
        if last < first:
            raise ValueError(
                f"templates: expected a range from low to high in {self.text!r}, got"
                f" {first}..{last}"
            )
        return list(range(first, last + 1))

    def integer(self) -> int:
        if not self.next.lstrip("-").isdecimal():
            self.refuse("an integer")
        return int(self.tokens.pop(0))
