"""Examples to train on and to score: sentences, trees, and images with boxes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["AnnotatedImage", "Box", "ConstituencyTree", "DependencyTree", "Span"]
__all__ += ["TaggedSentence"]

Span = tuple[str, int, int]
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class TaggedSentence:
    """Words and their tags.

    Examples
    --------
    >>> TaggedSentence(["Orla", "left"], ["B-PER", "O"]).words
    ['Orla', 'left']
    """

    words: list[str]
    tags: list[str | None] | None = None
    """Tag of each word, None where it is not known; None if no tag is known."""
    document: int = field(default=0, compare=False)
    """Number of the document that the sentence is part of."""
    others: Sequence[Sequence[str]] = field(default=(), repr=False, compare=False)
    """The other columns of the file but numbers, from top to bottom."""

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """All columns of each word but numbers and tags, the word first."""
        return list(zip(self.words, *self.others, strict=True))


@dataclass(frozen=True)
class DependencyTree:
    """Words from 1 on, their heads, and the labels of these arcs.

    Examples
    --------
    >>> DependencyTree(["dogs", "sleep"], [2, 0], ["nsubj", "root"]).heads
    [2, 0]
    """

    words: list[str]
    heads: list[int] = field(default_factory=list)
    """0 is the root; none if the tree is not known."""
    labels: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list, repr=False)
    """Lines of the CoNLL-U file, with comments and tokens of several words."""


@dataclass(frozen=True)
class ConstituencyTree:
    """Words and constituents: the outer before the inner ones.

    Examples
    --------
    >>> ConstituencyTree(["dogs", "sleep"], [("S", 0, 1), ("NP", 0, 0)]).tags
    ['XX', 'XX']
    """

    words: list[str]
    spans: list[Span]
    """Label, first and last word, inclusive; a chain of unary rules as ``S+VP``."""
    tags: list[str] = field(default_factory=list)
    """Parts of speech; ``XX`` where they are not known."""

    def __post_init__(self) -> None:
        if not self.tags:
            object.__setattr__(self, "tags", ["XX"] * len(self.words))


@dataclass(frozen=True)
class AnnotatedImage:
    """An image and its labelled boxes, which may be none.

    Examples
    --------
    >>> AnnotatedImage(Path("a.jpg"), ((4, 5, 20, 21),), ("cup",)).name
    'a'
    """

    path: Path
    boxes: tuple[Box, ...]
    """``(x0, y0, x1, y1)`` in pixels from the upper left corner; x1 and y1 are the
    first ones outside."""
    labels: tuple[str, ...]
    difficult: tuple[tuple[str, Box], ...] = ()
    """Labels and boxes of objects that are neither trained on nor scored."""
    size: tuple[int, int] | None = None
    """Width and height of the image, in pixels."""

    @property
    def name(self) -> str:
        """Name of the file, without its ending."""
        return self.path.stem
