"""Types of training examples: tagged sentences, trees, and images with boxes."""

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
    """Tag of each word, None where unknown; None if all tags are unknown."""
    document: int = field(default=0, compare=False)
    """Index of the document of the sentence."""
    others: Sequence[Sequence[str]] = field(default=(), repr=False, compare=False)
    """Further columns of the file except word numbers, each with a value a word."""

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Word and further columns of each word, without numbers and tags."""
        return list(zip(self.words, *self.others, strict=True))


@dataclass(frozen=True)
class DependencyTree:
    """Words, numbered from 1, their heads, and the labels of the arcs.

    Examples
    --------
    >>> DependencyTree(["dogs", "sleep"], [2, 0], ["nsubj", "root"]).heads
    [2, 0]
    """

    words: list[str]
    heads: list[int] = field(default_factory=list)
    """Number of the head of each word, 0 for the root; empty if unknown."""
    labels: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list, repr=False)
    """Lines of the CoNLL-U file, with comments and tokens of several words."""


@dataclass(frozen=True)
class ConstituencyTree:
    """Words and labelled constituents, outer before inner ones.

    Examples
    --------
    >>> ConstituencyTree(["dogs", "sleep"], [("S", 0, 1), ("NP", 0, 0)]).tags
    ['XX', 'XX']
    """

    words: list[str]
    spans: list[Span]
    """Label, first and last word, inclusive; a chain of unary rules as ``S+VP``."""
    tags: list[str] = field(default_factory=list)
    """Parts of speech; ``XX`` if unknown."""

    def __post_init__(self) -> None:
        if not self.tags:
            object.__setattr__(self, "tags", ["XX"] * len(self.words))


@dataclass(frozen=True)
class AnnotatedImage:
    """An image with any number of labelled boxes.

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
        """File name without its suffix."""
        return self.path.stem
