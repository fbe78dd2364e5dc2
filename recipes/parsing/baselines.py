"""Parses that cost no learning."""

from collections import Counter
from collections.abc import Sequence

from smoothsp.data import ConstituencyTree, DependencyTree
from smoothsp.data.trees import entities, nest_entities
from smoothsp.models.projectivity import drop_crossing_spans


def neighbour_heads(
    trees: Sequence[DependencyTree], to: str, label: str
) -> list[DependencyTree]:
    """Each word hangs from the word before it, or after it."""
    predicted = []
    for tree in trees:
        n = len(tree.words)
        heads = list(range(n)) if to == "previous" else [*range(2, n + 1), 0]
        labels = ["root" if head == 0 else label for head in heads]
        predicted.append(DependencyTree(tree.words, heads, labels))
    return predicted


def right_branching(
    train: Sequence[ConstituencyTree], trees: Sequence[ConstituencyTree]
) -> list[ConstituencyTree]:
    """Each word begins a constituent that ends the sentence.

    The labels are those that are most usual in training.
    """
    tops = Counter(tree.spans[0][0] for tree in train)
    label_counts = Counter(label for tree in train for label, _, _ in tree.spans)
    (top, _), (other, _) = tops.most_common(1)[0], label_counts.most_common(1)[0]
    predicted = []
    for tree in trees:
        last = len(tree.words) - 1
        firsts = range(max(1, last))
        spans = [(other if first else top, first, last) for first in firsts]
        predicted.append(ConstituencyTree(tree.words, spans))
    return predicted


def majority_entities(
    train: Sequence[ConstituencyTree], trees: Sequence[ConstituencyTree]
) -> list[ConstituencyTree]:
    """Names of training have the type that they mostly had."""
    type_counts: dict[tuple[str, ...], Counter[str]] = {}
    for tree in train:
        for label, i, j in entities(tree):
            type_counts.setdefault(tuple(tree.words[i : j + 1]), Counter())[label] += 1
    longest = max(map(len, type_counts), default=0)
    predicted = []
    for tree in trees:
        words, spans = tree.words, []
        for size in range(longest, 0, -1):
            for i in range(len(words) - size + 1):
                if counts := type_counts.get(tuple(words[i : i + size])):
                    spans.append((counts.most_common(1)[0][0], i, i + size - 1))
        predicted.append(drop_crossing_spans(nest_entities(words, spans)))
    return predicted
