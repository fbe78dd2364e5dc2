"""F1 of constituents as EVALB counts it, and parses that cost no learning."""

from collections import Counter
from collections.abc import Iterable, Sequence

from smoothsp.data import ConstituencyTree as Tree
from smoothsp.data.examples import Span
from smoothsp.data.trees import TOP, unchained

PUNCTUATION = frozenset([",", ":", "``", "''", "."])


def f1(gold: Sequence[Tree], found: Sequence[Tree]) -> dict[str, float]:
    """Labelled precision, recall, F1, and the share of sentences without a mistake.

    As EVALB counts with the parameters of Collins: constituents are a multiset of
    labels and places, chains of unary rules one constituent for each label; TOP and
    tags are left out, punctuation takes up no place, and PRT is the same as ADVP.
    """
    right = true = guessed = exact = 0
    for one, other in zip(gold, found, strict=True):
        a, b = (_counted(spans, one.tags) for spans in (one.spans, other.spans))
        same = (a & b).total()
        right, true, guessed = right + same, true + a.total(), guessed + b.total()
        exact += a == b
    precision, recall = right / max(1, guessed), right / max(1, true)
    mean = 2 * right / max(1, true + guessed)
    return {
        "f1": mean, "precision": precision, "recall": recall, "exact": exact / len(gold)
    }  # fmt: skip


def _counted(spans: Iterable[Span], tags: Sequence[str]) -> Counter[Span]:
    place = [0]
    for tag in tags:
        place.append(place[-1] + (tag not in PUNCTUATION))
    found: Counter[Span] = Counter()
    for label, first, last in unchained(spans):
        begin, end = place[first], place[last + 1]
        if label != TOP and begin < end:
            found["ADVP" if label == "PRT" else label, begin, end] += 1
    return found


def without_learning(train: Sequence[Tree], trees: Sequence[Tree]) -> list[Tree]:
    """Right-branching trees with the labels that are most usual in training."""
    tops = Counter(tree.spans[0][0] for tree in train)
    usual = Counter(label for tree in train for label, _, _ in tree.spans)
    return right_branching(trees, tops.most_common(1)[0][0], usual.most_common(1)[0][0])


def right_branching(trees: Sequence[Tree], top: str, other: str) -> list[Tree]:
    """What costs no learning: each word begins a constituent that ends the sentence."""
    return [
        Tree(
            tree.words,
            [
                (other if first else top, first, len(tree.words) - 1)
                for first in range(max(1, len(tree.words) - 1))
            ],
            tree.tags,
        )
        for tree in trees
    ]
