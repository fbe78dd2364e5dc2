"""Projectivity: crossing arcs of dependency trees, crossing spans."""

from collections.abc import Sequence
from dataclasses import replace

from smoothsp.data.examples import ConstituencyTree, Span

__all__ = ["crossing_arcs", "drop_crossing_spans", "lift_crossing_arcs"]


def crossing_arcs(heads: Sequence[int]) -> list[int]:
    """Return the words whose arcs are not projective.

    An arc is projective if its head is an ancestor of all words between head and word.
    Words and heads count from 1.
    """
    return [
        word
        for word, head in enumerate(heads, start=1)
        if any(
            not _is_ancestor(heads, head, between)
            for between in range(min(word, head) + 1, max(word, head))
        )
    ]


def lift_crossing_arcs(heads: Sequence[int]) -> list[int]:
    """Lift crossing arcs until the tree is projective, the shortest first.

    Lifting replaces the head of a word by the head of that head.

    Source: Nivre and Nilsson, "Pseudo-Projective Dependency Parsing" (2005), figure 2.
    """
    lifted = list(heads)
    while crossing := crossing_arcs(lifted):
        word = min(crossing, key=lambda word: (abs(word - lifted[word - 1]), word))
        lifted[word - 1] = lifted[lifted[word - 1] - 1]
    return lifted


def drop_crossing_spans(tree: ConstituencyTree) -> ConstituencyTree:
    """Return a tree without spans that cross an earlier span."""
    compatible: list[Span] = []
    for label, i, j in tree.spans:
        if not any(a < i <= b < j or i < a <= j < b for _, a, b in compatible):
            compatible.append((label, i, j))
    return replace(tree, spans=compatible)


def _is_ancestor(heads: Sequence[int], head: int, word: int) -> bool:
    while word and word != head:
        word = heads[word - 1]
    return word == head
