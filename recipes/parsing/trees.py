"""Dependency trees: which arcs cross, trees without crossings, and scores of parses."""

from collections.abc import Sequence

from smoothsp.data import DependencyTree as Sentence


def crossing(heads: Sequence[int]) -> list[int]:
    """The words whose arc passes over a word that does not hang below its head.

    Words and heads count from 1; a tree is projective where there are none.
    """
    return [
        word
        for word, head in enumerate(heads, start=1)
        if any(
            not _is_above(heads, head, between)
            for between in range(min(word, head) + 1, max(word, head))
        )
    ]


def projective(heads: Sequence[int]) -> list[int]:
    """The tree, its crossing arcs lifted until there are none, the shortest first.

    To lift an arc is to give a word the head of its head.

    Source: Nivre and Nilsson, "Pseudo-Projective Dependency Parsing" (2005), figure 2.
    """
    lifted = list(heads)
    while found := crossing(lifted):
        word = min(found, key=lambda word: (abs(word - lifted[word - 1]), word))
        lifted[word - 1] = lifted[lifted[word - 1] - 1]
    return lifted


def attachment(gold: Sequence[Sentence], found: Sequence[Sentence]) -> dict[str, float]:
    """UAS and LAS, shares of all words, by the rules of the CoNLL 2018 shared task.

    A word counts for UAS if its head is right, for LAS if the label is, too, without
    what follows a colon. No word is left out, punctuation neither.
    """
    words = heads = both = 0
    for number, (true, guess) in enumerate(zip(gold, found, strict=True), start=1):
        if true.words != guess.words:
            raise ValueError(f"found: expected the words of sentence {number}")
        rows = zip(true.heads, guess.heads, true.labels, guess.labels, strict=True)
        for head, other, label, name in rows:
            words += 1
            heads += head == other
            both += head == other and label.split(":")[0] == name.split(":")[0]
    return {"uas": heads / words, "las": both / words}


def attached_to_neighbours(
    sentences: Sequence[Sentence], to: str, label: str
) -> list[Sentence]:
    """What costs no learning: each word hangs from the word before it, or after it."""
    found = []
    for sentence in sentences:
        n = len(sentence.words)
        heads = list(range(n)) if to == "previous" else [*range(2, n + 1), 0]
        labels = ["root" if head == 0 else label for head in heads]
        found.append(Sentence(sentence.words, heads, labels))
    return found


def _is_above(heads: Sequence[int], head: int, word: int) -> bool:
    while word and word != head:
        word = heads[word - 1]
    return word == head
