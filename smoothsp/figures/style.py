"""Colours and positions of words and arcs, shared by figures and notebooks."""

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

# Colours that colour-blind readers can distinguish.
# Source: Okabe and Ito, "Color Universal Design" (2008), the colour set.
COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442"
)  # fmt: skip
CORRECT_COLOUR, ERROR_COLOUR = COLOURS[0], COLOURS[5]
INK, FAINT, PALE = "#222222", "#888888", "#BBBBBB"
# columns between two words
GAP = 1.6


class Arc(NamedTuple):
    """An arc of a dependency tree; positions in columns of text."""

    word: int
    head: int | None
    """Index of the head; None for the root, whose arc comes from above."""
    begin: float
    end: float
    level: int
    """Height of the arc, from 1: above all arcs that it overlaps."""
    label: str


def colour(number: int) -> str:
    """Return the colour of a type or label."""
    return COLOURS[number % len(COLOURS)]


def columns(text: str) -> int:
    """Return the width of a text in columns; wide East Asian letters take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def word_centres(
    words: Sequence[str], labels: Sequence[str]
) -> tuple[list[float], float]:
    """Return the centre of each word in columns, and the width of the line."""
    centres, offset = [], 0.0
    for word, label in zip(words, labels, strict=True):
        # wide enough for the word, and for the label of an arc to the next word
        size = max(columns(word), 0.9 * columns(label)) + GAP
        centres.append(offset + size / 2)
        offset += size
    return centres, offset


def arcs(
    centres: Sequence[float], heads: Sequence[int], labels: Sequence[str]
) -> list[Arc]:
    """Return the arcs of a tree; heads count from 1, 0 is the root, -1 is no arc."""
    spans = {
        word: (min(word, head - 1), max(word, head - 1))
        for word, head in enumerate(heads)
        if head > 0
    }
    # short arcs first: an arc is one level above all lower arcs that it overlaps
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
    tree_arcs = []
    for word, (head, label) in enumerate(zip(heads, labels, strict=True)):
        end = centres[word]
        if head == 0:
            tree_arcs.append(Arc(word, None, end, end, highest, label))
        elif head > 0:
            # start beside the centre of the head, where the arc of the head ends
            begin = centres[head - 1] + (0.5 if word >= head else -0.5)
            tree_arcs.append(Arc(word, head - 1, begin, end, level[word], label))
    return tree_arcs
