"""Parses that cost no learning."""

from collections import Counter
from collections.abc import Sequence

from smoothsp.data import ConstituencyTree, DependencyTree
from smoothsp.data.trees import entities, nest_entities
from smoothsp.models.projectivity import drop_crossing_spans


def attached_to_neighbours(
    trees: Sequence[DependencyTree], to: str, label: str
) -> list[DependencyTree]:
    """Each word hangs from the word before it, or after it."""
    found = []
    for tree in trees:
        n = len(tree.words)
        heads = list(range(n)) if to == "previous" else [*range(2, n + 1), 0]
        labels = ["root" if head == 0 else label for head in heads]
        found.append(DependencyTree(tree.words, heads, labels))
    return found


def right_branching(
    train: Sequence[ConstituencyTree], trees: Sequence[ConstituencyTree]
) -> list[ConstituencyTree]:
    """Each word begins a constituent that ends the sentence.

    The labels are those that are most usual in training.
    """
    tops = Counter(tree.spans[0][0] for tree in train)
    usual = Counter(label for tree in train for label, _, _ in tree.spans)
    (top, _), (other, _) = tops.most_common(1)[0], usual.most_common(1)[0]
    found = []
    for tree in trees:
        last = len(tree.words) - 1
        places = range(max(1, last))
        spans = [(other if first else top, first, last) for first in places]
        found.append(ConstituencyTree(tree.words, spans))
    return found


def looked_up(
    train: Sequence[ConstituencyTree], trees: Sequence[ConstituencyTree]
) -> list[ConstituencyTree]:
    """Names of training have the type that they mostly had."""
    kinds: dict[tuple[str, ...], Counter[str]] = {}
    for one in train:
        for label, i, j in entities(one):
            kinds.setdefault(tuple(one.words[i : j + 1]), Counter())[label] += 1
    longest = max(map(len, kinds), default=0)
    found = []
    for one in trees:
        words, spans = one.words, []
        for size in range(longest, 0, -1):
            for i in range(len(words) - size + 1):
                if seen := kinds.get(tuple(words[i : i + size])):
                    spans.append((seen.most_common(1)[0][0], i, i + size - 1))
        found.append(drop_crossing_spans(nest_entities(words, spans)))
    return found
