"""Crossing arcs of dependency trees, and crossing spans."""

from collections.abc import Sequence
from dataclasses import replace

from smoothsp.data.examples import ConstituencyTree, Span

__all__ = ["crossing_arcs", "drop_crossing_spans", "lift_crossing_arcs"]


def crossing_arcs(heads: Sequence[int]) -> list[int]:
    """Return the words whose arc passes over a word that does not hang below its head.

    Words and heads count from 1. A tree is projective if there are none.
    """
    return [
        word
        for word, head in enumerate(heads, start=1)
        if any(
            not _is_above(heads, head, between)
            for between in range(min(word, head) + 1, max(word, head))
        )
    ]


def lift_crossing_arcs(heads: Sequence[int]) -> list[int]:
    """Lift crossing arcs until there are none, the shortest first.

    To lift an arc is to give a word the head of its head.

    Source: Nivre and Nilsson, "Pseudo-Projective Dependency Parsing" (2005), figure 2.
    """
    lifted = list(heads)
    while found := crossing_arcs(lifted):
        word = min(found, key=lambda word: (abs(word - lifted[word - 1]), word))
        lifted[word - 1] = lifted[lifted[word - 1] - 1]
    return lifted


def drop_crossing_spans(tree: ConstituencyTree) -> ConstituencyTree:
    """Return a tree without the spans that cross one before them."""
    kept: list[Span] = []
    for label, i, j in tree.spans:
        if not any(a < i <= b < j or i < a <= j < b for _, a, b in kept):
            kept.append((label, i, j))
    return replace(tree, spans=kept)


def _is_above(heads: Sequence[int], head: int, word: int) -> bool:
    while word and word != head:
        word = heads[word - 1]
    return word == head
