"""Colours and positions shared by figures and notebooks."""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

__all__ = [
    "COLOURS",
    "CORRECT_COLOUR",
    "ERROR_COLOUR",
    "FAINT",
    "INK",
    "PALE",
    "Arc",
    "arcs",
    "colour",
]
__all__ += ["columns", "word_centres"]

# Readers who are colour-blind can tell them apart.
# Source: Okabe and Ito, "Color Universal Design" (2008), the colour set.
COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442"
)  # fmt: skip
CORRECT_COLOUR, ERROR_COLOUR = COLOURS[0], COLOURS[5]
INK, FAINT, PALE = "#222222", "#888888", "#BBBBBB"
GAP = 1.6


class Arc(NamedTuple):
    """An arc over words, in columns of letters."""

    word: int
    head: int | None
    """None: the root, from above."""
    begin: float
    end: float
    level: int
    """Its height: above all arcs that it spans, from 1."""
    label: str


def colour(number: int) -> str:
    """The colour of a type or label."""
    return COLOURS[number % len(COLOURS)]


def columns(text: str) -> int:
    """Columns that a text takes, where Chinese and Japanese letters take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def word_centres(
    words: Sequence[str], labels: Sequence[str]
) -> tuple[list[float], float]:
    """The middle of each word of a line, and its width."""
    places, at = [], 0.0
    for word, label in zip(words, labels, strict=True):
        # room for the word, and for its label where the head is next to it
        size = max(columns(word), 0.9 * columns(label)) + GAP
        places.append(at + size / 2)
        at += size
    return places, at


def arcs(
    places: Sequence[float], heads: Sequence[int], labels: Sequence[str]
) -> list[Arc]:
    """Arcs of a tree; ``heads`` count from 1, 0 is the root, -1 is no arc at all."""
    spans = {
        word: (min(word, head - 1), max(word, head - 1))
        for word, head in enumerate(heads)
        if head > 0
    }
    level: dict[int, int] = {}
    for word in sorted(spans, key=lambda word: spans[word][1] - spans[word][0]):
        first, last = spans[word]
        below = [
            level[other]
            for other in level
            if spans[other][0] < last and first < spans[other][1]
        ]
        level[word] = 1 + max(below, default=0)
    highest = 1 + max(level.values(), default=0)
    found = []
    for word, (head, label) in enumerate(zip(heads, labels, strict=True)):
        end = places[word]
        if head == 0:
            found.append(Arc(word, None, end, end, highest, label))
        elif head > 0:
            # begins beside the middle of the head, where another arc may end
            begin = places[head - 1] + (0.5 if word >= head else -0.5)
            found.append(Arc(word, head - 1, begin, end, level[word], label))
    return found
